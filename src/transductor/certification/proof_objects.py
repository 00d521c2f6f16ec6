"""The inductive invariant of an exact head, as a certificate holds it and :mod:`.checker` checks it.

Intervals of logits come from the checker's own arithmetic, so that what is stated is what it computes again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.certification.ball_arithmetic import Array
from transductor.certification.checker import Ball, CheckError, Machine, Model, Tensor, check_invariant, gap
from transductor.certification.reachability import Graph
from transductor.certification.subjects import Subject

# About half a minute of the checker's time, and 100 MB of JSON.
MOST_PRODUCTS: Final = 50_000_000
MOST_INTERVALS: Final = 2_000_000
_DIGITS: Final = 53  # of a double


class NoProofObject(ValueError):
    """There is no proof object; the message says why."""


def invariant_of(
    subject: Subject, graph: Graph, states: Array, machine: MooreMachine, domain: MooreMachine | None
) -> dict[str, Any] | None:
    """Return the part ``"invariant"`` of a certificate; None where :func:`built_invariant` says why there is none."""
    try:
        return built_invariant(subject, graph, states, machine, domain)
    except NoProofObject:
        return None


def built_invariant(
    subject: Subject, graph: Graph, states: Array, machine: MooreMachine, domain: MooreMachine | None
) -> dict[str, Any]:
    """Return every node and edge that words reach, each node's state, and every logit as an interval.

    Args:
        subject: An exact head with what reads it.
        graph: Its graph beside machine and domain, as :func:`~.reachability.exact_run` gives it.
        states: ``(D, n)``: the head's state of every node.
        machine: What the labels are compared with.
        domain: The words that can occur; None for all.

    Raises:
        NoProofObject: If it would be too large, or if the checker's bounds do not show every label.
    """
    _check_size(subject, graph, states)
    try:
        model = _model(subject)
        logits = _stated_logits(model, graph, states)
    except CheckError as error:
        raise NoProofObject(f"the checker does not cover this model: {error}") from error
    by_node = model.of == "node"
    labels = graph.labels[graph.target].tolist()
    places = graph.target.tolist() if by_node else range(len(labels))
    if all(label == IGNORED for label in labels):
        raise NoProofObject("no word has a label, so that there is nothing to show")
    for place, label in zip(places, labels, strict=True):
        if label != IGNORED and not gap(logits[place], label) > 0:
            raise NoProofObject("the checker's bounds are too wide to show every label")
    return {
        "states": states.T.tolist(),
        "machine": _followed(graph, machine),
        "domain": None if domain is None else _followed(graph, domain),
        "targets": graph.targets(subject.letters).tolist(),
        "of": model.of,
        "logits": logits,
    }


def check_stated(subject: Subject, machine: MooreMachine, domain: MooreMachine | None, invariant: Any) -> None:
    """Check the part ``"invariant"`` of a certificate as the independent checker does.

    It need not be the one built here: an earlier release may have stated wider intervals, which are as good as long as
    every label follows from them.

    Raises:
        CheckError: With what does not hold.
    """
    letters = [*map(str, range(subject.letters))]
    machines = [
        Machine(letters, [[0] * len(letters)], [1], 0)
        if each is None
        else Machine(letters, each.transitions.tolist(), each.outputs.tolist(), each.start)
        for each in (machine, domain)
    ]
    check_invariant(_model(subject), machines[0], machines[1], invariant)


def _check_size(subject: Subject, graph: Graph, states: Array) -> None:
    """Refuse what would take too long to check, or too much room."""
    if not subject.gives_labels:
        raise NoProofObject("nothing turns states into labels")
    if subject.attention is not None:
        raise NoProofObject("labels depend on more than token and state where layers attend")
    by_edge = bool(subject.stream) or subject.lookback
    arrivals, computed = graph.nodes, graph.nodes
    if by_edge:  # the checker computes logits once for each letter with the states that are shown
        shown = np.unique(states, axis=1, return_inverse=True)[1].reshape(-1)
        before = shown[graph.source] if subject.lookback else np.zeros_like(graph.source)
        arrivals = len(graph.source)
        computed = np.unique(np.stack([graph.letter, shown[graph.target], before]), axis=1).shape[1]
    maps = {name: values for name, values in subject.tensors().items() if values.ndim == 2 and "embedding" not in name}
    products = computed * sum(int(np.count_nonzero(values)) for values in maps.values())
    intervals = arrivals * sum(
        len(values) for name, values in maps.items() if name in ("weight", "stream.readout.weight")
    )
    for count, most, what in ((products, MOST_PRODUCTS, "products"), (intervals, MOST_INTERVALS, "intervals")):
        if count > most:
            raise NoProofObject(f"its check would take {count:,} {what}; at most {most:,} are allowed")


def _model(subject: Subject) -> Model:
    """Return the checker's model of the same numbers."""
    tensors = {}
    for name, values in subject.tensors().items():
        flat = values.reshape(-1)
        places = np.flatnonzero(flat)
        numbers = dict(zip(places.tolist(), flat[places].astype(np.float64).tolist(), strict=True))
        tensors[name] = Tensor(values.shape, numbers, values.dtype.name)
    return Model(tensors, subject.precision, subject.lookback)


def _stated_logits(model: Model, graph: Graph, states: Array) -> list[Any]:
    """Return intervals for every node that words arrive at (None for the others), or for every edge."""
    exact = [tuple(map(model.exact, state)) for state in states.T.tolist()]
    by_node = model.of == "node"
    out: list[Any] = [None] * (graph.nodes if by_node else len(graph.source))
    edges = zip(graph.source.tolist(), graph.letter.tolist(), graph.target.tolist(), strict=True)
    for place, (source, letter, target) in enumerate(edges):
        if by_node and out[target] is not None:
            continue
        seen = exact[target] + exact[source] if model.lookback else exact[target]
        out[target if by_node else place] = [_outward(ball, model.grid) for ball in model.logits(letter, seen)]
    return out


def _outward(ball: Ball, grid: int) -> list[float]:
    """Return doubles on the checker's grid that are below and above all numbers of a ball."""
    low, high = ball[0] - ball[1], ball[0] + ball[1]
    digits = [max(0, abs(end).bit_length() - _DIGITS) for end in (low, high)]
    below, above = low >> digits[0] << digits[0], -(-high >> digits[1]) << digits[1]
    return [below / (1 << grid), above / (1 << grid)]  # exact: at most 53 digits, none below the grid


def _followed(graph: Graph, machine: MooreMachine) -> list[int]:
    """Return the machine's state at every node."""
    out = [machine.start] + [0] * (graph.nodes - 1)
    for node in range(1, graph.nodes):  # nodes are numbered in the order of their shortest words
        edge = graph.parents[node]
        out[node] = int(machine.transitions[out[graph.source[edge]], graph.letter[edge]])
    return out
