"""One altered file after another is given to its reader, and watched: what it answers, when, and what it touches."""

from __future__ import annotations

import contextlib
import gc
import gzip
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fuzzing.damage import mutated
from tests.fuzzing.mutations import SECRET, altered_safetensors, altered_text, put_odd_file
from transductor.model.bundle import UnsealedCheckpointWarning
from transductor.results import Record

try:
    import resource
except ImportError:  # not on Windows: memory is not limited there
    resource = None  # type: ignore[assignment]

MOST_SECONDS: Final = 5.0
MOST_MEMORY: Final = 2**30
LONGEST_MESSAGE: Final = 1000
_ODD_SHARE: Final = 0.06
_BETWEEN: Final = 50  # inputs between two looks at how much memory the process has
_SHORT_OF_MEMORY: Final = ("allocate memory", "MemoryError", "not enough memory", "bad alloc")


@dataclass(frozen=True)
class Reader:
    """Something that reads strangers' files.

    Attributes:
        name: What is counted under.
        variants: Each writes valid files into a folder.
        read: Reads such a folder.
        errors: What it may raise; exactly these classes.
        check: Compares what was read with what the files say now; an AssertionError says what is different.
        sign: Gives altered files the hashes that a forger would.
        altered: Says which files are altered; all if not given.
        share: How many of the inputs are for this reader, relative to others.
        names_file: Whether a refusal must name a file.
        used: Does with one of many values that were accepted what they are for, such as drawing them.
        data_anywhere: Whether what is read names data that may lie anywhere; they are opened, but never quoted.
    """

    name: str
    variants: Mapping[str, Callable[[Path], object]]
    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]
    check: Callable[[Path, Any], object]
    sign: Callable[[Path, random.Random], object] | None = None
    altered: Callable[[Path], bool] = lambda path: True
    share: float = 1.0
    names_file: bool = True
    data_anywhere: bool = False
    used: Callable[[Path, Any], object] | None = None


@dataclass
class Tally:
    """What a reader answered."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0


class _Watch:
    """What Python opens, removes or makes while a reader reads; audit hooks cannot be taken away, so there is one."""

    def __init__(self) -> None:
        self.root = self.folder = ""
        self.seen: list[str] = []
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.root:
            return
        if event == "open":
            path, mode, flags = arguments
            if not isinstance(path, str | bytes | os.PathLike):
                return
            text = os.path.abspath(os.fsdecode(path))
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            beside = text.startswith(self.root) and not text.startswith(self.folder)
            if beside or text in ("/dev/zero", "/etc/passwd") or (writes and "__pycache__" not in text):
                self.seen.append(f"opened {text} ({mode or flags})")
        elif event.split(".")[0] in ("socket", "subprocess", "shutil") or event in (
            "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.system",
        ):  # fmt: skip
            self.seen.append(f"{event}{arguments!r:.200}")


_watch: _Watch | None = None


@contextmanager
def watched(root: Path, folder: Path) -> Iterator[list[str]]:
    """Note everything that is touched outside of ``folder``, and everything that is written anywhere."""
    global _watch
    _watch = _watch or _Watch()
    _watch.root, _watch.folder, _watch.seen = str(root), str(folder), []
    try:
        yield _watch.seen
    finally:
        _watch.root = ""


@contextmanager
def _at_most_seconds(seconds: float) -> Iterator[None]:
    """Interrupt what hangs; only the main thread can be."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"still not answered after {seconds:.0f} seconds")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Memory:
    """Lets the process have a gigabyte more than it has; what asks for more is told that there is none."""

    def __init__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_AS) if resource else None

    def limit(self) -> None:
        """Count from what the process has now."""
        if resource and sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            assert self.before is not None
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, self.before[1]))

    def free(self) -> None:
        """Take the limit away."""
        if resource and sys.platform == "linux":
            assert self.before is not None
            resource.setrlimit(resource.RLIMIT_AS, self.before)


def _listing(folder: str | Path) -> list[tuple[str, int, int, int]]:
    """What lies in a folder, with sizes and times."""
    out = []
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            out.append((entry.path, status.st_mode, status.st_size, status.st_mtime_ns))
            if entry.is_dir(follow_symlinks=False):
                out += _listing(entry.path)
    return sorted(out)


class Fuzzer:
    """Alters the valid files of one reader, and keeps account of what it answers.

    Args:
        reader: The reader.
        root: A folder for everything; the files lie in folders of it.
        use_every: Of how many accepted values one is used.
    """

    def __init__(self, reader: Reader, root: Path, use_every: int = 40) -> None:
        self.reader, self.root, self.tally = reader, root / reader.name.replace(" ", "_"), Tally()
        self.accepted, self.use_every = 0, use_every
        self.elsewhere: list[bytes] = [b"{}", b"\x89PNG\r\n", b"PK\x03\x04"]
        self.valid: dict[str, dict[str, bytes]] = {}
        for name, write in reader.variants.items():
            folder = self.folder(name)
            folder.mkdir(parents=True)
            (folder.parent / SECRET).parent.mkdir()
            (folder.parent / SECRET).write_text("top secret\n")
            write(folder)
            self.valid[name] = {
                str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
            }
            self.elsewhere += self.valid[name].values()
            reader.check(folder, reader.read(folder))  # what is valid is accepted, and means what it says

    def folder(self, variant: str) -> Path:
        """Where the files of a variant lie."""
        return self.root / variant / "case"

    def run(self, count: int, seed: int = 0) -> Tally:
        """Try so many altered inputs, those of the numbers from ``seed`` on."""
        memory = _Memory()
        try:
            for number in range(seed, seed + count):
                if (number - seed) % _BETWEEN == 0:
                    memory.free()
                    memory.limit()
                self._tried(number)
        finally:
            memory.free()
        return self.tally

    def _tried(self, number: int) -> None:
        rng = random.Random(f"{self.reader.name} {number}")
        variant = rng.choice([*self.valid])
        folder, valid = self.folder(variant), self.valid[variant]
        what, altered = self._alter(folder, valid, rng)
        problem: str | None
        try:
            with _at_most_seconds(4 * MOST_SECONDS):
                problem = self._asked(folder)
        except Exception:
            problem = traceback.format_exc(limit=-4)
        if problem:
            self.tally.outcomes["failed"] += 1
            self.tally.failures.append(f"{self.reader.name}, {variant}, input {number} ({what}): {problem}")
            self._clear(folder, valid)
            altered = {*valid}
        for name in altered:
            _restore(folder / name, valid[name])

    def _alter(self, folder: Path, valid: Mapping[str, bytes], rng: random.Random) -> tuple[str, set[str]]:
        """Alter some files; say what was done, and which may be others now."""
        names = [name for name in valid if self.reader.altered(Path(name))]
        path = folder / rng.choice(names)
        if rng.random() < _ODD_SHARE:
            return f"{path.name}: {put_odd_file(path, rng, self.elsewhere)}", {str(path.relative_to(folder))}
        touched = set()
        for _ in range(2 if rng.random() < 0.1 else 1):
            data = valid[str(path.relative_to(folder))]
            if path.suffix == ".safetensors":
                data = altered_safetensors(data, rng)
            elif path.suffix == ".gz":
                data = gzip.compress(altered_text(gzip.decompress(data), rng), 1)
                data = mutated(data, rng) if rng.random() < 0.2 else data
            else:
                data = altered_text(data, rng)
            path.write_bytes(data)
            touched.add(str(path.relative_to(folder)))
            altered, path = path, folder / rng.choice(names)
        if self.reader.sign is not None and rng.random() < 0.6:
            with contextlib.suppress(Exception):  # even a forger cannot sign what is no document
                self.reader.sign(folder, rng)
            return f"{altered.name}, signed again", {*valid}
        return altered.name, touched

    def _asked(self, folder: Path) -> str | None:
        """Let the reader read; return what is wrong with its answer."""
        reader, value, error, before = self.reader, None, None, _listing(folder.parent)
        with warnings.catch_warnings(record=True) as warned, watched(folder.parents[1], folder) as touched:
            warnings.simplefilter("always")
            began = time.perf_counter()
            try:
                with contextlib.chdir(folder):  # what is named relative to anything is there
                    value = reader.read(folder)
            except Exception as raised:
                error = raised
            seconds = time.perf_counter() - began
        self.tally.slowest = max(self.tally.slowest, seconds)
        others = [each.message for each in warned if each.category is not UnsealedCheckpointWarning]
        if touched and not self.reader.data_anywhere:
            return f"touched: {touched[:3]}"
        if seconds > MOST_SECONDS:
            return f"took {seconds:.1f} seconds: {error!r:.300}"
        if others:
            return f"warned: {others[0]!r:.300}"
        if _listing(folder.parent) != before:
            return "files were changed, made or removed"
        if error is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnsealedCheckpointWarning)
                reader.check(folder, value)
                self.accepted += 1
                if reader.used is not None and self.accepted % self.use_every == 0:
                    reader.used(folder, value)
            self.tally.outcomes["accepted, with a warning" if warned else "accepted"] += 1
            return None
        message = str(error)
        if type(error) not in reader.errors or isinstance(error.__cause__, MemoryError):
            return "".join(traceback.format_exception(error, limit=-4))
        if any(words in message for words in _SHORT_OF_MEMORY):
            return f"asks for more than a gigabyte: {message:.300}"
        if len(message) > LONGEST_MESSAGE:
            return f"a message of {len(message)} characters: {message:.300}"
        if "top secret" in message:
            return f"tells of another file: {message:.300}"
        if reader.names_file and str(folder) not in message and not reader.data_anywhere:
            return f"names no file: {message:.300}"
        self.tally.outcomes["refused"] += 1
        return None

    def _clear(self, folder: Path, valid: Mapping[str, bytes]) -> None:
        """Remove what a reader has left."""
        there = {os.path.relpath(path, folder) for path, _, _, _ in _listing(folder)}
        for name in there - {*valid} - {str(parent) for each in valid for parent in Path(each).parents}:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _restore(path: Path, data: bytes) -> None:
    """Put the valid file back in the place of whatever is there."""
    if path.is_symlink() or (path.exists() and not path.is_dir() and not path.is_file()):
        path.unlink()
    elif path.is_dir():
        path.rmdir()
    path.write_bytes(data)


def shared_out(readers: list[Reader], total: int) -> dict[str, int]:
    """How many inputs each reader is given, ``total`` in all."""
    shares = sum(reader.share for reader in readers)
    counts = {reader.name: int(total * reader.share / shares) for reader in readers}
    for reader in readers[: total - sum(counts.values())]:
        counts[reader.name] += 1
    return counts


def run_all(
    readers: list[Reader], total: int, root: Path, on_reader: Callable[[str, Tally], object] | None = None
) -> dict[str, Tally]:
    """Give ``total`` altered inputs to the readers; return what each answered."""
    tallies = {}
    for name, count in shared_out(readers, total).items():
        fuzzer = Fuzzer(next(reader for reader in readers if reader.name == name), root)
        tallies[name] = fuzzer.run(count)
        if on_reader is not None:
            on_reader(name, tallies[name])
        gc.collect()
    return tallies


KINDS: Final = ("refused", "accepted", "accepted, with a warning", "failed")


def table_rows(record: Record) -> list[str]:
    """Return the table of docs/files.md."""
    lines = ["| reader | altered | refused | accepted, as they say | accepted, with a warning | failed |"]
    lines.append("|---|---|---|---|---|---|")
    total = dict.fromkeys(KINDS, 0)
    for row in record.measurements["table"]:
        total = {kind: total[kind] + row[kind] for kind in KINDS}
        counts = [row[kind] for kind in KINDS]
        lines.append(f"| {row['reader']} | " + " | ".join(f"{count:,}" for count in (sum(counts), *counts)) + " |")
    counts = [*total.values()]
    lines.append("| all | " + " | ".join(f"{count:,}" for count in (sum(counts), *counts)) + " |")
    return lines
