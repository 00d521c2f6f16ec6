"""The native model computes what the plain model computes: alone, padded, packed and from a cache."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from transformers import DataCollatorWithFlattening, DynamicCache, StaticCache

from tests.integrations.native_models import VOCABULARY, some_tokens, tiny_config, tiny_native
from transductor import BackboneConfig, RandomFeatureHead, RationalHead, RationalTransductor, UniversalHead
from transductor.heads import LookbackHead
from transductor.integrations.huggingface import (
    RationalTransductorForSequenceClassification,
    RationalTransductorForTokenClassification,
    RationalTransductorModel,
    from_transductor,
    to_transductor,
)
from transductor.model import (
    FullAttention,
    LearnedPositions,
    NoAttention,
    NoPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SlidingWindow,
)
from transductor.transitions import (
    BlockSparseTransitions,
    ButterflyTransitions,
    OrthogonalTransitions,
    PermutationTransitions,
)

TIME = 13
# Two orders of summation in float32, over two layers of width 32.
ROUNDING = 5e-6


def heads():
    return {
        "lookback": LookbackHead(OrthogonalTransitions(state_dim=4, vocab_size=VOCABULARY)),
        "universal": UniversalHead(vocab_size=VOCABULARY, orthogonal_dim=4, stochastic_dim=3),
        "random": RandomFeatureHead(vocab_size=VOCABULARY, state_dim=5),
        "block_sparse": RationalHead(BlockSparseTransitions(state_dim=4, vocab_size=VOCABULARY)),
        "butterfly": RationalHead(ButterflyTransitions(state_dim=4, vocab_size=VOCABULARY)),
    }


HEADS = ("lookback", "universal", "random", "block_sparse", "butterfly")
INJECTIONS = ("deep", "input", "none")
SCHEMES = (NoPositions(), LearnedPositions(64), SinusoidalPositions(), RotaryPositions(), RelativePositions(8, 16))
KINDS = (FullAttention(), SlidingWindow(5), NoAttention())
# Every scheme with every kind of attention; heads and injections alternate.
CASES = [
    pytest.param(
        (positions, attention, HEADS[number % 5], INJECTIONS[number % 3]),
        id=f"{type(positions).__name__}-{type(attention).__name__}-{HEADS[number % 5]}-{INJECTIONS[number % 3]}",
    )
    for number, (positions, attention) in enumerate(
        (positions, attention)
        for positions in SCHEMES
        for attention in KINDS
        if not (isinstance(attention, NoAttention) and isinstance(positions, (RotaryPositions, RelativePositions)))
    )
]


@pytest.fixture(params=CASES)
def pair(request):
    """Return a plain model, its Hugging Face twin, tokens, and the plain model's logits."""
    positions, attention, head, injection = request.param
    backbone = BackboneConfig(
        vocab_size=VOCABULARY, width=32, layers=2, attention_heads=4, positions=positions, attention=attention
    )
    model = RationalTransductor(heads()[head], backbone, injection=injection).eval()
    tokens = some_tokens(2, TIME)
    with torch.no_grad():
        return model, from_transductor(model), tokens, model(tokens)


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def close(left, right):
    torch.testing.assert_close(left, right, atol=ROUNDING, rtol=0)


def test_logits_are_those_of_the_core(pair):
    """They are equal bit for bit, unless the kernels differ: we cut a window into blocks, Hugging Face masks it.

    (In training the core has a kernel of its own; here there are no gradients.)
    """
    model, native, tokens, wanted = pair
    got = native(tokens, use_cache=False).logits
    if isinstance(model.backbone.config.attention, SlidingWindow):
        close(got, wanted)
    else:
        assert torch.equal(got, wanted)


def test_written_out_attention_is_the_same(pair):
    _, native, tokens, wanted = pair
    native.set_attn_implementation("eager")
    close(native(tokens).logits, wanted)


@pytest.mark.parametrize("static", [False, True])
def test_a_stream_through_a_cache_is_the_parallel_pass(pair, static):
    _, native, tokens, wanted = pair
    cache = StaticCache(config=native.config, max_cache_len=TIME) if static else DynamicCache(config=native.config)
    parts = []
    for part in tokens.split([5, 1, 3, 1, 1, 2], 1):
        parts.append(native(part, past_key_values=cache).logits)
    close(torch.cat(parts, 1), wanted)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(pair, side):
    _, native, tokens, wanted = pair
    padding = torch.zeros(2, 4, dtype=torch.long)
    real = torch.ones_like(tokens)
    if side == "left":
        got = native(torch.cat((padding, tokens), 1), attention_mask=torch.cat((padding, real), 1)).logits[:, 4:]
    else:
        got = native(torch.cat((tokens, padding), 1), attention_mask=torch.cat((real, padding), 1)).logits[:, :TIME]
    close(got, wanted)


@pytest.mark.parametrize("how", ["position_ids", "cu_seq_lens_q", "both"])
def test_packed_documents_are_separate(pair, how):
    _, native, tokens, wanted = pair
    places = {"position_ids": torch.arange(TIME).repeat(2)[None], "cu_seq_lens_q": torch.tensor([0, TIME, 2 * TIME])}
    arguments = places if how == "both" else {how: places[how]}
    output = native(tokens.reshape(1, -1), **arguments)
    close(output.logits.view_as(wanted), wanted)
    assert output.past_key_values is None  # packed documents cannot be continued


def test_the_flattening_collator_packs():
    model = tiny_native()
    documents = [some_tokens(1, time)[0] for time in (7, 1, 12)]
    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    batch = collator([{"input_ids": document.tolist()} for document in documents])
    labels = batch.pop("labels")
    logits = model(**batch).logits[0].split([7, 1, 12])
    for document, got in zip(documents, logits, strict=True):
        close(got, model(document[None]).logits[0])
    assert (labels[0, [0, 7, 8]] == -100).all()


def test_a_reset_cache_starts_from_the_initial_state():
    """A state that was set to zero would stay zero."""
    model, tokens = tiny_native(), some_tokens(2, 9)
    for cache in (StaticCache(config=model.config, max_cache_len=9), DynamicCache(config=model.config)):
        first = model(tokens, past_key_values=cache).logits
        cache.reset()
        if cache.get_seq_length() > 0:
            pytest.skip("transformers 5.17 zeroes a dynamic cache and keeps its length")
        assert torch.equal(model(tokens, past_key_values=cache).logits, first)


def test_the_state_of_every_cached_token_is_kept():
    """The past can be cut anywhere; the state used is the one at the cut, not the last one."""
    model, tokens = tiny_native(), some_tokens(2, 9)
    cache = DynamicCache(config=model.config)
    model(tokens, past_key_values=cache)
    assert cache.is_croppable
    cache.crop(-4)
    close(model(tokens[:, 5:], past_key_values=cache).logits, model(tokens).logits[:, 5:])


def test_beam_search_picks_rows_of_the_state():
    model, tokens = tiny_native(), some_tokens(3, 9)
    cache = DynamicCache(config=model.config)
    model(tokens[:, :8], past_key_values=cache)
    rows = torch.tensor([2, 0, 0])
    cache.reorder_cache(rows)
    close(model(tokens[rows, 8:], past_key_values=cache).logits, model(tokens[rows]).logits[:, 8:])


def test_positions_may_be_given():
    """Shifting all positions by five changes learned positions, but not the differences of rotary ones."""
    tokens = some_tokens(2, 9)
    later = torch.arange(5, 14)[None]
    rotary, learned = tiny_native(), tiny_native(positions="learned")
    close(rotary(tokens, position_ids=later).logits, rotary(tokens).logits)
    assert not torch.allclose(learned(tokens, position_ids=later).logits, learned(tokens).logits, atol=1e-2)


def test_hidden_states_and_attentions_are_recorded():
    model = tiny_native(attn_implementation="eager")
    tokens = some_tokens(2, 9)
    output = model(tokens, output_hidden_states=True, output_attentions=True)
    assert [tuple(state.shape) for state in output.hidden_states] == [(2, 9, 32)] * 3
    assert [tuple(weights.shape) for weights in output.attentions] == [(2, 4, 9, 9)] * 2
    for weights in output.attentions:
        close(weights.sum(-1), torch.ones(2, 4, 9))
        assert not weights.triu(1).any()
    assert torch.equal(model.lm_head(output.hidden_states[-1]), output.logits)
    assert model(tokens).hidden_states is None
    assert isinstance(model(tokens, return_dict=False), tuple)


def test_logits_are_kept_where_wanted():
    model, tokens = tiny_native(), some_tokens(2, 9)
    whole = model(tokens).logits
    close(model(tokens, logits_to_keep=2).logits, whole[:, -2:])
    close(model(tokens, logits_to_keep=torch.tensor([0, 5])).logits, whole[:, [0, 5]])


def test_the_loss_shifts_labels_and_leaves_out_minus_one_hundred():
    model, tokens = tiny_native(), some_tokens(2, 9)
    labels = tokens.clone()
    labels[:, 4] = -100
    output = model(tokens, labels=labels)
    wanted = torch.nn.functional.cross_entropy(output.logits[:, :-1].transpose(1, 2), labels[:, 1:])
    torch.testing.assert_close(output.loss, wanted)


def test_tokens_are_classified():
    model = RationalTransductorForTokenClassification(tiny_config(num_labels=5)).eval()
    tokens = some_tokens(2, 9)
    labels = torch.randint(0, 5, (2, 9))
    output = model(tokens, labels=labels)
    assert output.logits.shape == (2, 9, 5)
    torch.testing.assert_close(output.loss, torch.nn.functional.cross_entropy(output.logits.transpose(1, 2), labels))


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_are_classified_at_their_last_real_token(side):
    model = RationalTransductorForSequenceClassification(tiny_config(num_labels=3)).eval()
    rows = [some_tokens(1, time) for time in (9, 4, 6)]
    rows[1][0, -1] = 0  # the padding token, used as a real one
    wanted = torch.cat([model(row, attention_mask=torch.ones_like(row)).logits for row in rows])
    tokens, mask = torch.zeros(3, 9, dtype=torch.long), torch.zeros(3, 9, dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(9 - row.shape[1], 9) if side == "left" else slice(0, row.shape[1])
        tokens[number, place], mask[number, place] = row[0], 1
    close(model(tokens, attention_mask=mask).logits, wanted)
    # Without a mask, the configuration's padding token decides.
    close(model(tokens).logits[[0, 2]], wanted[[0, 2]])


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("regression", torch.tensor([0.5, -1.0])),
        ("single_label_classification", torch.tensor([2, 0])),
        ("multi_label_classification", torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])),
    ],
)
def test_the_three_kinds_of_labels(problem, labels):
    config = tiny_config(num_labels=1 if problem == "regression" else 3)
    model = RationalTransductorForSequenceClassification(config).eval()
    output = model(some_tokens(2, 9), labels=labels)
    logits = output.logits
    wanted = {
        "regression": lambda: (logits[:, 0] - labels).square().mean(),
        "single_label_classification": lambda: torch.nn.functional.cross_entropy(logits, labels),
        "multi_label_classification": lambda: torch.nn.functional.binary_cross_entropy_with_logits(logits, labels),
    }[problem]()
    torch.testing.assert_close(output.loss, wanted)
    assert model.config.problem_type == problem


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs_embeds": torch.zeros(1, 3, 32)}, "give input_ids and not inputs_embeds"),
        ({}, "give input_ids"),
        ({"input_ids": torch.ones(1, 3, dtype=torch.long), "is_causal": False}, "is_causal must not be False"),
        (
            {
                "input_ids": torch.ones(1, 3, dtype=torch.long),
                "attention_mask": torch.ones(1, 3),
                "cu_seq_lens_q": torch.tensor([0, 3]),
            },
            "at most one of attention_mask and cu_seq_lens_q",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_native()(**arguments)


def test_a_token_outside_the_vocabulary_is_named():
    with pytest.raises(IndexError, match=r"must lie in \[0, 19\); got 19"):
        tiny_native()(torch.tensor([[3, VOCABULARY]]))


@pytest.mark.parametrize("tied", [False, True])
def test_new_tokens_get_transitions_and_old_ones_keep_theirs(tied):
    model, tokens = tiny_native(tie_word_embeddings=tied), some_tokens(2, 9)
    before = model(tokens).logits
    model.resize_token_embeddings(VOCABULARY + 4)
    assert model.config.vocab_size == VOCABULARY + 4
    after = model(tokens).logits
    assert after.shape == (2, 9, VOCABULARY + 4)
    assert torch.equal(after[..., :VOCABULARY], before)
    assert model(tokens + 4).logits.isfinite().all()
    assert from_transductor(to_transductor(model)).config.vocab_size == VOCABULARY + 4


def test_transitions_that_are_written_down_are_not_resized():
    head = RationalHead(PermutationTransitions(permutations=[(0, 1, 2), (1, 2, 0)]))
    model = tiny_native(vocab_size=2, head=head, pad_token_id=None, eos_token_id=None)
    with pytest.raises(ValueError, match="permutation transitions are written down token by token"):
        model.resize_token_embeddings(3)


def test_the_base_model_stands_alone():
    model = RationalTransductorModel(tiny_config()).eval()
    assert model(some_tokens(2, 9)).last_hidden_state.shape == (2, 9, 32)
    assert model.get_input_embeddings().weight.shape == (VOCABULARY, 32)
