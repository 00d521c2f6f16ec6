"""The modules that are traced when a model is exported: all positions at once, or one step of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from transductor.checks import working_dtype
from transductor.heads import HeadState, RationalHead
from transductor.model import (
    BackboneConfig,
    BackboneState,
    LearnedPositions,
    LinearRNN,
    NoAttention,
    RationalTransductor,
    Transformer,
)
from transductor.model.rational_readout import HeadReadout
from transductor.recurrence import scan
from transductor.transitions import DenseTransitions

Run = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


def tabulated(model: nn.Module) -> nn.Module:
    """Replace every head driven by tokens, in place, by one that stores its table; return the model."""
    for head in model.modules():
        if isinstance(head, RationalHead) and head.transitions.vocab_size is not None:
            table = head.transitions.table().detach()
            raw = head.raw_initial_state.detach()
            start = head.transitions.start_from(raw.to(working_dtype(raw.dtype)))
            dense = DenseTransitions(state_dim=table.shape[-1], vocab_size=len(table))
            dense.source.raw = nn.Parameter(table.flatten(1))
            head.transitions, head.raw_initial_state = dense, nn.Parameter(start)
    return model


@final
class AllPositions(nn.Module):
    """A model from ``tokens (B, T)``, or with a mask from ``(tokens, mask)``, to logits; a bare head to states.

    Args:
        model: A model or a head; its backend is changed.
        mask: Whether the second input is a mask.
        backend: Backend of every scan; None keeps those of the heads.
    """

    def __init__(self, model: Any, mask: bool, backend: str | None) -> None:
        super().__init__()
        self.model = model
        for head in model.modules():
            if isinstance(head, RationalHead) and backend is not None:
                head.backend = backend
        # Kogge–Stone and the reference loop are not one operation that a graph could hold.
        self.linear_backend = backend or "auto"
        self.features = model.transitions.feature_dim if isinstance(model, RationalHead) else None
        self.inputs = ("tokens" if self.features is None else "features", *(("mask",) if mask else ()))
        self.outputs = ("states" if isinstance(model, RationalHead) else "logits",)

    def forward(self, drive: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits or states, ``(B, T, ...)``."""
        out: Tensor
        if isinstance(self.model, LinearRNN):  # its own backend is the loop
            model = self.model
            transition, letters, bias = model.transition[None], torch.zeros_like(drive), model.embedding(drive)
            out = model.readout(scan(transition, letters, bias=bias, mask=mask, backend=self.linear_backend))
        else:
            out = self.model(drive, mask=mask)
        return out

    def example(self, rows: int, time: int) -> tuple[Tensor, ...]:
        """Return random input on the model's device; a mask has padding on either side."""
        weight = next(self.model.parameters())
        drive = _random_tokens(self.model, rows, time)
        if self.features is not None:
            with torch.random.fork_rng(devices=[]):
                drive = torch.randn(rows, time, self.features, dtype=weight.dtype)
        if len(self.inputs) == 1:
            return (drive.to(weight.device),)
        padding, index = time // 3, torch.arange(time)
        mask = torch.stack([index < time - padding if row % 2 else index >= padding for row in range(rows)])
        return drive.to(weight.device), mask.to(weight.device)

    def run_beside(self, run: Run, model: Any, rows: int, time: int) -> tuple[Tensor, Tensor]:
        """Return the outputs of ``run`` and of the model for random input, at the real positions."""
        inputs = self.example(rows, time)
        output, expected = run(inputs)[0], model(inputs[0], mask=inputs[1] if len(inputs) == 2 else None)
        return (output[inputs[1]], expected[inputs[1]]) if len(inputs) == 2 else (output, expected)


@final
class OneStep(nn.Module):
    """A model from ``tokens (B)`` and the state of a stream to logits ``(B, output_size)`` and the next state.

    The state is ``state (B, D)`` of the head, if there is one, and ``seen (B)``, the number of tokens so far, of the
    backbone, if there is one.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        backbone = _backbone(model)
        streams = isinstance(model, (RationalHead, HeadReadout, RationalTransductor, Transformer))
        if not streams or (backbone is not None and not isinstance(backbone.attention, NoAttention)):
            raise ValueError(
                "streaming takes a state of fixed size: a head, a RationalReadout, or a RationalTransductor or "
                f"Transformer with NoAttention(); got {type(model).__name__}{' with attention' if streams else ''}"
            )
        if isinstance(model, RationalHead) and model.transitions.vocab_size is None:
            raise ValueError("streaming takes a head driven by tokens; this one is driven by features")
        self.model = model
        self.names = tuple(self.start(1))
        self.inputs = ("tokens", *self.names)
        output = "states" if isinstance(model, RationalHead) else "logits"
        self.outputs = (output, *(f"next_{name}" for name in self.names))

    def start(self, rows: int) -> dict[str, Tensor]:
        """Return the state before the first token, by name."""
        tensors = _tensors(self.model.start(rows))
        return {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}

    def forward(self, tokens: Tensor, first: Tensor, second: Tensor | None = None) -> tuple[Tensor, ...]:
        """Take one step; the tensors of the state come in the order of their names."""
        tensors = dict(zip(self.names, (value for value in (first, second) if value is not None), strict=True))
        out, after = self.model.advance(tokens.unsqueeze(1), _with_tensors(self.model.start(1), tensors))
        return out.squeeze(1), *_tensors(after).values()

    def example(self, rows: int, time: int) -> tuple[Tensor, ...]:
        """Return one random token per row, and the state before the first token."""
        return _random_tokens(self.model, rows, 1).squeeze(1), *self.start(rows).values()

    def run_beside(self, run: Run, model: Any, rows: int, time: int) -> tuple[Tensor, Tensor]:
        """Return the outputs of ``run`` for random tokens one by one, and of the model for all of them at once."""
        tokens = _random_tokens(self.model, rows, time)
        values: Sequence[Tensor] = tuple(self.start(rows).values())
        outputs = []
        for token in tokens.unbind(1):
            out, *values = run((token, *values))
            outputs.append(out)
        return torch.stack(outputs, 1), model(tokens)


def _tensors(stream: Any) -> dict[str, Tensor]:
    """Return the tensors that change from step to step, by name: ``state`` of a head, ``seen`` of a backbone."""
    if isinstance(stream, HeadState):
        return {"state": stream.state}
    if isinstance(stream, BackboneState):
        return {"seen": stream.seen}
    return {name: value for part in fields(stream) for name, value in _tensors(getattr(stream, part.name)).items()}


def _with_tensors(stream: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the decode state with these tensors in the places that :func:`_tensors` reads."""
    if isinstance(stream, HeadState):
        return replace(stream, state=tensors["state"])
    if isinstance(stream, BackboneState):
        return replace(stream, seen=tensors["seen"])
    return replace(stream, **{part.name: _with_tensors(getattr(stream, part.name), tensors) for part in fields(stream)})


def reachable_lengths(model: Any, lengths: Sequence[int]) -> list[int]:
    """Return the lengths that the model can read: learned positions have a last one."""
    backbone = _backbone(model)
    scheme = None if backbone is None else backbone.positions
    return [time for time in lengths if not isinstance(scheme, LearnedPositions) or time <= scheme.max_length]


def _backbone(model: Any) -> BackboneConfig | None:
    backbone = getattr(model, "backbone", None)
    return None if backbone is None else backbone.config


def _random_tokens(model: Any, rows: int, time: int) -> Tensor:
    """Return tokens ``(rows, time)`` without changing the caller's random numbers."""
    vocab_size = (model.transitions.vocab_size or 1) if isinstance(model, RationalHead) else model.vocab_size
    with torch.random.fork_rng(devices=[]):
        return torch.randint(0, vocab_size, (rows, time))
