"""A Krohn–Rhodes cascade as a stack, and a Barrington program as a model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tests.compilation.compilation_cases import (
    all_words,
    margin_on_all_words,
    random_dfa,
    random_words,
    smallest_margin,
)
from transductor.automata import NFA, MooreMachine, machine
from transductor.automata.barrington import boolean_formula, evaluated, permutation_program
from transductor.automata.decomposition.krohn_rhodes import decomposed
from transductor.compilation import CannotCompile, compile_cascade, compile_program, program_tokens
from transductor.model import StackedTransductor, load, save
from transductor.tasks import FlipFlop

NAMES = ["parity", "counter:6", "adder", "flip_flop", "symmetric:3", *(f"tomita:{number}" for number in range(1, 8))]
# All maps of three points: two levels, S3 above Z2.
FULL = MooreMachine(np.array([[1, 1, 0], [0, 2, 1], [2, 0, 0]]), np.arange(3))


def assert_stacked(model, finite, levels=None):
    assert isinstance(model, StackedTransductor)
    assert levels is None or len(model.heads) == levels
    tokens = all_words(finite.letters, 6561)
    with torch.no_grad():
        assert smallest_margin(model(tokens), finite.labels(tokens)) > 7.9
    assert margin_on_all_words(model, finite) > 7.9


@pytest.mark.parametrize("name", NAMES)
def test_a_stack_is_its_machine_on_every_word(name):
    dfa = machine(name).dfa
    assert_stacked(compile_cascade(dfa), MooreMachine.from_dfa(dfa), len(decomposed(dfa).levels))


@pytest.mark.parametrize("seed", range(10))
def test_a_stack_of_a_random_machine_is_right(seed):
    dfa = random_dfa(seed, states=5, letters=3)
    assert_stacked(compile_cascade(dfa, dtype=[torch.float32, torch.float64][seed % 2]), MooreMachine.from_dfa(dfa))


def test_levels_below_are_driven_by_the_stream():
    model = compile_cascade(FULL)
    assert_stacked(model, FULL, 2)
    above, below = model.heads
    assert (above.transitions.vocab_size, below.transitions.vocab_size) == (3, None)
    assert (below.transitions.name, below.transitions.temperature) == ("stochastic", 0.0)


def test_labels_and_languages_are_kept():
    assert_stacked(compile_cascade(FlipFlop().automaton()), FlipFlop().automaton())
    ends = NFA("ab", 3, {(0, "a", 0), (0, "b", 0), (0, "a", 1), (1, "b", 2)}, {0}, {2})
    tokens = all_words(2, longest=6)
    accepted = compile_cascade(ends)(tokens)[:, -1].argmax(-1).bool().tolist()
    assert accepted == [ends(["ab"[token] for token in word]) for word in tokens.tolist()]
    states = compile_cascade(decomposed(FULL))  # without labels: the decode map itself
    assert torch.equal(states(random_words(3, 5, 50)).argmax(-1), FULL.labels(random_words(3, 5, 50)))
    alone = MooreMachine(np.zeros((1, 2)), np.array([3]))
    assert_stacked(compile_cascade(alone), alone, 1)


def test_a_stack_is_exact_after_a_hundred_thousand_letters():
    dfa = machine("tomita:3").dfa
    model, tokens = compile_cascade(dfa), random_words(2, 1, 100_000)
    assert torch.equal(model(tokens).argmax(-1), MooreMachine.from_dfa(dfa).labels(tokens))


def test_a_stack_is_kept_in_a_file(tmp_path):
    model = compile_cascade(FULL)
    tokens = random_words(3, 2, 30)
    assert torch.equal(load(save(model, tmp_path / "stack"))(tokens), model(tokens))
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_stacks_too_large_are_refused():
    with pytest.raises(CannotCompile, match=r"limit allows 8 coordinates.*compile_model"):
        compile_cascade(FULL, limit=8)
    with pytest.raises(TypeError, match="machine must be a DFA"):
        compile_cascade(machine("parity"))
    with pytest.raises(ValueError, match="limit must be a positive integer"):
        compile_cascade(FULL, limit=0)


FORMULAS = [
    "x", "!x", "x & y", "x | y", "x ^ y", "x & !x", "1", "0", "(a | b) & (c | d)", "!(a & b) ^ c",
    "a & b & c & d & e & f", "(a ^ b) | (c & !d)",
    "x1 & (x2 | !x3) ^ (x4 & x5)", "(a & b) | (c & d) | (e & f)", "!((a | b) & !(c | d | e))",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_a_program_computes_its_formula(text):
    formula, program = boolean_formula(text), permutation_program(text)
    model = compile_program(program)
    names = program.variables
    free = sorted(set("abcdefxy") | {f"x{number}" for number in range(1, 6)})
    assignments = [
        dict(zip(names, values, strict=True)) for values in itertools.product((False, True), repeat=len(names))
    ]
    tokens = program_tokens(program, *assignments)
    with torch.no_grad():
        holds = model(tokens)[:, -1].argmax(-1).bool().tolist()
    assert holds == [evaluated(formula, dict.fromkeys(free, False) | assignment) for assignment in assignments]
    assert len(names) <= 6


def test_a_program_in_other_families_and_what_is_no_program():
    program = permutation_program("(a | b) & (c ^ d)")
    assignments = [dict(zip("abcd", values, strict=True)) for values in itertools.product((False, True), repeat=4)]
    expected = [program(assignment) for assignment in assignments]
    for family in ("permutation", "orthogonal", "stochastic"):
        model = compile_program(program, family=family)
        assert model(program_tokens(program, *assignments))[:, -1].argmax(-1).bool().tolist() == expected
    with pytest.raises(TypeError, match="permutation_program"):
        compile_program("a & b")
