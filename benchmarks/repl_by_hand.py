"""Traces of a prompt by filters whose weights are written down: what five beliefs can say, before any learning.

One factor for each value: where it is (one of five variables, or nowhere yet) and what the line has said so far, 120
states of which a swap of three tokens needs most.  Matrices are probabilities; the readout is that of
``FilterReadout``, the product of what the factors say.  Where no name is hidden this is exact; where names are hidden,
what is lost is how the places of values depend on one another.

Writes ``benchmarks/results/repl_by_hand.json`` and prints it.  Usage: ``python benchmarks/repl_by_hand.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from transductor.heads import FactoredFilterHead
from transductor.model import FilterReadout
from transductor.results import Record
from transductor.tasks import ReplTraces
from transductor.transitions import DenseTransitions, DirectSum

RESULTS = Path(__file__).parent / "results"
LENGTHS = ((90, 64), (594, 16), (4626, 2))
VARIABLES = 5
NOWHERE, HIDDEN = VARIABLES, VARIABLES
PLACES = VARIABLES + 1
# What a line has said so far: nothing, or a statement, or a statement and a name.
PHASES = ("", "set", "swap", "print", *(f"{word} {name}" for word in ("set", "swap", "print") for name in range(6)))


def state(place: int, phase: str) -> int:
    """Return the number of a state."""
    return PHASES.index(phase) * PLACES + place


def moved(place: int, first: int, second: int) -> dict[int, float]:
    """Return where a value may be after a swap of two names, of which some are hidden."""
    others = [name for name in range(VARIABLES) if name != place]
    shown = [name for name in (first, second) if name != HIDDEN]
    if not shown:
        return {place: 1 - 2 / VARIABLES, **dict.fromkeys(others, 2 / VARIABLES / len(others))}
    if len(shown) == 2:
        return {shown[1 - shown.index(place)] if place in shown else place: 1.0}
    if place == shown[0]:
        return dict.fromkeys(others, 1 / len(others))
    return {place: 1 - 1 / (VARIABLES - 1), shown[0]: 1 / (VARIABLES - 1)}


def matrices(task: ReplTraces, value: int) -> torch.Tensor:
    """Return the matrices of one value's factor, ``(V, D, D)``."""
    size = len(PHASES) * PLACES
    table = torch.zeros(task.vocab_size, size, size, dtype=torch.float64)
    statements = dict(zip(("set", "swap", "print"), range(2 * VARIABLES + 1, 2 * VARIABLES + 4), strict=True))
    names = [*range(VARIABLES), 2 * VARIABLES]
    for place in range(PLACES):
        for word, token in statements.items():
            table[token, state(place, word), state(place, "")] = 1
            for name, said in enumerate(names):
                table[said, state(place, f"{word} {name}"), state(place, word)] = 1
        for name in range(VARIABLES):
            for shown in range(VARIABLES):
                token, at = VARIABLES + shown, state(place, f"set {name}")
                table[token, state(name if shown == value else place, ""), at] = 1
                if (place == name) == (shown == value):  # a print that the place allows
                    table[token, state(place, ""), state(place, f"print {name}")] = 1
        if place == NOWHERE:
            continue
        for first in range(VARIABLES + 1):
            for second, token in enumerate(names):
                for after, chance in moved(place, first, second).items():
                    table[token, state(after, ""), state(place, f"swap {first}")] += chance
    return table


def by_hand(task: ReplTraces) -> FilterReadout:
    """Return the readout of five factors."""
    factors, columns = [], []
    for value in range(VARIABLES):
        table = matrices(task, value)
        family = DenseTransitions(vocab_size=task.vocab_size, state_dim=table.shape[1])
        family.get_parameter("source.raw").data = table.flatten(1)
        factors.append(family)
        weights = torch.zeros(task.vocab_size, table.shape[1], dtype=torch.float64)
        for name in range(VARIABLES):
            for place in range(PLACES):
                said = torch.full((task.vocab_size,), -60.0, dtype=torch.float64)
                here = slice(VARIABLES, 2 * VARIABLES)
                said[here] = -60.0 if place == name else 0.0
                said[VARIABLES + value] = 0.0 if place == name else -60.0
                weights[:, state(place, f"print {name}")] = said
        columns.append(weights)
    model = FilterReadout(FactoredFilterHead(DirectSum(*factors)), task.vocab_size).double()
    size = len(PHASES) * PLACES
    start = torch.zeros(VARIABLES, size, dtype=torch.float64)
    start[:, state(NOWHERE, "")] = 1
    model.rational_head.raw_initial_state.data = start.flatten()
    model.readout.weight.data = torch.cat(columns, 1)
    return model


@torch.no_grad()
def judged(task: ReplTraces, length: int, rows: int) -> dict[str, Any]:
    """Return how many prints are right, and by how much predictions of them are worse than Bayes'."""
    tokens = task.sample(rows, length, torch.Generator().manual_seed(length))
    truth, likely = task.truth(tokens), task.next_tokens(tokens)
    logits = by_hand(task)(tokens)
    prints = truth >= 0
    right = likely[prints][:, VARIABLES : 2 * VARIABLES]
    said = torch.log_softmax(logits[prints][:, VARIABLES : 2 * VARIABLES], -1)
    least = -float(torch.special.xlogy(right, right).sum())
    loss = -float((right * said).sum())
    return {
        "hidden": task.hidden,
        "length": length,
        "prints": int(prints.sum()),
        "right": float((logits.argmax(-1) == truth)[prints].double().mean()),
        "excess": (loss - least) / least if least > 1 else None,
    }


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    tasks = (ReplTraces(hidden=0.0), ReplTraces())
    entries = [judged(task, *one) for task in tasks for one in LENGTHS]
    for entry in entries:
        print(entry)
    Record("repl_by_hand", {"states": len(PHASES) * PLACES}, {"entries": entries}).write(
        options.output / "repl_by_hand.json"
    )


if __name__ == "__main__":
    main()
