"""Machines from labelled strings: how often the exact one is recovered, beside state merging as others have it.

``learn`` draws samples of every language of :mod:`labelled_languages` (10 000 strings with 0, 5 and 10 % wrong labels,
2 000 and 500 strings without), five fresh draws each, and asks for the machine: our search by description length, our
RPNI and EDSM, and those of AALpy.  ``positions`` gives a label at every letter of 500 strings.  ``refuse`` draws what
has no machine: three languages that are not regular, labels without a rule, and 500 strings of machines of 60 states.
``report`` writes ``benchmarks/results/machines_from_labels.json``, a table and a figure.

Usage: ``python benchmarks/machines_from_labels.py {learn,positions,refuse,report} [--jobs N] [--only TEXT]
[--methods M,…] [--conditions NAME,…] [--seeds N] [--folder FOLDER]``.  What is there already is not repeated.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from joblib import Parallel, delayed

from labelled_languages import (
    IRREGULAR,
    Language,
    Sample,
    drawn,
    drawn_irregular,
    labels_of,
    labels_per_position,
    languages,
    minimal,
    same_language,
)
from transductor.automata import MooreMachine, learned_from_labels
from transductor.automata.induction.sample import sample_of
from transductor.automata.induction.search import Search
from transductor.report.style import save_figure
from transductor.results import Record, environment, read_record, write_atomically

FOLDER = Path("runs/machines_from_labels")
RESULT = Path("benchmarks/results/machines_from_labels.json")
SEEDS = 5
# How many strings, and which share of the labels is wrong.
CONDITIONS: dict[str, tuple[int, float]] = {
    "10000": (10_000, 0.0),
    "10000, 5 % wrong": (10_000, 0.05),
    "10000, 10 % wrong": (10_000, 0.10),
    "2000": (2_000, 0.0),
    "500": (500, 0.0),
}
METHODS = ("description_length", "edsm", "rpni", "aalpy_edsm", "aalpy_rpni")
LABELS = {
    "description_length": "description length",
    "edsm": "EDSM",
    "rpni": "RPNI",
    "aalpy_edsm": "EDSM (AALpy)",
    "aalpy_rpni": "RPNI (AALpy)",
}
SECONDS = 120.0
MOST_SECONDS = 170.0  # for a search; three minutes are allowed, and some of them is needed to judge the machine
CLASSICAL_SECONDS = 30.0  # RPNI and EDSM, where labels are wrong, often end nowhere
PEER_SECONDS = 10  # AALpy in pure Python does not end where labels are wrong
LONG, LONG_STRINGS = 500, 1000
MARKS = {"10000": 0.95, "10000, 5 % wrong": 0.90, "10000, 10 % wrong": 0.80}


def draw_seed(language: Language, seed: int) -> int:
    """Every language and seed has a sample of its own; noise and size do not change the first words."""
    return 1_000_003 * (seed + 1) + sum(map(ord, language.name)) * 97 + len(language.name)


def accuracy_beyond(machine: MooreMachine, language: Language, seed: int) -> float:
    """The share of strings of up to 500 letters with the right label; all are if the machine is the exact one."""
    if same_language(machine, language.machine):
        return 1.0
    long = drawn(language, LONG_STRINGS, draw_seed(language, seed) + 7, longest=LONG)
    given = labels_of(machine, long.words)
    return sum(one == other for one, other in zip(given, long.clean, strict=True)) / len(long.words)


def by_aalpy(sample: Sample, letters: int, method: str) -> MooreMachine:
    from aalpy.learning_algs import run_EDSM, run_RPNI

    data = [(tuple(word), bool(label)) for word, label in zip(sample.words, sample.labels, strict=True)]
    votes: dict[tuple[int, ...], list[bool]] = defaultdict(list)  # a string with two labels is refused: most votes win
    for word, label in data:
        votes[word].append(label)
    data = [(word, 2 * sum(each) > len(each)) for word, each in votes.items()]
    run = run_EDSM if method == "edsm" else run_RPNI
    model = run(data, automaton_type="dfa", print_info=False)
    sink = len(model.states)
    numbers = {state.state_id: place for place, state in enumerate(model.states)}
    table = np.full((sink + 1, letters), sink)
    for state in model.states:
        for letter, target in state.transitions.items():
            table[numbers[state.state_id], letter] = numbers[target.state_id]
    outputs = [int(bool(state.is_accepting)) for state in model.states] + [0]
    return minimal(MooreMachine(table, np.array(outputs), numbers[model.initial_state.state_id]))


def data_prefer_it(machine: MooreMachine, truth: MooreMachine, sample: Sample, labels: Sequence[Any]) -> bool:
    """Whether the labels are no longer described by this machine than by the one that made them.

    Then the sample itself is misleading, or leaves an arc open, and no learner that sees nothing else can do better.
    """
    search = Search(sample_of(sample.words, labels, truth.letters, int(truth.outputs.max()) + 1), max_states=200)
    mine, true = (search.measured(each.transitions.astype(np.int32), each.start) for each in (machine, truth))
    return mine.bits <= true.bits + 1e-6


def learned(language: Language, condition: str, seed: int, method: str, most: float = MOST_SECONDS) -> dict[str, Any]:
    count, noise = CONDITIONS[condition]
    sample = drawn(language, count, draw_seed(language, seed), noise)
    truth = language.machine
    record: dict[str, Any] = {
        "language": language.name, "group": language.group, "states": truth.states, "letters": truth.letters,
        "condition": condition, "seed": seed, "method": method,
    }  # fmt: skip
    # What is reported is seconds of the processor; the limit is one of the clock.
    began, at = processor_seconds(), time.perf_counter()
    if method.startswith("aalpy_"):
        machine = within(PEER_SECONDS, by_aalpy, sample, truth.letters, method.removeprefix("aalpy_"))
    else:
        limit = most if method == "description_length" else CLASSICAL_SECONDS
        answer = learned_from_labels(
            sample.words, sample.labels, letters=truth.letters, classes=language.classes, method=method, seconds=limit
        )
        machine = answer.machine
        record["errors"] = answer.errors
        record |= {"supported": answer.supported, "reasons": list(answer.reasons), "noise": answer.noise}
    record["seconds"] = round(processor_seconds() - began, 3)
    record["seconds of the clock"] = round(time.perf_counter() - at, 1)
    if machine is None:
        return record | {"exact": False, "found_states": None, "beyond": None}
    same = same_language(machine, truth)
    return record | {
        "exact": same,
        "preferred by the data": not same and data_prefer_it(machine, truth, sample, sample.labels),
        "found_states": machine.states,
        "beyond": accuracy_beyond(machine, language, seed),
    }


def processor_seconds() -> float:
    """What this process and its children that ended have computed so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def within(seconds: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a call in a process of its own; None if it computes for longer."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        sending.send(call(*arguments))

    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=limited)
    process.start()
    sending.close()  # so that a process that dies is noticed at once
    try:
        answer = receiving.recv()
    except EOFError:
        answer = None
    process.join()
    return answer


def positions(language: Language, seed: int) -> dict[str, Any]:
    """A label at every letter of 500 strings."""
    sample = drawn(language, 500, draw_seed(language, seed))
    truth = language.machine
    labels = list(labels_per_position(truth, sample.words))
    began = time.perf_counter()
    answer = learned_from_labels(sample.words, labels, letters=truth.letters, classes=language.classes, seconds=30)
    seconds = time.perf_counter() - began
    # The empty word has no label here, so that the start's own is not part of the question.
    same = answer.machine.separating_word(truth) is None
    return {
        "language": language.name, "group": language.group, "states": truth.states, "letters": truth.letters,
        "seed": seed, "seconds": round(seconds, 3), "exact": same,
        "preferred by the data": not same and data_prefer_it(answer.machine, truth, sample, labels),
        "supported": answer.supported, "found_states": answer.machine.states, "errors": answer.errors,
    }  # fmt: skip


def undetermined(record: dict[str, Any]) -> bool:
    """Whether a wrong machine gives every label and has no more states than the right one: labels do not settle it."""
    return not record["exact"] and record.get("errors") == 0 and record["found_states"] <= record["states"]


def refused(kind: str, seed: int) -> dict[str, Any]:
    """What has no machine that the data support."""
    random = np.random.default_rng([seed, 60])
    letters = 2
    if kind in IRREGULAR:
        sample = drawn_irregular(kind, 10_000, 31 * seed + 5)
    elif kind == "labels without a rule":
        words = [random.integers(0, 2, random.integers(0, 41)).tolist() for _ in range(10_000)]
        labels = random.integers(0, 2, 10_000).tolist()
        sample = Sample(words, labels, labels)
    else:
        machine = MooreMachine(random.integers(0, 60, (60, 2)), random.integers(0, 2, 60))
        sample = drawn(Language("large", "large", minimal(machine)), 500, seed)
    began = time.perf_counter()
    answer = learned_from_labels(sample.words, sample.labels, letters=letters, classes=2, seconds=SECONDS)
    return {
        "kind": kind, "seed": seed, "supported": answer.supported, "reasons": list(answer.reasons),
        "found_states": answer.machine.states, "seconds": round(time.perf_counter() - began, 3),
    }  # fmt: skip


def kept(folder: Path, name: str, call: Callable[..., dict[str, Any]], *arguments: Any) -> None:
    """Compute and write one record, unless it is there; what fails is recorded too."""
    path = folder / (name.replace("/", "-").replace(" ", "_") + ".json")
    if path.exists():
        return
    try:
        record = call(*arguments)
    except Exception as error:
        record = {"failed": f"{type(error).__name__}: {error}", "arguments": list(map(str, arguments[1:]))}
    write_atomically(path, json.dumps(record).encode())


def jobs(arguments: argparse.Namespace) -> Iterable[Any]:
    folder = Path(arguments.folder) / arguments.what
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in languages() if arguments.only in f"{each.group} {each.name}"]
    for seed in range(arguments.seeds):
        if arguments.what == "refuse":
            for kind in (*IRREGULAR, "labels without a rule", "500 strings of 60 states"):
                yield delayed(kept)(folder, f"{kind} {seed}", refused, kind, seed)
            continue
        for language in chosen:
            if arguments.what == "positions":
                yield delayed(kept)(folder, f"{language.name} {seed}", positions, language, seed)
                continue
            for condition in arguments.conditions.split(";"):
                for method in arguments.methods.split(","):
                    name = f"{language.name} {condition} {method} {seed}"
                    yield delayed(kept)(folder, name, learned, language, condition, seed, method, arguments.most)


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def share(records: Sequence[dict[str, Any]], name: str) -> float | None:
    return round(sum(bool(each.get(name)) for each in records) / len(records), 4) if records else None


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares over all draws; over seeds the mean, least and most; times and the slowest."""
    by_seed = [share([each for each in records if each["seed"] == seed], "exact") for seed in range(SEEDS)]
    seeds = [each for each in by_seed if each is not None]
    beyond = [each["beyond"] for each in records if each.get("beyond") is not None]
    times = [each["seconds"] for each in records]
    return {
        "draws": len(records),
        "exact": share(records, "exact"),
        "exact by seed": {"mean": round(statistics.mean(seeds), 4), "min": min(seeds), "max": max(seeds)},
        "exact and supported": round(sum(e["exact"] and bool(e.get("supported")) for e in records) / len(records), 4),
        "supported but not exact": sum(bool(e.get("supported")) and not e["exact"] for e in records),
        "not exact, preferred by the data": sum(bool(e.get("preferred by the data")) for e in records),
        "not exact, and a machine of no more states gives all labels": sum(map(undetermined, records)),
        "not within the time": sum(any("seconds; if some" in each for each in e.get("reasons", ())) for e in records),
        "accuracy to 500": round(statistics.mean(beyond), 4) if beyond else None,
        "seconds": {"median": round(statistics.median(times), 2), "max": round(max(times), 2)},
        "not exact": sorted({e["language"] for e in records if not e["exact"]}),
    }


def in_short(record: dict[str, Any]) -> dict[str, Any]:
    """One draw, for a record that names single ones."""
    names = ("language", "condition", "method", "seed", "exact", "supported", "states", "found_states", "errors")
    short = {name: record[name] for name in (*names, "seconds", "seconds of the clock") if name in record}
    return short | {"a wrong machine of no more states gives all labels": undetermined(record)}


def report(folder: Path, measured_with: str) -> None:
    records = read(folder / "learn")
    failures = [each for each in records if "failed" in each]
    records = [each for each in records if "failed" not in each]
    # A row is reported once every language was drawn; until then the record keeps what it says, as it does of
    # labels per letter and of what has no machine if neither was asked again.
    before = read_record(RESULT) if RESULT.exists() else None
    kept = dict(before.measurements) if before else {}
    table: dict[str, dict[str, Any]] = dict(before.measurements["label per string"]) if before else {}
    sources: dict[str, str] = dict(before.settings["measured with"]) if before else {}
    groups = dict(before.measurements["exact by group, description length"]) if before else {}
    beside = list(kept.get("drawn beside the rows", []))
    for condition in CONDITIONS:
        for method in METHODS:
            rows = [e for e in records if (e["condition"], e["method"]) == (condition, method)]
            if len({each["language"] for each in rows}) < len(languages()):
                beside += map(in_short, rows)
                continue
            table.setdefault(condition, {})[method] = summary(rows)
            sources[f"{condition}, {LABELS[method]}"] = measured_with
            if method != "description_length":
                continue
            sources.pop(condition, None)
            for group in ("tomita", "library", "random", "crafted"):
                part = [each for each in rows if each["group"] == group]
                groups[group] = {**groups.get(group, {}), condition: share(part, "exact")}
    at_positions, refusals = read(folder / "positions"), read(folder / "refuse")
    misses = [in_short(each) for each in at_positions if not each["exact"]] or kept.get("label per letter, misses", [])
    if len({each["language"] for each in at_positions}) < len(languages()):
        at_positions = []
    results = {
        "label per string": table,
        "exact by group, description length": groups,
        "label per letter, 500 strings": summary(at_positions)
        if at_positions
        else kept.get("label per letter, 500 strings"),
        "label per letter, misses": misses,
        "drawn beside the rows": [each for number, each in enumerate(beside) if each not in beside[:number]],
        "no machine": {
            kind: {
                "draws": len(part),
                "claimed": sum(each["supported"] for each in part),
                "a reason": next(iter(part[0]["reasons"]), ""),
            }
            for kind in sorted({each["kind"] for each in refusals})
            if (part := [each for each in refusals if each["kind"] == kind])
        }
        or kept.get("no machine", {}),
        "failed": failures,
    }
    settings = {
        "measured with": sources
        | ({"label per letter": measured_with} if at_positions else {})
        | ({"single draws": measured_with} if len(beside) > len(kept.get("drawn beside the rows", [])) else {}),
        "languages": len(languages()),
        "seeds": SEEDS,
        "seconds": SECONDS,
        "most seconds of a search, since there is a limit": MOST_SECONDS,
        "most seconds of RPNI and EDSM": CLASSICAL_SECONDS,
        "seconds of AALpy": PEER_SECONDS,
        "long": LONG,
    }
    Record("machines_from_labels", settings, results, environment()).write(RESULT)
    draw(table, RESULT.with_suffix(".png"))
    for condition, methods in table.items():
        for method, row in methods.items():
            shares = f"exact {row['exact']:.1%}, and supported {row['exact and supported']:.1%}"
            print(f"{condition:20} {LABELS[method]:20} {shares}", row["supported but not exact"], row["seconds"])
    print(results["label per letter, 500 strings"])
    print(json.dumps(results["no machine"], indent=1))


def draw(table: dict[str, dict[str, Any]], path: Path) -> None:
    """Bars: the share of exact machines by condition and method, with the least and most over seeds."""
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    methods = [method for method in METHODS if any(method in row for row in table.values())]
    width = 0.8 / len(methods)
    colours = ["#1f5fbf", "#8c6d46", "#d1495b", "#c9b18a", "#e9a3ad"]
    for place, method in enumerate(methods):
        rows = [table[condition].get(method) for condition in table]
        at = np.arange(len(table)) + (place - (len(methods) - 1) / 2) * width
        heights = [row["exact"] if row else 0 for row in rows]
        low = [row["exact"] - row["exact by seed"]["min"] if row else 0 for row in rows]
        high = [row["exact by seed"]["max"] - row["exact"] if row else 0 for row in rows]
        axes.bar(at, heights, width, label=LABELS[method], color=colours[METHODS.index(method)])
        for x, row in zip(at, rows, strict=True):
            if row is None or not row["exact"]:
                word = "not run" if row is None else "none exact"
                axes.text(x, 0.01, word, rotation=90, ha="center", va="bottom", fontsize=7, color="grey")
        axes.errorbar(at, heights, [low, high], fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
    for place, condition in enumerate(table):
        if condition in MARKS:
            axes.plot([place - 0.42, place + 0.42], [MARKS[condition]] * 2, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(range(len(table)), [f"{condition.replace(', ', chr(10))}" for condition in table])
    axes.set_xlabel("labelled strings")
    axes.set_ylabel("share of exact machines")
    axes.set_ylim(0, 1.02)
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.2), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("learn", "positions", "refuse", "report"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--conditions", default=";".join(CONDITIONS), help="separated by semicolons")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--folder", default=str(FOLDER))
    parser.add_argument(
        "--most", type=float, default=MOST_SECONDS, help="of the clock for a search; more on a machine that is shared"
    )
    parser.add_argument("--measured-with", default="", help="commit and machine of the records, if others than these")
    arguments = parser.parse_args()
    if arguments.what == "report":
        report(Path(arguments.folder), arguments.measured_with)
        return
    work = list(jobs(arguments))
    began = time.perf_counter()
    for number, _ in enumerate(Parallel(arguments.jobs, return_as="generator_unordered")(work), 1):
        if number % max(1, len(work) // 50) == 0 or number == len(work):
            print(f"{number} of {len(work)}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
