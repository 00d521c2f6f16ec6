"""Building a corpus: archives are fetched and checked, files chosen, duplicates removed, parts written."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from transductor.corpora.languages import LANGUAGES, Language
from transductor.corpora.packages import PACKAGES, Package
from transductor.corpora.reading import MANIFEST, PARTS, SEPARATOR, Corpus, digest_of, opened
from transductor.one_writer import only_writer
from transductor.results import write_atomically

Manifest: TypeAlias = dict[str, Any]

_LEAST, _MOST = 256, 256 * 1024  # bytes of a file: shorter ones are stubs, longer ones mostly data
_LONGEST_LINE: Final = 1000
_STANDARD_LIBRARY: Final = {
    "training": ("asyncio", "concurrent", "ctypes", "distutils", "importlib", "json", "logging", "multiprocessing"),
    "validation": ("sqlite3", "tomllib", "wsgiref"),
    "test": ("collections", "email", "http", "unittest", "urllib", "xml"),
}


class _File(NamedTuple):
    """A file of source code: its part, its package, its name there, and its text."""

    part: str
    package: str
    name: str
    text: bytes


def built_from_packages(name: str, folder: str | Path, *, archives: str | Path | None = None) -> Corpus:
    """Fetch the packages of a corpus that are missing, check their hashes, and build it; return it.

    Args:
        name: One of :data:`transductor.corpora.PACKAGES`.
        folder: Where the corpus is written; one of the same packages that is there already is kept.
        archives: Where the archives are kept; ``FOLDER/archives`` without it.

    Raises:
        ValueError: If a package cannot be fetched, or is not the file that was listed.
    """
    if name not in PACKAGES:
        raise ValueError(f"name must be one of {', '.join(PACKAGES)}; got {name!r}")
    folder, packages = Path(folder), PACKAGES[name]
    place = folder / "archives" if archives is None else Path(archives)
    listed = [package.plain() for package in packages]
    with only_writer(folder):
        if (folder / MANIFEST).is_file():
            there = opened(folder)
            if there.manifest.get("packages") == listed and there.damage is None:
                return there
        place.mkdir(parents=True, exist_ok=True)
        language = LANGUAGES[packages[0].language]
        files = (file for package in packages for file in _files_of(package, fetched(package, place), language))
        return build(files, folder, name=name, language=language, packages=listed)


def built_from_standard_library(folder: str | Path) -> Corpus:
    """Build a small corpus of this Python's standard library, which needs no network; return it."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (
        _File(part, package, path.relative_to(root).as_posix(), path.read_bytes())
        for part, packages in _STANDARD_LIBRARY.items()
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
        if not {"test", "tests"} & set(path.relative_to(root).parts)
    )
    described = [{"name": "standard library", "version": ".".join(map(str, sys.version_info[:3]))}]
    with only_writer(folder):
        return build(files, folder, name="standard_library", language=LANGUAGES["python"], packages=described)


def fetched(package: Package, place: Path) -> Path:
    """Return the archive of a package, fetched by pip where it is missing; its hash is checked."""
    path = place / package.file
    if not path.is_file():
        kind = "--no-binary" if path.suffix == ".gz" else "--only-binary"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        # The wheels listed are for every system; pip is asked for that of the listed file alone.
        command += [kind, ":all:", "--dest", str(place), f"{package.name}=={package.version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not path.is_file():
            reason = (done.stderr.strip().splitlines() or ["pip fetched another file"])[-1]
            raise ValueError(f"{package.name} {package.version} cannot be fetched: {reason}")
    if (digest := digest_of(path)) != package.sha256:
        raise ValueError(f"{path} is not the file that was listed: its SHA-256 is {digest}, not {package.sha256}")
    return path


def _files_of(package: Package, archive: Path, language: Language) -> Iterator[_File]:
    """Yield the source files of an archive, by name; nothing is unpacked to disk."""
    for name, text in sorted(_members(archive, language.suffixes)):
        yield _File(package.part, package.name, name, text)


def _members(archive: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if entry.filename.endswith(suffixes) and entry.file_size <= _MOST:
                    yield entry.filename, wheel.read(entry)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name.endswith(suffixes) and member.size <= _MOST:
                file = tar.extractfile(member)
                assert file is not None
                yield member.name, file.read()


def build(
    files: Iterable[_File | tuple[str, str, str, bytes]],
    folder: str | Path,
    *,
    name: str,
    language: Language,
    packages: Sequence[Manifest],
) -> Corpus:
    """Write a corpus: for each part its bytes, the names of its files, where windows may begin; and a manifest.

    A file is left out where it is shorter than 256 bytes or longer than 256 KiB, is not UTF-8, has a NUL, a carriage
    return or a line of more than 1 000 bytes, or says what an earlier one says (white space at the ends of lines and
    empty lines apart).  Parts come in the order training, validation, test, so that nothing of training is tested.

    Args:
        files: Part, package, name and text of each.
        folder: Where the corpus is written.
        name: Its name.
        language: What its files are written in.
        packages: What the manifest says of its packages.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sorted_files = sorted((_File(*file) for file in files), key=lambda file: PARTS.index(file.part))
    seen: set[bytes] = set()
    kept: dict[str, list[_File]] = {part: [] for part in PARTS}
    left_out = {"unfit": 0, "twice": 0}
    for file in sorted_files:
        text = file.text.removeprefix(b"\xef\xbb\xbf")
        if not _fit(text):
            left_out["unfit"] += 1
            continue
        said = hashlib.sha256(b"\n".join(line.rstrip() for line in text.split(b"\n") if line.strip())).digest()
        if said in seen:
            left_out["twice"] += 1
            continue
        seen.add(said)
        kept[file.part].append(file._replace(text=text))
    if empty := [part for part in PARTS if not kept[part]]:
        raise ValueError(f"files must have some of every part; none is left of {', '.join(empty)}")
    parts = {part: _written(folder, part, kept[part], language) for part in PARTS}
    manifest = {
        "name": name,
        "language": language.name,
        "sha256": hashlib.sha256("".join(part["sha256"] for part in parts.values()).encode()).hexdigest(),
        "parts": parts,
        "left_out": left_out,
        "packages": list(packages),
    }
    write_atomically(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    return opened(folder)


def _fit(text: bytes) -> bool:
    if not _LEAST <= len(text) <= _MOST or b"\0" in text or b"\r" in text:
        return False
    if max(map(len, text.split(b"\n"))) > _LONGEST_LINE:
        return False
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _written(folder: Path, part: str, files: Sequence[_File], language: Language) -> Manifest:
    """Write one part; return what the manifest says of it."""
    data = b"".join(file.text + SEPARATOR for file in files)
    begins, at = [], 0
    for file in files:
        places = np.union1d([0], language.begins(file.text))
        begins.append(places.astype(np.int64) + at)
        at += len(file.text) + 1
    path = write_atomically(folder / f"{part}.bin", data)
    names = "".join(f"{file.package} {file.name}\n" for file in files)
    write_atomically(folder / f"{part}.txt", names.encode())
    with (folder / f"{part}.begins.npy").open("wb") as places_file:
        np.save(places_file, np.concatenate(begins))
    return {"files": len(files), "bytes": len(data), "sha256": digest_of(path)}
