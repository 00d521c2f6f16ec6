"""Arithmetic formulas as products of integer 3 × 3 matrices."""

from __future__ import annotations

from random import Random

import pytest
import torch

from transductor import compile_model
from transductor.automata import rank
from transductor.automata.barrington import Variable
from transductor.automata.ben_or_cleve import (
    Addition,
    ArithmeticProgram,
    Constant,
    Negative,
    Operation,
    arithmetic_formula,
    arithmetic_program,
    evaluated,
)
from transductor.automata.logic.formula_text import FormulaError

NAMES = "uvwxyz"


def random_formula(random, depth):
    if depth == 0 or random.random() < 0.1:
        return Constant(random.randint(-9, 9)) if random.random() < 0.3 else Variable(random.choice(NAMES))
    if random.random() < 0.1:
        return Negative(random_formula(random, depth))
    return Operation(random.choice("+-*"), tuple(random_formula(random, depth - 1) for _ in range(2)))


def test_three_hundred_formulas_of_depth_four_are_right():
    random, longest = Random(0), 0
    for _ in range(300):
        formula = random_formula(random, 4)
        program = arithmetic_program(formula)
        assignment = {name: random.randint(-9, 9) for name in NAMES}
        wanted = evaluated(formula, assignment)
        automaton = program.automaton(assignment)
        assert program(assignment) == automaton(program.reading(assignment)) == wanted
        assert automaton.dim == program.width == 3
        assert len(program) <= 4**program.depth
        longest = max(longest, len(program))
    assert longest > 100


@pytest.mark.parametrize(
    "text", ["x", "7", "-x", "x - y - z", "x - y + z * 2", "-(x + y) * -3", "2 * (x - 1) * (y + x) * z"]
)
def test_text_means_what_python_says(text):
    values = {"x": 3, "y": -5, "z": 11}
    formula = arithmetic_formula(text)
    assert evaluated(formula, values) == arithmetic_program(text)(values) == eval(text, {}, values)
    assert evaluated(arithmetic_formula(str(formula)), values) == evaluated(formula, values)


def test_long_chains_are_balanced():
    assert arithmetic_program("*".join("x" * 16)).depth == 4
    assert arithmetic_program("-".join("x" * 16)).depth == 5
    assert len(arithmetic_program("+".join("x" * 1000))) == 1000
    assert arithmetic_program("-".join("x" * 6))({"x": 2}) == -8


def test_the_automaton_is_a_head_over_integers():
    program = arithmetic_program("(x + 2) * (y - 3) * x")
    assignments = [{"x": x, "y": y} for x in range(-3, 4) for y in range(-3, 4)]
    automaton = program.automaton(*assignments)
    assert rank(automaton) == 3
    model = compile_model(automaton, dtype=torch.float64)
    words = torch.tensor([automaton.indices(program.reading(each)) for each in assignments])
    assert model(words)[:, -1, 0].tolist() == [(a["x"] + 2) * (a["y"] - 3) * a["x"] for a in assignments]


def test_what_cannot_be_used_is_refused():
    program = arithmetic_program("x * y")
    for text in ("", "x +", "x y", "1.5", "x / y", "(x", "x!"):
        with pytest.raises(FormulaError):
            arithmetic_program(text)
    with pytest.raises(ValueError, match="value to 'y'"):
        program({"x": 1})
    for value in (1.5, True, "2"):
        with pytest.raises(ValueError, match="integer to 'x'"):
            program({"x": value, "y": 1})
    with pytest.raises(ValueError, match="limit allows 10"):
        arithmetic_program("x * y * z * u", limit=10)
    with pytest.raises(ValueError, match="at most 4"):
        ArithmeticProgram((Addition(1, 0, 1),) * 5, 1)
