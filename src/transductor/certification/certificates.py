"""Certificates of agreement: values that can be written, read, and computed again from the numbers they hold."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.balls import Array
from transductor.certification.placements import Placement
from transductor.certification.replay import Blocks, spelled
from transductor.certification.subjects import Subject, subject_of
from transductor.results import write_atomically

FORMAT: Final = "transductor-certificate"
VERSION: Final = 1
About = Literal["labels", "model", "head", "series"]
_PLACED: Final = ("places", "form", "extra", "targets")


class CertificateError(ValueError):
    """A certificate that is damaged, altered, or not about this model; the message says what does not hold."""


@dataclass(frozen=True, eq=False)
class Question:
    """Does this head, with what reads it, agree with this machine (or series) on every word of this domain?

    Attributes:
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


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was found by searching: where states lie, and a word on which the two differ."""

    placement: Placement | None = None
    word: Blocks | None = None


@dataclass(frozen=True, eq=False)
class AgreementCertificate:
    """An answer to a :class:`Question`.

    Attributes:
        about: ``"labels"`` (the argmax of a readout), ``"model"`` (of a whole model), ``"head"`` (its states alone) or
            ``"series"`` (a real value).
        outcome: ``"proved"`` for all lengths, ``"refuted"`` by :attr:`word`, or ``"bounded"``: see :attr:`holds_up_to`.
        holds_up_to: No word up to this length is wrong; None for all lengths.
        method: How this is known.
        margin: The least distance between the right answer and its rivals that is left after rounding.
        numbers: What the answer rests on; see the method.
        assumptions: What is taken for granted about the arithmetic.
    """

    question: Question
    evidence: Evidence
    about: About
    outcome: Literal["proved", "refuted", "bounded"]
    holds_up_to: int | None
    method: str
    margin: float | None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()

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
        if self.outcome == "refuted" and self.evidence.word is not None:
            what = {
                "labels": "the label of the readout is not the machine's",
                "model": "the label of the model is not the machine's",
                "head": "token and state of the head do not determine the machine's label",
                "series": "the value of the readout is not the automaton's",
            }[self.about]
            known = f"; no word of at most {self.holds_up_to} letters is wrong" if self.holds_up_to else ""
            return f"after {_blocks_shown(self.evidence.word)} ({len(self.word or ())} letters) {what}{known}"
        what = {
            "labels": "the label of the readout is the machine's",
            "model": "the label of the model is the machine's",
            "head": "token and state of the head determine the machine's label",
            "series": "the value of the readout is the automaton's",
        }[self.about]
        if self.question.tolerance:
            what += f" to {self.question.tolerance:g} of the sum of absolute values of its paths"
        if self.holds_up_to == 0:
            return f"of no word is it known that {what}"
        length = "" if self.holds_up_to is None else f" of at most {self.holds_up_to} letters"
        return f"after every word{' of the domain' if self.question.domain else ''}{length} {what}"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.claim} ({self.method})"

    def plain(self) -> dict[str, Any]:
        """As JSON writes it, with the digest of its content."""
        content = {"format": FORMAT, "version": VERSION, **_plain(self), "versions": _versions()}
        return content | {"sha256": _digest(content)}

    def write(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        return write_atomically(path, (json.dumps(self.plain(), indent=1, allow_nan=False) + "\n").encode())


def _blocks_shown(blocks: Blocks) -> str:
    parts = [
        f"{' '.join(map(str, letters[:8]))}{' …' if len(letters) > 8 else ''}" if times == 1
        else f"({' '.join(map(str, letters))})^{times}"
        for letters, times in blocks[:4]
    ]  # fmt: skip
    return " ".join(parts) + (" …" if len(blocks) > 4 else "")


def _versions() -> dict[str, str]:
    found = {}
    for package in ("transductor", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _plain(certificate: AgreementCertificate) -> dict[str, Any]:
    """Everything but format, versions and digest."""
    question, evidence = certificate.question, certificate.evidence
    placement = evidence.placement
    found = None
    if placement is not None:
        found = {"norm": placement.kind} | {name: _array(getattr(placement, name)) for name in _PLACED}
    return {
        "verdict": certificate.verdict,
        "claim": certificate.claim,
        "about": certificate.about,
        "outcome": certificate.outcome,
        "holds_up_to": certificate.holds_up_to,
        "method": certificate.method,
        "margin": certificate.margin,
        "numbers": dict(certificate.numbers),
        "assumptions": list(certificate.assumptions),
        "horizon": question.horizon,
        "tolerance": question.tolerance,
        "word": None if evidence.word is None else [[list(letters), times] for letters, times in evidence.word],
        "subject": {
            "precision": question.subject.precision,
            "lookback": question.subject.lookback,
            "tensors": {name: _array(values) for name, values in question.subject.tensors().items()},
        },
        "machine": _machine(question.machine),
        "series": _series(question.series),
        "domain": _machine(question.domain),
        "placement": found,
    }


def _array(values: Array | None) -> dict[str, Any] | None:
    """Bytes, little-endian, with dtype, shape and a digest of all three."""
    if values is None:
        return None
    data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    shown = {"dtype": values.dtype.name, "shape": list(values.shape), "data": base64.b64encode(data).decode()}
    return shown | {"sha256": _digest(shown)}


def _read_array(plain: Any, name: str) -> Array:
    if not isinstance(plain, dict) or plain.get("dtype") not in ("float32", "float64", "int64"):
        raise CertificateError(f"{name} must be an array of float32, float64 or int64")
    try:
        data = base64.b64decode(plain["data"], validate=True)
        shape = tuple(int(size) for size in plain["shape"])
        dtype = np.dtype(plain["dtype"]).newbyteorder("<")
        values = np.frombuffer(data, dtype).reshape(shape).astype(plain["dtype"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CertificateError(f"{name} is not a whole array: {error}") from error
    if plain.get("sha256") != _digest({part: plain[part] for part in ("dtype", "shape", "data")}):
        raise CertificateError(f"{name} was altered: its SHA-256 is not the one beside it")
    return values


def _machine(machine: MooreMachine | None) -> dict[str, Any] | None:
    if machine is None:
        return None
    shown = {"transitions": machine.transitions.tolist(), "outputs": machine.outputs.tolist(), "start": machine.start}
    return shown | {"sha256": _digest(shown)}


def _read_machine(plain: Any) -> MooreMachine | None:
    if plain is None:
        return None
    return MooreMachine(
        np.array(plain["transitions"], dtype=np.int64), np.array(plain["outputs"], dtype=np.int64), plain["start"]
    )


def _series(series: WeightedAutomaton | None) -> dict[str, Any] | None:
    """Fractions as text."""
    if series is None:
        return None
    rational = series.over("rational")
    parts = {"initial": rational.initial, "matrices": rational.matrices, "final": rational.final}
    shown = {name: np.vectorize(str, otypes=[object])(values).tolist() for name, values in parts.items()}
    return shown | {"sha256": _digest(shown)}


def _read_series(plain: Any) -> WeightedAutomaton | None:
    if plain is None:
        return None
    initial, matrices, final = (
        np.vectorize(Fraction, otypes=[object])(np.array(plain[name], dtype=object))
        for name in ("initial", "matrices", "final")
    )
    return WeightedAutomaton(initial, matrices, final, tuple(range(len(matrices))))


def _read_placement(plain: Any) -> Placement | None:
    if plain is None:
        return None
    arrays = {name: None if plain[name] is None else _read_array(plain[name], f"placement.{name}") for name in _PLACED}
    return Placement(kind=plain["norm"], **arrays)  # type: ignore[arg-type]


def _asked(plain: Mapping[str, Any]) -> tuple[Question, Evidence]:
    """The question and the evidence of a certificate."""
    given = plain["subject"]
    tensors = {name: _read_array(values, name) for name, values in given["tensors"].items()}
    subject = Subject(
        tensors["table"],
        tensors["initial"],
        tensors.get("weight"),
        tensors.get("bias"),
        given["precision"],
        given["lookback"],
        {name.removeprefix("stream."): values for name, values in tensors.items() if name.startswith("stream.")},
    )
    question = Question(
        subject,
        _read_machine(plain["machine"]),
        _read_series(plain["series"]),
        _read_machine(plain["domain"]),
        plain["horizon"],
        plain["tolerance"],
    )
    word = None if plain["word"] is None else tuple((tuple(letters), times) for letters, times in plain["word"])
    if word is not None and not 0 < sum(len(letters) * times for letters, times in word) <= question.horizon:
        raise CertificateError(f"word must have between 1 and {question.horizon} letters")
    return question, Evidence(_read_placement(plain["placement"]), word)


def _content(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
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
    if plain.get("sha256") != _digest({name: value for name, value in plain.items() if name != "sha256"}):
        raise CertificateError("the certificate was altered: its SHA-256 is not that of its content")
    return plain


def check_certificate(
    source: str | Path | Mapping[str, Any] | AgreementCertificate, model: Any = None
) -> AgreementCertificate:
    """Compute a certificate again from the numbers it holds; what comes back was computed here.

    Args:
        source: A file, its JSON value, or a certificate.
        model: What the certificate should be about: its numbers must be the certified ones, and a word that refutes
            must refute it.  A head with a readout is given as the pair of both.

    Raises:
        CertificateError: If it is damaged, or if anything in it is not what follows from its numbers.
    """
    from transductor.certification.verdicts import judged

    plain = _content(source.plain() if isinstance(source, AgreementCertificate) else source)
    try:
        question, evidence = _asked(plain)
        certificate = judged(question, evidence)
    except CertificateError:
        raise
    except Exception as error:  # whatever altered numbers break, it is the certificate that is wrong
        raise CertificateError(f"the certificate does not hold: {error!r}") from error
    found = _plain(certificate)
    given = {name: value for name, value in plain.items() if name not in ("format", "version", "versions", "sha256")}
    for name in (*found, *given):
        if name not in given or json.dumps(found.get(name), sort_keys=True) != json.dumps(given[name], sort_keys=True):
            raise CertificateError(
                f"the certificate does not hold: {name} is {_short(given.get(name))}, but {_short(found.get(name))} "
                "follows from its numbers"
            )
    if model is not None:
        _check_model(certificate, model)
    return certificate


def read_certificate(path: str | Path) -> AgreementCertificate:
    """Read what :meth:`AgreementCertificate.write` wrote, and check it; see :func:`check_certificate`."""
    return check_certificate(path)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "…"


def _check_model(certificate: AgreementCertificate, model: Any) -> None:
    """The model's numbers are the certified ones, and it is wrong where the certificate says so."""
    pair = model if isinstance(model, tuple) else (model, None)
    subject, certified = subject_of(*pair)[0], certificate.question.subject
    mine, theirs = subject.tensors(), certified.tensors()
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in mine or name not in theirs:
            raise CertificateError(f"the certificate is not about this model: only one of the two has {name}")
        if mine[name].dtype != theirs[name].dtype or not np.array_equal(mine[name], theirs[name]):
            raise CertificateError(f"the certificate is not about this model: {name} differs")
    if (subject.precision, subject.lookback) != (certified.precision, certified.lookback):
        raise CertificateError("the certificate is not about this model: precision or kind of head differs")
    if certificate.outcome == "refuted" and certificate.about != "head":
        from transductor.certification.verdicts import shows_the_difference

        if not shows_the_difference(certificate, *pair):
            raise CertificateError("the word of the certificate does not refute this model on this machine")
