"""Decoders that a sidecar can be attached to: where their layers are, and how wide the stream between them is."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Final

from torch import nn
from transformers import PreTrainedModel

# By model_type: the way from the base model to the module that is called with token ids, and its list of layers.
HOSTS: Final[dict[str, tuple[str, str]]] = {
    "gpt2": ("", "h"),
    "llama": ("", "layers"),
    "qwen2": ("", "layers"),
    "qwen3": ("", "layers"),
    "mistral": ("", "layers"),
    "gemma2": ("", "layers"),
    "gemma3_text": ("", "layers"),
    "phi3": ("", "layers"),
    "gpt_neox": ("", "layers"),
    "opt": ("decoder", "layers"),
    "olmo2": ("", "layers"),
    "smollm3": ("", "layers"),
}

_WITHOUT_WAY: Final = ("bloom", "falcon")  # their layers do not receive the keyword arguments of the model


class UnsupportedHost(ValueError):
    """A model that no sidecar can be attached to; the message says why, and which models work."""


@dataclass(frozen=True)
class Host:
    """A decoder, whatever task stands on it and whatever is wrapped around it.

    Attributes:
        family: Its ``model_type``.
        base: The module that is called with token ids and hands its keyword arguments on to its layers.
        layers: Its layers, as many as its cache has.
        width: Of the stream between them.
        features: Width of its input embeddings.
        vocab_size: Rows of its input embeddings.
    """

    family: str
    base: nn.Module
    layers: nn.ModuleList
    width: int
    features: int
    vocab_size: int

    @property
    def embeddings(self) -> nn.Module:
        """The input embeddings."""
        found: nn.Module = self.base.get_input_embeddings()  # type: ignore[operator]
        return found

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The names of what ``base`` may be given by position."""
        names = list(inspect.signature(type(self.base).forward).parameters.values())[1:]
        return tuple(each.name for each in names if each.kind is each.POSITIONAL_OR_KEYWORD)


def host_of(model: Any) -> Host:
    """The decoder inside ``model``: a bare model, one with a task on top, or either wrapped by PEFT, DDP or compile.

    Raises:
        UnsupportedHost: Naming the families that work.
    """
    found = _unwrapped(model)
    if not isinstance(found, PreTrainedModel):
        raise TypeError(f"model must be a transformers model (or PEFT around one); got {type(model).__name__}")
    family = getattr(found.config, "model_type", "")
    if family not in HOSTS:
        why = (
            "does not hand keyword arguments on to its layers, so states have no way in"
            if family in _WITHOUT_WAY
            else "is none of the families that were verified"
        )
        raise UnsupportedHost(f"model {family!r} {why}; a sidecar can be attached to {', '.join(HOSTS)}")
    if getattr(found.config, "add_cross_attention", False):
        raise UnsupportedHost(f"model {family!r} with add_cross_attention=True is half of a pair: give a plain decoder")
    inside, layers = HOSTS[family]
    base = getattr(found.base_model, inside, found.base_model) if inside else found.base_model
    embeddings = base.get_input_embeddings()
    return Host(
        family=family,
        base=base,
        layers=getattr(base, layers),
        width=found.config.hidden_size,
        features=embeddings.weight.shape[1],
        vocab_size=embeddings.weight.shape[0],
    )


def _unwrapped(model: Any) -> Any:
    """Without DDP (``module``), compile (``_orig_mod``) and PEFT (``get_base_model``) around it."""
    while isinstance(model, nn.Module) and not isinstance(model, PreTrainedModel):
        inner = getattr(model, "_orig_mod", getattr(model, "module", None))
        from_peft: Any = getattr(model, "get_base_model", None)
        if inner is None and from_peft is not None:
            inner = from_peft()
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model
