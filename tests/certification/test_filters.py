"""Certificates of filters: bounds that an enemy cannot break, and what has none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from transductor import RationalHead
from transductor.automata import HiddenMarkovModel
from transductor.certification import certify_filter, worst_word
from transductor.compilation import filter_of
from transductor.heads import FilterHead
from transductor.transitions import DenseTransitions, PositiveTransitions

MIXING = HiddenMarkovModel([0.3, 0.7], [[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.25, 0.75]])
# Letter 0 is shown by state 0 alone: beliefs jump, nothing contracts in Hilbert's distance.
REVEALING = HiddenMarkovModel([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.0, 1.0]])


def altered(head, token, entry, factor):
    head.transitions.source.raw.data[token, entry] += float(np.log(factor))
    return head


def exact_distance(head, model, word):
    """The filter's own arithmetic, step by step, against fractions."""
    stream, start = head.start(1), [Fraction(x) for x in model.start.tolist()]
    moves, shows = (
        [[Fraction(x) for x in row] for row in values.tolist()] for values in (model.transitions, model.emissions)
    )
    belief, worst = start, 0.0
    for letter in word:
        weights = [b * shows[i][letter] for i, b in enumerate(belief)]
        total = sum(weights)
        belief = [sum(w * moves[i][j] for i, w in enumerate(weights)) / total for j in range(len(belief))]
        with torch.no_grad():
            shown, stream = head.advance(torch.tensor([[letter]]), stream)
        mine = [Fraction(x) for x in shown[0, 0, :-1].double().tolist()]
        worst = max(worst, float(sum(abs(a - b) for a, b in zip(mine, belief, strict=True))))
    return worst


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1.0, 1.001, 1.2, 3.0])
def test_no_word_is_worse_than_the_bound(factor, dtype):
    head = altered(filter_of(MIXING, dtype=dtype), 1, 2, factor)
    certificate = certify_filter(head, against=MIXING, tolerance=0.01)
    assert certificate.horizon is None
    words = [worst_word(head, MIXING, 12)[0], (0,) * 30, (1,) * 30, (0, 1) * 15]
    measured = max(exact_distance(head, MIXING, word) for word in words)
    assert 0 < measured <= certificate.bound
    assert certificate.holds == (factor < 1.01)
    assert measured > certificate.bound / 200  # nor is the bound idle
    assert measured <= 2e-6 or factor > 1 or dtype == torch.float64


def test_the_compiled_scan_stays_within_the_bound_for_long():
    head = filter_of(MIXING)
    bound = certify_filter(head, against=MIXING).bound
    words = MIXING.sampled(2, 2000, 0)[0]
    with torch.no_grad():
        mine = head.beliefs(torch.from_numpy(words)).states.double().numpy()
    assert np.abs(mine - MIXING.beliefs(words)[0]).sum(-1).max() <= bound < 1e-4


def test_a_wrong_start_is_forgotten():
    head = filter_of(MIXING, dtype=torch.float64)
    head.raw_initial_state.data.copy_(torch.tensor([0.99, 0.01]).log())
    certificate = certify_filter(head, against=MIXING)
    assert certificate.bound > 1
    assert certificate.settled < 1e-8
    assert not certificate.holds


@pytest.mark.parametrize("factor", [1.0, 1.00001])
def test_where_letters_do_not_mix_there_is_a_horizon(factor):
    head = altered(filter_of(REVEALING, dtype=torch.float64, leak=1e-12), 1, 0, factor)
    certificate = certify_filter(head, against=REVEALING, tolerance=1e-2)
    assert not certificate.holds
    assert 0 < certificate.horizon < 60
    assert certificate.bound <= 1e-2
    word, _ = worst_word(head, REVEALING, certificate.horizon)
    assert exact_distance(head, REVEALING, word) <= certificate.bound


def test_an_impossible_letter_leaves_no_length():
    never = HiddenMarkovModel([1, 0], [[0, 1], [1, 0]], [[1, 0], [0, 1]])
    certificate = certify_filter(filter_of(never), against=never)
    assert certificate.horizon == 0
    assert "up to 0 letters" in str(certificate)


def test_a_machine_of_another_kind_is_refused():
    linear = RationalHead(DenseTransitions(state_dim=2, vocab_size=2))
    larger = FilterHead(PositiveTransitions(state_dim=3, vocab_size=2))
    for head, words in ((linear, "must be a FilterHead"), (larger, "must have a table of shape")):
        with pytest.raises(ValueError, match=words):
            certify_filter(head, against=MIXING)
    with pytest.raises(ValueError, match="tolerance must lie"):
        certify_filter(filter_of(MIXING), against=MIXING, tolerance=3)


def test_an_enemy_who_alters_a_weight_is_noticed():
    """A certificate of one head says nothing of another: the search finds a word beyond the first bound."""
    certificate = certify_filter(filter_of(MIXING), against=MIXING)
    enemy = altered(filter_of(MIXING), 0, 1, 1.05)
    assert worst_word(enemy, MIXING, 10)[1] > certificate.bound
    assert certify_filter(enemy, against=MIXING).bound > worst_word(enemy, MIXING, 10)[1]
