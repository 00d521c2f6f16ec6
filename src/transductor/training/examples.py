"""Reading data from files: sequences of tokens and their labels.

A file has one sequence per line, tokens separated by blanks, with a parallel file of labels; or it is JSONL with
``tokens`` and ``label`` or ``labels``.  A sequence may be empty.  Every kind of data becomes tokens with one label per
position, or a mark where there is none; a start token in front gives even the empty sequence a position.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.checks import one_of
from transductor.configuration import configuration

GOALS: Final = ("recognition", "tagging", "regression", "next_token")
START, END, UNKNOWN = "<start>", "<end>", "<unknown>"


class DataError(ValueError):
    """A data file cannot be used; the message names file, line and reason."""


@configuration
@dataclass(frozen=True)
class Vocabulary:
    """The names of tokens and of classes, in the order of their numbers.

    The first tokens are the start, the end and the unknown token; a token never seen in training is read as unknown.
    """

    tokens: tuple[str, ...]
    classes: tuple[str, ...] = ()

    def token_ids(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the tokens of these names."""
        known = {name: number for number, name in enumerate(self.tokens)}
        return [known.get(name, known[UNKNOWN]) for name in names]

    def class_id(self, name: str) -> int | None:
        """Return the number of a class; None if it was never seen."""
        return self.classes.index(name) if name in self.classes else None


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

    def __len__(self) -> int:
        return len(self.tokens)


@configuration
@dataclass(frozen=True)
class FileData:
    """A data set in files, and the vocabulary it is read with.

    Args:
        goal: ``"recognition"`` (a label per sequence), ``"tagging"`` (one per token), ``"regression"`` (a number per
            sequence) or ``"next_token"`` (the sequences themselves).
        path: File with one sequence per line, or JSONL (suffix ``.jsonl``).
        labels: The parallel file of labels, for plain text of every goal but ``"next_token"``.
        vocabulary: Names of tokens and classes; built by :meth:`read` unless given.
        sha256: Hash of what was read: a run that is resumed must find the same data.
        held_out: Fraction of the sequences that is set aside.
        split_seed: Seed that draws the sequences to set aside.
        part: ``"training"``, which leaves those out, or ``"validation"``, which is those alone.
    """

    goal: str
    path: str
    labels: str | None = None
    vocabulary: Vocabulary | None = None
    sha256: str = ""
    held_out: float = 0.0
    split_seed: int = 0
    part: str = "training"

    def __post_init__(self) -> None:
        one_of("goal", self.goal, GOALS)
        one_of("part", self.part, ("training", "validation"))
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out must lie in [0, 1); got {self.held_out!r}")

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
        """Return this value with its vocabulary and hash filled in, and the examples."""
        lines = list(self._lines())
        digest = hashlib.sha256(json.dumps([(names, label) for _, names, label in lines]).encode()).hexdigest()
        if self.sha256 and digest != self.sha256:
            raise DataError(f"{self.path} is not what this run was started with: its SHA-256 has changed")
        lines = self._of_this_part(lines)
        if not lines:
            raise DataError(f"{self.path} holds no sequences{' for ' + self.part if self.held_out else ''}")
        vocabulary = self.vocabulary or self._built(lines)
        named = replace(self, vocabulary=vocabulary, sha256=digest)
        pairs = [named.encoded(names, label, where) for where, names, label in lines]
        return named, Examples(tuple(tokens for tokens, _ in pairs), tuple(labels for _, labels in pairs))

    def _of_this_part(self, lines: list[tuple[str, list[str], Any]]) -> list[tuple[str, list[str], Any]]:
        if self.held_out == 0:
            return lines
        rows = list(range(len(lines)))
        random.Random(self.split_seed).shuffle(rows)
        set_aside = set(rows[: max(1, round(self.held_out * len(lines)))])
        return [line for row, line in enumerate(lines) if (row in set_aside) == (self.part == "validation")]

    def _built(self, lines: Sequence[tuple[str, list[str], Any]]) -> Vocabulary:
        tokens = dict.fromkeys((START, END, UNKNOWN))
        classes: dict[str, None] = {}
        for where, names, label in lines:
            for name in names:
                if name in (START, END, UNKNOWN):
                    raise DataError(f"{where}: {name} is a reserved name; it cannot be a token")
                tokens[name] = None
            if self.goal == "recognition":
                classes[label] = None
            elif self.goal == "tagging":
                classes |= dict.fromkeys(label)
        return Vocabulary(tuple(tokens), tuple(sorted(classes)))

    def encoded(self, names: Sequence[str], label: Any, where: str = "input") -> tuple[Tensor, Tensor]:
        """Return one sequence as numbers; with ``label`` None no position has a label."""
        vocabulary = self._named()
        tokens = torch.tensor([vocabulary.tokens.index(START), *vocabulary.token_ids(names)])
        if self.real:
            numbers = torch.full(tokens.shape, math.nan, dtype=torch.float64)
            if label is not None:
                numbers[-1] = label
            return tokens, numbers
        labels = torch.full(tokens.shape, IGNORED)
        if self.goal == "next_token":
            labels[:-1] = tokens[1:]
            labels[-1] = vocabulary.tokens.index(END)
        elif label is not None and self.goal == "recognition":
            labels[-1] = self._class(label, where)
        elif label is not None:
            labels[1:] = torch.tensor([self._class(name, where) for name in label], dtype=torch.long)
        return tokens, labels

    def _class(self, name: str, where: str) -> int:
        number = self._named().class_id(name)
        if number is None:
            allowed = ", ".join(self._named().classes[:8])
            raise DataError(f"{where}: the label {name!r} did not occur in training, which had {allowed}")
        return number

    def _lines(self) -> Iterator[tuple[str, list[str], Any]]:
        """Yield the file and line, the tokens and the label of every sequence."""
        if self.path.endswith(".jsonl"):
            yield from self._json_lines()
            return
        sequences = _read_lines(self.path)
        if self.goal == "next_token":
            for number, line in enumerate(sequences, 1):
                yield f"{self.path}:{number}", line.split(), None
            return
        if self.labels is None:
            raise DataError(f"labels must name the file with the labels of {self.path}")
        labels = _read_lines(self.labels)
        if len(labels) != len(sequences):
            raise DataError(f"{self.labels} has {len(labels)} lines, {self.path} has {len(sequences)}")
        for number, (line, label) in enumerate(zip(sequences, labels, strict=True), 1):
            names = line.split()
            yield f"{self.path}:{number}", names, self._checked(label.split(), names, f"{self.labels}:{number}")

    def _json_lines(self) -> Iterator[tuple[str, list[str], Any]]:
        for number, line in enumerate(_read_lines(self.path), 1):
            where = f"{self.path}:{number}"
            try:
                plain = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{where}: not JSON: {error}") from None
            if not isinstance(plain, dict) or not isinstance(plain.get("tokens"), list):
                raise DataError(f'{where}: must be an object with a list "tokens"')
            names = [str(token) for token in plain["tokens"]]
            if self.goal == "next_token":
                yield where, names, None
                continue
            field: Literal["labels", "label"] = "labels" if self.goal == "tagging" else "label"
            if field not in plain:
                raise DataError(f'{where}: must have the field "{field}"')
            labels = plain[field] if isinstance(plain[field], list) else [plain[field]]
            yield where, names, self._checked([str(label) for label in labels], names, where)

    def _checked(self, label: list[str], names: list[str], where: str) -> Any:
        if self.goal == "tagging":
            if len(label) != len(names):
                raise DataError(f"{where}: {len(label)} labels for {len(names)} tokens")
            return label
        if len(label) != 1:
            raise DataError(f"{where}: must hold one label; got {len(label)}")
        if self.goal == "recognition":
            return label[0]
        try:
            number = float(label[0])
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise DataError(f"{where}: must hold a finite number; got {label[0]!r}")
        return number


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from None
