"""A rational head beside a pretrained decoder: it can be attached, trained, saved on its own, and detached.

A hook before the decoder computes the states of the head from the decoder's arguments and passes them down as one more
keyword argument; each layer adds their projection to the stream when it is called.  The projections start at zero, so
attaching does not change a single bit of the output.  The hook looks the sidecar up on the module it is called with, so
it also works in copies and under PEFT, which puts another module in the sidecar's place.
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
from transductor.integrations.huggingface.head_states import compute_states, fused_terms, refuse_paged_cache
from transductor.integrations.huggingface.host_models import Host, host_of
from transductor.transitions import FAMILIES

MODULE_NAME: Final = "rational_sidecar"
_INJECT: Final = "rational_inject"  # the keyword argument from the decoder down to its layers


@final
class Sidecar(nn.Module):
    """A head, and one projection of its states for every layer of the host model that receives them.

    Args:
        head: A head driven by tokens, or by the host model's input embeddings.
        width: Width of the host model's stream.
        depth: How many layers the host model has.
        layers: Which of them receive the state.
        token_classes: ``(V,)``, the letter of the head that each token of the host model stands for.

    ``reads_features`` says whether the head is driven by input embeddings.
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
        self.injection.start_at("zero")
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
        """Return ``inject(slot, stream)`` for tokens ``(B, T)`` or embeddings ``(B, T, F)``; see `compute_states`."""
        if cu_seqlens is None and not torch.compiler.is_compiling():
            injection = self.injection
            terms = fused_terms(drive, self.token_classes, injection.projections, injection.width, cache)
            if terms is not None:
                return injection.adding(terms)
        if self.token_classes is not None:
            drive = self.token_classes.take(drive.long())
        states = compute_states(
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
        """Name the layers that receive the state."""
        return f"layers={list(self.layers)} of {self.depth}"


class _BeforeDecoder:
    """The hook that computes the states of a call and adds them to its keyword arguments."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        if args:
            kwargs.update(zip(self.names, args, strict=False))
        refuse_paged_cache(kwargs)
        sidecar = base.rational_sidecar
        tokens, embedded = kwargs.get("input_ids"), kwargs.get("inputs_embeds")
        if sidecar.reads_features:
            if embedded is None:  # the host model is given the embeddings, so that they are looked up once
                embedded = kwargs["inputs_embeds"] = base.get_input_embeddings()(tokens)
                kwargs["input_ids"] = None
            drive = embedded
        elif tokens is None:
            raise ValueError(
                "input_ids must be given: the sidecar's head is driven by tokens, which inputs_embeds do not tell; "
                "attach head_for(model), which reads embeddings, to call the model with inputs_embeds"
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
    """Return the cache of this call; it is created here if the decoder would create one."""
    if base.training and getattr(base, "gradient_checkpointing", False):  # the layers will get no cache
        return None
    cache: Cache | None = kwargs.get("past_key_values")
    if cache is None:
        use_cache = kwargs.get("use_cache")
        if base.config.use_cache if use_cache is None else use_cache:
            cache = kwargs["past_key_values"] = DynamicCache(config=base.config)
    return cache


class _Receiver:
    """A class mixed into that of a layer: it adds the layer's term to the stream, then calls the layer.

    This is a class and not a hook, because compiled code checks the class of every layer at each decoded token anyway,
    and because code that replaces ``forward`` later, as Accelerate does, cannot undo it.
    ``rational_slot`` is the number of the layer's projection, None if it has none.
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
        """Copy and pickle by the host model's class, because no module holds our class under a name."""
        _, _, *state = cast(tuple[Any, ...], super().__reduce_ex__(protocol))
        return _blank_receiver, (_original_class(type(self)),), *state


@functools.cache
def _receiver_of(layer_class: Any) -> Any:
    """Return the receiving class of a layer class, under the same name because FSDP's wrapping policies use it."""
    names = {name: getattr(layer_class, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(layer_class.__name__, (_Receiver, layer_class), names)


def _original_class(receiver: type) -> type:
    return receiver.__mro__[receiver.__mro__.index(_Receiver) + 1]


def _blank_receiver(layer_class: type) -> Any:
    receiver = _receiver_of(layer_class)
    return receiver.__new__(receiver)


def head_for(model: Any, *, state_dim: int = 32, family: str = "orthogonal") -> RationalHead:
    """Return a new trainable head for ``model`` that reads its input embeddings.

    The entries of a matrix are an affine map of the token's embedding, so the number of parameters grows with the width
    of the host model and not with its vocabulary: at 50 257 tokens and 32 states a matrix per token would be 25 million
    parameters, each of them computed and updated at every step.

    Args:
        model: The host model.
        state_dim: The dimension of the state, d.
        family: A family of matrices that can be driven by features.
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
    """Attach ``head`` to the decoder of ``model``; the output does not change until the projections are trained.

    The sidecar becomes the module ``rational_sidecar`` of the decoder, on its device; its projections have the host
    model's precision, the head at least float32.  If parameters of the head do not require gradients, the sidecar gets
    a copy in which they are buffers, so that neither an optimiser nor PEFT can change them.

    Args:
        model: One of the host models in ``HOSTS``: bare, with a task on top, or wrapped by PEFT.
        head: A head with as many letters as the host model has tokens or ``token_classes`` has classes, or driven by
            features as wide as the input embeddings (:func:`head_for`).
        layers: Which layers receive the state.
        token_classes: Integers ``(V,)``: the letter of the head that each token of the host model is
            (:func:`~transductor.integrations.huggingface.compile_for_tokens`).

    Returns:
        The sidecar; :func:`sidecar_of` returns it again.
    """
    host = host_of(model)
    chosen = checked_layers(layers, len(host.layers))
    classes = checked_classes(token_classes, head, host)
    if not all(parameter.requires_grad for parameter in head.parameters()):
        head = copy.deepcopy(head)
        frozen_to_buffers(head)
    sidecar = Sidecar(head, width=host.width, depth=len(host.layers), layers=chosen, token_classes=classes)
    weight = host.embeddings.get_parameter("weight")
    if weight.device.type == "meta":
        raise ValueError("model must have its input embeddings on a device; they are offloaded, or not loaded yet")
    sidecar.injection.to(weight.dtype)
    install(host, sidecar.to(weight.device))
    return sidecar


def install(host: Host, sidecar: Sidecar) -> None:
    """Register a sidecar that fits the host model, its hook, and the layers that receive the state."""
    if hasattr(host.base, MODULE_NAME):
        raise ValueError(f"model has a sidecar already ({type(host.base).__name__}.{MODULE_NAME}): detach(model) first")
    sidecar.train(host.base.training)
    host.base.add_module(MODULE_NAME, sidecar)
    host.base.register_forward_pre_hook(_BeforeDecoder(host.argument_names), with_kwargs=True)
    for index, layer in enumerate(cast(list[Any], host.layers)):
        layer.__class__ = _receiver_of(cast(Any, type(layer)))
        layer.rational_slot = sidecar.layers.index(index) if index in sidecar.layers else None


def detach(model: Any) -> Sidecar:
    """Remove the sidecar and return it; the model is then exactly what it was before, hooks included."""
    host = host_of(model)
    sidecar = sidecar_of(model)
    if not isinstance(getattr(host.base, MODULE_NAME), Sidecar):
        raise ValueError(
            f"the sidecar belongs to a PEFT adapter (modules_to_save={[MODULE_NAME]}): take the model out of it with "
            "merge_and_unload() or unload() first"
        )
    if any(_Receiver not in type(layer).__bases__ for layer in host.layers):
        raise ValueError(
            "something else has changed the class of the layers since the sidecar was attached, as fully_shard does: "
            "detach the sidecar of a model that is not sharded"
        )
    delattr(host.base, MODULE_NAME)
    hooks = host.base._forward_pre_hooks
    for number in [number for number, hook in hooks.items() if isinstance(hook, _BeforeDecoder)]:
        del hooks[number], host.base._forward_pre_hooks_with_kwargs[number]
    for layer in host.layers:
        layer.__class__ = _original_class(type(layer))
        del layer.rational_slot
    return sidecar


def sidecar_of(model: Any) -> Sidecar:
    """Return the sidecar attached to ``model``; under PEFT, the one that the active adapter trains."""
    sidecar: Any = getattr(host_of(model).base, MODULE_NAME, None)
    if sidecar is None:
        raise ValueError("model has no sidecar: attach(model, head) first")
    if not isinstance(sidecar, Sidecar):  # PEFT's wrapper around it
        copies = getattr(sidecar, "modules_to_save", {})
        active = [copies[name] for name in getattr(sidecar, "active_adapters", ()) if name in copies]
        sidecar = active[0] if active else sidecar.original_module
    return cast(Sidecar, sidecar)


def checked_classes(classes: Tensor | None, head: Any, host: Host) -> Tensor | None:
    """Return a copy of the token classes; refuse a head that does not fit them or the host model."""
    if not isinstance(head, RationalHead):
        raise TypeError(f"head must be a RationalHead; got {type(head).__name__}")
    letters, feature_dim = head.transitions.vocab_size or 0, head.transitions.feature_dim
    if feature_dim not in (None, host.features):
        raise ValueError(
            f"head must be driven by features of dimension {host.features}, the host model's input embeddings; "
            f"got feature_dim={feature_dim}"
        )
    if classes is None:
        if feature_dim is None and letters != host.vocab_size:
            raise ValueError(
                f"head must have {host.vocab_size} letters, one for every row of the host model's input embeddings, or "
                f"token_classes must say which letter a token is; got vocab_size={letters}"
            )
        return None
    if feature_dim is not None:
        raise ValueError("token_classes must be None for a head driven by features: it reads no letters")
    if not isinstance(classes, Tensor) or classes.is_floating_point() or classes.dtype == torch.bool:
        raise TypeError("token_classes must be a tensor of integers (V,)")
    if classes.shape != (host.vocab_size,):
        raise ValueError(
            f"token_classes must have shape ({host.vocab_size},), one for every row of the host model's input "
            f"embeddings; got {tuple(classes.shape)}"
        )
    low, high = int(classes.min()), int(classes.max())
    if not 0 <= low <= high < letters:
        raise ValueError(f"token_classes must lie in [0, {letters}), the letters of the head; got {low} to {high}")
    return classes.detach().to(torch.int32, copy=True)


def checked_layers(layers: Any, depth: int) -> tuple[int, ...]:
    """Return the numbers of the layers that receive the state, in order."""
    if isinstance(layers, str):
        one_of("layers", layers, ["all"])
        return tuple(range(depth))
    chosen = sorted(layers)
    if not chosen or len(set(chosen)) < len(chosen) or not all(index in range(depth) for index in chosen):
        raise ValueError(f"layers must be 'all' or different numbers from 0 to {depth - 1}; got {list(layers)}")
    return tuple(chosen)


def frozen_to_buffers(head: RationalHead) -> None:
    """Turn the parameters that do not require gradients into buffers of the same names."""
    for module in head.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, parameter.detach())
