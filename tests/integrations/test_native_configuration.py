"""The configuration has sensible defaults, is plain JSON, and ignores no setting silently."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("transformers")

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DynamicCache,
    StaticCache,
)

from tests.integrations.native_models import VOCABULARY, tiny_config
from transductor import RationalHead
from transductor.heads import LookbackHead
from transductor.integrations.huggingface import (
    RationalTransductorConfig,
    RationalTransductorForCausalLM,
    RationalTransductorForSequenceClassification,
    RationalTransductorForTokenClassification,
    RationalTransductorModel,
)
from transductor.model import LearnedPositions, RotaryPositions
from transductor.transitions import DirectSum, OrthogonalTransitions, StochasticTransitions


def test_a_vocabulary_and_a_state_are_enough():
    config = RationalTransductorConfig(vocab_size=300, state_dim=16)
    assert config.head["transitions"]["family"] == "orthogonal"
    assert config.state_dim == 16
    assert config.positions == {"kind": "RotaryPositions", "base": 10_000.0}
    assert RationalTransductorConfig().state_dim == 32


def test_a_large_vocabulary_gets_a_family_that_fits():
    """50 257 orthogonal matrices with D = 32 would take 25 million parameters; reflections take a quarter."""
    config = RationalTransductorConfig(vocab_size=50_257)
    assert config.head["transitions"]["family"] == "householder"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"positions": "relative", "sliding_window": 7},
        {"positions": LearnedPositions(99), "injection": "input"},
        {"attention": "none"},
        {"head": LookbackHead(OrthogonalTransitions(state_dim=3, vocab_size=VOCABULARY))},
        {"head": RationalHead(StochasticTransitions(state_dim=3, vocab_size=VOCABULARY)).config},
        {"tie_word_embeddings": True, "num_labels": 7, "hidden_dropout_prob": 0.1},
    ],
)
def test_it_survives_its_file(settings, tmp_path):
    config = tiny_config(**settings)
    config.save_pretrained(tmp_path)
    json.loads((tmp_path / "config.json").read_text())
    again = AutoConfig.from_pretrained(tmp_path)
    assert type(again) is RationalTransductorConfig
    assert again.transductor_config() == config.transductor_config()
    elsewhere = {"_name_or_path", "transformers_version"}
    assert {k: v for k, v in again.to_dict().items() if k not in elsewhere} == {
        k: v for k, v in config.to_dict().items() if k not in elsewhere
    }
    direct = RationalTransductorConfig.from_transductor_config(config.transductor_config())
    assert direct.transductor_config() == config.transductor_config()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_sise": 3}, "has no 'hidden_sise'; use hidden_size"),
        ({"max_position_embeddings": 3}, "use positions=LearnedPositions"),
        ({"rope_theta": 3.0}, "use positions=RotaryPositions"),
        ({"num_key_value_heads": 1}, "every head has its own keys"),
        ({"frobnicate": True}, "its names are .*injection"),
        ({"injection": "shallow"}, "injection must be one of 'deep', 'input', 'none'; got 'shallow'"),
        ({"positions": "absolute"}, "positions must be one of 'none', 'learned'"),
        ({"positions": 3}, "positions must be one of 'none', 'learned'.*or a position scheme; got 3"),
        ({"attention": "linear"}, "attention must be one of 'full', 'sliding', 'none'"),
        ({"attention": "sliding"}, "sliding_window goes with attention='sliding' alone; got None"),
        ({"attention": "full", "sliding_window": 4}, "sliding_window goes with attention='sliding' alone; got 4"),
        ({"sliding_window": 1}, "sliding_window must be an integer of at least 2"),
        ({"attention": "none", "positions": RotaryPositions()}, "need attention"),
        ({"hidden_size": 30}, "width must be a multiple of attention_heads = 4"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer"),
        ({"head": "orthogonal"}, "head must be a RationalHead or its HeadConfig"),
        ({"state_dim": 0}, "state_dim must be a positive integer"),
        ({"vocab_size": 0}, "vocab_size must be a positive integer"),
    ],
)
def test_a_mistake_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**settings)


def test_a_head_of_another_size_is_refused():
    head = RationalHead(OrthogonalTransitions(state_dim=3, vocab_size=VOCABULARY))
    with pytest.raises(ValueError, match="state_dim must be that of head, 3, or None; got 5"):
        tiny_config(head=head, state_dim=5)
    with pytest.raises(ValueError, match="driven by vocab_size = 20 tokens; it has state_dim=3, vocab_size=19"):
        tiny_config(head=head, vocab_size=20)


def test_a_composite_head_knows_its_size():
    parts = [OrthogonalTransitions(state_dim=size, vocab_size=VOCABULARY) for size in (3, 4)]
    assert tiny_config(head=RationalHead(DirectSum(*parts))).state_dim == 7


def test_the_auto_classes_know_the_model():
    config = tiny_config(num_labels=4)
    assert type(AutoModel.from_config(config)) is RationalTransductorModel
    assert type(AutoModelForCausalLM.from_config(config)) is RationalTransductorForCausalLM
    assert type(AutoModelForTokenClassification.from_config(config)) is RationalTransductorForTokenClassification
    assert type(AutoModelForSequenceClassification.from_config(config)) is RationalTransductorForSequenceClassification


@pytest.mark.parametrize("settings", [{}, {"sliding_window": 5}])
def test_caches_know_the_layers(settings):
    config = tiny_config(**settings)
    for cache in (DynamicCache(config=config), StaticCache(config=config, max_cache_len=9)):
        assert len(cache.layers) == 2
        assert all(cache.is_sliding) == ("sliding_window" in settings)
