"""Hard attention over exact states: what is looked at, over the integers and in floating point."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from transductor.automata import WeightedAutomaton, machine
from transductor.compilation import HardAttention, dyck_matcher, is_dyck, positive_part
from transductor.compilation.hard_attention import MANTISSAS
from transductor.theory.hierarchy import balanced, nested


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_the_matcher_decides_every_short_word(kinds):
    model = dyck_matcher(kinds).compiled(torch.float64)
    for length in range(7 if kinds < 3 else 5):
        words = list(product(range(2 * kinds), repeat=length))
        tokens = torch.tensor(words, dtype=torch.long).reshape(len(words), length)
        assert is_dyck(model(tokens), tokens).tolist() == [balanced(word) for word in words]


def test_looks_over_the_integers_are_those_of_the_model():
    matcher = dyck_matcher(2)
    model = matcher.compiled(torch.float64)
    for word in product(range(4), repeat=4):
        letters = [matcher.automaton.alphabet[letter] for letter in word]
        looks = [-1 if look is None else look for look in matcher.looks(letters)]
        assert model(torch.tensor([word]))[0].tolist() == looks


def test_scores_of_openings_at_another_depth_miss_by_more_than_any_place_gains():
    rows = dyck_matcher(1).score_rows(["(0", "(0", ")0", "(0", ")0", ")0"])
    assert [set(row) for row in rows] == [set(), {1}, {1, 2}, {1, 2}, {1, 2, 4}, {1, 2, 4}, {1, 2, 4}]
    closing = rows[5]  # of the opening at 4; that at 2 has the same depth, that at 1 another
    assert closing[4] - closing[2] == 2
    assert closing[4] - closing[1] == 6 + 3


def test_depth_four_hundred():
    word = nested(400, 2)
    looks = dyck_matcher(2).compiled(torch.float64)(word)
    assert looks[0, 401:].tolist() == list(range(400, 0, -1))
    assert is_dyck(looks, word).all()
    other = word.clone()
    other[0, -1] ^= 2
    assert not is_dyck(dyck_matcher(2).compiled(torch.float64)(other), other).any()


def test_the_positive_part_of_a_difference():
    attention = positive_part()
    model = attention.compiled(torch.float32)
    for word in product("ab", repeat=6):
        heights = [word[:end].count("a") - word[:end].count("b") for end in range(7)]
        assert attention.values(word) == [max(0, height) for height in heights]
        tokens = torch.tensor([["ab".index(letter) for letter in word]])
        assert model.values(tokens)[0].tolist() == [max(0, height) for height in heights]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_no_look_is_wrong_within_the_exact_horizon(dtype):
    matcher = dyck_matcher(1)
    horizon = matcher.exact_horizon(dtype)
    assert matcher.largest_term(horizon) <= 2 ** MANTISSAS[dtype] < matcher.largest_term(horizon + 1)
    rows = torch.randint(0, 2, (20, horizon), generator=torch.Generator().manual_seed(0))
    rows = torch.cat((rows, nested(horizon // 2 + 1, 1)[:, :horizon]))
    assert torch.equal(matcher.compiled(dtype)(rows), matcher.compiled(torch.float64)(rows))


def test_beyond_it_nested_brackets_are_missed():
    matcher, depth = dyck_matcher(1), 100
    assert 2 * depth > matcher.exact_horizon(torch.float16)
    looks = matcher.compiled(torch.float16)(nested(depth, 1))
    assert looks[0, depth + 1 :].tolist() != list(range(depth, 0, -1))


def test_queries_alone_give_the_same():
    matcher, word = dyck_matcher(2), nested(20, 2)
    model = matcher.compiled(torch.float64)
    chosen = torch.tensor([0, 3, 40])
    assert torch.equal(model(word, chosen), model(word)[:, chosen])
    assert model(torch.zeros(2, 0, dtype=torch.long)).tolist() == [[-1], [-1]]
    assert model.values(torch.zeros(1, 0, dtype=torch.long)).isnan().all()


def test_what_cannot_be_used_is_refused():
    balance = machine("balance").automaton
    scores = np.eye(2, dtype=int)
    with pytest.raises(ValueError, match="scores must be integers"):
        HardAttention(balance, scores / 2, frozenset("a"))
    with pytest.raises(ValueError, match="matrices must be integers"):
        HardAttention(WeightedAutomaton([1], {"a": [["1/2"]]}, [1]), np.eye(1, dtype=int), frozenset("a"))
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        HardAttention(balance, np.eye(3, dtype=int), frozenset("a"))
    for keys in (frozenset("c"), frozenset()):
        with pytest.raises(ValueError, match="keys must be letters"):
            HardAttention(balance, scores, keys)
    with pytest.raises(ValueError, match="dtype must be one of"):
        positive_part().exact_horizon(torch.int64)
    for kinds in (0, True, 1.5):
        with pytest.raises(ValueError, match="kinds must be a positive integer"):
            dyck_matcher(kinds)
