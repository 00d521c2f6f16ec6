"""Small tools of samplers and truths: coins, patterns, and the last position where something happened."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import torch
from torch import Tensor


def check_probability(argument: str, value: object) -> None:
    """Refuse anything but a number in [0, 1]."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"{argument} must be a number in [0, 1]; got {value!r}")


def check_at_least_two(argument: str, value: object) -> None:
    """Refuse anything but an integer of at least two."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        raise ValueError(f"{argument} must be an integer of at least two; got {value!r}")


def coins(batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
    """Draw zeros and ones ``(B, T)``; ``bias`` is the probability of a one, one half where it is ``None``."""
    if bias is None:
        return torch.randint(0, 2, (batch_size, length), generator=generator)
    return (torch.rand(batch_size, length, generator=generator, dtype=torch.float64) < bias).long()


def repeated(tokens: Sequence[int], length: int) -> list[int]:
    """Repeat ``tokens`` and cut the row at ``length``."""
    return list(islice(cycle(tokens), length))


def framed(start: Sequence[int], filler: int, end: Sequence[int], length: int) -> list[int]:
    """Return ``start``, ``filler`` as often as there is room, and ``end``; where room is short the end stays."""
    room = max(length - len(end), 0)
    return [*[*start, *[filler] * room][:room], *end][-length:]


def binary_input_kinds(length: int) -> dict[str, Sequence[int]]:
    """Return inputs over zero and one on which errors add up instead of cancelling."""
    return {
        "all ones": [1] * length,
        "all zeros": [0] * length,
        "alternating": repeated((0, 1), length),
    }


def latest(marked: Tensor, values: Tensor, initial: int) -> Tensor:
    """Return ``values`` ``(B, T)`` at the last marked position up to and including each; ``initial`` before any."""
    positions = torch.arange(marked.shape[1]).expand_as(marked)
    last = torch.where(marked, positions, -1).cummax(1).values
    return torch.where(last >= 0, values.gather(1, last.clamp(min=0)), initial)


def first_position(marked: Tensor) -> Tensor:
    """Return the first marked position of each row of ``(B, T)``, and T in rows without one."""
    return torch.where(marked.any(1), marked.long().argmax(1), marked.shape[1])
