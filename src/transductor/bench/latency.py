"""The study ``latency`` measures the scan beside its peers in one run: correctness first, then time and memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from transductor.bench.correctness import Judge, one_line
from transductor.bench.memory import available_bytes, device_peak, scan_memory
from transductor.bench.peers import BoundCall, Contender, all_contenders, untimed_backends
from transductor.bench.timing import (
    Stopwatch,
    call_time,
    full_float32,
    measured_ceilings,
    quiet_collector,
    run_environment,
    stopwatch,
    take_turns,
)
from transductor.bench.workloads import ACTS, Case, Ceilings, draw, floor_of
from transductor.configuration import LATER, configuration, to_plain
from transductor.results import Record

PARTS = ("lengths", "shapes", "wide")

# Called with what is measured next, how many cells are done, and how many there are.
OnCell = Callable[[str, int, int], None]

# Timed on every shape; the other contenders are timed on the lengths only.
_OWN = ("auto", "chunked")
# Timed on wide states, large vocabularies and a million steps.
_BESIDE = (*_OWN, "attention", "lstm")


def _shapes(single: int, batched: tuple[int, int], dense: tuple[tuple[int, int], ...]) -> tuple[Case, ...]:
    """Return the shapes for our own scan: each axis varied by itself around d = 16, V = 8, float32."""
    cases: list[Case] = []
    for batch, length in ((1, single), batched):
        base = Case(batch, length)
        cases += [replace(base, dim=dim) for dim in (8, 16, 32, 64)]
        cases += [replace(base, symbols=symbols) for symbols in (256, 50_257)]
        cases += [replace(base, symbols=0), replace(base, bias=True)]
        cases += [replace(base, dtype=dtype) for dtype in ("bfloat16", "float64")]
        cases.append(Case(1, batch * length, documents=batch if batch > 1 else 32))
    return (*cases, *(Case(batch, length, dim=64, symbols=0) for batch, length in dense))


def _wide() -> tuple[Case, ...]:
    """Return what is hard on a GPU: wide states, many tokens, a million steps."""
    base = Case(64, 8192)
    dims = (replace(base, dim=dim) for dim in (16, 32, 64, 128))
    sums = replace(base, dim=32, blocks=2)
    long = Case(8, 32_768, dim=64, symbols=256), Case(1, 1 << 20)
    return (*dims, sums, replace(base, symbols=50_257), *long, *(Case(1, 32_768, dim=dim) for dim in (32, 64, 120)))


@configuration
@dataclass(frozen=True)
class LatencyStudy:
    """What is measured and for how long.

    Args:
        lengths: Cases on which every contender is timed.
        shapes: Cases on which our own scan is timed, beside ``chunked``.
        wide: Cases of wide states, large vocabularies and a million steps, beside attention and an LSTM.
        parts: Which of ``PARTS`` are measured.
        check_length: T of the comparison with float64.
        sets: Sets of operands that a contender reads in turn, so that caches are not what is measured.
        box: Seconds of timing per contender, case and act (forward, or forward and backward).
        rounds: Most samples of each.
        limit: A call expected to take more seconds is skipped.
        budget: Seconds a peer may use in all, compilation included.
        memory: B, T, d, V at which peak memory is measured.
        quick: Whether ceilings are measured on small tensors; such numbers should not be quoted.
    """

    lengths: tuple[Case, ...]
    shapes: tuple[Case, ...]
    wide: tuple[Case, ...] = field(default=(), metadata=LATER)
    parts: tuple[str, ...] = ("lengths", "shapes")
    check_length: int = 32_768
    sets: int = 4
    box: float = 0.1
    rounds: int = 25
    limit: float = 1.0
    budget: float = 45.0
    memory: tuple[int, int, int, int] = (64, 8192, 16, 8)
    quick: bool = False

    @staticmethod
    def for_device(device: str) -> LatencyStudy:
        """Return the study whose numbers are published."""
        if device == "cuda":
            lengths = tuple(Case(1, time) for time in (128, 512, 2048, 8192, 32_768, 131_072))
            batched = Case(64, 2048), Case(64, 8192)
            shapes = _shapes(32_768, (64, 2048), ((1, 32_768), (16, 2048)))
            return LatencyStudy((*lengths, *batched), shapes, _wide(), PARTS, limit=0.25)
        lengths = tuple(Case(1, time) for time in (128, 512, 2048, 8192, 32_768))
        shapes = _shapes(32_768, (64, 2048), ((1, 8192), (4, 2048)))
        return LatencyStudy((*lengths, Case(64, 32_768)), shapes, sets=2, box=1.0, rounds=9, limit=4.0, budget=60.0)

    @staticmethod
    def small() -> LatencyStudy:
        """Return a study of seconds: a quick check that everything runs."""
        shapes = tuple(case for case in _shapes(64, (4, 32), ((1, 16),)) if case.symbols < 1000 and case.dim < 64)
        wide = Case(2, 64, dim=32), Case(2, 64, dim=32, blocks=2)
        return LatencyStudy(
            (Case(1, 64), Case(1, 256), Case(4, 64)), shapes, wide, PARTS, check_length=512,
            sets=2, box=0.02, rounds=2, limit=1.0,
            memory=(2, 512, 8, 4), quick=True,
        )  # fmt: skip


def run_latency(
    study: LatencyStudy,
    device: str = "cpu",
    on_cell: OnCell | None = None,
    contenders: Sequence[Contender] | None = None,
    keep: Callable[[Record], object] | None = None,
) -> Record:
    """Check, then time; a wrong backend of ours raises :class:`WrongResult` and nothing is timed.

    ``keep`` receives the record after every case, so that an interrupted run loses one case at most.
    """
    began, load = time.perf_counter(), os.getloadavg()[0]
    judged = [*all_contenders(device), *untimed_backends()] if contenders is None else contenders
    contenders = all_contenders(device) if contenders is None else contenders
    if study.parts == ("wide",):
        judged = contenders = [contender for contender in contenders if contender.name in _BESIDE]
    parts = [(part, case) for part in study.parts for case in getattr(study, part)]
    report = on_cell or (lambda *_: None)
    judge = Judge(device)
    cells: dict[str, list[dict[str, Any]]] = {part: [] for part in study.parts}
    with full_float32(), quiet_collector():
        report("correctness", 0, len(parts))
        run = _Run(study, device, judge.examine(judged, study.check_length))
        own = [contender for contender in contenders if contender.name in _OWN]
        shapes = {case: judge.examine_shape(case, own) for part, case in parts if part != "lengths"}
        beside = [contender for contender in contenders if contender.name in _BESIDE]
        timed = {"lengths": contenders, "shapes": own, "wide": beside}
        report("ceilings", 0, len(parts))
        ceilings = measured_ceilings(device, quick=study.quick)

        def record(memory: dict[str, Any]) -> Record:
            measurements = {"ceilings": asdict(ceilings), "correctness": judge.entries, "memory": memory, **cells}
            # The load before the run shows whether the computer was busy; then its numbers should not be quoted.
            here = run_environment(device, began, load=round(load, 2))
            name = f"scan_wide_{device}" if study.parts == ("wide",) else f"scan_{device}"
            return Record(name, to_plain(study), measurements, here)

        report("memory", 0, len(parts))
        memory = _memory(study, device)
        for done, (part, case) in enumerate(parts):
            report(f"{part}: {case}", done, len(parts))
            reasons = run.reasons if part == "lengths" else shapes[case]
            cells[part].append(run.cell(case, timed[part], reasons, ceilings))
            if keep is not None:
                keep(record(memory))
        report("done", len(parts), len(parts))
    return record(memory)


class _Run:
    """What a run knows of its contenders: which must not be timed, how quick each was, how much time each has used."""

    def __init__(self, study: LatencyStudy, device: str, reasons: dict[str, str]) -> None:
        self.study, self.device, self.reasons = study, device, reasons
        self._used: dict[str, float] = defaultdict(float)
        self._pace: dict[tuple[str, str], tuple[Case, float]] = {}

    def cell(
        self, case: Case, contenders: Sequence[Contender], reasons: dict[str, str], ceilings: Ceilings
    ) -> dict[str, Any]:
        """Time every contender on one case, in turns."""
        sets = [draw(case, self.device, 1000 * case.time + number) for number in range(self.study.sets)]
        outcomes: dict[str, dict[str, Any]] = {contender.name: {} for contender in contenders}
        watches: dict[tuple[str, str], Stopwatch] = {}
        calls: dict[str, list[BoundCall]] = {}
        for contender in contenders:
            for act in ACTS:
                began = time.perf_counter()
                try:
                    reason = reasons.get(contender.name, "") or self._skip(contender, case, act)
                    if not reason:
                        if contender.name not in calls:
                            calls[contender.name] = [contender.bind(operands) for operands in sets]
                        bound = calls[contender.name]
                        watches[contender.name, act] = stopwatch(
                            _acts(bound, act), self.device, bound[0].wait, capturable=contender.capturable
                        )
                except Exception as error:
                    reason = self._reason(error)
                if reason:
                    outcomes[contender.name][act] = {"skipped": reason}
                self._used[contender.name] += time.perf_counter() - began
        turns = take_turns(watches, box=self.study.box, rounds=self.study.rounds)
        for (name, act), samples in turns.items():
            outcomes[name][act] = self._outcome(name, act, case, watches[name, act], samples, calls[name])
        floors = {act: asdict(floor_of(case, act, ceilings)) for act in ACTS}
        watches.clear()
        calls.clear()
        self._clean()
        return {"case": to_plain(case), "label": case.label, "floor": floors, "contenders": outcomes}

    def _outcome(
        self,
        name: str,
        act: str,
        case: Case,
        watch: Stopwatch,
        samples: list[float] | Exception,
        bound: Sequence[BoundCall],
    ) -> dict[str, Any]:
        if isinstance(samples, Exception):
            return {"skipped": self._reason(samples)}
        outcome = {**watch.summary(samples), "samples": len(samples)}
        self._pace[name, act] = case, outcome["seconds"]
        if self.device == "cuda":
            try:
                outcome["call_seconds"] = call_time(_acts(bound, act), bound[0].wait, self.study.box)
                if bound[0].wait is None:
                    outcome["peak_bytes"] = device_peak(getattr(bound[0], act))
            except Exception as error:
                outcome["note"] = self._reason(error)
        self._used[name] += sum(samples)
        return outcome

    def _skip(self, contender: Contender, case: Case, act: str) -> str:
        """Return why this contender is not timed on this case; empty when it is."""
        longest = contender.longest.get(self.device)
        if longest is not None and case.time > longest:
            return f"limited to T = {longest:,}"
        if not contender.ours and self._used[contender.name] > self.study.budget:
            return f"has used its {self.study.budget:.0f} s"
        room = available_bytes(self.device) // 2
        needed = contender.footprint(case, act)
        if needed > room:
            return f"needs about {needed / 2**30:.0f} GiB; {room / 2**30:.0f} may be used"
        if contender.name != "auto" and (contender.name, act) in self._pace:
            before, seconds = self._pace[contender.name, act]
            expected = seconds * case.batch / before.batch * (case.time / before.time) ** contender.growth
            if expected > max(seconds, self.study.limit):
                return f"expected to take {expected:.1f} s; the limit is {self.study.limit:.0f} s"
        return ""

    def _reason(self, error: Exception) -> str:
        """Return one line for the record; a device that cannot go on raises an error here instead."""
        self._clean()
        return one_line(error)

    def _clean(self) -> None:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def _acts(bound: Sequence[BoundCall], act: str) -> list[Callable[[], Any]]:
    return [getattr(call, act) for call in bound]


def _memory(study: LatencyStudy, device: str) -> dict[str, Any]:
    """Measure the peak memory of forward and backward beside the least possible: inputs, states and their gradient.

    On a CPU this happens in a process of its own.
    """
    batch, length, dim, symbols = study.memory
    if device == "cuda":
        needed = scan_memory(*study.memory, device=device)
    else:
        code = f"from transductor.bench.memory import scan_memory; print(scan_memory(*{study.memory}))"
        probe = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        needed = int(probe.stdout)
    positions = batch * length
    least = positions * (8 + 2 * 4 * dim) + 2 * 4 * symbols * dim**2
    case = Case(batch, length, dim, symbols)
    return {"case": to_plain(case), "bytes": needed, "least": least, "over_least": needed / least}
