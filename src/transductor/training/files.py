"""Files of sequences and labels: plain text, JSONL and CSV, read as they stand, and the goal that their labels suggest.

Every error names the file and the line.  What a label means (a class, tags, a number) is decided by the goal, later.
"""

from __future__ import annotations

import csv
import io
import math
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transductor.checks import one_of
from transductor.file_reading import pieces_of
from transductor.json_reading import JSONError, parsed_json

GOALS: Final = ("recognition", "tagging", "regression", "next_token")
SPLITS: Final = ("blanks", "characters")
TEXT_COLUMNS: Final = ("tokens", "text", "sequence", "sequences", "string", "word", "words", "input")
LABEL_COLUMNS: Final = ("label", "labels", "class", "classes", "tags", "target", "output")
_LABEL_COLUMNS_OF_TAGS: Final = ("labels", "tags", "label", "classes", "class", "target", "output")
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
_MANY_CLASSES: Final = 64  # more different numbers than this are measurements rather than names
_NO_LABEL: Final = "{}: there is no label; give one, or leave the sequence out"
_LARGEST_CELL: Final = 2**31 - 1  # Python's csv refuses cells above 131 072 characters unless told otherwise


class DataError(ValueError):
    """A data file cannot be used; the message names file, line and reason."""


class UnreadableFileError(DataError):
    """A data file is missing, or is no regular file: a pipe or a device could go on for ever."""


@dataclass(frozen=True)
class Row:
    """One sequence of a file: where it stands, its tokens, and its label as it is written.

    ``label`` is a text, a list where the file has a list, or None where the file has no labels.
    """

    where: str
    names: list[str]
    label: str | list[str] | None = None
    label_where: str = ""


@dataclass(frozen=True)
class FileFormat:
    """How a file is read.

    Args:
        split: Where tokens end: at ``"blanks"``, or every one of the ``"characters"`` is a token.
        text_column: Column (CSV) or field (JSONL) that holds the sequence; one of the usual names if not given.
        label_column: Column or field that holds the label, likewise.
    """

    split: str = "blanks"
    text_column: str | None = None
    label_column: str | None = None

    def __post_init__(self) -> None:
        one_of("split", self.split, SPLITS)

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text; blanks are never tokens."""
        return text.split() if self.split == "blanks" else [each for each in text if not each.isspace()]

    def tags(self, label: str | list[str]) -> list[str]:
        """Return the labels of single tokens: between blanks, or character by character where tokens are."""
        if isinstance(label, list):
            return label
        parts = label.split()
        return list(label.strip()) if self.split == "characters" and len(parts) == 1 else parts


def read_rows(
    path: str, labels: str | None = None, form: FileFormat | None = None, *, goal: str | None = None
) -> list[Row]:
    """Return the sequences of a file, with their labels as they are written.

    Args:
        path: Plain text with one sequence per line, ``.jsonl``, ``.csv`` (RFC 4180, the first line names the columns)
            or ``.tsv``.
        labels: The parallel file of labels, for plain text.
        form: Where tokens end, and which columns are read.
        goal: What the labels are for; with ``"next_token"`` they are not read, without a goal they may be missing.

    Raises:
        DataError: If anything cannot be read; the message names file and line.
    """
    form = form or FileFormat()
    suffix = Path(path).suffix.lower()
    if suffix == ".jsonl" or suffix in _DELIMITERS:
        if labels is not None:
            raise DataError(f"labels must be a column of {path}, not a file of their own; got {labels}")
        read = _json_rows if suffix == ".jsonl" else _table_rows
        return list(read(path, form, goal))
    if suffix == ".json":
        raise DataError(f"{path}: write one object a line, and let the name end in .jsonl")
    if form.text_column is not None or form.label_column is not None:
        raise DataError(f"columns are for files that end in .csv, .tsv or .jsonl; got {path}")
    sequences = [form.tokens(line) for line in _lines(path)]
    if goal == "next_token" or (labels is None and goal is None):
        return [Row(f"{path}:{number}", names) for number, names in enumerate(sequences, 1)]
    if labels is None:
        raise DataError(f"labels must name the file with the labels of {path}")
    beside = _lines(labels)
    if len(beside) != len(sequences):
        raise DataError(
            f"{labels} has {len(beside)} lines, {path} has {len(sequences)}; empty lines count, as empty sequences"
        )
    return [
        Row(f"{path}:{number}", names, label.strip(), f"{labels}:{number}")
        for number, (names, label) in enumerate(zip(sequences, beside, strict=True), 1)
    ]


def guessed_goal(rows: Sequence[Row], form: FileFormat | None = None) -> str:
    """Return the goal that labels suggest.

    As many labels as tokens (and more than one somewhere) are tags; numbers of which one is no integer, or of which
    there are many different ones, are measurements; everything else is a class per sequence.  A few lines that do not
    fit do not change the goal: reading the file for that goal names them.

    Raises:
        DataError: If there are no labels.
    """
    form = form or FileFormat()
    labelled = [row for row in rows if row.label is not None]
    if not labelled:
        missing = "has no labels: labels must name their file, or label_column must name their column"
        raise DataError(f"{_file_of(rows)} {missing}" if rows else "there are no sequences")
    if _are_tags(labelled, form):
        return "tagging"
    texts = Counter(_one_label(row.label) for row in labelled)
    numbers = {text: number for text in texts if (number := _number(text)) is not None}
    if sum(texts[text] for text in numbers) >= 0.9 * len(labelled) and (
        len(numbers) > _MANY_CLASSES or not all(number.is_integer() for number in numbers.values())
    ):
        return "regression"
    return "recognition"


def _are_tags(rows: Sequence[Row], form: FileFormat) -> bool:
    written = [form.tags(row.label) for row in rows if row.label is not None]
    fitting = [len(tags) for tags, row in zip(written, rows, strict=True) if len(tags) == len(row.names)]
    if len(fitting) < 0.9 * len(rows) or max(fitting) < 2:
        return False
    if form.split == "blanks" or any(isinstance(row.label, list) for row in rows):
        return True
    # The characters of a class may be as many as those of every sequence by chance, if all are equally long.
    return len(set(fitting)) > 1 or len({str(row.label) for row in rows}) > _MANY_CLASSES


def _one_label(label: Any) -> str:
    return " ".join(label if isinstance(label, list) else str(label).split())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def checked_label(row: Row, goal: str, form: FileFormat) -> Any:
    """Return a label as its goal needs it: a class, a list of tags, a number, or None for next tokens."""
    if goal == "next_token":
        return None
    where = row.label_where or row.where
    if row.label is None:
        raise DataError(_NO_LABEL.format(where))
    if goal == "tagging":
        tags = form.tags(row.label)
        if len(tags) != len(row.names):
            raise DataError(f"{where}: {len(tags)} labels for {len(row.names)} tokens")
        return tags
    count = len(row.label) if isinstance(row.label, list) else bool(row.label.split())
    if not count:
        raise DataError(_NO_LABEL.format(where))
    if count != 1:
        raise DataError(
            f"{where}: must hold one label; got {count}.  The goal tagging takes a label for every token, "
            f"which are {len(row.names)} here"
        )
    text = _one_label(row.label)
    if goal == "recognition":
        return text
    number = _number(text)
    if number is None:
        raise DataError(f"{where}: must hold a finite number; got {text[:40]!r}")
    return number


def _json_rows(path: str, form: FileFormat, goal: str | None) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            plain = parsed_json(line)
        except JSONError as error:
            raise DataError(f"{where}: {str(error).replace('not JSON: line 1: ', 'not JSON: ')}") from None
        if not isinstance(plain, dict):
            raise DataError(f'{where}: must be an object with "tokens" (a list or a text) and "label" or "labels"')
        # "label" and "labels" may stand side by side: one for the sequence, one for its tokens.
        usual = _LABEL_COLUMNS_OF_TAGS if goal == "tagging" else LABEL_COLUMNS
        text, label = _columns(where, tuple(plain), form, goal, usual, "field")
        names = plain[text]
        if not isinstance(names, str | list):
            raise DataError(f'{where}: the field "{text}" must be a list or a text')
        split = form.tokens(names) if isinstance(names, str) else [_name(each, where, text) for each in names]
        yield Row(where, split, None if label is None else _json_label(plain[label], where, label))


def _json_label(value: Any, where: str, field: str) -> str | list[str]:
    if value is None:
        raise DataError(_NO_LABEL.format(where))
    return [_name(each, where, field) for each in value] if isinstance(value, list) else _name(value, where, field)


def _name(value: Any, where: str, field: str) -> str:
    if value is None or isinstance(value, dict | list):
        raise DataError(f'{where}: the field "{field}" must hold texts or numbers; got {value!r:.40}')
    return str(value)


def _table_rows(path: str, form: FileFormat, goal: str | None) -> Iterator[Row]:
    text = _text(path)
    limit = csv.field_size_limit(_LARGEST_CELL)
    try:
        yield from _cells(path, text, form, goal)
    finally:
        csv.field_size_limit(limit)


def _cells(path: str, text: str, form: FileFormat, goal: str | None) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text), delimiter=_DELIMITERS[Path(path).suffix.lower()], strict=True)
    header: list[str] | None = None
    columns: tuple[int, int | None] = (0, None)
    line = 1
    try:
        for cells in reader:
            where, line = f"{path}:{line}", reader.line_num + 1
            if not cells:  # an empty line
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                chosen, label = _columns(where, tuple(header), form, goal, LABEL_COLUMNS, "column")
                columns = header.index(chosen), None if label is None else header.index(label)
                continue
            if len(cells) != len(header):
                raise DataError(f"{where}: {len(cells)} cells, but line 1 names {len(header)} columns")
            names = form.tokens(cells[columns[0]])
            yield Row(where, names, None if columns[1] is None else cells[columns[1]].strip())
    except csv.Error as error:
        raise DataError(f"{path}:{line}: not CSV: {error}") from None


def _columns(
    where: str, columns: tuple[str, ...], form: FileFormat, goal: str | None, usual_labels: Sequence[str], word: str
) -> tuple[str, str | None]:
    """Return the names of the columns of the text and of the label, the second None where none is needed."""
    text = _column(where, columns, "text_column", form.text_column, TEXT_COLUMNS, word)
    if text is None:
        raise DataError(_missing(where, columns, "text_column", TEXT_COLUMNS, word))
    if goal == "next_token":
        return text, None
    label = _column(where, columns, "label_column", form.label_column, usual_labels, word)
    if label is None and goal is not None:
        raise DataError(_missing(where, columns, "label_column", usual_labels, word))
    if label == text:
        raise DataError(f"{where}: text_column and label_column must be two {word}s; got {text!r} for both")
    return text, label


def _column(
    where: str, columns: tuple[str, ...], argument: str, asked: str | None, usual: Sequence[str], word: str
) -> str | None:
    if asked is None:
        lower = {name.lower(): name for name in reversed(columns)}
        return next((lower[name] for name in usual if name in lower), None)
    if columns.count(asked) != 1:
        many = f"{word} {asked!r} occurs twice" if asked in columns else f"there is no {word} {asked!r}"
        raise DataError(f"{where}: {many}: {argument} must be one of {_listed(columns)}")
    return asked


def _missing(where: str, columns: tuple[str, ...], argument: str, usual: Sequence[str], word: str) -> str:
    return (
        f"{where}: no {word} is called {', '.join(usual[:3])} or the like; {argument} must name one of the {word}s "
        f"{_listed(columns)}" + _hint(columns, word)
    )


def _hint(columns: tuple[str, ...], word: str) -> str:
    """Return what a reader may not have thought of."""
    if word == "field":
        return " of this line"
    if len(columns) == 1 and ";" in columns[0]:
        return " (cells end at a comma in .csv and at a tab in .tsv, not at a semicolon)"
    return " (the first line names the columns)"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"{name[:40]!r}" for name in columns[:12]) + (", …" if len(columns) > 12 else "")


def _file_of(rows: Sequence[Row]) -> str:
    return rows[0].where.rsplit(":", 1)[0]


def _lines(path: str) -> list[str]:
    """Return the lines of a text file; only line ends separate them, not the rarer marks that Python also knows."""
    text = _text(path)
    return text.removesuffix("\n").split("\n") if text else []


def _text(path: str) -> str:
    pieces: list[bytes] = []
    try:
        for piece in pieces_of(path):
            if b"\0" in piece:  # looked for at once: a file of nothing else may be larger than all memory
                line = 1 + sum(each.count(b"\n") for each in pieces) + piece.count(b"\n", 0, piece.index(b"\0"))
                wide = b"".join(pieces)[:2] or piece[:2]
                hint = "perhaps UTF-16: convert it to UTF-8, for example with iconv"
                hint = hint if wide in (BOM_UTF16_LE, BOM_UTF16_BE) else "this is not a text file"
                raise DataError(f"{path}:{line}: a NUL byte: {hint}")
            pieces.append(piece)
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}") from None
    data = b"".join(pieces)
    try:
        text = data.decode("utf-8-sig")  # a byte order mark, as spreadsheets write it, belongs to no token
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line}: not UTF-8 text: byte {data[error.start]:#04x}; convert it, for example with iconv"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
