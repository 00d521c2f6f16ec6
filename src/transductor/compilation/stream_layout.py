"""How a finite machine lies in the stream of a Rational Transductor.

With no attention, a position of the model is a function of what its head shows there and of its token.  For a finite
machine these are finitely many *cases*; they are listed, written, and all tried once the model stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.compilation.backbone import (
    MARGIN,
    Moments,
    checked_backbone,
    silence,
    write_labels,
    write_lookup,
)
from transductor.compilation.realisation import CannotCompile, Integers
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor
from transductor.model.token_positions import TokenPositions


@dataclass(frozen=True)
class Cases:
    """Every situation of a position, and the label that belongs to it.

    Coordinates of the stream: the labels first, then what is injected and embedded.

    Attributes:
        tokens: ``(N)``.
        shown: ``(N, output_dim)``: what the head shows.
        labels: ``(N)``, ``IGNORED`` where any will do.
        injection: ``(W, output_dim)``.
        embedding: ``(V, W)``.
        nearest: The largest cosine between two streams, where a feed-forward layer finds the label by them; None where
            the injection brings it.
    """

    tokens: Tensor
    shown: Tensor
    labels: Tensor
    injection: Tensor
    embedding: Tensor
    nearest: float | None

    @classmethod
    def of_one_hot_states(cls, machine: MooreMachine, classes: int) -> Cases:
        """Labels | states.  Linear, so the argmax is that of the labels' total weights for any state whatever."""
        labels, states = torch.from_numpy(machine.outputs.copy()), torch.eye(machine.states, dtype=torch.float64)
        injection = torch.cat((_one_hot(labels, classes).mT, states))
        embedding = torch.zeros(machine.letters, len(injection), dtype=torch.float64)
        return cls(torch.zeros_like(labels), states, labels, injection, embedding, None)

    @classmethod
    def of_vectors(cls, machine: MooreMachine, vectors: NDArray[Any], classes: int) -> Cases:
        """Labels | h | −h, whose mean is 0; the nearest of the states' vectors gives the label."""
        labels, states = torch.from_numpy(machine.outputs.copy()), torch.from_numpy(vectors)
        eye = torch.eye(states.shape[1], dtype=torch.float64)
        injection = torch.cat((eye.new_zeros(classes, len(eye)), eye, -eye))
        embedding = torch.zeros(machine.letters, len(injection), dtype=torch.float64)
        return cls(torch.zeros_like(labels), states, labels, injection, embedding, _nearest(states))

    @classmethod
    def of_states_before(cls, machine: MooreMachine, labels: Integers, classes: int) -> Cases:
        """Labels | token | state before it; ``labels (states, letters)``, and the head shows ``[h_t ; h_{t−1}]``."""
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
        """Before the first block, ``(N, W)``."""
        return self.embedding[self.tokens] + self.shown @ self.injection.mT


def _nearest(vectors: Tensor) -> float:
    """The largest cosine between two of the unit vectors ``(N, D)``."""
    largest = 0.0
    for begin in range(0, len(vectors), 1024):  # not N² numbers at once
        cosines = vectors[begin : begin + 1024] @ vectors.mT
        rows = torch.arange(len(cosines))
        cosines[rows, begin + rows] = -1.0
        largest = max(largest, cosines.max().item())
    return largest


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    """``(N, classes)``, zero where ignored."""
    return (labels[:, None] == torch.arange(classes)).double()


def transductor_of(
    head: RationalHead,
    cases: Cases,
    classes: int,
    *,
    backbone: BackboneConfig | None,
    dtype: torch.dtype,
    trainable: bool,
) -> RationalTransductor:
    """The model in which every case has its label, :data:`MARGIN` ahead of the others."""
    vocab_size, width = cases.embedding.shape
    units = 0 if cases.nearest is None else len(cases.labels)
    config = checked_backbone(backbone, vocab_size=vocab_size, output_size=classes, width=width, units=units)
    model = RationalTransductor(head, config)
    model.backbone.double()
    model.injection.double()
    silence(model.backbone, all_of_it=not trainable)
    streams = cases.streams.new_zeros(len(cases.labels), config.width)
    streams[:, :width] = cases.streams
    with torch.no_grad():
        model.backbone.embedding.weight[:, :width] = cases.embedding
        assert model.injection.projections is not None
        model.injection.projections.weight.zero_()
        model.injection.projections.weight[:width] = cases.injection  # before the first layer
    labelled = cases.labels != IGNORED
    final = streams[labelled]
    if cases.nearest is not None:
        values = [None if label == IGNORED else label for label in cases.labels.tolist()]
        write_lookup(model.backbone, 0, streams, values, Moments.of(streams), nearest=cases.nearest)
        final = final.clone()
        final[:, :classes] += _one_hot(cases.labels[labelled], classes)
    write_labels(model.backbone, classes, Moments.of(final) if len(final) else Moments(0.0, 1.0))
    model = model.to(dtype).requires_grad_(trainable)
    _try_all(model, cases)
    return model if trainable else model.eval()


@torch.no_grad()
def _try_all(model: RationalTransductor, cases: Cases) -> None:
    """The proof for finitely many cases: each is fed to the backbone, and its margin measured."""
    labelled = cases.labels != IGNORED
    if not labelled.any():
        return
    training = model.training
    model.eval()
    margin = float("inf")
    for chosen in labelled.nonzero().squeeze(1).split(1024):
        tokens, right = cases.tokens[chosen, None], cases.labels[chosen, None]
        inject = model.injection.into(cases.shown[chosen, None])
        logits = model.backbone(tokens, TokenPositions(torch.zeros_like(tokens)), inject)[0].squeeze(1)
        others = logits.scatter(1, right, -torch.inf)
        margin = min(margin, (logits.gather(1, right).squeeze(1) - others.amax(1)).min().item())
    model.train(training)
    if not margin > MARGIN / 2:
        raise CannotCompile(
            f"backbone separates the labels of this automaton by {margin:.2g} only, of {MARGIN:g}: its states are too "
            "close for this precision; use realisation='regular' or dtype=torch.float64"
        )
