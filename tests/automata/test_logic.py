"""Logic over words against its definition, and against MONA where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from random import Random

import pytest

from tests.automata.logic_by_definition import holds, words_up_to
from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA
from transductor.automata.logic.formula_text import FormulaError
from transductor.automata.logic.formula_tree import Not, Truth, free_variables, is_set_variable
from transductor.automata.logic.second_order import mso
from transductor.automata.logic.second_order_syntax import (
    Compared,
    End,
    Formula,
    Joined,
    Letter,
    Member,
    Quantified,
    Subset,
    Successor,
    logic_formula,
)

EVEN_LENGTH = (
    "exists X. forall x. (first(x) -> x in X) & (last(x) -> !(x in X)) & forall y. y = x + 1 -> (y in X <-> !(x in X))"
)
EVEN_A = (
    "exists X. (forall x. first(x) -> (x in X <-> a(x))) & (forall x. last(x) -> !(x in X)) "
    "& forall x, y. y = x + 1 -> (y in X <-> (x in X <-> b(y)))"
)
SENTENCES = [
    "true",
    "false",
    "!true",
    "exists x. true",
    "forall x. false",
    "forall x. true",
    "exists x. false",
    "exists X. true",
    "forall X. false",
    "exists x. a(x)",
    "forall x. a(x)",
    "exists x. a(x) & forall y. (y < x -> b(y))",
    "exists x. first(x) & a(x)",
    "exists x. last(x) & b(x)",
    "exists x, y. x < y & a(x) & b(y)",
    "exists x, y. y = x + 1 & a(x) & b(y)",
    "forall x, y. y = x + 1 -> (a(x) <-> b(y))",
    "forall x. a(x) -> exists y. y > x & b(y)",
    "exists x. first(x) & last(x)",
    "forall x. first(x) -> last(x)",
    "exists x. x = x + 1",
    "exists x. x < x",
    "forall x. x = x & x <= x & !(x != x) & x >= x",
    "exists x, y, z. x < y & y < z & a(x) & b(y) & a(z)",
    "exists x, y. x != y & a(x) & a(y)",
    "forall x, y. a(x) & a(y) -> x = y",
    "exists x. (a(x) & exists x. b(x))",
    "exists x. exists x. first(x) & b(x)",
    EVEN_LENGTH,
    EVEN_A,
    "exists X. forall x. x in X <-> a(x)",
    "forall X. exists x. x in X",
    "forall X. (exists x. x in X) -> exists y. y in X & forall z. z in X -> y <= z",
    "exists X, Y. X sub Y & exists x. x in Y & !(x in X) & a(x)",
    "forall X, Y. X sub Y -> forall x. x in X -> x in Y",
    "forall X, Y. X sub Y | Y sub X",
    "exists X. X sub X & forall Y. X sub Y",
    "exists X. (exists x. first(x) & x in X) & (forall x, y. x in X & y = x + 1 -> y in X) & forall x. x in X -> a(x)",
    "(exists x. a(x)) <-> (exists x. b(x))",
    "(exists x. a(x)) -> (exists x. b(x)) -> (exists x. x = x)",
    "((exists x. a(x)) -> (exists x. b(x))) -> false",
    "(exists x. a(x)) <-> (exists x. b(x)) <-> (forall x. a(x))",
    "!exists x. a(x) | b(x)",
    "exists x, y. x = y & a(x) & !b(y)",
    "exists x, y. x <= y & b(x) & a(y) & !(x = y)",
    "forall x. exists y. x = y + 1 | first(x)",
    "exists x. !(exists y. y < x) & (forall z. z >= x) & a(x)",
    "forall X. (forall x. first(x) -> x in X) & (forall x, y. x in X & y = x + 1 -> y in X) -> forall x. x in X",
]


def agrees(formula: Formula, dfa: DFA, length: int) -> None:
    for word in words_up_to(length):
        assert dfa(word) is holds(formula, word, {}), f"{formula} on {word}"


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences_mean_what_the_definition_says(text):
    formula = logic_formula(text)
    dfa = mso(text, "ab")
    assert dfa.alphabet == ("a", "b")
    assert minimised(dfa).states == dfa.states
    agrees(formula, dfa, length=5)


@pytest.mark.parametrize("seed", range(60))
def test_random_sentences_mean_what_the_definition_says(seed):
    formula = random_sentence(Random(seed), depth=4)
    assert logic_formula(str(formula)) == formula
    agrees(formula, mso(formula, "ab"), length=4)


@pytest.mark.parametrize("text", SENTENCES)
def test_writing_and_reading_give_the_same_formula(text):
    formula = logic_formula(text)
    assert logic_formula(str(formula)) == formula


def test_known_automata_have_their_known_sizes():
    assert mso(EVEN_LENGTH, "ab").states == 2
    parity = mso(EVEN_A, "ab")
    assert parity.states == 2
    assert [parity(word) for word in ("", "a", "ab", "aba", "bbb")] == [True, False, False, True, True]


def test_letters_are_named_by_their_text_and_quoted_where_needed():
    dfa = mso("""exists x, y. y = x + 1 & '#'(x) & 10(y) & !"it's"(x)""", ("#", 10, "it's"))
    assert dfa(("it's", "#", 10))
    assert not dfa((10, "#"))
    formula = Letter("it's", "x")
    assert logic_formula(str(formula)) == formula
    reserved = Letter("first", "x")
    assert str(reserved) == "'first'(x)"
    assert logic_formula("'first'(x)") == reserved


def test_precedence_and_scope():
    assert logic_formula("!true & false | true -> false <-> true") == logic_formula(
        "((((!true) & false) | true) -> false) <-> true"
    )
    assert logic_formula("exists x. a(x) & b(x)") == logic_formula("exists x. (a(x) & b(x))")
    assert str(logic_formula("(exists x. a(x)) & (b(y) & c(z))")) == "(exists x. a(x)) & (b(y) & c(z))"
    assert free_variables(logic_formula("x < y & exists x. x in X")) == {"x": 0, "y": 0, "X": 18}


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected a formula, found the end"),
        ("exists x. a(x) &", 16, "expected a formula, found the end"),
        ("exists . a(x)", 7, "expected a variable after 'exists'"),
        ("exists in. true", 7, "expected a variable after 'exists', found 'in'"),
        ("exists x a(x)", 9, "expected '.' behind the variables of 'exists'"),
        ("exists x, . a(x)", 10, "expected a variable after ','"),
        ("exists x. a(x) b(x)", 15, "expected the end of the formula"),
        ("exists x. (a(x)", 15, r"expected '\)' for the '\(' at position 10"),
        ("exists x. a(X)", 12, "expected a variable for a position"),
        ("exists x, y. x in y", 18, "expected a variable for a set"),
        ("exists X. X < X", 12, "expected 'sub' after the set X"),
        ("exists x. x", 11, "expected 'in' or one of"),
        ("exists x. x = x + 2", 16, "only x = x . 1 may add"),
        ("exists x. x < x + 1", 16, "may add"),
        ("exists x. sum(x)", 10, "is a word of the language"),
        ("exists x. c(x)", 10, "names the letter 'c'; alphabet has 'a', 'b'"),
        ("a(x)", 0, "'x' is free"),
        ("exists x. a(x) & b(y)", 17, "'y' is free"),
        ("(exists X. true) & exists x. x in X", 29, "'X' is free"),
        ("exists x. a(x) ; b(x)", 15, "unknown sign ';'"),
        ("exists x. 'a(x)", 10, "unknown sign"),
        ("!" * 70 + "true", 65, "nested 64 levels"),
        ("exists " + ", ".join(["x"] * 70) + ". true", 217, "nested 64 levels"),
    ],
)
def test_bad_formulas_are_refused_with_their_position(text, position, reason):
    with pytest.raises(FormulaError, match=reason) as caught:
        mso(text, "ab")
    assert caught.value.position == position


def test_bad_values_are_refused_by_argument():
    with pytest.raises(FormulaError, match="relation must be one of"):
        Compared("x", "==", "y")
    with pytest.raises(FormulaError, match="variable must be a variable for a position"):
        Letter("a", "X")
    with pytest.raises(FormulaError, match="container must be a variable for a set"):
        Member("x", "y")
    with pytest.raises(FormulaError, match="quantifier must be one of"):
        Quantified("some", "x", Truth(True))
    with pytest.raises(FormulaError, match="variable must be a name that is not reserved"):
        Quantified("exists", "true", Truth(True))
    with pytest.raises(FormulaError, match="'x' is free") as caught:
        mso(Letter("a", "x"), "ab")
    assert caught.value.position is None
    with pytest.raises(ValueError, match="alphabet must have symbols of distinct names; '1' comes twice"):
        mso("true", (1, "1"))


def test_growth_is_refused_past_the_limit_and_names_the_subformula():
    letters_before_the_end = "exists x0. a(x0) & exists x1. x1 = x0 + 1"
    for i in range(2, 8):
        letters_before_the_end += f" & exists x{i}. x{i} = x{i - 1} + 1"
    text = letters_before_the_end + " & last(x7)"
    assert mso(text, "ab").states == 2**8
    with pytest.raises(ValueError, match="limit = 100 states is too small for the subformula exists x0"):
        mso(text, "ab", limit=100)
    with pytest.raises(ValueError, match="limit = 5 states is too small for the subformula"):
        mso("(exists x, y. x < y & a(x) & b(y)) & (exists x, y. x < y & b(x) & a(y))", "ab", limit=5)


def test_too_many_variables_at_once_are_refused():
    names = [f"x{i}" for i in range(16)]
    text = f"exists {', '.join(names)}. {' & '.join(f'a({name})' for name in names)}"
    with pytest.raises(ValueError, match=r"at most 12 variables may be free at once, not x0, .*, x9 in exists x13"):
        mso(text, "ab")


def test_an_empty_alphabet_has_the_empty_word_alone():
    assert mso("forall x. false", "")(())
    assert not mso("exists x. true", "")(())


@pytest.mark.skipif(shutil.which("mona") is None, reason="MONA is not installed")
@pytest.mark.parametrize("text", SENTENCES[9:])
def test_mona_proves_formula_and_automaton_equal(text, tmp_path):
    source = tmp_path / "question.mona"
    source.write_text(mona_question(logic_formula(text), mso(text, "ab")))
    answer = subprocess.run(["mona", "-q", str(source)], capture_output=True, text=True, timeout=60, check=False)
    assert "Formula is valid" in answer.stdout, answer.stdout + answer.stderr


@pytest.mark.skipif(shutil.which("mona") is None, reason="MONA is not installed")
def test_mona_finds_a_wrong_automaton(tmp_path):
    source = tmp_path / "question.mona"
    source.write_text(mona_question(logic_formula("exists x. a(x)"), mso("forall x. a(x)", "ab")))
    answer = subprocess.run(["mona", "-q", str(source)], capture_output=True, text=True, timeout=60, check=False)
    assert "counter-example" in answer.stdout


def mona_question(formula: Formula, dfa: DFA) -> str:
    """Whether, on every word, the formula is true exactly when the automaton has an accepting run.

    ``Word`` is the set of a word's positions and ``IsA`` that of the letter ``a``.
    """
    runs = [f"Run{state}" for state in range(dfa.states)]
    exclusive = [f"~(x in {p} & x in {q})" for i, p in enumerate(runs) for q in runs[:i]]
    somewhere = "(" + " | ".join(f"x in {run}" for run in runs) + ")"
    steps, first_steps, accepted = [], [], []
    for state, row in enumerate(dfa.transitions.tolist()):
        for letter, target in zip(("in", "notin"), row, strict=True):
            here = f"x {letter} IsA"
            steps.append(f"(x in {runs[state]} & x + 1 in Word & x + 1 {letter} IsA => x + 1 in {runs[target]})")
            if state == dfa.start:
                first_steps.append(f"(x = 0 & {here} => x in {runs[target]})")
    accepted = [f"x in {runs[state]}" for state in sorted(dfa.accepting)] or ["false"]
    run = " & ".join([*exclusive, somewhere, *steps, *first_steps, f"(x + 1 notin Word => {' | '.join(accepted)})"])
    empty = "true" if dfa.start in dfa.accepting else "false"
    accepts = f"((Word = empty & {empty}) | (Word ~= empty & (ex2 {', '.join(runs)}: all1 x: x in Word => ({run}))))"
    return (
        "ws1s;\nvar2 Word, IsA;\n"
        f"((all1 p: all1 q: q in Word & p < q => p in Word) & IsA sub Word) => ({in_mona(formula)} <=> {accepts});\n"
    )


def in_mona(formula: Formula) -> str:
    match formula:
        case Truth(value):
            return "true" if value else "false"
        case Letter(letter, x):
            return f"v{x} {'in' if letter == 'a' else 'notin'} IsA"
        case End("first", x):
            return f"v{x} = 0"
        case End(_, x):
            return f"v{x} + 1 notin Word"
        case Compared(x, relation, y):
            return f"v{x} {relation.replace('!=', '~=')} v{y}"
        case Successor(later, earlier):
            return f"v{later} = v{earlier} + 1"
        case Member(x, container):
            return f"v{x} in v{container}"
        case Subset(inner, outer):
            return f"v{inner} sub v{outer}"
        case Not(operand):
            return f"~({in_mona(operand)})"
        case Joined("->", operands):
            text = in_mona(operands[-1])
            for operand in reversed(operands[:-1]):
                text = f"(({in_mona(operand)}) => ({text}))"
            return text
        case Joined(connective, operands):
            text = in_mona(operands[0])
            for operand in operands[1:]:
                text = f"(({text}) {connective.replace('<->', '<=>')} ({in_mona(operand)}))"
            return text
        case Quantified(quantifier, variable, body):
            order, inside = (2, "sub") if is_set_variable(variable) else (1, "in")
            kind, then = ("ex", "&") if quantifier == "exists" else ("all", "=>")
            return f"({kind}{order} v{variable}: v{variable} {inside} Word {then} ({in_mona(body)}))"


def random_sentence(random: Random, depth: int) -> Formula:
    scope: tuple[str, ...] = ()

    def grown(depth: int, scope: tuple[str, ...]) -> Formula:
        if depth == 0:
            return atom(scope)
        shape = random.choice(["quantified", "quantified", "joined", "not"]) if scope else "quantified"
        if shape == "not":
            return Not(grown(depth - 1, scope))
        if shape == "joined":
            connective = random.choice(["&", "|", "->", "<->"])
            count = random.choice([2, 2, 3])
            return Joined(connective, tuple(grown(depth - 1, scope) for _ in range(count)))
        variable = random.choice("xyzXY")
        return Quantified(random.choice(["exists", "forall"]), variable, grown(depth - 1, (*scope, variable)))

    def atom(scope: tuple[str, ...]) -> Formula:
        positions = [name for name in scope if not is_set_variable(name)]
        sets = [name for name in scope if is_set_variable(name)]
        choices: list[Formula] = [Truth(random.random() < 0.5)]
        if positions:
            x, y = random.choice(positions), random.choice(positions)
            choices += [Letter(random.choice("ab"), x)] * 3
            choices += [End(random.choice(["first", "last"]), x), Successor(x, y)]
            choices += [Compared(x, random.choice(["=", "!=", "<", "<=", ">", ">="]), y)] * 2
            choices += [Member(x, name) for name in sets]
        if len(sets) > 1:
            choices += [Subset(*random.sample(sets, 2))]
        return random.choice(choices)

    return grown(depth, scope)
