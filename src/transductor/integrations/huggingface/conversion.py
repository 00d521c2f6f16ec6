"""Between a plain :class:`~transductor.RationalTransductor` and the Hugging Face models: a renaming of weights."""

from __future__ import annotations

from typing import Any, Final

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
# Where each class keeps what the core calls its readout.
_HEADS: Final = {RationalTransductorForCausalLM: "lm_head", RationalTransductorForTokenClassification: "score"}


def from_transductor(model: RationalTransductor, *, task: str = "causal-lm", **settings: Any) -> Any:
    """The same model as a Hugging Face one, with copies of its weights, bit for bit, in the same mode.

    Args:
        model: Any :class:`~transductor.RationalTransductor`.
        task: ``"causal-lm"`` for logits over the vocabulary, ``"token-classification"`` for any other output.
        settings: For its configuration, such as ``pad_token_id``.
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
    hosted = _CLASSES[task](config)
    weights = {_hosted_name(hosted, name): value.detach().clone() for name, value in model.state_dict().items()}
    hosted.load_state_dict(weights, assign=True)  # every tensor keeps its precision
    for name, parameter in model.named_parameters():
        hosted.get_parameter(_hosted_name(hosted, name)).requires_grad_(parameter.requires_grad)
    return hosted.train(model.training)


def to_transductor(model: RationalTransductorPreTrainedModel) -> RationalTransductor:
    """The same model in this project's own terms, with copies of its weights, bit for bit; ready for ``save``."""
    if type(model) not in _HEADS:
        names = ", ".join(kind.__name__ for kind in _HEADS)
        got = type(model).__name__
        raise TypeError(f"model must be one of {names}, which have logits at every position; got {got}")
    outputs = getattr(model, _HEADS[type(model)]).out_features
    plain = build(model.config.transductor_config(0 if outputs == model.config.vocab_size else outputs))
    assert isinstance(plain, RationalTransductor)
    weights = model.state_dict()
    plain.load_state_dict(
        {name: weights[_hosted_name(model, name)].detach().clone() for name in plain.state_dict()}, assign=True
    )
    for name, parameter in plain.named_parameters():
        parameter.requires_grad_(model.get_parameter(_hosted_name(model, name)).requires_grad)
    return plain.train(model.training)


def _hosted_name(model: RationalTransductorPreTrainedModel, name: str) -> str:
    """What a weight of the core is called in a Hugging Face model."""
    if name.startswith(_READOUT):
        return f"{_HEADS[type(model)]}.{name.removeprefix(_READOUT)}"
    return f"{model.base_model_prefix}.core.{name}"
