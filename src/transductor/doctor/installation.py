"""What a machine offers: packages with the extra that brings each, processors, and which scans can run on them."""

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
from transductor.doctor.self_check import why_unusable
from transductor.recurrence import BACKENDS
from transductor.results import environment

_FOR_DEVELOPERS: Final = "dev"
_DRIVER: Final = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Package:
    """A package by the name it is installed under; ``version`` is None where it is missing.

    ``extra`` is the extra that brings it, empty for what is always needed; ``least`` the oldest release wanted.
    """

    name: str
    version: str | None
    extra: str
    least: str

    @property
    def too_old(self) -> bool:
        """Whether it is older than what is wanted."""
        return self.version is not None and bool(self.least) and _release(self.version) < _release(self.least)


def packages() -> list[Package]:
    """Every requirement of this package, needed ones first, as its own metadata names them."""
    found: dict[str, Package] = {}
    for line in _requirements():
        name = re.match(r"[A-Za-z0-9._-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", line)
        if name is None or name[0] == "transductor" or (extra is not None and extra[1] == _FOR_DEVELOPERS):
            continue
        least = re.search(r">=\s*([\d.]+)", line.split(";")[0])
        found.setdefault(
            name[0], Package(name[0], _version(name[0]), extra[1] if extra else "", least[1] if least else "")
        )
    return sorted(found.values(), key=lambda package: bool(package.extra))


def _requirements() -> list[str]:
    """As metadata has them; run from a folder of sources, as its pyproject.toml does."""
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
    """``2.13.0+cpu`` as ``(2, 13, 0)``."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))


def devices() -> tuple[str, ...]:
    """The CPU and every CUDA device."""
    return ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)))


def processors() -> list[dict[str, Any]]:
    """Each device: its name, and what a bug report should say of it."""
    here = environment()
    found: list[dict[str, Any]] = [
        {
            "device": "cpu",
            "name": here["processor"],
            "details": f"{here['cores']} cores, {torch.get_num_threads()} threads, "
            f"{torch.backends.cpu.get_cpu_capability()}",
        }
    ]
    for device in devices()[1:]:
        properties = torch.cuda.get_device_properties(device)
        details = (
            f"capability {properties.major}.{properties.minor}, {properties.total_memory / 2**30:.0f} GiB, "
            f"{_driver()}, torch built for CUDA {torch.version.cuda}, {_seen_by_triton()}"
        )
        found.append({"device": device, "name": properties.name, "details": details})
    return found


def _driver() -> str:
    """As the kernel tells it: ``driver 580.159.04``."""
    found = re.search(r"\s(\d+\.[\d.]+)\s", _DRIVER.read_text()) if _DRIVER.exists() else None
    return f"driver {found[1]}" if found else "driver unknown"


def _seen_by_triton() -> str:
    if find_spec("triton") is None:
        return "triton is not installed"
    try:
        from triton.runtime import driver

        return f"triton compiles for {driver.active.get_current_target().arch}"
    except Exception as error:  # a driver it cannot load, a compiler it cannot find
        return f"triton does not find it: {one_line(error)}"


def scans() -> list[dict[str, Any]]:
    """Every backend on every device: whether it is usable, or why not."""
    found = []
    for device in devices():
        for name in BACKENDS:
            reason = why_unusable(name, device)
            found.append({"backend": name, "device": device, "usable": reason is None, "reason": reason or ""})
    return found


def advice(installed: list[Package], found: list[dict[str, Any]]) -> list[str]:
    """What to do about what is missing; none of it is a fault."""
    said = []
    for package in installed:
        if package.too_old:
            said.append(
                f"{package.name} {package.version} is older than {package.least}: pip install -U {package.name}"
            )
        elif package.version is None and not package.extra:
            said.append(f"{package.name} is missing: pip install {package.name}")
    usable = {(each["backend"], each["device"]) for each in found if each["usable"]}
    if ("numba", "cpu") not in usable:
        said.append(
            "numba is missing: pip install 'transductor[cpu]'. On a CPU the scan runs by plain torch instead, which "
            "took 4.2 times as long at T = 2,048, d = 16, forward and backward (docs/scan.md)"
        )
    for device in devices()[1:]:
        if ("triton", device) not in usable:
            said.append(f"triton is missing on {device}: pip install 'transductor[gpu]'; the scan runs by plain torch")
    if len(devices()) == 1 and Path("/proc/driver/nvidia/version").exists():
        built = (
            "is built without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda} sees no device"
        )
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        said.append(
            f"an NVIDIA driver is installed, but torch {torch.__version__} {built}"
            + (f" (CUDA_VISIBLE_DEVICES={hidden!r})" if hidden is not None else ": install a build of torch for it")
        )
    return said
