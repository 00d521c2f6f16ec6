"""Heads that are nearly right, written down number by number."""

from __future__ import annotations

import math

import numpy as np
import torch

from transductor.automata import MooreMachine
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.transitions import DenseTransitions


def counter(modulus, labels=None):
    """Letter 0 stays, letter 1 counts."""
    rows = [[state, (state + 1) % modulus] for state in range(modulus)]
    return MooreMachine(np.array(rows), np.arange(modulus) if labels is None else np.array(labels))


def random_machine(rng, states, letters, labels):
    return MooreMachine(rng.integers(0, states, (states, letters)), rng.integers(0, labels, states))


def readout_model(table, initial, weight, bias=None, *, dtype=torch.float64, head=RationalHead, backend="auto"):
    """``W h + b`` over dense transitions with exactly these numbers."""
    letters, dim = np.shape(table)[:2]
    model = RationalReadout(head(DenseTransitions(state_dim=dim, vocab_size=letters), backend=backend), len(weight))
    model = model.to(dtype).eval()
    with torch.no_grad():
        model.rational_head.transitions.source.raw.copy_(torch.as_tensor(np.reshape(table, (letters, -1))))
        model.rational_head.raw_initial_state.copy_(torch.as_tensor(np.asarray(initial)))
        model.readout.weight.copy_(torch.as_tensor(np.asarray(weight)))
        model.readout.bias.copy_(torch.zeros(len(weight)) if bias is None else torch.as_tensor(np.asarray(bias)))
    return model


def turn(angle):
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def rotating_counter(error, *, modulus=5, **options):
    """A counter as turns of the plane, each too far by ``error``; the nearest state is the label."""
    corners = np.stack([turn(2 * math.pi * k / modulus)[:, 0] for k in range(modulus)])
    table = np.stack([np.eye(2), turn(2 * math.pi / modulus + error)])
    return readout_model(table, corners[0], corners, **options)


def one_hot(machine):
    """Table ``(V, n, n)``, initial state and readout of a machine with one coordinate per state."""
    table = np.zeros((machine.letters, machine.states, machine.states))
    for letter in range(machine.letters):
        table[letter, machine.transitions[:, letter], np.arange(machine.states)] = 1
    weight = np.eye(int(machine.outputs.max()) + 1)[:, np.maximum(machine.outputs, 0)]
    return table, np.eye(machine.states)[machine.start], weight


def labels_of(model, tokens):
    with torch.no_grad():
        return model(tokens).argmax(-1)
