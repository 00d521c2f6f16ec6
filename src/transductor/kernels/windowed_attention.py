"""Attention to the last ``window`` positions, in the time of its window, forward and backward.

Time is cut into blocks of ``window`` queries, each of which looks at its own block of keys and the one before.  Blocks
are rows of a batch: torch's fused kernels take four dimensions, and with a fifth they compute every score one by one.
In half precision on a GPU, torch's flash attention knows windows itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from transductor.checks import transformed
from transductor.kernels.cpu.attention import attention


@dataclass(frozen=True)
class Blocks:
    """How queries and keys along time are cut.

    Args:
        window: How many positions a query looks at, itself included.
        time: The number of queries.
        past: The number of keys before the first query, at most ``window - 1`` of which are seen.
    """

    window: int
    time: int
    past: int

    @property
    def count(self) -> int:
        """The number of blocks of queries."""
        # A quotient of positive numbers, because ONNX rounds towards zero and Python rounds down.
        blocks = (self.time + self.window - 1) // self.window
        # An empty block, because export would make a single block a constant of the graph.
        return blocks + 1 if torch.compiler.is_exporting() else blocks

    def of_queries(self, value: Tensor, dim: int) -> Tensor:
        """Cut the axis ``dim`` of T queries into ``(blocks, window)``."""
        padding = [0, 0] * (value.ndim - dim - 1) + [0, self.count * self.window - self.time]
        return F.pad(value, padding).unflatten(dim, (self.count, self.window))  # type: ignore[no-any-return]

    def of_keys(self, value: Tensor, dim: int) -> Tensor:
        """Cut the axis ``dim`` of keys into ``(blocks, 2 window)``, which overlap; zeros stand for what is missing."""
        # Keys start one full block before the first query.
        ends = [self.window - self.past, self.count * self.window - self.time]
        padded = F.pad(value, [0, 0] * (value.ndim - dim - 1) + ends)
        cut = padded.unflatten(dim, (self.count + 1, self.window))
        # Two copies side by side; the gradient of an overlapping view is summed number by number.
        return torch.cat((cut.narrow(dim, 0, self.count), cut.narrow(dim, 1, self.count)), dim + 1)

    def allowed(self, device: torch.device) -> Tensor:
        """Tell which keys a query of any block may look at, ``(window, 2 window)``."""
        distance = (
            torch.arange(self.window, device=device)[:, None]
            + self.window
            - torch.arange(2 * self.window, device=device)
        )
        return (distance >= 0) & (distance < self.window)

    def attended(self, queries: Tensor, keys: Tensor, values: Tensor, added: Tensor) -> Tensor:
        """Attend ``(B, H, T, E)`` to ``(B, H, past + T, E)`` with ``added`` to the scores.

        ``added`` is ``(B · blocks, H or 1, window, 2 window)``, or 1 in place of ``B · blocks``.
        """
        batch = queries.shape[0]
        rows = self.of_queries(queries, 2), self.of_keys(keys, 2), self.of_keys(values, 2)
        queries, keys, values = (value.transpose(1, 2).flatten(0, 1) for value in rows)
        mixed = _attended(queries, keys, values, added)
        blocks: Tensor = mixed.unflatten(0, (batch, self.count)).transpose(1, 2)
        return blocks.flatten(2, 3)[:, :, : self.time]


def windowed_attention(queries: Tensor, keys: Tensor, values: Tensor, window: int) -> Tensor:
    """Compute causal attention ``(B, H, T, E)`` to the last ``window`` positions, of as many keys as queries."""
    if _has_windows(queries, keys, values):
        # (B, T, H, E), as flash attention lays them out.
        given = (value.transpose(1, 2) for value in _half(queries, keys, values))
        time = queries.shape[2]
        mixed = torch.ops.aten._flash_attention_forward(
            *given, None, None, time, time, 0.0, True, False, window_size_left=window - 1, window_size_right=0
        )[0]
        return cast(Tensor, mixed).transpose(1, 2)
    blocks = Blocks(window, queries.shape[2], 0)
    hidden = torch.finfo(queries.dtype).min / 2
    added = queries.new_zeros(window, 2 * window).masked_fill(~blocks.allowed(queries.device), hidden)
    # The first block has no keys before it.
    query, key, value = (each[:, :, :window] for each in (queries, keys, values))
    if transformed(query, key, value):
        size = query.shape[2]
        before = _attended(query, key, value, added[:size, window : window + size])
    else:
        before = attention(query, key, value)
    compiling = torch.compiler.is_compiling()  # a graph that saw lengths compared would hold for such lengths only
    if not compiling and queries.shape[2] <= window:
        return before
    mixed = blocks.attended(queries, keys, values, added[None, None])
    return torch.cat((before, mixed[:, :, window:]), 2)


def _attended(queries: Tensor, keys: Tensor, values: Tensor, added: Tensor) -> Tensor:
    """Attend with ``added`` to the scores; step by step inside transforms of torch, which fused kernels do not know."""
    if transformed(queries, keys, values):
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1]) + added
        return scores.softmax(-1) @ values
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=added)


def _half(*given: Tensor) -> tuple[Tensor, ...]:
    """Return queries, keys and values in the dtype that autocast asks for."""
    kind = given[0].device.type
    if not torch.is_autocast_enabled(kind):
        return given
    return tuple(value.to(torch.get_autocast_dtype(kind)) for value in given)


def _has_windows(*given: Tensor) -> bool:
    """Tell whether torch's flash attention, which knows windows, takes these."""
    queries = given[0]
    if queries.device.type != "cuda" or torch.version.hip is not None or queries.shape[-1] % 8:
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else queries.dtype
    return (
        dtype in (torch.float16, torch.bfloat16)
        and all(value.dtype == queries.dtype for value in given)
        and queries.shape[-1] <= 256
        and torch.backends.cuda.flash_sdp_enabled()
        and torch.backends.cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability(queries.device) >= (8, 0)
        and not transformed(*given)  # flash attention has no tangents
    )
