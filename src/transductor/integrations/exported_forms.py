"""What is traced when a model is exported: all positions at once, or one step of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor, nn

from transductor.heads import RationalHead
from transductor.model import (
    BackboneConfig,
    BackboneState,
    LearnedPositions,
    LinearRNN,
    NoAttention,
    RationalReadout,
    RationalTransductor,
    Transformer,
)
from transductor.recurrence import scan
from transductor.transitions import DenseTransitions

Run = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


def tabulated(model: nn.Module) -> nn.Module:
    """The model with the table of every head driven by tokens computed once: what made it is not needed to run it.

    Changes the model it is given.
    """
    for head in model.modules():
        if isinstance(head, RationalHead) and head.transitions.vocab_size is not None:
            table, start = head.transitions.table().detach(), head.initial_state().detach()
            dense = DenseTransitions(state_dim=head.state_dim, vocab_size=len(table))
            dense.source.raw = nn.Parameter(table.flatten(1))
            head.transitions, head.raw_initial_state = dense, nn.Parameter(start)
    return model


@final
class Whole(nn.Module):
    """``tokens (B, T)``, or with a mask ``(tokens, mask)``, to logits; a bare head to states.

    Args:
        backend: Of every scan; None keeps what the heads have.
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
        """Logits or states, ``(B, T, ...)``."""
        if isinstance(self.model, LinearRNN):  # its own backend is the loop
            return self._linear(self.model, drive, mask)
        out: Tensor = self.model(drive, mask=mask)
        return out

    def _linear(self, model: LinearRNN, tokens: Tensor, mask: Tensor | None) -> Tensor:
        states = scan(
            model.transition[None],
            torch.zeros_like(tokens),
            bias=model.embedding(tokens),
            mask=mask,
            backend=self.linear_backend,
        )
        logits: Tensor = model.readout(states)
        return logits

    def example(self, rows: int, time: int) -> tuple[Tensor, ...]:
        """Random input on the model's device; a mask with padding on either side."""
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
        """What ``run`` makes of random input, and what the model does, at the positions that are real."""
        given = self.example(rows, time)
        found, exact = run(given)[0], model(given[0], mask=given[1] if len(given) == 2 else None)
        return (found[given[1]], exact[given[1]]) if len(given) == 2 else (found, exact)

    def reachable(self, lengths: Sequence[int]) -> list[int]:
        """The lengths that the model can take."""
        return _reachable(self.model, lengths)


@final
class Step(nn.Module):
    """``tokens (B)`` and the stream's state to logits ``(B, output_size)`` and the state after.

    The state is ``state (B, D)`` of a head, and ``seen (B)``, how many tokens there were, of a stream beside it.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        backbone = _backbone(model)
        kind = isinstance(model, (RationalHead, RationalReadout, RationalTransductor, Transformer))
        if not kind or (backbone is not None and not isinstance(backbone.attention, NoAttention)):
            what = type(model).__name__ if backbone is None or not kind else f"{type(model).__name__} with attention"
            raise ValueError(
                "streaming takes a state of fixed size: a head, a RationalReadout, or a RationalTransductor or "
                f"Transformer with NoAttention(); got {what}"
            )
        if isinstance(model, RationalHead) and model.transitions.vocab_size is None:
            raise ValueError("streaming takes a head driven by tokens; this one is driven by features")
        self.model = model
        self.names = tuple(self.start(1))
        self.inputs = ("tokens", *self.names)
        last = "states" if isinstance(model, RationalHead) else "logits"
        self.outputs = (last, *(f"next_{name}" for name in self.names))

    def start(self, rows: int) -> dict[str, Tensor]:
        """The state before the first token, by name."""
        found: dict[str, Tensor] = {}
        if not isinstance(self.model, Transformer):
            head = self.model if isinstance(self.model, RationalHead) else self.model.rational_head
            found["state"] = head.initial_state().detach().repeat(rows, 1)
        if _backbone(self.model) is not None:
            found["seen"] = torch.zeros(rows, dtype=torch.long)
        return found

    def forward(self, tokens: Tensor, first: Tensor, second: Tensor | None = None) -> tuple[Tensor, ...]:
        """One token on; the parts of the state come in the order of their names."""
        now = dict(zip(self.names, (value for value in (first, second) if value is not None), strict=True))
        stream: Any = self.model.start(1)
        backbone = _backbone(self.model)
        seen = None if backbone is None else BackboneState(now["seen"], (None,) * backbone.layers)
        match self.model:
            case RationalHead():
                stream = replace(stream, state=now["state"])
            case Transformer():
                stream = seen
            case RationalReadout():
                stream = replace(stream, head=replace(stream.head, state=now["state"]))
            case _:
                stream = replace(stream, head=replace(stream.head, state=now["state"]), backbone=seen)
        after: Any
        out, after = self.model.advance(tokens.unsqueeze(1), stream)
        then = {}
        if "state" in now:
            then["state"] = after.state if isinstance(self.model, RationalHead) else after.head.state
        if "seen" in now:
            then["seen"] = after.seen if isinstance(self.model, Transformer) else after.backbone.seen
        return out.squeeze(1), *(then[name] for name in self.names)

    def example(self, rows: int, time: int) -> tuple[Tensor, ...]:
        """One random token per row, from the start."""
        return _random_tokens(self.model, rows, 1).squeeze(1), *self.start(rows).values()

    def run_beside(self, run: Run, model: Any, rows: int, time: int) -> tuple[Tensor, Tensor]:
        """What ``run`` makes of random tokens one after the other, and what the model makes of all at once."""
        tokens = _random_tokens(self.model, rows, time)
        values: Sequence[Tensor] = tuple(self.start(rows).values())
        outputs = []
        for token in tokens.unbind(1):
            out, *values = run((token, *values))
            outputs.append(out)
        return torch.stack(outputs, 1), model(tokens)

    def reachable(self, lengths: Sequence[int]) -> list[int]:
        """The lengths that the model can take."""
        return _reachable(self.model, lengths)


def _backbone(model: Any) -> BackboneConfig | None:
    backbone = getattr(model, "backbone", None)
    return None if backbone is None else backbone.config


def _vocabulary(model: Any) -> int:
    """Tokens in."""
    if isinstance(model, RationalHead):
        return model.transitions.vocab_size or 1
    size: int = model.vocab_size
    return size


def _random_tokens(model: Any, rows: int, time: int) -> Tensor:
    """``(rows, time)``; whoever exports in the middle of a run finds the random numbers where they were."""
    with torch.random.fork_rng(devices=[]):
        return torch.randint(0, _vocabulary(model), (rows, time))


def _reachable(model: Any, lengths: Sequence[int]) -> list[int]:
    """Learned positions end somewhere."""
    backbone = _backbone(model)
    scheme = None if backbone is None else backbone.positions
    return [time for time in lengths if not isinstance(scheme, LearnedPositions) or time <= scheme.max_length]
