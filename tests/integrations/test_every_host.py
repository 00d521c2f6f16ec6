"""The same tests for the native model and for a sidecar on each of the twelve host models.

Graphs are counted with a backend that runs them as they are: what is compiled from a graph does not change how many
there are.
"""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from torch._dynamo.testing import CompileCounter
from transformers import StaticCache

from tests.comparison import assert_same
from tests.integrations import native_models, tiny_hosts
from tests.integrations.tiny_hosts import logits
from transductor.integrations.huggingface.host_models import HOSTS
from transductor.integrations.huggingface.sidecar import attach, sidecar_of
from transductor.integrations.huggingface.sidecar_storage import load_sidecar, save_sidecar

NATIVE = "native"
# Their own masks do not look at position_ids, so packed documents see each other with or without a sidecar.
WITHOUT_PACKING = {"opt"}


def head_of(model):
    return model.model.core.rational_head if is_native(model) else sidecar_of(model).rational_head


def projections_of(model):
    return (model.model.core if is_native(model) else sidecar_of(model)).injection.projections


def is_native(model):
    return model.config.model_type not in HOSTS


def generated(model, tokens, **options):
    return model.generate(tokens, max_new_tokens=8, do_sample=False, pad_token_id=0, **options)


def gradients(model):
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


@pytest.fixture(params=[NATIVE, *HOSTS])
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    """Return a model whose states change the output: see ``test_the_states_matter``."""
    if kind != NATIVE:
        return tiny_hosts.with_sidecar(kind)
    native = native_models.tiny_native()
    tiny_hosts.enlivened(projections_of(native))
    return native


@pytest.fixture
def tokens(model):
    return tiny_hosts.some_tokens(2, 14, model.config.vocab_size)


class TestEveryHost:
    def test_the_states_matter(self, model, tokens):
        before = logits(model, tokens)
        with torch.no_grad():
            head_of(model).raw_initial_state.neg_()
        assert (logits(model, tokens) - before).abs().max() > 0.05

    def test_projections_at_zero_change_nothing(self, kind, model, tokens):
        if kind == NATIVE:
            plain = native_models.tiny_native(injection="none")
            plain.load_state_dict(model.state_dict(), strict=False)
            torch.nn.init.zeros_(projections_of(model).weight)
        else:
            plain, model = tiny_hosts.tiny_host(kind), None
            model = copy.deepcopy(plain)
            attach(model, tiny_hosts.tiny_head())
        assert torch.equal(logits(model, tokens), logits(plain, tokens))
        assert torch.equal(generated(model, tokens), generated(plain, tokens))
        losses = []
        for each in (plain.train(), model.train()):
            torch.manual_seed(1)  # the same dropout
            losses.append(each(tokens, labels=tokens).loss)
        assert torch.equal(*losses)

    def test_cached_equals_parallel(self, model, tokens):
        cache, parts = None, []
        with torch.no_grad():
            for part in tokens.split([5, 1, 1, 6, 1], 1):
                out = model(part, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                parts.append(out.logits)
        assert_same(torch.cat(parts, 1), logits(model, tokens))

    def test_padding_left_and_right_and_none_are_one(self, model, tokens):
        expected = logits(model, tokens)
        nothing, real = torch.zeros(2, 3, dtype=torch.long), torch.ones_like(tokens)
        right = logits(model, torch.cat((tokens, nothing), 1), attention_mask=torch.cat((real, nothing), 1))
        assert_same(right[:, :14], expected)
        mask = torch.cat((nothing, real), 1)
        positions = (mask.cumsum(1) - 1).clamp_min(0)  # as `generate` numbers them
        left = logits(model, torch.cat((nothing, tokens), 1), attention_mask=mask, position_ids=positions)
        assert_same(left[:, 3:], expected)
        padded = generated(model, torch.cat((nothing, tokens), 1), attention_mask=mask)
        assert torch.equal(padded[:, 3:], generated(model, tokens, attention_mask=real))

    def test_beams_keep_their_states(self, model, tokens):
        assert torch.equal(
            generated(model, tokens, num_beams=3), generated(model, tokens, num_beams=3, use_cache=False)
        )

    def test_a_static_cache_holds_the_same(self, model, tokens):
        cache, parts = StaticCache(config=model.config, max_cache_len=20), []
        with torch.no_grad():
            for part in tokens.split([6, 1, 7], 1):
                parts.append(model(part, past_key_values=cache, use_cache=True).logits)
        assert_same(torch.cat(parts, 1), logits(model, tokens))
        assert torch.equal(generated(model, tokens, cache_implementation="static"), generated(model, tokens))

    def test_a_cache_goes_on_in_the_next_turn(self, model, tokens):
        """A conversation: the next call has the generated tokens and new ones."""
        text, cache = tokens[:1], None
        for new in tokens[1:].split(5, 1):
            text = torch.cat((text, new), 1)
            seen = torch.ones_like(text)
            answer = generated(model, text, attention_mask=seen, past_key_values=cache, return_dict_in_generate=True)
            assert torch.equal(answer.sequences, generated(model, text, attention_mask=seen))
            text, cache = answer.sequences, answer.past_key_values
            assert cache.get_seq_length() == text.shape[1] - 1

    def test_packed_documents_are_separate(self, kind, model, tokens):
        lengths = [5, 1, 8]
        positions = torch.cat([torch.arange(length) for length in lengths])[None]
        row = tokens[:1]
        expected = torch.cat([logits(model, part) for part in row.split(lengths, 1)], 1)
        if kind in WITHOUT_PACKING:
            bare = tiny_hosts.tiny_host(kind)
            apart = torch.cat([logits(bare, part) for part in row.split(lengths, 1)], 1)
            assert (logits(bare, row, position_ids=positions) - apart).abs().max() > 1e-3
            return
        assert_same(logits(model, row, position_ids=positions), expected)

    def test_saved_and_loaded(self, kind, model, tokens, tmp_path):
        expected = logits(model, tokens)
        if kind == NATIVE:
            model.save_pretrained(tmp_path)
            again = type(model).from_pretrained(tmp_path).eval()
        else:
            save_sidecar(model, tmp_path)
            again = tiny_hosts.tiny_host(kind)
            again.load_state_dict(
                {name: value for name, value in model.state_dict().items() if "rational_sidecar" not in name}
            )
            load_sidecar(again, tmp_path)
        assert torch.equal(logits(again, tokens), expected)

    def test_a_copy_is_a_model_of_its_own(self, model, tokens):
        twin = copy.deepcopy(model)
        assert torch.equal(logits(twin, tokens), logits(model, tokens))
        twin(tokens, labels=tokens).loss.backward()
        assert not gradients(model)
        computed = gradients(twin)
        assert computed.keys() == {name for name, _ in model.named_parameters()}
        for part in (head_of(twin), projections_of(twin)):
            assert all(value.grad.abs().max() > 0 for value in part.parameters())
        before = logits(model, tokens)
        with torch.no_grad():
            projections_of(twin).weight.zero_()
        assert torch.equal(logits(model, tokens), before)
        assert not torch.equal(logits(twin, tokens), before)

    def test_lora_and_states_learn_side_by_side(self, kind, model, tokens):
        expected = logits(model, tokens)
        own = ["rational_head", "injection"] if kind == NATIVE else ["rational_sidecar"]
        adapted = peft.get_peft_model(model, lora(kind, modules_to_save=own)).eval()
        assert torch.equal(logits(adapted, tokens), expected)
        check_learns_both(adapted, tokens)
        with torch.no_grad():
            for value in adapted.parameters():
                if value.requires_grad:
                    value.add_(0.02 * torch.randn_like(value))
            changed = logits(adapted, tokens)
        assert (changed - expected).abs().max() > 1e-3
        merged = adapted.merge_and_unload()
        assert_same(logits(merged, tokens), changed)

    def test_states_beside_a_model_with_lora(self, kind, tokens):
        if kind == NATIVE:
            pytest.skip("a native model has its head from the start")
        adapted = peft.get_peft_model(tiny_hosts.tiny_host(kind), lora(kind)).eval()
        before = logits(adapted, tokens)
        attach(adapted, tiny_hosts.tiny_head())
        assert torch.equal(logits(adapted, tokens), before)
        tiny_hosts.enlivened(sidecar_of(adapted).injection.projections)
        check_learns_both(adapted, tokens)

    def test_ten_lengths_are_one_graph(self, model):
        torch.compiler.reset()
        counter = CompileCounter()
        compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
        for length in range(9, 29, 2):
            tokens = tiny_hosts.some_tokens(2, length, model.config.vocab_size)
            assert_same(logits(compiled, tokens), logits(model, tokens))
        assert counter.frame_count == 1

    def test_guessed_tokens_can_be_taken_back(self, model, tokens):
        row = torch.cat((tokens[:1], tokens[:1]), 1)  # so that there is something to look up
        expected = generated(model, row)
        assert torch.equal(generated(model, row, prompt_lookup_num_tokens=3), expected)
        assistant = copy.deepcopy(model)
        with torch.no_grad():
            for value in assistant.parameters():
                value.add_(0.05 * torch.randn_like(value))  # so that it is wrong at times
        assert torch.equal(generated(model, row, assistant_model=assistant), expected)

    @pytest.mark.filterwarnings("ignore:.*different than your model's device")  # meta, says transformers 5.17
    @pytest.mark.parametrize("options", [{}, {"preload_module_classes": ["RationalHead"]}], ids=["each", "together"])
    def test_offloaded_weights_of_a_head_come_together(self, model, tokens, options):
        """Accelerate loads the weights of each module when it is called, and offloads them again."""
        accelerate = pytest.importorskip("accelerate")
        expected, text = logits(model, tokens), generated(model, tokens)
        away = accelerate.cpu_offload(model, execution_device=torch.device("cpu"), **options)
        if options:
            assert torch.allclose(logits(away, tokens), expected, atol=1e-6)
            assert torch.equal(generated(away, tokens), text)
            assert torch.equal(generated(away, tokens, cache_implementation="static"), text)
        else:
            with pytest.raises(ValueError, match=r"preload_module_classes=\['RationalHead'\]"):
                away(tokens)

    def test_a_cache_of_pages_is_refused(self, model, tokens):
        """Continuous batching would ask for the state of a token whose document began in another call."""
        with pytest.raises(ValueError, match=r"generate_batch is not supported .* use generate"):
            model(tokens, cache=object(), use_cache=False)

    def test_checkpointed_gradients_are_the_same(self, model, tokens):
        computed = []
        for each in (model.train(), copy.deepcopy(model).train()):
            if computed:
                each.gradient_checkpointing_enable()
            torch.manual_seed(1)  # the same dropout
            each(tokens, labels=tokens, use_cache=False).loss.backward()
            computed.append(gradients(each))
        assert computed[0].keys() == computed[1].keys()
        for name, value in computed[0].items():
            assert torch.equal(value, computed[1][name]), name


def lora(kind, **options):
    names = {"gpt2": ["c_attn"], "gpt_neox": ["query_key_value"], "phi3": ["qkv_proj"], NATIVE: ["query", "value"]}
    targets = names.get(kind, ["q_proj", "v_proj"])
    return peft.LoraConfig(r=2, target_modules=targets, fan_in_fan_out=kind == "gpt2", **options)


def check_learns_both(adapted, tokens):
    adapted(tokens, labels=tokens, use_cache=False).loss.backward()
    computed = gradients(adapted)
    for part in ("lora_B", "rational_head.", "projections"):
        reached = [name for name in computed if part in name and computed[name].abs().max() > 0]
        assert reached, f"no gradient reaches {part}"
    assert all("lora" in name or "rational" in name or "injection" in name for name in computed)
