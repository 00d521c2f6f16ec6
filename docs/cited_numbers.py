"""Numbers that were measured, on the pages of the documentation: each must come from a committed record.

A number is covered if it stands in a part that a script makes (``<!-- NAME: made by docs/… -->``), in code, or right
before a comment that says where it comes from::

    the suite takes 41<!-- from: benchmarks/results/x.json#/measurements/seconds --> seconds

The comment names a record and a JSON pointer in it.  In the pointer ``~1`` is a slash, ``*`` goes through every entry,
and ``[key=value]`` through the entries with these values; ``mean``, ``min``, ``max``, ``sum`` or ``count`` before the
name makes one number of several.  What is written must be what the record holds, rounded to the digits that are
written; the unit after the number says how it is scaled.  A number without a unit is not noticed, if it is not a share
(7 of 10) or written in powers of ten.  ``python docs/cited_numbers.py`` lists what is not
covered, and a test expects that there is nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[1]

_DIGITS: Final = r"\d(?:[\d\u2009\u202f]|[ ,](?=\d{3}\b)|\.(?=\d))*(?:e-?\d+)?"
_UNITS: Final = (
    r"%|ms\b|µs\b|ns\b|s\b|seconds?\b|minutes?\b|min\b|hours?\b|h\b|×|times\b|[KMGT]i?B\b|kB\b|megabytes\b|gigabytes\b"
)
# A number with a unit of measurement, in powers of ten, or a share: 7 of 10.
_MEASURED: Final = re.compile(
    rf"(?<![\w.,/^-])(?:{_DIGITS}(?:\s?(?:{_UNITS})|(?= of (?:the |its |our )?\d))|\d(?:\.\d+)?e-?\d+)"
)
_CITED: Final = re.compile(
    rf"({_DIGITS})(?:\s?(?:{_UNITS}))?\s*<!-- from: "
    rf"(?:(mean|min|max|sum|count) )?([^#\s]+)#([^>]+?) -->(?:\s?({_UNITS}))?"
)
_COMMENT: Final = re.compile(r"<!-- from: [^>]*-->")
# What was predicted before a run stands for itself; what came out follows.
_PREDICTED: Final = r"^\*\*Predicted before the run\.\*\*.*?^\*\*What came out\*\*"
_SCALES: Final = {
    "%": 100.0,
    "ms": 1e3,
    "µs": 1e6,
    "ns": 1e9,
    "min": 1 / 60,
    "minute": 1 / 60,
    "minutes": 1 / 60,
    "h": 1 / 3600,
}
_REDUCED: Final[dict[str, Callable[[list[float]], float]]] = {
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "sum": sum,
    "count": len,
}

# Numbers that are no measurements: what a word is defined by, what the paper says, what an option is set to.
CONSTANTS: Final[dict[str, tuple[str, ...]]] = {
    "CHANGELOG.md": ("at most 32 MiB", "at most 256 MiB", "to 64 times the trained length"),  # bounds; a setting
    "docs/attention.md": ("at most 2T + 8 times",),
    "docs/automata.md": ("3 × 3 matrices", "comes back\nto 1e-8"),
    "docs/beyond.md": ("a batch is 98 % right",),
    "docs/certify.md": ("the 1e-4 head", "leaks of 2e-3 and 1e-3"),
    "docs/export.md": ("(float32 2e-4, float64 1e-11)", "more than 2 GiB"),  # tolerances, a limit of the format
    "docs/files.md": ("800 MiB", "more than 32 KiB"),  # bounds that readers keep
    "docs/filter.md": ("16 and 64 times as many",),
    "docs/fit.md": ("at 1×, to 2×, to 4×", "a 95 % interval", "at most 5 % of their standard deviation"),
    "docs/heads.md": ("keeps 1 % of the norm",),  # a threshold
    "docs/huggingface.md": ("206 MB",),  # V·d² numbers of float32
    "docs/induction.md": (  # levels of tests, settings of samples
        "0.6 to 1.5 times",
        "| at most 20 % |",
        "at most 1 % of the credit",
        "when rivals have more than 1 % (it was 5 %) of its credit",
        "and at 10 % *decimal multiples of 7*",
        "are of the first two, at 10 %",
    ),
    "docs/kernels.md": (
        "are 6 % of the bytes",
        "1.5 times tokens + states",
        "from 32 MiB of states",
        "up to 16 MiB of them",
        "d = 64: 8 MiB",
    ),  # 32 of 512; tests; tables of words
    "docs/language_models.md": (  # settings and rules of the plan
        "AdamW at 1e-3 with a cosine",
        "256 files of 2 048 bytes and 16 of 32 768",
        "which is 16 times the trained length",
        "the 95 % interval of its paired difference",
        "the goal of 0.2 % allows",
    ),
    "docs/own_words.md": ("99 % of the labels",),  # a threshold
    "docs/results.md": (
        "the paper's 5.9e-9",
        "the paper: 8.4e-2",
        "a rate of 2e-3",
        "within 5 %, where their sizes allow",
        "64 times the trained length",
        "16 and 64 times as much",
        "64 of 1 000 digits, 6 of 10 000, 4 of 100 000 tokens",
    ),
    "docs/sidecar.md": ("its 95 % confidence", "at most 3 % of training throughput and 2 % of decode latency"),  # goals
    "docs/training.md": (  # when a curriculum goes on; how often a test tries
        "a batch is 98 % right",
        "kills a run 200\ntimes, ends one 50 times by SIGTERM, and loads a model 10 000 times",
    ),
}


def uncovered(name: str, text: str) -> list[str]:
    """Return the numbers of a page that look measured and come from nowhere, each with its line's beginning.

    Args:
        name: The page, as ``CONSTANTS`` names it.
        text: What it says.
    """
    text = _blank(r"^(?P<fence> *(?:```|~~~)).*?^ *(?:```|~~~)\s*$", text, re.MULTILINE | re.DOTALL)
    text = _blank(r"<!-- (?P<part>[^>]+?): made by docs/\S+ -->.*?<!-- end of (?P=part) -->", text, re.DOTALL)
    text = _blank(_PREDICTED, text, re.MULTILINE | re.DOTALL)
    text = _CITED.sub(lambda match: " " * len(match[0]), text)
    text = _blank(r"<!--.*?-->", text, re.DOTALL)
    text = _blank(r"`[^`\n]*`", text)
    text = _blank(r"\]\([^)\n]*\)", text)
    text = _blank(r"!\[[^\]]*\]", text)
    for phrase in CONSTANTS.get(name, ()):
        text = text.replace(phrase, " " * len(phrase))
    lines = text.split("\n")
    starts = [match.start() for match in re.finditer(r"^", text, re.MULTILINE)]
    numbers = []
    for match in _MEASURED.finditer(text):
        line = sum(start <= match.start() for start in starts)
        around = lines[line - 1][max(0, match.start() - starts[line - 1] - 40) :][:90].strip()
        numbers.append(f"{name}:{line}: {match[0]!r} in “{around}”")
    return numbers


def _blank(pattern: str, text: str, flags: int = 0) -> str:
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=flags)


def wrong(name: str, text: str) -> list[str]:
    """Return the cited numbers of a page that their record does not hold."""
    mistakes = []
    read = [match.span() for match in _CITED.finditer(text)]
    for comment in _COMMENT.finditer(text):
        if not any(begin <= comment.start() and comment.end() <= end for begin, end in read):
            mistakes.append(f"{name}: {comment[0]}: no number stands before it, or it is not written as it should be")
    for match in _CITED.finditer(text):
        written, reducer, record, pointer = match[1], match[2], match[3], match[4]
        unit = re.match(rf"{_DIGITS}\s?({_UNITS})", match[0])
        scale = _SCALES.get((unit[1] if unit else match[5]) or "", 1.0)
        try:
            value = cited(record, pointer, reducer) * scale
        except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
            mistakes.append(f"{name}: {match[0]}: {type(error).__name__}: {error}")
            continue
        plain = re.sub(r"[\s\u2009\u202f,]", "", written)
        mantissa, _, power = plain.partition("e")
        digit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
        if not abs(float(plain) - value) <= 0.5000001 * digit:
            mistakes.append(f"{name}: {match[0]}: the record holds {value:.6g}")
    return mistakes


def cited(record: str, pointer: str, reducer: str | None = None) -> float:
    """Return the number that a comment names.

    Args:
        record: A JSON file, from the root of the repository; a pattern with ``*`` names several.
        pointer: Steps between slashes: a key, an index, ``*`` or ``[key=value,…]``.
        reducer: What makes one number of several; without it all must be equal.
    """
    paths = sorted(ROOT.glob(record))
    if not paths:
        raise OSError(f"there is no {record}")
    values: list[Any] = [json.loads(path.read_text()) for path in paths]
    for step in pointer.strip("/").split("/"):
        values = [inner for value in values for inner in _below(value, step.replace("~1", "/"))]
    if not values:
        raise KeyError(f"{pointer} names nothing")
    if reducer is None:
        if any(value != values[0] for value in values):
            raise ValueError(f"{pointer} names {len(values)} different numbers: say mean, min, max, sum or count")
        return float(values[0])
    return float(_REDUCED[reducer](values))


def _below(value: Any, step: str) -> Iterable[Any]:
    if step == "*":
        return list(value.values()) if isinstance(value, dict) else list(value)
    if step.startswith("["):
        asked = dict(one.split("=", 1) for one in step[1:-1].split(","))
        entries = value.values() if isinstance(value, dict) else value
        return [one for one in entries if all(str(one.get(key)) == text for key, text in asked.items())]
    return [value[int(step)] if isinstance(value, list) else value[step]]


def pages() -> dict[str, Path]:
    """Return every page that a reader meets, by its name from the root of the repository."""
    paths = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
    paths += sorted((ROOT / "docs").rglob("*.md"))
    return {str(path.relative_to(ROOT)): path for path in paths}


def main() -> None:
    """List what is not covered, and what is wrong; with the names of pages, on these alone."""
    chosen = {name: path for name, path in pages().items() if not sys.argv[1:] or name in sys.argv[1:]}
    lines = [
        line
        for name, path in chosen.items()
        for line in (*wrong(name, path.read_text()), *uncovered(name, path.read_text()))
    ]
    print("\n".join(lines))
    print(f"{len(lines)} numbers on {len(chosen)} pages")


if __name__ == "__main__":
    main()
