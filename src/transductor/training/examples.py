"""Data in files as a model reads them: sequences of tokens with a label at every position, and their vocabulary.

Every kind of data becomes tokens with one label per position, or a mark where there is none; a start token in front
gives even the empty sequence a position.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.automata.token_alphabet import END, RESERVED, START, UNKNOWN
from transductor.checks import one_of
from transductor.configuration import LATER, configuration
from transductor.training.files import (
    GOALS,
    SPLITS,
    DataError,
    FileFormat,
    Row,
    UnreadableFileError,
    checked_label,
    guessed_goal,
    read_rows,
)

PARTS: Final = ("training", "validation", "longest")


@configuration
@dataclass(frozen=True)
class Vocabulary:
    """The names of tokens and of classes, in the order of their numbers.

    The first tokens are the start, the end and the unknown token; a token never seen in training is read as unknown.
    """

    tokens: tuple[str, ...]
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("tokens", "classes"):
            names = getattr(self, name)
            if not isinstance(names, tuple) or not all(isinstance(each, str) for each in names):
                raise ValueError(f"{name} must be a list of names; got {names!r:.40}")
            if len(set(names)) < len(names):
                raise ValueError(f"{name} must have different names")

    @property
    def letters(self) -> tuple[str, ...]:
        """The tokens that come from the data: all but the start, the end and the unknown token."""
        return tuple(name for name in self.tokens if name not in RESERVED)

    @cached_property
    def _token_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.tokens)}

    @cached_property
    def _class_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    def token_ids(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the tokens of these names."""
        known = self._token_numbers
        return [known.get(name, known[UNKNOWN]) for name in names]

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that were never seen in training, in their order."""
        known = self._token_numbers
        return [name for name in names if name not in known or name in RESERVED]

    def class_id(self, name: str) -> int | None:
        """Return the number of a class; None if it was never seen."""
        return self._class_numbers.get(name)


@dataclass(frozen=True)
class Examples:
    """Sequences with a label at every position: tokens ``(T)`` int64, labels ``(T)`` int64 or float64.

    Positions without a label hold ``IGNORED``, or NaN where labels are numbers.
    """

    tokens: tuple[Tensor, ...]
    labels: tuple[Tensor, ...]

    def padded(self, rows: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens ``(B, T)``, labels ``(B, T)`` and lengths ``(B)`` of the sequences of these numbers."""
        tokens = torch.nn.utils.rnn.pad_sequence([self.tokens[row] for row in rows], batch_first=True)
        absent = math.nan if self.labels[0].is_floating_point() else IGNORED
        labels = torch.nn.utils.rnn.pad_sequence(
            [self.labels[row] for row in rows], batch_first=True, padding_value=absent
        )
        return tokens, labels, torch.tensor([len(self.tokens[row]) for row in rows])

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens each sequence has, without the start."""
        return tuple(len(each) - 1 for each in self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)


@configuration
@dataclass(frozen=True)
class FileData:
    """A data set in files, and the vocabulary it is read with.

    Args:
        goal: ``"recognition"`` (a label per sequence), ``"tagging"`` (one per token), ``"regression"`` (a number per
            sequence) or ``"next_token"`` (the sequences themselves).
        path: File with one sequence per line, JSONL (suffix ``.jsonl``), or a table whose first line names the columns
            (``.csv``, ``.tsv``).
        labels: The parallel file of labels, for plain text of every goal but ``"next_token"``.
        vocabulary: Names of tokens and classes; built by :meth:`read` unless given.
        sha256: Hash of what was read: a run that is resumed must find the same data.
        held_out: Fraction of the sequences that is set aside, drawn at random.
        split_seed: Seed that draws the sequences to set aside.
        part: ``"training"``, which leaves out what is set aside; ``"validation"``, which is what was drawn at random;
            or ``"longest"``, which is the longest sequences.
        split: Where tokens end: at ``"blanks"``, or every one of the ``"characters"`` is a token.
        text_column: Column or field that holds the sequence; one of the usual names if not given.
        label_column: Column or field that holds the label, likewise.
        held_out_longest: Fraction of the sequences that is set aside because they are the longest: about as many,
            all longer than those that remain.
    """

    goal: str
    path: str
    labels: str | None = None
    vocabulary: Vocabulary | None = None
    sha256: str = ""
    held_out: float = 0.0
    split_seed: int = 0
    part: str = "training"
    split: str = field(default="blanks", metadata=LATER)
    text_column: str | None = field(default=None, metadata=LATER)
    label_column: str | None = field(default=None, metadata=LATER)
    held_out_longest: float = field(default=0.0, metadata=LATER)

    def __post_init__(self) -> None:
        for name in ("path", "sha256"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a text; got {getattr(self, name)!r:.40}")
        for name in ("labels", "text_column", "label_column"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} must be a text or nothing; got {getattr(self, name)!r:.40}")
        if not isinstance(self.vocabulary, Vocabulary | None):
            raise ValueError("vocabulary must be a Vocabulary")
        if type(self.split_seed) is not int:
            raise ValueError(f"split_seed must be an integer; got {self.split_seed!r:.40}")
        one_of("goal", self.goal, GOALS)
        one_of("part", self.part, PARTS)
        for name in ("held_out", "held_out_longest"):
            if type(getattr(self, name)) not in (int, float) or not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1); got {getattr(self, name)!r}")
        if self.part == "longest" and not self.held_out_longest:
            raise ValueError("held_out_longest must be given with part='longest'")
        one_of("split", self.split, SPLITS)

    @classmethod
    def guessed(cls, path: str, labels: str | None = None, **options: Any) -> Self:
        """Return the data with the goal that their labels suggest; options are the other arguments."""
        named = {name: options[name] for name in ("split", "text_column", "label_column") if name in options}
        form = FileFormat(**named)
        rows = read_rows(path, labels, form)
        if not rows:
            raise DataError(f"{path} holds no sequences")
        return cls(guessed_goal(rows, form), path, labels, **options)

    @property
    def form(self) -> FileFormat:
        """How the file is read."""
        return FileFormat(self.split, self.text_column, self.label_column)

    @property
    def real(self) -> bool:
        """Whether labels are numbers."""
        return self.goal == "regression"

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self._named().tokens)

    @property
    def output_size(self) -> int:
        """The number of outputs a model needs at every position."""
        if self.real:
            return 1
        return len(self._named().tokens if self.goal == "next_token" else self._named().classes)

    def _named(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ValueError("vocabulary must be given; read() builds it")
        return self.vocabulary

    def read(self) -> tuple[FileData, Examples]:
        """Return this value with its vocabulary and hash filled in and absolute paths, and the examples."""
        try:
            rows, form = self.rows(), self.form
            lines = [(row, checked_label(row, self.goal, form)) for row in rows]
        except UnreadableFileError:
            raise
        except DataError:
            if not self.sha256:
                raise
            # The data were read when the run began, so this is another file: nothing of it is told.
            raise DataError(f"{self.path} is not what this run was started with") from None
        digest = hashlib.sha256(json.dumps([(row.names, label) for row, label in lines]).encode()).hexdigest()
        if self.sha256 and digest != self.sha256:
            raise DataError(f"{self.path} is not what this run was started with: its SHA-256 has changed")
        parts = self._parts(rows)
        aside = self.held_out or self.held_out_longest
        chosen = [line for line, part in zip(lines, parts, strict=True) if part == self.part or not aside]
        if not chosen:
            raise DataError(f"{self.path} holds no sequences{' for ' + self.part if aside else ''}")
        vocabulary = self.vocabulary or self._built(lines, parts)
        # A run is resumed from any folder, so it must not depend on the one in which it began.
        labels = None if self.labels is None else os.path.abspath(self.labels)
        named = replace(self, path=os.path.abspath(self.path), labels=labels, vocabulary=vocabulary, sha256=digest)
        return named, named._examples(chosen)

    def rows(self) -> list[Row]:
        """Return all sequences of the file as they are written, with their labels."""
        return read_rows(self.path, self.labels, self.form, goal=self.goal)

    def _parts(self, rows: Sequence[Row]) -> list[str]:
        """Return to which part each sequence belongs."""
        longest = self._longest_allowed([len(row.names) for row in rows])
        parts = ["training" if len(row.names) <= longest else "longest" for row in rows]
        if self.held_out:
            order = list(range(len(rows)))
            random.Random(self.split_seed).shuffle(order)
            order = [row for row in order if parts[row] == "training"]
            for row in order[: max(1, round(self.held_out * len(order)))]:
                parts[row] = "validation"
        return parts

    def _longest_allowed(self, lengths: Sequence[int]) -> float:
        """Return the greatest length that is not set aside for being long."""
        if not self.held_out_longest or not lengths:
            return math.inf
        ordered = sorted(lengths)
        # Among the lengths at which one can cut, that which sets aside the number nearest to what is asked for.
        cuts = {length: len(ordered) - bisect_right(ordered, length) for length in set(ordered[:-1]) - {ordered[-1]}}
        cut = min(sorted(cuts), key=lambda length: abs(cuts[length] - self.held_out_longest * len(ordered)), default=0)
        if not cuts or 2 * cuts[cut] > len(ordered):
            raise DataError(
                f"{self.path}: the longest sequences cannot be set aside: more than half of all have "
                f"{ordered[-1]} tokens; held_out_longest must be 0"
            )
        return cut

    def _built(self, lines: Sequence[tuple[Row, Any]], parts: Sequence[str]) -> Vocabulary:
        """Return the tokens of the training part and the classes of all parts."""
        # A class that only a sequence set aside has will be answered wrongly; it is no reason to stop after training.
        tokens = dict.fromkeys(RESERVED)
        classes: set[str] = set()
        for (row, label), part in zip(lines, parts, strict=True):
            for name in row.names:
                if name in RESERVED:
                    raise DataError(f"{row.where}: {name} is a reserved name; it cannot be a token")
            if part == "training":
                tokens.update(dict.fromkeys(row.names))
            if self.goal == "recognition":
                classes.add(label)
            elif self.goal == "tagging":
                classes.update(label)
        return Vocabulary(tuple(tokens), tuple(sorted(classes)))

    def encoded(self, names: Sequence[str], label: Any, where: str = "input") -> tuple[Tensor, Tensor]:
        """Return one sequence as numbers; with ``label`` None no position has a label."""
        examples = self._examples([(Row(where, list(names)), label)])
        return examples.tokens[0], examples.labels[0]

    def _examples(self, lines: Sequence[tuple[Row, Any]]) -> Examples:
        """Return sequences as numbers: one tensor for all, then cut, because a tensor for each would take minutes."""
        vocabulary = self._named()
        start, end = vocabulary.token_ids((START, END))
        tokens: list[int] = []
        labels: list[Any] = []
        for row, label in lines:
            numbers = vocabulary.token_ids(row.names)
            tokens += (start, *numbers)
            labels += [*numbers, end] if self.goal == "next_token" else self._labels(len(numbers), label, row.where)
        lengths = [len(row.names) + 1 for row, _ in lines]
        kind = torch.float64 if self.real else torch.int64
        return Examples(torch.tensor(tokens).split(lengths), torch.tensor(labels, dtype=kind).split(lengths))

    def _labels(self, count: int, label: Any, where: str) -> list[Any]:
        """Return the labels of the start and of ``count`` tokens."""
        absent = math.nan if self.real else IGNORED
        if label is None:
            return [absent] * (count + 1)
        if self.goal == "tagging":
            return [absent, *(self._class(name, where) for name in label)]
        return [absent] * count + [label if self.real else self._class(label, where)]

    def _class(self, name: str, where: str) -> int:
        number = self._named().class_id(name)
        if number is None:
            allowed = ", ".join(self._named().classes[:8])
            raise DataError(f"{where}: the label {name!r} did not occur in training, which had {allowed}")
        return number
