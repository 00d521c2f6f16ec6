"""Contenders are judged by comparing values and gradients with float64, on fresh operands."""

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
    """A backend of ours gives wrong values, so nothing is timed."""


@dataclass
class Judge:
    """Compares contenders with float64 and keeps the errors in ``entries``."""

    device: str
    entries: list[dict[str, Any]] = field(default_factory=list)

    def examine(self, contenders: Sequence[Contender], length: int) -> dict[str, str]:
        """Judge short and awkward cases, then a long row; return why contenders must not be timed, by name."""
        reasons: dict[str, str] = {}
        seed = time.time_ns() % (1 << 31)
        for case in (Case(3, min(1000, length)), Case(1, min(2049, length))):
            operands = draw(case, self.device, seed)
            # The loop defines the result; float64 chunks may replace it at longer lengths because they equal it here.
            exact = outcome(operands, "reference", torch.float64)
            self._compare(
                "chunked in float64", outcome(operands, "chunked", torch.float64), exact, case, BOUNDS["float64"]
            )
            for contender in contenders:
                if contender.same and contender.name not in reasons:
                    reasons[contender.name] = self.verdict(contender, operands, exact, _bounds(contender, case))
        case = Case(1, length)
        operands = draw(case, self.device, seed + 1)
        exact = outcome(operands, "chunked", torch.float64)
        loop = outcome(operands.to("cpu", torch.float32), "reference", torch.float32)
        plain = self._compare("reference in float32", loop, exact, case, None)
        for contender in contenders:
            if contender.ours and contender.name != "reference" and not reasons.get(contender.name):
                states, gradients = _bounds(contender, case)
                if self.device == "cpu":  # float32 errors vary with the draw: allow three times those of the plain loop
                    states = max(states, 3 * plain["states"]["norm"])
                reasons[contender.name] = self.verdict(contender, operands, exact, (states, gradients))
        return {name: reason for name, reason in reasons.items() if reason}

    def examine_shape(self, case: Case, contenders: Sequence[Contender]) -> dict[str, str]:
        """Judge a case of another shape or precision, before it is timed."""
        operands = draw(case, self.device, time.time_ns() % (1 << 31))
        exact = outcome(operands, "chunked", torch.float64)
        reasons = {
            contender.name: self.verdict(contender, operands, exact, bounds_of(contender, case, self.device))
            for contender in contenders
        }
        return {name: reason for name, reason in reasons.items() if reason}

    def verdict(
        self, contender: Contender, operands: Operands, exact: tuple[Tensor, ...], bounds: tuple[float, float]
    ) -> str:
        """Return why a contender must not be timed; empty when it is right.  A wrong result of ours raises."""
        try:
            call = contender.bind(operands)
            results = tuple(call.numbers(value) for value in call.forward_backward())
            alone = call.numbers(call.forward())
        except Exception as error:
            if contender.name == "auto":
                raise WrongResult(f"auto fails at {operands.case}: {one_line(error)}") from error
            return one_line(error)
        try:
            self._compare(contender.name, results, exact, operands.case, bounds)
            self._compare(f"{contender.name}, forward alone", (alone,), exact[:1], operands.case, bounds)
        except WrongResult as error:
            if contender.ours:
                raise
            return str(error)
        return ""

    def _compare(
        self,
        name: str,
        results: tuple[Tensor, ...],
        exact: tuple[Tensor, ...],
        case: Case,
        bounds: tuple[float, float] | None,
    ) -> dict[str, dict[str, float]]:
        parts = ("states", "matrices", "initial_state", "bias")[: len(exact)]
        errors = {}
        for part, value, right in zip(parts, results, exact, strict=True):
            errors[part] = error = relative_error(value, right)
            bound = float("inf") if bounds is None else bounds[0] if part == "states" else bounds[1]
            if not error["norm"] <= bound:  # NaN does not pass
                raise WrongResult(f"{name} is wrong at {case}: {part} off by {error['norm']:.1e}, allowed {bound:.1e}")
        self.entries.append(
            {"contender": name, "case": str(case), "errors": errors, "bounds": None if bounds is None else [*bounds]}
        )
        return errors


def outcome(operands: Operands, backend: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Compute states and gradients by a backend in this precision."""
    results: tuple[Tensor, ...] = library(backend)(operands.to(operands.start.device, dtype)).forward_backward()
    return results


def relative_error(result: Tensor, exact: Tensor) -> dict[str, float]:
    """Return the relative error by norm, and by the largest entry."""
    if result.shape != exact.shape:
        raise WrongResult(f"a result of shape {tuple(result.shape)} where {tuple(exact.shape)} is wanted")
    exact = exact.double()
    gap = result.to(exact.device).double() - exact
    return {"norm": float(gap.norm() / exact.norm()), "max": float(gap.abs().max() / exact.abs().max())}


def _bounds(contender: Contender, case: Case) -> tuple[float, float]:
    if not contender.ours:
        return PEER_BOUNDS
    return PLAIN_BOUNDS if contender.name in PLAIN and case.dtype == "float32" else BOUNDS[case.dtype]


def bounds_of(contender: Contender, case: Case, device: str) -> tuple[float, float]:
    """Return the relative errors, by norm, that states and gradients may have at any shape."""
    # Bounds are stated for d = 16; on a CPU wider rows round more, and errors vary from draw to draw.
    slack = 4 * max(1.0, case.dim / 16) if case.dtype != "bfloat16" and device == "cpu" else 1.0
    states, gradients = _bounds(contender, case)
    return slack * states, slack * gradients


def one_line(error: BaseException) -> str:
    """Shorten an error to a reason for the record."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__
