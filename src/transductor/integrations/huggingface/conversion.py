"""Converts a plain :class:`~transductor.RationalTransductor` to a Hugging Face model and back by renaming weights."""

from __future__ import annotations

from typing import Any, Final

from torch import nn

from transductor.checks import one_of
from transductor.integrations.huggingface.configuration import RationalTransductorConfig
from transductor.integrations.huggingface.modeling import (
    RationalTransductorForCausalLM,
    RationalTransductorForTokenClassification,
    RationalTransductorPreTrainedModel,
)
from transductor.model import RationalTransductor, build

_READOUT: Final = "backbone.readout."
_CLASSES: Final[dict[str, type[RationalTransductorPreTrainedModel]]] = {
    "causal-lm": RationalTransductorForCausalLM,
    "token-classification": RationalTransductorForTokenClassification,
}
# The name of the readout in each class.
_READOUTS: Final = {RationalTransductorForCausalLM: "lm_head", RationalTransductorForTokenClassification: "score"}


def from_transductor(model: RationalTransductor, *, task: str = "causal-lm", **settings: Any) -> Any:
    """Return the same model as a Hugging Face model, with exact copies of its weights and in the same mode.

    Args:
        model: Any :class:`~transductor.RationalTransductor`.
        task: ``"causal-lm"`` for logits over the vocabulary, ``"token-classification"`` for any other output.
        settings: Other settings of its configuration, such as ``pad_token_id``.
    """
    if not isinstance(model, RationalTransductor):
        raise TypeError(f"model must be a RationalTransductor; got {type(model).__name__}")
    one_of("task", task, _CLASSES)
    outputs, vocabulary = model.output_size, model.vocab_size
    if task == "causal-lm" and outputs != vocabulary:
        raise ValueError(
            f"task must be 'token-classification' for a model with {outputs} outputs and {vocabulary} tokens; "
            "got 'causal-lm'"
        )
    if task == "token-classification":
        settings.setdefault("num_labels", outputs)
    if settings.get("tie_word_embeddings"):
        raise ValueError("tie_word_embeddings must be False: the model has a readout of its own")
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    config = RationalTransductorConfig.from_transductor_config(
        model.config, frozen_parameters=[name for name in frozen if not name.startswith(_READOUT)], **settings
    )
    converted = _CLASSES[task](config)
    _copy_weights(model, converted, {_name_in(converted, name): name for name in model.state_dict()})
    return converted


def to_transductor(model: RationalTransductorPreTrainedModel) -> RationalTransductor:
    """Return the same model as a plain one, with exact copies of its weights; ``save`` can write it."""
    if type(model) not in _READOUTS:
        names = ", ".join(kind.__name__ for kind in _READOUTS)
        got = type(model).__name__
        raise TypeError(f"model must be one of {names}, which have logits at every position; got {got}")
    outputs = getattr(model, _READOUTS[type(model)]).out_features
    plain = build(model.config.transductor_config(0 if outputs == model.config.vocab_size else outputs))
    assert isinstance(plain, RationalTransductor)
    _copy_weights(model, plain, {name: _name_in(model, name) for name in plain.state_dict()})
    return plain


def _copy_weights(source: nn.Module, target: nn.Module, names: dict[str, str]) -> None:
    """Copy weights, what is trained, and the mode; ``names`` gives the source's name for each name of the target."""
    weights = source.state_dict()
    copies = {name: weights[old].detach().clone() for name, old in names.items()}
    target.load_state_dict(copies, assign=True)  # every tensor keeps its precision
    for name, parameter in target.named_parameters():
        parameter.requires_grad_(source.get_parameter(names[name]).requires_grad)
    target.train(source.training)


def _name_in(model: RationalTransductorPreTrainedModel, name: str) -> str:
    """Return the name that a weight of the plain model has in a Hugging Face model."""
    if name.startswith(_READOUT):
        return f"{_READOUTS[type(model)]}.{name.removeprefix(_READOUT)}"
    return f"{model.base_model_prefix}.core.{name}"
