"""Training works with Hugging Face's own tools: resuming, activation checkpointing, compilation, adapters."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import Trainer, TrainingArguments

from tests.integrations.native_models import VOCABULARY, some_tokens, tiny_native
from transductor.integrations.huggingface import RationalTransductorForCausalLM, to_transductor


class Sentences(torch.utils.data.Dataset):
    """Sixty-four texts of one length."""

    def __init__(self):
        self.tokens = torch.randint(3, VOCABULARY, (64, 16), generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def trained(folder, *, resume=None, **settings):
    torch.manual_seed(0)
    model = tiny_native(hidden_dropout_prob=0.1)
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        save_strategy="steps",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **{"max_steps": 6, "save_steps": 3, **settings},
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Sentences())
    result = trainer.train(resume_from_checkpoint=resume)
    return model, result


def test_a_resumed_training_ends_bit_identical(tmp_path):
    whole, result = trained(tmp_path / "whole")
    assert result.training_loss < 3.2
    resumed, _ = trained(tmp_path / "resumed", resume=str(tmp_path / "whole" / "checkpoint-3"))
    for (name, left), right in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(left, right), name
    loaded = RationalTransductorForCausalLM.from_pretrained(tmp_path / "whole" / "checkpoint-6")
    tokens = some_tokens(2, 9)
    assert torch.equal(loaded(tokens).logits, whole.eval()(tokens).logits)


@pytest.mark.parametrize("settings", [{}, {"sliding_window": 5, "positions": "relative"}, {"attention": "none"}])
def test_gradients_are_those_of_the_core(settings):
    native = tiny_native(**settings)
    plain = to_transductor(native)
    tokens = some_tokens(2, 12)
    _, got = gradients(native, tokens)
    logits = plain(tokens)[:, :-1]
    torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:]).backward()
    for name, parameter in plain.named_parameters():
        twin = name.replace("backbone.readout", "lm_head") if "readout" in name else f"model.core.{name}"
        # Two kernels for attention, each with its own order of summation.
        torch.testing.assert_close(got[twin], parameter.grad, atol=1e-6, rtol=1e-3, msg=name)


def gradients(model, tokens):
    model.zero_grad()
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("settings", [{}, {"sliding_window": 5, "positions": "relative"}, {"attention": "none"}])
def test_checkpointed_gradients_are_the_same(settings, reentrant):
    model = tiny_native(**settings).train()
    tokens = some_tokens(2, 12)
    loss, wanted = gradients(model, tokens)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    again, got = gradients(model, tokens)
    assert torch.equal(loss, again)
    for name, gradient in wanted.items():
        assert gradient is not None, name
        torch.testing.assert_close(got[name], gradient, atol=1e-7, rtol=1e-5, msg=name)
    model.gradient_checkpointing_disable()
    assert not model.is_gradient_checkpointing


def test_trainer_checkpoints_activations(tmp_path):
    plain, _ = trained(tmp_path / "plain", max_steps=3)
    spared, _ = trained(tmp_path / "spared", max_steps=3, gradient_checkpointing=True)
    for (name, left), right in zip(plain.named_parameters(), spared.parameters(), strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-4, msg=name)


LENGTHS = (7, 9, 16, 23, 31, 40, 57, 64, 100, 129)


@pytest.mark.parametrize(
    ("settings", "packed"),
    [
        ({}, False),
        ({"sliding_window": 5, "positions": "relative"}, True),
        ({"attention": "none"}, False),
    ],
    ids=["full", "relative_window_packed", "no_attention"],
)
def test_one_graph_serves_ten_lengths(settings, packed):
    """Run forward and backward; a recompilation is an error."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = tiny_native(**settings)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for time in LENGTHS:
            tokens = some_tokens(1 if packed else 3, time)
            places = {"position_ids": (torch.arange(time) % 6)[None]} if packed else {}
            loss = compiled(tokens, labels=tokens, use_cache=False, **places).loss
            model.zero_grad()
            loss.backward()
            computed = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
            model.zero_grad()
            wanted = model(tokens, labels=tokens, use_cache=False, **places).loss
            wanted.backward()
            torch.testing.assert_close(loss, wanted, atol=1e-5, rtol=1e-5)
            for got, parameter in zip(computed, model.parameters(), strict=True):
                torch.testing.assert_close(got, parameter.grad, atol=1e-5, rtol=1e-3)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_traced_backward_pass_gives_the_same_gradients():
    """This runs all of the compiler except the last step, which generates code."""
    torch._dynamo.reset()
    model, tokens = tiny_native(num_hidden_layers=1, use_cache=False), some_tokens(3, 20)
    wanted_loss, wanted = gradients(model, tokens)
    model.zero_grad()
    loss = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")(tokens, labels=tokens).loss
    loss.backward()
    torch.testing.assert_close(loss.detach(), wanted_loss)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], atol=1e-6, rtol=1e-3, msg=name)


def test_a_copy_is_another_model():
    model, tokens = tiny_native(), some_tokens(2, 9)
    model(tokens, output_hidden_states=True)  # hooks are installed
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.model.core.rational_head.raw_initial_state.zero_()
    changed = twin(tokens, output_hidden_states=True)
    assert not torch.equal(changed.logits, model(tokens).logits)
    assert len(changed.hidden_states) == 3


def test_adapters_reach_the_backbone_and_the_projections():
    peft = pytest.importorskip("peft")
    model, tokens = tiny_native(), some_tokens(2, 9)
    with torch.no_grad():
        before = model(tokens).logits
    adapted = peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=2,
            target_modules=["query", "value", "projections"],
            modules_to_save=["rational_head"],
            task_type="CAUSAL_LM",
        ),
    )
    with torch.no_grad():
        torch.testing.assert_close(adapted(tokens).logits, before)
    adapted(tokens, labels=tokens).loss.backward()
    trained_names = {name for name, value in adapted.named_parameters() if value.grad is not None}
    for part in ("query.lora_B", "value.lora_B", "projections.lora_B", "rational_head.modules_to_save"):
        assert any(part in name for name in trained_names), part
    assert not any("feedforward" in name for name in trained_names)
