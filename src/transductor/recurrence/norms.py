"""The norms of a normalised scan, and exact powers of two, which carry its scale."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

NORMS: Final = ("l1", "l2", "max")

_LN2 = math.log(2.0)
# Beyond these a gradient is cut.  It would be that of an event some 30 digits less likely than what was seen, and a
# single infinity would turn into NaN where it meets a zero.
LARGEST: Final = {torch.float32: 2.0**96, torch.float64: 2.0**768}


class Normalised(NamedTuple):
    """States of norm 1, and the logs of the norms that they would have without normalisation.

    ``states (..., D)`` times ``exp(logs) (...)`` are the states of the plain scan.  ``logs`` is in float64, so that
    differences of neighbours keep their digits after millions of steps.  Where the plain state is zero, so is the
    state, and the log is ``-inf``.
    """

    states: Tensor
    logs: Tensor


def slope(states: Tensor, norm: str) -> Tensor:
    """Return the (sub)gradient of ``‖h‖`` at ``states (..., D)``; it does not depend on their scale.

    For ``l1`` an entry 0 counts as positive, so that for non-negative states it is the gradient of their sum.
    """
    if norm == "l1":
        return torch.ones_like(states).where(states >= 0, -1.0)
    if norm == "l2":
        return states / positive(norm_of(states, norm)).unsqueeze(-1)
    largest = states.abs()
    largest = (largest == largest.amax(-1, keepdim=True)).to(states.dtype)
    return states.sign() * largest / largest.sum(-1, keepdim=True)  # ties share the subgradient, as in torch.amax


def norm_of(states: Tensor, norm: str) -> Tensor:
    """Return ``‖h‖ (...)`` of ``states (..., D)``."""
    if norm == "l2":
        sizes: Tensor = torch.linalg.vector_norm(states, dim=-1)
        return sizes
    return states.abs().sum(-1) if norm == "l1" else states.abs().amax(-1)


def positive(norms: Tensor) -> Tensor:
    """Return norms to divide by: 1 where a norm is 0."""
    return norms.where(norms != 0, 1.0)


def normalised(states: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """Return ``states (..., D)`` divided by their norm, and its log ``(...)``; differentiable, zeros too."""
    alive = (states != 0).any(-1)
    safe = states.where(alive.unsqueeze(-1), 1.0)
    size = norm_of(safe, norm) if norm == "l2" else (safe * slope(safe.detach(), norm)).sum(-1)
    divided = (safe / size.unsqueeze(-1)).where(alive.unsqueeze(-1), 0.0)
    return divided, log_dtyped(size).log().where(alive, -math.inf)


def log_dtyped(values: Tensor) -> Tensor:
    """Return values in the dtype of the logs: float64, where the device knows it."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def exponents(sizes: Tensor) -> Tensor:
    """Return e (int64) such that ``sizes · 2^-e`` lies in [½, 1), for normal positive sizes; 0 for size 0."""
    if sizes.dtype == torch.float64:
        field = (sizes.view(torch.int64) >> 52 & 2047) - 1022
    else:
        field = (sizes.view(torch.int32) >> 23 & 255).long() - 126
    return field.where(sizes != 0, 0)


def power_of_two(exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``2^exponent``, exactly; below the normal numbers 0, above them the largest power."""
    if dtype == torch.float64:
        return (exponent.clamp(-1023, 1023) + 1023 << 52).view(torch.float64)
    return ((exponent.clamp(-127, 127) + 127).int() << 23).view(torch.float32)


def scaled(states: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Divide by powers of two, so that the largest number along ``dim`` lies in [½, 1); return their exponents too."""
    exponent = exponents(states.abs().amax(dim))
    lowered = exponent.clamp_min(-1022 if states.dtype == torch.float64 else -126)
    return states * power_of_two(-lowered, states.dtype).unsqueeze(dim), lowered


def finished(states: Tensor, exponent: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """Return normalised states and logs of scaled ones, ``states · 2^exponent``; no gradient."""
    sizes = norm_of(states, norm)
    return states / positive(sizes).unsqueeze(-1), logs_of(sizes, exponent)


def logs_of(sizes: Tensor, exponent: Tensor) -> Tensor:
    """Return the logs of ``sizes · 2^exponent``."""
    return log_dtyped(sizes).log() + log_dtyped(exponent) * _LN2


def cut(adjoints: Tensor) -> Tensor:
    """Cut adjoints where they would overflow later; NaN stays."""
    limit = LARGEST[adjoints.dtype]
    return adjoints.clamp(-limit, limit)
