"""States of a rational head inside a Hugging Face forward pass: padding, packed documents, and a cache."""

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
    """Which of the last ``time`` tokens are real, ``(B, time)`` bool; None where nothing says that some are not.

    Args:
        attention_mask: As a decoder gets it: ``(B, past + time)`` with nonzero for real tokens; a mask of scores
            ``(B, 1, time, keys)``, bool or additive; or a dictionary of such masks by kind of layer.
        past: Cached tokens before these.
    """
    if isinstance(attention_mask, Mapping):
        given = [mask for mask in attention_mask.values() if mask is not None]
        return real_tokens(given[0], time, past) if given else None
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
        index = torch.arange(time, device=attention_mask.device)
        seen = attention_mask[:, 0, index, index + _key_offset(attention_mask, time, past)]
        real = seen if seen.dtype == torch.bool else seen == 0
    return None if readable(real) and bool(real.all()) else real


def _key_offset(mask: Tensor, time: int, past: int | Tensor) -> int | Tensor:
    """Where the first of the new tokens stands among the keys; a sliding window has forgotten some of the past."""
    return min(past, mask.shape[-1] - time) if isinstance(past, int) else past


def refuse_pages(given: Mapping[str, Any]) -> None:
    """Refuse a call of ``generate_batch``, by its keyword arguments: its cache of pages keeps no states."""
    if given.get("cache") is not None:
        raise ValueError(
            "generate_batch is not supported beside a rational head: the cache of continuous batching has no room for "
            "states; use generate with a padded batch"
        )


def stream_states(
    head: RationalHead,
    drive: Tensor,
    *,
    attention_mask: Any = None,
    position_ids: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    cache: Cache | None = None,
    layers: int = 0,
) -> Tensor:
    """What ``head`` shows at the next tokens ``(B, T, output_dim)``, in at least float32; the cache goes along.

    Args:
        head: Driven by tokens, or by features.
        drive: Tokens ``(B, T)``, or features ``(B, T, F)``.
        attention_mask: See :func:`real_tokens`; a padded token leaves the state as it is.
        position_ids: ``(B, T)``; without mask and cache, a document begins wherever they do not go up by one.
        cu_seqlens: Boundaries of packed documents, instead.
        cache: Of the model around the head.
        layers: How many layers of keys and values it has.
    """
    time = drive.shape[1]
    states: Tensor
    if cu_seqlens is not None and cache is not None and cache.get_seq_length() > 0:
        raise ValueError("packed documents cannot go on from a cache: give past_key_values=None with cu_seqlens")
    layer = None if cu_seqlens is not None or cache is None else state_layer(cache, layers)
    plain = not (torch.is_grad_enabled() or torch.is_autocast_enabled(drive.device.type))
    if plain and time == 1 and layer is not None and layer.ready:
        # What `advance` does for one token, without its checks: every decoded token comes this way, none is padding.
        return layer.step(drive.squeeze(1)).unsqueeze(1)
    away = _comes_when_called(head)
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
    steps = not (away or torch.is_grad_enabled())
    if before is None or time > FEW_STEPS or not steps:
        states = head(drive, initial_state=before, mask=mask)
    else:
        states = head.advance(drive, HeadState(before, layer.prepare(head), None), mask=mask)[0]
    layer.append(states[..., : head.state_dim])
    if isinstance(layer, StaticStateLayer) and steps and not torch.compiler.is_compiling():
        layer.prepare(head)  # a compiled step that was not prepared would be compiled twice
    return states


def fused_terms(
    drive: Tensor, token_classes: Tensor | None, projections: Any, width: int, cache: Cache | None
) -> tuple[Tensor, ...] | None:
    """The projections ``(B, 1, width)`` of the state at one decoded token, by one kernel; the cache goes along.

    None where several operations must do it: on a processor, with gradient, for more than one token, for a head that
    reads features, for projections that somebody wrapped or hooked into.

    Args:
        drive: Tokens ``(B, T)``.
        token_classes: Letters of the head by token; None where tokens are letters.
        projections: All of them, a linear map.
        width: Of one.
        cache: Of the model around the head.
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


def _comes_when_called(head: RationalHead) -> bool:
    """Whether the parameters are whole only while the head is called: under FSDP2, or offloaded by Accelerate."""
    if hasattr(head, "unshard"):  # the head is a unit of its own
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
    """Boundaries of the documents in rows laid end to end, or None if every row is one document.

    Their number is not known in a compiled graph; there every token could begin one, so room is made for all, and those
    that do not exist are empty and stand at the end.
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
