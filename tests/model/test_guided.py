"""A Transformer beside a frozen machine: its states, its start, its streams."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transductor.automata.python_lexing import lexed
from transductor.heads import RationalHead
from transductor.model import (
    BackboneConfig,
    GuidedTransformer,
    RationalTransductor,
    RotaryPositions,
    SlidingWindow,
    Transformer,
    load,
    save,
)
from transductor.model.guided import FrozenMachine
from transductor.recurrence import Layout
from transductor.transitions import OrthogonalTransitions

SMALL = BackboneConfig(
    vocab_size=256, width=16, layers=2, attention_heads=2, positions=RotaryPositions(), attention=SlidingWindow(8)
)
TEXT = b"def f(a, b):\n    '''one\n  two'''\n    return {a: [b, '(']}  # end\n\nx = 1\n"


def tokens(text=TEXT):
    return torch.tensor([list(text)])


def test_states_are_those_of_the_machine():
    model = GuidedTransformer(SMALL)
    shown = model.states(tokens(), Layout()).numpy()[0]
    known = lexed(TEXT)
    blocks = np.split(shown, [6, 15, 21], 1)
    for place, block in enumerate(blocks[:3]):
        assert (block.argmax(1) == known[:, place]).all()
    assert (np.where(blocks[3].any(1), blocks[3].argmax(1), -1) == known[:, 3]).all()


def test_starts_as_its_transformer():
    torch.manual_seed(0)
    model = GuidedTransformer(SMALL)
    plain = Transformer(SMALL)
    plain.backbone.load_state_dict(model.backbone.state_dict())
    assert torch.equal(model(tokens()), plain(tokens()))


def test_so_does_a_rational_transductor_whose_projections_start_at_zero():
    torch.manual_seed(0)
    model = RationalTransductor(
        RationalHead(OrthogonalTransitions(vocab_size=256, state_dim=4)), SMALL, projections="zero"
    )
    plain = Transformer(SMALL)
    plain.backbone.load_state_dict(model.backbone.state_dict())
    assert torch.equal(model(tokens()), plain(tokens()))
    model(tokens()).square().sum().backward()
    assert model.injection.projections.weight.grad.abs().max() > 0  # and it can leave its start


def test_projections_are_kept_in_the_configuration(tmp_path):
    head = RationalHead(OrthogonalTransitions(vocab_size=256, state_dim=4))
    model = RationalTransductor(head, SMALL, projections="zero")
    assert load(save(model, tmp_path / "model")).config.projections == "zero"
    with pytest.raises(ValueError, match="projections must be one of 'linear', 'zero'; got 'one'"):
        RationalTransductor(head, SMALL, projections="one")


def moved(model):
    """Give the projections values, so that states matter."""
    with torch.no_grad():
        model.injection.projections.weight.normal_()
    return model.eval()


@torch.no_grad()
def test_streams_equal_the_parallel_pass():
    model = moved(GuidedTransformer(SMALL))
    whole = model(tokens())
    state, pieces = model.start(1), []
    for piece in tokens().split([1, 20, 1, 5, 45], 1):
        logits, state = model.advance(piece, state)
        pieces.append(logits)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_padding_and_documents():
    model = moved(GuidedTransformer(SMALL))
    row = tokens(TEXT[:30])
    alone = model(row)
    padded = torch.cat((torch.full((1, 5), 65), row), 1)
    mask = torch.tensor([[False] * 5 + [True] * 30])
    torch.testing.assert_close(model(padded, mask=mask)[:, 5:], alone, rtol=1e-4, atol=1e-4)
    packed = model(torch.cat((row, row), 1), cu_seqlens=torch.tensor([0, 30, 60]))
    torch.testing.assert_close(packed[:, 30:], alone, rtol=1e-4, atol=1e-4)


def test_chunks_walk_as_single_steps_do():
    generator = np.random.default_rng(0)
    machine = FrozenMachine(generator.integers(0, 7, (7, 5)), np.eye(7))
    letters = torch.from_numpy(generator.integers(0, 5, (3, 50)))
    nodes = torch.tensor([0, 3, 6])
    stepped = machine.walked(letters, nodes)
    assert torch.equal(machine.walked(letters, nodes, chunk=7), stepped)


def test_a_placebo_has_other_letters():
    model, placebo = GuidedTransformer(SMALL), GuidedTransformer(SMALL, permutation=0)
    assert not torch.equal(model.states(tokens(), Layout()), placebo.states(tokens(), Layout()))
    assert model.parameter_count() == placebo.parameter_count()


def test_saved_and_loaded(tmp_path):
    model = moved(GuidedTransformer(SMALL, permutation=3))
    again = load(save(model, tmp_path / "model"))
    assert again.config == model.config
    assert torch.equal(again(tokens()), model(tokens()))


def test_refusals():
    with pytest.raises(ValueError, match="backbone must read the 256 bytes"):
        GuidedTransformer(BackboneConfig(vocab_size=5, width=16))
    with pytest.raises(ValueError, match="machine must be one of 'python_lexing'"):
        GuidedTransformer(SMALL, "c_lexing")
