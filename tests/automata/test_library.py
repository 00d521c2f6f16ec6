"""Every named machine obeys its law: on all words up to length 10, and on long random ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from transductor.automata import HankelBlock, learned, rank, reversed_series
from transductor.automata.closure import IntegerColumns, reachable_words
from transductor.automata.decomposition.cascade import verify
from transductor.automata.decomposition.krohn_rhodes import decomposed
from transductor.automata.library import LIBRARY, machine, machines
from transductor.automata.modular import random_primes
from transductor.automata.spectral.hankel_block import basis_words

MACHINES = {each.name: each for each in machines()}
MOST_WORDS = 3000


def obeys(value, wanted, exact):
    return value == wanted if exact else math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_obeys_its_law(name):
    each = MACHINES[name]
    automaton, letters = each.automaton, len(each.automaton.alphabet)
    length = 10
    while letters**length > MOST_WORDS and length > 3 and letters > 2:
        length -= 1  # the whole of length 10 for two letters; as far as is quick for more
    words = list(automaton.words(length))
    if each.dfa is not None and automaton.dim > 12:
        weights = [automaton.final[each.dfa.run(word)] for word in words]  # the same machine, read by its states
        words_by_matrices = words[:: len(words) // 20]
        assert all(automaton(word) == each.law(word) for word in words_by_matrices)
    else:
        weights = automaton.batch(words)
    for word, weight in zip(words, weights, strict=True):
        assert obeys(weight, each.law(word), automaton.weights.exact), word


@pytest.mark.parametrize("name", MACHINES)
def test_and_on_long_words(name):
    each = MACHINES[name]
    rng = np.random.default_rng(0)
    alphabet = each.automaton.alphabet
    quick = each.dfa is not None and each.automaton.dim > 12
    for length in (100, 1000):
        words = [[alphabet[i] for i in rng.integers(0, len(alphabet), length)], [alphabet[-1]] * length]
        for word in words:
            value = each.automaton.final[each.dfa.run(word)] if quick else each.automaton(word)
            assert obeys(value, each.law(word), each.automaton.weights.exact)


def spanning_words(automaton):
    """Words that lead to a basis of all that can be reached: by them a Hankel block has the full rank."""
    if automaton.weights.name == "float":
        return basis_words(automaton.alphabet, 3)
    prime = next(random_primes())
    initial, matrices, _ = IntegerColumns.of(automaton).residues(prime)
    words = reachable_words(initial, matrices, prime)
    return [tuple(automaton.alphabet[letter] for letter in word) for word in words] or [()]


@pytest.mark.parametrize("name", MACHINES)
def test_a_hankel_block_gives_the_machine_back(name):
    """To 1e-8 of the largest weight at each length."""
    automaton = MACHINES[name].automaton
    suffixes = [word[::-1] for word in spanning_words(reversed_series(automaton))]
    prefixes = spanning_words(automaton)
    block = HankelBlock.of(automaton, automaton.alphabet, prefixes, suffixes)
    true = rank(automaton)
    result = learned(block, true)
    assert result.automaton.dim == true
    rng = np.random.default_rng(0)
    for length in (0, 1, 2, 5, 8, 12):
        words = [[automaton.alphabet[i] for i in rng.integers(0, len(automaton.alphabet), length)] for _ in range(40)]
        wanted = np.array([float(automaton(word)) for word in words])
        error = np.abs(result.automaton.batch(words) - wanted).max()
        assert error <= 1e-8 * (np.abs(wanted).max() or 1.0)


@pytest.mark.parametrize("name", [name for name, each in MACHINES.items() if each.dfa is not None])
def test_every_finite_machine_decomposes(name):
    dfa = MACHINES[name].dfa
    assert verify(decomposed(dfa), dfa).holds


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_all_words_to_length_ten_whatever_the_alphabet(name):
    each = MACHINES[name]
    limit = 10 if len(each.automaton.alphabet) <= 4 else 6  # 9 letters: 600 000 words of length 6
    for word in each.automaton.words(limit):
        value = each.automaton.final[each.dfa.run(word)] if each.dfa is not None else each.automaton(word)
        assert obeys(value, each.law(word), each.automaton.weights.exact), word


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("name must begin with one of parity", "abacus"),
        ("parity has no parameter", "parity:3"),
        ("integer from 1 to 1000", "counter:0"),
        ("integer from 1 to 1000", "counter:x"),
        ("integer from 2 to 36", "base_value:1"),
        ("one of 1 to 7", "tomita:8"),
        ("from 2 to 6", "symmetric:9"),
    ],
)
def test_unknown_names_are_refused(words, name):
    with pytest.raises(ValueError, match=words):
        machine(name)


def test_every_kind_is_among_the_machines():
    assert {name.partition(":")[0] for name in MACHINES} == set(LIBRARY) - {"positions"}
    assert all(each.summary and machine(name).name == name for name, each in MACHINES.items())


def test_positions_are_exact_and_never_come_again():
    each = machine("positions:3")
    states = [tuple(state) for state in each.automaton.trajectory("a" * 60)]
    assert len(set(states)) == 61
    for time, state in enumerate(states):
        assert sum(state[::2]) == each.law("a" * time) == each.automaton("a" * time)
        assert all(cosine**2 + sine**2 == 1 for cosine, sine in zip(state[::2], state[1::2], strict=True))
    assert rank(each.automaton) == 6
    with pytest.raises(ValueError, match="positions must have an integer from 1 to 8"):
        machine("positions:9")
