from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
import torch

from transductor.certification import certify
from transductor.tasks import ModularCounting
from transductor.theory import generalisation
from transductor.theory.generalisation import (
    certified_horizon,
    fewest_collisions,
    first_failure,
    hankel_rademacher_complexity,
    length_independent_generalization,
    lipschitz_input_stability,
    rademacher,
    time_invariant_error_bounding,
    turning_model,
)

HALF = Fraction(1, 2)


def test_the_error_bound_needs_a_contraction_and_promises_no_label():
    certificate = time_invariant_error_bounding(drifts=(1e-2,))
    assert certificate.holds
    assert certificate.bound >= 1 > certificate.measurements["margin"]
    assert not time_invariant_error_bounding(norm=1.0, drifts=()).holds
    (head,) = certificate.measurements["heads"]
    assert 0.9 * head["first_failure"] < head["certified"] < head["first_failure"]
    with pytest.raises(ValueError, match="gamma"):
        time_invariant_error_bounding(gamma=1.0)


def test_the_horizon_is_that_of_certify_and_of_the_model():
    model, machine = turning_model(2 * math.pi / 5 + 1e-2, 5), ModularCounting(5).automaton()
    horizon, failure = certified_horizon(model, machine, 1000), first_failure(1e-2, 5, 1000)
    assert horizon == certify(model, against=machine, horizon=horizon).holds_up_to
    labels = model(torch.ones(1, failure, dtype=torch.long)).argmax(-1)[0]
    right = torch.arange(1, failure + 1) % 5
    assert (labels[:-1] == right[:-1]).all()
    assert labels[-1] != right[-1]
    assert first_failure(0.0, 5, 1000) == 1000


def test_few_letters_or_a_slow_decay_keep_the_complexity_below_the_bound():
    certificate = length_independent_generalization()
    assert certificate.holds
    assert certificate.finding == "false as written"
    assert not length_independent_generalization(tokens=9).holds
    assert not length_independent_generalization(gamma=Fraction(9, 10)).holds
    assert not length_independent_generalization(length=3).holds
    careful = length_independent_generalization(tokens=64, copies=10)
    assert careful.holds
    assert round(float(careful.measured), 4) == 0.1230
    with pytest.raises(ValueError, match="tokens"):
        length_independent_generalization(tokens=0)


@pytest.mark.parametrize(("tokens", "copies"), [(1, 1), (3, 1), (2, 2), (1, 5), (2, 3)])
def test_the_complexity_is_the_mean_over_all_signs(tokens, copies):
    """Every letter's value may be anything from −γ to γ, and the supremum takes an end."""
    gamma, size = HALF, tokens * copies
    values = [
        [value for value in ends for _ in range(copies)] for ends in itertools.product((-gamma, gamma), repeat=tokens)
    ]
    total = Fraction(0)
    for signs in itertools.product((-1, 1), repeat=size):
        total += max(sum(s * v for s, v in zip(signs, row, strict=True)) for row in values)
    assert total / (2**size * size) == rademacher(tokens, copies, gamma)


def test_only_the_empty_prefix_makes_every_word_collide():
    certificate = hankel_rademacher_complexity(lengths=(2, 4))
    assert certificate.holds
    assert not hankel_rademacher_complexity(empty_prefix=False, lengths=()).holds
    assert [one["nuclear_norm"] for one in certificate.measurements["parity"]] == pytest.approx([2, 4])
    assert hankel_rademacher_complexity(words=("",), lengths=()).holds
    for words in ((), ("a",) * 13):
        with pytest.raises(ValueError, match="words must hold 1 to 12"):
            hankel_rademacher_complexity(words=words)


def test_words_are_split_with_as_few_collisions_as_can_be():
    sample = ("01", "01", "1", "11", "0", "")
    least = min(
        max(max(Counter(parts).values()) for parts in zip(*splits, strict=True))
        for splits in itertools.product(*([(w[:cut], w[cut:]) for cut in range(len(w) + 1)] for w in sample))
    )
    fewest, splits = fewest_collisions(sample)
    assert fewest == least
    assert ["".join(split) for split in splits] == list(sample)
    assert max(max(Counter(parts).values()) for parts in zip(*splits, strict=True)) == fewest


def test_the_complexity_of_bounded_nuclear_norm_is_at_most_what_is_said(monkeypatch):
    """Functions of nuclear norm 1, H = σ a bᵀ on the sample's prefixes and suffixes, do not reach beyond it."""
    for words, expected in ((("a", "b"), 1 / 2), (("a", "a"), 1 / 2), (("",), 1.0), (("", "", ""), 1 / 2)):
        certificate = hankel_rademacher_complexity(words=words, lengths=())
        assert certificate
        assert certificate.measurements["complexity_per_r_at_most"] == pytest.approx(expected)
    monkeypatch.setattr(generalisation, "_per_radius", lambda size, collisions, suffixes: 1 / size**2)
    assert not hankel_rademacher_complexity(lengths=())


def test_without_contraction_the_inputs_move_the_state_more():
    certificate = lipschitz_input_stability()
    assert certificate.holds
    assert certificate.finding == "holds"
    assert not lipschitz_input_stability(norm=Fraction(1)).holds
    for one in certificate.measurements["points"]:
        assert one["quotient"] <= one["sharp"] <= certificate.bound
    with pytest.raises(ValueError, match="change"):
        lipschitz_input_stability(change=Fraction(0))


def test_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match="modulus"):
        time_invariant_error_bounding(modulus=1)
    with pytest.raises(ValueError, match="lengths must be even"):
        hankel_rademacher_complexity(lengths=(3,))
    with pytest.raises(ValueError, match="lengths must hold"):
        lipschitz_input_stability(lengths=())
