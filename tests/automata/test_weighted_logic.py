"""Restricted weighted logic against its definition, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from tests.automata.logic_by_definition import value, words_up_to
from transductor.automata.logic.formula_text import FormulaError
from transductor.automata.logic.formula_tree import Not, Truth, is_set_variable
from transductor.automata.logic.second_order_syntax import (
    Compared,
    End,
    Formula,
    Joined,
    Letter,
    Member,
    Quantified,
)
from transductor.automata.logic.weighted import weighted_mso
from transductor.automata.logic.weighted_syntax import (
    Aggregated,
    Combined,
    Iverson,
    OutsideFragment,
    Weight,
    WeightedFormula,
    weighted_formula,
)
from transductor.automata.weighted import WeightedAutomaton

COUNT_A = "sum x. [a(x)]"
POWER_OF_A = "prod x. 2 * [a(x)] + [!a(x)]"
PAIRS = "sum x, y. [x < y & a(x) & b(y)]"
BINARY = "sum x. [b(x)] * prod y. 2 * [y > x] + [y <= x]"
SENTENCES = [
    "0",
    "2",
    "-3/4 + 0.25",
    "2 * 3 + 1",
    "2 * (3 + 1)",
    "[true]",
    "[exists x. a(x)]",
    "[forall x. a(x)] * 3 + [exists x. b(x)] * -1",
    COUNT_A,
    POWER_OF_A,
    PAIRS,
    BINARY,
    "sum x. 1",
    "sum x. 1/2",
    "sum x, y. 1",
    "sum X. 1",
    "sum X. [forall x. x in X -> a(x)]",
    "sum X. prod x. [x in X] * 2 + [!(x in X)]",
    "sum X, Y. [X sub Y]",
    "sum X. (sum x. [x in X]) * -1",
    "prod x. 0",
    "prod x. 1/2",
    "prod x. [a(x)]",
    "prod x. 1 + [a(x)] + [first(x)] * 3",
    "prod x. 1 + 2 * [exists y. y > x & a(y)]",
    "prod x. ([a(x)] + 2) * ([last(x)] + 3) * 1/6",
    "(sum x. [a(x)]) * (sum x. [b(x)])",
    "(sum x. [a(x)]) * (sum x. [b(x)]) + -1 * sum x, y. [a(x) & b(y)]",
    "(prod x. 2) * (prod x. 1/2)",
    "sum x. [a(x)] * (sum y. [y < x & b(y)]) * (prod z. 1 + [z > x])",
    "sum x. sum x. [a(x)]",
    "sum x. prod x. 1 + [a(x)]",
    "sum x, y. [y = x + 1] * ([a(x)] + -1 * [b(y)])",
    "prod x. 3 * [exists X. x in X & forall y. y in X -> a(y)] + [b(x)] * -1",
    "sum a. [a(a)]",
]


def agrees(formula: WeightedFormula, automaton: WeightedAutomaton, length: int) -> None:
    for word in words_up_to(length):
        given = automaton(word)
        assert isinstance(given, Fraction)
        assert given == value(formula, word, {}), f"{formula} on {word}"


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences_mean_what_the_definition_says(text):
    formula = weighted_formula(text)
    assert weighted_formula(str(formula)) == formula
    automaton = weighted_mso(text, "ab")
    assert automaton.alphabet == ("a", "b")
    agrees(formula, automaton, length=5)


@pytest.mark.parametrize("seed", range(40))
def test_random_sentences_mean_what_the_definition_says(seed):
    formula = random_weighted(Random(seed), depth=3, scope=())
    assert weighted_formula(str(formula)) == formula
    agrees(formula, weighted_mso(formula, "ab"), length=4)


def test_known_series_have_their_known_dimension():
    dims = {text: weighted_mso(text, "ab").dim for text in (COUNT_A, POWER_OF_A, PAIRS, BINARY, "0", "2")}
    assert dims == {COUNT_A: 2, POWER_OF_A: 1, PAIRS: 3, BINARY: 2, "0": 0, "2": 1}


def test_values_far_beyond_floats_are_exact():
    assert weighted_mso(COUNT_A, "ab")("ab" * 50) == 50
    assert weighted_mso(POWER_OF_A, "ab")("ab" * 100) == 2**100
    assert weighted_mso(PAIRS, "ab")("a" * 30 + "b" * 20) == 600
    number = 0b1011001110001111
    spelled = "".join("ab"[int(bit)] for bit in f"{number:b}" * 8)
    assert weighted_mso(BINARY, "ab")(spelled) == int(f"{number:b}" * 8, 2)
    assert weighted_mso("prod x. 0.1", "ab")("a" * 30) == Fraction(1, 10**30)


def test_symbols_need_not_be_text():
    assert weighted_mso("sum x. [1(x)] * prod y. 1 + [y > x]", (0, 1))((1, 0, 1, 1)) == 11


def test_equal_series_are_equal_automata():
    swapped = "sum y. [b(y)] * sum x. [x < y & a(x)]"
    assert weighted_mso(PAIRS, "ab") == weighted_mso(swapped, "ab")
    assert weighted_mso("sum X. 1", "ab") == weighted_mso("prod x. 2", "ab")


@pytest.mark.parametrize(
    ("text", "culprit", "reason"),
    [
        ("prod x. prod y. 2", "prod x. prod y. 2", "'prod y. 2' is not"),
        ("prod x. prod y. 1", "prod x. prod y. 1", "'prod y. 1' is not"),
        ("prod x. sum y. [y <= x]", "prod x. sum y. [y <= x]", "'sum y. .y <= x.' is not"),
        ("1 + sum z. [a(z)] * prod x. 2 * sum y. 1", "prod x. 2 * (sum y. 1)", "'sum y. 1' is not"),
        ("prod X. 2", "prod X. 2", "a product over sets"),
        ("3 * prod X, Y. [X sub Y]", "prod X. prod Y. [X sub Y]", "a product over sets"),
        ("!sum x. [a(x)]", "!(sum x. [a(x)])", "only a Boolean formula may be negated"),
        ("2 * !3", "!3", "only a Boolean formula may be negated"),
    ],
)
def test_formulas_outside_the_fragment_are_refused_by_name(text, culprit, reason):
    with pytest.raises(OutsideFragment, match=reason) as caught:
        weighted_mso(text, "ab")
    assert caught.value.subformula == culprit
    assert culprit in str(caught.value)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected a weight"),
        ("2 +", 3, "found the end"),
        ("sum x. a(x)", 7, r"a Boolean formula stands in brackets: \[a\(x\)\]"),
        ("sum x. [a(x)", 12, "expected ']' for the '\\[' at position 7"),
        ("(2", 2, r"expected '\)'"),
        ("1/0", 2, "divided by 0"),
        ("1/x", 2, "expected a number"),
        ("2 - 1", 2, "expected the end of the formula"),
        ("sum x. [sum y. 1]", 8, "is a word of the language|expected a variable"),
        ("[a(x)]", 1, "'x' is free"),
        ("(sum x. 1) * [first(x)]", 14, "'x' is free"),
        ("sum x. [c(x)]", 8, "names the letter 'c'"),
        ("(" * 70 + "1" + ")" * 70, 65, "nested 64 levels"),
    ],
)
def test_bad_formulas_are_refused_with_their_position(text, position, reason):
    with pytest.raises(FormulaError, match=reason) as caught:
        weighted_mso(text, "ab")
    assert caught.value.position == position


def test_bad_values_and_growth_are_refused():
    with pytest.raises(FormulaError, match="connective must be one of"):
        Combined("-", (Weight(Fraction(1)), Weight(Fraction(2))))
    with pytest.raises(FormulaError, match="quantifier must be one of"):
        Aggregated("max", "x", Weight(Fraction(1)))
    with pytest.raises(ValueError, match="dim_limit = 3 states is too small for the subformula"):
        weighted_mso("(sum x, y. [x < y & a(x)]) * (sum x, y. [x < y & b(x)])", "ab", dim_limit=3)
    with pytest.raises(ValueError, match="limit = 1 states is too small for the subformula"):
        weighted_mso("sum x. [exists y. y < x & a(y)]", "ab", limit=1)


def random_weighted(random: Random, depth: int, scope: tuple[str, ...]) -> WeightedFormula:
    shape = random.choice(["sum", "sum", "prod", "+", "*"]) if depth else "step"
    if shape == "step":
        return random_step(random, 1, scope)
    if shape in ("+", "*"):
        return Combined(shape, tuple(random_weighted(random, depth - 1, scope) for _ in range(2)))
    variable = random.choice("xyz" if shape == "prod" else "xyzX")
    inner = (*scope, variable)
    body = random_step(random, 2, inner) if shape == "prod" else random_weighted(random, depth - 1, inner)
    return Aggregated(shape, variable, body)


def random_step(random: Random, depth: int, scope: tuple[str, ...]) -> WeightedFormula:
    if depth == 0:
        if random.random() < 0.4:
            return Weight(Fraction(random.randint(-3, 3), random.randint(1, 3)))
        return Iverson(random_condition(random, scope))
    return Combined(random.choice("+*"), tuple(random_step(random, depth - 1, scope) for _ in range(2)))


def random_condition(random: Random, scope: tuple[str, ...]) -> Formula:
    positions = [name for name in scope if not is_set_variable(name)]
    if not positions:
        return Quantified(random.choice(["exists", "forall"]), "x", random_condition(random, (*scope, "x")))
    x, y = random.choice(positions), random.choice(positions)
    choices: list[Formula] = [
        Letter(random.choice("ab"), x),
        End(random.choice(["first", "last"]), x),
        Compared(x, random.choice(["=", "<", ">="]), y),
        Quantified("exists", "w", Joined("&", (Compared("w", "<", x), Letter("a", "w")))),
        Truth(True),
        *(Member(x, name) for name in scope if is_set_variable(name)),
    ]
    chosen = random.choice(choices)
    return Not(chosen) if random.random() < 0.3 else chosen
