"""Filters from hidden Markov models, and automata from filters."""

from __future__ import annotations

import numpy as np
import torch

from transductor.automata import HiddenMarkovModel, WeightedAutomaton
from transductor.heads import FilterHead
from transductor.model import FilterReadout
from transductor.transitions import FAMILIES, PositiveTransitions


@torch.no_grad()
def filter_of(
    machine: HiddenMarkovModel | WeightedAutomaton, *, leak: float = 1e-6, dtype: torch.dtype = torch.float32
) -> FilterHead:
    """Return the filter of a hidden Markov model, or of an automaton without negative weights.

    Its beliefs and log-likelihoods are the model's.  Entries below ``leak`` of their matrix's mean become that leak, so
    that training can go on from here: for exact zeros take ``leak=0``, which gives a frozen head.

    Args:
        machine: Token v is its letter v.
        leak: That of :class:`~transductor.transitions.PositiveTransitions`.
        dtype: Of the head.
    """
    automaton = machine.automaton() if isinstance(machine, HiddenMarkovModel) else machine.over("float")
    matrices, start = np.asarray(automaton.matrices), np.asarray(automaton.initial)
    if (matrices < 0).any() or (start < 0).any() or not start.any():
        raise ValueError("machine must have weights of at least 0, and a start: beliefs are distributions")
    sizes = {"state_dim": automaton.dim, "vocab_size": len(matrices)}
    if leak == 0:
        head = FilterHead(FAMILIES["dense"](**sizes)).double()
        raw, begun = matrices, start
    else:
        head = FilterHead(PositiveTransitions(leak=leak, **sizes)).double()
        least = leak * matrices.mean((1, 2), keepdims=True) / (1 + leak)
        # The leak adds a share of the mean of the exponentials, which is the mean of the matrix over 1 + leak.
        raw = np.log(np.maximum(matrices - least, np.maximum(least * 1e-3, 1e-300)))
        begun = np.log(np.maximum(start / start.sum(), 1e-30))
    head.transitions.get_parameter("source.raw").copy_(torch.tensor(raw).flatten(1))
    head.raw_initial_state.copy_(torch.tensor(begun))
    return head.to(dtype).requires_grad_(leak > 0)


@torch.no_grad()
def predictor_of(model: HiddenMarkovModel, *, leak: float = 1e-6, dtype: torch.dtype = torch.float32) -> FilterReadout:
    """Return the readout whose logits are the log-probabilities of the next letter under a hidden Markov model."""
    readout = FilterReadout(filter_of(model, leak=leak, dtype=torch.float64), model.letters).double()
    shown = np.log(np.maximum(model.emissions.T, 1e-30))
    readout.readout.weight.copy_(torch.tensor(shown))
    return readout.to(dtype)


@torch.no_grad()
def automaton_of_filter(head: FilterHead) -> WeightedAutomaton:
    """Return the automaton of a filter driven by tokens: its value at a word is the likelihood."""
    if not isinstance(head, FilterHead) or head.transitions.vocab_size is None:
        raise ValueError("head must be a FilterHead driven by tokens")
    table = head.transitions.table().double().cpu().numpy()
    start = head.initial_state()[:-1].double().cpu().numpy()
    letters = tuple(range(len(table)))
    return WeightedAutomaton(start, table, np.ones(len(start)), letters, weights="float")
