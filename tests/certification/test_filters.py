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


def blocks(crossing):
    """Two pairs of states; between the pairs it goes with probability ``crossing``."""
    moves = np.full((4, 4), crossing / 2)
    moves[:2, :2] = moves[2:, 2:] = (1 - crossing) / 2
    return moves


SHOWS = [[0.7, 0.3], [0.25, 0.75], [0.4, 0.6], [0.55, 0.45]]
# Chains that this project never draws: each has something that a proof could trip over.
STRANGERS = {
    "nearly reducible": HiddenMarkovModel([0.4, 0.3, 0.2, 0.1], blocks(1e-9), SHOWS),
    "reducible": HiddenMarkovModel([0.4, 0.3, 0.2, 0.1], blocks(0.0), SHOWS),
    "zero emissions": HiddenMarkovModel([0.5, 0.5], [[0.6, 0.4], [0.3, 0.7]], [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]),
    "periodic": HiddenMarkovModel([0.2, 0.3, 0.5], [[0, 1, 0], [0, 0, 1], [1, 0, 0]], SHOWS[:3]),
    "equal states": HiddenMarkovModel([0.2, 0.8], [[0.5, 0.5]] * 2, [[0.3, 0.7]] * 2),
    "equal emissions": HiddenMarkovModel([0.2, 0.8], [[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7]] * 2),
    "one state": HiddenMarkovModel([1.0], [[1.0]], [[0.3, 0.7]]),
    "absorbing": HiddenMarkovModel([0.5, 0.5], [[0.9, 0.1], [0.0, 1.0]], [[0.7, 0.3], [0.2, 0.8]]),
    "a start that is hardly possible": HiddenMarkovModel(
        [1 - 1e-12, 1e-12], [[0.99, 0.01], [0.01, 0.99]], [[0.9, 0.1], [0.1, 0.9]]
    ),
    "a letter that is hardly ever shown": HiddenMarkovModel(
        [0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], [[1 - 1e-8, 1e-8], [1 - 2e-8, 2e-8]]
    ),
    "a letter that is never shown": HiddenMarkovModel(
        [0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], [[0.4, 0.6, 0.0], [0.9, 0.1, 0.0]]
    ),
}
MIXES = {"nearly reducible", "equal states", "equal emissions", "one state"}
MIXES |= {"a start that is hardly possible", "a letter that is hardly ever shown"}


def possible(model, word):
    belief = model.start
    for letter in word:
        belief = belief @ (model.transitions * model.emissions[:, letter, None])
    return belief.sum() > 0


@pytest.mark.parametrize("leak", [0, 1e-6], ids=["exact", "leaking"])
@pytest.mark.parametrize("altered_by", [1.0, 1.002])
@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_do_not_break_the_bound(name, altered_by, leak):
    model = STRANGERS[name]
    head = filter_of(model, leak=leak, dtype=torch.float64)
    raw = head.transitions.source.raw.data
    entry = int((raw[0] != 0).nonzero()[0]) if leak == 0 else 0
    raw[0, entry] = raw[0, entry] * altered_by if leak == 0 else raw[0, entry] + float(np.log(altered_by))
    certificate = certify_filter(head, against=model, tolerance=0.05)
    assert (certificate.horizon is None) == (name in MIXES)
    longest = 40 if certificate.horizon is None else min(certificate.horizon, 40)
    words = [model.sampled(1, longest, seed)[0][0].tolist() for seed in range(3)] if longest else []
    words += [word for letter in range(model.letters) if possible(model, word := [letter] * longest)]
    if longest:
        words.append(worst_word(head, model, min(longest, 10))[0])
    for word in words:
        assert exact_distance(head, model, word) <= certificate.bound
    if certificate.holds:
        assert certificate.bound <= 0.05


@pytest.mark.parametrize("seed", range(12))
def test_chains_drawn_wildly_do_not_break_the_bound(seed):
    """Dirichlet distributions from nearly hard to nearly flat, and weights that are each off by a share."""
    rng = np.random.default_rng(seed)
    states, letters = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    sharp = 10.0 ** rng.uniform(-1, 1.5)
    model = HiddenMarkovModel(
        rng.dirichlet(np.full(states, sharp)),
        rng.dirichlet(np.full(states, sharp), states),
        rng.dirichlet(np.full(letters, sharp), states),
    )
    head = filter_of(model, dtype=torch.float64)
    raw = head.transitions.source.raw.data
    raw += torch.from_numpy(rng.uniform(-1e-3, 1e-3, raw.shape))
    certificate = certify_filter(head, against=model, tolerance=0.3)
    longest = 20 if certificate.horizon is None else min(certificate.horizon, 20)
    for number in range(2 if longest else 0):
        assert exact_distance(head, model, model.sampled(1, longest, number)[0][0].tolist()) <= certificate.bound
    if longest:
        assert exact_distance(head, model, worst_word(head, model, min(8, longest))[0]) <= certificate.bound
