"""Evidence that the proof checker of ``proofs/`` computes with: an inductive invariant, in integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.ball_arithmetic import Array
from transductor.certification.subjects import Subject

# Formats that the checker knows, by the dtype of an array: bits of the fraction, and of the exponent.
FORMATS: Final = {"float32": (23, 8), "float64": (52, 11)}
_MOST_NUMBERS: Final = 2_000_000  # of all nodes, or of all products, together: a larger file takes minutes to read

Vector = tuple[int, ...]
Matrix = tuple[Vector, ...]  # by columns


@dataclass(frozen=True)
class Node:
    """A state of the head in units of a power of two, beside those of machine and domain; −1 where a word ends."""

    state: Vector
    machine: int
    domain: int
    targets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Products:
    """All products of letters by their columns, the identity first, and where each further letter leads."""

    largest: int
    matrices: tuple[Matrix, ...]
    targets: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Invariant:
    """Where words of the domain lead, and why the scan that leads there never rounds.

    Attributes:
        reason: ``"rows"``, ``"columns"`` or all products of letters.
        state_unit: Exponent of the unit of the states.
        weight_unit: Exponent of the unit of the weights; that of the logits is the sum of both.
        start: The initial state.
        first: The node after each word of one letter.
        nodes: The nodes after words of at least one letter.
    """

    reason: str | Products
    state_unit: int
    weight_unit: int
    start: Vector
    first: tuple[int, ...]
    nodes: tuple[Node, ...]


def unit_of(values: Array) -> int | None:
    """Return the exponent of the largest power of two that divides all values; None where all are zero."""
    units = []
    for value in values.reshape(-1).tolist():
        if value:
            top, bottom = float(value).as_integer_ratio()
            units.append((top & -top).bit_length() - bottom.bit_length())
    return min(units, default=None)


def in_units(value: float, unit: int) -> int:
    """Return a value as an integer number of units ``2^unit``, which must divide it."""
    top, bottom = float(value).as_integer_ratio()
    scaled = top << max(0, -unit)
    whole = bottom << max(0, unit)
    assert scaled % whole == 0
    return scaled // whole


def integer_table(subject: Subject) -> list[list[dict[int, int]]]:
    """Return the columns of every matrix, each as its entries that are not zero; a ValueError for other numbers."""
    if (subject.table != np.rint(subject.table)).any():
        letter, row, column = np.argwhere(subject.table != np.rint(subject.table))[0].tolist()
        entry = subject.table[letter, row, column]
        raise ValueError(
            f"the head is not exact: entry ({row}, {column}) of the matrix of letter {letter} is {entry!s}, no integer"
        )
    columns: list[list[dict[int, int]]] = [[{} for _ in range(subject.dim)] for _ in range(subject.letters)]
    for letter, row, column in np.argwhere(subject.table != 0).tolist():
        columns[letter][column][row] = int(subject.table[letter, row, column])
    return columns


def applied(columns: Sequence[dict[int, int]], state: Vector) -> Vector:
    """Return a matrix times a vector."""
    out = [0] * len(state)
    for column, value in zip(columns, state, strict=True):
        if value:
            for row, entry in column.items():
                out[row] += entry * value
    return tuple(out)


def rocq_invariant(subject: Subject, machine: MooreMachine, domain: MooreMachine) -> Invariant:
    """Follow every word of the domain from the initial state.

    Raises:
        ValueError: If the scan may round, or if there are too many states; the message says which.
    """
    table = integer_table(subject)
    state_unit = unit_of(subject.initial) or 0
    start = tuple(in_units(value, state_unit) for value in subject.initial.tolist())
    reason = _reason(subject, table, start, state_unit)
    weight, bias = subject.readout()
    units = [
        None if unit is None else unit - less for unit, less in ((unit_of(weight), 0), (unit_of(bias), state_unit))
    ]
    weight_unit = min((unit for unit in units if unit is not None), default=0)
    first, nodes = _followed(table, start, machine, domain)
    return Invariant(reason, state_unit, weight_unit, start, first, nodes)


def _reason(subject: Subject, table: list[list[dict[int, int]]], start: Vector, unit: int) -> str | Products:
    """Return why no sum of the scan is rounded, in whatever order it is taken."""
    fraction, exponent = FORMATS[subject.table.dtype.name]
    entries, bits, top = np.abs(subject.table), fraction + 1, 2 ** (exponent - 1)
    if (entries.sum(2) <= 1).all():
        return "rows"
    size = sum(map(abs, start))
    if (entries.sum(1) <= 1).all() and size <= 2**bits and size < 2 ** max(0, top - unit):
        return "columns"
    products = _products(table, subject.dim)
    most = subject.dim * products.largest**2 * max(1, size)
    if most > 2**bits or unit + bits >= top:
        raise ValueError(
            f"the head may round: sums of its integers reach {most} units of 2^{unit}, and the format has {bits} bits"
        )
    return products


def _products(table: list[list[dict[int, int]]], dim: int) -> Products:
    """Return all products of letters; a ValueError where there are too many."""
    identity = tuple(tuple(int(row == column) for row in range(dim)) for column in range(dim))
    numbers, matrices, targets = {identity: 0}, [identity], []
    for matrix in matrices:
        row = []
        for columns in table:
            after = tuple(applied(columns, column) for column in matrix)
            if after not in numbers:
                numbers[after] = len(matrices)
                matrices.append(after)
            row.append(numbers[after])
        targets.append(tuple(row))
        if len(matrices) * dim**2 > _MOST_NUMBERS:
            raise ValueError("the head may round: its matrices have too many products, or infinitely many")
    largest = max(abs(entry) for matrix in matrices for column in matrix for entry in column)
    return Products(largest, tuple(matrices), tuple(targets))


def _followed(
    table: list[list[dict[int, int]]], start: Vector, machine: MooreMachine, domain: MooreMachine
) -> tuple[tuple[int, ...], tuple[Node, ...]]:
    """Return where the first letters lead, and all nodes after at least one letter, breadth-first."""
    numbers: dict[Node, int] = {}
    nodes: list[Node] = []

    def targets_of(node: Node) -> tuple[int, ...]:
        row = []
        for letter, columns in enumerate(table):
            inside = int(domain.transitions[node.domain, letter])
            if domain.outputs[inside] != 1:
                row.append(-1)
                continue
            after = Node(applied(columns, node.state), int(machine.transitions[node.machine, letter]), inside)
            if after not in numbers:
                numbers[after] = len(nodes)
                nodes.append(after)
                if len(nodes) * len(start) > _MOST_NUMBERS:
                    raise ValueError(
                        f"head, machine and domain have more than {_MOST_NUMBERS // len(start)} states together"
                    )
            row.append(numbers[after])
        return tuple(row)

    first = targets_of(Node(start, int(machine.start), int(domain.start)))
    rows = [targets_of(node) for node in nodes]
    return first, tuple(Node(node.state, node.machine, node.domain, row) for node, row in zip(nodes, rows, strict=True))


def closed_domain(domain: MooreMachine | None, letters: int) -> MooreMachine:
    """Return the states of a domain that words reach; a ValueError where a word comes back into it.

    None, no domain, becomes the machine that has every word in it.
    """
    if domain is None:
        return MooreMachine(np.zeros((1, letters), dtype=np.int64), np.ones(1, dtype=np.int64))
    # The empty word has no label, so it counts as inside: a start that words may come back to outside gets a twin.
    transitions = np.concatenate((domain.transitions[domain.start : domain.start + 1] + 1, domain.transitions + 1))
    outputs = np.concatenate(([1], domain.outputs))
    order, numbers = [0], {0: 0}
    for state in order:
        for target in transitions[state].tolist():
            if target not in numbers:
                numbers[target] = len(order)
                order.append(target)
            if outputs[state] != 1 and outputs[target] == 1:
                raise ValueError(
                    f"domain must be closed under prefixes; words of it pass state {state - 1}, which is outside"
                )
    return MooreMachine(
        np.array([[numbers[target] for target in transitions[state].tolist()] for state in order]), outputs[order]
    )


def undecided(subject: Subject, machine: MooreMachine, invariant: Invariant) -> str | None:
    """Return why the checker would refuse a label, None where it accepts them all: its inequalities, in integers."""
    weight, bias = subject.readout()
    fraction, exponent = FORMATS[subject.precision]
    bits, top, dim = fraction + 1, 2 ** (exponent - 1), subject.output_dim
    least = 2 - top  # half the smallest subnormal number, times 2^bits, as a power of two
    unit, room = invariant.state_unit + invariant.weight_unit, 2**bits - (dim + 2)
    if room <= 0 or invariant.state_unit > top - 1 or unit > top - 1:
        return "its numbers leave the range of its format"
    rows = [
        ({k: in_units(w, invariant.weight_unit) for k, w in enumerate(row) if w}, in_units(offset, unit))
        for row, offset in zip(weight.tolist(), bias.tolist(), strict=True)
    ]
    lost = [
        _at_least(2 * dim + 1, least - unit) + _at_least(sum(map(abs, row.values())), least - invariant.state_unit)
        for row, _ in rows
    ]
    for read, label in _readings(subject, machine, invariant):
        terms = [[offset, *(w * read[k] for k, w in row.items())] for row, offset in rows]
        exact, absolute = [sum(each) for each in terms], [sum(map(abs, each)) for each in terms]
        error = [(dim + 2) * size + more for size, more in zip(absolute, lost, strict=True)]
        fits = all(size * 2**bits + more <= room << (top - 1 - unit) for size, more in zip(absolute, lost, strict=True))
        numbers = [float(value * Fraction(2) ** invariant.state_unit) for value in read]
        where = f"where the head shows {numbers}"
        if not fits or max(map(abs, read)) > 1 << (top - 1 - invariant.state_unit):
            return f"its logits may leave the range of the format {where}"
        if len(rows) == 1:  # compared with zero, which has no error and stands for label 0
            exact, error = [0, *exact], [0, *error]
        for rival in range(len(exact)):
            if rival != label and error[label] + error[rival] >= (exact[label] - exact[rival]) * room:
                return f"label {label} is not ahead of label {rival} by more than rounding can change, {where}"
    return None


def _readings(subject: Subject, machine: MooreMachine, invariant: Invariant) -> Iterator[tuple[Vector, int]]:
    """Yield what the readout reads, with the label that it must show, wherever there is one."""
    sources = [(invariant.start, invariant.first), *((node.state, node.targets) for node in invariant.nodes)]
    labels = [int(machine.outputs[node.machine]) for node in invariant.nodes]
    if not subject.lookback:
        yield from ((node.state, label) for node, label in zip(invariant.nodes, labels, strict=True) if label >= 0)
        return
    for before, targets in sources:
        for target in targets:
            if target >= 0 and labels[target] >= 0:
                yield invariant.nodes[target].state + before, labels[target]


def _at_least(value: int, shift: int) -> int:
    return value << shift if shift >= 0 else (value >> -shift) + 1
