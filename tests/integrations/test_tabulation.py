"""A head over embeddings can be turned into one over tokens."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from tests.comparison import assert_same
from tests.integrations.tiny_hosts import VOCABULARY, enlivened, in_steps, logits, some_tokens, tiny_head, tiny_host
from transductor.heads import LookbackHead
from transductor.integrations.huggingface import (
    attach,
    detach,
    head_for,
    load_sidecar,
    save_sidecar,
    sidecar_of,
    tabulate,
)
from transductor.transitions import CayleyTransitions


def over_embeddings(name="gpt2", layers="all"):
    torch.manual_seed(3)
    model = tiny_host(name).eval()
    sidecar = attach(model, head_for(model, state_dim=6), layers)
    torch.nn.init.normal_(sidecar.rational_head.transitions.source.projection.weight)
    enlivened(sidecar.injection.projections)
    return model


@pytest.mark.parametrize("name", ["gpt2", "gemma3_text", "opt"])  # the second scales its embeddings
def test_the_states_stay_what_they_were(name):
    model, tokens = over_embeddings(name), some_tokens(2, 9)
    expected = logits(model, tokens)
    bare = model.__class__(model.config).eval()
    made = tabulate(model)
    assert made is sidecar_of(model)
    assert not made.reads_features
    assert_same(logits(model, tokens), expected)
    assert_same(in_steps(model, tokens), expected)
    detach(model)
    bare.load_state_dict(model.state_dict())
    assert torch.equal(logits(model, tokens), logits(bare, tokens))
    assert not torch.allclose(logits(model, tokens), expected)


def test_the_table_is_fixed_and_the_projections_are_not():
    model, tokens = over_embeddings(layers=[1]), some_tokens(2, 9)
    before = sidecar_of(model)
    made = tabulate(model)
    assert made.layers == (1,)
    assert made.injection is before.injection
    assert [name for name, _ in made.named_parameters()] == ["injection.projections.weight"]
    assert made.rational_head.transitions.table().shape == (VOCABULARY, 6, 6)
    model.train()(tokens, labels=tokens).loss.backward()
    assert made.injection.projections.weight.grad.abs().max() > 0


def test_precision_and_storage(tmp_path):
    model, tokens = over_embeddings().to(torch.bfloat16), some_tokens(2, 9)
    expected = logits(model, tokens)
    tabulate(model)
    assert sidecar_of(model).rational_head.raw_initial_state.dtype == torch.float32
    assert_same(logits(model, tokens), expected, dtype=torch.bfloat16)
    save_sidecar(model, tmp_path / "sidecar")
    wanted = logits(model, tokens)
    detach(model)
    load_sidecar(model, tmp_path / "sidecar")
    assert torch.equal(logits(model, tokens), wanted)


def test_refusals():
    model = tiny_host("gpt2")
    with pytest.raises(ValueError, match="has no sidecar"):
        tabulate(model)
    attach(model, tiny_head())
    with pytest.raises(ValueError, match="reads tokens already"):
        tabulate(model)
    detach(model)
    width = model.get_input_embeddings().weight.shape[1]
    attach(model, LookbackHead(CayleyTransitions(state_dim=4, feature_dim=width)))
    with pytest.raises(TypeError, match="got LookbackHead"):
        tabulate(model)
    assert sidecar_of(model).reads_features  # nothing was lost
