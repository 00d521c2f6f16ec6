"""Many small models, each with its own data and rate, trained as one CUDA graph.

A step of all models is one launch: the schedule, the curriculum and the optimiser live on the device, and models of
one configuration are stacked and run by ``torch.func.vmap``; those that cannot be, such as cuDNN's LSTM, run side by
side on several streams.  Every model is trained as :class:`transductor.training.Trainer` would: Adam, its own
gradient's norm clipped to 1, cosine decay after a linear start, and lengths that double when a batch is right.  On a
CPU the same steps run one by one.
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
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from transductor.automata.moore import IGNORED
from transductor.training import TrainingSettings

_ALIGNED = 32  # numbers: kernels are compiled for aligned addresses
_STREAMS = 16


@dataclass(frozen=True)
class Member:
    """A model, what it sees at every step (``(steps, B, T)`` on the device), and its peak rate."""

    model: nn.Module
    tokens: Tensor
    labels: Tensor
    rate: float


class Stack:
    """Models of one configuration, run as one: their weights are rows of the fleet's numbers."""

    def __init__(self, rows: slice, members: Sequence[Member], values: Tensor, gradients: Tensor) -> None:
        self.rows, self.base = rows, members[0].model
        self.weights: dict[str, Tensor] = {}
        self.gradients: list[Tensor] = []
        at, count = 0, len(members)
        for name, weight in self.base.named_parameters():
            there = slice(at, at + weight.numel())
            self.weights[name] = values[rows, there].view(count, *weight.shape).requires_grad_()
            self.gradients.append(gradients[rows, there].view(count, *weight.shape))
            at += _padded(weight)
        distinct = {id(member.tokens): member for member in members}
        self.tokens = torch.stack([member.tokens for member in distinct.values()])
        self.labels = torch.stack([member.labels for member in distinct.values()])
        order = list(distinct)
        self.seen = torch.tensor([order.index(id(member.tokens)) for member in members], device=values.device)

    def batch(self, step: Tensor) -> tuple[Tensor, Tensor]:
        tokens, labels = (each.index_select(1, step)[:, 0][self.seen].long() for each in (self.tokens, self.labels))
        return tokens, labels

    def logits(self, tokens: Tensor) -> Tensor:
        if len(tokens) == 1:
            only = {name: weight[0] for name, weight in self.weights.items()}
            return functional_call(self.base, only, (tokens[0],))[None]  # type: ignore[no-any-return]
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no batching rule, or a wrong one
            run = vmap(lambda weights, one: functional_call(self.base, weights, (one,)), randomness="different")
            return run(self.weights, tokens)  # type: ignore[no-any-return]


class Fleet:
    """Members trained by one :class:`TrainingSettings`, apart from the rate; neighbours of one shape are stacked.

    Args:
        members: The models.
        settings: How each is trained.
        device: ``"cuda"`` or ``"cpu"``.
        stacked: Whether models can be vmapped.
    """

    def __init__(
        self, members: Sequence[Member], settings: TrainingSettings, device: str, *, stacked: bool = True
    ) -> None:
        self.members, self.settings, self.device = members, settings, device
        sizes = [sum(map(_padded, member.model.parameters())) for member in members]
        shape = (len(members), max(sizes))
        self.values, self.gradients, self.mean, self.square = (torch.zeros(shape, device=device) for _ in range(4))
        for place, member in enumerate(members):
            self._laid_out(place, member.model)
        self.stacks = [
            Stack(rows, members[rows], self.values, self.gradients) for rows in _neighbours(members, stacked)
        ]
        self.rates = torch.tensor(
            [[member.rate * settings.rate_factor(step) for step in range(settings.steps)] for member in members],
            device=device,
        )
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.lengths = torch.full((len(members),), settings.first_length, device=device)
        self.losses = torch.zeros(len(members), settings.steps, device=device)
        self.places = torch.arange(settings.length, device=device)
        self.streams = [torch.cuda.Stream() for _ in range(_STREAMS)] if device != "cpu" else []

    def _laid_out(self, place: int, model: nn.Module) -> None:
        """Make the weights views of one row of numbers."""
        at = 0
        for weight in model.parameters():
            there = slice(at, at + weight.numel())
            self.values[place, there] = weight.data.flatten()
            weight.data = self.values[place, there].view_as(weight)
            at += _padded(weight)

    def train(self) -> dict[str, float]:
        """Train all; return how long it took, and what came before the steps."""
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
        for place, stack in enumerate(self.stacks):
            stream = self.streams[place % len(self.streams)] if self.streams else None
            with torch.cuda.stream(stream) if stream is not None else nullcontext():
                accuracies[stack.rows] = self._gradient(stack)
        for stream in self.streams:
            main.wait_stream(stream)
        self._update(accuracies)

    def _gradient(self, stack: Stack) -> Tensor:
        tokens, labels = stack.batch(self.step)
        labels = labels.masked_fill(self.places >= self.lengths[stack.rows, None, None], IGNORED)
        logits = stack.logits(tokens)
        labelled = labels != IGNORED
        counts = labelled.sum((1, 2)).clamp_min(1)
        terms = functional.cross_entropy(
            logits.flatten(0, -2),
            labels.flatten(),
            label_smoothing=self.settings.label_smoothing,
            ignore_index=IGNORED,
            reduction="none",
        )
        losses = terms.view(len(tokens), -1).sum(1) / counts
        gradients = torch.autograd.grad(losses.sum(), list(stack.weights.values()))
        torch._foreach_copy_(stack.gradients, gradients)
        self.losses[stack.rows].index_copy_(1, self.step, losses.detach()[:, None])
        return ((logits.detach().argmax(-1) == labels) & labelled).sum((1, 2)) / counts

    @torch.no_grad()
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
        """Return each member's last loss, the length its curriculum reached, and whether it failed."""
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


def _neighbours(members: Sequence[Member], stacked: bool) -> list[slice]:
    """Return runs of members whose weights and batches have the same shapes."""
    rows: list[slice] = []
    last: object = None
    for place, member in enumerate(members):
        shape = member.tokens.shape, [(name, weight.shape) for name, weight in member.model.named_parameters()]
        if stacked and shape == last:
            rows[-1] = slice(rows[-1].start, place + 1)
        else:
            rows.append(slice(place, place + 1))
        last = shape
    return rows
