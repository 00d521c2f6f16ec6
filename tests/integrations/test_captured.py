"""Decoded tokens of a sidecar by captured steps: the numbers of plain ones, whatever happens to cache and model.

Without a GPU nothing can be captured; there a step that is replayed launches everything again, at the same addresses.
"""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest
import torch

pytest.importorskip("transformers")

from transformers import DynamicCache

from tests.comparison import assert_same
from tests.integrations.tiny_hosts import enlivened, logits, some_tokens, tiny_head, tiny_host, with_sidecar
from transductor import RationalHead
from transductor.automata import regex
from transductor.bridge import compile_head
from transductor.integrations.huggingface import captured, sidecar, tabulate
from transductor.integrations.huggingface.hosts import HOSTS, host_of
from transductor.integrations.huggingface.sidecar import attach, detach, fasten, head_for, sidecar_of
from transductor.integrations.huggingface.sidecar_storage import load_sidecar, save_sidecar
from transductor.transitions import FAMILIES, DenseTransitions, PermutationTransitions, SharedBasisTransitions

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GREEDY = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}


@pytest.fixture(autouse=True)
def _replays(monkeypatch):
    monkeypatch.setattr(captured, "alone", lambda: True)
    if DEVICE == "cpu":
        monkeypatch.setattr(captured, "on_a_gpu", lambda drive: True)
        monkeypatch.setattr(captured, "recorded", recorded_nowhere)


def recorded_nowhere(launch, device):
    def replay():
        with torch.no_grad():
            launch()

    replay()  # as before a capture
    return replay


def with_head(head, family="llama", **options):
    model = tiny_host(family)
    attach(model, head, **options)
    enlivened(sidecar_of(model).injection.projections)
    return model


def by_embeddings(family="llama"):
    model = tiny_host(family)
    attach(model, head_for(model, state_dim=6))
    enlivened(sidecar_of(model).injection.projections)
    return model


def tabulated():
    model = by_embeddings()
    tabulate(model)
    return model


def classes():
    return with_head(compile_head(regex("(b|ab*a)*", ("a", "b"))), token_classes=(torch.arange(64) % 3 == 0).long())


SUBJECTS = {
    "embeddings": by_embeddings,
    "tabulated": tabulated,
    "classes": classes,
    "its own parameters": lambda: with_head(RationalHead(DenseTransitions(state_dim=3, vocab_size=64))),
    "shared basis": lambda: with_head(RationalHead(SharedBasisTransitions(state_dim=3, vocab_size=64))),
    "permutations": lambda: with_head(RationalHead(PermutationTransitions(permutations=[(1, 2, 0), (1, 0, 2)] * 32))),
    "two layers of three": lambda: with_layers([0, 2]),
} | {family: lambda family=family: with_sidecar(family) for family in HOSTS}

# Beside sliding windows alone, states are kept otherwise, and are not captured.
CAPTURED = [name for name in SUBJECTS if name != "mistral"]


def with_layers(layers):
    model = tiny_host("gpt2", num_hidden_layers=3)
    attach(model, tiny_head(), layers=layers)
    enlivened(sidecar_of(model).injection.projections)
    return model


def built(name):
    return SUBJECTS[name]().to(DEVICE)


def tokens_of(rows, time):
    return some_tokens(rows, time).to(DEVICE)


def begun(model, tokens):
    """A cache, and the logits of its prompt."""
    cache = DynamicCache(config=model.config)
    return cache, [called(model, tokens, cache)]


@torch.no_grad()
def called(model, tokens, cache):
    return model(tokens, past_key_values=cache, use_cache=True).logits


def decoded(model, tokens, cache):
    return [called(model, token, cache) for token in tokens.split(1, 1)]


def step_of(cache):
    return cache.layers[-1]._captured


@pytest.mark.parametrize("name", CAPTURED)
def test_decoding_is_the_parallel_pass(name):
    model, tokens = built(name), tokens_of(2, 90)
    cache, parts = begun(model, tokens[:, :9])
    parts += decoded(model, tokens[:, 9:], cache)  # more than a step keeps
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    assert step_of(cache).current
    assert cache.layers[-1].get_seq_length() == 90


@pytest.mark.parametrize("drive", [{"vocab_size": 64}, {"feature_dim": 32}], ids=["tokens", "features"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name, drive):
    if name == "permutation" and "feature_dim" in drive:
        pytest.skip("has no features")
    family = FAMILIES[name](state_dim=4, **drive)
    model, tokens = with_head(RationalHead(family)).to(DEVICE), tokens_of(2, 16)
    cache, parts = begun(model, tokens[:, :5])
    parts += decoded(model, tokens[:, 5:], cache)
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    waits = name == "exponential" and "feature_dim" in drive  # for the GPU, in the middle of a step
    assert (step_of(cache) is None) == waits


@pytest.mark.parametrize("name", ["embeddings", "classes", "gpt2", "mistral", "gemma2"])
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
def test_generate_is_that_of_plain_steps(name, how, monkeypatch):
    model, tokens = built(name), tokens_of(1, 7)
    options = {"max_new_tokens": 20} | GREEDY | how
    torch.manual_seed(3)
    found = model.generate(tokens, **options)
    monkeypatch.setattr(sidecar, "replayed", lambda *given: None)
    torch.manual_seed(3)
    assert torch.equal(found, model.generate(tokens, **options))


def test_left_padded_rows():
    model, tokens = built("llama"), tokens_of(2, 12)
    mask = torch.ones_like(tokens)
    mask[0, :4] = 0
    found = model.generate(tokens, attention_mask=mask, max_new_tokens=15, **GREEDY)
    alone = model.generate(tokens[:1, 4:], max_new_tokens=15, **GREEDY)
    assert torch.equal(found[:1, 4:], alone)


def test_cropped_and_chunked():
    """As assisted decoding does: some tokens at once, some of them taken back."""
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
    """With gradient, or under autocast, a step is taken the plain way."""
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
    assert len({id(step_of(cache)) for (cache, _), _ in streams}) == 4


def test_threads():
    model, tokens = built("llama"), tokens_of(4, 60)
    expected, found = logits(model, tokens), {}

    def decode(number):
        row = tokens[number : number + 1]
        cache, parts = begun(model, row[:, :5])
        found[number] = torch.cat(parts + decoded(model, row[:, 5:], cache), 1)

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(torch.cat([found[number] for number in range(4)]), expected)


def test_a_copied_cache_goes_its_own_way():
    """A prompt that is computed once, and continued twice."""
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


@pytest.mark.parametrize("name", ["llama", "embeddings", "its own parameters", "shared basis", "permutations"])
def test_the_next_cache_takes_the_step_over(name):
    """With the parameters of its own beginning, in the old places."""
    model, tokens = built(name), tokens_of(2, 20)
    steps = []
    for _ in range(3):
        cache, parts = begun(model, tokens[:, :9])
        parts += decoded(model, tokens[:, 9:], cache)
        assert_same(torch.cat(parts, 1), logits(model, tokens))
        steps.append(weakref.ref(step_of(cache)))
        del cache
        gc.collect()
        with torch.no_grad():
            for parameter in sidecar_of(model).parameters():
                parameter.normal_(std=0.3)
    assert steps[0]() is steps[1]() is steps[2]() is not None


@pytest.mark.parametrize("change", ["double", "replaced", "more rows"])
def test_captured_anew(change):
    model, tokens = built("llama"), tokens_of(2, 20)
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:12], cache)
    first = weakref.ref(step_of(cache))
    del cache
    gc.collect()
    if change == "double":
        model.double()
    elif change == "replaced":
        projections = sidecar_of(model).injection.projections
        projections.weight = torch.nn.Parameter(torch.randn_like(projections.weight))
    else:
        tokens = tokens_of(3, 20)
    cache, parts = begun(model, tokens[:, :9])
    parts += decoded(model, tokens[:, 9:], cache)
    assert_same(torch.cat(parts, 1), logits(model, tokens))
    assert step_of(cache) is not first()


def test_another_sidecar_in_the_middle():
    """States of one head are no states of another; but nothing may be added that no sidecar says, nor a state lost."""
    model, tokens = built("llama"), tokens_of(1, 20)
    cache, _ = begun(model, tokens[:, :9])
    decoded(model, tokens[:, 9:12], cache)
    first = detach(model)
    attach(model, tiny_head().to(DEVICE))  # projections are zero
    found = decoded(model, tokens[:, 12:14], cache)
    detach(model)
    fasten(host_of(model), first)
    decoded(model, tokens[:, 14:17], cache)
    kept = cache.layers[-1].keys
    assert kept.shape[-2] == 17
    assert_same(kept[:, 0, :12], first.rational_head(tokens[:, :12]).detach())
    detach(model)
    cache.crop(-5)
    assert_same(torch.cat(found, 1), torch.cat(decoded(model, tokens[:, 12:14], cache), 1))


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


class TestWhoIsNotCaptured:
    def decoding(self, model):
        tokens = tokens_of(1, 12)
        cache, parts = begun(model, tokens[:, :9])
        parts += decoded(model, tokens[:, 9:], cache)
        assert_same(torch.cat(parts, 1), logits(model, tokens))
        return step_of(cache)

    def test_who_is_looked_at(self):
        """A hook on the sidecar is called at every token."""
        model, calls = built("llama"), []
        handle = sidecar_of(model).register_forward_hook(lambda *given: calls.append(1))
        assert self.decoding(model) is None
        assert len(calls) == 5
        handle.remove()
        assert self.decoding(model) is not None

    def test_whose_projections_are_wrapped(self):
        peft = pytest.importorskip("peft")
        model = built("llama")
        injection = sidecar_of(model).injection
        config = peft.LoraConfig(r=2, target_modules=["projections"], init_lora_weights=False)
        injection = peft.inject_adapter_in_model(config, injection)
        assert self.decoding(model) is None

    def test_a_family_of_somebody_else(self):
        """Nobody knows what it does: a wait for the GPU would spoil the capture, and torch's random numbers."""
        other = type("Other", (DenseTransitions,), {"__module__": "elsewhere"})
        assert self.decoding(with_head(RationalHead(other(state_dim=3, vocab_size=64))).to(DEVICE)) is None

    def test_who_is_not_alone(self, monkeypatch):
        """Another thread may draw random numbers, which fails while a graph is captured; a step that waits is used."""
        monkeypatch.undo()
        with monkeypatch.context() as context:
            context.setattr(threading, "enumerate", lambda: [threading.current_thread()])
            assert captured.alone()
        model, found = built("llama"), []
        thread = threading.Thread(target=lambda: found.append((captured.alone(), self.decoding(model))))
        thread.start()
        thread.join()
        assert found == [(False, None)]

    def test_ranks(self):
        """They may gather parameters for a call, and let go of them after it."""
        dist = torch.distributed
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            assert self.decoding(built("llama")) is None
        finally:
            dist.destroy_process_group()

    def test_who_cannot_be(self, monkeypatch, caplog):
        def refused(launch, device):
            raise RuntimeError("operation not permitted when stream is capturing")

        monkeypatch.setattr(captured, "recorded", refused)
        assert self.decoding(built("llama")) is None
        assert caplog.text.count("was not captured") == 1


def test_a_waiting_step_is_no_part_of_the_model(tmp_path):
    model, tokens = built("llama"), tokens_of(1, 20)
    model.generate(tokens, max_new_tokens=5, **GREEDY)
    gc.collect()
    (waiting,) = captured._IDLE[sidecar_of(model)]
    assert waiting.count == 0
    twin = copy.deepcopy(model)
    assert_same(logits(twin, tokens), logits(model, tokens))
    save_sidecar(model, tmp_path)
    detach(model)
    load_sidecar(model, tmp_path)
    assert_same(logits(twin, tokens), logits(model, tokens))


def test_a_waiting_step_keeps_no_sidecar_alive():
    model = built("llama")
    model.generate(tokens_of(1, 9), max_new_tokens=5, **GREEDY)
    gone = weakref.ref(sidecar_of(model))
    detach(model)
    del model
    gc.collect()
    assert gone() is None
