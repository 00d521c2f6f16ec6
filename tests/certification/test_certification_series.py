"""Real values: equality over the rationals, and how long floats keep it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.certification.perturbed import counter, readout_model
from transductor.automata import WeightedAutomaton, machine, regex
from transductor.certification import certify, check_certificate
from transductor.heads import LookbackHead

DTYPES = [torch.float32, torch.float64]


def compiled(automaton, *, dtype=torch.float64, bias=0.0, **options):
    """The automaton's own numbers as floats."""
    floats = [
        np.array(part, dtype=np.float64) for part in (automaton.matrices, automaton.initial, automaton.final[None])
    ]
    return readout_model(*floats, [bias], dtype=dtype, **options)


def values(model, words):
    with torch.no_grad():
        return model(torch.tensor(words))[:, -1, 0].double().tolist()


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 24), (torch.float64, 53)])
def test_horner_is_exact_for_as_many_letters_as_a_float_has_bits(dtype, bits):
    automaton = machine("base_value:2").automaton
    model = compiled(automaton, dtype=dtype)
    certificate = certify(model, against=automaton)
    assert certificate.about == "series"
    assert certificate.verdict == f"holds up to {bits}"
    assert values(model, [[1] * bits]) == [2**bits - 1]
    assert values(model, [[1] * (bits + 1)]) != [2 ** (bits + 1) - 1]  # and not for one more
    check_certificate(certificate, model)


def test_counting_is_exact_up_to_the_horizon_and_its_bits():
    automaton = machine("balance").automaton
    assert certify(compiled(automaton), against=automaton).verdict == "holds up to 1000000"
    certificate = certify(compiled(automaton, dtype=torch.float32), against=automaton, horizon=2**25)
    assert 2**22 < certificate.holds_up_to <= 2**24


def test_a_finite_machine_with_values_is_proved_for_all_lengths():
    automaton = machine("counter:5").automaton
    for dtype in DTYPES:
        certificate = certify(compiled(automaton, dtype=dtype), against=automaton)
        assert certificate.verdict == "proved"
        assert certificate.numbers["exact_up_to"] is None
    thirds = WeightedAutomaton([1, 0], [[[0, 1], [1, 0]]], ["1/3", 0], "a")
    certificate = certify(compiled(thirds), against=thirds)  # no float is a third
    assert certificate.verdict == "refuted"
    assert certificate.word == (0, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_halves_run_out_of_bits(dtype):
    automaton = WeightedAutomaton([1], [[["1/2"]], [["3/4"]]], [1], "ab")
    model = compiled(automaton, dtype=dtype)
    certificate = certify(model, against=automaton)
    assert certificate.outcome == "bounded"
    length = certificate.holds_up_to
    assert 8 <= length <= 53
    for word in itertools.product((0, 1), repeat=8):
        assert values(model, [word]) == [float(automaton(["ab"[letter] for letter in word]))]
    exact = automaton("b" * length)
    assert Fraction(values(model, [[1] * length])[0]) == exact


def test_a_wrong_weight_is_refuted_by_a_shortest_word():
    automaton = machine("base_value:2").automaton
    other = WeightedAutomaton(
        automaton.initial, automaton.matrices, [2 * x for x in automaton.final], automaton.alphabet
    )
    model = compiled(automaton)
    certificate = certify(model, against=other)
    assert certificate.verdict == "refuted"
    word = certificate.word
    shorter = [w for n in range(1, len(word)) for w in itertools.product((0, 1), repeat=n)]
    letters = automaton.alphabet
    assert all(automaton([letters[i] for i in w]) == other([letters[i] for i in w]) for w in shorter)
    assert values(model, [word])[0] != other([letters[i] for i in word])
    assert certificate.holds_up_to == len(word) - 1
    check_certificate(certificate, model)


def test_the_empty_word_is_nobodys_business():
    """A model shows nothing before its first letter, so a difference there is none."""
    automaton = WeightedAutomaton([1, 0], [[[0, 0], [1, 1]]], [7, 1], "a")  # 7 on the empty word, 1 on all others
    constant = readout_model([[[1.0]]], [1.0], [[1.0]])
    assert certify(constant, against=automaton).verdict == "proved"
    assert certify(readout_model([[[1.0]]], [1.0], [[2.0]]), against=automaton).word == (0,)


def test_bias_and_the_state_before():
    count = machine("balance").automaton
    shifted = count + WeightedAutomaton([5], [[[1]], [[1]]], [1], count.alphabet)
    assert certify(compiled(count, bias=5.0), against=shifted).verdict == "holds up to 1000000"
    assert certify(compiled(count, bias=4.0), against=shifted).verdict == "refuted"
    floats = [np.array(part, dtype=np.float64) for part in (count.matrices, count.initial, count.final)]
    both = readout_model(floats[0], floats[1], [np.concatenate((floats[2], -floats[2]))], head=LookbackHead)
    step = WeightedAutomaton(
        [1, 0, 0], [[[1, 0, 0], [1, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0], [1, 0, 0]]], [0, 1, -1], count.alphabet
    )
    certificate = certify(both, against=step)  # the difference of two counts is the last step
    assert certificate.outcome in ("bounded", "proved")
    assert certificate.holds
    check_certificate(certificate, both)


def test_a_domain_where_the_two_agree():
    """Ones double, and after a zero nothing is promised."""
    doubling = WeightedAutomaton([1], [[[1]], [[2]]], [1], "01")
    other = WeightedAutomaton([1], [[[3]], [[2]]], [1], "01")
    model = compiled(doubling)
    assert certify(model, against=other).word == (0,)
    certificate = certify(model, against=other, domain=regex("1*", "01"))
    assert certificate.verdict == "holds up to 53"


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_that_are_no_floats_hold_to_a_tolerance(dtype):
    automaton = WeightedAutomaton(
        [1, 0], {"a": [["1/3", 0], ["2/3", 1]], "b": [["1/2", "1/10"], ["1/2", "9/10"]]}, [1, "1/7"]
    )
    model = compiled(automaton, dtype=dtype)
    assert certify(model, against=automaton).word in ((0,), (1,))
    certificate = certify(model, against=automaton, tolerance=1e-5)
    assert certificate.outcome == "bounded"
    assert certificate.holds_up_to > (
        20 if dtype == torch.float32 else 200
    )  # a tenth, so often, is near the least float
    assert "1e-05" in certificate.claim
    check_certificate(certificate, model)
    words = torch.randint(0, 2, (50, min(200, certificate.holds_up_to)))
    computed = values(model, words.tolist())
    exact = [float(automaton(["ab"[letter] for letter in word])) for word in words.tolist()]
    assert np.allclose(computed, exact, rtol=1e-5)  # positive weights: relative to the value itself
    tight = certify(model, against=automaton, tolerance=1e-9)
    assert tight.outcome == ("refuted" if dtype == torch.float32 else "bounded")


def test_what_is_no_series_is_refused():
    model = compiled(machine("balance").automaton)
    with pytest.raises(ValueError, match="'rational' or 'float'; got 'max_plus'"):
        certify(model, against=WeightedAutomaton([0.0], [[[1.0]], [[1.0]]], [0.0], "ab", weights="max_plus"))
    with pytest.raises(ValueError, match="linear readout with one output"):
        certify(readout_model(np.stack([np.eye(2)] * 2), [1.0, 0], np.eye(2)), against=machine("balance").automaton)
    with pytest.raises(ValueError, match=r"tolerance must lie in \[0, 1\)"):
        certify(model, against=machine("balance").automaton, tolerance=-1)
    with pytest.raises(ValueError, match=r"labels in \[0, 2\)"):
        certify(model, against=counter(3))
