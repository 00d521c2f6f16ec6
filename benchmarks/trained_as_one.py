"""Many small models, each with its own data and rate, trained as one CUDA graph.

Models whose operations cannot be batched over (kernels of another library) are captured side by side on several
streams: a step of all of them is one launch, and the schedule, the curriculum and the optimiser live on the device.
Every model is trained as :class:`transductor.training.Trainer` would: Adam, its own gradient's norm clipped to 1,
cosine decay after a linear start, and lengths that double when a batch is right.  On a CPU the same steps run one by
one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transductor.automata.moore import IGNORED
from transductor.training import TrainingSettings
from transductor.training.steps import label_accuracy, labelled_loss, right_labels

_ALIGNED = 32  # numbers: kernels are compiled for aligned addresses


@dataclass(frozen=True)
class Member:
    """A model, what it sees at every step (``(steps, B, T)`` on the device), and its peak rate."""

    model: nn.Module
    tokens: Tensor
    labels: Tensor
    rate: float


class Fleet:
    """Members trained by one :class:`TrainingSettings`, apart from the rate."""

    def __init__(self, members: Sequence[Member], settings: TrainingSettings, device: str, streams: int = 16) -> None:
        self.members, self.settings, self.device = members, settings, device
        self.weights = [list(member.model.parameters()) for member in members]
        sizes = [sum(_padded(weight) for weight in weights) for weights in self.weights]
        shape = (len(members), max(sizes))
        self.values, self.gradients, self.mean, self.square = (torch.zeros(shape, device=device) for _ in range(4))
        self.gradient_views: list[list[Tensor]] = []
        for place, weights in enumerate(self.weights):
            self.gradient_views.append(self._laid_out(place, weights))
        self.rates = torch.tensor(
            [[member.rate * settings.rate_factor(step) for step in range(settings.steps)] for member in members],
            device=device,
        )
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.lengths = torch.full((len(members),), settings.first_length, device=device)
        self.losses = torch.zeros(len(members), settings.steps, device=device)
        self.places = torch.arange(settings.length, device=device)
        self.streams = [torch.cuda.Stream() for _ in range(streams)] if device != "cpu" else []

    def _laid_out(self, place: int, weights: Sequence[nn.Parameter]) -> list[Tensor]:
        """Make the weights views of one row of numbers; return the same views of the gradients."""
        views, at = [], 0
        for weight in weights:
            there = slice(at, at + weight.numel())
            self.values[place, there] = weight.data.flatten()
            weight.data = self.values[place, there].view_as(weight)
            views.append(self.gradients[place, there].view_as(weight))
            at += _padded(weight)
        return views

    def train(self) -> dict[str, Any]:
        """Train all; return how long it took, and where the time went."""
        for member in self.members:
            member.model.train()
        began = time.perf_counter()
        if self.device == "cpu":
            for _ in range(self.settings.steps):
                self._one_step()
            return {"seconds": time.perf_counter() - began}
        replayed = self._captured()
        torch.cuda.synchronize()
        ready = time.perf_counter()
        for _ in range(self.settings.steps):
            replayed.replay()
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - ready, "seconds to capture": ready - began}

    def _captured(self) -> Any:
        """Run one step for what is compiled and allocated at first use, undo it, and capture the next."""
        held = [each.clone() for each in (self.values, self.lengths)]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._one_step()
        torch.cuda.synchronize()
        self.values.copy_(held[0])
        self.lengths.copy_(held[1])
        for each in (self.mean, self.square, self.step, self.losses):
            each.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._one_step()
        return graph

    def _one_step(self) -> None:
        main = torch.cuda.current_stream() if self.streams else None
        for stream in self.streams:
            stream.wait_stream(main)
        accuracies = torch.empty(len(self.members), device=self.device)
        for place, member in enumerate(self.members):
            stream = self.streams[place % len(self.streams)] if self.streams else None
            with torch.cuda.stream(stream) if stream is not None else nullcontext():
                accuracies[place] = self._gradient(place, member)
        for stream in self.streams:
            main.wait_stream(stream)
        self._update(accuracies)

    def _gradient(self, place: int, member: Member) -> Tensor:
        tokens = member.tokens.index_select(0, self.step)[0].long()
        labels = member.labels.index_select(0, self.step)[0].long()
        labels = labels.masked_fill(self.places >= self.lengths[place], IGNORED)
        logits = member.model(tokens)
        loss = labelled_loss(logits, labels, self.settings.label_smoothing)
        gradients = torch.autograd.grad(loss, self.weights[place])
        torch._foreach_copy_(self.gradient_views[place], gradients)
        self.losses[place].index_copy_(0, self.step, loss.detach()[None])
        return label_accuracy(right_labels(logits, labels), labels)

    def _update(self, accuracies: Tensor) -> None:
        settings = self.settings
        early, late = settings.betas
        norms = self.gradients.norm(dim=1, keepdim=True)
        gradients = self.gradients * (settings.gradient_clip / (norms + 1e-6)).clamp_max(1.0)
        self.mean.lerp_(gradients, 1 - early)
        self.square.mul_(late).addcmul_(gradients, gradients, value=1 - late)
        done = (self.step + 1).double()
        mean_left, square_left = ((1 - beta**done).float() for beta in (early, late))
        rate = self.rates.index_select(1, self.step)
        self.values.sub_(rate * (self.mean / mean_left) / ((self.square / square_left).sqrt() + 1e-8))
        if (curriculum := settings.curriculum) is not None:
            longer = (self.lengths * curriculum.factor).ceil().long().maximum(self.lengths + 1)
            longer = longer.clamp_max(settings.length)
            self.lengths.copy_(torch.where(accuracies >= curriculum.threshold, longer, self.lengths))
        self.step.add_(1)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return each member's last losses, the length its curriculum reached, and whether it failed."""
        finite = self.values.isfinite().all(1).tolist()
        return [
            {
                "last loss": value if math.isfinite(value) else None,
                "length reached": int(length),
                "failure": None if sound and math.isfinite(value) else "the loss or a weight is not finite",
            }
            for value, length, sound in zip(self.losses[:, -1].tolist(), self.lengths.tolist(), finite, strict=True)
        ]


def _padded(weight: Tensor) -> int:
    return -(-weight.numel() // _ALIGNED) * _ALIGNED
