"""A head with fewer dimensions: those that words do not reach, or that are not read, are taken away.

In balanced coordinates a direction counts by how far words lead into it times how much is read off it, now or later:
the Hankel singular values.  A head that was trained with dimensions to spare has a few large values, those of its
machine, and a tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from transductor.extraction.observable_distance import Contexts, ObservedHead, observable_coordinates, states_along
from transductor.extraction.probing import Words, words_or_random

_WORDS, _LENGTH = 256, 32
_MOST = 4  # truncations that are tried
# Dimensions are cut where the next singular value is at most this share of the one before.  Where a trained head has a
# machine inside, the share between its dimensions and the spare ones was 0.02 to 0.5; within the tail it was above 0.8.
GAP = 0.7
_NOTHING = 1e-12


@dataclass(frozen=True)
class Truncated:
    """A head of fewer dimensions, and the states of the complete one that its states stand for.

    Attributes:
        head: The smaller head.
        back: ``(D, R)``: a state z of the smaller head stands for ``back @ z``.
    """

    head: ObservedHead
    back: Tensor


def truncated(head: ObservedHead, words: Words | None) -> Iterator[Truncated]:
    """Yield smaller heads that give nearly the same answers, cut at the largest gaps between singular values."""
    if not head.finite:
        return
    contexts = Contexts.of(words, len(head.table))
    metric = torch.cat([*observable_coordinates(head, contexts, words)], 1)  # (D, C·R): what any context reads
    sample = words_or_random(words, len(head.table), _WORDS, _LENGTH)
    reached = torch.cat([torch.ones(len(sample), 1, dtype=torch.bool), sample.inside], 1)
    states = states_along(head, contexts, sample.letters)[0][reached]
    hankel = states @ metric
    if not hankel.isfinite().all() or not hankel.any():
        return
    # The state after a long word of an unstable head would count for all others: every state has the same weight.
    weights = 1 / hankel.norm(dim=1, keepdim=True).clamp_min(_NOTHING)
    left, values, right = torch.linalg.svd(hankel * weights, full_matrices=False)
    for rank in _ranks(values):
        root = values[:rank].rsqrt()
        forth = metric @ right[:rank].T * root  # (D, R)
        back = (states * weights).T @ left[:, :rank] * root  # (D, R), and forthᵀ back = 1
        yield Truncated(ObservedHead(forth.T @ head.table @ back, head.start @ forth, head.rows @ back), back)


def _ranks(values: Tensor) -> list[int]:
    """Return how many dimensions to keep: before the largest gaps, from the largest."""
    kept = values[values > _NOTHING * values[0]]
    shares = kept[1:] / kept[:-1]
    gaps = [rank for rank in shares.argsort().tolist() if shares[rank] <= GAP]
    return [rank + 1 for rank in gaps[:_MOST]]
