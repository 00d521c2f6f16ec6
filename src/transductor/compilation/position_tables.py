"""Finite machines in the stream of a Rational Transductor: a table of everything that a position can hold.

With no attention, a position of the model is a function of what its head shows there and of its token.  For a finite
machine these are finitely many pairs; they are listed, written into the model, and all tried once it is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.compilation.backbone import MARGIN, Moments, checked_backbone, silence, write_labels, write_lookup
from transductor.compilation.realisation import CannotCompile, Integers
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor
from transductor.model.token_positions import TokenPositions


@dataclass(frozen=True)
class PositionTable:
    """Every pair of a token and what the head shows, with the label that belongs to it.

    Coordinates of the stream: the labels first, then what is injected and embedded.

    Attributes:
        tokens: ``(N)``.
        shown: ``(N, output_dim)``: what the head shows.
        labels: ``(N)``, ``IGNORED`` where any will do.
        injection: ``(W, output_dim)``.
        embedding: ``(V, W)``.
        nearest: The largest cosine between two streams, where a feed-forward layer looks the label up by them; None
            where the injection brings it.
    """

    tokens: Tensor
    shown: Tensor
    labels: Tensor
    injection: Tensor
    embedding: Tensor
    nearest: float | None

    @classmethod
    def of_one_hot_states(cls, machine: MooreMachine, classes: int) -> PositionTable:
        """Lay out labels | states, linearly: the argmax is that of the labels' total weights, for any state."""
        labels, states = torch.from_numpy(machine.outputs.copy()), torch.eye(machine.states, dtype=torch.float64)
        injection = torch.cat((_one_hot(labels, classes).mT, states))
        return cls._by_state(machine, states, injection, None)

    @classmethod
    def of_vectors(cls, machine: MooreMachine, vectors: NDArray[Any], classes: int) -> PositionTable:
        """Lay out labels | h | −h, whose mean is 0; the nearest of the states' vectors gives the label."""
        states = torch.from_numpy(vectors)
        eye = torch.eye(states.shape[1], dtype=torch.float64)
        injection = torch.cat((eye.new_zeros(classes, len(eye)), eye, -eye))
        return cls._by_state(machine, states, injection, _largest_cosine(states))

    @classmethod
    def _by_state(
        cls, machine: MooreMachine, states: Tensor, injection: Tensor, nearest: float | None
    ) -> PositionTable:
        """Make a table in which the token plays no part."""
        labels = torch.from_numpy(machine.outputs.copy())
        embedding = torch.zeros(machine.letters, len(injection), dtype=torch.float64)
        return cls(torch.zeros_like(labels), states, labels, injection, embedding, nearest)

    @classmethod
    def of_states_before(cls, machine: MooreMachine, labels: Integers, classes: int) -> PositionTable:
        """Lay out labels | token | state before it, for ``labels (states, letters)`` and a head that looks back."""
        count, letters = labels.shape
        before = torch.arange(count).repeat_interleave(letters)
        tokens = torch.arange(letters).repeat(count)
        after = torch.from_numpy(machine.transitions.copy())[before, tokens]
        eye, token_eye = torch.eye(count, dtype=torch.float64), torch.eye(letters, dtype=torch.float64)
        width = classes + letters + count
        injection = eye.new_zeros(width, 2 * count)
        injection[classes + letters :, count:] = eye
        embedding = eye.new_zeros(letters, width)
        embedding[:, classes : classes + letters] = token_eye
        shown = torch.cat((eye[after], eye[before]), -1)
        return cls(tokens, shown, torch.from_numpy(labels.reshape(-1)), injection, embedding, 0.5)

    @property
    def streams(self) -> Tensor:
        """The streams ``(N, W)`` before the first block."""
        return self.embedding[self.tokens] + self.shown @ self.injection.mT


def _largest_cosine(vectors: Tensor) -> float:
    """Return the largest cosine between two of the unit vectors ``(N, D)``."""
    largest = 0.0
    for begin in range(0, len(vectors), 1024):  # not N² numbers at once
        cosines = vectors[begin : begin + 1024] @ vectors.mT
        rows = torch.arange(len(cosines))
        cosines[rows, begin + rows] = -1.0
        largest = max(largest, cosines.max().item())
    return largest


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    """Return ``(N, classes)``, zero where a label is ignored."""
    return (labels[:, None] == torch.arange(classes)).double()


def compiled_transductor(
    head: RationalHead,
    table: PositionTable,
    classes: int,
    *,
    backbone: BackboneConfig | None,
    dtype: torch.dtype,
    trainable: bool,
) -> RationalTransductor:
    """Return the model in which every row of the table has its label, :data:`MARGIN` ahead of the others."""
    vocab_size, width = table.embedding.shape
    units = 0 if table.nearest is None else len(table.labels)
    config = checked_backbone(backbone, vocab_size=vocab_size, output_size=classes, width=width, units=units)
    model = RationalTransductor(head, config)
    model.backbone.double()
    model.injection.double()
    silence(model.backbone, all_weights=not trainable)
    streams = table.streams.new_zeros(len(table.labels), config.width)
    streams[:, :width] = table.streams
    with torch.no_grad():
        model.backbone.embedding.weight[:, :width] = table.embedding
        assert model.injection.projections is not None
        model.injection.projections.weight.zero_()
        model.injection.projections.weight[:width] = table.injection  # before the first layer
    labelled = table.labels != IGNORED
    final = streams[labelled]
    if table.nearest is not None:
        values = [None if label == IGNORED else label for label in table.labels.tolist()]
        write_lookup(model.backbone, 0, streams, values, Moments.of(streams), nearest=table.nearest)
        final = final.clone()
        final[:, :classes] += _one_hot(table.labels[labelled], classes)
    write_labels(model.backbone, classes, Moments.of(final) if len(final) else Moments(0.0, 1.0))
    model = model.to(dtype).requires_grad_(trainable)
    _try_all(model, table)
    return model if trainable else model.eval()


@torch.no_grad()
def _try_all(model: RationalTransductor, table: PositionTable) -> None:
    """Prove the model right on finitely many rows: each is fed to the backbone, and its margin measured."""
    labelled = table.labels != IGNORED
    if not labelled.any():
        return
    training = model.training
    model.eval()
    margin = float("inf")
    for chosen in labelled.nonzero().squeeze(1).split(1024):
        tokens, right = table.tokens[chosen, None], table.labels[chosen, None]
        inject = model.injection.into(table.shown[chosen, None])
        logits = model.backbone(tokens, TokenPositions(torch.zeros_like(tokens)), inject)[0].squeeze(1)
        others = logits.scatter(1, right, -torch.inf)
        margin = min(margin, (logits.gather(1, right).squeeze(1) - others.amax(1)).min().item())
    model.train(training)
    if not margin > MARGIN / 2:
        raise CannotCompile(
            f"backbone separates the labels of this automaton by {margin:.2g} only, of {MARGIN:g}: its states are too "
            "close for this precision; use realisation='regular' or dtype=torch.float64"
        )
