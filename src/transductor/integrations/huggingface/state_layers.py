"""Where a cache keeps the states of a rational head: one more layer, of the classes that hold keys and values.

So whatever happens to a cache (beam search reorders it, assisted decoding crops it, a static one is written in place
inside a compiled graph) happens to the states, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer, StaticLayer

from transductor.heads import RationalHead
from transductor.kernels.gpu.decoding import TokenDecoder, runs_on
from transductor.transitions import Stepper

# So many states of single tokens wait until they are joined to the others: each takes more room alone.
_JOINED_TOGETHER = 64

# Numbers of a table that is computed only to be read by a kernel.
_NOT_LARGE = 1 << 18


class _Stepping:
    """Keeps how to take a step, from the parameters of the first, until the cache begins anew.

    A cache that offloads its layers fetches the next one ahead, after the last the first.  Ours is behind the last,
    and never away: it fetches the first, ``fetched_next``, in its place.
    """

    fetched_next: CacheLayerMixin | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stepper: Stepper | None = None

    def prefetch(self) -> None:
        """Bring the layer back whose turn is next."""
        if self.fetched_next is not None:
            self.fetched_next.prefetch()

    def __getstate__(self) -> dict[str, Any]:
        """Copied and saved without it, which may be large: whoever goes on finds it anew."""
        return self.__dict__ | {"stepper": None}


def _steps_plainly(head: RationalHead) -> bool:
    """Whether a step of the head is its stepper's and nothing else."""
    return type(head).advance is RationalHead.advance


class _GrowingStepping(_Stepping):
    """The states that come are added to those there are."""

    previous: Callable[[], Tensor]
    append_one: Callable[[Tensor], None]
    get_seq_length: Callable[[], int]
    steps_plainly = False
    table: Tensor | None = None  # (V, D, D), where a kernel can take a step by it
    decoder: TokenDecoder | None = None  # which does

    def prepare(self, head: RationalHead) -> Stepper:
        """How to take a step, found once: the parameters stay as they are while a cache lasts."""
        if self.stepper is None:
            self.stepper, self.steps_plainly = head.transitions.stepper(), _steps_plainly(head)
            if self.steps_plainly and not torch.compiler.is_compiling():
                self.table = _table(head, self.stepper)
        return self.stepper

    @property
    def begun(self) -> bool:
        """Whether there is a state."""
        return self.get_seq_length() > 0

    @property
    def ready(self) -> bool:
        """Whether :meth:`step` can be asked for."""
        return self.steps_plainly and self.begun

    def step(self, drive: Tensor) -> Tensor:
        """The state ``(B, D)`` after one more token, kept; without gradient."""
        assert self.stepper is not None
        state = self.stepper(self.previous(), drive)
        self.append_one(state)
        return state

    def reset(self) -> None:
        """Forget the states and the parameters."""
        self.stepper, self.steps_plainly, self.table, self.decoder = None, False, None, None
        super().reset()  # type: ignore[misc]

    def __getstate__(self) -> dict[str, Any]:
        """Without what is found anew."""
        return super().__getstate__() | {"steps_plainly": False, "table": None, "decoder": None}


def _table(head: RationalHead, stepper: Stepper) -> Tensor | None:
    """The matrices of a head that is driven by tokens, for a kernel; where they are at hand, or not large."""
    family = head.transitions
    if not runs_on(head.raw_initial_state.device):
        return None
    if stepper.by_table:
        return stepper.kept[0].detach().contiguous()
    if family.vocab_size is None or family.vocab_size * family.state_dim**2 > _NOT_LARGE:
        return None
    return family.table().detach().contiguous()


class StateLayer(_GrowingStepping, DynamicLayer):  # type: ignore[misc]
    """States ``(B, 1, t, D)`` of all cached tokens, as if they were keys; grows, and can be cropped.

    The states of decoded tokens wait in a list and are joined to the others when somebody asks for all of them: beam
    search and assisted decoding do, a single stream does not.
    """

    def __init__(self) -> None:
        self._joined: Tensor | None = None
        self._waiting: list[Tensor] = []  # (B, D) each
        super().__init__()

    @property
    def keys(self) -> Tensor | None:
        """All states, ``(B, 1, t, D)``."""
        self._join()
        return self._joined

    @keys.setter
    def keys(self, states: Tensor | None) -> None:
        self._joined, self._waiting = states, []

    @property
    def values(self) -> Tensor | None:
        """As many, of no width."""
        keys = self.keys
        return None if keys is None else keys[..., :0]

    @values.setter
    def values(self, states: Tensor | None) -> None:
        """Nothing to keep."""

    def get_seq_length(self) -> int:
        """How many states."""
        return len(self._waiting) + (0 if self._joined is None else self._joined.shape[-2])

    def previous(self) -> Tensor:
        """The state ``(B, D)`` after the last cached token."""
        if self._waiting:
            return self._waiting[-1]
        assert self._joined is not None
        return self._joined[:, 0, -1]

    def append(self, states: Tensor) -> None:
        """Add the states ``(B, n, D)`` of the next tokens."""
        keys, before = states.detach().unsqueeze(1), self.keys
        self.keys = keys if before is None else torch.cat((before, keys), -2)
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def append_one(self, state: Tensor) -> None:
        """Add the state ``(B, D)`` of one more token, without gradient."""
        if torch.compiler.is_compiling():  # where the length of a list is a constant
            self.append(state.unsqueeze(1))
        else:
            self._waiting.append(state)
            if len(self._waiting) == _JOINED_TOGETHER:
                self._join()

    def _join(self) -> None:
        if self._waiting:
            joined, waiting = self._joined, torch.stack(self._waiting, 1).unsqueeze(1)
            self.keys = waiting if joined is None else torch.cat((joined, waiting), -2)


class WindowedStateLayer(_GrowingStepping, DynamicSlidingWindowLayer):  # type: ignore[misc]
    """The same beside sliding windows only: as many states are kept as the longest window has keys."""

    def previous(self) -> Tensor:
        """The state ``(B, D)`` after the last cached token."""
        last: Tensor = self.keys[:, 0, -1]
        return last

    def append(self, states: Tensor) -> None:
        """Add the states ``(B, n, D)`` of the next tokens."""
        keys = states.detach().unsqueeze(1)
        self.update(keys, keys[..., :0])

    def append_one(self, state: Tensor) -> None:
        """Add the state ``(B, D)`` of one more token."""
        self.append(state.unsqueeze(1))


class StaticStateLayer(_Stepping, StaticLayer):  # type: ignore[misc]
    """The last state alone, ``(B, 1, 1, D)``, written in place at a fixed address: a static cache is never cropped.

    What a step reads stays at its address too, when the cache begins anew: a captured graph would otherwise copy it
    before every token.

    Args:
        max_cache_len: How many tokens the cache has room for.
        alone: Whether the cache has no other layer, which could count the tokens.
    """

    def __init__(self, max_cache_len: int, *, alone: bool) -> None:
        super().__init__(max_cache_len=max_cache_len)
        self.alone = alone
        self.begun = self.prepared = self.ready = False

    def prepare(self, head: RationalHead) -> Stepper:
        """How to take a step, found once, at the addresses of the last time."""
        if self.stepper is None or not self.prepared:
            fresh, before = head.transitions.stepper(), self.stepper
            if torch.compiler.is_compiling():  # a graph cannot say where a tensor stays
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
        """The state ``(B, D)`` after one more token, kept; without gradient.

        Every name that is looked up here is looked up again, by the checks of compiled code, at every token.
        """
        assert self.stepper is not None
        state = self.stepper(self.keys[:, 0, 0], drive)
        self.keys.copy_(state[:, None, None])
        if self.alone:
            self.cumulative_length.add_(1)
        return state

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make room for one state."""
        longest = self.get_max_length()
        self.max_cache_len = 1
        super().lazy_initialization(key_states, value_states)
        self.max_cache_len = longest

    def previous(self) -> Tensor:
        """The state ``(B, D)`` after the last cached token."""
        last: Tensor = self.keys[:, 0, 0]
        return last

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
        """Pick rows anew, in place."""
        if self.begun:
            self.keys.copy_(self.keys.index_select(0, beam_idx.to(self.keys.device)))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is found anew."""
        return super().__getstate__() | {"prepared": False, "ready": False}

    def reset(self) -> None:
        """Forget the state and the parameters, and keep their places."""
        self.begun = self.prepared = self.ready = False
        StaticLayer.reset(self)


def _can_hold(old: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> bool:
    """Whether the numbers of the new tensors can be written into the old ones."""
    return len(old) == len(new) and all(
        (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
        and (torch.is_inference_mode_enabled() or not a.is_inference())
        for a, b in zip(old, new, strict=True)
    )


AnyStateLayer = StateLayer | WindowedStateLayer | StaticStateLayer


def state_layer(cache: Cache, layers: int) -> AnyStateLayer:
    """The layer of ``cache`` that holds the states; added behind its ``layers`` layers when first asked for."""
    if not isinstance(cache, Cache):
        raise TypeError(f"past_key_values must be a transformers Cache; got {type(cache).__name__}")
    if cache.layers and isinstance(cache.layers[-1], _Stepping):
        return cache.layers[-1]  # type: ignore[return-value]
    if cache.layer_class_to_replicate is not None:  # a cache that grows as layers come must not grow past ours
        while len(cache.layers) < layers:
            cache.layers.append(cache.layer_class_to_replicate())
    windows = [layer.sliding_window for layer in cache.layers if isinstance(layer, DynamicSlidingWindowLayer)]
    added: AnyStateLayer
    if any(isinstance(layer, StaticLayer) for layer in cache.layers):
        added = StaticStateLayer(cache.get_max_length(), alone=layers == 0)
    elif windows and len(windows) == len(cache.layers):
        added = WindowedStateLayer(sliding_window=max(windows))
        added.record_past = any(layer.record_past for layer in cache.layers)  # assisted decoding will crop it
    else:
        added = StateLayer()
    if cache.offloading:
        away = (layer for layer in cache.layers if not (cache.only_non_sliding and layer.is_sliding))
        added.fetched_next = next(away, None)
    cache.layers.append(added)
    return added
