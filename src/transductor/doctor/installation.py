"""What is installed here: packages with the extra that brings each, processors, and the scans that run on them."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from transductor.bench.correctness import one_line
from transductor.recurrence import BACKENDS, scan
from transductor.results import environment

_FOR_DEVELOPERS: Final = "dev"
_DRIVER: Final = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Package:
    """A package by the name it is installed under; ``version`` is None where it is missing.

    ``extra`` is the extra that brings it, empty for what is always needed; ``least`` is the oldest release allowed.
    """

    name: str
    version: str | None
    extra: str
    least: str

    @property
    def too_old(self) -> bool:
        """Whether it is older than the oldest release allowed."""
        return self.version is not None and bool(self.least) and _release(self.version) < _release(self.least)


def packages() -> list[Package]:
    """Return every requirement of this package, needed ones first, as its own metadata names them."""
    required: dict[str, Package] = {}
    for line in _requirements():
        name = re.match(r"[A-Za-z0-9._-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", line)
        if name is None or name[0] == "transductor" or (extra is not None and extra[1] == _FOR_DEVELOPERS):
            continue
        least = re.search(r">=\s*([\d.]+)", line.split(";")[0])
        required.setdefault(
            name[0], Package(name[0], _version(name[0]), extra[1] if extra else "", least[1] if least else "")
        )
    return sorted(required.values(), key=lambda package: bool(package.extra))


def _requirements() -> list[str]:
    """Read the requirements from the metadata, or from pyproject.toml when run from a folder of sources."""
    try:
        return metadata.requires("transductor") or []
    except metadata.PackageNotFoundError:
        source = Path(__file__).parents[3] / "pyproject.toml"
        project = tomllib.loads(source.read_text())["project"] if source.exists() else {}
        extras = project.get("optional-dependencies", {}).items()
        optional = [f"{line}; extra == '{extra}'" for extra, lines in extras for line in lines]
        return [*project.get("dependencies", []), *optional]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """Return ``2.13.0+cpu`` as ``(2, 13, 0)``."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))


def devices() -> tuple[str, ...]:
    """Return the CPU and every CUDA device."""
    return ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)))


def processors() -> list[dict[str, Any]]:
    """Return for each device its name, and what a bug report should say of it."""
    here = environment()
    threads, capability = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    details = f"{here['cores']} cores, {threads} threads, {capability}"
    described: list[dict[str, Any]] = [{"device": "cpu", "name": here["processor"], "details": details}]
    for device in devices()[1:]:
        properties = torch.cuda.get_device_properties(device)
        details = (
            f"capability {properties.major}.{properties.minor}, {properties.total_memory / 2**30:.0f} GiB, "
            f"{_driver()}, torch built for CUDA {torch.version.cuda}, {_seen_by_triton()}"
        )
        described.append({"device": device, "name": properties.name, "details": details})
    return described


def _driver() -> str:
    """Return the driver as the operating system names it, such as ``driver 580.159.04``."""
    version = re.search(r"\s(\d+\.[\d.]+)\s", _DRIVER.read_text()) if _DRIVER.exists() else None
    return f"driver {version[1]}" if version else "driver unknown"


def _seen_by_triton() -> str:
    if find_spec("triton") is None:
        return "triton is not installed"
    try:
        from triton.runtime import driver

        return f"triton compiles for {driver.active.get_current_target().arch}"
    except Exception as error:  # a driver it cannot load, a compiler it cannot find
        return f"triton does not find it: {one_line(error)}"


def scans() -> list[dict[str, Any]]:
    """Return every backend on every device: whether it is usable, or why not."""
    backends = []
    for device in devices():
        for name in BACKENDS:
            reason = why_unusable(name, device)
            backends.append({"backend": name, "device": device, "usable": reason is None, "reason": reason or ""})
    return backends


def why_unusable(backend: str, device: str) -> str | None:
    """Return the reason why a backend does not run on a device; None when it does."""
    nothing = torch.zeros(1, 0, dtype=torch.long, device=device)
    eye = torch.eye(2, device=device)
    try:
        scan(eye[None], nothing, initial_state=eye[0], backend=backend)  # no step: arguments are checked, nothing runs
    except (ImportError, ValueError) as error:
        return str(error)
    return None


def advice(installed: list[Package], backends: list[dict[str, Any]]) -> list[str]:
    """Say what to do about what is missing; none of it is a fault."""
    lines = []
    for package in installed:
        if package.too_old:
            lines.append(
                f"{package.name} {package.version} is older than {package.least}: pip install -U {package.name}"
            )
        elif package.version is None and not package.extra:
            lines.append(f"{package.name} is missing: pip install {package.name}")
    usable = {(backend["backend"], backend["device"]) for backend in backends if backend["usable"]}
    if ("numba", "cpu") not in usable:
        lines.append(
            "numba is missing: pip install 'transductor[cpu]'. On a CPU the scan runs in plain torch instead, which "
            "took 4.2 times as long at T = 2,048, d = 16, forward and backward (docs/scan.md)"
        )
    for device in devices()[1:]:
        if ("triton", device) not in usable:
            lines.append(f"triton is missing on {device}: pip install 'transductor[gpu]'; the scan runs in plain torch")
    if len(devices()) == 1 and _DRIVER.exists():
        built = (
            "is built without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda} sees no device"
        )
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        lines.append(
            f"an NVIDIA driver is installed, but torch {torch.__version__} {built}"
            + (f" (CUDA_VISIBLE_DEVICES={hidden!r})" if hidden is not None else ": install a build of torch for it")
        )
    return lines
