"""Heads that are nearly finite machines, made from machines."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from transductor.automata import MooreMachine
from transductor.heads import LookbackHead, RationalHead
from transductor.model import RationalReadout
from transductor.transitions import DenseTransitions


def dense_readout(
    table: Tensor, start: Tensor, weight: Tensor, *, bias: Tensor | None = None, lookback: bool = False
) -> RationalReadout:
    """``logits = W h + b`` over a dense head with ``table (V, D, D)`` and ``start (D)``, in float64."""
    family = DenseTransitions(vocab_size=len(table), state_dim=len(start))
    model = RationalReadout((LookbackHead if lookback else RationalHead)(family), len(weight)).double()
    with torch.no_grad():
        family.get_parameter("source.raw").copy_(table.flatten(1))
        model.rational_head.raw_initial_state.copy_(start)
        model.readout.weight.copy_(weight)
        model.readout.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)
    return model


def noisy_readout(machine: MooreMachine, labels: int, *, noise: float = 1e-3, seed: int = 0) -> RationalReadout:
    """The machine in another basis, with noise on every matrix."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    states = machine.states
    basis = torch.linalg.qr(drawn(states, states)).Q + 0.1 * drawn(states, states) / math.sqrt(states)
    table = torch.nn.functional.one_hot(torch.tensor(machine.transitions.T), states).mT.double()
    shown = torch.tensor(machine.outputs).unsqueeze(0) == torch.arange(labels).unsqueeze(1)
    parts = basis @ table @ basis.inverse(), basis[:, machine.start], shown.double() @ basis.inverse()
    return dense_readout(*(part + noise * drawn(*part.shape) / math.sqrt(states) for part in parts))


def turns(*angles: float) -> Tensor:
    """Turns of the plane ``(V, 2, 2)``."""
    rows = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in angles]
    return torch.tensor(rows, dtype=torch.float64)


def clock(modulus: int, error: float) -> RationalReadout:
    """Letter 1 turns by ``2π/modulus + error``, letter 0 not at all; the label is the nearest multiple."""
    angles = 2 * math.pi * torch.arange(modulus, dtype=torch.float64) / modulus
    hands = torch.stack([angles.cos(), angles.sin()], 1)
    return dense_readout(turns(0.0, 2 * math.pi / modulus + error), torch.tensor([1.0, 0.0]), hands)
