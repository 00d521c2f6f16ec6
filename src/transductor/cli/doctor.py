"""``transductor doctor``: what is installed, what can run here, and whether it computes what it should."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.terminal import console, interruptions, print_written, refusal, refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from transductor.doctor.installation import Package
    from transductor.doctor.self_check import Check

_MOST_FAULTS = 5
_REMEDIES = {
    "C compiler": "Triton compiles a launcher in C: install gcc, or name a compiler in the variable CC",
    "out of memory": "the device is full: free it, or hide it with CUDA_VISIBLE_DEVICES",
    "no kernel image": "this build of torch has no code for this device: install one that has",
    "Numba needs NumPy": "numba and NumPy do not fit together: pip install -U numba",
}
_REPORT = "a wrong kernel is a bug: report it with the file of --json; until then give the scan another backend="


def doctor(
    compiled: Annotated[bool, typer.Option("--compile", help="Also torch.compile a small model: a minute.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write everything here, for a bug report.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the numbers drawn; fresh ones without it.")] = None,
) -> None:
    """Check this installation: versions, devices, and every kernel, forward and backward, against float64."""
    try:
        import torch  # noqa: F401
    except Exception as error:  # a build that does not fit this computer fails in many ways
        raise refusal(f"torch cannot be imported: {error}", status=1) from None
    from transductor.doctor.installation import advice, devices, packages, processors, scans
    from transductor.doctor.self_check import run_self_check
    from transductor.results import Record

    terminal = console(160)
    installed, hardware, backends = packages(), processors(), scans()
    terminal.print(_packages(installed))
    terminal.print(_processors(hardware, backends))
    seed = time.time_ns() % (1 << 31) if seed is None else seed
    begin = time.perf_counter()
    with interruptions(lambda: "interrupted"), terminal.status("checking") as status:
        checks = run_self_check(
            devices(),
            compiled=compiled,
            seed=seed,
            on_check=lambda name, done, total: status.update(f"checking {name} ({done + 1} of {total})"),
        )
    terminal.print(_verdicts(checks))
    for line in advice(installed, backends):
        terminal.print(f"! {line}", highlight=False, soft_wrap=True)
    faults = [check for check in checks if check.fault]
    for line in _explained(faults):
        terminal.print(line, highlight=False, soft_wrap=True, style="bold red")
    if json is not None:
        measurements = {
            "packages": [asdict(package) for package in installed],
            "devices": hardware,
            "scans": backends,
            "checks": [_plain(check) for check in checks],
            "advice": advice(installed, backends),
        }
        with refusals():
            written = Record("doctor", {"seed": seed, "compile": compiled}, measurements).write(json)
        print_written(written)
    if faults:
        raise typer.Exit(1)
    took = time.perf_counter() - begin
    terminal.print(f"✓ everything that can run here is right ({len(checks)} checks, {took:.0f} s)", highlight=False)


def _packages(installed: Sequence[Package]) -> Table:
    from rich.table import Table

    import transductor

    version = ".".join(map(str, sys.version_info[:3]))
    title = f"transductor {transductor.__version__}, Python {version}"
    table = Table("package", "version", "wanted", "", title=title, title_justify="left")
    for package in installed:
        state = "✓" if package.version is not None else "–"
        remark = f"pip install 'transductor[{package.extra}]'" if package.version is None and package.extra else ""
        if package.too_old or (package.version is None and not package.extra):
            state, remark = "✗", "too old" if package.too_old else "missing"
        least = f"≥ {package.least}" if package.least else ""
        table.add_row(f"{state} {package.name}", package.version or "not installed", least, remark)
    return table


def _processors(hardware: Sequence[dict[str, Any]], backends: Sequence[dict[str, Any]]) -> Table:
    from rich.table import Column, Table

    columns = (Column(name, overflow="fold") for name in ("device", "", ""))
    table = Table(*columns, title="Devices, and the backends of the scan", title_justify="left")
    for processor in hardware:
        table.add_row(processor["device"], processor["name"], processor["details"])
        for backend in backends:
            if backend["device"] == processor["device"]:
                table.add_row("", f"{'✓' if backend['usable'] else '–'} {backend['backend']}", backend["reason"])
    return table


def _verdicts(checks: Sequence[Check]) -> Table:
    """Return a line for each subject, device and precision: how many sizes, and what came closest to its limit."""
    from rich.table import Table

    table = Table(title="Checked against float64, forward and backward", title_justify="left")
    for column in ("", "device", "precision", "sizes", "error", "allowed", "seconds", "closest to its limit"):
        table.add_column(column, justify="right" if column in ("sizes", "error", "allowed", "seconds") else "left")
    groups: dict[tuple[str, str, str], list[Check]] = {}
    for check in checks:
        groups.setdefault((check.subject, check.device, check.precision), []).append(check)
    for (subject, device, precision), group in groups.items():
        wrong = [check for check in group if check.fault]
        worst = wrong[0] if wrong else max(group, key=lambda check: check.error / (check.allowed or 1))
        table.add_row(
            f"{'✗' if wrong else '✓'} {subject}",
            device,
            precision,
            f"{len(group) - len(wrong)} of {len(group)}" if wrong else str(len(group)),
            f"{worst.error:.0e}" if worst.part else "",
            f"{worst.allowed:.0e}" if worst.part else "",
            f"{sum(check.seconds for check in group):.1f}",
            f"{worst.part} at {worst.case}" if worst.part else worst.case,
            style="bold red" if wrong else None,
        )
    return table


def _explained(faults: Sequence[Check]) -> list[str]:
    """Say what is wrong, where, and what to do about it."""
    lines = []
    for subject, device in dict.fromkeys((fault.subject, fault.device) for fault in faults):
        group = [fault for fault in faults if (fault.subject, fault.device) == (subject, device)]
        lines += [f"✗ {subject} on {device} is wrong at {fault.case}: {fault.fault}" for fault in group[:_MOST_FAULTS]]
        if len(group) > _MOST_FAULTS:
            lines.append(f"  and at {len(group) - _MOST_FAULTS} other sizes")
        known = [remedy for sign, remedy in _REMEDIES.items() if any(sign in fault.fault for fault in group)]
        lines += [f"  {remedy}" for remedy in known or [_REPORT]]
    return lines


def _plain(check: Check) -> dict[str, Any]:
    """Return a check for JSON, which has no NaN."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in asdict(check).items()
    }
