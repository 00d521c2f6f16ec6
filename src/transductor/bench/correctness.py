"""Whether a contender computes the recurrence: values and gradients against float64, on fresh operands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from transductor.bench.peers import Contender, library
from transductor.bench.workloads import Case, Operands, draw

# Relative error by norm, of states and of gradients.  Plain torch sums in float32 all the way.
BOUNDS = {"float32": (1e-5, 1e-4), "bfloat16": (1e-2, 2e-2), "float64": (1e-11, 1e-10)}
PLAIN, PLAIN_BOUNDS = ("chunked", "kogge_stone backend", "reference"), (1e-4, 1e-4)
PEER_BOUNDS = (1e-3, 1e-3)


class WrongResult(RuntimeError):
    """A backend of ours whose values are off: nothing is timed."""


@dataclass
class Judge:
    """Compares contenders with float64 and keeps what it found in ``entries``."""

    device: str
    entries: list[dict[str, Any]] = field(default_factory=list)

    def examine(self, contenders: Sequence[Contender], length: int) -> dict[str, str]:
        """Short and awkward, then one long row; returns the reason for each contender that must not be timed."""
        reasons: dict[str, str] = {}
        seed = time.time_ns() % (1 << 31)
        for case in (Case(3, min(1000, length)), Case(1, min(2049, length))):
            given = draw(case, self.device, seed)
            # The loop is the meaning; float64 chunks are believed at longer lengths because they equal it here.
            exact = outcome(given, "reference", torch.float64)
            self._compare(
                "chunked in float64", outcome(given, "chunked", torch.float64), exact, case, BOUNDS["float64"]
            )
            for one in contenders:
                if one.same and one.name not in reasons:
                    reasons[one.name] = self.verdict(one, given, exact, _bounds(one, case))
        case = Case(1, length)
        given = draw(case, self.device, seed + 1)
        exact = outcome(given, "chunked", torch.float64)
        loop = outcome(given.to("cpu", torch.float32), "reference", torch.float32)
        plain = self._compare("reference in float32", loop, exact, case, None)
        for one in contenders:
            if one.ours and one.name != "reference" and not reasons.get(one.name):
                states, gradients = _bounds(one, case)
                if self.device == "cpu":  # a chain of float32: nobody is asked to be luckier than the plain loop was
                    states = max(states, 3 * plain["states"]["norm"])
                bounds = states, gradients
                reasons[one.name] = self.verdict(one, given, exact, bounds)
        return {name: reason for name, reason in reasons.items() if reason}

    def examine_shape(self, case: Case, contenders: Sequence[Contender]) -> dict[str, str]:
        """The same for a case of another shape or precision, before it is timed."""
        given = draw(case, self.device, time.time_ns() % (1 << 31))
        exact = outcome(given, "chunked", torch.float64)
        reasons = {one.name: self.verdict(one, given, exact, bounds_of(one, case, self.device)) for one in contenders}
        return {name: reason for name, reason in reasons.items() if reason}

    def verdict(self, one: Contender, given: Operands, exact: tuple[Tensor, ...], bounds: tuple[float, float]) -> str:
        """Empty when right; the reason when a contender refuses or a peer is wrong.  Ours, wrong, raises."""
        try:
            call = one.bind(given)
            found = tuple(call.numbers(value) for value in call.forward_backward())
            alone = call.numbers(call.forward())
        except Exception as error:
            if one.name == "auto":
                raise WrongResult(f"auto fails at {given.case}: {one_line(error)}") from error
            return one_line(error)
        try:
            self._compare(one.name, found, exact, given.case, bounds)
            self._compare(f"{one.name}, forward alone", (alone,), exact[:1], given.case, bounds)
        except WrongResult as error:
            if one.ours:
                raise
            return str(error)
        return ""

    def _compare(
        self,
        name: str,
        found: tuple[Tensor, ...],
        exact: tuple[Tensor, ...],
        case: Case,
        bounds: tuple[float, float] | None,
    ) -> dict[str, dict[str, float]]:
        parts = ("states", "matrices", "initial_state", "bias")[: len(exact)]
        errors = {}
        for part, value, right in zip(parts, found, exact, strict=True):
            errors[part] = error = relative_error(value, right)
            bound = float("inf") if bounds is None else bounds[0] if part == "states" else bounds[1]
            if not error["norm"] <= bound:  # NaN does not pass
                raise WrongResult(f"{name} is wrong at {case}: {part} off by {error['norm']:.1e}, allowed {bound:.1e}")
        self.entries.append(
            {"contender": name, "case": str(case), "errors": errors, "bounds": None if bounds is None else [*bounds]}
        )
        return errors


def outcome(given: Operands, backend: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """States and gradients by a backend in this precision."""
    found: tuple[Tensor, ...] = library(backend)(given.to(given.start.device, dtype)).forward_backward()
    return found


def relative_error(found: Tensor, exact: Tensor) -> dict[str, float]:
    """By norm, and by the largest entry."""
    if found.shape != exact.shape:
        raise WrongResult(f"a result of shape {tuple(found.shape)} where {tuple(exact.shape)} is wanted")
    exact = exact.double()
    gap = found.to(exact.device).double() - exact
    return {"norm": float(gap.norm() / exact.norm()), "max": float(gap.abs().max() / exact.abs().max())}


def _bounds(one: Contender, case: Case) -> tuple[float, float]:
    if not one.ours:
        return PEER_BOUNDS
    states, gradients = BOUNDS[case.dtype]
    if one.name in PLAIN and case.dtype == "float32":
        return PLAIN_BOUNDS
    return states, gradients


def bounds_of(one: Contender, case: Case, device: str) -> tuple[float, float]:
    """What states and gradients may be off by at any shape, relative, by norm."""
    # Bounds are stated for d = 16; on a CPU wider rows round more, and luck differs from draw to draw.
    slack = 4 * max(1.0, case.dim / 16) if case.dtype != "bfloat16" and device == "cpu" else 1.0
    states, gradients = _bounds(one, case)
    return slack * states, slack * gradients


def one_line(error: BaseException) -> str:
    """An error as a reason for the record."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__
