"""``fit``: from a file of labelled sequences to a machine and a model that is proved to be it, or to the best model.

The folder of a fit holds the plan, a folder for each recipe, and in the end the model, the machine, the certificate and
the record.  A fit that was interrupted goes on from there, and ends as it would have ended: what is done is recorded,
and never repeated.  (The search for a machine has a limit in seconds; where it is reached, another run may differ.)
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from transductor.automata import MachineFromLabels, MooreMachine, WeightedAutomaton, series_of_labels, write
from transductor.certification import AgreementCertificate
from transductor.fit_facts import read_learned
from transductor.learning.answers import Answer, answered
from transductor.learning.divided_data import DividedData, LabelledWords, divided
from transductor.learning.machines import contradicted, learned, sizes, walked
from transductor.learning.recipes import Recipe, chosen_recipes
from transductor.learning.running import FitPlan, OnProgress, planned, run_recipe, write_model
from transductor.learning.selection import Band, Choice, bands, choose, majority, mean
from transductor.learning.weighted_answers import answered_numbers
from transductor.model import SequenceModel
from transductor.one_writer import LOCK_FILE, only_writer
from transductor.results import Record, environment, write_atomically
from transductor.training import FileData, Vocabulary

# Shares of the budget; the rest is for reading, judging and proving.
_FOR_THE_MACHINE: Final = 0.25
_LEAST_FOR_THE_MACHINE: Final = 5.0  # seconds, however small the budget: small machines need no more
_FOR_NETWORKS: Final = 0.5
_FOR_BEGINNINGS: Final = 0.15  # at least: they also have what the networks have left
_MOST_CONTRADICTED: Final = 20


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves.

    Attributes:
        folder: Where everything was written.
        record: Everything that was measured and said; reports are drawn from it.
        model: The model that is the machine, or the best one; None where no network was trained and there is none.
        machine: The machine over the user's letters, in the order of their first occurrence; a weighted automaton
            where labels are numbers; None where there is none.
        certificate: What is proved; None where there is no machine.
        proved: Whether the model is proved to be the machine, at every length.
        source: The data, with the names of tokens and classes.
    """

    folder: Path
    record: Record
    model: SequenceModel[Any] | None
    machine: MooreMachine | WeightedAutomaton | None
    certificate: AgreementCertificate | None
    proved: bool
    source: FileData


def fit(
    source: FileData,
    folder: str | Path,
    *,
    budget: float = 180.0,
    recipes: Sequence[str] | None = None,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Fitted:
    """Find the machine behind labelled sequences, and a model that is proved to be it; or the best model.

    Args:
        source: The data; their longest tenth is kept back to choose by.
        folder: Where everything is written; a fit of the same data that was interrupted there goes on.
        budget: Seconds that it may take, about, on a machine that does nothing else.
        recipes: Names of the recipes to train, of :data:`transductor.learning.RECIPES`; all if not given, none for an
            empty list.
        seed: Seed of the division of the data, of the models and of their batches.
        on_progress: Called with what is being done, how much is done, how much there is, and a few words.

    Raises:
        DataError: If the data cannot be used; the message names file and line.
        ValueError: If the folder holds something else.
    """
    if not 0 < budget < float("inf"):
        raise ValueError(f"budget must be a positive number of seconds; got {budget!r}")
    wanted = chosen_recipes(recipes)
    on_progress = on_progress or _silent
    began = time.perf_counter()
    folder = Path(folder)
    data = divided(source, seed=seed)
    with only_writer(folder):
        plan = _plan(folder, data, wanted, budget, seed, on_progress)
        result = None if data.source.real else _learned(folder, data, plan, on_progress)
        outcomes = [
            run_recipe(recipe, data, plan.steps[recipe.name], seed, folder / "recipes" / recipe.name, on_progress)
            for recipe in wanted
            if recipe.name in plan.steps
        ]
        choice = choose(outcomes, data)
        if result is None:
            answer = answered_numbers(data, choice, folder / "recipes", seed, on_progress)
        else:
            answer = answered(
                result,
                data,
                choice,
                outcomes,
                folder / "recipes",
                on_progress,
                seed=seed,
                seconds=_FOR_BEGINNINGS * budget
                + max(0.0, _FOR_NETWORKS * budget - sum(each["seconds"] for each in outcomes)),
            )
        machine = answer.series if answer.candidate is None else answer.candidate.machine
        seconds = time.perf_counter() - began
        record = Record(
            "fit",
            {"budget": budget, "seed": seed, "recipes": [recipe.name for recipe in wanted], "data": data.source.path},
            _measurements(data, plan, outcomes, choice, answer),
            {**environment(), "seconds": round(seconds, 1)},
        )
        _write(folder, data.source, answer, machine)
        record.write(folder / "record.json")
        return Fitted(folder, record, answer.model, machine, answer.certificate, answer.proved, data.source)


def _silent(*_: Any) -> None:
    """Report no progress."""


def _plan(
    folder: Path, data: DividedData, recipes: Sequence[Recipe], budget: float, seed: int, on_progress: OnProgress
) -> FitPlan:
    """Return the plan of this folder, which must be of this fit; or measure, make and write one."""
    plan = FitPlan.read(folder)
    if plan is None:
        if others := sorted(path.name for path in folder.iterdir() if path.name != LOCK_FILE):
            raise ValueError(f"{folder} must be empty or hold a fit; it holds {others[0]}")
        plan = planned(data, recipes, budget=budget, seconds=_FOR_NETWORKS * budget, seed=seed, on_progress=on_progress)
        plan.write(folder)
        return plan
    names = {recipe.name for recipe in recipes}
    differs = {
        "data": plan.source.sha256 != data.source.sha256 or plan.source.goal != data.source.goal,
        "budget": plan.budget != budget,
        "seed": plan.seed != seed,
        "recipes": {*plan.steps, *plan.left_out} != names,
    }
    if any(differs.values()):
        other = " and ".join(name for name, different in differs.items() if different)
        raise ValueError(f"{folder} holds another fit: its {other} differ from those given; choose another folder")
    return plan


def _learned(folder: Path, data: DividedData, plan: FitPlan, on_progress: OnProgress) -> MachineFromLabels:
    """Return the machine that the labels alone give; it is looked for once, and recorded."""
    recorded = folder / "machine_from_labels.json"
    if recorded.exists():
        plain = read_learned(recorded, *sizes(data))
        table = plain.pop("machine")
        machine = MooreMachine(np.array(table["transitions"]), np.array(table["outputs"]), table["start"])
        on_progress("machine", 100, 100, "looked for before")
        return MachineFromLabels(machine=machine, **{**plain, "reasons": tuple(plain["reasons"])})
    on_progress("machine", 0, 100, "")
    result = learned(
        data,
        seconds=max(_LEAST_FOR_THE_MACHINE, _FOR_THE_MACHINE * plan.budget),
        seed=plan.seed,
        on_progress=lambda done, words: on_progress("machine", round(100 * done), 100, words),
    )
    plain = {name: getattr(result, name) for name in result.__dataclass_fields__ if name != "machine"}
    plain["machine"] = plain_machine(result.machine)
    write_atomically(recorded, json.dumps(plain, allow_nan=False).encode())
    on_progress("machine", 100, 100, f"{result.machine.states} states")
    return result


def plain_machine(machine: MooreMachine) -> dict[str, Any]:
    """Return a machine as plain numbers."""
    return {
        "transitions": machine.transitions.tolist(),
        "outputs": machine.outputs.tolist(),
        "start": int(machine.start),
    }


def _measurements(
    data: DividedData, plan: FitPlan, outcomes: Sequence[Mapping[str, Any]], choice: Choice, answer: Answer
) -> dict[str, Any]:
    """Return everything that a report says, as plain values."""
    vocabulary = data.source.vocabulary
    assert vocabulary is not None
    every = [length for part in data.parts() for length in part.examples.lengths]
    sequences = sum(len(part.examples) for part in data.parts())
    if data.source.real:
        label, baseline = mean(data)
        named, counts = f"the mean, {label:.4g}", {}
    else:
        number, baseline = majority(data)
        named = f"always {vocabulary.classes[number]}"
        total = Counter(each for part in data.parts() for each in part.words.classes())
        counts = {vocabulary.classes[each]: total[each] for each in sorted(total)}
    everything = data.shorter if data.longer is None else data.shorter + data.longer.words
    candidate, certificate = answer.candidate, answer.certificate
    return {
        "data": {
            "path": data.source.path,
            "goal": data.source.goal,
            "sequences": sequences,
            "letters": list(vocabulary.letters),
            "classes": list(vocabulary.classes),
            "counts": counts,
            "shortest": min(every),
            "longest": max(every),
            "conflicts": everything.conflicts(),
        },
        "division": {
            "training": len(data.training.examples),
            "validation": len(data.validation.examples),
            "longer": 0 if data.longer is None else len(data.longer.examples),
            "trained_length": data.training.longest,
            "note": data.note,
        },
        "bands": [_band_name(band) for band in bands(data)],
        "baseline": {"name": named, "bands": [each.plain() for each in baseline]},
        "recipes": [dict(each) for each in outcomes],
        "left_out": dict(plan.left_out),
        "chosen": {"name": choice.name, "sentence": choice.sentence},
        "candidates": [each.plain() for each in answer.candidates],
        "notes": list(answer.notes),
        "machine": None
        if candidate is None
        else {
            **plain_machine(candidate.machine),
            **candidate.plain(),
            "states": candidate.machine.states,
            "walked": sorted(walked(candidate.machine, everything)),
        },
        "contradicted": [] if candidate is None else _contradicted(candidate.machine, everything, vocabulary),
        "automaton": None if answer.series is None else {"states": answer.series.dim},
        "certificate": None
        if certificate is None
        else {
            "verdict": certificate.verdict,
            "claim": certificate.claim,
            "method": certificate.method,
            "covers": list(certificate.covers),
            "assumptions": list(certificate.assumptions),
        },
        "answer": {
            "proved": answer.proved,
            "made_by": answer.made_by,
            "sentence": answer.sentence,
            "sureness": list(answer.sureness),
            "advice": list(answer.advice),
        },
    }


def _contradicted(machine: MooreMachine, everything: LabelledWords, names: Vocabulary) -> list[list[str]]:
    """Return the shortest sequences whose label is not the machine's: the words, the label given, the machine's."""
    return [
        [" ".join(names.letters[letter] for letter in word), names.classes[given], names.classes[said]]
        for word, given, said in contradicted(machine, everything)[:_MOST_CONTRADICTED]
    ]


def _band_name(band: Band) -> str:
    """Return the multiple of the trained length and the lengths that occur, such as ``to 2×: 36–39``."""
    lengths = [len(row) - 1 for row in band.part.of_lengths(band.above, band.up_to).tokens]
    shortest, longest = min(lengths), max(lengths)
    return f"{band.name}: {shortest}" + (f"–{longest}" if longest > shortest else "")


def _write(folder: Path, source: FileData, answer: Answer, machine: MooreMachine | WeightedAutomaton | None) -> None:
    """Write the model, the machine and the certificate; what an earlier run left of these is replaced."""
    assert source.vocabulary is not None
    for name in ("machine.json", "certificate.json.gz"):
        (folder / name).unlink(missing_ok=True)
    if answer.model is None:
        shutil.rmtree(folder / "model", ignore_errors=True)
    else:
        write_model(answer.model, source, folder / "model")
    if machine is not None:
        names = source.vocabulary.letters
        series = series_of_labels(machine, names) if isinstance(machine, MooreMachine) else machine
        write(series, folder / "machine.json")
    if answer.certificate is not None:
        answer.certificate.write(folder / "certificate.json.gz")
