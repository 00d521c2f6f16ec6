"""Position schemes: none, learned, sinusoidal, rotary, relative.

A scheme is a frozen configuration; :func:`build_positions` makes its module.  A module says three things, each with a
neutral default: what is added to the embedding, how queries and keys turn, and what is added to a score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration


class PositionScheme:
    """A way to tell positions apart."""


@configuration
@dataclass(frozen=True)
class NoPositions(PositionScheme):
    """No positions: order is known only from the rational state (and the causal mask)."""


@configuration
@dataclass(frozen=True)
class LearnedPositions(PositionScheme):
    """A trained vector per position; longer input is refused."""

    max_length: int = 1024

    def __post_init__(self) -> None:
        check_positive("max_length", self.max_length)


@configuration
@dataclass(frozen=True)
class SinusoidalPositions(PositionScheme):
    """Fixed sines and cosines of geometrically spaced frequencies."""

    base: float = 10_000.0


@configuration
@dataclass(frozen=True)
class RotaryPositions(PositionScheme):
    """RoPE: queries and keys turn with their position, so scores see differences."""

    base: float = 10_000.0


@configuration
@dataclass(frozen=True)
class RelativePositions(PositionScheme):
    """A learned number per head and distance bucket is added to each score: exact near, logarithmic far."""

    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        check_positive("buckets", self.buckets)
        if self.buckets < 2 or self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"buckets must be ≥ 2 and max_distance > buckets / 2; got {self.buckets} and {self.max_distance}"
            )


class Positions(nn.Module):
    """The neutral scheme, and the methods that other schemes override."""

    biases_scores = False

    def embedding(self, positions: Tensor) -> Tensor | None:
        """Return what is added to the token embedding: ``(B, T)`` to ``(B, T, W)``."""
        return None

    def turned(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Turn queries or keys ``(B, H, T, E)`` at ``positions (B, T)``."""
        return vectors

    def score_bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Return what is added to scores: ``(..., Q)`` and ``(..., K)`` to ``(..., H, Q, K)``."""
        return None


@final
class _Learned(Positions):
    def __init__(self, scheme: LearnedPositions, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(scheme.max_length, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def embedding(self, positions: Tensor) -> Tensor | None:
        # A graph cannot branch on a position; there the table itself refuses positions that it does not hold.
        look = positions.numel() and not torch.compiler.is_compiling()
        longest = int(positions.max()) + 1 if look else 0
        if longest > self.table.num_embeddings:
            raise ValueError(
                f"tokens reach position {longest - 1}, but learned positions end at max_length = "
                f"{self.table.num_embeddings}"
            )
        out: Tensor = self.table(positions)
        return out


def _frequencies(size: int, base: float) -> Tensor:
    return base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)


@final
class _Sinusoidal(Positions):
    def __init__(self, scheme: SinusoidalPositions, width: int) -> None:
        super().__init__()
        self.width, self.base = width, scheme.base

    def embedding(self, positions: Tensor) -> Tensor | None:
        angles = positions.double().unsqueeze(-1) * _frequencies(self.width, self.base).to(positions.device)
        return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)[..., : self.width]


@final
class _Rotary(Positions):
    def __init__(self, scheme: RotaryPositions, head_width: int) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(f"rotary positions need an even width per attention head; got {head_width}")
        self.base = scheme.base

    def turned(self, vectors: Tensor, positions: Tensor) -> Tensor:
        # float64 angles: position 10^6 times a frequency loses seven digits in float32.
        angles = positions.double().unsqueeze(-1) * _frequencies(vectors.shape[-1], self.base).to(vectors.device)
        cosine, sine = (part.to(vectors.dtype).unsqueeze(1) for part in (angles.cos(), angles.sin()))
        # Not two slices: the gradient of each would be half zeros.
        even, odd = vectors.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)


@final
class _Relative(Positions):
    biases_scores = True

    def __init__(self, scheme: RelativePositions, attention_heads: int) -> None:
        super().__init__()
        self.scheme = scheme
        self.biases = nn.Embedding(scheme.buckets, attention_heads)
        nn.init.normal_(self.biases.weight, std=0.02)

    def score_bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        distance = (query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)).clamp_min(0)
        exact = self.scheme.buckets // 2
        ratio = (distance.clamp_min(1).float() / exact).log() / math.log(self.scheme.max_distance / exact)
        far = exact + (ratio * (self.scheme.buckets - exact)).long().clamp(0, self.scheme.buckets - exact - 1)
        bias: Tensor = self.biases(distance.where(distance < exact, far))
        return bias.movedim(-1, -3)


def build_positions(scheme: PositionScheme, width: int, attention_heads: int) -> Positions:
    """Build the module of a scheme."""
    match scheme:
        case NoPositions():
            return Positions()
        case LearnedPositions():
            return _Learned(scheme, width)
        case SinusoidalPositions():
            return _Sinusoidal(scheme, width)
        case RotaryPositions():
            return _Rotary(scheme, width // attention_heads)
        case RelativePositions():
            return _Relative(scheme, attention_heads)
    allowed = "NoPositions, LearnedPositions, SinusoidalPositions, RotaryPositions, RelativePositions"
    raise TypeError(f"positions must be one of {allowed}; got {scheme!r}")
