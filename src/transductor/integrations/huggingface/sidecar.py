"""State tracking beside a pretrained decoder: attached, trained, saved on its own, and taken away again.

A hook before the decoder computes the states of a rational head from what the decoder is called with, and hands them
down among the keyword arguments; each layer, when it is called, adds their projection to the stream.  The projections
start at zero, so attaching changes nothing, to the bit.  The hook finds the sidecar through the module it is called
with: copies, and PEFT, which puts another module in its place, are followed.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import Any, Final, Literal, cast, final

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache

from transductor.checks import check_positive, one_of
from transductor.heads import RationalHead
from transductor.injection import DeepInjection, Inject
from transductor.integrations.huggingface.head_states import fused_terms, refuse_pages, stream_states
from transductor.integrations.huggingface.host_models import Host, host_of
from transductor.transitions import FAMILIES

NAME: Final = "rational_sidecar"
_INJECT: Final = "rational_inject"  # the keyword argument from the decoder down to its layers


@final
class Sidecar(nn.Module):
    """A head, and one projection of its states for every layer that receives them.

    Args:
        head: Driven by tokens or, with ``feature_dim`` the width of the host's input embeddings, by these.
        width: Of the host's stream.
        depth: How many layers the host has.
        layers: Which of them receive the state.
        token_classes: ``(V,)``, the letter of the head that each token of the host stands for.

    ``reads_features`` says whether the head is driven by the host's input embeddings.
    """

    token_classes: Tensor | None

    def __init__(
        self,
        head: RationalHead,
        *,
        width: int,
        depth: int,
        layers: tuple[int, ...],
        token_classes: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.rational_head = head
        self.injection = DeepInjection(head.output_dim, width, len(layers))
        assert self.injection.projections is not None
        nn.init.zeros_(self.injection.projections.weight)
        self.depth, self.layers = depth, layers
        self.reads_features = head.transitions.feature_dim is not None
        self.register_buffer("token_classes", token_classes)

    def forward(
        self,
        drive: Tensor,
        *,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Inject:
        """``inject(slot, stream)`` for tokens ``(B, T)`` or embeddings ``(B, T, F)``; see :func:`stream_states`."""
        if cu_seqlens is None and not torch.compiler.is_compiling():
            injection = self.injection
            terms = fused_terms(drive, self.token_classes, injection.projections, injection.width, cache)
            if terms is not None:
                return injection.adding(terms)
        if self.token_classes is not None:
            drive = self.token_classes.take(drive.long())
        states = stream_states(
            self.rational_head,
            drive,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cu_seqlens=cu_seqlens,
            cache=cache,
            layers=self.depth,
        )
        return self.injection.into(states)

    def extra_repr(self) -> str:
        """Which layers."""
        return f"layers={list(self.layers)} of {self.depth}"


class _BeforeDecoder:
    """Computes the states of a call and sends them along; without them the decoder cannot be called."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        if args:
            kwargs.update(zip(self.names, args, strict=False))
        refuse_pages(kwargs)
        sidecar = base.rational_sidecar
        tokens, embedded = kwargs.get("input_ids"), kwargs.get("inputs_embeds")
        if sidecar.reads_features:
            if embedded is None:  # looked up once: the host is given what it would have looked up itself
                embedded = kwargs["inputs_embeds"] = base.get_input_embeddings()(tokens)
                kwargs["input_ids"] = None
            drive = embedded
        elif tokens is None:
            raise ValueError(
                "input_ids must be given: the sidecar's head is driven by tokens, and inputs_embeds do not say which "
                "these are; attach head_for(model), which reads embeddings, to call the model with inputs_embeds"
            )
        else:
            drive = tokens if tokens.ndim == 2 else tokens.view(-1, tokens.shape[-1])
        kwargs[_INJECT] = sidecar(
            drive,
            attention_mask=kwargs.get("attention_mask"),
            position_ids=kwargs.get("position_ids"),
            cu_seqlens=kwargs.get("cu_seq_lens_q"),
            cache=_cache(base, kwargs),
        )
        return (), kwargs


def _cache(base: Any, kwargs: dict[str, Any]) -> Cache | None:
    """The cache of this call, made here where the decoder would make it."""
    if base.training and getattr(base, "gradient_checkpointing", False):  # the layers will be given none
        return None
    cache: Cache | None = kwargs.get("past_key_values")
    if cache is None:
        use_cache = kwargs.get("use_cache")
        if base.config.use_cache if use_cache is None else use_cache:
            cache = kwargs["past_key_values"] = DynamicCache(config=base.config)
    return cache


class _Receiver:
    """Mixed into the class of a layer: adds the layer's term to the stream, and calls the layer.

    A class, where a hook or a replaced ``forward`` would do the same: compiled code checks the class of every layer
    anyway, at each decoded token, and nobody who replaces ``forward`` later, as Accelerate does, can undo it.
    ``rational_slot`` is the layer's place among the projections, None for none.
    """

    rational_slot: int | None

    def __call__(self, *args: Any, rational_inject: Inject | None = None, **kwargs: Any) -> Any:
        if rational_inject is not None and self.rational_slot is not None:
            if args:
                args = (rational_inject(self.rational_slot, args[0]), *args[1:])
            else:
                kwargs["hidden_states"] = rational_inject(self.rational_slot, kwargs["hidden_states"])
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copied and pickled as a layer of the host's class that receives: no module has a name for our own."""
        _, _, *state = cast(tuple[Any, ...], super().__reduce_ex__(protocol))
        return _blank_receiver, (_class_of_host(type(self)),), *state


@functools.cache
def _receiver_of(layer_class: Any) -> Any:
    """A layer of that class which receives, by the same name: wrapping policies go by it."""
    names = {name: getattr(layer_class, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(layer_class.__name__, (_Receiver, layer_class), names)


def _class_of_host(receiver: type) -> type:
    return receiver.__mro__[receiver.__mro__.index(_Receiver) + 1]


def _blank_receiver(layer_class: type) -> Any:
    made = _receiver_of(layer_class)
    return made.__new__(made)


def head_for(model: Any, *, state_dim: int = 32, family: str = "orthogonal") -> RationalHead:
    """A fresh trainable head for ``model`` that reads its input embeddings.

    The numbers of a matrix are an affine map of the token's embedding, so they are as many as the width of the host
    asks for and not as many as its vocabulary: at 50 257 tokens and 32 states a matrix per token would be 25 million
    parameters, each of them computed and updated at every step.

    Args:
        model: The host.
        state_dim: d.
        family: A family that can be driven by features.
    """
    one_of("family", family, FAMILIES)
    check_positive("state_dim", state_dim)
    build: Any = FAMILIES[family]
    return RationalHead(build(state_dim=state_dim, feature_dim=host_of(model).features))


def attach(
    model: Any,
    head: RationalHead,
    layers: Literal["all"] | Iterable[int] = "all",
    *,
    token_classes: Tensor | None = None,
) -> Sidecar:
    """Put ``head`` beside the decoder of ``model``; nothing the model computes changes until the projections do.

    The sidecar becomes the module ``rational_sidecar`` of the decoder, on its device; its projections are in the
    host's precision, the head in at least float32.  Parameters of the head that do not require gradients are made
    buffers of a copy: no optimiser, nor PEFT, will ever move them.

    Args:
        model: A decoder of one of the families in ``HOSTS``: bare, with a task on top, or wrapped by PEFT.
        head: Any head: as many letters as the host has tokens, or as ``token_classes`` names, or driven by features
            as wide as the host's input embeddings (:func:`head_for`).
        layers: Which layers receive the state.
        token_classes: Integers ``(V,)``: which letter of the head each token of the host is
            (:func:`~transductor.integrations.huggingface.compile_for_tokens`).

    Returns:
        The sidecar, which :func:`sidecar_of` finds again.
    """
    host = host_of(model)
    chosen = checked_layers(layers, len(host.layers))
    classes = _checked_classes(token_classes, head, host)
    _check_head(head, host, classes)
    if not all(parameter.requires_grad for parameter in head.parameters()):
        head = copy.deepcopy(head)
        fixed_buffers(head)
    sidecar = Sidecar(head, width=host.width, depth=len(host.layers), layers=chosen, token_classes=classes)
    weight = host.embeddings.get_parameter("weight")
    if weight.device.type == "meta":
        raise ValueError("model must have its input embeddings on a device; they are offloaded, or not loaded yet")
    sidecar.injection.to(weight.dtype)
    fasten(host, sidecar.to(weight.device))
    return sidecar


def fasten(host: Host, sidecar: Sidecar) -> None:
    """Register a sidecar that fits, its hook, and the layers that receive."""
    if hasattr(host.base, NAME):
        raise ValueError(f"model has a sidecar already ({type(host.base).__name__}.{NAME}): detach(model) first")
    sidecar.train(host.base.training)
    host.base.add_module(NAME, sidecar)
    host.base.register_forward_pre_hook(_BeforeDecoder(host.argument_names), with_kwargs=True)
    for index, layer in enumerate(cast(list[Any], host.layers)):
        layer.__class__ = _receiver_of(cast(Any, type(layer)))
        layer.rational_slot = sidecar.layers.index(index) if index in sidecar.layers else None


def detach(model: Any) -> Sidecar:
    """Take the sidecar away and give it back; the model is, to the bit and the last hook, what it was before."""
    host = host_of(model)
    sidecar = sidecar_of(model)
    if not isinstance(getattr(host.base, NAME), Sidecar):
        raise ValueError(
            f"the sidecar belongs to a PEFT adapter (modules_to_save={[NAME]}): take the model out of it with "
            "merge_and_unload() or unload() first"
        )
    if any(_Receiver not in type(layer).__bases__ for layer in host.layers):
        raise ValueError(
            "something else has changed the class of the layers since the sidecar was attached, as fully_shard does: "
            "detach the sidecar of a model that is not sharded"
        )
    delattr(host.base, NAME)
    hooks = host.base._forward_pre_hooks
    for number in [number for number, hook in hooks.items() if isinstance(hook, _BeforeDecoder)]:
        del hooks[number], host.base._forward_pre_hooks_with_kwargs[number]
    for layer in host.layers:
        layer.__class__ = _class_of_host(type(layer))
        del layer.rational_slot
    return sidecar


def sidecar_of(model: Any) -> Sidecar:
    """The sidecar attached to ``model``; inside PEFT, the one that the active adapter trains."""
    found: Any = getattr(host_of(model).base, NAME, None)
    if found is None:
        raise ValueError("model has no sidecar: attach(model, head) first")
    if not isinstance(found, Sidecar):
        wrapped = getattr(found, "modules_to_save", {})
        active = [wrapped[name] for name in getattr(found, "active_adapters", ()) if name in wrapped]
        found = active[0] if active else found.original_module
    return cast(Sidecar, found)


def _check_head(head: Any, host: Host, token_classes: Tensor | None) -> None:
    if not isinstance(head, RationalHead):
        raise TypeError(f"head must be a RationalHead; got {type(head).__name__}")
    family = head.transitions
    if family.feature_dim is not None:
        if family.feature_dim != host.features:
            raise ValueError(
                f"head must be driven by features of dimension {host.features}, the host's input embeddings; "
                f"got feature_dim={family.feature_dim}"
            )
        if token_classes is not None:
            raise ValueError("token_classes must be None for a head driven by features: it reads no letters")
    elif token_classes is None and family.vocab_size != host.vocab_size:
        raise ValueError(
            f"head must have {host.vocab_size} letters, one for every row of the host's input embeddings, or "
            f"token_classes must say which letter a token is; got vocab_size={family.vocab_size}"
        )


def _checked_classes(token_classes: Tensor | None, head: Any, host: Host) -> Tensor | None:
    if token_classes is None:
        return None
    if not isinstance(token_classes, Tensor) or token_classes.is_floating_point() or token_classes.dtype == torch.bool:
        raise TypeError("token_classes must be a tensor of integers (V,)")
    if token_classes.shape != (host.vocab_size,):
        raise ValueError(
            f"token_classes must have shape ({host.vocab_size},), one for every row of the host's input embeddings; "
            f"got {tuple(token_classes.shape)}"
        )
    letters = head.transitions.vocab_size if isinstance(head, RationalHead) else None
    if letters is not None and not 0 <= int(token_classes.min()) <= int(token_classes.max()) < letters:
        raise ValueError(
            f"token_classes must lie in [0, {letters}), the letters of the head; "
            f"got {int(token_classes.min())} to {int(token_classes.max())}"
        )
    return token_classes.detach().to(torch.int32, copy=True)


def checked_layers(layers: Any, depth: int) -> tuple[int, ...]:
    """The numbers of the layers that receive the state, in order."""
    if isinstance(layers, str):
        one_of("layers", layers, ["all"])
        return tuple(range(depth))
    chosen = sorted(layers)
    if not chosen or len(set(chosen)) < len(chosen) or not all(index in range(depth) for index in chosen):
        raise ValueError(f"layers must be 'all' or different numbers from 0 to {depth - 1}; got {list(layers)}")
    return tuple(chosen)


def fixed_buffers(head: RationalHead) -> None:
    """Make buffers, of the same names, of the parameters that do not require gradients."""
    for module in head.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, parameter.detach())
