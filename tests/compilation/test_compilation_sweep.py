"""The library, 100 random automata and 50 expressions: all words to length 8, 1 000 long words, T = 100 000."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch

from tests.compilation.compilation_cases import (
    PATTERNS,
    all_words,
    margin_on_all_words,
    random_dfa,
    random_words,
    smallest_margin,
    states_of,
)
from transductor.automata import MooreMachine, machine, regex
from transductor.automata.library import machines
from transductor.compilation import CannotCompile, compile_cascade, compile_head, compile_model

pytestmark = pytest.mark.slow

LIBRARY = {named.name: named for named in machines()}


def assert_right(dfa, dtype=torch.float32):
    finite = MooreMachine.from_dfa(dfa)
    model = compile_model(dfa, dtype=dtype)
    with torch.no_grad():
        for tokens in (all_words(finite.letters), random_words(finite.letters, 1000, 1000)):
            for part in tokens.split(250 if tokens.shape[1] > 8 else 1 << 16):
                assert smallest_margin(model(part), finite.labels(part)) > 7.9
    assert margin_on_all_words(model, finite) > 7.9
    tokens = random_words(finite.letters, 1, 100_000, seed=1)
    states = compile_head(dfa, dtype=dtype)(tokens)
    assert torch.equal(states, torch.eye(finite.states, dtype=dtype)[states_of(finite, tokens)])


@pytest.mark.parametrize("name", [name for name, named in LIBRARY.items() if named.dfa is not None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_finite_machine(name, dtype):
    assert_right(LIBRARY[name].dfa, dtype)


@pytest.mark.parametrize("seed", range(100))
def test_random_automata(seed):
    assert_right(random_dfa(seed))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regular_expressions(pattern):
    alphabet = "01" if "0" in pattern else "".join(sorted(set("ab") | set(re.findall("[a-d]", pattern))))
    language = regex(pattern, alphabet)
    assert_right(language)
    words = [word for n in range(1, 7) for word in itertools.product(alphabet, repeat=n)]
    assert [language(word) for word in words] == [re.fullmatch(pattern, "".join(word)) is not None for word in words]


def assert_same_states(automaton, tokens):
    """Every state to 1e-6 of its largest entry, as far as float64 reaches; how many positions that is.

    The reference has 64 digits of mantissa and an exponent of its own, so it neither overflows nor fades.
    """
    head = compile_head(automaton, dtype=torch.float64)
    with torch.no_grad():
        states = head(tokens).numpy()
    exact = automaton.over("float")
    state = np.repeat(exact.initial[None].astype(np.longdouble), len(tokens), 0)
    matrices, exponents, compared = exact.matrices.astype(np.longdouble), np.zeros(len(tokens), dtype=np.int64), 0
    for time, letters in enumerate(tokens.numpy().T):
        state = np.einsum("bij,bj->bi", matrices[letters], state)
        scale = np.frexp(np.abs(state).max(1))[1]
        state, exponents = np.ldexp(state, -scale[:, None]), exponents + scale
        within = np.abs(exponents) < 1000
        wanted = np.ldexp(state[within], exponents[within, None]).astype(np.float64)
        error = np.abs(states[within, time] - wanted).max(1) / np.abs(wanted).max(1)
        assert (error < 1e-6).all()
        compared += int(within.sum())
    return compared


@pytest.mark.parametrize("name", LIBRARY)
def test_every_series(name):
    automaton = LIBRARY[name].automaton
    model = compile_model(automaton, dtype=torch.float64)
    tokens = all_words(len(automaton.alphabet), 1 << 13)
    with torch.no_grad():
        values = model(tokens).squeeze(-1)
    words = [[automaton.alphabet[token] for token in row] for row in tokens.tolist()]
    for end in range(1, tokens.shape[1] + 1):
        expected = torch.from_numpy(automaton.batch([word[:end] for word in words]).astype(np.float64))
        assert torch.allclose(values[:, end - 1], expected, rtol=1e-12, atol=1e-13)
    assert assert_same_states(automaton, random_words(len(automaton.alphabet), 1000, 1000)) > 100_000
    growing = {"base_value:2": 900, "base_value:3": 600, "palindrome_distance": 600, "bigram": 700}
    long = random_words(len(automaton.alphabet), 1, 100_000, seed=1)
    if name in growing:  # leading zeros, where there are any; float64 ends at about 2^1024 either way
        long[:, : -growing[name]] = 0
    compared = assert_same_states(automaton, long)
    assert compared == 100_000 or name in ("palindrome_distance", "bigram")


@pytest.mark.parametrize("seed", range(30))
def test_stacks_of_random_automata(seed):
    dfa = random_dfa(seed, states=9, letters=3)
    try:
        model = compile_cascade(dfa, limit=1500)
    except CannotCompile as refused:
        pytest.skip(str(refused))
    finite = MooreMachine.from_dfa(dfa)
    with torch.no_grad():
        for tokens in (all_words(finite.letters, 729), random_words(finite.letters, 5, 300)):
            assert smallest_margin(model(tokens), finite.labels(tokens)) > 7.9
    assert margin_on_all_words(model, finite) > 7.9


@pytest.mark.parametrize("family", ["orthogonal", "signed_cayley"])
@pytest.mark.parametrize("name", ["parity", "counter:5", "symmetric:4", "alternating:5"])
def test_rounded_families_are_right_for_long(name, family):
    finite = MooreMachine.from_dfa(machine(name).dfa)
    model = compile_model(machine(name).dfa, family=family)
    tokens = random_words(2, 4, 20_000)
    with torch.no_grad():
        assert torch.equal(model(tokens).argmax(-1), finite.labels(tokens))
