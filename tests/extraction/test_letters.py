"""What letters do to a state: counters have orders, resets forget, and what a state holds can be read."""

from __future__ import annotations

import pytest
import torch

from transductor.compilation import compile_head
from transductor.extraction import directions_read, letter_facts, readable_from
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor
from transductor.tasks import ModularCounting, MooreMachine
from transductor.transitions import OrthogonalTransitions


def test_a_counter_has_an_order():
    head = compile_head(ModularCounting(5).automaton())
    counts, nothing = letter_facts(head)
    assert (counts.letter, counts.order) == (1, 5)
    assert counts.keeps == pytest.approx(1)
    assert (nothing.order, nothing.moves, nothing.residue) == (1, 0, 0)
    assert letter_facts(head, [1], longest_order=3)[0].order is None


def test_a_reset_keeps_little():
    switch = MooreMachine([[0, 0, 1], [1, 0, 1]], [0, 1])  # keep, reset, set
    facts = {fact.letter: fact for fact in letter_facts(compile_head(switch))}
    assert facts[0].keeps == pytest.approx(1)
    assert facts[1].keeps == pytest.approx(2**-0.5)
    assert facts[2].order is None


def test_directions_that_are_read():
    backbone = BackboneConfig(vocab_size=3, width=8, layers=2)
    head = RationalHead(OrthogonalTransitions(vocab_size=3, state_dim=4))
    model = RationalTransductor(head, backbone, projections="zero")
    assert directions_read(model) == 0
    with torch.no_grad():
        model.injection.projections.weight[:, 1] = 1
    assert directions_read(model) == pytest.approx(1)
    assert directions_read(RationalTransductor(head, backbone, injection="none")) == 0


def test_what_a_state_holds_is_read():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(400, 5, generator=generator)
    facts = torch.stack((states[:, 0] - states[:, 3], torch.randn(400, generator=generator), torch.ones(400)), 1)
    shares = readable_from(states, facts)
    assert shares[0] > 0.99
    assert shares[1] < 0.1
    assert shares[2].isnan()


def test_refusals():
    with pytest.raises(ValueError, match="head must be driven by tokens"):
        letter_facts(RationalHead(OrthogonalTransitions(feature_dim=3, state_dim=4)))
    with pytest.raises(ValueError, match="equally many rows"):
        readable_from(torch.ones(5, 2), torch.ones(4, 1))
