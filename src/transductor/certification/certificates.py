"""Certificates of agreement as values, and the files they are written to."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.ball_arithmetic import Array
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
from transductor.certification.proof_objects import invariant_of
from transductor.certification.reachability import Graph, TooManyStates, product_graph
from transductor.certification.replay import Blocks, spelled
from transductor.certification.subjects import Attention, Subject
from transductor.json_reading import JSONError, read_json
from transductor.results import write_atomically

FORMAT: Final = "transductor-certificate"
VERSION: Final = 2
LARGEST_FILE: Final = 256 * 2**20
LONGEST_WORD: Final = 10**7
Outcome = Literal["proved", "refuted", "bounded", "separated", "confused"]
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
        letters: The names of the tokens, in their order; their numbers where nothing else is said.
        classes: The names of the labels 0, 1, …; None where they have no others.
    """

    subject: Subject
    machine: MooreMachine | None = None
    series: WeightedAutomaton | None = None
    domain: MooreMachine | None = None
    horizon: int = 10**6
    tolerance: float = 0.0
    letters: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.letters:
            object.__setattr__(self, "letters", tuple(map(str, range(self.subject.letters))))
        _check_names("letters", self.letters, self.subject.letters)
        if self.classes is not None:
            _check_names("classes", self.classes, self.subject.classes)
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
        if self.domain is not None:
            _check_domain(self.domain)
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


def _check_names(argument: str, names: Sequence[str], count: int | None) -> None:
    if not all(type(name) is str and name for name in names) or len(set(names)) != len(names):
        raise ValueError(f"{argument} must be names, each of them once; got {list(names)[:8]}")
    if count is not None and len(names) != count:
        raise ValueError(f"{argument} must be {count} names, one for each; got {len(names)}")


def _check_domain(domain: MooreMachine) -> None:
    """Refuse a domain that is empty, or holds a word without its beginnings."""
    inside = domain.outputs == 1
    if not inside[domain.start] or not inside[domain.transitions[domain.start]].any():
        raise ValueError("domain must hold the empty word and at least one letter")
    try:
        graph = product_graph(domain, None)  # its labels are those of the states that words reach
    except TooManyStates as error:
        raise ValueError(f"domain must be smaller: {error}") from error
    if ((graph.labels[graph.source] != 1) & (graph.labels[graph.target] == 1)).any():
        raise ValueError("domain must be closed under prefixes: a word outside it can be continued to one inside")


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a search brought: anchor points for the machine's states, and a word on which the two differ.

    ``length`` is what a certificate of a model with attention says it holds up to: it is looked at, where a search
    would look at many.
    """

    anchors: Anchors | None = None
    word: Blocks | None = None
    length: int | None = None


@dataclass(frozen=True, eq=False)
class AgreementCertificate:
    """An answer to a :class:`Question`.

    Attributes:
        question: What was asked.
        about: ``"labels"`` (the argmax of a readout), ``"model"`` (of a complete model), ``"head"`` (its states alone)
            or ``"series"`` (a real value).
        outcome: ``"proved"`` for all lengths, ``"refuted"`` by :attr:`word`, or ``"bounded"``: see :attr:`holds_up_to`.
            Of a head alone: ``"separated"`` for all lengths, ``"confused"`` on :attr:`word`, or ``"bounded"``.
        method: How this is known.
        holds_up_to: No word up to this length is wrong; None for all lengths.
        margin: The least distance between the right answer and its rivals that is left after rounding.
        numbers: What the answer rests on; see the method.
        assumptions: What is taken for granted about the arithmetic.
        covers: The ways to run the model of which this is said.
        evidence: What the answer rests on that was searched for.
        model: The checkpoint that this is about: the SHA-256 of its weights and its configuration; None for a head with
            a readout that no checkpoint holds together.
        reached: For a proof by reachability: the graph of what words reach, and the head's states there ``(D, n)``.
    """

    question: Question
    about: About
    outcome: Outcome
    method: str
    holds_up_to: int | None = None
    margin: float | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    model: Mapping[str, Any] | None = None
    reached: tuple[Graph, Array] | None = None

    @property
    def verdict(self) -> str:
        """``"proved"``, ``"refuted"`` or ``"holds up to N"``; of a head alone, that it is separated or confused."""
        if self.outcome != "bounded":
            return self.outcome
        return f"{'separated' if self.about == 'head' else 'holds'} up to {self.holds_up_to}"

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against agreement: for all lengths, or up to a length of at least one letter."""
        return self.outcome not in ("refuted", "confused") and self.holds_up_to != 0

    @property
    def word(self) -> tuple[int, ...] | None:
        """Tokens on which the two differ."""
        return None if self.evidence.word is None else spelled(self.evidence.word)

    @property
    def claim(self) -> str:
        """The statement in words."""
        agrees, differs = _CLAIMS[self.about]
        if self.outcome in ("refuted", "confused") and self.evidence.word is not None:
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
            "covers": list(self.covers),
            "horizon": None if self.holds_up_to is None else question.horizon,  # of no meaning for all lengths
            "tolerance": question.tolerance,
            "word": None if word is None else [[list(letters), times] for letters, times in word],
            "letters": list(question.letters),
            "classes": optional(list, question.classes),
            "model": optional(dict, self.model),
            "subject": {
                "streamed": question.subject.streamed,
                "attention": optional(asdict, question.subject.attention),
                "precision": question.subject.precision,
                "lookback": question.subject.lookback,
                "tensors": {name: encoded_array(values) for name, values in question.subject.tensors().items()},
            },
            "machine": optional(encoded_machine, question.machine),
            "series": optional(encoded_series, question.series),
            "domain": optional(encoded_machine, question.domain),
            "placement": optional(_encoded_anchors, self.evidence.anchors),
            "invariant": self.invariant,
        }

    @cached_property
    def invariant(self) -> dict[str, Any] | None:
        """The proof object: every node and edge that words reach, with every logit as an interval.

        None where nothing was proved by reachability, and where it would be too large.
        """
        if self.outcome != "proved" or self.reached is None:
            return None
        graph, states = self.reached
        return invariant_of(self.question.subject, graph, states, self.question.target, self.question.domain)

    def plain(self) -> dict[str, Any]:
        """Return the JSON value of the file, with the digest of its content."""
        content = {"format": FORMAT, "version": VERSION, **self.content()}
        return content | {"sha256": digest(content)}

    def write(self, path: str | Path) -> Path:
        """Write as JSON, atomically; compressed where the name ends in ``.gz``."""
        data = (json.dumps(self.plain(), indent=1, allow_nan=False) + "\n").encode()
        return write_atomically(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def _blocks_as_text(blocks: Blocks) -> str:
    parts = [
        f"{' '.join(map(str, letters[:8]))}{' …' if len(letters) > 8 else ''}" if times == 1
        else f"({' '.join(map(str, letters))})^{times}"
        for letters, times in blocks[:4]
    ]  # fmt: skip
    return " ".join(parts) + (" …" if len(blocks) > 4 else "")


def read_content(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a certificate file or JSON value, without format and digest.

    Certificates of version 1 lack what later ones hold; see :func:`~transductor.certification.check_certificate`.
    """
    if isinstance(source, Mapping):
        plain: Any = source
    else:
        try:
            plain = read_json(source, most_bytes=LARGEST_FILE)
        except JSONError as error:
            raise CertificateError(str(error)) from error
    if not isinstance(plain, Mapping) or plain.get("format") != FORMAT:
        raise CertificateError(f'a certificate must say "format": "{FORMAT}"')
    if plain.get("version") not in (1, VERSION) or type(plain["version"]) is not int:
        version = repr(plain.get("version"))
        raise CertificateError(f"the certificate has version {version:.40}; this release reads 1 and {VERSION}")
    if plain.get("sha256") != digest({name: value for name, value in plain.items() if name != "sha256"}):
        raise CertificateError("the certificate was altered: its SHA-256 is not that of its content")
    return {name: value for name, value in plain.items() if name not in ("format", "sha256")}


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
            streamed=subject.get("streamed", True),
            attention=optional(lambda plain: Attention(**plain), subject.get("attention")),
        ),
        machine=optional(decoded_machine, content["machine"]),
        series=optional(decoded_series, content["series"]),
        domain=optional(decoded_machine, content["domain"]),
        horizon=10**6 if content["horizon"] is None else content["horizon"],
        tolerance=content["tolerance"],
        letters=_names(content.get("letters", _UNNAMED), "letters"),
        classes=None if content.get("classes") is None else _names(content["classes"], "classes"),
    )


_UNNAMED: Final = object()  # of a certificate of version 1


def _names(plain: Any, name: str) -> tuple[str, ...]:
    if plain is _UNNAMED:
        return ()
    if not isinstance(plain, list) or not plain:
        raise CertificateError(f"{name} must be a list of names")
    return tuple(plain)


def identity_of(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the checkpoint that a certificate is about, as it says itself."""
    model = content["model"]
    if model is None:
        return None
    if not isinstance(model, dict) or set(model) != {"sha256", "config"} or not isinstance(model["config"], dict):
        raise CertificateError("model must say sha256 and config, or be null")
    if not isinstance(model["sha256"], str) or not re.fullmatch("[0-9a-f]{64}", model["sha256"]):
        raise CertificateError("model.sha256 must be 64 hexadecimal digits")
    return model


_UP_TO_A_LENGTH: Final = "model", "bounded"


def evidence_of(content: Mapping[str, Any]) -> Evidence:
    """Return the evidence that a certificate holds."""
    word = content["word"]
    if word is not None:
        word = tuple((tuple(letters), times) for letters, times in word)
        longest = min(content["horizon"] or 0, LONGEST_WORD)
        if not 0 < sum(len(letters) * times for letters, times in word) <= longest:
            raise CertificateError(f"word must have between 1 and {longest} letters")
    length = None
    if content["subject"].get("attention") is not None and (content["about"], content["outcome"]) == _UP_TO_A_LENGTH:
        length = content["holds_up_to"]
        if type(length) is not int or length < 1:
            raise CertificateError(f"holds_up_to must be a positive integer; got {str(length)[:40]}")
    return Evidence(optional(_decoded_anchors, content["placement"]), word, length)


def _encoded_anchors(anchors: Anchors) -> dict[str, Any]:
    arrays = {key: optional(encoded_array, getattr(anchors, name)) for key, name in _ANCHOR_ARRAYS.items()}
    return {"norm": anchors.kind, **arrays}


def _decoded_anchors(plain: Any) -> Anchors:
    arrays: Any = {
        name: None if plain[key] is None else decoded_array(plain[key], f"placement.{key}")
        for key, name in _ANCHOR_ARRAYS.items()
    }
    return Anchors(kind=plain["norm"], **arrays)
