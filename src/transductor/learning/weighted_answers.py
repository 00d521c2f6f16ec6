"""The answer of a fit where labels are numbers: a weighted automaton with exact weights, or the best model.

An automaton is believed if the words it was not fitted to support it, its weights are rational numbers, and on what was
kept back it has exactly the numbers, or is wrong by at most ``MOST_ERROR`` of their standard deviation.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import torch

from transductor.automata import AutomatonFromNumbers, TokenAlphabet, WeightedAutomaton, learned_from_numbers, renamed
from transductor.certification import certify
from transductor.compilation import CannotCompile, compile_model
from transductor.learning.answers import Answer
from transductor.learning.divided_data import DividedData, LabelledWords
from transductor.learning.running import OnProgress, read_model
from transductor.learning.selection import Choice
from transductor.model import SequenceModel

MOST_ERROR: Final = 0.05
TOLERANCE: Final = 1e-6  # of the sum of the absolute values of all paths of a word; float64 rounds
_ADVICE: Final = (
    "Give more short sequences: the automaton is fitted to the shortest, and judged by the others.",
    "If the numbers come from a maximum, a comparison or a root, no weighted automaton has them: keep the model.",
)


def answered_numbers(data: DividedData, choice: Choice, folder: Path, seed: int, on_progress: OnProgress) -> Answer:
    """Look for a weighted automaton that has the numbers; compile and certify it, or keep the best model.

    Args:
        data: Data with numbers as labels.
        choice: The recipe that was chosen.
        folder: The folder with one folder for each recipe.
        seed: Seed of the search.
        on_progress: Called with what is being done.
    """
    assert data.source.vocabulary is not None
    letters = data.source.vocabulary.letters
    chosen = None if choice.name is None else read_model(folder / choice.name)
    on_progress("automaton", 0, 100, "")
    result = learned_from_numbers(
        data.shorter.words,
        data.shorter.labels,
        letters=len(letters),
        seed=seed,
        on_progress=lambda done, words: on_progress("automaton", round(100 * done), 100, words),
    )
    on_progress("automaton", 100, 100, f"{result.automaton.dim} states")
    error, spread = errors_of(result.automaton, data.held_out.words)
    refusals = _refusals(result, error, spread)
    if refusals:
        sentence = "No weighted automaton is claimed. " + " ".join(refusals)
        return Answer(None, chosen, "trained", None, sentence, (), _ADVICE, (), tuple(result.reasons))
    named = renamed(result.automaton, dict(enumerate(letters)))
    model, note = _compiled(named, data)
    certificate = None
    if model is not None:
        tokens = TokenAlphabet.of_names(data.source.vocabulary.tokens)
        certificate = certify(
            model, against=over_tokens(named, tokens), letters=tokens.names, tolerance=TOLERANCE, horizon=10**6
        )
    sentence, sureness = _said(result, error, data, None if certificate is None else certificate.verdict)
    return Answer(
        None,
        chosen if model is None else model,
        "trained" if model is None else "compiled",
        certificate,
        sentence,
        sureness,
        (),
        (),
        note,
        series=named,
    )


def errors_of(automaton: WeightedAutomaton, labelled: LabelledWords) -> tuple[float, float]:
    """Return the root mean square error of an automaton on words, and the standard deviation of their numbers.

    An error that the rounding of a number to a float explains counts as none.
    """
    numbers = [float(each) for each in labelled.labels]
    middle = math.fsum(numbers) / len(numbers)
    errors = []
    for word, number in zip(labelled.words, numbers, strict=True):
        difference = abs(float(automaton(word)) - number)
        errors.append(0.0 if difference <= 1e-12 * max(1.0, abs(number)) else difference)
    spread = math.sqrt(math.fsum((number - middle) ** 2 for number in numbers) / len(numbers))
    return math.sqrt(math.fsum(error * error for error in errors) / len(numbers)), spread


def _refusals(result: AutomatonFromNumbers, error: float, spread: float) -> list[str]:
    refusals = []
    if not result.supported:
        refusals.append(f"The words that it was not fitted to do not support it: {'; '.join(result.reasons)}.")
    if not result.exact_weights:
        refusals.append("Its weights are near no simple rational numbers.")
    if error > MOST_ERROR * spread:
        share = error / spread if spread else math.inf
        refusals.append(
            f"On the sequences that were kept back it is wrong by {error:.3g} (root mean square), {share:.0%} of the "
            f"standard deviation of their numbers; at most {MOST_ERROR:.0%} is allowed."
        )
    return refusals


def over_tokens(automaton: WeightedAutomaton, tokens: TokenAlphabet) -> WeightedAutomaton:
    """Return a series over letters as one over all tokens of a model; those that are no letters change nothing."""
    ring, place = automaton.weights, {letter: number for number, letter in enumerate(automaton.alphabet)}
    identity = ring.zeros(automaton.dim, automaton.dim)
    for state in range(automaton.dim):
        identity[state, state] = ring.one
    matrices = [automaton.matrices[place[name]] if name in place else identity for name in tokens.names]
    return WeightedAutomaton(automaton.initial, matrices, automaton.final, tokens.names, weights=ring)


def _compiled(automaton: WeightedAutomaton, data: DividedData) -> tuple[SequenceModel[Any] | None, tuple[str, ...]]:
    assert data.source.vocabulary is not None
    tokens = TokenAlphabet.of_names(data.source.vocabulary.tokens)
    try:
        # float64: in float32 numbers of five digits are rounded, which a reader of numbers would notice.
        return compile_model(over_tokens(automaton, tokens), dtype=torch.float64), ()
    except CannotCompile as error:
        return None, (f"the automaton cannot be compiled: {error}",)


def _said(
    result: AutomatonFromNumbers, error: float, data: DividedData, verdict: str | None
) -> tuple[str, tuple[str, ...]]:
    count = len(data.held_out.words)
    longer = "longer sequences" if data.longer is not None else "sequences"
    states = f"{result.automaton.dim} state{'s' * (result.automaton.dim != 1)}"
    if result.exact and error == 0:
        what = f"has exactly the number of every sequence, also of the {count:,} {longer} that were kept back"
    else:
        what = f"is within {error:.3g} (root mean square) of the numbers of the {count:,} {longer} that were kept back"
    about = "no model is certified" if verdict is None else f"that the model computes it: {verdict}"
    sentence = f"A weighted automaton with {states} and exact weights {what}; {about}."
    sureness = (
        "It was found from the numbers alone: no network was needed.",
        *(f"{each[0].upper()}{each[1:]}." for each in result.reasons),
        *((f"Caution: {data.note}.",) if data.note else ()),
        "The certificate says that the model computes the automaton.  That the automaton made the data rests on the "
        "numbers above.",
    )
    return sentence, sureness
