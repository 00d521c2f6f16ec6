"""Choosing a model by sequences longer than those it was trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from transductor.learning.divided_data import DividedData, Part, most_frequent
from transductor.model import SequenceModel
from transductor.training import score

_NORMAL: Final = 1.959963984540054  # of a two-sided interval of 95 %


@dataclass(frozen=True)
class Band:
    """Sequences between two multiples of the trained length.

    Attributes:
        name: Such as ``"to 2×"``: longer than trained, up to twice as long.
        part: The part of the data they belong to.
        above: They are longer than this,
        up_to: and at most this long.
    """

    name: str
    part: Part
    above: int
    up_to: int


def bands(data: DividedData) -> list[Band]:
    """Return the bands that the data reach: validation at 1×, then up to 2×, 4×, … of the trained length."""
    trained = max(1, data.training.longest)
    reached = [Band("1×", data.validation, -1, data.validation.longest)]
    if data.longer is None:
        return reached
    multiple, above = 2, trained
    while above < data.longer.longest:
        band = Band(f"to {multiple}×", data.longer, above, multiple * trained)
        if len(data.longer.of_lengths(band.above, band.up_to)):
            reached.append(band)
        multiple, above = 2 * multiple, multiple * trained
    return reached


@dataclass(frozen=True)
class Measured:
    """How right something is on one band.

    Attributes:
        count: How many labels were judged.
        right: How many of them are right; 0 where labels are numbers.
        error: The root mean square error where labels are numbers, else 0.
        sequences: How many sequences have these labels; as many as labels if not given.
    """

    count: int
    right: int = 0
    error: float = 0.0
    sequences: int | None = None

    @property
    def share(self) -> float:
        """The share of labels that are right."""
        return self.right / max(1, self.count)

    def plain(self) -> dict[str, Any]:
        """Return the numbers as a record holds them, with the interval in which the share lies (Wilson, 95 %).

        The labels of one sequence hang together, so the interval is as wide as if each sequence had one label.
        """
        sequences = self.count if self.sequences is None else self.sequences
        low, high = interval(self.share, sequences)
        numbers = {"count": self.count, "right": self.right, "sequences": sequences}
        return {**numbers, "low": low, "high": high, "error": self.error}


def interval(share: float, count: int) -> tuple[float, float]:
    """Return Wilson's interval of a share among ``count``: in 95 of 100 cases the true one lies inside."""
    if count == 0:
        return 0.0, 1.0
    square = _NORMAL**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _NORMAL / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def measured(model: SequenceModel[Any], data: DividedData) -> list[Measured]:
    """Measure a model on every band."""
    results = []
    for band in bands(data):
        examples = band.part.of_lengths(band.above, band.up_to)
        result = score(model, band.part.data, examples)
        if band.part.data.real:
            results.append(Measured(result.count, error=math.sqrt(result.loss)))
        else:
            right = round(result.positions * result.count)
            results.append(Measured(result.count, right=right, sequences=len(examples)))
    return results


def majority(data: DividedData) -> tuple[int, list[Measured]]:
    """Return the most frequent class of the training data, and how often it alone would be right on every band."""
    label = most_frequent(list(data.training.words.classes()))
    results = []
    for band in bands(data):
        labels = [row[row >= 0] for row in band.part.of_lengths(band.above, band.up_to).labels]
        right = sum(int((row == label).sum()) for row in labels)
        results.append(Measured(sum(map(len, labels)), right=right, sequences=len(labels)))
    return label, results


def mean(data: DividedData) -> tuple[float, list[Measured]]:
    """Return the mean of the numbers in the training data, and how wrong it alone would be on every band."""
    middle = math.fsum(data.training.words.labels) / len(data.training.words)
    results = []
    for band in bands(data):
        numbers = [float(row[-1]) for row in band.part.of_lengths(band.above, band.up_to).labels]
        error = math.sqrt(math.fsum((number - middle) ** 2 for number in numbers) / max(1, len(numbers)))
        results.append(Measured(len(numbers), error=error))
    return middle, results


@dataclass(frozen=True)
class Choice:
    """Which recipe is kept, and the sentence that says why; None where none is left."""

    name: str | None
    sentence: str


def choose(outcomes: Sequence[Mapping[str, Any]], data: DividedData) -> Choice:
    """Choose the recipe that is best on the longest band, then on the shorter ones, then the smallest.

    Peers are compared, and named where they are better; they are never chosen, because no machine is read off them.
    """
    finished = [each for each in outcomes if each["failed"] is None]
    own = [each for each in finished if not each["peer"]]
    if not own:
        return Choice(None, "No model was trained." if not outcomes else "No model of ours finished its training.")
    best = max(own, key=lambda each: _rank(each, data.source.real))
    trained, judged = data.training.longest, data.held_out
    shortest = min(judged.examples.lengths)
    lengths = f"{shortest} to {judged.longest}" if shortest < judged.longest else f"{shortest}"
    where = (
        f"{len(judged.examples)} sequences of {lengths} tokens, longer than the {trained} it was trained on"
        if data.longer is not None
        else f"{len(judged.examples)} sequences it was not trained on (there are no longer ones to judge by)"
    )
    reason = "the smallest of those that are equally good" if _tied(own, best, data) else "the best of ours"
    sentence = f"{best['name']} was chosen: {_quality(best, data)} on {where}; {reason}."
    better = [each for each in finished if each["peer"] and _totals(each, data)[-1] > _totals(best, data)[-1]]
    for each in better:
        sentence += f" The {each['name']}, trained for comparison, is better there: {_quality(each, data)}."
    return Choice(str(best["name"]), sentence)


def _totals(outcome: Mapping[str, Any], data: DividedData) -> tuple[float, ...]:
    """Return how good a recipe is at the trained lengths, and beyond them all together; more is better."""
    shares = outcome["bands"]
    if data.source.real:
        return tuple(-_error(part) for part in (shares[:1], shares[1:]) if part)
    return tuple(_share(part) for part in (shares[:1], shares[1:]) if part)


def _share(bands_of_one: Sequence[Mapping[str, Any]]) -> float:
    return sum(int(each["right"]) for each in bands_of_one) / max(1, sum(int(each["count"]) for each in bands_of_one))


def _error(bands_of_one: Sequence[Mapping[str, Any]]) -> float:
    squares = math.fsum(each["count"] * each["error"] ** 2 for each in bands_of_one)
    return math.sqrt(squares / max(1, sum(each["count"] for each in bands_of_one)))


def _rank(outcome: Mapping[str, Any], real: bool) -> tuple[float, ...]:
    bands_of_one = outcome["bands"]
    beyond, within = bands_of_one[1:] or bands_of_one, bands_of_one[:1]
    if real:
        return -_error(beyond), -_error(within), -float(outcome["parameters"])
    return _share(beyond), _share(within), -float(outcome["parameters"])


def _tied(own: Sequence[Mapping[str, Any]], best: Mapping[str, Any], data: DividedData) -> bool:
    return sum(_totals(each, data) == _totals(best, data) for each in own) > 1


def _quality(outcome: Mapping[str, Any], data: DividedData) -> str:
    beyond = outcome["bands"][1:] or outcome["bands"]
    if data.source.real:
        return f"a root mean square error of {_error(beyond):.4g}"
    right, count = sum(int(each["right"]) for each in beyond), sum(int(each["count"]) for each in beyond)
    share = right / max(1, count)
    low, _ = interval(share, sum(int(each["sequences"]) for each in beyond))
    return f"{share:.1%} right (at least {low:.1%} with 95 % confidence)"


def ranked(outcomes: Sequence[Mapping[str, Any]], data: DividedData) -> list[str]:
    """Return the names of the recipes that may be chosen, the best first."""
    own = [each for each in outcomes if each["failed"] is None and not each["peer"]]
    return [str(each["name"]) for each in sorted(own, key=lambda each: _rank(each, data.source.real), reverse=True)]
