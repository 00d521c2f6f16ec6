"""Whole models: all of them where nothing but token and state decides, else the head alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.certification.perturbed import counter, labels_of, turn
from transductor.automata import IGNORED, MooreMachine, machine
from transductor.certification import CertificateError, certify, check_certificate
from transductor.compilation import compile_model
from transductor.heads import LookbackHead, RationalHead
from transductor.model import (
    BackboneConfig,
    FullAttention,
    LearnedPositions,
    NoAttention,
    RationalTransductor,
    SlidingWindow,
    StackedTransductor,
)
from transductor.transitions import DenseTransitions, PermutationTransitions


def transductor(*, head=RationalHead, permutations=((0, 1, 2), (1, 2, 0)), classes=3, dtype=torch.float32, **options):
    """Random, over a head that counts exactly."""
    torch.manual_seed(3)
    options = {"attention": NoAttention(), **options}
    family = PermutationTransitions(permutations=permutations)
    config = BackboneConfig(vocab_size=2, output_size=classes, width=8, layers=2, attention_heads=2, **options)
    model = RationalTransductor(head(family), config).to(dtype).eval()
    with torch.no_grad():
        model.rational_head.raw_initial_state.copy_(torch.eye(len(permutations[0]))[0])
    return model


def what_it_says(model):
    """The machine of a model that knows the last token, the count now and the count before it."""
    words = torch.randint(0, 2, (64, 40))
    shown = labels_of(model, words)
    counts = words.cumsum(1) % 3
    label = {}
    for token, count, seen in zip(
        words.flatten().tolist(), counts.flatten().tolist(), shown.flatten().tolist(), strict=True
    ):
        label[token, count] = seen
    return MooreMachine.explored(
        (None, 0),
        2,
        lambda state, letter: (letter, (state[1] + letter) % 3),
        lambda state: IGNORED if state[0] is None else label[state],
    )


@pytest.mark.parametrize("head", [RationalHead, LookbackHead])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_without_attention_is_followed_whole(head, dtype):
    model = transductor(head=head, dtype=dtype)
    said = what_it_says(model)
    certificate = certify(model, against=said)
    assert (certificate.about, certificate.verdict) == ("model", "proved")
    assert certificate.margin > 0
    assert any("layer norm" in assumption for assumption in certificate.assumptions)
    check_certificate(certificate, model)
    words = torch.randint(0, 2, (3, 5000))
    assert torch.equal(labels_of(model, words), said.labels(words))

    outputs = said.outputs.copy()
    outputs[-1] = (outputs[-1] + 1) % 3
    other = MooreMachine(said.transitions, outputs)
    refuted = certify(model, against=other)
    assert (refuted.about, refuted.verdict) == ("model", "refuted")
    reached = [other.labels(torch.tensor([refuted.word]))[0, -1], labels_of(model, torch.tensor([refuted.word]))[0, -1]]
    assert reached[0] != reached[1]
    assert refuted.holds_up_to == len(refuted.word) - 1
    check_certificate(refuted, model)


@pytest.mark.parametrize("options", [{"attention": SlidingWindow(4)}, {"positions": LearnedPositions(64)}])
def test_with_attention_or_positions_the_statement_is_about_the_head(options):
    model = transductor(**options)
    certificate = certify(model, against=counter(3))
    assert (certificate.about, certificate.verdict) == ("head", "separated")
    assert "head" in certificate.claim
    assert not any("layer norm" in assumption for assumption in certificate.assumptions)
    check_certificate(certificate, model)


@pytest.mark.parametrize("window", [None, 8])
def test_with_attention_that_changes_no_label_the_statement_is_about_the_model(window):
    kind = FullAttention() if window is None else SlidingWindow(window)
    config = BackboneConfig(vocab_size=2, output_size=5, width=16, layers=2, attention=kind)
    model = compile_model(counter(5), backbone=config)
    certificate = certify(model, against=counter(5))
    # Attention is silent here; over a whole word its sums may be long, in a window they are not.
    assert (certificate.about, certificate.verdict) == ("model", "proved" if window else "holds up to 1000000")
    assert certificate.margin == pytest.approx(8, abs=1e-3)
    assert any("attention divides a sum" in assumption for assumption in certificate.assumptions)
    check_certificate(json.loads(json.dumps(certificate.plain())), model, counter(5))
    with torch.no_grad():
        model.backbone.blocks[0].attention.output.weight.normal_()
        model.backbone.blocks[0].attention.value.weight.normal_()
    loud = certify(model, against=counter(5))
    assert (loud.about, loud.verdict) == ("head", "separated")
    assert loud.numbers["least_gap_of_the_model"] < 0
    with pytest.raises(CertificateError, match="differs"):
        check_certificate(certificate, model)
    other = replace(config, attention=SlidingWindow(9))
    changed = RationalTransductor(model.rational_head, other).eval()
    changed.load_state_dict(model.state_dict())
    with pytest.raises(CertificateError, match="attention differs"):
        check_certificate(loud, changed)


def test_a_head_that_cannot_tell_is_refuted_by_two_words():
    certificate = certify(transductor(attention=SlidingWindow(4)).rational_head, against=counter(6))
    assert (certificate.about, certificate.verdict) == ("head", "confused")
    other = certificate.numbers["looks_like"]
    assert other[-1] == certificate.word[-1]
    assert sum(other) % 3 == sum(certificate.word) % 3
    assert sum(other) % 6 != sum(certificate.word) % 6


def test_what_the_token_says_the_head_need_not_know():
    """The label is the last letter: no state needed."""
    last = MooreMachine(np.array([[0, 1], [0, 1]]), np.arange(2))
    model = transductor(attention=SlidingWindow(4), permutations=((0, 1), (0, 1)))
    assert certify(model, against=last).verdict == "separated"
    assert certify(model, against=counter(2)).verdict == "confused"


def test_a_drifting_head_under_attention_has_a_horizon():
    head = RationalHead(DenseTransitions(state_dim=2, vocab_size=2)).double()
    with torch.no_grad():
        table = np.stack([np.eye(2), turn(2 * math.pi / 3 + 1e-3)])
        head.transitions.source.raw.copy_(torch.from_numpy(table.reshape(2, -1)))
        head.raw_initial_state.copy_(torch.tensor([1.0, 0]))
    certificate = certify(head, against=counter(3))
    assert (certificate.about, certificate.outcome) == ("head", "bounded")
    assert 500 < certificate.holds_up_to < math.pi / 3 / 1e-3  # until it is nearer to the next corner
    check_certificate(certificate, head)
    model = RationalTransductor(head, BackboneConfig(vocab_size=2, output_size=3, width=8)).double().eval()
    again = certify(model, against=counter(3))
    assert (again.about, again.holds_up_to) == ("head", certificate.holds_up_to)


def test_a_drifting_head_without_attention_is_refuted_as_a_model_or_bounded_as_a_head():
    model = transductor()
    said = what_it_says(model)
    loose = DenseTransitions(state_dim=3, vocab_size=2)
    with torch.no_grad():
        noise = 2e-2 * torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
        loose.source.raw.copy_((model.rational_head.transitions.table() + noise).reshape(2, -1))
    model.rational_head.transitions = loose
    certificate = certify(model, against=said, horizon=5000)
    assert (certificate.about, certificate.verdict) == ("model", "refuted")
    tokens = torch.tensor([certificate.word])
    assert labels_of(model, tokens)[0, -1] != said.labels(tokens)[0, -1]
    check_certificate(certificate, model)
    short = certify(model, against=said, horizon=2)
    assert short.about == "head"
    assert short.outcome == "bounded"


def test_dropout_and_other_models_are_refused():
    model = transductor(dropout=0.1)
    certify(model, against=counter(3))
    with pytest.raises(ValueError, match="evaluation mode"):
        certify(model.train(), against=counter(3))
    stacked = StackedTransductor([model.rational_head], BackboneConfig(vocab_size=2, layers=1))
    with pytest.raises(TypeError, match="model_or_head must be"):
        certify(stacked, against=counter(3))
    with pytest.raises(ValueError, match="linear readout with one output"):
        certify(transductor(), against=machine("base_value:2").automaton)
    with pytest.raises(ValueError, match="labels"):
        certify(transductor(), against=counter(9))
