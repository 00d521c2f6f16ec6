"""The configuration of the native Hugging Face model: plain JSON, with Hugging Face's names where there are any."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from transformers import GenerationConfig, PreTrainedConfig
from transformers.utils import CONFIG_NAME

from transductor.checks import check_positive, one_of
from transductor.configuration import ConfigurationError, from_plain, to_plain
from transductor.heads import HEADS, HeadConfig, RationalHead
from transductor.injection import INJECTIONS, PROJECTIONS
from transductor.json_reading import JSONError, brief, read_json
from transductor.model import (
    AttentionKind,
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
from transductor.typed_values import check_kind

_SCHEMES: Final[dict[str, type[PositionScheme]]] = {
    "none": NoPositions,
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
    "rotary": RotaryPositions,
    "relative": RelativePositions,
}
_ATTENTIONS: Final[dict[str, type[AttentionKind]]] = {
    "full": FullAttention,
    "sliding": SlidingWindow,
    "none": NoAttention,
}

# Up to this size a token has the d(d−1)/2 parameters of an orthogonal matrix; above it the 4d of four reflections.
_SMALL_VOCABULARY: Final = 4096

# Names that Hugging Face's base class reads beside its fields, or that its tools write into a configuration.
_HUGGING_FACE_NAMES: Final = frozenset(
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

# What is read of a file beside what constructors check; transformers checks no kinds of a subclass's fields.
_KINDS: Final[dict[str, Any]] = {
    "vocab_size": int,
    "hidden_size": int,
    "num_hidden_layers": int,
    "num_attention_heads": int,
    "intermediate_size": int | None,
    "hidden_dropout_prob": float,
    "classifier_dropout": float,
    "attention": str | None,
    "sliding_window": int | None,
    "injection": str,
    "projections": str,
    "state_dim": int | None,
    "use_cache": bool,
    "tie_word_embeddings": bool,
    "pad_token_id": int | None,
    "bos_token_id": int | None,
    "eos_token_id": int | list[int] | None,
}

# What to use instead of names that other Hugging Face models have.
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
    """The settings of a :class:`RationalTransductorModel` and of the task models around it.

    Args:
        vocab_size: Number of tokens; 256 for bytes.
        hidden_size: Width of the stream, a multiple of ``num_attention_heads``.
        num_hidden_layers: Number of blocks.
        num_attention_heads: Heads per block.
        intermediate_size: Width of the feed-forward layer; four times ``hidden_size`` when None.
        hidden_dropout_prob: Dropout probability of what each block adds to the stream.
        classifier_dropout: Dropout probability before the logits of a token classifier.
        positions: ``"none"``, ``"learned"``, ``"sinusoidal"``, ``"rotary"``, ``"relative"``, or a position scheme of
            :mod:`transductor.model`; rotary when None (and none without attention).
        attention: ``"full"``, ``"sliding"`` (with ``sliding_window``) or ``"none"``.
        sliding_window: Number of positions that sliding attention sees, including the token's own; at least 2.
        injection: ``"deep"`` (the state enters every layer), ``"input"`` (the first) or ``"none"``.
        projections: How the projections of the state start: ``"linear"``, as ``nn.Linear`` draws them, or ``"zero"``:
            the model starts as its Transformer, which is better for text.
        head: A head, or its :class:`~transductor.heads.HeadConfig` (also as plain JSON).  When None, a
            :class:`~transductor.RationalHead` over orthogonal transitions; for more than 4096 tokens over products of
            four reflections, which have 4d parameters per token instead of d(d−1)/2.
        state_dim: State dimension of that head; 32 when neither it nor ``head`` is given.
        frozen_parameters: Names, inside ``model.core``, of parameters that are not trained.
        tie_word_embeddings: Whether the logits use the weights of the input embeddings.
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
    projections: str = "linear"
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
        for name, kind in _KINDS.items():
            check_kind(name, getattr(self, name), kind)
        super().__post_init__(**kwargs)
        check_positive("num_hidden_layers", self.num_hidden_layers)
        self.attention = _attention_name(self.attention, self.sliding_window)
        self.positions = to_plain(_position_scheme(self.positions, self.attention))
        one_of("injection", self.injection, INJECTIONS)
        one_of("projections", self.projections, PROJECTIONS)
        self.head = to_plain(_head_config(self.head, self.vocab_size, self.state_dim))
        self.state_dim = _checked_state_dim(from_plain(self.head), self.vocab_size, self.state_dim)
        self.frozen_parameters = _names(self.frozen_parameters)
        self.transductor_config()  # refuses sizes that do not fit together

    def _refuse_unknown(self, settings: Mapping[str, Any]) -> None:
        """Refuse names that nothing reads, and suggest the right one."""
        known = _HUGGING_FACE_NAMES | set(GenerationConfig().to_dict())
        for name in settings:
            if name in known or name.startswith("_"):
                continue
            own = [field for field in self.__dataclass_fields__ if not field.startswith("_")]
            close = difflib.get_close_matches(name, own, 1)
            instead = _INSTEAD.get(name) or (close[0] if close else None)
            hint = f"use {instead}" if instead else f"its names are {', '.join(own)}"
            raise ValueError(f"{type(self).__name__} has no {name!r}; {hint}")

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Return the configuration that plain values describe.

        Raises:
            ConfigurationError: If they describe none; transformers would let any error of a constructor through.
        """
        try:
            return super().from_dict(config_dict, **options)
        except Exception as error:
            raise ConfigurationError(f"{cls.__name__}: {brief(error)}") from error

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *arguments: Any, **options: Any) -> Any:
        """Return the configuration in a folder, as Hugging Face does; what is refused is refused by the file's name.

        Raises:
            ConfigurationError: If it is none, or a folder has no ``config.json``: transformers would take the defaults.
        """
        folder = Path(pretrained_model_name_or_path, options.get("subfolder") or "")
        if folder.is_dir() and not (folder / CONFIG_NAME).is_file():
            raise ConfigurationError(f"{folder / CONFIG_NAME} cannot be read: there is no such file")
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *arguments, **options)
        except ConfigurationError as error:
            place = str(pretrained_model_name_or_path)
            raise error if place in str(error) else ConfigurationError(f"{place}: {error}") from error

    @classmethod
    def _dict_from_json_file(cls, json_file: Any) -> dict[str, Any]:
        """Read a file strictly: transformers takes NaN, a field given twice, and what exhausts memory."""
        try:
            plain = read_json(json_file)
        except JSONError as error:
            raise ConfigurationError(str(error)) from error
        if not isinstance(plain, dict):
            raise ConfigurationError(f"{json_file} must hold an object")
        return plain

    def transductor_config(self, output_size: int = 0) -> TransductorConfig:
        """Return the configuration of the same plain model; an ``output_size`` of 0 means ``vocab_size``."""
        window = self.sliding_window
        attention = _ATTENTIONS[self.attention or "full"]() if window is None else SlidingWindow(window)
        backbone = BackboneConfig(
            vocab_size=self.vocab_size,
            output_size=output_size,
            width=self.hidden_size,
            layers=self.num_hidden_layers,
            attention_heads=self.num_attention_heads,
            feedforward=self.intermediate_size or 0,
            positions=from_plain(self.positions),
            attention=attention,
            dropout=self.hidden_dropout_prob,
        )
        return TransductorConfig(from_plain(self.head), backbone, self.injection, self.projections)

    @classmethod
    def from_transductor_config(cls, config: TransductorConfig, **others: Any) -> RationalTransductorConfig:
        """Return the configuration of the same model; ``others`` are Hugging Face's own, such as ``pad_token_id``."""
        backbone = config.backbone
        window = backbone.attention.window if isinstance(backbone.attention, SlidingWindow) else None
        return cls(
            vocab_size=backbone.vocab_size,
            hidden_size=backbone.width,
            num_hidden_layers=backbone.layers,
            num_attention_heads=backbone.attention_heads,
            intermediate_size=backbone.feedforward or None,
            hidden_dropout_prob=backbone.dropout,
            positions=backbone.positions,
            attention=next(name for name, kind in _ATTENTIONS.items() if kind is type(backbone.attention)),
            sliding_window=window,
            injection=config.injection,
            projections=config.projections,
            head=config.head,
            **others,
        )


def _names(names: Any) -> list[str]:
    if not isinstance(names, Collection) or isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"frozen_parameters must be names of parameters; got {names!r:.40}")
    return sorted(names)


def _attention_name(attention: str | None, sliding_window: int | None) -> str:
    name = ("full" if sliding_window is None else "sliding") if attention is None else attention
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
        with torch.device("meta"):  # only to write every option into the file, so that defaults may change later
            spec = build_family(FamilySpec(family, {"state_dim": size, "vocab_size": vocab_size})).spec()
        return HeadConfig("rational", spec)
    config = head.config if isinstance(head, RationalHead) else head
    config = from_plain(config) if isinstance(config, dict) else config
    if not isinstance(config, HeadConfig):
        raise ValueError(f"head must be a RationalHead or its HeadConfig; got {head!r}")
    one_of("head", config.head, HEADS)
    return config


def _checked_state_dim(config: HeadConfig, vocab_size: int, wanted: int | None) -> int:
    """Return the head's state dimension; refuse another ``state_dim``, and a head for another vocabulary."""
    try:
        with torch.device("meta"):  # shapes only
            family = build_family(config.transitions)
    except NotImplementedError:  # a family that reads its numbers while it is built
        family = build_family(config.transitions)
    if family.vocab_size != vocab_size:
        raise ValueError(f"head must be driven by vocab_size = {vocab_size} tokens; it has {family.extra_repr()}")
    if wanted is not None and wanted != family.state_dim:
        raise ValueError(f"state_dim must be that of head, {family.state_dim}, or None; got {wanted}")
    return family.state_dim
