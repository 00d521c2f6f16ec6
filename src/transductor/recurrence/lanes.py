"""Sequences cut into chunks that advance side by side.

``K`` chunks of ``C`` steps in each of ``B`` rows make ``N = B·K`` lanes; step ``c`` moves all lanes at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from transductor.recurrence.semirings import Semiring

# Up to this many columns, one product with all V matrices and a pick beats gathering a matrix per lane.
_WIDE = 512


def to_lanes(values: Tensor, chunks: int) -> Tensor:
    """Rearrange ``(B, K·C, ...)`` to time-major lanes ``(C, B·K, ...)``."""
    batch, time = values.shape[:2]
    split = values.reshape(batch, chunks, time // chunks, *values.shape[2:])
    return split.movedim(2, 0).reshape(time // chunks, batch * chunks, *values.shape[2:])


def from_lanes(values: Tensor, chunks: int) -> Tensor:
    """Undo :func:`to_lanes`, as a view ``(B, K, C, ...)``."""
    split = values.reshape(values.shape[0], -1, chunks, *values.shape[2:])
    return split.movedim(0, 2)


class Lanes(ABC):
    """The matrices of N lanes, step by step.  Subclasses are final."""

    steps: int

    @abstractmethod
    def matrix(self, step: int) -> Tensor:
        """Return the matrices ``(N, D, D)`` of a step."""

    @abstractmethod
    def apply(self, step: int, states: Tensor, out: Tensor) -> Tensor:
        """Write ``M · states`` for ``(N, D)`` states, in the semiring, to ``out``."""

    @abstractmethod
    def apply_adjoint(self, step: int, adjoints: Tensor) -> Tensor:
        """Return ``Mᵀ · adjoints`` over the reals."""


@final
class TokenLanes(Lanes):
    """Lanes that read a table; ``ids`` is ``(C, N)``."""

    def __init__(self, table: Tensor, ids: Tensor, semiring: Semiring) -> None:
        self.steps, lanes = ids.shape
        self.table, self.ids, self.semiring = table, ids, semiring
        self._rows = ids.unbind(0)
        symbols, dim, _ = table.shape
        self._wide = semiring.name == "real" and symbols * dim <= _WIDE and lanes >= 8
        if self._wide:
            # h @ (d, V·d) holds M_v h for every v; lane n needs row n·V + v of the result.
            self._forward = table.permute(2, 0, 1).reshape(dim, symbols * dim)
            self._adjoint = table.permute(1, 0, 2).reshape(dim, symbols * dim)
            self._picks = (ids + torch.arange(lanes, device=ids.device) * symbols).unbind(0)
            self._all = table.new_empty(lanes, symbols * dim)
            self._each = self._all.view(lanes * symbols, dim)

    def matrix(self, step: int) -> Tensor:
        """Return the matrices ``(N, D, D)`` of a step."""
        return self.table.index_select(0, self._rows[step])

    def apply(self, step: int, states: Tensor, out: Tensor) -> Tensor:
        """Write ``M · states`` to ``out``."""
        if not self._wide:
            return out.copy_(self.semiring.matvec(self.matrix(step), states))
        torch.mm(states, self._forward, out=self._all)
        return torch.index_select(self._each, 0, self._picks[step], out=out)

    def apply_adjoint(self, step: int, adjoints: Tensor) -> Tensor:
        """Return ``Mᵀ · adjoints``."""
        if not self._wide:
            return (self.matrix(step).mT @ adjoints.unsqueeze(-1)).squeeze(-1)
        torch.mm(adjoints, self._adjoint, out=self._all)
        return torch.index_select(self._each, 0, self._picks[step])


@final
class DenseLanes(Lanes):
    """Lanes with a matrix of their own at every step; ``matrices`` is ``(B, K·C, D, D)``, never copied."""

    def __init__(self, matrices: Tensor, chunks: int, semiring: Semiring) -> None:
        batch, time, dim, _ = matrices.shape
        self.steps = time // chunks
        self.semiring = semiring
        self._split = matrices.reshape(batch, chunks, self.steps, dim, dim)

    def matrix(self, step: int) -> Tensor:
        """Return the matrices ``(N, D, D)`` of a step."""
        return self._split[:, :, step].flatten(0, 1)

    def apply(self, step: int, states: Tensor, out: Tensor) -> Tensor:
        """Write ``M · states`` to ``out``."""
        return out.copy_(self.semiring.matvec(self.matrix(step), states))

    def apply_adjoint(self, step: int, adjoints: Tensor) -> Tensor:
        """Return ``Mᵀ · adjoints``."""
        return (self.matrix(step).mT @ adjoints.unsqueeze(-1)).squeeze(-1)
