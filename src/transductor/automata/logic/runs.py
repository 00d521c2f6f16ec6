"""Formulas that say what an automaton does: its run is guessed as sets of positions, and checked step by step.

States are numbered in binary.  Position x is in the set ``Bk`` where bit k of the state *after* x is one, so n states
need log₂ n sets and every choice of sets is at most one sequence of states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from transductor.automata.finite_algebra import shortest_word
from transductor.automata.finite_automata import DFA
from transductor.automata.language import Machine, language
from transductor.automata.logic.formula_tree import Not, Truth
from transductor.automata.logic.second_order_syntax import End, Formula, Joined, Letter, Member, Quantified, Successor
from transductor.automata.logic.weighted_syntax import Aggregated, Combined, Iverson, Weight, WeightedFormula
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.words import Symbol

_NONEMPTY = Quantified("exists", "x", Truth(True))


def as_mso(machine: Machine, *, limit: int = 20_000) -> str:
    """Return a sentence of monadic second-order logic that is true in exactly the words of a machine's language.

    ``mso(as_mso(machine), alphabet)`` is the language again.  The sentence says that sets of positions exist that are a
    run: the first letter leads from the start, each letter from the state before it, the last one to acceptance.  A
    language that is star-free also has a sentence without sets: see
    :func:`~transductor.automata.logic.first_order.as_first_order`.

    Args:
        machine: A DFA, an NFA, an automaton with truth values, or an exact series all of whose values are 0 and 1.
        limit: The most atoms of the sentence.
    """
    dfa = language(machine)
    names = letter_names(dfa.alphabet)
    if shortest_word(dfa) is None:
        return str(Truth(False))
    states = _useful(dfa)
    code = {state: number for number, state in enumerate(states)}
    bits = max(1, (len(states) - 1).bit_length()) if len(states) > 1 else 0
    steps: dict[int, dict[int, list[str]]] = {source: {} for source in states}
    table = dfa.transitions.tolist()
    for source in states:
        for name, target in zip(names, table[source], strict=True):
            if target in code:
                steps[source].setdefault(target, []).append(name)
    atoms = sum(bits + 2 + sum(bits + len(letters) for letters in to.values()) for to in steps.values())
    _check_size(atoms, limit, dfa.states)

    def leads(source: int, variable: str) -> Formula:
        """Say that the letter at a position leads from a state to the one that is guessed there."""
        return either(
            both(
                [
                    *([] if len(letters) == len(names) else [either(Letter(name, variable) for name in letters)]),
                    *_coded(variable, code[target], bits),
                ]
            )
            for target, letters in steps[source].items()
        )

    # One condition for each state: each is a small automaton, and so are their products.
    conditions = [_always("x", [End("first", "x")], leads(dfa.start, "x"))]
    for source in states:
        here = _coded("x", code[source], bits)
        conditions.append(_always("x", None, _always("y", [Successor("y", "x"), *here], leads(source, "y"))))
    accepts = either(both(_coded("x", code[state], bits)) for state in states if state in dfa.accepting)
    conditions.append(_always("x", [End("last", "x")], accepts))
    run = both(conditions)
    for number in reversed(range(bits)):
        run = Quantified("exists", f"B{number}", run)
    # In the empty word nothing is to be checked, so all of it is true there.
    return str(run if dfa.start in dfa.accepting else both([_NONEMPTY, run]))


def as_weighted_mso(automaton: WeightedAutomaton, *, limit: int = 20_000) -> str:
    """Return a sentence of restricted weighted logic whose values are those of an automaton over the rationals.

    ``weighted_mso(as_weighted_mso(automaton), alphabet)`` is the series again.  The sentence sums over all sequences of
    states and multiplies the weights of their steps.  Fewer states make a shorter sentence:
    :func:`~transductor.automata.reduction.minimised` first, where they are not the least.

    Args:
        automaton: An automaton with rational weights; other weights cannot be written in weighted logic.
        limit: The most atoms of the sentence.
    """
    if not isinstance(automaton, WeightedAutomaton):
        raise TypeError(f"automaton must be a WeightedAutomaton; got {type(automaton).__name__}")
    if automaton.weights.name != "rational":
        hint = ": automaton.over('rational') reads its numbers exactly" if automaton.weights.name == "float" else ""
        raise ValueError(
            f"automaton must have rational weights, the only ones of weighted logic; it has {automaton.weights.name} "
            f"weights{hint}"
        )
    names = letter_names(automaton.alphabet)
    dim, bits = automaton.dim, max(0, automaton.dim - 1).bit_length()
    matrices, initial = automaton.matrices.tolist(), automaton.initial.tolist()
    begins: dict[Fraction, list[Formula]] = {}
    steps: dict[Fraction, list[Formula]] = {}
    for name, matrix in zip(names, matrices, strict=True):
        for to in range(dim):
            here = [Letter(name, "x"), *_coded("x", to, bits)]
            first = sum((weight * start for weight, start in zip(matrix[to], initial, strict=True)), Fraction(0))
            begins.setdefault(first, []).append(both(here))
            for source in range(dim):
                step = both([*_coded("y", source, bits), *here])
                steps.setdefault(Fraction(matrix[to][source]), []).append(step)
    ends: dict[Fraction, list[Formula]] = {}
    for state, weight in enumerate(automaton.final):
        ends.setdefault(Fraction(weight), []).append(both(_coded("x", state, bits)))
    written = sum(len(cases) for weight, cases in steps.items() if weight)
    _check_size(written * (2 * bits + 1), limit, dim)

    def after(cases: Iterable[Formula]) -> Formula:
        return Quantified("exists", "y", both([Successor("x", "y"), either(cases)]))

    factor = _sum_of_cases(
        [
            *((weight, both([End("first", "x"), either(cases)])) for weight, cases in begins.items()),
            *((weight, after(cases)) for weight, cases in steps.items()),
        ]
    )
    last = _sum_of_cases(
        [
            (Fraction(1), Not(End("last", "x"))),
            *((weight, both([End("last", "x"), either(cases)])) for weight, cases in ends.items()),
        ]
    )
    runs: WeightedFormula = Aggregated("prod", "x", Combined("*", (factor, last)))
    for number in reversed(range(bits)):
        runs = Aggregated("sum", f"B{number}", runs)
    nothing = sum((end * start for end, start in zip(automaton.final, initial, strict=True)), Fraction(0))
    words = Combined("*", (Iverson(_NONEMPTY), runs))
    return str(words) if not nothing else f"{_sum_of_cases([(nothing, Not(_NONEMPTY))])} + {words}"


def letter_names(alphabet: Sequence[Symbol]) -> list[str]:
    """Return the letters as a formula names them; refuse those that it cannot name."""
    names = [str(letter) for letter in alphabet]
    times = Counter(names)
    for name in names:
        if times[name] > 1:
            raise ValueError(f"machine must have letters of distinct names; {name!r} comes twice")
        if not name or ("'" in name and '"' in name):
            raise ValueError(f"machine must have letters that can be quoted, so not with both quotes; got {name!r}")
    return names


def both(formulas: Iterable[Formula]) -> Formula:
    """Return what says that all of these are true."""
    return _joined("&", list(formulas), empty=True)


def either(formulas: Iterable[Formula]) -> Formula:
    """Return what says that one of these is true."""
    return _joined("|", list(formulas), empty=False)


def _joined(connective: str, formulas: list[Formula], *, empty: bool) -> Formula:
    flat = [
        part
        for formula in formulas
        for part in (
            formula.operands if isinstance(formula, Joined) and formula.connective == connective else (formula,)
        )
    ]
    formulas = [formula for formula in dict.fromkeys(flat) if formula != Truth(empty)]
    if Truth(not empty) in formulas:
        return Truth(not empty)
    if len(formulas) < 2:
        return formulas[0] if formulas else Truth(empty)
    return Joined(connective, tuple(formulas))


def _always(variable: str, condition: list[Formula] | None, conclusion: Formula) -> Formula:
    """Return what says that a conclusion holds at all positions where a condition does."""
    if conclusion == Truth(True):
        return conclusion
    body = conclusion if condition is None else Joined("->", (both(condition), conclusion))
    return Quantified("forall", variable, body)


def _coded(variable: str, number: int, bits: int) -> list[Formula]:
    """Return what says that the state after a position has this number."""
    members = [Member(variable, f"B{bit}") for bit in range(bits)]
    return [member if number >> bit & 1 else Not(member) for bit, member in enumerate(members)]


def _sum_of_cases(cases: Iterable[tuple[Fraction, Formula]]) -> WeightedFormula:
    """Return the weight of the case that is true, of which there is at most one; 0 where none is."""
    terms: list[WeightedFormula] = [
        Iverson(case) if weight == 1 else Combined("*", (Weight(weight), Iverson(case)))
        for weight, case in cases
        if weight and case != Truth(False)
    ]
    return Weight(Fraction(0)) if not terms else terms[0] if len(terms) == 1 else Combined("+", tuple(terms))


def _useful(dfa: DFA) -> list[int]:
    """Return the states on the way to acceptance; the machine is minimal, so words lead to all of them."""
    table, useful, before = dfa.transitions.tolist(), set(dfa.accepting), -1
    while len(useful) > before:
        before = len(useful)
        useful |= {source for source, row in enumerate(table) if not useful.isdisjoint(row)}
    return sorted(useful)


def _check_size(atoms: int, limit: int, states: int) -> None:
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be a positive integer; got {limit!r}")
    if atoms > limit:
        raise ValueError(
            f"machine of {states} states needs a sentence of about {atoms} atoms, more than limit = {limit}; raise "
            "limit, or write the automaton in a format for automata"
        )
