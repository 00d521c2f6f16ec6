"""Labelled words as flat arrays, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transductor.automata.moore import IGNORED

LONGEST_SHAPED = 64  # letters; the density of a class is compared for words up to this length


@dataclass(frozen=True)
class Sample:
    """Words one after the other, with the label of every prefix.

    Attributes:
        text: The letters of all words.
        offsets: Where each word begins in ``text``; one more at the end.
        marks: The label of every prefix, ``len + 1`` for each word, shortest first; negative where there is none.
        letters: How many letters there are.
        classes: How many labels there are.
        tagged: Whether labels were given for every letter rather than for every word.
    """

    text: NDArray[np.int32]
    offsets: NDArray[np.int64]
    marks: NDArray[np.int32]
    letters: int
    classes: int
    tagged: bool

    @cached_property
    def labels(self) -> int:
        """How many labels there are."""
        return int((self.marks >= 0).sum())

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each label occurs, ``(classes,)``."""
        return np.bincount(self.marks[self.marks >= 0], minlength=self.classes)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of letters of each word."""
        return np.diff(self.offsets)

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """The place of each word in a tally, its length; 0 where every prefix has its own place.

        Words beyond ``LONGEST_SHAPED`` share the last place, which densities leave out.
        """
        if self.tagged:
            return np.zeros(len(self.lengths), dtype=np.int32)
        return np.minimum(self.lengths, LONGEST_SHAPED + 1).astype(np.int32)

    @property
    def places(self) -> int:
        """How many sizes a tally has; the last is that of words too long for densities."""
        return min(int(self.lengths.max()), LONGEST_SHAPED) + 2

    @cached_property
    def word_labels(self) -> NDArray[np.int32]:
        """The label of each complete word; negative where there is none."""
        labels: NDArray[np.int32] = self.marks[self.offsets[1:] + np.arange(len(self.lengths))]
        return labels

    def part(self, chosen: NDArray[np.bool_]) -> Sample:
        """Return the sample of the words for which ``chosen`` is true."""
        lengths = self.lengths[chosen]
        letters = np.repeat(chosen, self.lengths)
        prefixes = np.repeat(chosen, self.lengths + 1)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Sample(self.text[letters], offsets, self.marks[prefixes], self.letters, self.classes, self.tagged)


def sample_of(
    words: Sequence[Sequence[int]], labels: Sequence[int] | Sequence[Sequence[int]], letters: int, classes: int
) -> Sample:
    """Return the sample, or raise a ValueError that names the argument and the first word that is wrong."""
    if not isinstance(letters, (int, np.integer)) or letters < 1:
        raise ValueError(f"letters must be a positive integer; got {letters!r}")
    if not isinstance(classes, (int, np.integer)) or classes < 1:
        raise ValueError(f"classes must be a positive integer; got {classes!r}")
    if len(words) != len(labels):
        raise ValueError(f"labels must be as many as words; got {len(labels)} labels and {len(words)} words")
    if not len(words):
        raise ValueError("words must not be empty: give at least one word with its label")
    lengths = np.array([len(word) for word in words], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    text = np.array([letter for word in words for letter in word], dtype=np.int64)
    if text.size and (text.min() < 0 or text.max() >= letters):
        place = int(np.flatnonzero((text < 0) | (text >= letters))[0])
        word = int(np.searchsorted(offsets, place, side="right")) - 1
        raise ValueError(f"words must have letters from 0 to {letters - 1}; word {word} has {int(text[place])}")
    tagged = not np.isscalar(labels[0])
    marks = np.full(len(text) + len(words), IGNORED, dtype=np.int64)
    if tagged:
        given = [len(each) for each in labels]  # type: ignore[arg-type]
        wrong = np.flatnonzero(lengths != given)
        if len(wrong):
            word = int(wrong[0])
            raise ValueError(
                f"labels must have one class for every letter; word {word} has {lengths[word]} letters and "
                f"{given[word]} labels"
            )
        inner = np.ones(len(marks), dtype=bool)
        inner[offsets[:-1] + np.arange(len(words))] = False
        marks[inner] = [label for each in labels for label in each]  # type: ignore[union-attr]
    else:
        marks[offsets[1:] + np.arange(len(words))] = np.asarray(labels)
    refused = np.flatnonzero((marks != IGNORED) & ((marks < 0) | (marks >= classes)))
    if len(refused):
        word = int(np.searchsorted(offsets[:-1] + np.arange(len(words)), refused[0], side="right")) - 1
        raise ValueError(
            f"labels must be classes from 0 to {classes - 1}, or {IGNORED} for none; "
            f"word {word} has {int(marks[refused[0]])}"
        )
    if (marks == IGNORED).all():
        raise ValueError(f"labels must not all be {IGNORED}: nothing says what the machine should answer")
    return Sample(text.astype(np.int32), offsets, marks.astype(np.int32), int(letters), int(classes), tagged)
