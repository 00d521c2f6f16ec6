"""The linear stack: heads that drive one another with nothing in between, and the one head that is equal to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive, working_dtype
from transductor.configuration import configuration
from transductor.heads import HeadConfig, HeadState, RationalHead
from transductor.model.base import SequenceModel
from transductor.model.rational_readout import RationalReadout
from transductor.recurrence import Layout
from transductor.transitions import AffineTransitions


@configuration
@dataclass(frozen=True)
class LinearStackConfig:
    """What is needed to build a :class:`LinearStack` again."""

    heads: tuple[HeadConfig, ...]
    output_size: int
    width: int = 0

    def __post_init__(self) -> None:
        check_positive("output_size", self.output_size)
        if self.width != 0:
            check_positive("width", self.width)


@dataclass(frozen=True)
class LinearStackState:
    """Where a stream stands: the state of every head."""

    heads: tuple[HeadState, ...]

    def reordered(self, rows: Tensor) -> LinearStackState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return LinearStackState(tuple(head.reordered(rows) for head in self.heads))


@final
class LinearStack(SequenceModel[LinearStackState]):
    """``h^k_t = M^k_{x_t} h^k_{t−1} + V^k h^{k−1}_t``, with a linear readout of all states and no block in between.

    ``h⁰_t`` is the embedding of the token.  Each head reads the state of the one before it *after* the token, so the
    scans run one after the other.  Everything is linear in the states, so :meth:`as_one_head` gives one head with the
    same logits: reducibility of cascaded WFAs.  With blocks in between the stack is a
    :class:`~transductor.model.StackedTransductor`.

    Args:
        heads: Heads driven by the same tokens; the states that leave them are those after the token.
        output_size: How many logits a position has.
        width: The width of the embedding; 0 for none, so that the first head is driven by its matrices alone.
    """

    takes_time_group = True

    def __init__(self, heads: Sequence[RationalHead], output_size: int, *, width: int = 0) -> None:
        super().__init__()
        heads = tuple(heads)
        if not heads:
            raise ValueError("heads must hold at least one head")
        if len({id(head) for head in heads}) < len(heads):
            raise ValueError("heads must be different objects: each layer has its own")
        for layer, head in enumerate(heads):
            if not isinstance(head, RationalHead) or head.shows_previous or not head.linear:
                raise TypeError(f"heads[{layer}] must be a RationalHead without a look back; got {type(head).__name__}")
        sizes = [head.transitions.vocab_size for head in heads]
        if sizes[0] is None or len(set(sizes)) > 1:
            raise ValueError(f"heads must be driven by the same tokens; they have vocab_size {sizes}")
        check_positive("output_size", output_size)
        if width != 0:
            check_positive("width", width)
        self.width = width
        self.rational_heads = nn.ModuleList(heads)
        self.embedding = nn.Embedding(sizes[0], width) if width else None
        self.inputs = nn.ModuleList(
            nn.Linear(before, head.state_dim, bias=False) if before else nn.Identity()
            for before, head in zip((width, *(head.state_dim for head in heads[:-1])), heads, strict=True)
        )
        self.readout = nn.Linear(sum(head.state_dim for head in heads), output_size)

    @property
    def heads(self) -> tuple[RationalHead, ...]:
        """The heads, the first one first."""
        return tuple(head for head in self.rational_heads if isinstance(head, RationalHead))

    @property
    def config(self) -> LinearStackConfig:
        """The configuration of the heads, the number of outputs and the width of the embedding."""
        return LinearStackConfig(tuple(head.config for head in self.heads), self.output_size, self.width)

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads."""
        size = self.heads[0].transitions.vocab_size
        assert size is not None
        return size

    def _input(self, layer: int, before: Tensor | None) -> Tensor | None:
        """Return ``V^k h^{k−1} (B, T, D)``, in the precision of the states."""
        if before is None:
            return None
        weight = self._coupling(layer)
        return before.to(weight.dtype) @ weight.mT

    def _coupling(self, layer: int) -> Tensor:
        """Return ``V^k (D_k, D_{k−1})`` in at least float32: a state is no better than what drives it."""
        coupling = self.inputs[layer]
        assert isinstance(coupling, nn.Linear)
        return coupling.weight.to(working_dtype(coupling.weight.dtype))

    def _read(self, states: list[Tensor]) -> Tensor:
        logits: Tensor = self.readout(torch.cat(states, -1).to(self.readout.weight.dtype))
        return logits

    def _embedded(self, tokens: Tensor) -> Tensor | None:
        return None if self.embedding is None else self.embedding(tokens)

    def _logits(self, tokens: Tensor, layout: Layout) -> Tensor:
        before, states = self._embedded(tokens), list[Tensor]()
        for layer, head in enumerate(self.heads):
            before = head(tokens, bias=self._input(layer, before), layout=layout)
            states.append(before)
        return self._read(states)

    def start(self, batch_size: int) -> LinearStackState:
        """Return a stream before its first token; keep the parameters fixed while it lasts."""
        return LinearStackState(tuple(head.start(batch_size) for head in self.heads))

    def _advanced(self, tokens: Tensor, state: LinearStackState, layout: Layout) -> tuple[Tensor, LinearStackState]:
        before, states, after = self._embedded(tokens), list[Tensor](), list[HeadState]()
        for layer, (head, stream) in enumerate(zip(self.heads, state.heads, strict=True)):
            before, stood = head.advance(tokens, stream, bias=self._input(layer, before), layout=layout)
            states.append(before)
            after.append(stood)
        return self._read(states), LinearStackState(tuple(after))

    @torch.no_grad()
    def as_one_head(self) -> RationalReadout:
        """Return a readout of one affine head with the logits of this stack, and Σ D_k + 1 states; nothing is shared.

        The last coordinate stays 1 and carries the embedding.  The rows of a letter are written one head after the
        other: what drives head k is V^k times the rows of head k − 1.
        """
        total, letters = self.readout.in_features, self.vocab_size
        rows: list[Tensor] = []
        above = None
        if self.embedding is not None:
            embedded = self.embedding.weight.to(working_dtype(self.embedding.weight.dtype))
            above = torch.cat((embedded.new_zeros(letters, self.width, total), embedded.unsqueeze(-1)), -1)
        begin = 0
        for layer, head in enumerate(self.heads):
            table = head.transitions.table()
            own = table.new_zeros(letters, head.state_dim, total + 1)
            own[:, :, begin : begin + head.state_dim] = table
            if above is not None:
                coupling = self._coupling(layer)
                own = own + coupling @ above.to(coupling.dtype)
            rows.append(own)
            above, begin = own, begin + head.state_dim
        raw = torch.cat(rows, 1)
        family = AffineTransitions(vocab_size=letters, state_dim=total + 1, init_scale=0.0)
        model = RationalReadout(RationalHead(family), self.output_size).to(raw)
        family.get_parameter("source.raw").copy_(raw.flatten(1))
        starts = [head.initial_state() for head in self.heads]
        model.rational_head.raw_initial_state.copy_(torch.cat((*starts, starts[0].new_ones(1))))
        model.readout.to(self.readout.weight).weight.copy_(nn.functional.pad(self.readout.weight, (0, 1)))
        model.readout.bias.copy_(self.readout.bias)
        return model.train(self.training)
