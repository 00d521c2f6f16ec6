"""Prove that 24 large exact machines equal their minimisations, and measure how long it takes.

The machines are those of ``spectral_defaults.py``, with exact weights.  Each is given five states more (five states are
split into copies), minimised, and compared with what comes out and with the machine it was made of.  Times are those of
one run of one core, the first one.

Writes ``benchmarks/results/exact_equivalence.json``.  Usage: ``python benchmarks/exact_equivalence.py
[--machines 24] [--output FOLDER]``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.automata.test_reduction import bits, split_states

from spectral_defaults import machine
from transductor.automata import equivalent, reduced
from transductor.results import Record

COPIES = 5


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long one call takes, and its result."""
    begun = time.process_time()
    result = function()
    return time.process_time() - begun, result


def measured(number: int) -> dict[str, Any]:
    """Return what was measured of one machine."""
    drawn, facts = machine(number)
    exact = drawn.over("rational")
    large = split_states(exact, COPIES, number)
    minimising, reduction = seconds(lambda: reduced(large))
    comparing, verdict = seconds(lambda: equivalent(large, reduction.automaton))
    with_origin, origin = seconds(lambda: equivalent(large, exact))
    return {
        **{name: facts[name] for name in ("machine", "states", "letters")},
        "split": large.dim,
        "minimal": reduction.automaton.dim,
        "bits": bits(reduction.automaton),
        "proved": bool(reduction.exact and verdict and verdict.exact and origin and origin.exact),
        "minimise_seconds": minimising,
        "equivalent_seconds": comparing,
        "equivalent_to_origin_seconds": with_origin,
    }


def main() -> None:
    """Measure every machine, print a line for each, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=24)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    rows = []
    for number in range(options.machines):
        rows.append(measured(number))
        print({name: round(value, 3) if isinstance(value, float) else value for name, value in rows[-1].items()})
    slowest = {
        name: max(row[f"{name}_seconds"] for row in rows) for name in ("minimise", "equivalent", "equivalent_to_origin")
    }
    settings = {"machines": options.machines, "copies": COPIES, "flint": find_spec("flint") is not None}
    measurements = {"proved": sum(row["proved"] for row in rows), "slowest_seconds": slowest, "machines": rows}
    print(Record("exact_equivalence", settings, measurements).write(options.output / "exact_equivalence.json"))


if __name__ == "__main__":
    main()
