"""The LSTM baseline: a non-linear recurrence, evaluated step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.model.base import SequenceModel
from transductor.recurrence import Layout


@configuration
@dataclass(frozen=True)
class LSTMConfig:
    """The sizes of an :class:`LSTM`."""

    vocab_size: int
    output_size: int = 0
    width: int = 32
    layers: int = 1

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "layers"):
            check_positive(name, getattr(self, name))
        if self.output_size != 0:
            check_positive("output_size", self.output_size)


@dataclass(frozen=True)
class LSTMState:
    """Where a stream stands: hidden and cell states, ``(layers, B, W)`` each."""

    hidden: Tensor
    cell: Tensor

    def reordered(self, rows: Tensor) -> LSTMState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return replace(self, hidden=self.hidden.index_select(1, rows), cell=self.cell.index_select(1, rows))


@final
class LSTM(SequenceModel[LSTMState]):
    """An embedding, an LSTM and a linear readout.

    Args:
        vocab_size: How many tokens the model reads.
        output_size: How many logits a position has; ``vocab_size`` when 0.
        width: The width of embedding and state.
        layers: How many layers are stacked.
    """

    def __init__(self, *, vocab_size: int, output_size: int = 0, width: int = 32, layers: int = 1) -> None:
        super().__init__()
        self._config = LSTMConfig(vocab_size, output_size, width, layers)
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.readout = nn.Linear(width, output_size or vocab_size)

    @property
    def config(self) -> LSTMConfig:
        """The sizes of the model."""
        return self._config

    def _logits(self, tokens: Tensor, layout: Layout) -> Tensor:
        stream = self.embedding(tokens)
        if layout.offsets is not None:
            documents = stream[0].split(layout.offsets.diff().tolist())
            full = [document for document in documents if len(document)]
            outputs, _ = self.lstm(nn.utils.rnn.pad_sequence(full, batch_first=True)) if full else (stream, None)
            pieces = [output[: len(document)] for output, document in zip(outputs, full, strict=False)]
            return self._read(torch.cat(pieces)[None] if pieces else stream)
        if layout.mask is None or tokens.numel() == 0:
            return self._read(self.lstm(stream)[0] if tokens.numel() else stream)
        # Real tokens first, in their order: the padding that follows cannot change their outputs.
        order = torch.argsort(~layout.mask, dim=1, stable=True)
        gathered = stream.gather(1, order.unsqueeze(-1).expand_as(stream))
        outputs = self.lstm(gathered)[0]
        return self._read(outputs.gather(1, order.argsort(1).unsqueeze(-1).expand_as(outputs)))

    def _read(self, outputs: Tensor) -> Tensor:
        logits: Tensor = self.readout(outputs)
        return logits

    def start(self, batch_size: int) -> LSTMState:
        """Return a stream before its first token."""
        check_positive("batch_size", batch_size)
        zeros = self.readout.weight.new_zeros(self._config.layers, batch_size, self._config.width)
        return LSTMState(zeros, zeros)

    def _advanced(self, tokens: Tensor, state: LSTMState, layout: Layout) -> tuple[Tensor, LSTMState]:
        if len(tokens) != state.hidden.shape[1]:
            raise ValueError(f"tokens must have {state.hidden.shape[1]} rows like the stream; got {len(tokens)}")
        outputs, hidden, cell = [], state.hidden, state.cell
        stream = self.embedding(tokens)
        if layout.mask is None and tokens.shape[1]:
            output, (hidden, cell) = self.lstm(stream, (hidden, cell))
            return self._read(output), LSTMState(hidden, cell)
        for t in range(tokens.shape[1]):
            output, (new_hidden, new_cell) = self.lstm(stream[:, t : t + 1], (hidden, cell))
            assert layout.mask is not None
            real = layout.mask[:, t].view(1, -1, 1)
            hidden, cell = new_hidden.where(real, hidden), new_cell.where(real, cell)
            outputs.append(output)
        return self._read(torch.cat(outputs, 1) if outputs else stream), LSTMState(hidden, cell)
