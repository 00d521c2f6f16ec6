"""The states of a rational head during a Hugging Face forward pass: with padding, packed documents or a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from transductor.checks import readable
from transductor.heads import HeadState, RationalHead
from transductor.heads.rational import FEW_STEPS
from transductor.injection import is_bare
from transductor.integrations.huggingface.state_layers import StaticStateLayer, state_layer
from transductor.kernels.gpu.decoding import TokenDecoder, decodes_at_once


def real_tokens(attention_mask: Any, time: int, past: int | Tensor) -> Tensor | None:
    """Return which of the last ``time`` tokens are real, ``(B, time)`` bool, or None if all of them are.

    Args:
        attention_mask: As a decoder gets it: ``(B, past + time)`` with nonzero for real tokens; a mask of scores
            ``(B, 1, time, keys)``, bool or additive; or a dictionary of such masks by kind of layer.
        time: Number of tokens.
        past: Number of cached tokens before these.
    """
    attention_mask = any_mask(attention_mask)
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, Tensor) or attention_mask.ndim not in (2, 4):
        shape = tuple(attention_mask.shape) if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
        raise ValueError(
            f"attention_mask must be (B, T), or (B, 1, T, keys) for attn_implementation 'sdpa' or 'eager'; got {shape}"
        )
    if attention_mask.ndim == 2:
        real = attention_mask[:, -time:] != 0
    else:  # a real token sees itself
        # A sliding window has dropped some of the past, so the new tokens begin earlier among the keys.
        offset = min(past, attention_mask.shape[-1] - time) if isinstance(past, int) else past
        index = torch.arange(time, device=attention_mask.device)
        seen = attention_mask[:, 0, index, index + offset]
        real = seen if seen.dtype == torch.bool else seen == 0
    return None if readable(real) and bool(real.all()) else real


def any_mask(attention_mask: Any) -> Any:
    """Return the first mask of a dictionary of masks by kind of layer; any other mask as it is."""
    if isinstance(attention_mask, Mapping):
        return next((mask for mask in attention_mask.values() if mask is not None), None)
    return attention_mask


def refuse_paged_cache(kwargs: Mapping[str, Any]) -> None:
    """Refuse a call by ``generate_batch``, recognised by its arguments: its paged cache cannot hold states."""
    if kwargs.get("cache") is not None:
        raise ValueError(
            "generate_batch is not supported beside a rational head: the cache of continuous batching has no room for "
            "states; use generate with a padded batch"
        )


def compute_states(
    head: RationalHead,
    drive: Tensor,
    *,
    attention_mask: Any = None,
    position_ids: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    cache: Cache | None = None,
    layers: int = 0,
) -> Tensor:
    """Return the head's output at the next tokens, ``(B, T, output_dim)`` in at least float32, and update the cache.

    Args:
        head: A head driven by tokens or by features.
        drive: Tokens ``(B, T)``, or features ``(B, T, F)``.
        attention_mask: See :func:`real_tokens`; a padded token leaves the state as it is.
        position_ids: ``(B, T)``; without mask and cache, a document begins wherever they do not go up by one.
        cu_seqlens: Boundaries of packed documents, instead of ``position_ids``.
        cache: The cache of the model around the head.
        layers: How many layers of keys and values the cache has.
    """
    time = drive.shape[1]
    states: Tensor
    if cu_seqlens is not None and cache is not None and cache.get_seq_length() > 0:
        raise ValueError("packed documents cannot go on from a cache: give past_key_values=None with cu_seqlens")
    layer = None if cu_seqlens is not None or cache is None else state_layer(cache, layers)
    plain = not (torch.is_grad_enabled() or torch.is_autocast_enabled(drive.device.type))
    if plain and time == 1 and layer is not None and layer.ready:
        # What `advance` does for one token, without its checks: this runs for every decoded token, never for padding.
        return layer.step(drive.squeeze(1)).unsqueeze(1)
    loaded_by_call = _parameters_loaded_by_call(head)
    if layer is None or cache is None:
        rows = drive
        if cu_seqlens is None and position_ids is not None and attention_mask is None:
            cu_seqlens = _boundaries(position_ids.expand(drive.shape[0], -1))
            rows = drive if cu_seqlens is None else drive.flatten(0, 1)[None]
        mask = None if cu_seqlens is not None else real_tokens(attention_mask, time, 0)
        states = head(rows, mask=mask, cu_seqlens=cu_seqlens)
        return states.view(*drive.shape[:2], -1)
    mask = None if time == 1 and layer.begun else real_tokens(attention_mask, time, cache.get_seq_length())
    before = layer.previous() if layer.begun else None
    can_step = not (loaded_by_call or torch.is_grad_enabled())
    if before is None or time > FEW_STEPS or not can_step:
        states = head(drive, initial_state=before, mask=mask)
    else:
        states = head.advance(drive, HeadState(before, layer.prepare(head), None), mask=mask)[0]
    layer.append(states[..., : head.state_dim])
    if isinstance(layer, StaticStateLayer) and can_step and not torch.compiler.is_compiling():
        layer.prepare(head)  # otherwise a compiled step would be compiled a second time
    return states


def fused_terms(
    drive: Tensor, token_classes: Tensor | None, projections: Any, width: int, cache: Cache | None
) -> tuple[Tensor, ...] | None:
    """Return the projections ``(B, 1, width)`` of the state at one decoded token, by one kernel, and update the cache.

    None where the kernel does not apply: on a CPU, with gradient, for more than one token, for a head that reads
    features, or for projections that have been wrapped or hooked.

    Args:
        drive: Tokens ``(B, T)``.
        token_classes: The letter of the head that each token is; None if tokens are letters.
        projections: The linear map that holds the projections of all layers.
        width: Width of one projection.
        cache: The cache of the model around the head.
    """
    layer: Any = cache.layers[-1] if cache is not None and cache.layers else None
    table: Tensor | None = getattr(layer, "table", None)
    if table is None or drive.shape[1] != 1 or not layer.begun or torch.is_grad_enabled() or not is_bare(projections):
        return None
    if torch.is_autocast_enabled(drive.device.type):
        return None
    state, weight, decoder = layer.previous(), projections.weight, layer.decoder
    if decoder is None or not decoder.reads(token_classes, drive, state, weight):
        if not decodes_at_once(table, token_classes, drive, state, weight):
            return None
        decoder = layer.decoder = TokenDecoder(table, token_classes, weight, width, len(drive))
    layer.append_one(decoder(drive, state))
    terms: tuple[Tensor, ...] = decoder.by_layer
    return terms


def _parameters_loaded_by_call(head: RationalHead) -> bool:
    """Tell whether calling the head is what loads its parameters: under FSDP2, or offloaded by Accelerate."""
    if hasattr(head, "unshard"):  # fully_shard was applied to the head itself
        return True
    parameter = None if torch.compiler.is_compiling() else next(head.parameters(), None)
    if parameter is None or parameter.device.type != "meta":
        return False
    hook = getattr(head, "_hf_hook", None)
    if not any(getattr(each, "place_submodules", False) for each in getattr(hook, "hooks", (hook,))):
        raise ValueError(
            "the head's parameters must be on a device, or be offloaded together, because no step can do without any: "
            "give Accelerate preload_module_classes=['RationalHead'], or a device_map that does not offload the head"
        )
    return True


def _boundaries(position_ids: Tensor) -> Tensor | None:
    """Return the boundaries of the documents in rows laid end to end, or None if every row is one document.

    A compiled graph does not know how many documents there are.  There the result has room for one per token, and the
    documents that do not exist are empty ones at the end.
    """
    rows, time = position_ids.shape
    begins = position_ids.diff(dim=1, prepend=position_ids[:, :1]) != 1
    begins[:, :1] = True
    total = rows * time
    if not torch.compiler.is_compiling():
        first = begins.flatten().nonzero().squeeze(1)
        if first.numel() == rows:
            return None
        return torch.cat((first, first.new_tensor([total])))
    index = torch.arange(total, device=position_ids.device)
    first = index.where(begins.flatten(), total).sort().values
    return torch.cat((first, first.new_full((1,), total)))
