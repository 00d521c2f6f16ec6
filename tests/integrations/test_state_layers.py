"""The cache layer that holds the states of a head grows, is cropped, and keeps its address."""

from __future__ import annotations

import copy
import io

import pytest
import torch

pytest.importorskip("transformers")

from transformers import Cache, DynamicCache, StaticCache
from transformers.cache_utils import QuantizedLayer

from tests.comparison import assert_same
from tests.integrations.native_models import tiny_native
from tests.integrations.tiny_hosts import logits, some_tokens, tiny_host, with_head, with_sidecar
from transductor import RationalHead
from transductor.heads import FilterHead
from transductor.integrations.huggingface.sidecar import detach, sidecar_of
from transductor.integrations.huggingface.state_layers import StateLayer, StaticStateLayer
from transductor.transitions import CayleyTransitions, DenseTransitions, PermutationTransitions, PositiveTransitions

DIM = 3


def decoded(model, tokens, cache, prompt=4):
    """Return the logits of a prompt and of the following tokens one by one."""
    with torch.no_grad():
        parts = [model(tokens[:, :prompt], past_key_values=cache).logits]
        parts += [model(token, past_key_values=cache).logits for token in tokens[:, prompt:].split(1, 1)]
    return torch.cat(parts, 1)


def grown(rows=2, prompt=2, single=5):
    """Return a layer that got ``prompt`` states at once and ``single`` one by one, and these states."""
    states = torch.randn(rows, prompt + single, DIM)
    layer = StateLayer()
    layer.append(states[:, :prompt])
    for time in range(prompt, prompt + single):
        layer.append_one(states[:, time])
    return layer, states


class TestGrowing:
    @pytest.mark.parametrize("single", [0, 1, 5, 63, 64, 65, 200])
    def test_states_of_single_tokens_are_joined_when_asked_for(self, single):
        layer, states = grown(single=single)
        assert layer.get_seq_length() == 2 + single
        assert torch.equal(layer.previous(), states[:, -1])
        assert torch.equal(layer.keys[:, 0], states)
        assert layer.values.shape == (2, 1, 2 + single, 0)

    def test_few_wait(self):
        layer, _ = grown(single=200)
        assert len(layer._waiting) < 64

    def test_cropped_reordered_repeated_selected(self):
        layer, states = grown()
        layer.crop(-3)
        assert torch.equal(layer.previous(), states[:, -4])
        layer.append_one(states[:, 0])
        layer.reorder_cache(torch.tensor([1, 1]))
        assert torch.equal(layer.previous(), states[[1, 1], 0])
        layer.append_one(states[:, 1])
        layer.batch_repeat_interleave(2)
        assert torch.equal(layer.previous(), states[[0, 0, 1, 1], 1])
        layer.batch_select_indices(torch.tensor([3]))
        assert torch.equal(layer.previous(), states[[1], 1])
        assert layer.get_seq_length() == 6
        layer.crop(-6)
        assert not layer.begun

    def test_forgotten(self):
        layer, _ = grown()
        layer.keys = None
        assert not layer.begun
        assert layer.get_seq_length() == 0


def static_layer(model, cache, tokens):
    with torch.no_grad():
        model(tokens, past_key_values=cache)
    layer = cache.layers[-1]
    assert isinstance(layer, StaticStateLayer)
    return layer


HEADS = {
    "a rotation": lambda: RationalHead(CayleyTransitions(state_dim=DIM, vocab_size=64)),
    "its own parameters": lambda: RationalHead(DenseTransitions(state_dim=DIM, vocab_size=64)),
    "no parameters": lambda: RationalHead(PermutationTransitions(permutations=[(1, 2, 0), (1, 0, 2)] * 32)),
    "features": lambda: RationalHead(CayleyTransitions(state_dim=DIM, feature_dim=32)),
    "a filter": lambda: FilterHead(PositiveTransitions(state_dim=DIM, vocab_size=64)),
}


class TestStatic:
    @pytest.mark.parametrize("name", HEADS)
    def test_what_a_step_reads_stays_where_it_is(self, name):
        """A captured graph reads addresses, so after a reset new numbers are written to the old addresses."""
        model, tokens = with_head(tiny_host("llama"), HEADS[name]()), some_tokens(2, 12)
        cache = StaticCache(config=model.config, max_cache_len=12)
        layer = static_layer(model, cache, tokens[:, :4])
        places = [tensor.data_ptr() for tensor in (layer.keys, *layer.stepper.kept)]
        cache.reset()
        with torch.no_grad():
            for parameter in sidecar_of(model).rational_head.parameters():
                parameter.normal_()
        assert_same(decoded(model, tokens, cache), logits(model, tokens))
        assert [tensor.data_ptr() for tensor in (layer.keys, *layer.stepper.kept)] == places

    @pytest.mark.parametrize("name", HEADS)
    def test_no_parameter_is_written_to(self, name):
        """This holds even if a step reads a parameter itself, and the head is exchanged while the cache stays."""
        model, tokens = with_head(tiny_host("llama"), HEADS[name]()), some_tokens(1, 6)
        cache = StaticCache(config=model.config, max_cache_len=8)
        static_layer(model, cache, tokens)
        first = detach(model)
        before = {key: value.clone() for key, value in first.state_dict().items()}
        with_head(model, HEADS[name]())
        cache.reset()
        assert_same(decoded(model, tokens, cache), logits(model, tokens))
        assert all(torch.equal(value, before[key]) for key, value in first.state_dict().items())

    def test_a_head_of_another_kind_finds_places_of_its_own(self):
        model, tokens = with_head(tiny_host("llama"), HEADS["a rotation"]()), some_tokens(1, 8)
        cache = StaticCache(config=model.config, max_cache_len=8)
        static_layer(model, cache, tokens[:, :4])
        detach(model)
        with_head(model, HEADS["features"]())
        cache.reset()
        assert_same(decoded(model, tokens, cache), logits(model, tokens))

    def test_after_inference_mode(self):
        model, tokens = with_head(tiny_host("llama"), HEADS["a rotation"]()), some_tokens(1, 8)
        cache = StaticCache(config=model.config, max_cache_len=8)
        with torch.inference_mode():
            model(tokens[:, :4], past_key_values=cache)
        prepared = cache.layers[-1]
        prepared.begun = prepared.prepared = prepared.ready = (
            False  # a reset would write to the host's tensors, which is forbidden
        )
        prepared.prepare(sidecar_of(model).rational_head)
        assert not any(tensor.is_inference() for tensor in prepared.stepper.kept)

    def test_one_state_is_kept_and_rows_are_picked_in_place(self):
        model, tokens = with_sidecar("llama"), some_tokens(2, 9)
        cache = StaticCache(config=model.config, max_cache_len=9)
        layer = static_layer(model, cache, tokens)
        assert layer.keys.shape == (2, 1, 1, 6)
        kept, place = layer.keys.clone(), layer.keys.data_ptr()
        layer.reorder_cache(torch.tensor([1, 1]))
        assert torch.equal(layer.keys, kept[[1, 1]])
        assert layer.keys.data_ptr() == place

    @pytest.mark.parametrize("model_type", ["llama", "mistral", "gemma2"])
    def test_longer_than_a_window(self, model_type):
        model, tokens = with_sidecar(model_type), some_tokens(2, 30)
        cache = StaticCache(config=model.config, max_cache_len=30)
        assert_same(decoded(model, tokens, cache), logits(model, tokens))


def test_a_long_stream_is_the_parallel_pass():
    model, tokens = with_sidecar("llama"), some_tokens(2, 100)
    cache = DynamicCache(config=model.config)
    assert_same(decoded(model, tokens, cache), logits(model, tokens))
    assert cache.layers[-1].keys.shape == (2, 1, 100, 6)


def saved_and_loaded(cache):
    file = io.BytesIO()
    torch.save(cache, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.deepcopy, saved_and_loaded], ids=["copied", "saved"])
@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "native", *HEADS])
def test_a_prompt_computed_once_is_continued_twice(name, kind, again):
    """The cache and its copy are continued alternately, each with tokens of its own."""
    if name == "native":
        model = tiny_native(vocab_size=64)
    else:
        model = with_head(tiny_host("llama"), HEADS[name]()) if name in HEADS else with_sidecar(name)
    tokens, room = some_tokens(2, 20), {"config": model.config}
    other = torch.cat((tokens[:, :7], some_tokens(2, 13)), 1)
    cache = StaticCache(max_cache_len=20, **room) if kind == "static" else DynamicCache(**room)
    parts = [decoded(model, tokens[:, :7], cache)]
    twin, twins = again(cache), list(parts)
    with torch.no_grad():
        for time in range(7, 20):
            parts.append(model(tokens[:, time : time + 1], past_key_values=cache).logits)
            twins.append(model(other[:, time : time + 1], past_key_values=twin).logits)
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    assert_same(torch.cat(twins, 1), logits(model, other))


class Stream:
    """Stands for the stream of a device that this computer does not have."""

    def wait_stream(self, other):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass


def offloading(cache, monkeypatch):
    """Return the layers that a cache has offloaded; no layer may be updated while it is offloaded."""
    away, come_and_gone = set(), []
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: Stream())
    cache.offloading, cache.only_non_sliding, cache.prefetch_stream = True, True, Stream()

    def watch(layer):
        update = layer.update

        def updated(*arguments, **options):
            assert layer not in away
            return update(*arguments, **options)

        layer.update = updated
        layer.offload = lambda: away.add(layer) or come_and_gone.append(layer)
        layer.prefetch = lambda: away.discard(layer)

    for layer in cache.layers:
        watch(layer)
    return come_and_gone


@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "native"])
def test_a_cache_that_offloads_its_layers_fetches_the_first_again(name, kind, monkeypatch):
    """The states stay on the device; the prefetching of the other layers continues past them."""
    model = tiny_native(vocab_size=64) if name == "native" else with_sidecar(name)
    tokens, room = some_tokens(2, 15), {"config": model.config}
    cache = StaticCache(max_cache_len=15, **room) if kind == "static" else DynamicCache(**room)
    come_and_gone = offloading(cache, monkeypatch)
    assert_same(decoded(model, tokens, cache), logits(model, tokens))
    assert come_and_gone
    assert cache.layers[-1] not in come_and_gone


class RoundedLayer(QuantizedLayer):
    """Keeps keys and values in bfloat16, except the last few."""

    def _quantize(self, tensor, axis):
        return tensor.bfloat16()

    def _dequantize(self, tensor):
        return tensor.float()


@pytest.mark.parametrize("name", ["llama", "native"])
def test_beside_quantised_layers_states_are_exact(name):
    model = tiny_native(vocab_size=64) if name == "native" else with_sidecar(name)
    head = model.base_model.core.rational_head if name == "native" else sidecar_of(model).rational_head
    tokens = some_tokens(2, 20)
    cache = Cache(layers=[RoundedLayer(residual_length=4) for _ in range(2)])
    output = decoded(model, tokens, cache)
    assert_same(cache.layers[-1].keys[:, 0], head(tokens).detach())
    error = (output - logits(model, tokens)).abs().max()
    assert 0 < error < 0.05  # from the attention alone
