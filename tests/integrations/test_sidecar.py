"""The sidecar: what is refused, what does not change, and what is trained."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytest.importorskip("accelerate")

from accelerate import dispatch_model
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from torch._dynamo.testing import CompileCounter
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    OPTModel,
    StaticCache,
    Trainer,
    TrainingArguments,
)

from tests.comparison import assert_same
from tests.integrations.tiny_hosts import (
    VOCABULARY,
    enlivened,
    in_steps,
    logits,
    some_tokens,
    tiny_head,
    tiny_host,
    with_sidecar,
)
from transductor import RationalHead, UniversalHead
from transductor.automata import regex
from transductor.compilation import compile_head
from transductor.heads import FilterHead, LookbackHead
from transductor.injection import DeepInjection
from transductor.integrations.huggingface.host_models import HOSTS, UnsupportedHost
from transductor.integrations.huggingface.sidecar import MODULE_NAME, attach, detach, head_for, sidecar_of
from transductor.integrations.huggingface.sidecar_storage import load_sidecar, save_sidecar
from transductor.transitions import CayleyTransitions, DenseTransitions, PositiveTransitions


def parity_head():
    """Return a frozen head in which token 5 swaps two states and all others change nothing."""
    return compile_head(regex("(b|ab*a)*", ("a", "b")))


def parity_classes():
    return (torch.arange(VOCABULARY) != 5).long()


class TestAttaching:
    def test_twice_is_refused(self):
        model = with_sidecar("llama")
        with pytest.raises(ValueError, match="has a sidecar already"):
            attach(model, tiny_head())

    @pytest.mark.parametrize(
        ("head", "classes", "message"),
        [
            (lambda: tiny_head(50), None, "head must have 64 letters"),
            (lambda: RationalHead(DenseTransitions(state_dim=3, feature_dim=16)), None, "features of dimension 32"),
            (parity_head, torch.zeros(50, dtype=torch.long), r"token_classes must have shape \(64,\)"),
            (parity_head, torch.full((64,), 2), r"token_classes must lie in \[0, 2\)"),
            (
                lambda: RationalHead(DenseTransitions(state_dim=3, feature_dim=32)),
                torch.zeros(64, dtype=torch.long),
                "token_classes must be None",
            ),
        ],
    )
    def test_a_head_that_does_not_fit_is_refused(self, head, classes, message):
        model = tiny_host("gpt2")
        with pytest.raises(ValueError, match=message):
            attach(model, head(), token_classes=classes)
        assert not hasattr(model.transformer, "rational_sidecar")

    def test_what_is_no_head_is_refused(self):
        with pytest.raises(TypeError, match="head must be a RationalHead"):
            attach(tiny_host("gpt2"), torch.nn.Linear(2, 2))
        with pytest.raises(TypeError, match="tensor of integers"):
            attach(tiny_host("gpt2"), parity_head(), token_classes=torch.zeros(64))

    @pytest.mark.parametrize("layers", [[], [2], [-1], [0, 0], "first"])
    def test_layers_that_are_not_there_are_refused(self, layers):
        with pytest.raises(ValueError, match="layers must be"):
            attach(tiny_host("gpt2"), tiny_head(), layers)

    @pytest.mark.parametrize("model_type", ["bloom", "falcon"])
    def test_hosts_without_a_way_in_are_refused(self, model_type):
        settings = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **settings))
        with pytest.raises(UnsupportedHost, match=f"'{model_type}' does not hand keyword arguments on.*gpt2, llama"):
            attach(model, tiny_head())

    def test_strangers_are_refused(self):
        settings = {"vocab_size": 64, "n_embd": 32, "n_head": 4, "n_layer": 1, "rotary_dim": 4}
        with pytest.raises(UnsupportedHost, match="'gptj' is none of the host models"):
            attach(AutoModelForCausalLM.from_config(AutoConfig.for_model("gptj", **settings)), tiny_head())
        with pytest.raises(TypeError, match="model must be a transformers model"):
            attach(torch.nn.Linear(2, 2), tiny_head())
        with pytest.raises(UnsupportedHost, match="add_cross_attention"):
            attach(tiny_host("gpt2", add_cross_attention=True), tiny_head())

    def test_a_host_without_numbers_is_refused(self):
        with torch.device("meta"):
            model = tiny_host("llama")
        with pytest.raises(ValueError, match="offloaded, or not loaded yet"):
            attach(model, tiny_head())

    def test_a_model_without_one_says_so(self):
        for act in (sidecar_of, detach):
            with pytest.raises(ValueError, match="model has no sidecar"):
                act(tiny_host("gpt2"))


@pytest.mark.parametrize("model_type", HOSTS)
def test_detaching_leaves_no_trace(model_type):
    model, tokens = tiny_host(model_type), some_tokens(2, 9)
    logits(model, tokens, output_hidden_states=True)  # transformers installs hooks of its own here

    def look():
        modules = dict(model.named_modules())
        hooks = {name: (*each._forward_pre_hooks, *each._forward_hooks) for name, each in modules.items()}
        grads = {name: value.requires_grad for name, value in model.named_parameters()}
        owned = {name: vars(each).keys() for name, each in modules.items() if name}
        return list(modules), hooks, list(model.state_dict()), grads, model.config.to_dict(), owned, vars(model).keys()

    before, expected = look(), logits(model, tokens)
    attach(model, tiny_head())
    enlivened(sidecar_of(model).injection.projections)
    assert not torch.equal(logits(model, tokens), expected)
    model.generate(tokens, max_new_tokens=2, do_sample=False, cache_implementation="static", pad_token_id=0)
    sidecar = detach(model)
    assert sidecar.rational_head.state_dim == 6
    after = look()
    assert after[:-1] == before[:-1]
    assert after[-1] - before[-1] <= {"_cache"}  # a static cache that `generate` keeps
    assert torch.equal(logits(model, tokens), expected)
    static = model.generate(tokens, max_new_tokens=4, do_sample=False, cache_implementation="static", pad_token_id=0)
    assert torch.equal(static, model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0))


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "opt", "gpt_neox"])
@pytest.mark.parametrize("automodel", [AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification])
def test_every_task(model_type, automodel):
    if model_type == "opt" and automodel is AutoModelForTokenClassification:
        pytest.skip("transformers has no such model")
    model, tokens = tiny_host(model_type, automodel), some_tokens(1, 9)
    with torch.no_grad():
        before = model(tokens)[0]
        attach(model, tiny_head())
        assert torch.equal(model(tokens)[0], before)
        enlivened(sidecar_of(model).injection.projections)
        assert (model(tokens)[0] - before).abs().max() > 1e-3


def test_a_bare_decoder_is_found_inside_its_model():
    model = OPTModel(tiny_host("opt").config)
    attach(model, tiny_head())
    assert model.decoder.rational_sidecar is sidecar_of(model.decoder) is sidecar_of(model)


def test_arguments_by_position_and_by_name_are_one():
    model, tokens = with_sidecar("gpt2"), some_tokens(2, 9)
    mask = torch.ones_like(tokens)
    mask[0, 6:] = 0
    with torch.no_grad():
        by_name = model(input_ids=tokens, attention_mask=mask).logits
        assert torch.equal(model(tokens, None, mask).logits, by_name)
        hidden = model.transformer(tokens, None, mask).last_hidden_state
    assert torch.equal(model.lm_head(hidden), by_name)


def test_a_cache_that_the_host_would_make_is_made():
    model, tokens = with_sidecar("mistral"), some_tokens(2, 12)
    with torch.no_grad():
        first = model(tokens[:, :7])  # use_cache comes from the configuration
        assert len(first.past_key_values.layers) == 3
        then = model(tokens[:, 7:], past_key_values=first.past_key_values)
    assert_same(torch.cat((first.logits, then.logits), 1), logits(model, tokens))


def test_copies_are_independent(tmp_path):
    model, tokens = with_sidecar("gpt2"), some_tokens(2, 9)
    expected = logits(model, tokens)
    torch.save(model, tmp_path / "whole.pt")
    others = [copy.deepcopy(model), torch.load(tmp_path / "whole.pt", weights_only=False)]
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    for other in others:
        assert torch.equal(logits(other, tokens), expected)
        detach(other)
        assert not torch.equal(logits(other, tokens), expected)


class TestReplacedForwards:
    """Accelerate replaces ``forward`` when it spreads a model over devices."""

    def test_attached_to_such_a_host(self):
        model, tokens = tiny_host("llama"), some_tokens(2, 9)
        before = logits(model, tokens)
        expected_model = copy.deepcopy(model)
        dispatch_model(model, {"": "cpu"}, main_device="cpu", force_hooks=True)
        assert "forward" in vars(model.model.layers[0])
        head = tiny_head()
        for each in (model, expected_model):
            attach(each, copy.deepcopy(head))
            torch.nn.init.ones_(sidecar_of(each).injection.projections.weight)
        assert torch.equal(logits(model, tokens), logits(expected_model, tokens))
        assert not torch.equal(logits(model, tokens), before)
        detach(model)
        assert torch.equal(logits(model, tokens), before)
        assert "forward" in vars(model.model.layers[0])

    def test_put_there_afterwards(self):
        model, tokens = with_sidecar("llama"), some_tokens(2, 9)
        expected = logits(model, tokens)
        add_hook_to_module(model.model.layers[1], ModelHook())
        assert torch.equal(logits(model, tokens), expected)
        detach(model)
        bare = logits(model, tokens)
        remove_hook_from_module(model.model.layers[1])
        assert torch.equal(logits(model, tokens), bare)
        assert not torch.equal(bare, expected)

    def test_taken_away_while_attached(self):
        model, tokens = tiny_host("llama"), some_tokens(2, 9)
        add_hook_to_module(model.model.layers[1], ModelHook())
        enlivened(attach(model, tiny_head()).injection.projections)
        expected = logits(model, tokens)
        remove_hook_from_module(model.model.layers[1])
        assert torch.equal(logits(model, tokens), expected)


def test_some_layers():
    model, tokens = tiny_host("llama", num_hidden_layers=3), some_tokens(2, 9)
    sidecar = attach(model, tiny_head(), [2, 0])
    assert sidecar.layers == (0, 2)
    assert sidecar.injection.projections.out_features == 2 * 32
    enlivened(sidecar.injection.projections)
    with torch.no_grad():
        before = model(tokens, output_hidden_states=True).hidden_states
        sidecar.injection.projections.weight[32:].zero_()
        after = model(tokens, output_hidden_states=True).hidden_states
    assert torch.equal(before[2], after[2])  # the output of layer 1 does not depend on layer 2
    assert not torch.equal(before[3], after[3])
    assert_same(in_steps(model, tokens), logits(model, tokens))


@pytest.mark.parametrize(
    "build",
    [
        lambda: LookbackHead(CayleyTransitions(state_dim=4, vocab_size=VOCABULARY, init_scale=1.0)),
        lambda: UniversalHead(vocab_size=VOCABULARY, orthogonal_dim=4, stochastic_dim=3),
        lambda: FilterHead(PositiveTransitions(state_dim=4, vocab_size=VOCABULARY)),
    ],
    ids=["lookback", "universal", "filter"],
)
def test_other_heads(build):
    model, tokens = tiny_host("qwen2"), some_tokens(2, 11)
    enlivened(attach(model, build()).injection.projections)
    assert_same(in_steps(model, tokens), logits(model, tokens))


class TestFeatures:
    """A head that reads the host model's input embeddings."""

    @pytest.mark.parametrize("model_type", ["gpt2", "gemma2", "opt"])  # plain; scaled; projected afterwards
    def test_tokens_and_their_embeddings_are_one(self, model_type):
        options = {"word_embed_proj_dim": 16} if model_type == "opt" else {}
        model, tokens = tiny_host(model_type, **options), some_tokens(2, 9)
        bare = logits(model, tokens)
        sidecar = attach(model, head_for(model, state_dim=5))
        assert torch.equal(logits(model, tokens), bare)
        enlivened(sidecar.injection.projections)
        expected = logits(model, tokens)
        assert (expected - bare).abs().max() > 1e-3
        embedded = model.get_input_embeddings()(tokens)
        assert torch.equal(logits(model, None, inputs_embeds=embedded), expected)
        assert_same(in_steps(model, tokens), expected)
        greedy = model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
        uncached = model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0, use_cache=False)
        assert torch.equal(greedy, uncached)

    def test_tokens_are_needed_where_the_head_reads_tokens(self):
        model = with_sidecar("gpt2")
        with pytest.raises(ValueError, match=r"input_ids must be given.*head_for"):
            model(inputs_embeds=torch.randn(1, 4, 32))

    def test_few_numbers_whatever_the_vocabulary(self):
        model = tiny_host("gpt2", vocab_size=1000)
        count = sum(value.numel() for value in head_for(model, state_dim=8).parameters())
        assert count == 28 * (32 + 1) + 8  # an affine map to the angles of a rotation, and the initial state
        with pytest.raises(ValueError, match="family must be one of"):
            head_for(model, family="wavelet")


class TestFrozen:
    """A compiled head is exact and is not changed when the rest is trained."""

    def attached(self):
        model = tiny_host("gpt2")
        sidecar = attach(model, parity_head(), token_classes=parity_classes())
        enlivened(sidecar.injection.projections)
        return model

    def test_it_counts(self):
        model, tokens = self.attached(), some_tokens(2, 40)
        head, classes = sidecar_of(model).rational_head, sidecar_of(model).token_classes
        states = head(classes[tokens])
        assert torch.equal(states.argmax(-1), (tokens == 5).cumsum(1) % 2)
        assert_same(in_steps(model, tokens), logits(model, tokens))

    def test_nobody_can_train_it(self):
        frozen_head = parity_head()
        model = tiny_host("gpt2")
        sidecar = attach(model, frozen_head, token_classes=parity_classes())
        assert [name for name, _ in sidecar.named_parameters()] == ["injection.projections.weight"]
        assert list(frozen_head.parameters())  # the original head is unchanged
        adapted = peft.get_peft_model(
            model,
            peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True, modules_to_save=["rational_sidecar"]),
        )
        trained = {name for name, value in adapted.named_parameters() if value.requires_grad}
        assert not [name for name in trained if "rational_head" in name]
        assert [name for name in trained if "projections" in name]

    def test_it_is_frozen_when_it_comes_back(self, tmp_path):
        model, tokens = self.attached(), some_tokens(2, 9)
        save_sidecar(model, tmp_path)
        again = copy.deepcopy(model)
        detach(again)
        load_sidecar(again, tmp_path)
        assert torch.equal(logits(again, tokens), logits(model, tokens))
        assert [name for name, _ in sidecar_of(again).named_parameters()] == ["injection.projections.weight"]


class TestPrecision:
    def test_a_bfloat16_host_has_a_float32_head(self):
        model, tokens = tiny_host("llama").to(torch.bfloat16), some_tokens(2, 30)
        before = logits(model, tokens)
        sidecar = attach(model, tiny_head())
        assert torch.equal(logits(model, tokens), before)
        assert {value.dtype for value in sidecar.rational_head.parameters()} == {torch.float32}
        assert sidecar.injection.projections.weight.dtype == torch.bfloat16
        enlivened(sidecar.injection.projections)
        assert logits(model, tokens).dtype == torch.bfloat16
        with torch.no_grad():
            cache = model(tokens, use_cache=True).past_key_values
            expected = copy.deepcopy(sidecar.rational_head).double()(tokens)
        computed = cache.layers[-1].keys[:, 0]
        assert computed.dtype == torch.float32
        assert_same(computed, expected.float())

    def test_moving_afterwards_keeps_the_head(self):
        model = with_sidecar("gpt2").to(torch.bfloat16)
        assert sidecar_of(model).rational_head.raw_initial_state.dtype == torch.float32
        assert logits(model, some_tokens(1, 5)).dtype == torch.bfloat16

    def test_autocast(self):
        model, tokens = with_sidecar("gpt2"), some_tokens(2, 9)
        with torch.autocast("cpu", torch.bfloat16):
            computed, stepped = logits(model, tokens), in_steps(model, tokens)
        assert_same(computed, logits(model, tokens).bfloat16(), dtype=torch.bfloat16)
        assert_same(stepped, computed, dtype=torch.bfloat16)

    def test_a_term_follows_the_stream_to_its_device(self):
        inject = DeepInjection(3, 4, 2).into(torch.randn(1, 5, 3))
        assert inject(1, torch.empty(1, 5, 4, device="meta")).device.type == "meta"


def test_dropped_layers_keep_their_own_projection():
    """OPT may skip layers in training; a skipped layer's term is skipped too."""
    model, tokens = with_sidecar("opt", layerdrop=0.5, dropout=0.0), some_tokens(2, 9)
    weight = sidecar_of(model).injection.projections.weight
    skipped = set()
    for seed in range(8):
        weight.grad = None
        torch.manual_seed(seed)
        model.train()(tokens, labels=tokens).loss.backward()
        if weight.grad is not None:  # None when both were skipped
            skipped.add(tuple(bool(part.abs().max() == 0) for part in weight.grad.split(32)))
    assert {(True, False), (False, True)} <= skipped


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_gradients_are_the_same(reentrant):
    """A term is added before its layer is called, so even the re-entrant kind sees it as an input."""
    model, tokens = with_sidecar("llama").train(), some_tokens(2, 9)
    model(tokens, labels=tokens).loss.backward()
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient.abs().max() > 0 for name, gradient in wanted.items() if MODULE_NAME in name)
    model.zero_grad()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model(tokens, labels=tokens).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], atol=1e-7, rtol=1e-5, msg=name)


def test_a_layer_is_of_its_class_all_the_while():
    model = tiny_host("llama")
    layers, its_class, before = model.model.layers, type(model.model.layers[0]), vars(model.model.layers[0]).copy()
    attach(model, tiny_head())
    assert all(isinstance(layer, its_class) and type(layer).__name__ == its_class.__name__ for layer in layers)
    assert type(layers[0]) is type(layers[1]) is not its_class
    detach(model)
    assert all(type(layer) is its_class for layer in layers)
    assert vars(layers[0]).keys() == before.keys()


def test_a_reset_cache_knows_the_new_parameters():
    """``generate`` keeps a static cache and uses it again; what was prepared for old parameters must not survive."""
    model, tokens = with_sidecar("llama"), some_tokens(1, 6)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    model.generate(tokens, cache_implementation="static", **options)
    cache = StaticCache(config=model.config, max_cache_len=12)
    for _ in range(2):
        with torch.no_grad():
            model(tokens[:, :3], past_key_values=cache)
            model(tokens[:, 3:4], past_key_values=cache)
            sidecar_of(model).rational_head.transitions.source.raw.normal_()
        cache.reset()
    with torch.no_grad():
        parts = [model(part, past_key_values=cache).logits for part in tokens.split([3, 1, 1, 1], 1)]
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    static = model.generate(tokens, cache_implementation="static", **options)
    assert torch.equal(static, model.generate(tokens, **options))


def test_decoding_with_a_static_cache_is_one_graph():
    model, tokens = with_sidecar("llama"), some_tokens(1, 12)
    cache, counter = StaticCache(config=model.config, max_cache_len=16), CompileCounter()
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        parts = [model(tokens[:, :4], past_key_values=cache, use_cache=True).logits]
        for time in range(4, 12):
            where = torch.tensor([[time]])
            out = compiled(tokens[:, time : time + 1], past_key_values=cache, use_cache=True, position_ids=where)
            parts.append(out.logits)
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    assert counter.frame_count <= 2  # the first step also prepares the stepper


class TestTraining:
    def test_the_trainer_moves_what_may_move(self, tmp_path):
        model = tiny_host("gpt2").requires_grad_(False)
        attach(model, tiny_head())
        enlivened(sidecar_of(model).injection.projections)
        before = copy.deepcopy(model.state_dict())
        rows = [{"input_ids": row, "labels": row} for row in some_tokens(16, 10)]
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            max_steps=4,
            learning_rate=0.01,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        Trainer(model=model, args=arguments, train_dataset=rows).train()
        moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
        assert moved == {name for name in before if "rational_sidecar" in name}

    def test_zero_projections_learn(self):
        """At zero, the projections have a gradient and the head has none; after a step, both have."""
        model, tokens = tiny_host("llama"), some_tokens(2, 9)
        sidecar = attach(model, tiny_head())
        optimiser = torch.optim.SGD(sidecar.parameters(), 0.1)
        model(tokens, labels=tokens).loss.backward()
        assert sidecar.rational_head.raw_initial_state.grad.abs().max() == 0
        optimiser.step()
        model(tokens, labels=tokens).loss.backward()
        assert sidecar.rational_head.raw_initial_state.grad.abs().max() > 0
