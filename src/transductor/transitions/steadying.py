"""Orthogonal tables in float32 whose products keep the norm of a state.

A matrix rounded to float32 is no longer orthogonal.  Over a long random word the norm grows or shrinks by about
``½ (‖M‖²_F / d − 1)`` a step, 10⁻⁹ to 10⁻⁸, which is 1 to 20 % after 10⁷ steps, and over a word of one letter by the
moduli of that matrix's eigenvalues, which is more; the rounding of the steps themselves adds one part in 10⁴.  So
entries are moved by an ulp or so: first until the eigenvalues are as near to the unit circle as a greedy search brings
them, then until ``‖M‖²_F`` is d to about 10⁻¹¹.  Near the identity an ulp of a small entry is too little for that, and
entries go farther, as far as an ulp of 1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

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
_STEADY = 2e-11  # times 10⁷ steps and a half: one part in ten thousand
_DOUBLING = [1 << k for k in range(12)]
_FAR = 2**-23  # an ulp of 1
_FAR_SMALL = 2**-20
_LEAST = 2**-100  # smaller entries stay: no square of theirs is felt
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
    stay zero, and from ``D = 7`` on every other entry stays within three ulps of its exact value, or within 1.2·10⁻⁷.
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
        near, values = range(1, -(-48 // dim**2) + 1), rounded.flatten(1)
        values = _searched(exact, values, effects, near)
        farther = [k for k in _DOUBLING[1::2] if k > near[-1]]
        far = _swaying(values, dim)
        values[far] = _searched(exact[far], values[far], effects[far], [1, *farther])
        return values.view_as(rounded)
    values, entry = rounded.flatten(1).clone(), torch.arange(dim * dim, device=exact.device).repeat_interleave(2)
    moved = _neighbours(values, [1])
    nonzero = (values.abs() >= _LEAST).repeat_interleave(2, 1)
    shifts = moved.double() - values.double().repeat_interleave(2, 1)
    growth = (effects @ (values.double() - exact.flatten(1)).unsqueeze(-1)).squeeze(-1)
    _move(values, moved, entry, nonzero.clone(), growth, effects.repeat_interleave(2, 2) * shifts.unsqueeze(1))
    moved = _neighbours(values, [1])
    squares = moved.double().square() - values.double().square().repeat_interleave(2, 1)
    excess = values.double().square().sum(1, keepdim=True) - dim
    _move(values, moved, entry, nonzero, excess, squares.unsqueeze(1))
    for some in _swaying(values, dim).split(max(1, _NUMBERS_AT_ONCE // (2 * len(_DOUBLING) * dim**3))):
        values[some] = _moved_far(exact[some].flatten(1), values[some], effects[some])
    return values.view_as(rounded)


def _moved_far(exact: Tensor, values: Tensor, effects: Tensor) -> Tensor:
    """Move entries ``(V, d²)`` by many ulps, for norms and eigenvalues together.

    Near the identity all small entries, moved by an ulp each, add up to less than one ulp of an entry near 1.
    """
    values, each = values.clone(), 2 * len(_DOUBLING)
    moved, entry = _neighbours(values, _DOUBLING), torch.arange(values.shape[1], device=values.device)
    old = values.double().repeat_interleave(each, 1)
    allowed = (old.abs() >= _LEAST) & ((moved.double() - exact.repeat_interleave(each, 1)).abs() <= _FAR)
    growth = (effects @ (values.double() - exact).unsqueeze(-1)).squeeze(-1)
    changes = effects.repeat_interleave(each, 2) * (moved.double() - old).unsqueeze(1)
    excess = values.double().square().sum(1, keepdim=True) - effects.shape[1]
    squares = (moved.double().square() - old.square()).unsqueeze(1)
    error = torch.cat([_NORM_FIRST * excess, growth], 1)
    _move(values, moved, entry.repeat_interleave(each), allowed, error, torch.cat([_NORM_FIRST * squares, changes], 1))
    return values


def _swaying(values: Tensor, dim: int) -> Tensor:
    """Return the rows of ``values (V, d²)`` whose norms are not what they should be."""
    return ((values.double().square().sum(1) - dim).abs() > _STEADY * dim).nonzero().squeeze(1)


def _neighbours(values: Tensor, ulps: Sequence[int]) -> Tensor:
    """Return the floats that are so many ulps above and below ``(V, n)`` values: ``(V, n · 2 len(ulps))``."""
    steps = torch.tensor([sign * k for k in ulps for sign in (-1, 1)], dtype=torch.int32, device=values.device)
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


def _searched(exact: Tensor, values: Tensor, effects: Tensor, ulps: Sequence[int]) -> Tensor:
    """Move pairs of the entries ``(V, d²)`` of small matrices by several ulps, for eigenvalues and norms together.

    One entry at a time has too few places to go to.
    """
    dim, moves = exact.shape[-1], 2 * len(ulps)
    entry = torch.arange(dim * dim, device=exact.device).repeat_interleave(moves)
    first, second = torch.combinations(torch.arange(len(entry), device=exact.device)).unbind(1)
    pairs = entry[first] != entry[second]
    first, second = first[pairs], second[pairs]
    at_once = max(1, _NUMBERS_AT_ONCE // max(1, len(first)))
    if len(values) > at_once:
        parts = zip(exact.split(at_once), values.split(at_once), effects.split(at_once), strict=True)
        return torch.cat([_searched(of, at, along, ulps) for of, at, along in parts])
    values, rows = values.clone(), torch.arange(len(exact), device=exact.device)
    for _ in range(_ROUNDS):
        moved, old = _neighbours(values, ulps), values.double().repeat_interleave(moves, 1)
        stays = (old.abs() < _LEAST) | ((moved.double() - old).abs() > _FAR_SMALL)
        moved = torch.where(stays, old.float(), moved)
        shifts, squares = moved.double() - old, moved.double().square() - old.square()
        growth = (effects @ (values.double() - exact.flatten(1)).unsqueeze(-1)).squeeze(-1)
        excess = values.double().square().sum(1) - dim
        cost = (_NORM_FIRST * (excess.unsqueeze(1) + squares[:, first] + squares[:, second])).square()
        for error, along in zip(growth.unbind(1), effects.unbind(1), strict=True):
            change = along.repeat_interleave(moves, 1) * shifts
            cost += (error.unsqueeze(1) + change[:, first] + change[:, second]).square()
        off = old - exact.flatten(1).repeat_interleave(moves, 1)
        farther = _NEARNESS**2 * ((off + shifts).square() - off.square())
        cost += farther[:, first] + farther[:, second]
        least, best = cost.min(1)
        better = least < (_NORM_FIRST * excess).square() + growth.square().sum(1)
        if not better.any():
            break
        for chosen in (first[best], second[best]):
            at = rows[better]
            values[at, entry[chosen[better]]] = moved[at, chosen[better]]
    return values
