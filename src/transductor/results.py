"""Results are certificates and records, written to files that are never incomplete.

Only the standard library is imported, so that reports can read results where torch is not installed.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transductor.json_reading import JSONError, read_json
from transductor.one_writer import unfinished_file


@dataclass(frozen=True)
class Certificate:
    """A claim, the bound it must meet, the value measured, and where the worst case occurred."""

    claim: str
    bound: float
    measured: float
    witness: str = ""

    @property
    def holds(self) -> bool:
        """Whether the measured value meets the bound; NaN does not."""
        return self.measured <= self.bound

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        where = f" at {self.witness}" if self.witness else ""
        return f"{self.claim}: {verdict} (measured {self.measured:.2e}, bound {self.bound:.2e}{where})"


@dataclass(frozen=True)
class Record:
    """The outcome of one run: what was asked, what was measured, and where it ran."""

    name: str
    settings: Mapping[str, Any]
    measurements: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=lambda: environment())

    def write(self, path: str | Path) -> Path:
        """Write as JSON, atomically; NaN and infinity are refused."""
        return write_atomically(path, (_json(asdict(self)) + "\n").encode())


def _json(value: Any, indent: str = "") -> str:
    """Return indented JSON in which a short list stays on one line, because curves have many short lists."""
    flat = json.dumps(value, allow_nan=False)
    if not value or not isinstance(value, (dict, list, tuple)) or (not isinstance(value, dict) and len(flat) < 100):
        return flat
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(str(key))}: {_json(part, deeper)}" for key, part in value.items()]
        return "{\n" + ",\n".join(deeper + part for part in parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _json(part, deeper) for part in value) + f"\n{indent}]"


def read_record(path: str | Path) -> Record:
    """Read what :meth:`Record.write` wrote; an error names a damaged file."""
    try:
        plain = read_json(path)
    except JSONError as error:
        raise ValueError(f"{path} is not a record: {error}") from error
    parts = "settings", "measurements", "environment"
    if not isinstance(plain, dict) or plain.keys() != {"name", *parts} or not isinstance(plain["name"], str):
        raise ValueError(f"{path} is not a record: it must hold a name, {', '.join(parts)}, and nothing else")
    if not all(isinstance(plain[part], dict) for part in parts):
        raise ValueError(f"{path} is not a record: {', '.join(parts)} must be objects")
    return Record(plain["name"], *(plain[part] for part in parts))


def environment() -> dict[str, Any]:
    """Return hardware and versions, so that numbers can be judged."""
    versions = {}
    for package in ("transductor", "torch", "numpy", "triton", "jax", "numba", "flash-linear-attention"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write_atomically(path: str | Path, data: bytes) -> Path:
    """Write ``data`` to ``path`` so that a reader sees the old content or the new, never a mixture."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = unfinished_file(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "posix":  # renamed while it is locked: no process may take it for a leftover
                os.chmod(name, 0o666 & ~_umask())
                os.replace(name, path)
        if os.name != "posix":  # Windows renames no open file
            os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
