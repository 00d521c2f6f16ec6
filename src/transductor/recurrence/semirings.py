"""The arithmetic of the recurrence: (+, ×), (max, +), (min, +), (log, +) and Boolean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

import torch
from torch import Tensor


class Semiring(ABC):
    """What the scan needs of an arithmetic: addition, a matrix product, and the derivative of one path.

    Subclasses are final.
    """

    name: str
    zero: float
    one: float
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

    @abstractmethod
    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """Add two tensors in the semiring, entry by entry."""

    @abstractmethod
    def matmul(self, later: Tensor, earlier: Tensor) -> Tensor:
        """Multiply matrices, ``later · earlier``, of shapes ``(..., D, E)`` and ``(..., E, F)``."""

    @abstractmethod
    def path_weights(self, scores: Tensor, totals: Tensor) -> Tensor:
        """Differentiate ``totals``, the sum of ``scores`` over the last axis, by each score.

        ``scores`` is ``(..., n)`` and ``totals`` ``(...)``; where a total is the semiring's zero no path
        arrives and every derivative is 0.
        """

    @abstractmethod
    def is_weight(self, values: Tensor) -> Tensor:
        """Tell which entries are elements of the semiring."""

    def matvec(self, matrices: Tensor, states: Tensor) -> Tensor:
        """Apply ``matrices (..., D, D)`` to ``states (..., D)``."""
        return self.matmul(matrices, states.unsqueeze(-1)).squeeze(-1)

    def identity(self, size: int, like: Tensor) -> Tensor:
        """Return the identity matrix ``(D, D)``."""
        diagonal = torch.eye(size, dtype=torch.bool, device=like.device)
        # Not by writing into a diagonal, which exporters cannot follow.
        return torch.full((size, size), self.zero, dtype=like.dtype, device=like.device).masked_fill(diagonal, self.one)


@final
class _Real(Semiring):
    name = "real"
    zero = 0.0
    one = 1.0

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right

    def matmul(self, later: Tensor, earlier: Tensor) -> Tensor:
        return later @ earlier

    def path_weights(self, scores: Tensor, totals: Tensor) -> Tensor:
        raise TypeError("the real scan has an adjoint scan of its own")

    def is_weight(self, values: Tensor) -> Tensor:
        return torch.isfinite(values)


@final
class _Tropical(Semiring):
    """(max, +) for ``sign = 1``, (min, +) for ``sign = -1``."""

    one = 0.0

    def __init__(self, name: str, sign: int) -> None:
        self.name = name
        self.sign = sign
        self.zero = -sign * float("inf")

    def _best(self, scores: Tensor, dim: int) -> Tensor:
        best = scores.amax(dim) if self.sign > 0 else scores.amin(dim)
        # Where no path arrives all scores tie at infinity; no gradient may flow there.
        return best.where(torch.isfinite(best), self.zero)

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return self._best(torch.stack((left, right), -1), -1)

    def matmul(self, later: Tensor, earlier: Tensor) -> Tensor:
        return self._best(later.unsqueeze(-1) + earlier.unsqueeze(-3), -2)

    def path_weights(self, scores: Tensor, totals: Tensor) -> Tensor:
        # Not `scores == totals`: at a chunk's edge the total was summed in another order.
        best = (scores == self._best(scores, -1).unsqueeze(-1)) & torch.isfinite(totals).unsqueeze(-1)
        # Ties share the subgradient, as torch.amax does.
        return best.to(scores.dtype) / best.sum(-1, keepdim=True).clamp_min(1)

    def is_weight(self, values: Tensor) -> Tensor:
        return torch.isfinite(values) | (values == self.zero)


@final
class _Log(Semiring):
    name = "log"
    zero = -float("inf")
    one = 0.0

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return _log_sum(torch.stack((left, right), -1), -1)

    def matmul(self, later: Tensor, earlier: Tensor) -> Tensor:
        return _log_sum(later.unsqueeze(-1) + earlier.unsqueeze(-3), -2)

    def path_weights(self, scores: Tensor, totals: Tensor) -> Tensor:
        # Not exp(scores − totals): a total summed in another order is off by a rounding, and over a long scan
        # the excess of these weights over 1 compounds.
        alive = torch.isfinite(totals).unsqueeze(-1)
        return torch.softmax(scores.where(alive, 0.0), -1) * alive

    def is_weight(self, values: Tensor) -> Tensor:
        return torch.isfinite(values) | (values == self.zero)


def _log_sum(scores: Tensor, dim: int) -> Tensor:
    """Return ``logsumexp`` with a gradient of 0, not NaN, where every score is -inf."""
    alive = (scores > -float("inf")).any(dim, keepdim=True)
    total = torch.logsumexp(scores.where(alive, 0.0), dim)
    return total.where(alive.squeeze(dim), -float("inf"))


@final
class _Boolean(Semiring):
    name = "boolean"
    zero = False
    one = True
    dtypes = (torch.bool,)

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return left | right

    def matmul(self, later: Tensor, earlier: Tensor) -> Tensor:
        # Counting paths in float32 is exact below 2^24 states.
        return (later.float() @ earlier.float()) > 0

    def path_weights(self, scores: Tensor, totals: Tensor) -> Tensor:
        raise TypeError("the Boolean semiring has no gradient")

    def is_weight(self, values: Tensor) -> Tensor:
        return torch.ones_like(values)


SEMIRINGS: Final[dict[str, Semiring]] = {
    semiring.name: semiring
    for semiring in (_Real(), _Tropical("max_plus", 1), _Tropical("min_plus", -1), _Log(), _Boolean())
}
