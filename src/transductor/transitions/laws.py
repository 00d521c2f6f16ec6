"""Laws: what a family promises of each of its matrices, measured with a witness."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from transductor.checks import LAW_TOLERANCE
from transductor.results import Certificate

if TYPE_CHECKING:
    from transductor.transitions.base import TransitionFamily


class Law(ABC):
    """A claim about matrices and how far they are from it."""

    @property
    @abstractmethod
    def claim(self) -> str:
        """The law in words."""

    @abstractmethod
    def deviation(self, matrices: Tensor) -> Tensor:
        """``(N, D, D)`` to ``(N)``: 0 where the law holds exactly."""

    def of_direct_sum(self, others: Sequence[Law]) -> Law | None:
        """The law of a direct sum whose parts obey this law and ``others`` of the same kind, if one follows."""
        return None

    def of_tensor_product(self, others: Sequence[Law]) -> Law | None:
        """The law of a tensor product likewise."""
        return None


class _Closed(Law):
    """Laws that pass to direct sums and tensor products unchanged."""

    def of_direct_sum(self, others: Sequence[Law]) -> Law | None:
        """The same law."""
        return self

    def of_tensor_product(self, others: Sequence[Law]) -> Law | None:
        """The same law."""
        return self


def _eye(matrices: Tensor) -> Tensor:
    return torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)


def _largest(values: Tensor) -> Tensor:
    return values.abs().flatten(1).amax(1) if values[0].numel() else values.new_zeros(len(values))


@final
@dataclass(frozen=True)
class Orthogonal(_Closed):
    """MᵀM = I."""

    claim = "MᵀM = I"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Largest entry of MᵀM − I."""
        return _largest(matrices.mT @ matrices - _eye(matrices))


@final
@dataclass(frozen=True)
class Determinant(Law):
    """det M = ±1."""

    sign: int = 1

    @property
    def claim(self) -> str:
        """The law in words."""
        return f"det M = {self.sign:+d}"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Distance of the determinant."""
        determinants: Tensor = torch.linalg.det(matrices)
        return (determinants - self.sign).abs()

    def of_direct_sum(self, others: Sequence[Law]) -> Law | None:
        """Determinants multiply."""
        sign = self.sign
        for other in others:
            assert isinstance(other, Determinant)
            sign *= other.sign
        return Determinant(sign)


@final
@dataclass(frozen=True)
class ScaledOrthogonal(Law):
    """MᵀM = g²I with one gain 0 ≤ g ≤ 1 per matrix, so ‖M‖ = g."""

    claim = "MᵀM = g²I, 0 ≤ g ≤ 1"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Largest entry of MᵀM − g²I, or the excess of g² over 1."""
        gram = matrices.mT @ matrices
        squared_gain = gram.diagonal(dim1=-2, dim2=-1).mean(-1)
        off = _largest(gram - squared_gain[:, None, None] * _eye(matrices))
        return torch.maximum(off, squared_gain - 1)

    def of_tensor_product(self, others: Sequence[Law]) -> Law | None:
        """Gains multiply."""
        return self


@final
@dataclass(frozen=True)
class SpectralNorm(Law):
    """‖M‖₂ ≤ γ."""

    cap: float

    @property
    def claim(self) -> str:
        """The law in words."""
        return f"‖M‖₂ ≤ {self.cap:g}"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Excess over the cap, relative to caps above 1."""
        norms: Tensor = torch.linalg.matrix_norm(matrices, 2)
        return (norms - self.cap).clamp_min(0) / max(1.0, self.cap)


@final
@dataclass(frozen=True)
class ColumnStochastic(_Closed):
    """Non-negative columns that sum to 1, so ‖·‖₁ of a distribution is preserved."""

    claim = "columns are distributions"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Largest error of a column sum, or largest negative entry."""
        negative = (-matrices).clamp_min(0).flatten(1).amax(1)
        return torch.maximum(_largest(matrices.sum(-2) - 1), negative)


@final
@dataclass(frozen=True)
class DoublyStochastic(_Closed):
    """Non-negative, rows and columns sum to 1."""

    claim = "rows and columns are distributions"

    def deviation(self, matrices: Tensor) -> Tensor:
        """The worse of rows and columns."""
        columns = ColumnStochastic()
        return torch.maximum(columns.deviation(matrices), columns.deviation(matrices.mT))


@final
@dataclass(frozen=True)
class Permutation(_Closed):
    """One 1 in every row and column, exactly."""

    claim = "M is a permutation matrix"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Distance of entries from {0, 1} and of sums from 1."""
        entries = _largest(torch.minimum(matrices.abs(), (matrices - 1).abs()))
        return torch.maximum(entries, DoublyStochastic().deviation(matrices))


@final
@dataclass(frozen=True)
class Support(Law):
    """Entries outside a pattern are zero; the pattern is the rows of ``allowed``."""

    name: str
    allowed: tuple[tuple[bool, ...], ...]

    @property
    def claim(self) -> str:
        """The law in words."""
        return f"{self.name} support"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Largest entry outside the pattern."""
        allowed = torch.tensor(self.allowed, device=matrices.device)
        return _largest(matrices.masked_fill(allowed, 0))


@final
@dataclass(frozen=True)
class ConstantAlong(Law):
    """Equal entries along diagonals (Toeplitz) or anti-diagonals (Hankel)."""

    name: str
    shift: int

    @property
    def claim(self) -> str:
        """The law in words."""
        return f"{self.name}: M[i+1, j{self.shift:+d}] = M[i, j]"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Largest difference of neighbours along the diagonal."""
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
    mod 2^l.  A row of residue r therefore hears a block through one single entry.
    """

    claim = "butterfly: residue × block has rank 1"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Largest second singular value over levels, residues and blocks."""
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

    claim = "last row is (0, …, 0, 1)"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Largest error of the last row."""
        return _largest(matrices[:, -1] - _eye(matrices)[-1])


@final
@dataclass(frozen=True)
class SpanRank(Law):
    """All matrices lie in a space of the given dimension."""

    dimension: int

    @property
    def claim(self) -> str:
        """The law in words."""
        return f"the table spans at most {self.dimension} dimensions"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Relative size of the next singular value of the flattened table (one number)."""
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
        """Largest entry outside the blocks."""
        part = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))
        behind = part[:, None] - part[None, :]
        allowed = (behind >= 0) & (behind <= self.band)
        return _largest(matrices.masked_fill(allowed.to(matrices.device), 0))


@final
@dataclass(frozen=True)
class KroneckerRank(Law):
    """M = A ⊗ B with A of size ``left``: the rearranged matrix has rank one."""

    left: int
    right: int

    @property
    def claim(self) -> str:
        """The law in words."""
        return f"Kronecker product {self.left} ⊗ {self.right}"

    def deviation(self, matrices: Tensor) -> Tensor:
        """Second singular value of the rearrangement, relative to the first."""
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
        """The law's deviation on the block."""
        span = slice(self.begin, self.begin + self.size)
        return self.law.deviation(matrices[:, span, span])


def spectral_bound(laws: Sequence[Law]) -> float | None:
    """The smallest bound of ‖M‖₂ that follows from the laws."""
    isometric = (Orthogonal, ScaledOrthogonal, DoublyStochastic, Permutation)
    bounds = [1.0 for law in laws if isinstance(law, isometric)]
    bounds += [law.cap for law in laws if isinstance(law, SpectralNorm)]
    return min(bounds, default=None)


def shared_laws(parts: Sequence[Sequence[Law]]) -> list[list[Law]]:
    """For each kind of law that every part obeys: the laws of that kind, one per part."""
    shared = []
    for law in parts[0]:
        same = [next((other for other in laws if type(other) is type(law)), None) for laws in parts[1:]]
        found = [other for other in same if other is not None]
        if len(found) == len(parts) - 1:
            shared.append([law, *found])
    return shared


def certify_laws(family: TransitionFamily, matrices: Tensor | None = None) -> tuple[Certificate, ...]:
    """Measure every law of a family on its table (or on the given ``(N, D, D)`` matrices)."""
    found = (family.table() if matrices is None else matrices).detach()
    if found.dtype not in LAW_TOLERANCE or found.ndim != 3 or found.shape[0] == 0:
        raise ValueError(
            f"matrices must be float32 or float64 of shape (N, D, D), N ≥ 1; got {found.dtype}, {tuple(found.shape)}"
        )
    bound = LAW_TOLERANCE[found.dtype]
    certificates = []
    for law in family.laws():
        deviation = law.deviation(found.double())
        # A NaN must not hide behind a smaller number.
        worst = int(torch.where(deviation.isnan(), torch.inf, deviation).argmax())
        certificates.append(Certificate(law.claim, bound, float(deviation[worst]), f"symbol {worst}"))
    return tuple(certificates)
