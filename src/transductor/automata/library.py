"""Named machines, each with the law it must obey.

A law is a Python function of the complete word that uses no states: the machine is right when both agree on every word.

One-sided Dyck-1 is not here: it is neither the support nor the zero set of a real weighted automaton.  What
counting can do is :func:`balance` (#a − #b) and, inside a*b*, :func:`a_n_b_n`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np

from transductor.automata.algebra import difference, hadamard_product, sum_of
from transductor.automata.boolean import from_dfa
from transductor.automata.decomposition.permutation_groups import Permutation, composed
from transductor.automata.finite_automata import DFA
from transductor.automata.graphs import explored
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.words import Symbol

Law = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class NamedMachine:
    """A machine and its law.

    Attributes:
        name: The name that :func:`machine` takes, parameters included.
        automaton: The machine as a series.
        law: Gives the weight that a word must have.
        summary: One line that says what the machine computes.
        dfa: The states and letters, where it is a finite machine.
    """

    name: str
    automaton: WeightedAutomaton
    law: Law
    summary: str
    dfa: DFA | None = None


def _finite(name: str, dfa: DFA, law: Law, summary: str, values: Sequence[int] | None = None) -> NamedMachine:
    """Return a finite machine; a word has the value of the state that it leads to, by default whether it accepts."""
    automaton = from_dfa(dfa, "rational")
    if values is not None:
        automaton = WeightedAutomaton(automaton.initial, automaton.matrices, list(values), dfa.alphabet)
    return NamedMachine(name, automaton, law, summary, dfa)


def _count(word: Sequence[Any], letter: Symbol) -> int:
    return sum(1 for each in word if each == letter)


def parity() -> NamedMachine:
    """Return the machine that tells whether the number of ones is odd."""
    dfa = DFA(("0", "1"), np.array([[0, 1], [1, 0]]), 0, frozenset({1}))
    return _finite("parity", dfa, lambda word: _count(word, "1") % 2, "the number of 1s is odd")


def counter(modulus: int = 5) -> NamedMachine:
    """Return the machine that counts the ones modulo k."""
    table = np.array([[state, (state + 1) % modulus] for state in range(modulus)])
    dfa = DFA(("0", "1"), table, 0, frozenset({0}))
    law: Law = lambda word: _count(word, "1") % modulus  # noqa: E731
    return _finite(f"counter:{modulus}", dfa, law, f"the number of 1s modulo {modulus}", range(modulus))


def base_value(base: int = 2) -> NamedMachine:
    """Return the machine of the value of a numeral, most significant digit first."""
    digits = tuple("0123456789abcdefghijklmnopqrstuvwxyz"[:base])
    matrices = [[[1, 0], [digit, base]] for digit in range(base)]
    automaton = WeightedAutomaton([1, 0], matrices, [0, 1], digits)
    law: Law = lambda word: int("".join(word), base) if word else 0  # noqa: E731
    return NamedMachine(f"base_value:{base}", automaton, law, f"the value of a numeral in base {base}")


def adder(base: int = 2) -> NamedMachine:
    """Return the machine of the carry of an addition, over pairs of digits, least significant first."""
    pairs = tuple((left, right) for left in range(base) for right in range(base))
    table = np.array([[int(sum(pair) + carry >= base) for pair in pairs] for carry in range(2)])

    def law(word: Sequence[Any]) -> int:
        total = sum((left + right) * base**place for place, (left, right) in enumerate(word))
        return int(total // base ** len(word))

    dfa = DFA(pairs, table, 0, frozenset({1}))
    return _finite(f"adder:{base}", dfa, law, f"the carry of an addition in base {base}, last digit first")


def rotation(period: int = 6) -> NamedMachine:
    """Return the machine of cos(2π n / period), a position as sinusoidal and rotary embeddings encode it."""
    angle = 2 * math.pi / period
    turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    automaton = WeightedAutomaton([1, 0], [turn], [1, 0], ("a",), weights="float")
    law: Law = lambda word: math.cos(angle * len(word))  # noqa: E731
    return NamedMachine(f"rotation:{period}", automaton, law, f"cos(2πn/{period}): a rotary position")


def positions(frequencies: int = 2) -> NamedMachine:
    """Return the machine of positions in several frequencies: the sum of cos(nθ), with every θ turned exactly.

    The state is (cos nθ, sin nθ) for each θ.  Half of θ has the tangent 1/2, 1/8, 1/32, …, so cosine
    and sine are fractions (3/5 and 4/5 at first), nothing is rounded, and no position ever comes again.
    """
    turns = [_exact_turn(2 * 4**number) for number in range(frequencies)]
    matrix = np.zeros((2 * frequencies, 2 * frequencies), dtype=object)
    for place, (cosine, sine) in enumerate(turns):
        matrix[2 * place : 2 * place + 2, 2 * place : 2 * place + 2] = [[cosine, -sine], [sine, cosine]]
    first = [1, 0] * frequencies
    law: Law = lambda word: sum(_cosine_of_multiple(cosine, len(word)) for cosine, _ in turns)  # noqa: E731
    automaton = WeightedAutomaton(first, [matrix], first, "a")
    return NamedMachine(f"positions:{frequencies}", automaton, law, f"Σ cos(nθ) for {frequencies} exact angles θ")


def _exact_turn(inverse_tangent: int) -> tuple[Fraction, Fraction]:
    """Return cosine and sine of twice the angle whose tangent is 1 over this number."""
    square = inverse_tangent**2
    return Fraction(square - 1, square + 1), Fraction(2 * inverse_tangent, square + 1)


def _cosine_of_multiple(cosine: Fraction, times: int) -> Fraction:
    """Return cos(nθ) from cos θ by cos((m + 1)θ) = 2 cos θ cos(mθ) − cos((m − 1)θ)."""
    before, now = cosine, Fraction(1)
    for _ in range(times):
        before, now = now, 2 * cosine * now - before
    return now


def flip_flop() -> NamedMachine:
    """Return the machine of the bit last written: set (s), reset (r), or left alone (i)."""
    dfa = DFA(("s", "r", "i"), np.array([[1, 0, 0], [1, 0, 1]]), 0, frozenset({1}))

    def law(word: Sequence[Any]) -> int:
        return int(next((letter for letter in reversed(word) if letter != "i"), "r") == "s")

    return _finite("flip_flop", dfa, law, "the bit last written by s (set) or r (reset)")


def balance() -> NamedMachine:
    """Return the machine of #a − #b, the height of brackets: zero exactly where there are as many."""
    matrices = {"a": [[1, 0], [1, 1]], "b": [[1, 0], [-1, 1]]}
    law: Law = lambda word: _count(word, "a") - _count(word, "b")  # noqa: E731
    return NamedMachine("balance", WeightedAutomaton([1, 0], matrices, [0, 1]), law, "the number of a minus that of b")


def a_n_b_n() -> NamedMachine:
    """Return the machine of (#a − #b)² + [not in a*b*], which is zero exactly on aⁿbⁿ."""
    height = balance().automaton
    outside = from_dfa(DFA(("a", "b"), np.array([[0, 1], [2, 1], [2, 2]]), 0, frozenset({2})), "rational")

    def law(word: Sequence[Any]) -> int:
        outside_ab = re.fullmatch("a*b*", "".join(word)) is None
        return (_count(word, "a") - _count(word, "b")) ** 2 + outside_ab

    automaton = sum_of(hadamard_product(height, height), outside)
    return NamedMachine("a_n_b_n", automaton, law, "(#a − #b)² + [not in a*b*]: zero exactly on aⁿbⁿ")


def palindrome_distance() -> NamedMachine:
    """Return the machine of the value in base 3 minus that of the reverse: zero exactly on palindromes over {a, b}."""
    forward = WeightedAutomaton([1, 0], {"a": [[1, 0], [1, 3]], "b": [[1, 0], [2, 3]]}, [0, 1])
    backward = WeightedAutomaton([0, 1], {"a": [[1, 1], [0, 3]], "b": [[1, 2], [0, 3]]}, [1, 0])

    def law(word: Sequence[Any]) -> int:
        digits = ["ab".index(letter) + 1 for letter in word]
        value = [reduce(lambda total, digit: 3 * total + digit, each, 0) for each in (digits, digits[::-1])]
        return value[0] - value[1]

    automaton = difference(forward, backward)
    return NamedMachine("palindrome_distance", automaton, law, "zero exactly on palindromes over a and b")


def occurrences(factor: str = "aba", alphabet: str = "ab") -> NamedMachine:
    """Return the machine that counts how often a factor occurs, overlaps included, as n-gram models do."""
    dim = len(factor) + 1
    matrices = np.zeros((len(alphabet), dim, dim), dtype=int)
    matrices[:, 0, 0] = matrices[:, -1, -1] = 1
    for place, letter in enumerate(factor):
        matrices[alphabet.index(letter), place + 1, place] += 1
    eye = np.eye(dim, dtype=int)
    law: Law = lambda word: sum(tuple(word[i : i + dim - 1]) == tuple(factor) for i in range(len(word)))  # noqa: E731
    automaton = WeightedAutomaton(eye[0], matrices, eye[-1], alphabet)
    return NamedMachine(f"occurrences:{factor}", automaton, law, f"how often {factor!r} occurs")


def bigram() -> NamedMachine:
    """Return a bigram model over a and b: the probability of a word, each letter given the one before."""
    first = {"a": Fraction(1, 2), "b": Fraction(1, 4)}
    after = {"a": {"a": Fraction(1, 4), "b": Fraction(1, 2)}, "b": {"a": Fraction(2, 3), "b": Fraction(1, 6)}}
    matrices = np.zeros((2, 3, 3), dtype=object)
    for to, letter in enumerate("ab"):
        matrices[to, to + 1, 0] = first[letter]
        for source, before in enumerate("ab"):
            matrices[to, to + 1, source + 1] = after[before][letter]
    stops = [Fraction(1) - sum(row.values()) for row in (first, after["a"], after["b"])]

    def law(word: Sequence[Any]) -> Fraction:
        if not word:
            return stops[0]
        steps = [after[before][letter] for before, letter in pairwise(word)]
        return math.prod(steps, start=first[word[0]]) * stops["ab".index(word[-1]) + 1]

    automaton = WeightedAutomaton([1, 0, 0], matrices, stops, "ab")
    return NamedMachine("bigram", automaton, law, "the probability of a word in a bigram model")


def tomita(number: int = 1) -> NamedMachine:
    """Return one of Tomita's seven languages over 0 and 1."""
    if number not in _TOMITA:
        raise ValueError(f"number must be one of 1 to 7; got {number!r}")
    table, accepting, law, summary = _TOMITA[number]
    dfa = DFA(("0", "1"), np.array(table), 0, frozenset(accepting))
    return _finite(f"tomita:{number}", dfa, lambda word: int(law("".join(word))), summary)


def _no_odd_ones_then_odd_zeros(word: str) -> bool:
    runs = [(letter, len(list(run))) for letter, run in groupby(word)]
    return not any(a == "1" and b == "0" and m % 2 and n % 2 for (a, m), (b, n) in pairwise(runs))


_TOMITA: Final[dict[int, tuple[list[list[int]], set[int], Callable[[str], bool], str]]] = {
    1: ([[1, 0], [1, 1]], {0}, lambda w: "0" not in w, "only 1s"),
    2: ([[2, 1], [0, 2], [2, 2]], {0}, lambda w: w == "10" * (len(w) // 2), "(10)*"),
    3: (
        [[0, 1], [2, 0], [3, 4], [2, 1], [4, 4]], {0, 1, 3},
        _no_odd_ones_then_odd_zeros, "no odd run of 1s followed at once by an odd run of 0s",
    ),
    4: ([[1, 0], [2, 0], [3, 0], [3, 3]], {0, 1, 2}, lambda w: "000" not in w, "no 000"),
    5: (
        [[1, 2], [0, 3], [3, 0], [2, 1]], {0},
        lambda w: w.count("0") % 2 == 0 and w.count("1") % 2 == 0, "even numbers of 0s and of 1s",
    ),
    6: (
        [[1, 2], [2, 0], [0, 1]], {0},
        lambda w: (w.count("0") - w.count("1")) % 3 == 0, "#0 − #1 is a multiple of 3",
    ),
    7: (
        [[0, 1], [2, 1], [2, 3], [4, 3], [4, 4]], {0, 1, 2, 3},
        lambda w: re.fullmatch("0*1*0*1*", w) is not None, "0*1*0*1*",
    ),
}  # fmt: skip


def cyclic(order: int = 5) -> NamedMachine:
    """Return the machine of the words in a generator (a) and its inverse (A) that are the identity of Z_n."""
    turn = tuple((i + 1) % order for i in range(order))
    back = tuple((i - 1) % order for i in range(order))
    return _word_problem(f"cyclic:{order}", {"a": turn, "A": back}, f"the word problem of Z_{order}")


def symmetric(degree: int = 3) -> NamedMachine:
    """Return the machine of the words in a transposition (s) and the full cycle (c) that are the identity of S_n."""
    swap = (1, 0, *range(2, degree))
    cycle = (*range(1, degree), 0)
    return _word_problem(f"symmetric:{degree}", {"s": swap, "c": cycle}, f"the word problem of S_{degree}")


def alternating(degree: int = 4) -> NamedMachine:
    """Return the machine of the words in two even cycles (x, y) that are the identity of A_n."""
    three = (1, 2, 0, *range(3, degree))
    rest = (*range(1, degree), 0) if degree % 2 else (0, *range(2, degree), 1)
    return _word_problem(f"alternating:{degree}", {"x": three, "y": rest}, f"the word problem of A_{degree}")


def _word_problem(name: str, generators: dict[str, Permutation], summary: str) -> NamedMachine:
    """Return a machine with one state per element of the group that the generators generate; the identity accepts."""
    identity: Permutation = tuple(range(len(next(iter(generators.values())))))
    _, rows = explored([identity], lambda element: (composed(element, generator) for generator in generators.values()))

    def law(word: Sequence[Any]) -> int:
        points = list(identity)
        for letter in word:
            points = [generators[letter][point] for point in points]
        return int(points == list(identity))

    dfa = DFA(tuple(generators), np.array(rows), 0, frozenset({0}))
    return _finite(name, dfa, law, summary)


LIBRARY: Final[dict[str, Callable[..., NamedMachine]]] = {
    build.__name__: build
    for build in (
        parity, counter, base_value, adder, rotation, positions, flip_flop, balance, a_n_b_n, palindrome_distance,
        occurrences, bigram, tomita, cyclic, symmetric, alternating,
    )
}  # fmt: skip


def machine(name: str) -> NamedMachine:
    """Return a machine by its name, with a parameter after a colon: ``"parity"``, ``"counter:7"``."""
    kind, _, parameter = name.partition(":")
    if kind not in LIBRARY:
        raise ValueError(f"name must begin with one of {', '.join(LIBRARY)}; got {name!r}")
    if not parameter:
        return LIBRARY[kind]()
    if kind == "occurrences":
        return occurrences(parameter, "".join(sorted(set(parameter) | {"a", "b"})))
    if kind in ("parity", "flip_flop", "balance", "a_n_b_n", "palindrome_distance", "bigram"):
        raise ValueError(f"{kind} has no parameter; got {name!r}")
    bounds = {"base_value": (2, 36), "adder": (2, 36), "positions": (1, 8), "symmetric": (2, 6), "alternating": (3, 6)}
    lowest, highest = bounds.get(kind, (1, 1000))
    if not parameter.isascii() or not parameter.isdigit() or not lowest <= int(parameter) <= highest:
        raise ValueError(f"{kind} must have an integer from {lowest} to {highest} after the colon; got {name!r}")
    return LIBRARY[kind](int(parameter))


def machines() -> tuple[NamedMachine, ...]:
    """Return one or more machines of every kind, small enough to be tried on all words.

    All but the exact positions, whose fractions grow with the length.
    """
    chosen = [name for name in LIBRARY if name not in ("tomita", "positions")]
    chosen += [f"tomita:{number}" for number in range(1, 8)]
    chosen += ["counter:2", "counter:6", "base_value:3", "adder:3", "cyclic:6", "symmetric:4", "alternating:5"]
    return tuple(machine(name) for name in chosen)
