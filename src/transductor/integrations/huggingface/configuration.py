"""The configuration of a native Hugging Face model: plain JSON, Hugging Face's names where it has one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import torch
from transformers import GenerationConfig, PreTrainedConfig

from transductor.checks import check_positive, one_of
from transductor.configuration import from_plain, to_plain
from transductor.heads import HEADS, HeadConfig, RationalHead
from transductor.injection import INJECTIONS
from transductor.model import (
    BackboneConfig,
    FullAttention,
    LearnedPositions,
    NoAttention,
    NoPositions,
    PositionScheme,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SlidingWindow,
    TransductorConfig,
)
from transductor.transitions import FamilySpec, build_family

_SCHEMES: Final[dict[str, type[PositionScheme]]] = {
    "none": NoPositions,
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
    "rotary": RotaryPositions,
    "relative": RelativePositions,
}
_ATTENTIONS: Final = ("full", "sliding", "none")

# Up to this vocabulary a token has all d(d−1)/2 numbers of an orthogonal matrix; above, those of four reflections, 4d.
_SMALL_VOCABULARY: Final = 4096

# What Hugging Face's base class reads beside its fields, and what its tools write into a configuration.
_FOREIGN: Final = frozenset(
    {
        "attn_implementation",
        "auto_map",
        "custom_pipelines",
        "experts_implementation",
        "finetuning_task",
        "model_type",
        "name_or_path",
        "num_labels",
        "output_attentions",
        "per_layer_config",
        "quantization_config",
        "task_specific_params",
        "tie_last_hidden_states",
        "tokenizer_class",
        "torch_dtype",
        "use_return_dict",
    }
)

# Names a Hugging Face user would try first.
_INSTEAD: Final = {
    "max_position_embeddings": "positions=LearnedPositions(max_length=…)",
    "rope_theta": "positions=RotaryPositions(base=…)",
    "rope_parameters": "positions=RotaryPositions(base=…)",
    "rope_scaling": "positions=RotaryPositions(base=…)",
    "position_embedding_type": f"positions=, one of {', '.join(map(repr, _SCHEMES))}",
    "layer_types": f"attention=, one of {', '.join(map(repr, _ATTENTIONS))}, for all layers",
    "num_key_value_heads": "num_attention_heads: every head has its own keys",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "hidden_dropout_prob",
}


class RationalTransductorConfig(PreTrainedConfig):  # type: ignore[misc]
    """How to build a :class:`RationalTransductorModel` and the models around it.

    Args:
        vocab_size: V; 256 for bytes.
        hidden_size: Width of the stream, a multiple of ``num_attention_heads``.
        num_hidden_layers: Number of blocks.
        num_attention_heads: Heads per block.
        intermediate_size: Width of the feed-forward layer; four times ``hidden_size`` when None.
        hidden_dropout_prob: Probability, while training, of dropping what a block adds.
        classifier_dropout: Before the scores of a token classifier.
        positions: ``"none"``, ``"learned"``, ``"sinusoidal"``, ``"rotary"``, ``"relative"``, or a position scheme of
            :mod:`transductor.model`; rotary when None (and none without attention).
        attention: ``"full"``, ``"sliding"`` (with ``sliding_window``) or ``"none"``.
        sliding_window: Positions that sliding attention sees, the own one included; at least 2.
        injection: ``"deep"`` (the state enters every layer), ``"input"`` (the first) or ``"none"``.
        head: A head, or its :class:`~transductor.heads.HeadConfig` (also as plain JSON).  When None, a
            :class:`~transductor.RationalHead` over orthogonal transitions; over products of four reflections, whose
            parameters grow with V·4d instead of V·d²/2, when the vocabulary has more than 4096 tokens.
        state_dim: D of that head; 32 when neither it nor ``head`` is given.
        frozen_parameters: Names, inside ``model.core``, of parameters that do not train.
        tie_word_embeddings: Whether logits are read off with the embedding's own weights.
    """

    model_type: ClassVar[str] = "rational_transductor"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    vocab_size: int = 256
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    intermediate_size: int | None = None
    hidden_dropout_prob: float = 0.0
    classifier_dropout: float = 0.0
    positions: Any = None
    attention: str | None = None
    sliding_window: int | None = None
    injection: str = "deep"
    head: Any = None
    state_dim: int | None = None
    frozen_parameters: Any = ()
    use_cache: bool = True
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self._refuse_unknown(kwargs)
        super().__post_init__(**kwargs)
        check_positive("num_hidden_layers", self.num_hidden_layers)
        self.attention = _attention_name(self.attention, self.sliding_window)
        self.positions = to_plain(_position_scheme(self.positions, self.attention))
        one_of("injection", self.injection, INJECTIONS)
        self.head = to_plain(_head_config(self.head, self.vocab_size, self.state_dim))
        self.state_dim = _checked_state_dim(from_plain(self.head), self.vocab_size, self.state_dim)
        self.frozen_parameters = sorted(self.frozen_parameters)
        self.transductor_config()  # refuses sizes that do not go together

    def _refuse_unknown(self, given: Mapping[str, Any]) -> None:
        """A name that nothing would read is a mistake, not a wish."""
        known = _FOREIGN | set(GenerationConfig().to_dict())
        for name in given:
            if name in known or name.startswith("_"):
                continue
            own = [field for field in self.__dataclass_fields__ if not field.startswith("_")]
            close = difflib.get_close_matches(name, own, 1)
            instead = _INSTEAD.get(name) or (close[0] if close else None)
            hint = f"use {instead}" if instead else f"its names are {', '.join(own)}"
            raise ValueError(f"{type(self).__name__} has no {name!r}; {hint}")

    def transductor_config(self, output_size: int = 0) -> TransductorConfig:
        """The same model in this project's own terms; logits for the vocabulary when ``output_size`` is 0."""
        kind = {
            "full": FullAttention,
            "sliding": lambda: SlidingWindow(self.sliding_window or 0),
            "none": NoAttention,
        }[self.attention or "full"]()
        backbone = BackboneConfig(
            vocab_size=self.vocab_size,
            output_size=output_size,
            width=self.hidden_size,
            layers=self.num_hidden_layers,
            attention_heads=self.num_attention_heads,
            feedforward=self.intermediate_size or 0,
            positions=from_plain(self.positions),
            attention=kind,
            dropout=self.hidden_dropout_prob,
        )
        return TransductorConfig(from_plain(self.head), backbone, self.injection)

    @classmethod
    def from_transductor_config(cls, config: TransductorConfig, **others: Any) -> RationalTransductorConfig:
        """The configuration of the same model; ``others`` are Hugging Face's own, such as ``pad_token_id``."""
        backbone = config.backbone
        kind = backbone.attention
        name = {FullAttention: "full", SlidingWindow: "sliding", NoAttention: "none"}[type(kind)]
        return cls(
            vocab_size=backbone.vocab_size,
            hidden_size=backbone.width,
            num_hidden_layers=backbone.layers,
            num_attention_heads=backbone.attention_heads,
            intermediate_size=backbone.feedforward or None,
            hidden_dropout_prob=backbone.dropout,
            positions=backbone.positions,
            attention=name,
            sliding_window=kind.window if isinstance(kind, SlidingWindow) else None,
            injection=config.injection,
            head=config.head,
            **others,
        )


def _attention_name(attention: str | None, sliding_window: int | None) -> str:
    name = attention or ("full" if sliding_window is None else "sliding")
    one_of("attention", name, _ATTENTIONS)
    if (name == "sliding") != (sliding_window is not None):
        raise ValueError(f"sliding_window goes with attention='sliding' alone; got {sliding_window!r} with {name!r}")
    if sliding_window is not None and (not isinstance(sliding_window, int) or sliding_window < 2):
        # The cache of transformers keeps window − 1 keys by cutting at −window + 1, which for 1 keeps them all.
        raise ValueError(f"sliding_window must be an integer of at least 2; got {sliding_window!r}")
    return name


def _position_scheme(positions: Any, attention: str) -> PositionScheme:
    if positions is None:
        return NoPositions() if attention == "none" else RotaryPositions()
    if isinstance(positions, str):
        one_of("positions", positions, _SCHEMES)
        return _SCHEMES[positions]()
    scheme = from_plain(positions) if isinstance(positions, dict) else positions
    if not isinstance(scheme, PositionScheme):
        names = ", ".join(map(repr, _SCHEMES))
        raise ValueError(f"positions must be one of {names}, or a position scheme; got {positions!r}")
    return scheme


def _head_config(head: Any, vocab_size: int, state_dim: int | None) -> HeadConfig:
    if head is None:
        family = "orthogonal" if vocab_size <= _SMALL_VOCABULARY else "householder"
        size = 32 if state_dim is None else state_dim
        check_positive("vocab_size", vocab_size)
        check_positive("state_dim", size)
        with torch.device("meta"):  # shapes without numbers; the file names every option, whatever later defaults are
            spec = build_family(FamilySpec(family, {"state_dim": size, "vocab_size": vocab_size})).spec()
        return HeadConfig("rational", spec)
    config = head.config if isinstance(head, RationalHead) else head
    config = from_plain(config) if isinstance(config, dict) else config
    if not isinstance(config, HeadConfig):
        raise ValueError(f"head must be a RationalHead or its HeadConfig; got {head!r}")
    one_of("head", config.head, HEADS)
    return config


def _checked_state_dim(config: HeadConfig, vocab_size: int, wanted: int | None) -> int:
    """D of the head, which ``state_dim`` may repeat but not contradict; its vocabulary must be the model's."""
    try:
        with torch.device("meta"):  # shapes without numbers
            family = build_family(config.transitions)
    except NotImplementedError:  # a family that looks at its numbers while it is built
        family = build_family(config.transitions)
    if family.vocab_size != vocab_size:
        raise ValueError(f"head must be driven by vocab_size = {vocab_size} tokens; it has {family.extra_repr()}")
    if wanted is not None and wanted != family.state_dim:
        raise ValueError(f"state_dim must be that of head, {family.state_dim}, or None; got {wanted}")
    return family.state_dim
