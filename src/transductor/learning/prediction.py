"""What a trained model says about sequences of unequal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transductor.model import SequenceModel


@torch.no_grad()
def logits_of(model: SequenceModel[Any], rows: Sequence[Tensor], *, batch_size: int = 64) -> list[Tensor]:
    """Return the logits ``(T, K)`` of every row of tokens ``(T)``, computed in batches of similar length."""
    training, device = model.training, next(model.parameters()).device
    model.eval()
    results: list[Tensor] = [torch.empty(0)] * len(rows)
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        tokens = torch.nn.utils.rnn.pad_sequence([rows[row] for row in chosen], batch_first=True).to(device)
        lengths = torch.tensor([len(rows[row]) for row in chosen], device=device)
        logits = model(tokens, lengths=lengths).cpu()
        for row, said in zip(chosen, logits, strict=True):
            results[row] = said[: len(rows[row])]
    model.train(training)
    return results


def labels_of(model: SequenceModel[Any], rows: Sequence[Tensor], *, tags: bool) -> list[Any]:
    """Return the class that a model gives to every row, or with ``tags`` to each of its letters."""
    best = [logits.argmax(-1).tolist() for logits in logits_of(model, rows)]
    return [tuple(each[1:]) if tags else each[-1] for each in best]
