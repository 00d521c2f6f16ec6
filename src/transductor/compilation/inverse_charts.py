"""Charts read backwards: for given matrices, the raw numbers of a family that has them.

Every builder says why when it cannot, and its result is compared with the matrices that were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from transductor.checks import one_of
from transductor.compilation.realisation import CannotCompile, Realisation, Reals
from transductor.compilation.rotations import (
    cayley_preimage,
    exponential_preimage,
    has_half_turn,
    reflections_of,
    signs_without_half_turn,
    skew_numbers,
    squared_cayley_preimage,
)
from transductor.transitions import FAMILIES, TransitionFamily

# The share that a letter loses to wrong states at temperature 1 when a trainable stochastic head starts.
LEAK: Final = 1e-4

# How far a compiled matrix may be from the one asked for, relative to its largest entry (at least 1).
_ERROR: Final = {torch.float32: 1e-6, torch.float64: 1e-13}

_ORTHOGONAL: Final = ("orthogonal", "signed_cayley")  # families that reach every orthogonal matrix
# From a target, and whether it will be trained, to a family.
_Builder: TypeAlias = Callable[[Realisation, bool], TransitionFamily]
_Preimage: TypeAlias = Callable[[Reals], Reals]


def compiled_family(
    name: str, target: Realisation, *, dtype: torch.dtype, trainable: bool
) -> tuple[TransitionFamily, Reals]:
    """Return the family of that name with the matrices of ``target``, in ``dtype``, and the raw initial state ``(D)``.

    ``"auto"`` is ``"permutation"`` for a finite machine whose letters all permute, unless it is to be trained, and
    otherwise ``"dense"``.
    """
    one_of("dtype", dtype, _ERROR)
    one_of("family", name, ["auto", *FAMILIES])
    if name == "auto":
        name = "permutation" if target.permutes and _is_automaton(target) and not trainable else "dense"
    if name not in COMPILABLE:
        raise CannotCompile(_UNREACHABLE[name], _plainest(target))
    family = COMPILABLE[name](target, trainable).to(dtype)
    raw_start = _softmax_preimage(target, target.initial) if name == "stochastic" else target.initial
    with torch.no_grad():
        start = torch.from_numpy(raw_start).to(dtype)
        pairs = ("matrices", family.table(), target.matrices), ("start", family.start_from(start), target.initial)
    allowed = 2 * LEAK if name == "stochastic" and trainable else _ERROR[dtype]
    for part, built, wanted in pairs:
        error = np.abs(built.detach().double().numpy() - wanted).max() / max(1.0, np.abs(wanted).max())
        if not error <= allowed:  # also true of NaN, where the numbers leave the range of dtype
            raise CannotCompile(f"{name} has the {part} of this automaton only to {error:.1e} in {dtype}", ("dense",))
    return family.requires_grad_(trainable), raw_start


def _charted(name: str, target: Realisation, raw: NDArray[Any], **options: Any) -> TransitionFamily:
    """Return a family in float64 with a row of raw numbers, ``(V, P)`` or ``(V, …)``, for every letter."""
    chart: Any = FAMILIES[name]
    family: TransitionFamily = chart(
        state_dim=target.dim, vocab_size=target.letters, init_scale=0.0, **options
    ).double()
    with torch.no_grad():
        numbers = np.asarray(raw, dtype=np.float64).reshape(target.letters, -1)
        family.get_parameter("source.raw").copy_(torch.from_numpy(numbers))
    return family


def _plainest(target: Realisation) -> tuple[str, ...]:
    """Return the families that hold these matrices exactly: the most special one, and the one that holds any."""
    if target.permutes:
        return "permutation", "dense"
    return ("stochastic", "dense") if _is_automaton(target) else ("dense",)


def _is_automaton(target: Realisation) -> bool:
    """Return whether the head is in one state at a time."""
    return target.deterministic and bool((target.initial == 1).sum() == 1 and (target.initial != 0).sum() == 1)


def _first_letter(target: Realisation, chosen: NDArray[np.bool_]) -> str:
    """Name the first letter for which ``chosen (V)`` is true; the empty string if there is none."""
    letters = np.flatnonzero(chosen)
    return f"the letter {target.alphabet[letters[0]]!r}" if len(letters) else ""


def _cap(target: Realisation) -> float:
    """Return a spectral cap that no matrix reaches, so that capping changes nothing."""
    return max(1.0, 1.001 * float(np.linalg.norm(target.matrices, 2, (1, 2)).max()))


def _dense(target: Realisation, trainable: bool) -> TransitionFamily:
    return _charted("dense", target, target.matrices)


def _affine(target: Realisation, trainable: bool) -> TransitionFamily:
    kept = np.eye(target.dim)[-1]
    if (target.matrices[:, -1] != kept).any() or target.initial[-1] != 1:
        raise CannotCompile("affine keeps the last coordinate at 1, and this automaton changes it", _plainest(target))
    return _charted("affine", target, target.matrices[:, :-1])


def _shared_basis(target: Realisation, trainable: bool) -> TransitionFamily:
    basis, number = np.unique(target.matrices, axis=0, return_inverse=True)
    family = _charted("shared_basis", target, np.eye(len(basis))[number.reshape(-1)], basis_size=len(basis))
    with torch.no_grad():
        family.get_parameter("basis").copy_(torch.from_numpy(basis))
    return family


def _block_sparse(target: Realisation, trainable: bool) -> TransitionFamily:
    used = np.argwhere((target.matrices != 0).any(0))
    size = next(s for s in range(1, target.dim + 1) if (used[:, 0] // s == used[:, 1] // s).all())
    options = {"block_size": size, "bandwidth": 0}
    empty = FAMILIES["block_sparse"](state_dim=target.dim, vocab_size=target.letters, **options)
    entries = target.matrices.reshape(target.letters, -1)[:, empty.get_buffer("places").numpy()]
    return _charted("block_sparse", target, entries, spectral_cap=_cap(target), **options)


def _striped(name: str, target: Realisation, trainable: bool) -> TransitionFamily:
    """Build Toeplitz and Hankel matrices: one number for all entries of a diagonal."""
    chart: Any = FAMILIES[name]
    diagonal = chart(state_dim=target.dim, vocab_size=1).get_buffer("places").numpy()
    numbers = np.empty((target.letters, 2 * target.dim - 1))
    numbers[:, diagonal] = target.matrices
    if letter := _first_letter(target, (numbers[:, diagonal] != target.matrices).any((1, 2))):
        raise CannotCompile(f"{letter} has no {name} matrix", _plainest(target))
    return _charted(name, target, numbers, spectral_cap=_cap(target))


def _dplr(target: Realisation, trainable: bool) -> TransitionFamily:
    """Write ``M = 0 + U Vᵀ`` or ``I + U Vᵀ``, whichever rank is less: U independent columns, V by least squares."""
    factors = []
    for matrix in target.matrices:
        rest = [(matrix - diagonal * np.eye(target.dim), diagonal) for diagonal in (0.0, 1.0)]
        low, diagonal = min(rest, key=lambda pair: np.linalg.matrix_rank(pair[0]))
        columns: list[int] = []
        for column in range(target.dim):
            if np.linalg.matrix_rank(low[:, [*columns, column]]) > len(columns):
                columns.append(column)
        left = low[:, columns]
        right = np.linalg.lstsq(left, low, rcond=None)[0].T if columns else np.zeros((target.dim, 0))
        rounded = np.round(right)
        factors.append((diagonal, left, np.where(np.abs(right - rounded) < 1e-12, rounded, right)))
    rank = max(1, *(left.shape[1] for _, left, _ in factors))
    raw = np.zeros((target.letters, target.dim, 1 + 2 * rank))
    for row, (diagonal, left, right) in zip(raw, factors, strict=True):
        row[:, 0] = diagonal
        row[:, 1 : 1 + left.shape[1]], row[:, 1 + rank : 1 + rank + right.shape[1]] = left, right
    return _charted("dplr", target, raw, rank=rank, spectral_cap=_cap(target))


def _permutation(target: Realisation, trainable: bool) -> TransitionFamily:
    if not target.permutes:
        zero_one = np.isin(target.matrices, (0.0, 1.0)).all((1, 2))
        fine = zero_one & (target.matrices.sum(1) == 1).all(1) & (target.matrices.sum(2) == 1).all(1)
        letter = _first_letter(target, ~fine)
        raise CannotCompile(f"permutation needs letters that permute states, and {letter} does not", _plainest(target))
    if trainable:
        raise CannotCompile("permutation has nothing to train", ("orthogonal", "dense"))
    images = target.matrices.argmax(1).tolist()
    return FAMILIES["permutation"](permutations=images)  # type: ignore[call-arg]


def _softmax_preimage(target: Realisation, distributions: Reals) -> Reals:
    """Return logits of distributions: sharp ones for 0/1 distributions, otherwise logarithms, which have no zeros."""
    if _is_automaton(target):
        return distributions * math.log((1 - LEAK) / LEAK * max(1, target.dim - 1))
    logits: Reals = np.log(distributions)
    return logits


def _stochastic(target: Realisation, trainable: bool) -> TransitionFamily:
    """Build a deterministic machine, exact at temperature 0 and leaking at 1; or any positive columns, at 1."""
    columns = np.concatenate((target.matrices.transpose(0, 2, 1).reshape(-1, target.dim), target.initial[None]))
    if (columns < 0).any() or np.abs(columns.sum(1) - 1).max() >= 1e-12:
        raise CannotCompile(
            "stochastic needs a start and columns that are distributions (at least 0, sum 1)", ("dense",)
        )
    sharp = _is_automaton(target)
    if not sharp and not (columns > 0).all():
        raise CannotCompile(
            "stochastic is a softmax, which has no zeros unless all its columns are 0/1 (temperature 0)", ("dense",)
        )
    temperature = 0.0 if sharp and not trainable else 1.0
    return _charted("stochastic", target, _softmax_preimage(target, target.matrices), temperature=temperature)


def _diagonals(name: str, target: Realisation) -> Reals:
    """Return the eigenvalues ``(V, D)`` of matrices that must be diagonal."""
    diagonals: Reals = np.diagonal(target.matrices, axis1=1, axis2=2)
    if (target.matrices != diagonals[:, :, None] * np.eye(target.dim)).any():
        hint = " (with realisation='smallest' they would be)" if target.permutes and target.dim == 2 else ""
        raise CannotCompile(f"{name} needs diagonal matrices, and these are not{hint}", _plainest(target))
    return diagonals


def _signed_diagonal(target: Realisation, trainable: bool) -> TransitionFamily:
    values, cap = _diagonals("signed_diagonal", target), max(1.0, float(np.abs(target.matrices).max()))
    return _charted("signed_diagonal", target, np.arccos(values / cap), spectral_cap=cap)


def _diagonal(target: Realisation, trainable: bool) -> TransitionFamily:
    values = _diagonals("diagonal", target)
    if (values <= 0).any():
        raise CannotCompile("diagonal reaches numbers above 0 only", ("signed_diagonal", "dense"))
    cap = 2 * float(values.max())  # σ(θ) = 1 would lie at infinity
    return _charted("diagonal", target, np.log(values / (cap - values)), spectral_cap=cap)


def _column_choice(target: Realisation, trainable: bool) -> TransitionFamily:
    several = ((target.matrices != 0).sum(1) > 1).any(1)
    if letter := _first_letter(target, several):
        raise CannotCompile(f"column_choice has one entry per column, and {letter} has more", _plainest(target))
    cap = max(1.0, float(np.abs(target.matrices).max()))
    sharp = math.log((1 - LEAK) / LEAK * max(1, target.dim - 1))
    choices = sharp * (target.matrices != 0).reshape(target.letters, -1)
    angles = np.arccos(target.matrices.sum(1) / cap)
    return _charted("column_choice", target, np.column_stack((choices, angles)), gain_cap=cap)


def _check_orthogonal(name: str, target: Realisation) -> None:
    gram = target.matrices.transpose(0, 2, 1) @ target.matrices
    if letter := _first_letter(target, np.abs(gram - np.eye(target.dim)).max((1, 2)) > 1e-12):
        why = "merges states" if target.deterministic else "does not keep lengths"
        raise CannotCompile(f"{name} has orthogonal matrices only, and {letter} {why}", _plainest(target))


def _rotations(name: str, preimage: _Preimage, target: Realisation, trainable: bool) -> TransitionFamily:
    """Build a family that reaches all rotations."""
    _check_orthogonal(name, target)
    if letter := _first_letter(target, np.linalg.det(target.matrices) < 0):
        reason = f"{name} reaches rotations, det +1, and {letter} has det −1: signs (or one more dimension) repair it"
        raise CannotCompile(reason, _ORTHOGONAL)
    return _charted(name, target, skew_numbers(target.matrices, preimage))


def _cayley(target: Realisation, trainable: bool) -> TransitionFamily:
    _check_orthogonal("cayley", target)
    if letter := _first_letter(target, np.array([has_half_turn(matrix) for matrix in target.matrices])):
        raise CannotCompile(
            "cayley never has the eigenvalue −1 (C(A) + I = 2(I − A)⁻¹ is invertible), and "
            f"{letter} has it: C(A)² reaches half turns, signs reach reflections",
            _ORTHOGONAL,
        )
    return _charted("cayley", target, skew_numbers(target.matrices, cayley_preimage))


def _scaled_cayley(target: Realisation, trainable: bool) -> TransitionFamily:
    gains = np.linalg.norm(target.matrices, axis=(1, 2)) / math.sqrt(target.dim)
    if ((gains <= 0) | (gains >= 1)).any():
        raise CannotCompile(
            "scaled_cayley has a gain strictly between 0 and 1: every letter forgets, none keeps", _plainest(target)
        )
    turns = target.matrices / gains[:, None, None]
    if np.abs(turns.transpose(0, 2, 1) @ turns - np.eye(target.dim)).max() > 1e-12:
        raise CannotCompile("scaled_cayley has multiples of rotations only", ("dense",))
    if any(map(has_half_turn, turns)):
        raise CannotCompile("scaled_cayley has multiples of rotations without the eigenvalue −1 only", ("dense",))
    logits = np.log(gains / (1 - gains))
    return _charted("scaled_cayley", target, np.column_stack((skew_numbers(turns, cayley_preimage), logits)))


def _signed(
    name: str, preimage: _Preimage, signs_of: _Preimage, target: Realisation, trainable: bool
) -> TransitionFamily:
    """Build a family of rotations with signed columns: signs first, then the rotation that is left."""
    _check_orthogonal(name, target)
    signs = np.stack([signs_of(matrix) for matrix in target.matrices])
    family = _charted(name, target, skew_numbers(target.matrices * signs[:, None, :], preimage), negatives=0)
    family.get_buffer("signs").copy_(torch.from_numpy(signs))
    return family


def _sign_of_determinant(matrix: Reals) -> Reals:
    signs = np.ones(len(matrix))
    signs[-1] = 1.0 if np.linalg.det(matrix) > 0 else -1.0
    return signs


def _householder(target: Realisation, trainable: bool) -> TransitionFamily:
    _check_orthogonal("householder", target)
    normals = [reflections_of(matrix) for matrix in target.matrices]
    if len({len(each) % 2 for each in normals}) > 1:
        raise CannotCompile(
            "householder has as many reflections for every letter, hence one determinant, and these letters have both",
            _ORTHOGONAL,
        )
    most = max(map(len, normals)) or 2
    pair = np.eye(target.dim)[0]  # twice the same reflection is none
    raw = [np.concatenate([*each, *[pair] * (most - len(each))]) for each in normals]
    return _charted("householder", target, np.stack(raw), reflections=most)


COMPILABLE: Final[dict[str, _Builder]] = {
    "dense": _dense,
    "affine": _affine,
    "shared_basis": _shared_basis,
    "block_sparse": _block_sparse,
    "toeplitz": partial(_striped, "toeplitz"),
    "hankel": partial(_striped, "hankel"),
    "dplr": _dplr,
    "permutation": _permutation,
    "stochastic": _stochastic,
    "column_choice": _column_choice,
    "diagonal": _diagonal,
    "signed_diagonal": _signed_diagonal,
    "orthogonal": partial(_signed, "orthogonal", squared_cayley_preimage, _sign_of_determinant),
    "signed_cayley": partial(_signed, "signed_cayley", cayley_preimage, signs_without_half_turn),
    "squared_cayley": partial(_rotations, "squared_cayley", squared_cayley_preimage),
    "exponential": partial(_rotations, "exponential", exponential_preimage),
    "cayley": _cayley,
    "scaled_cayley": _scaled_cayley,
    "householder": _householder,
}

_UNREACHABLE: Final = {
    "positive": "positive matrices have no zeros, so none is the matrix of a finite machine (see heads.filter_of)",
    "sinkhorn": "sinkhorn is strictly positive at every temperature, so it never is the matrix of a finite machine",
    "butterfly": "butterfly has no inverse chart: which matrices are products of its levels is not decided here",
    "random": "random matrices are drawn, not chosen",
}
