"""Cache layers that hold the states of a rational head, next to the layers that hold keys and values.

They are subclasses of transformers' own cache layers, so whatever happens to a cache (beam search reorders it, assisted
decoding crops it, a compiled graph writes a static one in place) happens to the states, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer, StaticLayer

from transductor.heads import RationalHead
from transductor.kernels.gpu.decoding import TokenDecoder, runs_on
from transductor.transitions import Stepper

# After this many single tokens their states are joined to the others: each takes more memory alone.
_JOINED_TOGETHER = 64

# A table with more entries is not computed for the sake of the decoding kernel alone.
_LARGEST_TABLE = 1 << 18


class _Stepping:
    """A layer that keeps its ``stepper``, computed from the parameters at the first step, until the cache is reset.

    A cache that offloads its layers prefetches the next one, and after the last layer the first.  Our layer comes last
    and is never offloaded, so it prefetches the first one, ``fetched_next``, in its place.
    """

    fetched_next: CacheLayerMixin | None = None
    stepper: Stepper | None = None
    keys: Any

    def previous(self) -> Tensor:
        """Return the state ``(B, D)`` after the last cached token."""
        return cast(Tensor, self.keys[:, 0, -1])

    def prefetch(self) -> None:
        """Load the offloaded layer that is used next."""
        if self.fetched_next is not None:
            self.fetched_next.prefetch()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the stepper out of copies and files: it may be large, and is computed again when needed."""
        return self.__dict__ | {"stepper": None}


def _steps_plainly(head: RationalHead) -> bool:
    """Tell whether a step of the head is a step of its stepper and nothing else."""
    return type(head).advance is RationalHead.advance and head.linear and not head.shows_previous


class _GrowingStepping(_Stepping):
    """A layer that keeps the states of the past and appends those of new tokens."""

    append: Callable[[Tensor], None]
    get_seq_length: Callable[[], int]
    steps_plainly = False
    table: Tensor | None = None  # (V, D, D), if the decoding kernel can use it
    decoder: TokenDecoder | None = None  # the decoding kernel

    def prepare(self, head: RationalHead) -> Stepper:
        """Return the stepper, computed once: the parameters do not change while a cache is in use."""
        if self.stepper is None:
            self.stepper, self.steps_plainly = head.stepper(None), _steps_plainly(head)
            if self.steps_plainly and not torch.compiler.is_compiling():
                self.table = _table(head, self.stepper)
        return self.stepper

    @property
    def begun(self) -> bool:
        """Tell whether there is a state."""
        return self.get_seq_length() > 0

    @property
    def ready(self) -> bool:
        """Tell whether :meth:`step` can be called."""
        return self.steps_plainly and self.begun

    def step(self, drive: Tensor) -> Tensor:
        """Return and keep the state ``(B, D)`` after one more token, without gradient."""
        assert self.stepper is not None
        state = self.stepper(self.previous(), drive)
        self.append_one(state)
        return state

    def append_one(self, state: Tensor) -> None:
        """Add the state ``(B, D)`` of one more token, without gradient."""
        self.append(state.unsqueeze(1))

    def reset(self) -> None:
        """Forget the states and what was computed from the parameters."""
        self.stepper, self.steps_plainly, self.table, self.decoder = None, False, None, None
        super().reset()  # type: ignore[misc]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"steps_plainly": False, "table": None, "decoder": None}


def _table(head: RationalHead, stepper: Stepper) -> Tensor | None:
    """Return the matrices of all tokens for the decoding kernel, if they are computed already or not too many."""
    family = head.transitions
    if not runs_on(head.raw_initial_state.device):
        return None
    if stepper.by_table:
        return stepper.kept[0].detach().contiguous()
    if family.vocab_size is None or family.vocab_size * family.state_dim**2 > _LARGEST_TABLE:
        return None
    return family.table().detach().contiguous()


class StateLayer(_GrowingStepping, DynamicLayer):  # type: ignore[misc]
    """The states ``(B, 1, t, D)`` of all cached tokens, stored as keys; it grows and can be cropped.

    The states of decoded tokens are collected in a list and joined to the others when all of them are needed, which
    beam search and assisted decoding do and a single stream does not.
    """

    def __init__(self) -> None:
        self._joined: Tensor | None = None
        self._waiting: list[Tensor] = []  # (B, D) each
        super().__init__()

    @property
    def keys(self) -> Tensor | None:
        """Return all states, ``(B, 1, t, D)``."""
        self._join()
        return self._joined

    @keys.setter
    def keys(self, states: Tensor | None) -> None:
        self._joined, self._waiting = states, []

    @property
    def values(self) -> Tensor | None:
        """Return as many values as there are keys, of width zero."""
        keys = self.keys
        return None if keys is None else keys[..., :0]

    @values.setter
    def values(self, states: Tensor | None) -> None:
        """Ignore the values: they follow from the keys."""

    def get_seq_length(self) -> int:
        """Return the number of states."""
        return len(self._waiting) + (0 if self._joined is None else self._joined.shape[-2])

    def previous(self) -> Tensor:
        """Return the state ``(B, D)`` after the last cached token."""
        return self._waiting[-1] if self._waiting else super().previous()

    def append(self, states: Tensor) -> None:
        """Add the states ``(B, n, D)`` of the next tokens."""
        keys, before = states.detach().unsqueeze(1), self.keys
        self.keys = keys if before is None else torch.cat((before, keys), -2)
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def append_one(self, state: Tensor) -> None:
        """Add the state ``(B, D)`` of one more token, without gradient."""
        if torch.compiler.is_compiling():  # a graph takes the length of a list for a constant
            super().append_one(state)
        else:
            self._waiting.append(state)
            if len(self._waiting) == _JOINED_TOGETHER:
                self._join()

    def _join(self) -> None:
        if self._waiting:
            joined, waiting = self._joined, torch.stack(self._waiting, 1).unsqueeze(1)
            self.keys = waiting if joined is None else torch.cat((joined, waiting), -2)


class WindowedStateLayer(_GrowingStepping, DynamicSlidingWindowLayer):  # type: ignore[misc]
    """The same for a cache of sliding windows only: it keeps as many states as the longest window has keys."""

    def append(self, states: Tensor) -> None:
        """Add the states ``(B, n, D)`` of the next tokens."""
        keys = states.detach().unsqueeze(1)
        self.update(keys, keys[..., :0])


class StaticStateLayer(_Stepping, StaticLayer):  # type: ignore[misc]
    """The last state only, ``(B, 1, 1, D)``, written in place: a static cache is never cropped.

    The tensors that a step reads keep their addresses when the cache is reset; otherwise a captured graph would copy
    them before every token.

    Args:
        max_cache_len: How many tokens the cache has room for.
        alone: Whether this is the only layer of the cache, which then has to count the tokens.
    """

    def __init__(self, max_cache_len: int, *, alone: bool) -> None:
        super().__init__(max_cache_len=max_cache_len)
        self.alone = alone
        self.begun = self.prepared = self.ready = False

    def prepare(self, head: RationalHead) -> Stepper:
        """Return the stepper, computed once after a reset; its tensors keep their addresses."""
        if self.stepper is None or not self.prepared:
            fresh, before = head.stepper(None), self.stepper
            if torch.compiler.is_compiling():  # a graph cannot fix the address of a tensor
                return fresh
            if before is not None and _can_hold(before.kept, fresh.kept):
                for old, new in zip(before.kept, fresh.kept, strict=True):
                    old.copy_(new)
                self.stepper = replace(fresh, kept=before.kept)
            else:
                owned = {each.untyped_storage().data_ptr() for each in (*head.parameters(), *head.buffers())}
                kept = [each.clone() if each.untyped_storage().data_ptr() in owned else each for each in fresh.kept]
                for each in kept:
                    torch._dynamo.mark_static_address(each)
                self.stepper = replace(fresh, kept=tuple(kept))
            self.prepared = True
        self.ready = self.begun and _steps_plainly(head)
        return self.stepper

    def step(self, drive: Tensor) -> Tensor:
        """Return and keep the state ``(B, D)`` after one more token, without gradient.

        Keep this short: compiled code checks every attribute that is read here at every token.
        """
        assert self.stepper is not None
        state = self.stepper(self.keys[:, 0, 0], drive)
        self.keys.copy_(state[:, None, None])
        if self.alone:
            self.cumulative_length.add_(1)
        return state

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate memory for one state."""
        longest = self.get_max_length()
        self.max_cache_len = 1
        super().lazy_initialization(key_states, value_states)
        self.max_cache_len = longest

    def append(self, states: Tensor) -> None:
        """Keep the last of the states ``(B, n, D)`` of the next tokens."""
        if not states.shape[1]:
            return
        kept = states[:, None, -1:].detach()
        if not self.is_initialized:
            self.lazy_initialization(kept, kept[..., :0])
        self.keys.copy_(kept)
        if self.alone:
            self.cumulative_length.add_(states.shape[1])
        self.begun = True

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows in place."""
        if self.begun:
            self.keys.copy_(self.keys.index_select(0, beam_idx.to(self.keys.device)))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"prepared": False, "ready": False}

    def reset(self) -> None:
        """Forget the state and what was computed from the parameters, but keep their memory."""
        self.begun = self.prepared = self.ready = False
        StaticLayer.reset(self)


def _can_hold(old: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> bool:
    """Tell whether the new tensors can be copied into the old ones."""
    return len(old) == len(new) and all(
        (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
        and (torch.is_inference_mode_enabled() or not a.is_inference())
        for a, b in zip(old, new, strict=True)
    )


AnyStateLayer = StateLayer | WindowedStateLayer | StaticStateLayer


def state_layer(cache: Cache, layers: int) -> AnyStateLayer:
    """Return the layer of ``cache`` that holds the states; the first call adds it after the other ``layers`` layers."""
    if not isinstance(cache, Cache):
        raise TypeError(f"past_key_values must be a transformers Cache; got {type(cache).__name__}")
    if cache.layers and isinstance(cache.layers[-1], _Stepping):
        return cache.layers[-1]  # type: ignore[return-value]
    if cache.layer_class_to_replicate is not None:  # a cache that adds layers on demand must not add any after ours
        while len(cache.layers) < layers:
            cache.layers.append(cache.layer_class_to_replicate())
    windows = [layer.sliding_window for layer in cache.layers if isinstance(layer, DynamicSlidingWindowLayer)]
    added: AnyStateLayer
    if any(isinstance(layer, StaticLayer) for layer in cache.layers):
        added = StaticStateLayer(cache.get_max_length(), alone=layers == 0)
    elif windows and len(windows) == len(cache.layers):
        added = WindowedStateLayer(sliding_window=max(windows))
        added.record_past = any(layer.record_past for layer in cache.layers)  # set if assisted decoding will crop it
    else:
        added = StateLayer()
    if cache.offloading:
        offloaded = (layer for layer in cache.layers if not (cache.only_non_sliding and layer.is_sliding))
        added.fetched_next = next(offloaded, None)
    cache.layers.append(added)
    return added
