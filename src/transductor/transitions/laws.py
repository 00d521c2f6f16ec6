"""A law is what a family promises of each of its matrices, and a measure of how far a matrix is from it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor


class Law(ABC):
    """A claim about matrices; ``words`` states it, with the law's own fields in braces."""

    words: ClassVar[str]

    @property
    def claim(self) -> str:
        """The law in words."""
        return self.words.format(**vars(self))

    @abstractmethod
    def deviation(self, matrices: Tensor) -> Tensor:
        """Measure how far matrices ``(N, D, D)`` are from the law: ``(N)``, 0 where it holds exactly."""

    def of_direct_sum(self, others: Sequence[Law]) -> Law | None:
        """Return the law of a direct sum whose parts obey this law and ``others`` of its kind, if one follows."""
        return None

    def of_tensor_product(self, others: Sequence[Law]) -> Law | None:
        """Return the law of a tensor product whose parts obey this law and ``others`` of its kind, if one follows."""
        return None


class _Closed(Law):
    """A law that passes to direct sums and tensor products unchanged."""

    def of_direct_sum(self, others: Sequence[Law]) -> Law | None:
        """Return the same law."""
        return self

    def of_tensor_product(self, others: Sequence[Law]) -> Law | None:
        """Return the same law."""
        return self


def _eye(matrices: Tensor) -> Tensor:
    return torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)


def _largest(values: Tensor) -> Tensor:
    return values.abs().flatten(1).amax(1) if values[0].numel() else values.new_zeros(len(values))


@final
@dataclass(frozen=True)
class Orthogonal(_Closed):
    """MᵀM = I."""

    words = "MᵀM = I"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest entry of MᵀM − I."""
        return _largest(matrices.mT @ matrices - _eye(matrices))


@final
@dataclass(frozen=True)
class Determinant(Law):
    """det M = ±1."""

    words = "det M = {sign:+d}"
    sign: int = 1

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the distance of the determinant from its sign."""
        determinants: Tensor = torch.linalg.det(matrices)
        return (determinants - self.sign).abs()

    def of_direct_sum(self, others: Sequence[Law]) -> Law | None:
        """Multiply the determinants."""
        return Determinant(math.prod(law.sign for law in (self, *others) if isinstance(law, Determinant)))


@final
@dataclass(frozen=True)
class ScaledOrthogonal(Law):
    """MᵀM = g²I with one gain |g| ≤ 1 per matrix, so ‖M‖ = |g|."""

    words = "MᵀM = g²I, 0 ≤ g ≤ 1"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest entry of MᵀM − g²I, or the excess of g² over 1."""
        gram = matrices.mT @ matrices
        squared_gain = gram.diagonal(dim1=-2, dim2=-1).mean(-1)
        off = _largest(gram - squared_gain[:, None, None] * _eye(matrices))
        return torch.maximum(off, squared_gain - 1)

    def of_tensor_product(self, others: Sequence[Law]) -> Law | None:
        """Return the same law, because gains multiply."""
        return self


@final
@dataclass(frozen=True)
class SpectralNorm(Law):
    """‖M‖₂ ≤ γ."""

    words = "‖M‖₂ ≤ {cap:g}"
    cap: float

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the excess over the cap, relative to caps above 1."""
        norms: Tensor = torch.linalg.matrix_norm(matrices, 2)
        return (norms - self.cap).clamp_min(0) / max(1.0, self.cap)


@final
@dataclass(frozen=True)
class ColumnStochastic(_Closed):
    """Non-negative columns that sum to 1, so ‖·‖₁ of a distribution is preserved."""

    words = "columns are distributions"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest error of a column sum, or the largest negative entry."""
        negative = (-matrices).clamp_min(0).flatten(1).amax(1)
        return torch.maximum(_largest(matrices.sum(-2) - 1), negative)


@final
@dataclass(frozen=True)
class Positive(Law):
    """No entry is less than a share of the mean entry of its matrix; with share 0, none is negative."""

    words = "entries at least {share:g} of their mean, and at least 0"
    share: float

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return by how much an entry is too small, relative to the mean."""
        flat = matrices.flatten(1)
        mean = flat.abs().mean(1)
        return (self.share * mean - flat.amin(1)).clamp_min(0) / mean.clamp_min(torch.finfo(flat.dtype).tiny)


@final
@dataclass(frozen=True)
class DoublyStochastic(_Closed):
    """Non-negative, rows and columns sum to 1."""

    words = "rows and columns are distributions"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the worse of rows and columns."""
        columns = ColumnStochastic()
        return torch.maximum(columns.deviation(matrices), columns.deviation(matrices.mT))


@final
@dataclass(frozen=True)
class Permutation(_Closed):
    """One 1 in every row and column, exactly."""

    words = "M is a permutation matrix"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the distance of entries from {0, 1} or of sums from 1."""
        entries = _largest(torch.minimum(matrices.abs(), (matrices - 1).abs()))
        return torch.maximum(entries, DoublyStochastic().deviation(matrices))


@final
@dataclass(frozen=True)
class OneEntryPerColumn(Law):
    """At most one entry of each column is not 0, and no entry is larger than a cap: ‖M‖₁ is at most the cap."""

    words = "one entry per column, at most {cap:g} in size"
    cap: float

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the second largest size in a column, or the excess of the largest over the cap."""
        sizes = matrices.abs().sort(-2, descending=True).values
        excess = _largest((sizes[:, 0] - self.cap).clamp_min(0))
        return torch.maximum(excess, _largest(sizes[:, 1:2])) / max(1.0, self.cap)

    def of_direct_sum(self, others: Sequence[Law]) -> Law | None:
        """Take the largest cap."""
        return OneEntryPerColumn(max(law.cap for law in (self, *others) if isinstance(law, OneEntryPerColumn)))

    def of_tensor_product(self, others: Sequence[Law]) -> Law | None:
        """Multiply the caps."""
        return OneEntryPerColumn(math.prod(law.cap for law in (self, *others) if isinstance(law, OneEntryPerColumn)))


@final
@dataclass(frozen=True)
class Support(Law):
    """Entries outside a pattern are zero; the pattern is the rows of ``allowed``."""

    words = "{name} support"
    name: str
    allowed: tuple[tuple[bool, ...], ...]

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest entry outside the pattern."""
        allowed = torch.tensor(self.allowed, device=matrices.device)
        return _largest(matrices.masked_fill(allowed, 0))


@final
@dataclass(frozen=True)
class ConstantAlong(Law):
    """Equal entries along diagonals (Toeplitz) or anti-diagonals (Hankel)."""

    words = "{name}: M[i+1, j{shift:+d}] = M[i, j]"
    name: str
    shift: int

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest difference of neighbours along a diagonal."""
        if matrices.shape[-1] == 1:
            return matrices.new_zeros(len(matrices))
        if self.shift > 0:
            return _largest(matrices[:, 1:, 1:] - matrices[:, :-1, :-1])
        return _largest(matrices[:, 1:, :-1] - matrices[:, :-1, 1:])


@final
@dataclass(frozen=True)
class ButterflyRank(Law):
    """The signature of a butterfly: rows of one residue against columns of one block have rank one.

    After the first l levels a column has spread over its block of 2^l; later levels keep the residue
    mod 2^l.  A row of residue r therefore reads a block through one single entry.
    """

    words = "butterfly: residue × block has rank 1"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest second singular value over levels, residues and blocks."""
        size = matrices.shape[-1]
        worst = matrices.new_zeros(len(matrices))
        span = 2
        while span < size:
            for residue in range(span):
                for begin in range(0, size, span):
                    part = matrices[:, residue::span, begin : begin + span]
                    if min(part.shape[1:]) > 1:
                        worst = torch.maximum(worst, torch.linalg.svdvals(part)[:, 1])
            span *= 2
        return worst


@final
@dataclass(frozen=True)
class AffineRow(Law):
    """The last row is (0, …, 0, 1): the last coordinate never changes."""

    words = "last row is (0, …, 0, 1)"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest error of the last row."""
        return _largest(matrices[:, -1] - _eye(matrices)[-1])


@final
@dataclass(frozen=True)
class SpanRank(Law):
    """All matrices lie in a space of this dimension."""

    words = "the table spans at most {dimension} dimensions"
    dimension: int

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the relative size of the next singular value of the flattened table (one number)."""
        values: Tensor = torch.linalg.svdvals(matrices.flatten(1))
        if len(values) <= self.dimension:
            return values.new_zeros(1)
        return (values[self.dimension :] / values[0].clamp_min(torch.finfo(values.dtype).tiny)).amax(0, keepdim=True)


@final
@dataclass(frozen=True)
class BlockTriangular(Law):
    """Zero above the diagonal blocks; ``band`` 0 for block-diagonal, 1 for coupling to the part before."""

    sizes: tuple[int, ...]
    band: int

    @property
    def claim(self) -> str:
        """The law in words."""
        kind = "diagonal" if self.band == 0 else "triangular"
        return f"block {kind} with sizes {'+'.join(map(str, self.sizes))}"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the largest entry outside the blocks."""
        part = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))
        behind = part[:, None] - part[None, :]
        allowed = (behind >= 0) & (behind <= self.band)
        return _largest(matrices.masked_fill(allowed.to(matrices.device), 0))


@final
@dataclass(frozen=True)
class KroneckerRank(Law):
    """M = A ⊗ B with A of size ``left``: the rearranged matrix has rank one."""

    words = "Kronecker product {left} ⊗ {right}"
    left: int
    right: int

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the second singular value of the rearrangement, relative to the first."""
        a, b = self.left, self.right
        arranged = matrices.reshape(-1, a, b, a, b).transpose(2, 3).reshape(-1, a * a, b * b)
        values: Tensor = torch.linalg.svdvals(arranged)
        return values[:, 1] / values[:, 0] if values.shape[1] > 1 else values.new_zeros(len(values))


@final
@dataclass(frozen=True)
class OnBlock(Law):
    """A law of one diagonal block."""

    begin: int
    size: int
    law: Law

    @property
    def claim(self) -> str:
        """The law in words."""
        return f"block {self.begin}:{self.begin + self.size}: {self.law.claim}"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Return the law's deviation on the block."""
        span = slice(self.begin, self.begin + self.size)
        return self.law.deviation(matrices[:, span, span])


def spectral_bound(laws: Sequence[Law]) -> float | None:
    """Return the smallest bound of ‖M‖₂ that follows from the laws."""
    isometric = (Orthogonal, ScaledOrthogonal, DoublyStochastic, Permutation)
    bounds = [1.0 for law in laws if isinstance(law, isometric)]
    bounds += [law.cap for law in laws if isinstance(law, SpectralNorm)]
    return min(bounds, default=None)


def frobenius_bound(laws: Sequence[Law], dim: int) -> float | None:
    """Return a bound of ‖M‖_F that follows from the laws: √d times that of ‖M‖₂, and √d where columns sum to 1."""
    bound = 1.0 if any(isinstance(law, ColumnStochastic) for law in laws) else spectral_bound(laws)
    return None if bound is None else math.sqrt(dim) * bound


def shared_laws(parts: Sequence[Sequence[Law]], join: Callable[[Law, Sequence[Law]], Law | None]) -> list[Law]:
    """Return the laws that follow by ``join`` from the kinds of laws that every part obeys."""
    shared = []
    for law in parts[0]:
        same_kind = [next((other for other in laws if type(other) is type(law)), None) for laws in parts[1:]]
        others = [other for other in same_kind if other is not None]
        joined = join(law, others) if len(others) == len(same_kind) else None
        if joined is not None:
            shared.append(joined)
    return shared
