"""States of a rational head inside a Hugging Face forward pass: padding, packed documents, and their cache.

The state after every cached token is kept in one more layer of the cache, made of the same layer classes as the keys
and values beside it.  So whatever happens to a cache (beam search reorders it, assisted decoding crops it, a static one
is written in place inside a compiled graph) happens to the states, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
    StaticSlidingWindowLayer,
)

from transductor.heads import HeadState, RationalHead
from transductor.heads.rational import FEW_STEPS
from transductor.notation import readable
from transductor.transitions import Stepper

__all__ = [
    "StateLayer",
    "StaticStateLayer",
    "StaticWindowedStateLayer",
    "WindowedStateLayer",
    "real_tokens",
    "state_layer",
    "stream_states",
]


class _Stepping:
    """Keeps how to take a step, from the parameters of the first, until the cache begins anew."""

    stepper: Stepper | None = None

    def reset(self) -> None:
        """Forget the states and the parameters."""
        self.stepper = None
        super().reset()  # type: ignore[misc]


class StateLayer(_Stepping, DynamicLayer):  # type: ignore[misc]
    """States ``(B, 1, t, D)`` of all cached tokens, as if they were keys; grows, and can be cropped."""

    def previous(self, start: Any) -> Tensor:
        """The state ``(B, D)`` after the last cached token; ``start (D)`` before the first."""
        found: Tensor = self.keys[:, 0, -1] if self.get_seq_length() > 0 else start
        return found

    def append(self, states: Tensor) -> None:
        """Add the states ``(B, n, D)`` of the next tokens."""
        keys = states.detach().unsqueeze(1)
        self.update(keys, keys[..., :0])


class WindowedStateLayer(_Stepping, DynamicSlidingWindowLayer):  # type: ignore[misc]
    """The same beside sliding windows only: as many states are kept as the longest window has keys."""

    previous = StateLayer.previous
    append = StateLayer.append


class StaticStateLayer(_Stepping, StaticLayer):  # type: ignore[misc]
    """States ``(B, 1, length, D)`` written in place at fixed addresses."""

    append = StateLayer.append

    def previous(self, start: Any) -> Tensor:
        """The state ``(B, D)`` after the last cached token; ``start (D)`` before the first."""
        found: Tensor = start
        if self.is_initialized:
            last = (self.cumulative_length - 1).clamp_min(0).view(1)
            found = self.keys[:, 0].index_select(1, last).squeeze(1).where(self.cumulative_length > 0, start)
        return found


class StaticWindowedStateLayer(_Stepping, StaticSlidingWindowLayer):  # type: ignore[misc]
    """The same beside static sliding windows only: the states of the longest window, the last one at the end."""

    append = StateLayer.append

    def previous(self, start: Any) -> Tensor:
        """The state ``(B, D)`` after the last cached token; ``start (D)`` before the first."""
        full = self.is_initialized and self.get_seq_length() >= self.max_cache_len
        found: Tensor = self.keys[:, 0, -1] if full else StaticStateLayer.previous(self, start)
        return found


AnyStateLayer = StateLayer | WindowedStateLayer | StaticStateLayer | StaticWindowedStateLayer


def state_layer(cache: Cache, layers: int) -> AnyStateLayer:
    """The layer of ``cache`` that holds the states; added behind its ``layers`` layers when first asked for."""
    if not isinstance(cache, Cache):
        raise TypeError(f"past_key_values must be a transformers Cache; got {type(cache).__name__}")
    if cache.layers and isinstance(cache.layers[-1], AnyStateLayer):
        return cache.layers[-1]
    if cache.layer_class_to_replicate is not None:  # a cache that grows as layers come must not grow past ours
        while len(cache.layers) < layers:
            cache.layers.append(cache.layer_class_to_replicate())
    windows = [layer.sliding_window for layer in cache.layers if isinstance(layer, DynamicSlidingWindowLayer)]
    added: AnyStateLayer
    if any(isinstance(layer, StaticLayer) for layer in cache.layers):
        longest = cache.get_max_length()
        added = StaticStateLayer(max_cache_len=longest)
        if all(isinstance(layer, StaticSlidingWindowLayer) for layer in cache.layers):
            added = StaticWindowedStateLayer(max_cache_len=longest, sliding_window=longest)
    elif windows and len(windows) == len(cache.layers):
        added = WindowedStateLayer(sliding_window=max(windows))
        added.record_past = any(layer.record_past for layer in cache.layers)  # assisted decoding will crop it
    else:
        added = StateLayer()
    cache.layers.append(added)
    return added


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
    if cu_seqlens is not None or cache is None:
        rows = drive
        if cu_seqlens is None and position_ids is not None and attention_mask is None:
            cu_seqlens = _boundaries(position_ids.expand(drive.shape[0], -1))
            rows = drive if cu_seqlens is None else drive.flatten(0, 1)[None]
        mask = None if cu_seqlens is not None else real_tokens(attention_mask, time, 0)
        states = head(rows, mask=mask, cu_seqlens=cu_seqlens)
        return states.view(*drive.shape[:2], -1)
    layer = state_layer(cache, layers)
    past = layer.get_seq_length()
    one_real = time == 1 and not (isinstance(past, int) and past == 0)  # a generated token is never padding
    mask = None if one_real else real_tokens(attention_mask, time, past)
    if one_real and mask is None and layer.stepper is not None and _steps_plainly(head, drive):
        # What `advance` does for one token, without its checks: every decoded token comes this way.
        before = layer.previous(None if isinstance(layer, DynamicLayer) else head.initial_state())
        states = layer.stepper(before, drive[:, 0]).unsqueeze(1)
        layer.append(states)
        return states
    start = head.initial_state()
    before = layer.previous(start).to(start.dtype)
    if time > FEW_STEPS or torch.is_grad_enabled():
        states = head(drive, initial_state=before, mask=mask)
        if isinstance(layer, StaticLayer) and layer.stepper is None and not torch.is_grad_enabled():
            layer.stepper = head.transitions.stepper()  # a compiled step that found none would be compiled twice
    else:
        if layer.stepper is None:  # the parameters stay as they are while a cache lasts
            layer.stepper = head.transitions.stepper()
        stream = HeadState(before.expand(drive.shape[0], -1), layer.stepper, None)
        states = head.advance(drive, stream, mask=mask)[0]
    layer.append(states[..., : head.state_dim])
    return states


def _steps_plainly(head: RationalHead, drive: Tensor) -> bool:
    """Whether one step of ``head`` is one call of its stepper and nothing else."""
    return (
        type(head).advance is RationalHead.advance
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled(drive.device.type)
    )


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
