"""The search over the data, begun with small trained automata where merging states leads nowhere.

Over many words, sequences share almost no beginnings; and where a label depends on a few rare words in a certain order,
no single change of a machine makes it better.  A small automaton with distributions for transitions, trained by
gradients, often goes nearly the right way there, though it is too uncertain to be a machine itself.  Made certain (from
each state by each word to the most probable one), it is where local search begins.  Whether it works depends on the
seed, so several are tried.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from transductor.automata import MooreMachine, learned_from_labels
from transductor.automata.token_alphabet import RESERVED, START
from transductor.learning.divided_data import DividedData
from transductor.learning.machines import Candidate, contradicting, from_labels, sizes
from transductor.learning.recipes import Recipe
from transductor.learning.running import OnProgress, fresh_trainer
from transductor.model import RationalReadout, SequenceModel
from transductor.training import TrainingError

_BEGINNINGS: Final = 15
_STEPS: Final = 500  # a beginning need not be good, and a second one is worth more than a better one
_LEAST: Final = 5.0  # seconds for the search from the first one
_MOST_STATES: Final = 60


def begun(
    recipe: Recipe,
    trained: SequenceModel[Any],
    data: DividedData,
    *,
    seconds: float,
    seconds_of_a_step: float,
    seed: int,
    on_progress: OnProgress,
) -> Candidate:
    """Return the best machine that the search finds from these small automata, judged.

    Args:
        recipe: How a small automaton is trained.
        trained: One that was trained already: the first beginning.
        data: The data.
        seconds: No further one is begun that would take longer.
        seconds_of_a_step: How long a step of the recipe takes.
        seed: Those of the others follow it.
        on_progress: Called with what is being done.
    """
    began, best = time.monotonic(), None
    for place in range(_BEGINNINGS):
        left = seconds - (time.monotonic() - began)
        if place and left < _STEPS * seconds_of_a_step:
            break
        on_progress("beginnings", place, _BEGINNINGS, "" if best is None else f"{best.machine.states} states so far")
        model = _another(recipe, data, seed + place) if place else trained
        if model is None:
            continue
        candidate = _searched(made_certain(model), data, max(_LEAST, left), seed)
        if best is None or (candidate.believed, -candidate.bits) > (best.believed, -best.bits):
            best = candidate
        if best.believed:
            break
    on_progress("beginnings", _BEGINNINGS, _BEGINNINGS, "")
    assert best is not None
    return best


def made_certain(model: SequenceModel[Any]) -> MooreMachine:
    """Return where a readout of distributions most probably goes from each state by each letter; labels are all 0."""
    assert isinstance(model, RationalReadout)
    head = model.rational_head
    table = head.transitions.table().detach().double().numpy()
    start = int((table[RESERVED.index(START)] @ head.initial_state().detach().double().numpy()).argmax())
    steps = table[len(RESERVED) :].argmax(1).T
    return MooreMachine(np.ascontiguousarray(steps), np.zeros(len(steps), dtype=np.int64), start)


def _another(recipe: Recipe, data: DividedData, seed: int) -> SequenceModel[Any] | None:
    """Return a small automaton that was trained from another seed; None where that failed."""
    trainer = fresh_trainer(recipe, data.source, _STEPS, seed)
    try:
        trainer.run()
    except TrainingError as error:
        if isinstance(error.__cause__, OSError):
            raise
        return None
    return trainer.model.eval()


def _searched(machine: MooreMachine, data: DividedData, seconds: float, seed: int) -> Candidate:
    letters, classes = sizes(data)
    shorter = data.shorter
    result = learned_from_labels(
        shorter.words,
        shorter.labels,
        letters=letters,
        classes=classes,
        seconds=seconds,
        seed=seed,
        max_states=_MOST_STATES,
        begin_with=[machine],
    )
    # The search on the shorter words begins where that on all of them began, so that they agree too easily for a
    # machine that contradicts labels to be believed.
    return contradicting(from_labels(result, data, way="begun"), data, "that began with a model")
