"""Charts read backwards: for given matrices, the raw numbers of a family that has them.

Every builder says why when it cannot, and what it builds is compared with the matrices that were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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

# What a letter loses to wrong states at temperature 1 when a stochastic head starts warm.
LEAK: Final = 1e-4

# How far a compiled matrix may be from the one asked for, relative to its largest entry (at least 1).
_ERROR: Final = {torch.float32: 1e-6, torch.float64: 1e-13}

Built: TypeAlias = tuple[TransitionFamily, Reals]  # the family, and the raw initial state


def compiled_family(name: str, target: Realisation, *, dtype: torch.dtype, trainable: bool) -> Built:
    """The family of that name with the matrices of ``target``, in ``dtype``, and the raw initial state ``(D)``.

    ``"auto"`` is ``"permutation"`` for a finite machine whose letters all permute, unless it is to be trained, else
    ``"dense"``.
    """
    one_of("dtype", dtype, _ERROR)
    one_of("family", name, ["auto", *FAMILIES])
    if name == "auto":
        name = "permutation" if target.permutes and _is_automaton(target) and not trainable else "dense"
    if name not in COMPILABLE:
        raise CannotCompile(_UNREACHABLE[name], _plainest(target))
    family, raw_start = COMPILABLE[name](target, trainable)
    family = family.to(dtype)
    with torch.no_grad():
        start = torch.from_numpy(raw_start).to(dtype)
        pairs = ("matrices", family.table(), target.matrices), ("start", family.start_from(start), target.initial)
    allowed = 2 * LEAK if name == "stochastic" and trainable else _ERROR[dtype]
    for what, found, wanted in pairs:
        error = np.abs(found.detach().double().numpy() - wanted).max() / max(1.0, np.abs(wanted).max())
        if not error <= allowed:  # nor NaN, where the numbers leave the range of dtype
            raise CannotCompile(f"{name} has the {what} of this automaton only to {error:.1e} in {dtype}", ("dense",))
    return family.requires_grad_(trainable), raw_start


def _charted(name: str, target: Realisation, raw: NDArray[Any], **options: Any) -> TransitionFamily:
    """A family in float64 with a row of raw numbers ``(V, P)`` for every letter."""
    chart: Any = FAMILIES[name]
    family: TransitionFamily = chart(
        state_dim=target.dim, vocab_size=target.letters, init_scale=0.0, **options
    ).double()
    with torch.no_grad():
        family.get_parameter("source.raw").copy_(torch.from_numpy(np.asarray(raw, dtype=np.float64)))
    return family


def _plainest(target: Realisation) -> tuple[str, ...]:
    """What holds any matrices, and what holds these exactly with less."""
    if target.permutes:
        return "permutation", "dense"
    return ("stochastic", "dense") if _is_automaton(target) else ("dense",)


def _is_distribution(target: Realisation) -> bool:
    columns = np.concatenate((target.matrices.transpose(0, 2, 1).reshape(-1, target.dim), target.initial[None]))
    return bool((columns >= 0).all() and np.abs(columns.sum(1) - 1).max() < 1e-12)


def _is_automaton(target: Realisation) -> bool:
    """One state at a time."""
    return target.deterministic and bool((target.initial == 1).sum() == 1 and (target.initial != 0).sum() == 1)


def _letter(target: Realisation, letter: int) -> str:
    return f"the letter {target.alphabet[letter]!r}"


def _cap(target: Realisation) -> float:
    """A spectral cap that no matrix reaches, so that capping changes nothing."""
    return max(1.0, 1.001 * float(np.linalg.norm(target.matrices, 2, (1, 2)).max()))


def _dense(target: Realisation, trainable: bool) -> Built:
    return _charted("dense", target, target.matrices.reshape(target.letters, -1)), target.initial


def _affine(target: Realisation, trainable: bool) -> Built:
    kept = np.eye(target.dim)[-1]
    if (target.matrices[:, -1] != kept).any() or target.initial[-1] != 1:
        raise CannotCompile("affine keeps the last coordinate at 1, and this automaton changes it", _plainest(target))
    return _charted("affine", target, target.matrices[:, :-1].reshape(target.letters, -1)), target.initial


def _shared_basis(target: Realisation, trainable: bool) -> Built:
    basis, place = np.unique(target.matrices, axis=0, return_inverse=True)
    family = _charted("shared_basis", target, np.eye(len(basis))[place.reshape(-1)], basis_size=len(basis))
    with torch.no_grad():
        family.get_parameter("basis").copy_(torch.from_numpy(basis))
    return family, target.initial


def _block_sparse(target: Realisation, trainable: bool) -> Built:
    used = np.argwhere((target.matrices != 0).any(0))
    size = next(s for s in range(1, target.dim + 1) if (used[:, 0] // s == used[:, 1] // s).all())
    family = _charted_at_places("block_sparse", target, block_size=size, bandwidth=0)
    return family, target.initial


def _charted_at_places(name: str, target: Realisation, **options: Any) -> TransitionFamily:
    """Families that put each raw number where ``places`` says: entries ``(P)`` of the flattened matrix."""
    empty = FAMILIES[name](state_dim=target.dim, vocab_size=target.letters, **options)
    places = empty.get_buffer("places").numpy()
    entries = target.matrices.reshape(target.letters, -1)[:, places]
    return _charted(name, target, entries, spectral_cap=_cap(target), **options)


def _striped(name: str) -> Callable[[Realisation, bool], Built]:
    """Toeplitz and Hankel: one number for all entries of a diagonal."""

    def build(target: Realisation, trainable: bool) -> Built:
        chart: Any = FAMILIES[name]
        places = chart(state_dim=target.dim, vocab_size=1).get_buffer("places").numpy()
        numbers = np.empty((target.letters, 2 * target.dim - 1))
        numbers[:, places] = target.matrices
        wrong = np.argwhere((numbers[:, places] != target.matrices).any((1, 2)))
        if len(wrong):
            raise CannotCompile(f"{_letter(target, int(wrong[0, 0]))} has no {name} matrix", _plainest(target))
        return _charted(name, target, numbers, spectral_cap=_cap(target)), target.initial

    return build


def _dplr(target: Realisation, trainable: bool) -> Built:
    """``M = 0 + U Vᵀ`` or ``I + U Vᵀ``, whichever rank is less: U independent columns, V by least squares."""
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
        whole = np.round(right)
        factors.append((diagonal, left, np.where(np.abs(right - whole) < 1e-12, whole, right)))
    rank = max(1, *(left.shape[1] for _, left, _ in factors))
    raw = np.zeros((target.letters, target.dim, 1 + 2 * rank))
    for row, (diagonal, left, right) in zip(raw, factors, strict=True):
        row[:, 0] = diagonal
        row[:, 1 : 1 + left.shape[1]], row[:, 1 + rank : 1 + rank + right.shape[1]] = left, right
    return _charted(
        "dplr", target, raw.reshape(target.letters, -1), rank=rank, spectral_cap=_cap(target)
    ), target.initial


def _permutation(target: Realisation, trainable: bool) -> Built:
    if not target.permutes:
        zero_one = np.isin(target.matrices, (0.0, 1.0)).all((1, 2))
        fine = zero_one & (target.matrices.sum(1) == 1).all(1) & (target.matrices.sum(2) == 1).all(1)
        letter = _letter(target, int(fine.argmin()))
        raise CannotCompile(f"permutation needs letters that permute states, and {letter} does not", _plainest(target))
    if trainable:
        raise CannotCompile("permutation has nothing to train", ("orthogonal", "dense"))
    images = target.matrices.argmax(1).tolist()
    return FAMILIES["permutation"](permutations=images), target.initial  # type: ignore[call-arg]


def _stochastic(target: Realisation, trainable: bool) -> Built:
    """Deterministic: exact at temperature 0, warm at 1.  Otherwise logarithms at temperature 1, which have no zeros."""
    if not _is_distribution(target):
        raise CannotCompile(
            "stochastic needs a start and columns that are distributions (at least 0, sum 1)", ("dense",)
        )
    matrices, initial = target.matrices, target.initial
    if _is_automaton(target):
        sharpness = math.log((1 - LEAK) / LEAK * max(1, target.dim - 1))
        logits, start = sharpness * matrices, sharpness * initial
        temperature = 1.0 if trainable else 0.0
    elif (matrices > 0).all() and (initial > 0).all():
        logits, start, temperature = np.log(matrices), np.log(initial), 1.0
    else:
        raise CannotCompile(
            "stochastic is a softmax, which has no zeros unless all its columns are 0/1 (temperature 0)", ("dense",)
        )
    return _charted("stochastic", target, logits.reshape(target.letters, -1), temperature=temperature), start


def _diagonals(name: str, target: Realisation) -> Reals:
    """Eigenvalues ``(V, D)`` of matrices that must be diagonal."""
    diagonals: Reals = np.diagonal(target.matrices, axis1=1, axis2=2)
    if (target.matrices != diagonals[:, :, None] * np.eye(target.dim)).any():
        hint = " (with realisation='smallest' they would be)" if target.permutes and target.dim == 2 else ""
        raise CannotCompile(f"{name} needs diagonal matrices, and these are not{hint}", _plainest(target))
    return diagonals


def _signed_diagonal(target: Realisation, trainable: bool) -> Built:
    values, cap = _diagonals("signed_diagonal", target), max(1.0, float(np.abs(target.matrices).max()))
    return _charted("signed_diagonal", target, np.arccos(values / cap), spectral_cap=cap), target.initial


def _diagonal(target: Realisation, trainable: bool) -> Built:
    values = _diagonals("diagonal", target)
    if (values <= 0).any():
        raise CannotCompile("diagonal reaches numbers above 0 only", ("signed_diagonal", "dense"))
    cap = 2 * float(values.max())  # σ(θ) = 1 would lie at infinity
    return _charted("diagonal", target, np.log(values / (cap - values)), spectral_cap=cap), target.initial


def _check_orthogonal(name: str, target: Realisation) -> None:
    gram = target.matrices.transpose(0, 2, 1) @ target.matrices
    wrong = np.argwhere(np.abs(gram - np.eye(target.dim)).max((1, 2)) > 1e-12)
    if len(wrong):
        letter = _letter(target, int(wrong[0, 0]))
        why = "merges states" if target.deterministic else "does not keep lengths"
        raise CannotCompile(f"{name} has orthogonal matrices only, and {letter} {why}", _plainest(target))


def _check_rotations(name: str, target: Realisation) -> None:
    _check_orthogonal(name, target)
    wrong = np.argwhere(np.linalg.det(target.matrices) < 0)
    if len(wrong):
        letter = _letter(target, int(wrong[0, 0]))
        raise CannotCompile(
            f"{name} reaches rotations, det +1, and {letter} has det −1: signs (or one more dimension) repair it",
            ("orthogonal", "signed_cayley"),
        )


def _skew_chart(name: str, preimage: Callable[[Reals], Reals]) -> Callable[[Realisation, bool], Built]:
    """Families of all rotations."""

    def build(target: Realisation, trainable: bool) -> Built:
        _check_rotations(name, target)
        return _charted(name, target, skew_numbers([preimage(matrix) for matrix in target.matrices])), target.initial

    return build


def _check_no_half_turn(name: str, target: Realisation, matrices: Reals) -> None:
    for letter, matrix in enumerate(matrices):
        if has_half_turn(matrix):
            raise CannotCompile(
                f"{name} never has the eigenvalue −1 (C(A) + I = 2(I − A)⁻¹ is invertible), and "
                f"{_letter(target, letter)} has it: C(A)² reaches half turns, signs reach reflections",
                ("orthogonal", "signed_cayley"),
            )


def _cayley(target: Realisation, trainable: bool) -> Built:
    _check_orthogonal("cayley", target)
    _check_no_half_turn("cayley", target, target.matrices)
    return _charted("cayley", target, skew_numbers([cayley_preimage(m) for m in target.matrices])), target.initial


def _scaled_cayley(target: Realisation, trainable: bool) -> Built:
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
    raw = np.concatenate((skew_numbers([cayley_preimage(m) for m in turns]), np.log(gains / (1 - gains))[:, None]), 1)
    return _charted("scaled_cayley", target, raw), target.initial


def _signed(name: str, preimage: Callable[[Reals], Reals], signs_of: Callable[[Reals], Reals]) -> Any:
    """Families of rotations with signed columns: signs first, then the rotation that is left."""

    def build(target: Realisation, trainable: bool) -> Built:
        _check_orthogonal(name, target)
        signs = np.stack([signs_of(matrix) for matrix in target.matrices])
        rotations = target.matrices * signs[:, None, :]
        raw = skew_numbers([preimage(rotation) for rotation in rotations])
        family = _charted(name, target, raw, negatives=0)
        family.get_buffer("signs").copy_(torch.from_numpy(signs))
        return family, target.initial

    return build


def _sign_of_determinant(matrix: Reals) -> Reals:
    signs = np.ones(len(matrix))
    signs[-1] = 1.0 if np.linalg.det(matrix) > 0 else -1.0
    return signs


def _householder(target: Realisation, trainable: bool) -> Built:
    _check_orthogonal("householder", target)
    normals = [reflections_of(matrix) for matrix in target.matrices]
    if len({len(each) % 2 for each in normals}) > 1:
        raise CannotCompile(
            "householder has as many reflections for every letter, hence one determinant, and these letters have both",
            ("orthogonal", "signed_cayley"),
        )
    most = max(map(len, normals)) or 2
    pair = np.eye(target.dim)[0]  # twice the same reflection is none
    raw = [np.concatenate([*each, *[pair] * (most - len(each))]) for each in normals]
    return _charted("householder", target, np.stack(raw), reflections=most), target.initial


COMPILABLE: Final[dict[str, Callable[[Realisation, bool], Built]]] = {
    "dense": _dense,
    "affine": _affine,
    "shared_basis": _shared_basis,
    "block_sparse": _block_sparse,
    "toeplitz": _striped("toeplitz"),
    "hankel": _striped("hankel"),
    "dplr": _dplr,
    "permutation": _permutation,
    "stochastic": _stochastic,
    "diagonal": _diagonal,
    "signed_diagonal": _signed_diagonal,
    "orthogonal": _signed("orthogonal", squared_cayley_preimage, _sign_of_determinant),
    "signed_cayley": _signed("signed_cayley", cayley_preimage, signs_without_half_turn),
    "squared_cayley": _skew_chart("squared_cayley", squared_cayley_preimage),
    "exponential": _skew_chart("exponential", exponential_preimage),
    "cayley": _cayley,
    "scaled_cayley": _scaled_cayley,
    "householder": _householder,
}

_UNREACHABLE: Final = {
    "sinkhorn": "sinkhorn is strictly positive at every temperature, so it never is the matrix of a finite machine",
    "butterfly": "butterfly has no inverse chart: which matrices are products of its levels is not decided here",
    "random": "random matrices are drawn, not chosen",
}
