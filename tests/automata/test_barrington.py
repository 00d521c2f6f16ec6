"""Boolean formulas as products of permutations of five points."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np
import pytest

from transductor.automata.barrington import (
    CYCLE,
    IDENTITY,
    BooleanFormula,
    Gate,
    PermutationProgram,
    Variable,
    boolean_formula,
    evaluated,
    permutation_program,
)
from transductor.automata.logic.formula_text import FormulaError
from transductor.automata.logic.formula_tree import Not, Truth


def assignments(names: tuple[str, ...]) -> Iterator[dict[str, bool]]:
    for values in product((False, True), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def names_in(formula: BooleanFormula) -> set[str]:
    match formula:
        case Truth():
            return set()
        case Variable(name):
            return {name}
        case Not(operand):
            return names_in(operand)
        case Gate(_, operands):
            return set().union(*map(names_in, operands))


def random_formula(random: Random, names: list[str], leaves: int) -> BooleanFormula:
    if random.random() < 0.2:
        return Not(random_formula(random, names, leaves))
    if leaves == 1:
        return Truth(random.random() < 0.5) if random.random() < 0.1 else Variable(random.choice(names))
    split = random.randint(1, leaves - 1)
    parts = (random_formula(random, names, split), random_formula(random, names, leaves - split))
    return Gate(random.choice("&&&||^"), parts)


def products(program: PermutationProgram, table: dict[str, np.ndarray]) -> np.ndarray:
    """The products for a whole table of assignments: ``[assignment, point]``."""
    rows = len(next(iter(table.values())))
    points = np.tile(np.arange(5), (rows, 1))
    for step in program.instructions:
        moved = np.array(step.if_true)[points]
        if step.variable is not None:
            moved = np.where(table[step.variable][:, None], moved, np.array(step.if_false)[points])
        points = moved
    return points


@pytest.mark.parametrize("seed", range(60))
def test_random_formulas_are_right_on_every_assignment(seed):
    random = Random(seed)
    names = [f"x{i}" for i in range(random.randint(1, 10))]
    formula = random_formula(random, names, leaves=random.randint(1, 11))
    program = permutation_program(formula, limit=4**10)
    rows = list(assignments(tuple(names)))
    truth = np.array([evaluated(formula, row) for row in rows])
    table = {name: np.array([row[name] for row in rows]) for name in names}
    assert len(program) <= 4**program.depth
    assert np.array_equal(products(program, table), np.where(truth[:, None], CYCLE, IDENTITY))
    automaton = program.automaton()
    for row in random.sample(rows, min(4, len(rows))):
        assert program(row) is automaton(program.reading(row)) is evaluated(formula, row)


@pytest.mark.parametrize(
    "text",
    [
        "x & y", "x | y", "x ^ y", "!x", "!!x", "!(x & y)", "x & !x", "x ^ x", "x & y & z & w & v", "x | y | z | w",
        "x ^ y ^ z", "(x & y) | (!x & z)", "x & (y | (z & (w | (v & u))))", "!(x | !(y & !(z | !w)))",
        "x & 1", "x & 0", "x | 1", "0 | x", "x ^ 1", "1 ^ 1 ^ x", "true & !false & x", "x1 & (x2 | !x3) ^ 1",
    ],
)  # fmt: skip
def test_programs_and_their_automata_agree_with_the_formula(text):
    formula = boolean_formula(text)
    program = permutation_program(text)
    automaton = program.automaton()
    assert automaton.states == 5
    for assignment in assignments(tuple(sorted(names_in(formula)))):
        expected = evaluated(formula, assignment)
        assert program(assignment) is expected
        assert automaton(program.reading(assignment)) is expected
        assert len(program.reading(assignment)) == len(program) <= 4**program.depth


@pytest.mark.parametrize(
    ("text", "value", "length"),
    [("0", False, 0), ("1", True, 1), ("!1", False, 0), ("1 & !0", True, 1), ("x & 0", False, 0), ("x | 1", True, 1)],
)
def test_constant_formulas_fold_away(text, value, length):
    program = permutation_program(text)
    assert (program({}), len(program), program.variables) == (value, length, ())
    assert program.automaton()(program.reading({})) is value


def test_a_variable_is_one_instruction():
    program = permutation_program("x")
    assert len(program) == 1
    assert program.product({"x": True}) == CYCLE
    assert program.reading({"x": True}) == ("12340",)
    assert program.reading({"x": False}) == ("01234",)


def test_a_chain_is_balanced_before_it_is_compiled():
    program = permutation_program(" & ".join(f"x{i}" for i in range(64)))
    assert (program.depth, len(program)) == (6, 4**6)
    everything = {f"x{i}": True for i in range(64)}
    assert program(everything)
    assert not program(everything | {"x17": False})


def test_a_nested_chain_costs_twice_per_level():
    text = "x0"
    for level in range(1, 10):
        text = f"x{level} {'&|'[level % 2]} ({text})"
    program = permutation_program(text)
    assert program.depth == 9
    assert len(program) < 2**11
    random = Random(0)
    for _ in range(40):
        assignment = {f"x{i}": random.random() < 0.5 for i in range(10)}
        assert program(assignment) is evaluated(boolean_formula(text), assignment)


def test_precedence_is_not_and_xor_or():
    assert boolean_formula("!a & b ^ c | d") == boolean_formula("(((!a) & b) ^ c) | d")
    assert boolean_formula("a | b ^ c & !d") == boolean_formula("a | (b ^ (c & (!d)))")


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected a variable"),
        ("x &", 3, "found the end"),
        ("x & & y", 4, "found '&'"),
        ("(x | y", 6, r"expected '\)' for the '\(' at position 0"),
        ("x y", 2, "expected the end of the formula"),
        ("x & 2", 4, "constants are 0 and 1"),
        ("x + y", 2, "unknown sign"),
        ("'x'", 0, "expected a variable"),
        ("x)", 1, "expected the end"),
        ("!" * 100 + "x", 65, "nested 64 levels"),
        ("(" * 100 + "x" + ")" * 100, 65, "nested 64 levels"),
    ],
)
def test_bad_text_is_refused_with_its_position(text, position, reason):
    with pytest.raises(FormulaError, match=reason) as caught:
        boolean_formula(text)
    assert caught.value.position == position


def test_bad_arguments_are_refused_by_name():
    program = permutation_program("x & y")
    with pytest.raises(ValueError, match="assignment must give a value to 'y'"):
        program({"x": True})
    with pytest.raises(ValueError, match="assignment must give True or False to 'y'"):
        program({"x": True, "y": 2})
    with pytest.raises(ValueError, match="formula needs 65536 instructions at depth 8; limit allows 1000"):
        permutation_program("^".join(f"x{i}" for i in range(16)), limit=1000)
    with pytest.raises(ValueError, match="connective must be one of"):
        Gate("+", (Variable("x"), Variable("y")))
    with pytest.raises(ValueError, match="operands must be at least two"):
        Gate("&", (Variable("x"),))
    with pytest.raises(ValueError, match="at most 4"):
        PermutationProgram(program.instructions, depth=0)
    with pytest.raises(TypeError, match="a formula must be text"):
        boolean_formula(3)
