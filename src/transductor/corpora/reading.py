"""Reading a corpus: the bytes of each part, where files begin and end, and where a window may begin."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from transductor.json_reading import JSONError, read_json

PARTS: Final = ("training", "validation", "test")
MANIFEST: Final = "manifest.json"
SEPARATOR: Final = b"\0"
"""Stands after every file; no file holds it."""

_VARIABLE: Final = "TRANSDUCTOR_CORPORA"


def corpora_folder() -> Path:
    """Return the folder of all corpora: ``TRANSDUCTOR_CORPORA``, or one below the user's cache."""
    given = os.environ.get(_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "transductor" / "corpora"


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk, as :func:`transductor.corpora.build` leaves it.

    Attributes:
        folder: Where it is.
        manifest: What it was made of, as plain data.
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def sha256(self) -> str:
        """The hash of the bytes of all parts."""
        return str(self.manifest["sha256"])

    @property
    def language(self) -> str:
        """The name of its language."""
        return str(self.manifest["language"])

    def part(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a part, mapped from disk: files in a row, each followed by a NUL."""
        return np.memmap(self.folder / f"{name}.bin", dtype=np.uint8, mode="r")

    def begins(self, name: str) -> NDArray[np.int64]:
        """Return where a window of a part may begin: at a file, or at a statement outside of all brackets."""
        places: NDArray[np.int64] = np.load(self.folder / f"{name}.begins.npy", allow_pickle=False)
        return places

    def files(self, name: str) -> list[bytes]:
        """Return the files of a part."""
        data = (self.folder / f"{name}.bin").read_bytes()
        return data.split(SEPARATOR)[:-1]

    def names(self, name: str) -> list[str]:
        """Return the names of the files of a part, package first."""
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()

    @cached_property
    def damage(self) -> str | None:
        """What is wrong with the files, in words; None where they have the hashes of the manifest."""
        for name in PARTS:
            if digest_of(self.folder / f"{name}.bin") != self.manifest["parts"][name]["sha256"]:
                return f"{self.folder / name}.bin is not the file that the manifest describes"
        return None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def opened(folder: str | Path) -> Corpus:
    """Open the corpus in a folder.

    Raises:
        ValueError: If there is none, or its manifest cannot be read.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"there is no corpus in {folder}; make it with transductor corpus {folder.name}")
    try:
        manifest = read_json(folder / MANIFEST)
    except JSONError as error:
        raise ValueError(f"{folder / MANIFEST} cannot be read: {error}") from error
    if not isinstance(manifest, dict) or not {"sha256", "language", "parts"} <= manifest.keys():
        raise ValueError(f"{folder / MANIFEST} does not describe a corpus")
    return Corpus(folder, manifest)
