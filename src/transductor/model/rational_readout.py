"""The automaton alone: a rational head and a linear readout, no stream beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.heads import HeadConfig, HeadState, RationalHead
from transductor.model.base import SequenceModel, layout

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@configuration
@dataclass(frozen=True)
class ReadoutConfig:
    """How to build a :class:`RationalReadout` again."""

    head: HeadConfig
    output_size: int

    def __post_init__(self) -> None:
        check_positive("output_size", self.output_size)


@dataclass(frozen=True)
class ReadoutState:
    """Where a stream stands: the automaton's state."""

    head: HeadState

    def reordered(self, rows: Tensor) -> ReadoutState:
        """Batch rows picked anew, as beam search does."""
        return replace(self, head=self.head.reordered(rows))


@final
class RationalReadout(SequenceModel[ReadoutState]):
    """``logits_t = W h_t + b``: a weighted automaton with one series per output.

    Args:
        head: Driven by tokens.
        output_size: Logits out.
    """

    def __init__(self, head: RationalHead, output_size: int) -> None:
        super().__init__()
        if not isinstance(head, RationalHead):
            raise TypeError(f"head must be a RationalHead; got {type(head).__name__}")
        if head.transitions.vocab_size is None:
            raise ValueError("head must be driven by tokens; it is driven by features")
        check_positive("output_size", output_size)
        self.rational_head = head
        self.readout = nn.Linear(head.output_dim, output_size)

    @property
    def config(self) -> ReadoutConfig:
        """Head and number of outputs."""
        return ReadoutConfig(self.rational_head.config, self.output_size)

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads."""
        letters = self.rational_head.transitions.vocab_size
        assert letters is not None
        return letters

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        time_group: ProcessGroup | None = None,
    ) -> Tensor:
        """Tokens ``(B, T)`` to logits ``(B, T, output_size)``; see :class:`SequenceModel`.

        With a ``time_group``, every rank of it calls this with its stretch of the tokens (and of ``mask``), in the
        order of ranks, and gets the logits of its stretch; see :mod:`transductor.model.time_parallel`.
        """
        given = layout(tokens, self.vocab_size, mask, lengths, cu_seqlens, time_group)
        states = self.rational_head(given.tokens, mask=given.mask, cu_seqlens=given.offsets, time_group=time_group)
        return self._logits(states)

    def _logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self.readout(states.to(self.readout.weight.dtype))
        return logits

    def start(self, batch_size: int) -> ReadoutState:
        """A stream before its first token; keep the parameters fixed while it lasts."""
        return ReadoutState(self.rational_head.start(batch_size))

    def advance(
        self, tokens: Tensor, state: ReadoutState, *, mask: Tensor | None = None
    ) -> tuple[Tensor, ReadoutState]:
        """Logits of the next tokens of a stream."""
        tokens = layout(tokens, self.vocab_size, mask, None, None).tokens
        states, head = self.rational_head.advance(tokens, state.head, mask=mask)
        return self._logits(states), ReadoutState(head)
