"""In a model of half precision the head's states are those of float64, to 1e-4 of their size, after 8192 tokens."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import AutoModelForCausalLM, DynamicCache, Trainer, TrainingArguments

from tests.integrations.native_models import VOCABULARY, some_tokens, tiny_native
from transductor import RationalHead
from transductor.transitions import HouseholderTransitions, OrthogonalTransitions, StochasticTransitions

TIME = 8192
ALLOWED = 1e-4
FAMILIES = {
    "orthogonal": OrthogonalTransitions,
    "householder": HouseholderTransitions,
    "stochastic": StochasticTransitions,
}


@pytest.fixture(params=FAMILIES)
def model(request):
    family = FAMILIES[request.param](state_dim=32, vocab_size=VOCABULARY)
    return tiny_native(num_hidden_layers=1, num_attention_heads=2, hidden_size=16, head=RationalHead(family))


class Watch:
    """Records a head's output, and its distance from float64 relative to the largest state."""

    def __init__(self, model):
        self.head = model.base_model.core.rational_head
        self.exact = copy.deepcopy(self.head).double()
        self.seen = []
        self.hook = self.head.register_forward_hook(
            lambda module, inputs, states: self.seen.append((inputs[0], states))
        )

    def error(self):
        ((tokens, states),) = self.seen
        assert states.dtype == torch.float32
        assert tokens.shape[1] == TIME
        with torch.no_grad():
            wanted = self.exact(tokens)
        return float((states.detach().double() - wanted).abs().max() / wanted.abs().max())


@torch.no_grad()
def test_under_autocast(model):
    watch = Watch(model)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(some_tokens(1, TIME), use_cache=False).logits
    assert logits.dtype == torch.bfloat16
    assert watch.error() <= ALLOWED


@torch.no_grad()
def test_converted_to_bfloat16(model):
    watch = Watch(model)
    model.to(torch.bfloat16)
    assert model(some_tokens(1, TIME), use_cache=False).logits.dtype == torch.bfloat16
    assert watch.error() <= ALLOWED


@torch.no_grad()
def test_loaded_in_bfloat16(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    watch = Watch(loaded)
    watch.exact = Watch(model).exact
    assert loaded(some_tokens(1, TIME), use_cache=False).logits.dtype == torch.bfloat16
    assert watch.error() <= ALLOWED


@torch.no_grad()
def test_decoded_in_bfloat16(model):
    """States in the cache do not have the stream's precision either."""
    exact = copy.deepcopy(model.model.core.rational_head).double()
    model.to(torch.bfloat16)
    tokens = some_tokens(1, TIME)
    cache = DynamicCache(config=model.config)
    for part in tokens.split([TIME - 40, *[1] * 40], 1):
        model(part, past_key_values=cache)
    states = cache.layers[-1].keys[:, 0]
    wanted = exact(tokens)
    assert states.dtype == torch.float32
    assert float((states.double() - wanted).abs().max() / wanted.abs().max()) <= ALLOWED


def test_trained_by_trainer_in_bfloat16(model, tmp_path):
    tokens = some_tokens(1, TIME)[0]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=1,
        bf16=True,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    watch = Watch(model)
    before = copy.deepcopy(model.state_dict())
    Trainer(model=model, args=arguments, train_dataset=[{"input_ids": tokens, "labels": tokens}]).train()
    assert watch.error() <= ALLOWED
    moved = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    assert any("rational_head" in name for name in moved)
