"""F10: block-sparse matrices."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.transitions.capped import CappedFamily
from transductor.transitions.laws import Law, SpectralNorm, Support
from transductor.transitions.spectral import capped_lipschitz, spectrally_capped


@final
class BlockSparseTransitions(CappedFamily):
    """Blocks of ``block_size`` coordinates; a block hears itself and its ``bandwidth`` neighbours each side.

    Bandwidth 0 is block-diagonal.  The last block is smaller when d is no multiple of the size.
    """

    name = "block_sparse"
    options = ("block_size", "bandwidth", "spectral_cap")

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        block_size: int = 4,
        bandwidth: int = 1,
        spectral_cap: float = 1.0,
        init_scale: float | None = None,
    ) -> None:
        check_positive("block_size", block_size)
        if not (isinstance(bandwidth, int) and bandwidth >= 0):
            raise ValueError(f"bandwidth must be an integer ≥ 0; got {bandwidth!r}")
        self.block_size, self.bandwidth = block_size, bandwidth
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            spectral_cap=spectral_cap,
            init_scale=init_scale,
        )
        allowed = self.pattern()
        self.register_buffer("allowed", allowed, persistent=False)
        self.register_buffer("places", allowed.flatten().nonzero().squeeze(-1), persistent=False)
        # Per row, the columns it hears, padded with repeats that are masked away.
        width = int(allowed.sum(-1).max())
        heard = torch.argsort(allowed.long(), dim=-1, descending=True, stable=True)[:, :width]
        self.register_buffer("heard", heard, persistent=False)
        self.register_buffer("hears", allowed.gather(-1, heard), persistent=False)

    def pattern(self) -> Tensor:
        """``(D, D)``, true where entries may be."""
        block = torch.arange(self.state_dim) // self.block_size
        return (block[:, None] - block).abs() <= self.bandwidth

    def origin(self) -> Tensor:
        """The identity."""
        return torch.eye(self.state_dim)[self.pattern()]

    def default_scale(self) -> float:
        """By the entries of a row."""
        return 0.1 / math.sqrt(min(self.state_dim, (2 * self.bandwidth + 1) * self.block_size))

    def chart(self, raw: Tensor) -> Tensor:
        """Entries placed in their blocks."""
        entries = raw.new_zeros(*raw.shape[:-1], self.state_dim**2)
        entries = entries.scatter(-1, self.get_buffer("places").expand(raw.shape), raw)
        return spectrally_capped(entries.unflatten(-1, (self.state_dim, self.state_dim)), self.spectral_cap)

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Entries by row ``(..., D, most a row hears)``."""
        matrix = self.chart(raw)
        heard = self.get_buffer("heard").expand(*matrix.shape[:-2], -1, -1)
        return (matrix.gather(-1, heard) * self.get_buffer("hears"),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Each row against the coordinates it hears."""
        return (factors[0] * state[..., self.get_buffer("heard")]).sum(-1)

    def lipschitz_of_chart(self) -> float | None:
        """Numbers are placed, then capped."""
        return capped_lipschitz(self.state_dim)

    def step_cost(self) -> int:
        """One product per entry that may be nonzero."""
        return int(self.get_buffer("allowed").sum())

    def laws(self) -> tuple[Law, ...]:
        """The pattern, ‖M‖₂ ≤ γ."""
        allowed = tuple(tuple(row) for row in self.get_buffer("allowed").tolist())
        return (Support("block-sparse", allowed), SpectralNorm(self.spectral_cap))
