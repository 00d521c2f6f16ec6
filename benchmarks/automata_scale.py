"""Measure minimisation, determinisation and equivalence of large automata, beside OpenFst in the same run.

Machines of 10⁴, 10⁵ and 10⁶ states:

- *minimise*: half a random machine over two letters, every state twice, shuffled;
- *equivalent*, *included*: that machine against its minimisation;
- *determinise*: the words whose k-th letter from the end is ``a``, for which 2^k sets of states are needed, and
  *dictionary*: the words of a random list, each a chain of its own from one start.

A measurement is the median of the runs after one that is not counted (loops are compiled then); ours begins with the
``DFA`` or ``NFA``, OpenFst's with its own object, and neither includes making that.

Writes ``benchmarks/results/automata_scale.json`` and ``automata_scale.png``.  Usage:
``python benchmarks/automata_scale.py [--quick] [--output FOLDER]``; ``--quick`` stops at 10⁴ states.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pynini

from transductor.automata import DFA, NFA
from transductor.automata.finite_algebra import escaping_word, minimised, separating_word
from transductor.automata.finite_automata import determinised
from transductor.results import Record

LETTERS = (1, 2)
OPERATIONS = ("minimise", "equivalent", "included", "determinise", "dictionary")


def seconds(function: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Return the median time of some calls, and the last result."""
    times, result = [], None
    for _ in range(runs):
        begun = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - begun)
    return median(times), result


def doubled_machine(states: int, seed: int) -> DFA:
    """Return half a random machine with every state twice, in random order."""
    random = np.random.default_rng(seed)
    half = states // 2
    single = random.integers(0, half, (half, len(LETTERS)))
    accepting = np.flatnonzero(random.random(half) < 0.5)
    either = np.concatenate([single, single]) + half * random.integers(0, 2, (2 * half, len(LETTERS)))
    order = random.permutation(2 * half)
    table = np.empty_like(either)
    table[order] = order[either]
    ends = order[np.concatenate([accepting, accepting + half])]
    return DFA(LETTERS, table, int(order[0]), frozenset(ends.tolist()))


def kth_from_the_end(k: int) -> NFA:
    """Return the automaton of the words whose k-th letter from the end is the first one."""
    edges = {(0, 1, 0), (0, 2, 0), (0, 1, 1)} | {
        (state, letter, state + 1) for state in range(1, k) for letter in LETTERS
    }
    return NFA(LETTERS, k + 1, frozenset(edges), frozenset({0}), frozenset({k}))


def dictionary(states: int, seed: int) -> NFA:
    """Return the automaton of random words of 20 letters, each a chain of its own."""
    random = np.random.default_rng(seed)
    length, edges, ends = 20, [], []
    for word in range(states // length):
        path = [0, *range(1 + word * length, 1 + (word + 1) * length)]
        letters = random.integers(1, len(LETTERS) + 1, length).tolist()
        edges += list(zip(path[:-1], letters, path[1:], strict=True))
        ends.append(path[-1])
    return NFA(LETTERS, 1 + (states // length) * length, frozenset(edges), frozenset({0}), frozenset(ends))


def openfst(states: int, edges: Iterable[tuple[int, int, int]], start: int, ends: Iterable[int]) -> Any:
    """Return an acceptor of OpenFst."""
    fst = pynini.Fst()
    fst.add_states(states)
    fst.set_start(start)
    for source, letter, target in edges:
        fst.add_arc(source, pynini.Arc(letter, letter, 0, target))
    for state in ends:
        fst.set_final(state)
    return fst.arcsort()


def openfst_of(dfa: DFA) -> Any:
    """Return the acceptor of OpenFst with the states of a DFA."""
    edges = (
        (source, letter, to)
        for source, row in enumerate(dfa.transitions.tolist())
        for letter, to in zip(LETTERS, row, strict=True)
    )
    return openfst(dfa.states, edges, dfa.start, dfa.accepting)


def decisions(states: int, runs: int) -> dict[str, dict[str, Any]]:
    """Measure minimisation, equivalence and inclusion."""
    dfa = doubled_machine(states, seed=0)
    ours, small = seconds(lambda: minimised(dfa), runs)
    equal, word = seconds(lambda: separating_word(dfa, small), runs)
    included, escape = seconds(lambda: escaping_word(dfa, small), runs)
    assert word is None
    assert escape is None
    fst = openfst_of(dfa)
    theirs, small_fst = seconds(lambda: fst.copy().minimize(), runs)
    small_fst.arcsort()
    theirs_equal, same = seconds(lambda: pynini.equivalent(fst, small_fst), runs)
    assert same
    return {
        "minimise": {
            "states": states,
            "result": small.states,
            "ours": ours,
            "openfst": theirs,
            "openfst_result": small_fst.num_states(),
        },
        "equivalent": {"states": states, "ours": equal, "openfst": theirs_equal},
        "included": {"states": states, "ours": included},
    }


def determinisations(states: int, runs: int) -> dict[str, dict[str, Any]]:
    """Measure determinisation of both kinds of automata."""
    measured = {}
    for name, nfa in (
        ("determinise", kth_from_the_end(round(math.log2(states)))),
        ("dictionary", dictionary(states, seed=0)),
    ):
        ours, dfa = seconds(lambda nfa=nfa: determinised(nfa, limit=2_000_000), runs)
        fst = openfst(nfa.states, nfa.edges, 0, nfa.accepting)
        theirs, other = seconds(lambda fst=fst: pynini.determinize(fst), runs)
        measured[name] = {
            "states": nfa.states,
            "result": dfa.states,
            "ours": ours,
            "openfst": theirs,
            "openfst_result": other.num_states(),
        }
    return measured


def drawn(measurements: dict[str, list[dict[str, Any]]], path: Path) -> Path:
    """Draw times against sizes, a panel for each operation."""
    figure, panels = plt.subplots(1, len(OPERATIONS), figsize=(14, 3.2), sharey=True, layout="constrained")
    for panel, name in zip(panels, OPERATIONS, strict=True):
        rows = measurements[name]
        sizes = [row["result" if name == "determinise" else "states"] for row in rows]
        for who, label in (("ours", "transductor"), ("openfst", "OpenFst (pynini)")):
            if who in rows[0]:
                panel.plot(sizes, [row[who] for row in rows], "o-", label=label)
        panel.set(title=name, xscale="log", yscale="log", xlabel="states")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("seconds")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    """Measure all sizes, print a row for each, and write the record and its figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only 10⁴ states")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    sizes = [10**4] if options.quick else [10**4, 10**5, 10**6]
    decisions(10**4, 1), determinisations(10**4, 1)  # the loops are compiled here
    measurements: dict[str, list[dict[str, Any]]] = {name: [] for name in OPERATIONS}
    for states in sizes:
        runs = 5 if states < 10**6 else 1
        for name, row in (decisions(states, runs) | determinisations(states, runs)).items():
            measurements[name].append(row)
            peer = (
                f"  OpenFst {row['openfst']:8.3f} s  ratio {row['ours'] / row['openfst']:.2f}"
                if "openfst" in row
                else ""
            )
            print(f"{name:12} {states:8,} states  ours {row['ours']:8.3f} s{peer}", flush=True)
    settings = {"sizes": sizes, "letters": len(LETTERS), "pynini": pynini.__version__}
    print(Record("automata_scale", settings, measurements).write(options.output / "automata_scale.json"))
    print(drawn(measurements, options.output / "automata_scale.png"))


if __name__ == "__main__":
    main()
