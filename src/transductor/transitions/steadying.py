"""Orthogonal tables in float32 whose products keep the norm of a state.

A matrix rounded to float32 is no longer orthogonal.  Over a long random word the norm grows or shrinks by about
``½ (‖M‖²_F / d − 1)`` a step, 10⁻⁹ to 10⁻⁸, which is 1 to 20 % after 10⁷ steps, and over a word of one letter by the
moduli of that matrix's eigenvalues, which is more; the rounding of the steps themselves adds one part in 10⁴.  So
entries are moved by an ulp or so: first until the eigenvalues are as near to the unit circle as a greedy search brings
them, then until ``‖M‖²_F`` is d to about 10⁻¹¹.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from transductor.transitions.base import TransitionFamily, only_moves
from transductor.transitions.dense import DenseTransitions
from transductor.transitions.direct_sum import DirectSum
from transductor.transitions.laws import Orthogonal

_NUMBERS_AT_ONCE = 1 << 22
_MOST_MOVES = 128  # fewer than a hundred bring any matrix as far as moves by ulps can
_ROUNDS = 16
_SMALL = 6  # up to this dimension entries move in pairs
_NORM_FIRST = 100.0  # every word feels the norm, only words of one letter feel an eigenvalue
_NEARNESS = 0.01  # how much the distance from the exact entries counts beside them
_TWICE = 1e-6  # eigenvalues that are nearer to each other do not part within a million steps


@torch.no_grad()
def steadied_family(family: TransitionFamily) -> TransitionFamily:
    """Return a frozen family with the same matrices, the orthogonal ones rounded by :func:`steadied_table`.

    The parts of a direct sum are rounded one by one; a part that promises no orthogonality, or only permutes numbers,
    is copied as it is.
    """
    if isinstance(family, DirectSum):
        return DirectSum(*map(steadied_family, family.families)).requires_grad_(False)
    kept = copy.deepcopy(family).requires_grad_(False)
    if not is_orthogonal(family) or only_moves(family.table()):
        return kept
    dtype, table = family.table().dtype, kept.double().table()
    steady = DenseTransitions(state_dim=family.state_dim, vocab_size=family.vocab_size, init_scale=0.0)
    steady.to(table.device, dtype).get_parameter("source.raw").copy_(steadied_table(table).flatten(1))
    return steady.requires_grad_(False)


def is_orthogonal(family: TransitionFamily) -> bool:
    """Tell whether a family, or a part of a direct sum, promises orthogonal matrices."""
    if isinstance(family, DirectSum):
        return any(map(is_orthogonal, family.families))
    return any(isinstance(law, Orthogonal) for law in family.laws())


@torch.no_grad()
def steadied_table(table: Tensor) -> Tensor:
    """Round orthogonal matrices ``(V, D, D)`` in float64 to float32 so that long products neither grow nor shrink.

    Coordinates that no matrix joins are blocks with norms of their own, and each block is rounded by itself.  Zeros
    stay zero, and from ``D = 7`` on every other entry stays within three ulps of its exact value.
    """
    if table.ndim != 3 or table.shape[1] != table.shape[2] or table.dtype != torch.float64:
        raise ValueError(
            f"table must be float64 of shape (V, D, D), to be rounded once; got {table.dtype} of {tuple(table.shape)}"
        )
    deviation = float(Orthogonal().deviation(table).max()) if table.numel() else 0.0
    if deviation > 1e-9:
        raise ValueError(f"table must hold orthogonal matrices; MᵀM − I has an entry of {deviation:.1e}")
    rounded = table.float()
    blocks = _blocks(table)
    for block in blocks:
        for some in torch.arange(len(table), device=table.device).split(
            max(1, _NUMBERS_AT_ONCE // max(1 << 12, len(block) ** 3))
        ):
            where = some[:, None, None], block[:, None], block
            rounded[where] = _steadied(table[where], rounded[where])
    return rounded


def _blocks(table: Tensor) -> list[Tensor]:
    """Return the sets of coordinates that the matrices join, as indices."""
    dim = table.shape[-1]
    joined = (table != 0).any(0) | torch.eye(dim, dtype=torch.bool, device=table.device)
    joined = (joined | joined.mT).double()
    for _ in range(max(1, (dim - 1).bit_length())):
        joined = (joined @ joined > 0).double()
    return [row.nonzero().squeeze(-1) for row in joined.unique(dim=0)]


def _steadied(exact: Tensor, rounded: Tensor) -> Tensor:
    """Move entries of float32 matrices ``(V, d, d)`` by ulps: first for their eigenvalues, then for their norms."""
    dim = exact.shape[-1]
    effects = _effects(exact)
    if dim <= _SMALL:
        return _searched(exact, rounded, effects)
    values, entry = rounded.flatten(1).clone(), torch.arange(dim * dim, device=exact.device).repeat_interleave(2)
    moved = _neighbours(values, 1)
    nonzero = (values != 0).repeat_interleave(2, 1)
    shifts = moved.double() - values.double().repeat_interleave(2, 1)
    growth = (effects @ (values.double() - exact.flatten(1)).unsqueeze(-1)).squeeze(-1)
    _move(values, moved, entry, nonzero.clone(), growth, effects.repeat_interleave(2, 2) * shifts.unsqueeze(1))
    moved = _neighbours(values, 1)
    squares = moved.double().square() - values.double().square().repeat_interleave(2, 1)
    excess = values.double().square().sum(1, keepdim=True) - dim
    _move(values, moved, entry, nonzero, excess, squares.unsqueeze(1))
    return values.view_as(rounded)


def _neighbours(values: Tensor, ulps: int) -> Tensor:
    """Return the floats within so many ulps of ``(V, n)`` values, without themselves: ``(V, n · 2 ulps)``."""
    steps = torch.tensor([k for k in range(-ulps, ulps + 1) if k], dtype=torch.int32, device=values.device)
    # As integers, floats of one sign are in order: adding k moves the magnitude by k ulps.
    return (values.view(torch.int32).unsqueeze(-1) + steps).view(torch.float32).flatten(1)


def _effects(exact: Tensor) -> Tensor:
    """Return how much every entry adds to the logarithms of the eigenvalues' moduli: ``(V, d, d²)``, to first order.

    An eigenvalue that occurs twice is moved by more than this; a matrix with such ones gets zeros.
    """
    turn = exact.to(torch.complex128)
    # Symmetric and antisymmetric part commute; a Hermitian mixture has the eigenvectors of both, orthonormal ones.
    vectors = torch.linalg.eigh(0.5 * (turn + turn.mT) + 0.3j * (turn - turn.mT))[1]
    turned = turn @ vectors  # λ_i u_i
    values = (vectors.conj() * turned).sum(-2)
    near = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs() < _TWICE
    simple = near.sum((-1, -2)) == exact.shape[-1]
    effects = torch.einsum("vji,vki->vijk", turned.conj(), vectors).real.flatten(2)
    return effects.where(simple[:, None, None], 0.0)


def _move(values: Tensor, moved: Tensor, entry: Tensor, allowed: Tensor, error: Tensor, changes: Tensor) -> None:
    """Make the moves that bring ``error (V, n)`` nearest to 0, one after the other, in place; an entry moves once.

    Move m puts ``moved[:, m]`` to ``entry[m]`` and adds ``changes[:, :, m]`` to the error.
    """
    rows = torch.arange(len(values), device=values.device)
    sizes = changes.square().sum(1)
    for _ in range(_MOST_MOVES):
        gains = (2 * torch.einsum("vn,vnm->vm", error, changes) + sizes).masked_fill(~allowed, torch.inf)
        gain, best = gains.min(1)
        better = gain < 0
        if not better.any():
            break
        at, which = rows[better], best[better]
        values[at, entry[which]] = moved[at, which]
        error[at] += changes[at, :, which]
        allowed[at] &= entry != entry[which].unsqueeze(1)


def _searched(exact: Tensor, rounded: Tensor, effects: Tensor) -> Tensor:
    """Move pairs of entries of small matrices by several ulps, for eigenvalues and norms together.

    One entry at a time has too few places to go to.
    """
    dim = exact.shape[-1]
    ulps = -(-48 // dim**2)
    values, rows = rounded.flatten(1).clone(), torch.arange(len(exact), device=exact.device)
    entry = torch.arange(dim * dim, device=exact.device).repeat_interleave(2 * ulps)
    first, second = torch.combinations(torch.arange(len(entry), device=exact.device)).unbind(1)
    pairs = entry[first] != entry[second]
    first, second = first[pairs], second[pairs]
    for _ in range(_ROUNDS):
        moved = _neighbours(values, ulps)
        stays = (values == 0).repeat_interleave(2 * ulps, 1)
        moved = torch.where(stays, 0.0, moved)
        old = values.double().repeat_interleave(2 * ulps, 1)
        shifts, squares = moved.double() - old, moved.double().square() - old.square()
        growth = (effects @ (values.double() - exact.flatten(1)).unsqueeze(-1)).squeeze(-1)
        excess = values.double().square().sum(1) - dim
        cost = (_NORM_FIRST * (excess.unsqueeze(1) + squares[:, first] + squares[:, second])).square()
        for error, along in zip(growth.unbind(1), effects.unbind(1), strict=True):
            change = along.repeat_interleave(2 * ulps, 1) * shifts
            cost += (error.unsqueeze(1) + change[:, first] + change[:, second]).square()
        off = old - exact.flatten(1).repeat_interleave(2 * ulps, 1)
        farther = _NEARNESS**2 * ((off + shifts).square() - off.square())
        cost += farther[:, first] + farther[:, second]
        least, best = cost.min(1)
        better = least < (_NORM_FIRST * excess).square() + growth.square().sum(1)
        if not better.any():
            break
        for chosen in (first[best], second[best]):
            at = rows[better]
            values[at, entry[chosen[better]]] = moved[at, chosen[better]]
    return values.view_as(rounded)
