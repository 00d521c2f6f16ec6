"""Heads that track a monoid exactly: their matrices, the check that they do, and their constructions.

A witness is checked in exact arithmetic: its states are the Cayley graph of the monoid, and its matrices belong to the
family.  A readout that takes the nearest state is affine, ``2⟨h_s, h⟩ − |h_s|²``, so states that differ suffice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

import numpy as np
import numpy.typing as npt
import torch

from transductor.automata import WeightedAutomaton
from transductor.compilation import compile_head
from transductor.model import RationalReadout
from transductor.theory.characters import Characters, RealIrreducible
from transductor.theory.finite_monoids import FiniteMonoid
from transductor.theory.group_actions import CosetAction, coset_actions
from transductor.theory.real_cyclotomic import Exact, RealCyclotomic, echelon, exact_matrix, rank

Floats = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Witness:
    """A head of some family whose states are the elements of a monoid.

    Attributes:
        family: Which of ``FAMILIES`` its matrices belong to.
        monoid: What it tracks.
        matrices: One ``(d, d)`` for each letter, exact.
        initial: The state before the first letter, ``(d)``.
        basis: Columns ``(N, d)``, independent, in which states are written: lengths and angles are those of
            ``basis @ h``.  The identity where states are written as they are.
        reflections: Of how many reflections every matrix is a product, for Householder matrices.
    """

    family: str
    monoid: FiniteMonoid
    matrices: tuple[Exact, ...]
    initial: Exact
    basis: Exact
    reflections: int | None = None

    @property
    def dim(self) -> int:
        """The dimension d of the state."""
        return len(self.initial)

    @property
    def form(self) -> Exact:
        """The matrix B of the inner product of two states, positive definite because the basis is independent."""
        return np.asarray(self.basis.T @ self.basis)

    def states(self) -> list[Exact]:
        """Return the state of every element, along the shortest word that leads there."""
        states: list[Exact | None] = [None] * len(self.monoid)
        states[0] = self.initial
        for element, row in enumerate(self.monoid.after.tolist()):
            for letter, target in enumerate(row):
                if states[target] is None:
                    states[target] = self.matrices[letter] @ states[element]
        return [state for state in states if state is not None]

    def faults(self) -> list[str]:
        """Return what is wrong, exactly: empty if this is a head of its family that tracks the monoid."""
        sizes = {matrix.shape for matrix in self.matrices}
        if len(self.matrices) != len(self.monoid.letters) or sizes != {(self.dim, self.dim)}:
            return [f"matrices must be one ({self.dim}, {self.dim}) for each letter; got {sorted(sizes)}"]
        if self.basis.shape[1:] != (self.dim,) or rank(self.basis) != self.dim:
            return [f"basis must have {self.dim} independent columns; got the shape {self.basis.shape}"]
        wrong = [
            f"the matrix of {letter} is not {self.family}: {fault}"
            for letter, matrix in zip(self.monoid.letters, self.matrices, strict=True)
            if (fault := MEMBERS[self.family](matrix, self)) is not None
        ]
        states = self.states()
        for element, row in enumerate(self.monoid.after.tolist()):
            for letter, target in enumerate(row):
                if not np.array_equal(self.matrices[letter] @ states[element], states[target]):
                    name = self.monoid.letters[letter]
                    wrong.append(f"{name} takes the state of element {element} elsewhere than to that of {target}")
        if len({tuple(state) for state in states}) != len(states):
            wrong.append("two elements have one state")
        return wrong

    def floats(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return matrices ``(V, d, d)``, initial state, readout weights ``(S, d)`` and biases, in an orthonormal basis.

        There the matrices of orthogonal families are orthogonal, and the readout takes the nearest state.
        """
        if np.array_equal(self.form, np.eye(self.dim, dtype=int)):
            change: Floats = np.eye(self.dim)
        else:
            change = np.linalg.cholesky(self.form.astype(np.float64)).T
        back = np.linalg.inv(change)
        states = np.array([change @ state.astype(np.float64) for state in self.states()])
        matrices = np.array([change @ matrix.astype(np.float64) @ back for matrix in self.matrices])
        return matrices, states[0], 2 * states, -(states**2).sum(1)


def _rational(entries: Exact) -> list[Fraction] | None:
    """Return entries as fractions, which can be ordered; None if one is irrational."""
    out = []
    for entry in entries.flat:
        if isinstance(entry, RealCyclotomic):
            if len(entry.coefficients) > 1:
                return None
            entry = entry.coefficients[0] if entry.coefficients else 0
        out.append(Fraction(entry))
    return out


def _within(entries: Exact, lowest: int) -> str | None:
    values = _rational(entries)
    if values is None or any(not lowest <= value <= 1 for value in values):
        return f"its entries must lie in [{lowest}, 1]"
    return None


def _plain_basis(witness: Witness) -> str | None:
    same = np.array_equal(witness.basis, np.eye(witness.dim, dtype=int))
    return None if same else "its states must be written in their own coordinates"


def _diagonal(lowest: int) -> Callable[[Exact, Witness], str | None]:
    def fault(matrix: Exact, witness: Witness) -> str | None:
        if np.count_nonzero(matrix - np.diag(matrix.diagonal())):
            return "an entry beside the diagonal is not 0"
        return _within(matrix, lowest) or _plain_basis(witness)

    return fault


def _one_per_column(matrix: Exact, witness: Witness) -> str | None:
    if (np.count_nonzero(matrix, axis=0) > 1).any():
        return "a column has two entries"
    return _within(matrix, -1) or _plain_basis(witness)


def _stochastic(matrix: Exact, witness: Witness) -> str | None:
    if any(total != 1 for total in matrix.sum(0)):
        return "a column does not sum to 1"
    return _within(matrix, 0) or _plain_basis(witness)


def _orthogonal(matrix: Exact, witness: Witness) -> str | None:
    form = witness.form
    return None if np.array_equal(matrix.T @ form @ matrix, form) else "it changes lengths"


def _reflections(matrix: Exact, witness: Witness) -> str | None:
    moved = rank(matrix - np.eye(witness.dim, dtype=int))
    if witness.reflections is None or moved > witness.reflections:
        return f"it moves {moved} dimensions, and as many reflections are needed"
    return _orthogonal(matrix, witness)


def _no_half_turn(matrix: Exact, witness: Witness) -> str | None:
    if rank(matrix + np.eye(witness.dim, dtype=int)) < witness.dim:
        return "−1 is an eigenvalue"
    return _orthogonal(matrix, witness)


def _planes(matrix: Exact, witness: Witness) -> str | None:
    if witness.dim % 2:
        return "planes have an even dimension"
    block = np.kron(np.eye(witness.dim // 2, dtype=int), np.ones((2, 2), dtype=int))
    if np.count_nonzero(matrix * (1 - block)) or np.count_nonzero(witness.form * (1 - block)):
        return "it mixes planes"
    for at in range(0, witness.dim, 2):
        (a, b), (c, d) = matrix[at : at + 2, at : at + 2]
        if a * d - b * c != 1:
            return "it reflects a plane"
    return _orthogonal(matrix, witness)


# By family: what is wrong with a matrix of a witness, None if it belongs.
MEMBERS: Final[dict[str, Callable[[Exact, Witness], str | None]]] = {
    "diagonal": _diagonal(0),
    "signed diagonal": _diagonal(-1),
    "rotating planes": _planes,
    "permutation × diagonal": _one_per_column,
    "column-stochastic": _stochastic,
    "Householder": _reflections,
    "Cayley": _no_half_turn,
    "orthogonal": _orthogonal,
    "dense": lambda matrix, witness: None,
}
FAMILIES: Final = tuple(MEMBERS)


# The family of the house that holds the matrices of a witness; Householder's take any number of reflections there only
# if all letters have one determinant; exact stochastic ones start one-hot.
COMPILED: Final = {
    "diagonal": "dense",
    "signed diagonal": "signed_diagonal",
    "rotating planes": "exponential",
    "permutation × diagonal": "column_choice",
    "column-stochastic": "dense",
    "Householder": "orthogonal",
    "Cayley": "cayley",
    "orthogonal": "orthogonal",
    "dense": "dense",
}


def compiled(witness: Witness) -> RationalReadout:
    """Return the witness as a model in float64 whose largest logit is that of the element; tokens are its letters.

    States that are only moved are exact at every length; others drift with rounding, about 1e-16 a letter.
    """
    matrices, initial, weights, biases = witness.floats()
    step = 2 if witness.family == "rotating planes" else witness.dim
    parts = [slice(at, at + step) for at in range(0, witness.dim, step)]
    automata = [
        WeightedAutomaton(initial[at], matrices[:, at, at], initial[at], witness.monoid.letters, weights="float")
        for at in parts
    ]
    head = compile_head(automata, family=COMPILED[witness.family], dtype=torch.float64)
    model = RationalReadout(head, len(witness.monoid)).double()
    with torch.no_grad():
        model.readout.weight.copy_(torch.from_numpy(weights))
        model.readout.bias.copy_(torch.from_numpy(biases))
    return model.eval()


def witness_of(
    family: str,
    monoid: FiniteMonoid,
    matrices: Sequence[Exact],
    basis: Exact | None = None,
    reflections: int | None = None,
) -> Witness:
    """Return the witness with these matrices from an initial state that no two elements move to one place.

    It is sought on a curve (1, t, t², …), which leaves every subspace in which two elements agree for some t.
    """
    dim = len(matrices[0])
    basis = np.eye(dim, dtype=object) if basis is None else basis
    for t in itertools.count(1):
        initial = exact_matrix([Fraction(t) ** power for power in range(dim)])
        if family == "column-stochastic":
            initial = initial / sum(initial)
        witness = Witness(family, monoid, tuple(map(exact_matrix, matrices)), initial, basis, reflections)
        states = {tuple(state) for state in witness.states()}
        if len(states) == len(monoid) or t > len(monoid) ** 2 * dim:
            return witness
    raise AssertionError("the loop has no end but these")


def moving_points(family: str, monoid: FiniteMonoid) -> Witness:
    """Return the head that moves a weight on each point of the monoid as its letters move the points."""
    points = range(len(monoid.elements[0]))
    matrices = []
    for element in monoid.of_letter:
        matrix = np.zeros((len(points), len(points)), dtype=object)
        for point in points:
            matrix[monoid.elements[element][point], point] = 1
        matrices.append(matrix)
    return witness_of(family, monoid, matrices)


def moving_cosets(family: str, group: FiniteMonoid, actions: Sequence[CosetAction]) -> Witness:
    """Return the head that permutes cosets, with signs where the actions have them."""
    parts = [action.matrices(group.of_letter) for action in actions]
    matrices = [_side_by_side(blocks) for blocks in zip(*parts, strict=True)] if parts else _nothing(group)
    return witness_of(family, group, matrices)


def multiplying(family: str, monoid: FiniteMonoid) -> Witness | None:
    """Return the smallest diagonal head of a commutative monoid with entries 0, 1 (and −1); None if there is none."""
    values = (0, 1) if family == "diagonal" else (0, 1, -1)
    columns = list(_multiplicative(monoid, values))
    for size in range(1, len(monoid) + 1):
        for chosen in itertools.combinations(columns, size):
            if len(set(zip(*chosen, strict=True))) == len(monoid):
                letters = [[column[element] for column in chosen] for element in monoid.of_letter]
                matrices = [np.diag(np.array(row, dtype=object)) for row in letters]
                return witness_of(family, monoid, matrices)
    return None


def _multiplicative(monoid: FiniteMonoid, values: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the functions of the elements with such values that turn products into products."""
    for letters in itertools.product(values, repeat=len(monoid.letters)):
        column = [1] + [0] * (len(monoid) - 1)
        known = {0}
        for element, row in enumerate(monoid.after.tolist()):
            for letter, target in enumerate(row):
                if target not in known:
                    column[target] = column[element] * letters[letter]
                    known.add(target)
        steps = zip(column, monoid.after.tolist(), strict=True)
        if all(value * letters[i] == column[to] for value, row in steps for i, to in enumerate(row)):
            yield tuple(column)


def representing(
    family: str, table: Characters, summands: Sequence[RealIrreducible], reflections: int | None = None
) -> Witness:
    """Return the head whose matrices are a sum of irreducible representations, in planes where the family is such."""
    group = table.group
    parts = [realised(table, irreducible) for irreducible in summands]
    if family == "rotating planes":  # a sign turns a plane by half
        twice = [[_side_by_side([matrix, matrix]) for matrix in matrices] for matrices, _ in parts]
        bases = [_side_by_side([basis, basis]) for _, basis in parts]
        parts = [
            part if len(part[0][0]) == 2 else pair
            for part, pair in zip(parts, zip(twice, bases, strict=True), strict=True)
        ]
    if not parts:
        return witness_of(family, group, _nothing(group), reflections=reflections)
    matrices = [_side_by_side(blocks) for blocks in zip(*(part[0] for part in parts), strict=True)]
    return witness_of(family, group, matrices, _side_by_side([basis for _, basis in parts]), reflections)


def realised(table: Characters, irreducible: RealIrreducible) -> tuple[list[Exact], Exact]:
    """Return the matrices of the letters in an irreducible representation, and the basis in which they stand.

    It is the image of a projector in an action on cosets, with signs, that has this representation once.

    Raises:
        ValueError: If every such action has it several times or not at all.
    """
    group, classes = table.group, len(table.representatives)
    sizes = np.bincount(table.class_of).tolist()
    degree = irreducible.dim if irreducible.kind == "real" else irreducible.dim // 2
    share = Fraction(degree, len(group) * (2 if irreducible.kind == "quaternionic" else 1))
    character = [irreducible.character(c, table.exponent) * share for c in range(classes)]
    for action in sorted(coset_actions(group, signed=True), key=lambda each: each.degree):
        traces = [
            sum(sign for source, (target, sign) in enumerate(images) if source == target)
            for images in action.images(table.representatives)
        ]
        dims = sum(value * trace * size for value, trace, size in zip(character, traces, sizes, strict=True))
        if dims != irreducible.dim:
            continue
        sums = np.zeros((classes, action.degree, action.degree), dtype=object)
        for element, matrix in enumerate(action.matrices(range(len(group)))):
            sums[table.class_of[element]] += matrix
        projector = np.zeros((action.degree, action.degree), dtype=object)
        for value, part in zip(character, sums, strict=True):
            projector = projector + value * part
        basis = projector[:, list(echelon(projector)[1])]
        rows = list(echelon(basis.T)[1])  # coordinates are read off so many independent rows
        solved, _ = echelon(np.concatenate((basis[rows], np.eye(irreducible.dim, dtype=object)), 1))
        readoff = solved[:, irreducible.dim :]
        return [readoff @ (matrix @ basis)[rows] for matrix in action.matrices(group.of_letter)], basis
    raise ValueError(f"no action on cosets of {group.name} has this representation of dimension {irreducible.dim} once")


def _side_by_side(blocks: Sequence[Exact]) -> Exact:
    heights, widths = [len(block) for block in blocks], [block.shape[1] for block in blocks]
    out = np.zeros((sum(heights), sum(widths)), dtype=object)
    row = column = 0
    for block, height, width in zip(blocks, heights, widths, strict=True):
        out[row : row + height, column : column + width] = block
        row, column = row + height, column + width
    return out


def _nothing(group: FiniteMonoid) -> list[Exact]:
    """Return the matrices of one dimension that every letter leaves alone: enough for the trivial group."""
    return [np.ones((1, 1), dtype=object) for _ in group.letters]
