"""The automaton alone: a rational head and a linear readout, without a Transformer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.heads import HeadConfig, HeadState, RationalHead
from transductor.model.base import SequenceModel
from transductor.recurrence import Layout


@configuration
@dataclass(frozen=True)
class ReadoutConfig:
    """What is needed to build a :class:`RationalReadout` again."""

    head: HeadConfig
    output_size: int

    def __post_init__(self) -> None:
        check_positive("output_size", self.output_size)


@dataclass(frozen=True)
class ReadoutState:
    """Where a stream stands: the state of the head."""

    head: HeadState

    def reordered(self, rows: Tensor) -> ReadoutState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return replace(self, head=self.head.reordered(rows))


class HeadReadout(SequenceModel[ReadoutState]):
    """A head and a map from what it shows to logits.  Subclasses are final."""

    rational_head: RationalHead

    def _take(self, head: RationalHead, output_size: int) -> None:
        """Keep a head driven by tokens."""
        if not isinstance(head, RationalHead):
            raise TypeError(f"head must be a RationalHead; got {type(head).__name__}")
        if head.transitions.vocab_size is None:
            raise ValueError("head must be driven by tokens; it is driven by features")
        check_positive("output_size", output_size)
        self.rational_head = head

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads."""
        size = self.rational_head.transitions.vocab_size
        assert size is not None
        return size

    def _logits(self, tokens: Tensor, layout: Layout) -> Tensor:
        return self._read(self.rational_head(tokens, layout=layout))

    def _read(self, states: Tensor) -> Tensor:
        logits: Tensor = self.readout(states.to(self.readout.weight.dtype))
        return logits

    def start(self, batch_size: int) -> ReadoutState:
        """Return a stream before its first token; keep the parameters fixed while it lasts."""
        return ReadoutState(self.rational_head.start(batch_size))

    def _advanced(self, tokens: Tensor, state: ReadoutState, layout: Layout) -> tuple[Tensor, ReadoutState]:
        states, head = self.rational_head.advance(tokens, state.head, layout=layout)
        return self._read(states), ReadoutState(head)


@final
class RationalReadout(HeadReadout):
    """``logits_t = W h_t + b``: a weighted automaton with one series per output.

    Args:
        head: A head driven by tokens.
        output_size: How many logits a position has.
    """

    takes_time_group = True

    def __init__(self, head: RationalHead, output_size: int) -> None:
        super().__init__()
        self._take(head, output_size)
        self.readout = nn.Linear(head.output_dim, output_size)

    @property
    def config(self) -> ReadoutConfig:
        """The configuration of the head and the number of outputs."""
        return ReadoutConfig(self.rational_head.config, self.output_size)
