"""Decoding with one kernel gives the same numbers as plain steps, whatever happens to cache and model.

Without a GPU the kernel is run by Triton's interpreter.
"""

from __future__ import annotations

import copy
import threading

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("triton")

from transformers import DynamicCache

from tests.comparison import assert_same
from tests.integrations.tiny_hosts import (
    by_embeddings,
    logits,
    some_tokens,
    tiny_head,
    tiny_host,
    with_head,
    with_sidecar,
)
from transductor import RationalHead
from transductor.automata import regex
from transductor.compilation import compile_head
from transductor.integrations.huggingface import sidecar, state_layers, tabulate
from transductor.integrations.huggingface.host_models import HOSTS, host_of
from transductor.integrations.huggingface.sidecar import attach, detach, install, sidecar_of
from transductor.kernels.gpu.decoding import TokenDecoder
from transductor.transitions import FAMILIES, DenseTransitions, SharedBasisTransitions

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GREEDY = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    """Count the tokens that the kernel decodes, by one entry each."""
    for module in ("kernels.gpu.decoding", "integrations.huggingface.state_layers"):
        monkeypatch.setattr(f"transductor.{module}.runs_on", lambda device: True)
    calls, plain = [], TokenDecoder.__call__
    monkeypatch.setattr(TokenDecoder, "__call__", lambda *arguments: calls.append(1) or plain(*arguments))
    return calls


def tabulated():
    model = by_embeddings("llama")
    tabulate(model)
    return model


def of_llama(family):
    return with_head(tiny_host("llama"), RationalHead(family))


def compiled_from(pattern):
    head = compile_head(regex(pattern, ("a", "b")))
    return with_head(tiny_host("llama"), head, token_classes=(torch.arange(64) % 3 == 0).long())


SUBJECTS = {
    "tabulated": tabulated,
    "permutations": lambda: compiled_from("(b|ab*a)*"),
    "classes": lambda: compiled_from("a*b"),
    "its own parameters": lambda: of_llama(DenseTransitions(state_dim=3, vocab_size=64)),
    "shared basis": lambda: of_llama(SharedBasisTransitions(state_dim=3, vocab_size=64)),
    "two layers of three": lambda: with_head(tiny_host("gpt2", num_hidden_layers=3), tiny_head(), layers=[0, 2]),
    "bfloat16": lambda: with_sidecar("llama").to(torch.bfloat16),
} | {name: lambda name=name: with_sidecar(name) for name in HOSTS}


def built(name):
    return SUBJECTS[name]().to(DEVICE)


def tokens_of(rows, time):
    return some_tokens(rows, time).to(DEVICE)


def begun(model, tokens):
    """Return a cache, and the logits of its prompt."""
    cache = DynamicCache(config=model.config)
    return cache, [called(model, tokens, cache)]


@torch.no_grad()
def called(model, tokens, cache):
    return model(tokens, past_key_values=cache, use_cache=True).logits


def decoded(model, tokens, cache):
    return [called(model, token, cache) for token in tokens.split(1, 1)]


@pytest.mark.parametrize("name", SUBJECTS)
def test_decoding_is_the_parallel_pass(name, fused):
    model, tokens = built(name), tokens_of(2, 24)
    cache, parts = begun(model, tokens[:, :9])
    parts += decoded(model, tokens[:, 9:], cache)
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    assert len(fused) == 14  # the head itself takes the first step and prepares the kernel
    assert parts[0].dtype == parts[-1].dtype


@pytest.mark.parametrize("drive", [{"vocab_size": 64}, {"feature_dim": 32}], ids=["tokens", "features"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name, drive, fused):
    if name == "permutation" and "feature_dim" in drive:
        pytest.skip("has no features")
    family = FAMILIES[name](state_dim=4, **drive)
    model, tokens = of_llama(family).to(DEVICE), tokens_of(2, 10)
    cache, parts = begun(model, tokens[:, :5])
    parts += decoded(model, tokens[:, 5:], cache)
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    assert len(fused) == (4 if "vocab_size" in drive else 0)


@pytest.mark.parametrize("name", ["classes", "gpt2", "mistral", "gemma2"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_beams": 3},
        {"num_beams": 2, "num_return_sequences": 2},
        {"prompt_lookup_num_tokens": 3},
        {"do_sample": True, "num_return_sequences": 3},
    ],
    ids=str,
)
def test_generate_is_that_of_plain_steps(name, how, monkeypatch, fused):
    model, tokens = built(name), tokens_of(1, 7)
    options = {"max_new_tokens": 12} | GREEDY | how
    torch.manual_seed(3)
    output = model.generate(tokens, **options)
    assert fused
    monkeypatch.setattr(sidecar, "fused_terms", lambda *arguments: None)
    torch.manual_seed(3)
    assert torch.equal(output, model.generate(tokens, **options))


def test_left_padded_rows():
    model, tokens = built("llama"), tokens_of(2, 12)
    mask = torch.ones_like(tokens)
    mask[0, :4] = 0
    output = model.generate(tokens, attention_mask=mask, max_new_tokens=15, **GREEDY)
    alone = model.generate(tokens[:1, 4:], max_new_tokens=15, **GREEDY)
    assert torch.equal(output[:1, 4:], alone)


def test_cropped_and_chunked():
    """Assisted decoding reads some tokens at once and takes some of them back."""
    model, tokens = built("llama"), tokens_of(2, 40)
    cache, parts = begun(model, tokens[:, :9])
    parts += decoded(model, tokens[:, 9:14], cache)
    decoded(model, tokens[:, :3], cache)
    cache.crop(-3)
    parts += [called(model, tokens[:, 14:17], cache), called(model, tokens[:, 17:27], cache)]
    parts += decoded(model, tokens[:, 27:], cache)
    assert_same(torch.cat(parts, 1), logits(model, tokens))


@pytest.mark.filterwarnings("ignore:.*autocast")
def test_plain_steps_between():
    """With gradient, or under autocast, the kernel is not used."""
    model, tokens = built("llama"), tokens_of(2, 30)
    cache, parts = begun(model, tokens[:, :9])
    parts += decoded(model, tokens[:, 9:12], cache)
    parts.append(model(tokens[:, 12:13], past_key_values=cache).logits.detach())
    parts += decoded(model, tokens[:, 13:15], cache)
    with torch.autocast(DEVICE, torch.bfloat16):
        called(model, tokens[:, 15:16], cache)
    assert cache.layers[-1].get_seq_length() == 16
    cache.crop(-1)
    parts += decoded(model, tokens[:, 15:], cache)
    assert_same(torch.cat(parts, 1), logits(model, tokens))


def test_rows_come_and_go():
    model, tokens = built("llama"), tokens_of(3, 20)
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:12], cache)
    cache.reorder_cache(torch.tensor([2, 0, 1], device=DEVICE))
    tokens = tokens[[2, 0, 1]]
    decoded(model, tokens[:, 12:14], cache)
    cache.batch_select_indices(torch.tensor([0, 2], device=DEVICE))
    tokens = tokens[[0, 2]]
    rest = decoded(model, tokens[:, 14:], cache)
    assert_same(torch.cat(rest, 1), logits(model, tokens)[:, 14:])


def test_caches_by_turns():
    model, tokens = built("llama"), tokens_of(4, 20)
    streams = [(begun(model, row[None, :5]), row[None]) for row in tokens]
    for time in range(5, 20):
        for (cache, parts), row in streams:
            parts.append(called(model, row[:, time : time + 1], cache))
    for (_, parts), row in streams:
        assert_same(torch.cat(parts, 1), logits(model, row))


@pytest.mark.skipif(DEVICE == "cpu", reason="Triton's interpreter knows one thread only")
def test_threads():
    model, tokens = built("llama"), tokens_of(4, 60)
    expected, output = logits(model, tokens), {}

    def decode(number):
        row = tokens[number : number + 1]
        cache, parts = begun(model, row[:, :5])
        output[number] = torch.cat(parts + decoded(model, row[:, 5:], cache), 1)

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(torch.cat([output[number] for number in range(4)]), expected)


def test_a_copied_cache_goes_its_own_way():
    """A prompt is computed once and continued twice."""
    model, tokens = built("llama"), tokens_of(2, 20)
    other = tokens.clone()
    other[:, 12:] = tokens_of(2, 8)
    cache, parts = begun(model, tokens[:, :9])
    parts += decoded(model, tokens[:, 9:12], cache)
    twin, twins = copy.deepcopy(cache), list(parts)
    for time in range(12, 20):
        parts += decoded(model, tokens[:, time : time + 1], cache)
        twins += decoded(model, other[:, time : time + 1], twin)
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    assert_same(torch.cat(twins, 1), logits(model, other))


@pytest.mark.parametrize("how", ["dtype", "weights", "classes"])
def test_a_sidecar_that_changes_in_the_middle(how, fused):
    """Projections may be converted or replaced, and letters may change: each token uses the current ones."""
    model, tokens = built("classes"), tokens_of(1, 16)
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:12], cache)
    attached = sidecar_of(model)
    twin, other = copy.deepcopy(model), copy.deepcopy(cache)
    for one in (attached, sidecar_of(twin)):
        if how == "dtype":
            one.injection.double()
        elif how == "weights":
            one.injection.projections.weight = torch.nn.Parameter(one.injection.projections.weight * 2)
        else:
            one.token_classes = 1 - one.token_classes
    output = decoded(model, tokens[:, 12:], cache)
    sidecar_of(twin).injection.projections.register_forward_pre_hook(lambda *arguments: None)  # plain operations
    assert len(fused) == 6
    assert_same(torch.cat(output, 1), torch.cat(decoded(twin, tokens[:, 12:], other), 1))
    assert len(fused) == 6


@pytest.mark.parametrize("name", ["llama", "its own parameters", "shared basis", "permutations"])
def test_a_new_cache_has_the_parameters_of_its_beginning(name):
    model, tokens = built(name), tokens_of(2, 14)
    for _ in range(2):
        cache, parts = begun(model, tokens[:, :9])
        parts += decoded(model, tokens[:, 9:], cache)
        assert_same(torch.cat(parts, 1), logits(model, tokens))
        with torch.no_grad():
            for parameter in sidecar_of(model).parameters():
                parameter.normal_(std=0.3)


def test_another_sidecar_in_the_middle():
    """Another head does not fit the old states, but no term of the old sidecar may be added and no state lost."""
    model, tokens = built("llama"), tokens_of(1, 20)
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:12], cache)
    first = detach(model)
    attach(model, tiny_head().to(DEVICE))  # projections are zero
    output = decoded(model, tokens[:, 12:14], cache)
    detach(model)
    install(host_of(model), first)
    decoded(model, tokens[:, 14:17], cache)
    kept = cache.layers[-1].keys
    assert kept.shape[-2] == 17
    assert_same(kept[:, 0, :12], first.rational_head(tokens[:, :12]).detach())
    detach(model)
    cache.crop(-5)
    assert_same(torch.cat(output, 1), torch.cat(decoded(model, tokens[:, 12:14], cache), 1))


def test_a_cache_that_begins_again():
    model, tokens = built("llama"), tokens_of(1, 20)
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:12], cache)
    cache.crop(-12)
    with torch.no_grad():
        for parameter in sidecar_of(model).rational_head.parameters():
            parameter.normal_()
    cache.layers[-1].reset()
    parts = [called(model, tokens[:, :9], cache), *decoded(model, tokens[:, 9:], cache)]
    assert_same(torch.cat(parts, 1), logits(model, tokens))


@pytest.mark.parametrize("first", [True, False])
def test_inference_mode_and_back(first):
    model, tokens = built("llama"), tokens_of(1, 20)
    for inference in (first, not first, first):
        with torch.inference_mode(inference):
            cache, parts = begun(model, tokens[:, :9])
            parts += decoded(model, tokens[:, 9:], cache)
            assert_same(torch.cat(parts, 1), logits(model, tokens))


def test_a_wider_sidecar_in_the_middle_is_no_crash():
    """Its projections do not fit the states of the cache: torch raises, and the kernel does not read past the end."""
    model, tokens = built("llama"), tokens_of(1, 20)
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:12], cache)
    detach(model)
    attach(model, RationalHead(DenseTransitions(state_dim=9, vocab_size=64)).to(DEVICE))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        decoded(model, tokens[:, 12:13], cache)


def test_a_hook_on_the_sidecar_is_called(fused):
    model, tokens, calls = built("llama"), tokens_of(1, 12), []
    sidecar_of(model).register_forward_pre_hook(lambda *arguments: calls.append(1))
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:], cache)
    assert (len(calls), len(fused)) == (4, 2)


class TestWhoIsNotFused:
    def decoding(self, model):
        tokens = tokens_of(1, 12)
        cache, parts = begun(model, tokens[:, :9])
        parts += decoded(model, tokens[:, 9:], cache)
        assert_same(torch.cat(parts, 1), logits(model, tokens))

    def test_who_reads_embeddings(self, fused):
        self.decoding(by_embeddings("llama").to(DEVICE))
        assert not fused

    def test_whose_projections_are_looked_at(self, fused):
        """A hook is called at every token."""
        model, calls = built("llama"), []
        projections = sidecar_of(model).injection.projections
        handle = projections.register_forward_pre_hook(lambda *arguments: calls.append(1))
        self.decoding(model)
        assert len(calls) == 5  # a prompt, three tokens, the parallel pass
        assert not fused
        handle.remove()
        self.decoding(model)
        assert len(fused) == 2

    def test_whose_projections_are_replaced(self, fused):
        """Accelerate does this to load the weights where they are needed."""
        accelerate = pytest.importorskip("accelerate.hooks")
        model = built("llama")
        accelerate.add_hook_to_module(sidecar_of(model).injection.projections, accelerate.ModelHook())
        self.decoding(model)
        assert not fused

    def test_whose_projections_are_wrapped(self, fused):
        peft = pytest.importorskip("peft")
        model = built("llama")
        config = peft.LoraConfig(r=2, target_modules=["projections"], init_lora_weights=False)
        peft.inject_adapter_in_model(config, sidecar_of(model).injection)
        self.decoding(model)
        assert not fused

    def test_a_large_table_is_not_computed_for_it(self, fused, monkeypatch):
        monkeypatch.setattr(state_layers, "_LARGEST_TABLE", 1)
        self.decoding(built("permutations"))
        assert not fused
        self.decoding(built("llama"))  # its matrices are computed already
        assert fused
