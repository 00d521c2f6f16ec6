"""The hardened column of a study: the exact machine that a trained model approximates, judged like the model."""

from __future__ import annotations

import copy
import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from transductor.automata import DFA, NotRational, interpolated
from transductor.certification import certify
from transductor.extraction.extracting import NoMachineNearby
from transductor.extraction.hardening import harden
from transductor.extraction.observable_distance import Contexts
from transductor.model import RationalReadout, RationalTransductor, SequenceModel, load, save
from transductor.portraits.measurement import portrait
from transductor.studies.judging import judge_arm
from transductor.studies.study import Arm
from transductor.tasks import BaseValue

_WORDS: Final = 4096  # new inputs as long as in training, which show the tokens that can follow each other
_EXACT_LENGTH: Final = 1000
_MOST_STATES_ON_DEVICE: Final = 64  # the GPU's kernels are made for up to this many
_DRAWN_WORDS, _DRAWN_LENGTH = 64, 10_001
_NEAR: Final = 0.25  # how far from an integer a value may be to be rounded to it


def hardened_column(
    model: SequenceModel[Any], arm: Arm, seed: int, *, folder: Path, certificate: Path
) -> dict[str, Any]:
    """Harden the model and judge the result; return the measurements ``hardening`` and ``hardened``.

    ``hardening`` says how the machine was found, or why there is none; ``hardened`` how right it is.  The hardened
    model is saved in ``folder``, and what is certified about it, as saved, is written to ``certificate``.  What an
    earlier run left at either place is removed first: it is about another model.
    """
    began = time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    certificate.unlink(missing_ok=True)
    if arm.task.output_kind == "real":
        column = _of_numbers(model, arm, seed)
    else:
        column = _of_classes(model, arm, seed, folder, certificate)
    column["hardening"]["seconds"] = round(time.perf_counter() - began, 2)
    return column


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file in errors of writing: a full disk does not say which file has no room."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}; what was there is intact") from error


def _refused(reason: str) -> dict[str, Any]:
    return {"hardening": {"refused": reason}, "hardened": None}


def _of_classes(model: SequenceModel[Any], arm: Arm, seed: int, folder: Path, certificate: Path) -> dict[str, Any]:
    if not isinstance(model, (RationalReadout, RationalTransductor)):
        return _refused("the model has no rational head")
    words = arm.task.sample(_WORDS, arm.training.length, torch.Generator().manual_seed(2_000_003 * (seed + 1)))
    try:
        hardened = harden(copy.deepcopy(model).cpu(), words=words)  # type: ignore[type-var]  # one class or the other
    except NoMachineNearby as error:
        return _refused(str(error))
    with writing(folder):
        save(hardened.model, folder)
    extraction, truth = hardened.extraction, arm.task.automaton()
    hardening = {
        "refused": None,
        "states": extraction.machine.states,
        "states_of_the_task": None if truth is None else truth.states,
        "spread": extraction.spread,
        "separation": extraction.separation,
        "tolerance": extraction.tolerance,
        "agreement": hardened.agreement,
        "certificate": _certified(folder, arm, words, certificate),
    }
    if extraction.machine.states <= _MOST_STATES_ON_DEVICE:
        hardened.model.to(next(model.parameters()).device)
    return {"hardening": hardening, "hardened": judge_arm(hardened.model, arm, seed)}


def write_portrait(model: SequenceModel[Any], arm: Arm, seed: int, path: Path) -> None:
    """Write the portrait of the learned head, as data that the report draws."""
    if isinstance(model, (RationalReadout, RationalTransductor)):
        long = arm.task.sample(_DRAWN_WORDS, _DRAWN_LENGTH, torch.Generator().manual_seed(3_000_017 * (seed + 1)))
        portrait(copy.deepcopy(model).cpu(), arm.task.automaton(), long).write(path)


def _certified(model: Path, arm: Arm, words: Tensor, path: Path) -> dict[str, Any] | None:
    truth = arm.task.automaton()
    if truth is None:
        return None
    began = time.perf_counter()
    try:
        certificate = certify(load(model), against=truth, domain=domain_of(words, arm.task.vocab_size))
        with writing(path):
            certificate.write(path)
    except ValueError as error:  # the numbers are too large for a bound
        return {"verdict": f"none: {error}", "about": None, "word_length": None, "margin": None, "bytes": 0}
    return {
        "verdict": certificate.verdict,
        "about": certificate.about,
        "word_length": None if certificate.word is None else len(certificate.word),
        "margin": certificate.margin,
        "bytes": path.stat().st_size,
        "seconds": round(time.perf_counter() - began, 2),
    }


def domain_of(words: Tensor, letters: int) -> DFA | None:
    """Return the words whose letters begin and follow each other as in ``words``; None if those are all words."""
    follows = Contexts.of(words, letters).follows
    if bool(follows.all()):
        return None
    dead = letters + 1
    table = torch.where(follows, torch.arange(letters), dead)
    table = torch.cat([table, torch.full((1, letters), dead)])
    return DFA(tuple(range(letters)), table.numpy(), letters, frozenset(range(letters + 1)))


def _of_numbers(model: SequenceModel[Any], arm: Arm, seed: int) -> dict[str, Any]:
    """Round the values of short words to integers, and find the machine that has exactly these values."""
    task = arm.task
    if not isinstance(task, BaseValue) or task.normalised or not isinstance(model, RationalReadout):
        return _refused("the labels are not integers")
    farthest = 0.0

    @torch.no_grad()
    def value(word: tuple[Any, ...]) -> int:
        nonlocal farthest
        if word:
            number = float(model(torch.tensor([word], device=model.readout.weight.device))[0, -1, 0])
        else:
            number = float(model.readout(model.rational_head.initial_state()))
        farthest = max(farthest, abs(number - round(number)) if math.isfinite(number) else math.inf)
        if farthest > _NEAR:
            raise NotRational(f"the value {number:g} of {word!r} is not near an integer")
        return round(number)

    try:
        machine = interpolated(value, range(task.vocab_size))
    except NotRational as error:
        return _refused(str(error))
    tokens = task.sample(64, _EXACT_LENGTH, torch.Generator().manual_seed(1_000_003 * (seed + 1)))
    words = [*tokens.tolist(), *(row[0].tolist() for row in task.adversarial(_EXACT_LENGTH).values())]
    truths = [row[-1] for row in task.integers(torch.tensor(words))]
    right = [machine(word) == truth for word, truth in zip(words, truths, strict=True)]
    entry = {
        "input": "random and adversarial",
        "task": task.name,
        "length": _EXACT_LENGTH,
        "sequences": len(words),
        "exact": sum(right) / len(right),
    }
    hardening = {"refused": None, "states": machine.dim, "farthest_from_an_integer": farthest}
    return {"hardening": hardening, "hardened": [entry]}
