"""What a network adds to state merging, on four kinds of data that merging alone was not made for.

*Many letters*: fifty letters that behave as one of four each, a random machine of five states.  *Numbers*: a label is
what a weighted automaton of three states computes, a bill with two tariffs.  *Recall beside state*: eight registers
are written and toggled in common, and the label is what the register named last holds: 512 states.  *A process*: seven
of twenty words lead in order through five states, the others do nothing.

Every fit is asked in three ways: the labels alone (no network), the networks alone (each judged on fresh strings of the
trained lengths and of 41 to 200 letters), and both, which is what ``transductor fit`` does.  ``run`` fits, ``report``
writes ``benchmarks/results/what_a_network_adds.json`` and prints a table.

Usage: ``python benchmarks/what_a_network_adds.py {run,report} [--jobs N] [--budget SECONDS] [--seeds N] [--recipes …]
[--folder F]``.  What is there already is not repeated; without recipes only the labels are asked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from torch import set_num_threads, tensor

from labelled_languages import minimal, same_language
from transductor.automata import MooreMachine, learned_from_labels, learned_from_numbers, read
from transductor.learning import fit
from transductor.learning.prediction import logits_of
from transductor.learning.running import read_model
from transductor.results import Record, environment, write_atomically
from transductor.training import FileData

FOLDER = Path("runs/what_a_network_adds")
RESULT = Path("benchmarks/results/what_a_network_adds.json")
STRINGS, LONGEST, FRESH, LONG = 10_000, 40, 1_000, 200
RECIPES = ("dense", "stochastic", "small", "transductor", "attention", "transformer", "lstm")


@dataclass(frozen=True)
class Problem:
    """Letters, what labels words, and the machine behind them where it is finite and small enough to be asked for."""

    letters: int
    label: Callable[[Sequence[int]], float]
    goal: str = "recognition"
    machine: MooreMachine | None = None


def many_letters(seed: int) -> Problem:
    """Fifty letters, each with one of four columns of a random machine of five states."""
    random = np.random.default_rng([seed, 50])
    while True:
        columns, behaviours = random.integers(0, 5, (5, 4)), random.integers(0, 4, 50)
        machine = minimal(MooreMachine(columns[:, behaviours], random.integers(0, 2, 5)))
        if machine.states == 5:
            break
    return of_machine(machine)


def of_machine(machine: MooreMachine) -> Problem:
    """Words are labelled by a machine."""
    table, outputs = machine.transitions.tolist(), machine.outputs.tolist()

    def label(word: Sequence[int]) -> int:
        state = machine.start
        for letter in word:
            state = table[state][letter]
        return int(outputs[state])

    return Problem(machine.transitions.shape[1], label, machine=machine)


def numbers(seed: int) -> Problem:
    """A bill: letters 0 to 3 cost what the tariff says, letter 4 changes between two tariffs."""
    prices = np.random.default_rng([seed, 3]).integers(1, 20, (2, 4)).tolist()

    def label(word: Sequence[int]) -> float:
        tariff, total = 0, 0
        for letter in word:
            if letter == 4:
                tariff = 1 - tariff
            else:
                total += prices[tariff][letter]
        return total

    return Problem(5, label, "regression")


def recall(seed: int) -> Problem:
    """Eight registers of one bit: letters 0–7 set one, 8–15 clear one, 16 toggles all, 17–24 name one."""

    def label(word: Sequence[int]) -> int:
        registers, flipped, named = [0] * 8, 0, 0
        for letter in word:
            if letter < 16:
                registers[letter % 8] = int(letter < 8) ^ flipped
            elif letter == 16:
                flipped ^= 1
            else:
                named = letter - 17
        return registers[named] ^ flipped

    return Problem(25, label)


def process(seed: int) -> Problem:
    """An order of four steps: two words lead to the third, one leads back, one begins again; the last state stays."""
    put, out, where, card, cash, confirm, back = np.random.default_rng([seed, 20]).permutation(20)[:7].tolist()
    arcs = {(0, put): 1, (1, out): 0, (1, where): 2, (2, card): 3, (2, cash): 3, (2, back): 1, (3, back): 2}
    arcs[3, confirm] = 4
    table = np.array([[arcs.get((state, letter), state) for letter in range(20)] for state in range(5)])
    return of_machine(minimal(MooreMachine(table, np.array([0, 0, 0, 0, 1]))))


PROBLEMS = {"many letters": many_letters, "numbers": numbers, "recall beside state": recall, "a process": process}


def drawn(problem: Problem, count: int, shortest: int, longest: int, random: np.random.Generator) -> list[list[int]]:
    """Words of evenly drawn lengths."""
    return [random.integers(0, problem.letters, random.integers(shortest, longest + 1)).tolist() for _ in range(count)]


def one_fit(name: str, seed: int, budget: float, folder: Path, recipes: Sequence[str]) -> dict[str, Any]:
    """Ask one data set in the three ways."""
    set_num_threads(1)
    problem, random = PROBLEMS[name](seed), np.random.default_rng([seed, 1])
    words = drawn(problem, STRINGS, 0, LONGEST, random)
    labels = [problem.label(word) for word in words]
    real = problem.goal == "regression"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        json.dumps({"tokens": [f"w{letter}" for letter in word], "label": label if real else str(label)})
        for word, label in zip(words, labels, strict=True)
    ]
    (folder / "data.jsonl").write_text("\n".join(rows) + "\n")
    record: dict[str, Any] = {"problem": name, "seed": seed, "labels alone": labels_alone(problem, words, labels)}
    if not recipes:
        return record
    began = time.perf_counter()
    source = FileData(problem.goal, str(folder / "data.jsonl"))
    fitted = fit(source, folder / "fit", budget=budget, recipes=recipes, seed=seed)
    record["budget"] = budget
    record["seconds of the fit"] = round(time.perf_counter() - began, 1)
    record["both"] = {
        "machine": None if fitted.machine is None else states_of(fitted.machine),
        "way": (fitted.record.measurements["machine"] or {}).get("way"),
        "proved": fitted.proved,
        "exact": exact(fitted, problem),
        "chosen network": fitted.record.measurements["chosen"]["name"],
        "answer": fitted.record.measurements["answer"]["sentence"],
    }
    fresh = {"to 40": drawn(problem, FRESH, 0, LONGEST, random), "41 to 200": drawn(problem, FRESH, 41, LONG, random)}
    record["networks"] = {}
    for outcome in fitted.record.measurements["recipes"]:
        if outcome["failed"] is None:
            model = read_model(fitted.folder / "recipes" / outcome["name"])
            scores = {where: judged(model, fitted.source, problem, some) for where, some in fresh.items()}
            record["networks"][outcome["name"]] = {"steps": outcome["steps"], **scores}
    return record


def states_of(machine: Any) -> int:
    return int(getattr(machine, "states", None) or machine.dim)


def labels_alone(problem: Problem, words: list[list[int]], labels: list[Any]) -> dict[str, Any]:
    """What state merging, or for numbers exact interpolation, makes of the labels without any network."""
    began = time.perf_counter()
    if problem.goal == "regression":
        result = learned_from_numbers(words, labels, letters=problem.letters)
        fresh = drawn(problem, 200, 41, LONG, np.random.default_rng(9))
        right = all(result.automaton(word) == problem.label(word) for word in fresh)
        answer = {"states": result.automaton.dim, "supported": bool(result.supported), "exact": right}
    else:
        learned = learned_from_labels(words, labels, letters=problem.letters, classes=2, seconds=120)
        same = problem.machine is not None and same_language(learned.machine, problem.machine)
        answer = {"states": learned.machine.states, "supported": learned.supported, "exact": same}
    return answer | {"seconds": round(time.perf_counter() - began, 1)}


def exact(fitted: Any, problem: Problem) -> bool | None:
    """Whether the machine of a fit gives the right label of 500 fresh words of up to 200 letters."""
    if fitted.machine is None:
        return None
    automaton = read(fitted.folder / "machine.json")
    fresh = drawn(problem, 500, 0, LONG, np.random.default_rng(7))
    names = [[f"w{letter}" for letter in word] for word in fresh]
    wanted = [problem.label(word) for word in fresh]
    if problem.goal == "regression":
        return all(float(automaton(word)) == each for word, each in zip(names, wanted, strict=True))
    classes = fitted.source.vocabulary.classes
    return all(classes[int(automaton(word))] == str(each) for word, each in zip(names, wanted, strict=True))


def judged(model: Any, source: FileData, problem: Problem, words: list[list[int]]) -> float:
    """The share of right labels; for numbers the share of variance that is explained, at worst 0."""
    assert source.vocabulary is not None
    number = {name: place for place, name in enumerate(source.vocabulary.tokens)}
    rows = [tensor([number["<start>"], *(number[f"w{letter}"] for letter in word)]) for word in words]
    last = [logits[-1] for logits in logits_of(model, rows)]
    wanted = [problem.label(word) for word in words]
    if problem.goal == "regression":
        said = np.array([each[0].item() for each in last])
        return round(max(0.0, 1 - float(np.mean((said - wanted) ** 2) / np.var(wanted))), 4)
    classes = source.vocabulary.classes
    right = [classes[int(each.argmax())] == str(label) for each, label in zip(last, wanted, strict=True)]
    return round(sum(right) / len(right), 4)


def kept(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Compute and write one record, unless it is there; what fails is recorded too."""
    folder = Path(arguments.folder) / f"{name} {seed}".replace(" ", "_")
    path = folder.with_suffix(".json")
    if path.exists():
        return
    recipes = tuple(filter(None, arguments.recipes.split(",")))
    try:
        record = one_fit(name, seed, arguments.budget, folder, recipes)
    except Exception as error:
        record = {"problem": name, "seed": seed, "failed": f"{type(error).__name__}: {error}"[:300]}
    write_atomically(path, json.dumps(record).encode())


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": round(statistics.mean(values), 4), "min": min(values), "max": max(values)}


def report(arguments: argparse.Namespace) -> None:
    records = [json.loads(path.read_text()) for path in sorted(Path(arguments.folder).glob("*.json"))]
    # A problem without records in this folder keeps its row.
    table = json.loads(RESULT.read_text())["measurements"]["table"] if RESULT.exists() else {}
    for name in PROBLEMS:
        part = [each for each in records if each["problem"] == name and "failed" not in each]
        if not part:
            continue
        alone, both = [each["labels alone"] for each in part], [each["both"] for each in part if "both" in each]
        networks = {
            recipe: {
                where: spread([each["networks"][recipe][where] for each in part if recipe in each.get("networks", {})])
                for where in ("to 40", "41 to 200")
            }
            for recipe in RECIPES
            if any(recipe in each.get("networks", {}) for each in part)
        }
        table[name] = {
            "seeds": len(part),
            "labels alone": {
                "exact": sum(each["exact"] for each in alone),
                "claimed": sum(each["supported"] for each in alone),
                "seconds": spread([each["seconds"] for each in alone]),
            },
            "networks alone": networks,
            "both": {
                "fits": len(both),
                "a machine": sum(each["machine"] is not None for each in both),
                "exact": sum(bool(each["exact"]) for each in both),
                "proved": sum(each["proved"] for each in both),
                "chosen": sorted({str(each["chosen network"]) for each in both}),
                "seconds given": sorted({each["budget"] for each in part if "budget" in each}),
            },
        }
    settings = {"strings": STRINGS, "longest": LONGEST, "seconds of a fit": arguments.budget, "threads": 1}
    failed = [each for each in records if "failed" in each]
    Record("what_a_network_adds", settings, {"table": table, "failed": failed}, environment()).write(RESULT)
    print(json.dumps(table, indent=1))
    print(f"{len(failed)} failed", *failed[:3], sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--recipes", default=",".join(RECIPES), help="separated by commas; none for the labels alone")
    parser.add_argument("--folder", default=str(FOLDER))
    arguments = parser.parse_args()
    if arguments.what == "report":
        report(arguments)
        return
    work = [(name, seed) for seed in range(arguments.seeds) for name in PROBLEMS if arguments.only in name]
    Parallel(arguments.jobs)(delayed(kept)(name, seed, arguments) for name, seed in work)


if __name__ == "__main__":
    main()
