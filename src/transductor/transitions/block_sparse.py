"""Block-sparse transitions mix each block of coordinates with its neighbours only."""

from __future__ import annotations

import math
from typing import Unpack, final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.transitions.base import Sizes
from transductor.transitions.capped import CappedFamily, capped_lipschitz, spectrally_capped
from transductor.transitions.laws import Law, Support


@final
class BlockSparseTransitions(CappedFamily):
    """Blocks of ``block_size`` coordinates; a block reads itself and its ``bandwidth`` neighbours on each side.

    Bandwidth 0 is block-diagonal.  The last block is smaller when the size does not divide d.
    """

    name = "block_sparse"
    options = ("block_size", "bandwidth", "spectral_cap")

    def __init__(
        self, *, block_size: int = 4, bandwidth: int = 1, spectral_cap: float = 1.0, **sizes: Unpack[Sizes]
    ) -> None:
        check_positive("block_size", block_size)
        if not (isinstance(bandwidth, int) and bandwidth >= 0):
            raise ValueError(f"bandwidth must be an integer ≥ 0; got {bandwidth!r}")
        self.block_size, self.bandwidth = block_size, bandwidth
        super().__init__(spectral_cap=spectral_cap, **sizes)

    def register_structure(self) -> None:
        """Register where entries may be, as a pattern and row by row."""
        allowed, device = self.pattern(), torch.empty(0).device  # a pattern of "meta" tensors would not be known
        self.register_buffer("allowed", allowed.to(device), persistent=False)
        self.register_buffer("places", allowed.flatten().nonzero().squeeze(-1).to(device), persistent=False)
        # Per row, the columns it reads, padded with repeats that are masked away.
        width = int(allowed.sum(-1).max())
        columns = torch.argsort(allowed.long(), dim=-1, descending=True, stable=True)[:, :width]
        self.register_buffer("columns", columns.to(device), persistent=False)
        self.register_buffer("read", allowed.gather(-1, columns).to(device), persistent=False)

    def pattern(self) -> Tensor:
        """Return ``(D, D)``, true where entries may be, on the CPU."""
        block = torch.arange(self.state_dim, device="cpu") // self.block_size
        return (block[:, None] - block).abs() <= self.bandwidth

    def origin(self) -> Tensor:
        """Start at the identity."""
        return torch.eye(self.state_dim, device="cpu")[self.pattern()].to(torch.empty(0).device)

    def default_scale(self) -> float:
        """Scale the noise by the number of entries in a row."""
        return 0.1 / math.sqrt(min(self.state_dim, (2 * self.bandwidth + 1) * self.block_size))

    def chart(self, raw: Tensor) -> Tensor:
        """Place the raw numbers in their blocks, then cap."""
        entries = raw.new_zeros(*raw.shape[:-1], self.state_dim**2)
        entries = entries.scatter(-1, self.get_buffer("places").expand(raw.shape), raw)
        return spectrally_capped(entries.unflatten(-1, (self.state_dim, self.state_dim)), self.spectral_cap)

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Return the entries row by row: ``(..., D, most columns a row reads)``."""
        matrix = self.chart(raw)
        columns = self.get_buffer("columns").expand(*matrix.shape[:-2], -1, -1)
        return (matrix.gather(-1, columns) * self.get_buffer("read"),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Multiply each row with the coordinates it reads."""
        return (factors[0] * state[..., self.get_buffer("columns")]).sum(-1)

    def lipschitz_of_chart(self) -> float | None:
        """Return the constant of the cap: numbers are placed, then capped."""
        return capped_lipschitz(self.state_dim)

    def step_cost(self) -> int:
        """Count one product per entry that may be nonzero."""
        return int(self.get_buffer("allowed").sum())

    def structure(self) -> tuple[Law, ...]:
        """Entries outside the blocks are zero."""
        return (Support("block-sparse", tuple(tuple(row) for row in self.get_buffer("allowed").tolist())),)
