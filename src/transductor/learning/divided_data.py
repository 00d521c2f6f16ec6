"""A data set divided by length: what trains, what validates at the trained lengths, and the longest sequences.

A model that has learned a rule is right on sequences longer than those it saw; one that has learned their look is not.
So the longest tenth of the sequences is kept back to choose by, and a random tenth of the others to validate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from transductor.automata.moore import IGNORED
from transductor.automata.token_alphabet import RESERVED
from transductor.training import DataError, Examples, FileData

FEWEST_SEQUENCES: Final = 10
KEPT_BACK: Final = 0.1


@dataclass(frozen=True)
class LabelledWords:
    """Words over the letters 0, 1, …, each with its labels.

    Attributes:
        words: The letters of each word, by number.
        labels: For each word its class, the classes of its letters, or its number.
    """

    words: tuple[tuple[int, ...], ...]
    labels: tuple[Any, ...]

    @classmethod
    def of(cls, data: FileData, examples: Examples) -> LabelledWords:
        """Return sequences of tokens as words over the user's own letters; reserved tokens are no letters."""
        words = tuple(tuple(int(token) - len(RESERVED) for token in row[1:]) for row in examples.tokens)
        labels = (row[1:].tolist() if data.goal == "tagging" else row[-1].item() for row in examples.labels)
        return cls(words, tuple(tuple(each) if isinstance(each, list) else each for each in labels))

    def __len__(self) -> int:
        return len(self.words)

    def __add__(self, other: LabelledWords) -> LabelledWords:
        return LabelledWords(self.words + other.words, self.labels + other.labels)

    def classes(self) -> Iterator[int]:
        """Yield every class that is given, in the order of the words."""
        for label in self.labels:
            yield from (each for each in (label if isinstance(label, tuple) else (label,)) if each != IGNORED)

    def conflicts(self) -> int:
        """Return how many different words occur with more than one label."""
        labels: dict[tuple[int, ...], set[Any]] = {}
        for word, label in zip(self.words, self.labels, strict=True):
            labels.setdefault(word, set()).add(label)
        return sum(len(each) > 1 for each in labels.values())

    def unavoidable_errors(self) -> int:
        """Return how many labels no machine can give, because the same word, or beginning, has others more often."""
        seen: dict[tuple[int, ...], Counter[int]] = {}
        for word, label in zip(self.words, self.labels, strict=True):
            ends = enumerate(label, 1) if isinstance(label, tuple) else ((len(word), label),)
            for end, each in ends:
                if each != IGNORED:
                    seen.setdefault(word[:end], Counter())[each] += 1
        return sum(each.total() - max(each.values()) for each in seen.values())


@dataclass(frozen=True)
class Part:
    """One part of a data set, as a model reads it and as words over letters."""

    data: FileData
    examples: Examples
    words: LabelledWords

    @property
    def longest(self) -> int:
        """The length of its longest sequence."""
        return max(self.examples.lengths, default=0)

    def of_lengths(self, above: int, up_to: int) -> Examples:
        """Return the examples with more than ``above`` and at most ``up_to`` tokens."""
        lengths = self.examples.lengths
        rows = [row for row, length in enumerate(lengths) if above < length <= up_to]
        return Examples(
            tuple(self.examples.tokens[row] for row in rows), tuple(self.examples.labels[row] for row in rows)
        )


@dataclass(frozen=True)
class DividedData:
    """A data set in three parts.

    Attributes:
        source: The files, with the vocabulary of all of them; its part is ``"training"``.
        training: What models are trained on.
        validation: Sequences of the trained lengths that no model is trained on.
        longer: Sequences longer than all of the others; None where there are none.
        note: Why there are no longer ones, for the reader of a report; empty where there are.
    """

    source: FileData
    training: Part
    validation: Part
    longer: Part | None
    note: str = ""

    @property
    def shorter(self) -> LabelledWords:
        """Everything that is not kept back for its length."""
        return self.training.words + self.validation.words

    @property
    def held_out(self) -> Part:
        """What choices are made by: the longer sequences, or where there are none, the validation."""
        return self.validation if self.longer is None else self.longer

    def parts(self) -> Iterator[Part]:
        """Yield the parts that there are."""
        yield from (self.training, self.validation)
        if self.longer is not None:
            yield self.longer


def divided(source: FileData, *, seed: int = 0) -> DividedData:
    """Read a data set and divide it.

    Raises:
        DataError: If there are too few sequences, or only one class.
    """
    if source.goal == "next_token":
        raise DataError(
            "goal must be recognition, tagging or regression: fit needs labels; for next tokens see transductor train"
        )
    everything, examples = replace(source, held_out=0.0, held_out_longest=0.0).read()
    _check(everything, examples)
    named = replace(everything, held_out=KEPT_BACK, held_out_longest=KEPT_BACK, split_seed=seed)
    lengths = sorted(examples.lengths)
    note = ""
    if 2 * sum(length == lengths[-1] for length in lengths) > len(lengths):
        share = "all" if lengths[0] == lengths[-1] else "more than half of the"
        note = (
            f"{share} sequences have {lengths[-1]} tokens, so none could be kept back for being longer: whether an "
            "answer also holds for longer ones was not measured; add some longer sequences"
        )
        named = replace(named, held_out_longest=0.0)
    parts = {}
    for name in ("training", "validation") if note else ("training", "validation", "longest"):
        data, chosen = replace(named, part=name).read()
        parts[name] = Part(data, chosen, LabelledWords.of(data, chosen))
    training = parts["training"]
    return DividedData(training.data, training, parts["validation"], parts.get("longest"), note)


def _check(data: FileData, examples: Examples) -> None:
    if len(examples) < FEWEST_SEQUENCES:
        raise DataError(
            f"{data.path} must hold at least {FEWEST_SEQUENCES} sequences to learn from; got {len(examples)}"
        )
    if data.vocabulary is not None and not data.real and len(data.vocabulary.classes) < 2:
        raise DataError(f"{data.path} must have labels of at least two classes; all are {data.vocabulary.classes[0]!r}")


def most_frequent(labels: Sequence[int]) -> int:
    """Return the class that occurs most often, the smallest of several."""
    counts = Counter(labels)
    return min(counts, key=lambda label: (-counts[label], label))
