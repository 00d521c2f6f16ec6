"""A head that keeps several beliefs, each about a part of what is hidden: their product is one about all of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from transductor.heads.filter import FilterHead, filtered_step, one_begun
from transductor.recurrence import Layout, Normalised
from transductor.transitions import DirectSum, Stepper, TransitionFamily


class FactoredFilterHead(FilterHead):
    """Shows ``[h¹_t ; … ; hᶠ_t ; log c_t]``: filters side by side, each divided by its own sum.

    Where five things change places, a belief is over 120 orders; five beliefs over the places of one thing each are 25
    numbers, and their product says most of it.  Each is a filter of its own, so that the forward algorithm stays exact
    for every factor, and what they leave out is how the factors depend on one another.  ``log c_t`` is the sum of the
    factors' logs.

    Args:
        transitions: A :class:`~transductor.transitions.DirectSum`, one part for each factor.
        backend: The backend of the scans.
    """

    name = "factored_filter"

    def __init__(self, transitions: TransitionFamily, *, backend: str = "auto") -> None:
        super().__init__(transitions, backend=backend)
        if not isinstance(transitions, DirectSum):
            raise TypeError(f"transitions must be a DirectSum of factors; got {type(transitions).__name__}")
        self.factor_dims = tuple(transitions.part_dims)

    def beliefs(self, drive: Tensor, *, initial_state: Tensor | Normalised | None = None, **options: Any) -> Any:
        """Refuse: there is a belief and a log-likelihood for each factor; the head itself shows them."""
        raise TypeError("a factored filter has several beliefs: call the head, and split what it shows by factor_dims")

    def _begun(self, start: Tensor) -> Tensor:
        dim = sum(self.factor_dims)
        if start.shape[-1] not in (dim, dim + 1):
            raise ValueError(f"initial_state must end in dimension {dim} or {dim + 1}; got {tuple(start.shape)}")
        parts = [one_begun(part) for part in start[..., :dim].split(self.factor_dims, -1)]
        logs = start[..., dim:] if start.shape[-1] > dim else torch.zeros_like(start[..., :1])
        return torch.cat((*parts, logs), -1)

    def _filtered(
        self, transitions: Tensor, tokens: Tensor | None, start: Tensor, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        dims, size = self.factor_dims, self.factor_dims[0]
        begins = [sum(dims[:place]) for place in range(len(dims))]
        blocks = [transitions[..., at : at + dim, at : at + dim] for at, dim in zip(begins, dims, strict=True)]
        # The log that a padded step repeats is that of all factors: the first carries it.
        logs = [start[..., -1:], *[torch.zeros_like(start[..., -1:])] * (len(dims) - 1)]
        starts = [torch.cat(each, -1) for each in zip(start[..., :-1].split(self.factor_dims, -1), logs, strict=True)]
        if layout.offsets is None and dims.count(size) == len(dims) and tokens is not None and tokens.ndim == 2:
            return self._side_by_side(blocks, tokens, starts, layout)
        each = [
            super(FactoredFilterHead, self)._filtered(block, tokens, begun, layout)
            for block, begun in zip(blocks, starts, strict=True)
        ]
        return _together([shown for shown, _ in each]), _together([last for _, last in each])

    def _side_by_side(
        self, blocks: list[Tensor], tokens: Tensor, starts: list[Tensor], layout: Layout
    ) -> tuple[Tensor, Tensor]:
        """Filter by factors of one size in one scan: rows side by side, each with its own part of one long table."""
        symbols, count, rows = blocks[0].shape[0], len(blocks), tokens.shape[0]
        known = (tokens >= 0) & (tokens < symbols)  # an unknown token must not point to another factor's matrices
        folded = torch.cat([torch.where(known, tokens + place * symbols, count * symbols) for place in range(count)])
        start = torch.cat([begun.expand(rows, -1) for begun in starts])
        wide = Layout(None if layout.mask is None else layout.mask.repeat(count, 1))
        shown, last = super()._filtered(torch.cat(blocks), folded, start, wide)
        return _together(list(shown.chunk(count))), _together(list(last.chunk(count)))

    def stepper(self, table: Tensor | None) -> Stepper:
        """Return one step of a stream: that of every factor, each divided by its sum."""
        family = self.transitions
        assert isinstance(family, DirectSum)

        def step(state: Tensor, drive: Tensor, parts: list[Stepper]) -> Tensor:
            beliefs = state[..., :-1].split(self.factor_dims, -1)
            return _together([filtered_step(part, belief, drive) for part, belief in zip(parts, beliefs, strict=True)])

        return Stepper.of_parts([part.stepper() for part in family.families], step)


def _together(shown: list[Tensor]) -> Tensor:
    """Return ``[h¹ ; … ; log]`` of what each factor shows, ``[h ; log]``."""
    logs = torch.stack([each[..., -1] for each in shown], -1).sum(-1, keepdim=True)
    return torch.cat((*(each[..., :-1] for each in shown), logs), -1)
