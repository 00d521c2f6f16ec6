"""Certificates of agreement as values, and the files they are written to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.bounds.anchors import Anchors
from transductor.certification.encoding import (
    CertificateError,
    decoded_array,
    decoded_machine,
    decoded_series,
    digest,
    encoded_array,
    encoded_machine,
    encoded_series,
    optional,
)
from transductor.certification.replay import Blocks, spelled
from transductor.certification.subjects import Subject
from transductor.results import write_atomically

FORMAT: Final = "transductor-certificate"
VERSION: Final = 1
About = Literal["labels", "model", "head", "series"]

# Arrays of the anchors: their names in a file, and in the value.
_ANCHOR_ARRAYS: Final = {"places": "points", "form": "form", "extra": "extra", "targets": "targets"}
# What agrees, and what does not.
_CLAIMS: Final[dict[About, tuple[str, str]]] = {
    "labels": ("the label of the readout is the machine's", "the label of the readout is not the machine's"),
    "model": ("the label of the model is the machine's", "the label of the model is not the machine's"),
    "head": (
        "token and state of the head determine the machine's label",
        "token and state of the head do not determine the machine's label",
    ),
    "series": ("the value of the readout is the automaton's", "the value of the readout is not the automaton's"),
}


@dataclass(frozen=True, eq=False)
class Question:
    """Does this head, with what reads it, agree with this machine (or series) on every word of this domain?

    Attributes:
        subject: The numbers of the head and of what reads it.
        machine: The machine, if the question is about labels.
        series: The weighted automaton, if the question is about values.
        domain: Label 1 on the words that can occur, which are closed under prefixes; None for all words.
        horizon: The longest length that an answer speaks of where there is no proof for all lengths.
        tolerance: For a series: how much values may differ, relative to the sum of absolute values of all paths.
    """

    subject: Subject
    machine: MooreMachine | None = None
    series: WeightedAutomaton | None = None
    domain: MooreMachine | None = None
    horizon: int = 10**6
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if (self.machine is None) == (self.series is None):
            raise ValueError("a question must be about a machine or about a series")
        counts = {
            "against": len(self.series.alphabet) if self.series is not None else self.target.letters,
            "domain": self.subject.letters if self.domain is None else self.domain.letters,
        }
        for name, letters in counts.items():
            if letters != self.subject.letters:
                raise ValueError(
                    f"{name} must have one letter for each of the head's {self.subject.letters} tokens; got {letters}"
                )
        if type(self.horizon) is not int or self.horizon < 1:
            raise ValueError(f"horizon must be a positive integer; got {self.horizon!r}")
        if type(self.tolerance) is not float or not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie in [0, 1); got {self.tolerance!r}")
        if self.machine is not None and self.tolerance:
            raise ValueError("tolerance is for weighted automata; labels are equal or not")
        classes = self.subject.classes
        if self.machine is not None and classes is not None:
            labels = self.machine.outputs[self.machine.outputs != IGNORED]
            if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
                raise ValueError(
                    f"against must have labels in [0, {classes}), what the readout can show; "
                    f"got {sorted(set(labels.tolist()))[:8]}"
                )

    @property
    def target(self) -> MooreMachine:
        """The machine of a question about labels."""
        assert self.machine is not None
        return self.machine


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a search brought: anchor points for the machine's states, and a word on which the two differ."""

    anchors: Anchors | None = None
    word: Blocks | None = None


@dataclass(frozen=True, eq=False)
class AgreementCertificate:
    """An answer to a :class:`Question`.

    Attributes:
        question: What was asked.
        about: ``"labels"`` (the argmax of a readout), ``"model"`` (of a complete model), ``"head"`` (its states alone)
            or ``"series"`` (a real value).
        outcome: ``"proved"`` for all lengths, ``"refuted"`` by :attr:`word`, or ``"bounded"``: see :attr:`holds_up_to`.
        method: How this is known.
        holds_up_to: No word up to this length is wrong; None for all lengths.
        margin: The least distance between the right answer and its rivals that is left after rounding.
        numbers: What the answer rests on; see the method.
        assumptions: What is taken for granted about the arithmetic.
        evidence: What the answer rests on that was searched for.
    """

    question: Question
    about: About
    outcome: Literal["proved", "refuted", "bounded"]
    method: str
    holds_up_to: int | None = None
    margin: float | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def verdict(self) -> str:
        """``"proved"``, ``"refuted"`` or ``"holds up to N"``."""
        return f"holds up to {self.holds_up_to}" if self.outcome == "bounded" else self.outcome

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against agreement: proved, or unrefuted with a horizon of at least one letter."""
        return self.outcome != "refuted" and self.holds_up_to != 0

    @property
    def word(self) -> tuple[int, ...] | None:
        """Tokens on which the two differ."""
        return None if self.evidence.word is None else spelled(self.evidence.word)

    @property
    def claim(self) -> str:
        """The statement in words."""
        agrees, differs = _CLAIMS[self.about]
        if self.outcome == "refuted" and self.evidence.word is not None:
            known = f"; no word of at most {self.holds_up_to} letters is wrong" if self.holds_up_to else ""
            return f"after {_blocks_as_text(self.evidence.word)} ({len(self.word or ())} letters) {differs}{known}"
        if self.question.tolerance:
            agrees += f" to {self.question.tolerance:g} of the sum of absolute values of its paths"
        if self.holds_up_to == 0:
            return f"of no word is it known that {agrees}"
        length = "" if self.holds_up_to is None else f" of at most {self.holds_up_to} letters"
        return f"after every word{' of the domain' if self.question.domain else ''}{length} {agrees}"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.claim} ({self.method})"

    def content(self) -> dict[str, Any]:
        """Return everything that a file holds but its format, versions and digest."""
        question, word = self.question, self.evidence.word
        return {
            "verdict": self.verdict,
            "claim": self.claim,
            "about": self.about,
            "outcome": self.outcome,
            "holds_up_to": self.holds_up_to,
            "method": self.method,
            "margin": self.margin,
            "numbers": dict(self.numbers),
            "assumptions": list(self.assumptions),
            "horizon": question.horizon,
            "tolerance": question.tolerance,
            "word": None if word is None else [[list(letters), times] for letters, times in word],
            "subject": {
                "precision": question.subject.precision,
                "lookback": question.subject.lookback,
                "tensors": {name: encoded_array(values) for name, values in question.subject.tensors().items()},
            },
            "machine": optional(encoded_machine, question.machine),
            "series": optional(encoded_series, question.series),
            "domain": optional(encoded_machine, question.domain),
            "placement": optional(_encoded_anchors, self.evidence.anchors),
        }

    def plain(self) -> dict[str, Any]:
        """Return the JSON value of the file, with the digest of its content."""
        content = {"format": FORMAT, "version": VERSION, **self.content(), "versions": _versions()}
        return content | {"sha256": digest(content)}

    def write(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        return write_atomically(path, (json.dumps(self.plain(), indent=1, allow_nan=False) + "\n").encode())


def _blocks_as_text(blocks: Blocks) -> str:
    parts = [
        f"{' '.join(map(str, letters[:8]))}{' …' if len(letters) > 8 else ''}" if times == 1
        else f"({' '.join(map(str, letters))})^{times}"
        for letters, times in blocks[:4]
    ]  # fmt: skip
    return " ".join(parts) + (" …" if len(blocks) > 4 else "")


def _versions() -> dict[str, str]:
    versions = {}
    for package in ("transductor", "torch", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def read_content(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a certificate file or JSON value, without format, versions and digest."""
    if isinstance(source, Mapping):
        plain: Any = source
    else:
        try:
            plain = json.loads(Path(source).read_text())
        except OSError as error:
            raise CertificateError(f"{source} cannot be read: {error.strerror}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise CertificateError(f"{source} is not JSON: {error}") from error
    if not isinstance(plain, Mapping) or plain.get("format") != FORMAT:
        raise CertificateError(f'a certificate must say "format": "{FORMAT}"')
    if plain.get("version") != VERSION or type(plain["version"]) is not int:
        raise CertificateError(f"the certificate has version {plain.get('version')!r}; this release reads {VERSION}")
    if plain.get("sha256") != digest({name: value for name, value in plain.items() if name != "sha256"}):
        raise CertificateError("the certificate was altered: its SHA-256 is not that of its content")
    return {name: value for name, value in plain.items() if name not in ("format", "version", "versions", "sha256")}


def question_of(content: Mapping[str, Any]) -> Question:
    """Return the question that a certificate answers."""
    subject = content["subject"]
    tensors = {name: decoded_array(values, name) for name, values in subject["tensors"].items()}
    return Question(
        Subject(
            tensors["table"],
            tensors["initial"],
            tensors.get("weight"),
            tensors.get("bias"),
            subject["precision"],
            subject["lookback"],
            {name.removeprefix("stream."): values for name, values in tensors.items() if name.startswith("stream.")},
        ),
        machine=optional(decoded_machine, content["machine"]),
        series=optional(decoded_series, content["series"]),
        domain=optional(decoded_machine, content["domain"]),
        horizon=content["horizon"],
        tolerance=content["tolerance"],
    )


def evidence_of(content: Mapping[str, Any]) -> Evidence:
    """Return the evidence that a certificate holds."""
    word = content["word"]
    if word is not None:
        word = tuple((tuple(letters), times) for letters, times in word)
        if not 0 < sum(len(letters) * times for letters, times in word) <= content["horizon"]:
            raise CertificateError(f"word must have between 1 and {content['horizon']} letters")
    return Evidence(optional(_decoded_anchors, content["placement"]), word)


def _encoded_anchors(anchors: Anchors) -> dict[str, Any]:
    arrays = {key: optional(encoded_array, getattr(anchors, name)) for key, name in _ANCHOR_ARRAYS.items()}
    return {"norm": anchors.kind, **arrays}


def _decoded_anchors(plain: Any) -> Anchors:
    arrays: Any = {
        name: None if plain[key] is None else decoded_array(plain[key], f"placement.{key}")
        for key, name in _ANCHOR_ARRAYS.items()
    }
    return Anchors(kind=plain["norm"], **arrays)
