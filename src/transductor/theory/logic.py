"""Weighted logic and heads: the fragment in which they are the same, in both directions, and what lies outside."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from transductor.automata import OutsideFragment, WeightedAutomaton, equivalent, machine, weighted_mso
from transductor.automata.modular import rank_of_matrix
from transductor.compilation import positive_part
from transductor.theory.evidence import Checks, at_least, generic
from transductor.theory.statements import StatementCertificate, statement

_SQUARES = "prod x. prod y. 2"


def _formulas() -> dict[str, tuple[str, WeightedAutomaton]]:
    """Return formulas of the restricted fragment, and automata with their series that were written by other means."""
    ones = WeightedAutomaton([1], {"a": [[2]], "b": [[2]]}, [1])
    return {
        "#a − #b": ("(sum x. [a(x)]) + -1 * (sum x. [b(x)])", machine("balance").automaton),
        "2^n": ("prod x. 2", ones),
        "the value of a numeral": (
            "sum x. [1(x)] * prod y. ([y <= x] + 2 * [x < y])",
            machine("base_value:2").automaton,
        ),
        "how often aba occurs": (
            "sum x. [a(x) & exists y. (y = x + 1 & b(y) & exists z. (z = y + 1 & a(z)))]",
            machine("occurrences:aba").automaton,
        ),
    }


def formula_of(automaton: WeightedAutomaton) -> str:
    """Return a sentence of the restricted fragment for an automaton of two states over letters that are names.

    ``sum X`` runs over all paths: a position is in X where the path is in state 1 after its letter.  The product over
    positions has a step function, because a weight depends on the letter and on two bits.
    """
    if automaton.dim != 2:
        raise ValueError(f"automaton must have two states, one set of positions; it has {automaton.dim}")
    here = {1: "x in X", 0: "!(x in X)"}
    before = {state: f"exists y. (x = y + 1 & {'' if state else '!'}(y in X))" for state in (0, 1)}
    terms = []
    for letter, matrix in zip(automaton.alphabet, automaton.matrices, strict=True):
        for to in (0, 1):
            entering = matrix[to] @ automaton.initial
            terms.append(f"{_text(entering)} * [{letter}(x) & {here[to]} & first(x)]")
            terms += [
                f"{_text(matrix[to, source])} * [{letter}(x) & {here[to]} & {before[source]}]" for source in (0, 1)
            ]
    last = {1: "exists x. (last(x) & x in X)", 0: "exists x. (last(x) & !(x in X))"}
    ends = " + ".join(f"{_text(automaton.final[state])} * [{last[state]}]" for state in (0, 1))
    empty = f"{_text(automaton.final @ automaton.initial)} * [!(exists x. true)]"
    return f"sum X. ((prod x. ({' + '.join(terms)})) * ({ends})) + {empty}"


def _text(weight: Any) -> str:
    return str(Fraction(weight))


def _squares(length: int) -> int:
    """Return 2^(n²), what ``prod x. prod y. 2`` means on a word of length n."""
    value = 1
    for _ in range(length):
        for _ in range(length):
            value *= 2
    return value


def _refusal(formula: str) -> str:
    """Return the subformula for which a formula is refused; nothing if it is compiled."""
    try:
        weighted_mso(formula, "ab")
    except OutsideFragment as error:
        return error.subformula
    return ""


@statement("Logical Characterization via Weighted MSO", 11)
def logical_characterization_via_weighted_mso(block: int = 8, machines: int = 1, seed: int = 0) -> StatementCertificate:
    """Compile formulas to automata and automata to formulas, exactly, and measure two functions beyond both.

    ``prod x. prod y. 2`` is a formula and no head; max(0, #a − #b) is hard attention over a linear head and no formula.
    The Hankel rank of either grows with the block.
    """
    at_least("block", block, 1)
    checks = Checks()
    for name, (formula, automaton) in _formulas().items():
        same = equivalent(weighted_mso(formula, automaton.alphabet), automaton)
        checks.true(f"the formula of {name} has another value at {same.word}", same.equal)
    for number in range(machines):
        automaton = WeightedAutomaton(
            generic(seed + number, 2, 1)[:, 0],
            generic(seed + number, 2, 2, 2),
            generic(seed + number, 2, 3)[:, 0],
            "ab",
        )
        same = equivalent(weighted_mso(formula_of(automaton), "ab"), automaton)
        checks.true(f"the formula of random machine {number} has another value at {same.word}", same.equal)
    checks.equal("the subformula that is refused", _refusal(_SQUARES), _SQUARES)
    squares = np.array([[_squares(i + j) for j in range(block)] for i in range(block)], dtype=object)
    attention = positive_part()
    maxima = np.array(
        [[attention.values("a" * i + "b" * j)[-1] for j in range(block)] for i in range(block)], dtype=object
    )
    ranks = {"2^(n²)": rank_of_matrix(squares), "max(0, #a − #b)": rank_of_matrix(maxima)}
    checks.equal("rank of 2^(n²)", ranks["2^(n²)"], block)
    checks.equal("rank of max(0, #a − #b)", ranks["max(0, #a − #b)"], block - 1)
    return StatementCertificate(
        "Logical Characterization via Weighted MSO",
        (11,),
        f"Formulas of the restricted fragment ({len(_formulas())} tried) are heads, and random machines of two states "
        f"({machines} tried) are its formulas, exactly; 2^(n²) is a formula and no head, max(0, #a − #b) is hard "
        "attention over a linear head and no formula of the fragment",
        "=",
        block - 1,
        checks.unless_failed(ranks["max(0, #a − #b)"]),
        checks.witness(
            f"positive_part().values('aaab')[-1] is {attention.values('aaab')[-1]}; ranks of blocks of {block} rows: "
            f"{ranks}"
        ),
        "false as written",
        "Full weighted MSO is stronger than automata (∀x∀y.2 grows as 2^(n²)), and hard attention over unbounded "
        "scores is stronger than linear heads. Repaired: a series is definable in the restricted fragment, where a "
        "product over positions has a step function and none runs over sets, if and only if a head computes it "
        "(Droste and Gastin).",
        measurements={"ranks": ranks, "block": block},
    )
