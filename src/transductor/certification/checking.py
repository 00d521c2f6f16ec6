"""Checks a certificate by computing it again from the numbers it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from transductor.automata.finite_automata import DFA
from transductor.automata.moore import MooreMachine
from transductor.automata.reduction import equivalent
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.certificate_fields import CertificateFields
from transductor.certification.certificates import (
    AgreementCertificate,
    evidence_of,
    identity_of,
    question_of,
    read_content,
)
from transductor.certification.checker import CheckError
from transductor.certification.encoding import CertificateError
from transductor.certification.exactness import analysed, head_alone
from transductor.certification.model_answers import is_refuted
from transductor.certification.naming import in_token_order
from transductor.certification.proof_objects import check_stated
from transductor.certification.subjects import subject_of
from transductor.certification.verdicts import judged
from transductor.json_reading import brief
from transductor.model import checkpoint_identity
from transductor.typed_values import check_kind


def check_certificate(
    source: str | Path | Mapping[str, Any] | AgreementCertificate,
    model: Any = None,
    against: MooreMachine | DFA | WeightedAutomaton | None = None,
    *,
    letters: Sequence[str] | None = None,
) -> AgreementCertificate:
    """Compute a certificate again from the numbers it holds, and return the one computed here.

    Args:
        source: A file, its JSON value, or a certificate.
        model: What the certificate should be about: its numbers must be the certified ones, of the same checkpoint, and
            a word that refutes must refute it.  A head with a readout is given as the pair of both.
        against: The specification that the certificate should be about: it must agree with the certificate's on every
            word.  Letters are matched by name.
        letters: The names of the letters of ``against``; left out, those of its alphabet, and for a Moore machine the
            numbers 0, 1, ….

    Raises:
        CertificateError: If it is damaged, or if anything in it is not what follows from its numbers.
    """
    if isinstance(source, str | Path):
        try:
            return _checked(source, model, against, letters)
        except CertificateError as error:
            named = str(source) in str(error)  # what cannot be read names its file already
            raise error if named else CertificateError(f"{source}: {error}") from error
    return _checked(source.plain() if isinstance(source, AgreementCertificate) else source, model, against, letters)


def _checked(
    source: str | Path | Mapping[str, Any],
    model: Any,
    against: MooreMachine | DFA | WeightedAutomaton | None,
    letters: Sequence[str] | None,
) -> AgreementCertificate:
    stated = read_content(source)
    version = stated.pop("version")
    try:
        if version > 1:
            check_kind("", stated, CertificateFields)
        certificate = judged(question_of(stated), evidence_of(stated))
        if version > 1:
            certificate = replace(certificate, model=identity_of(stated))
            _check_invariant(certificate, stated.pop("invariant"))
        computed = replace(certificate, reached=None).content()  # its proof object was checked; no other need be made
        del computed["invariant"]
    except CertificateError:
        raise
    except Exception as error:  # whatever altered numbers break, it is the certificate that is wrong
        raise CertificateError(f"the certificate does not hold: {brief(error)} ({type(error).__name__})") from error
    for name in _compared(stated, computed, version):
        ours, theirs = (json.dumps(content.get(name), sort_keys=True) for content in (computed, stated))
        if name not in stated or name not in computed or ours != theirs:
            raise CertificateError(
                f"the certificate does not hold: {name} is {_short(stated.get(name))}, but "
                f"{_short(computed.get(name))} follows from its numbers{_SINCE if version == 1 else ''}"
            )
    if model is not None:
        _check_model(certificate, model)
    if against is not None:
        _check_specification(certificate, against, letters)
    return certificate


def _check_invariant(certificate: AgreementCertificate, invariant: Any) -> None:
    """Check the proof object that a certificate states, if it states one."""
    if invariant is None:
        return
    if certificate.reached is None:
        raise CertificateError("the certificate does not hold: invariant is stated, but no graph proves what it says")
    question = certificate.question
    try:
        check_stated(question.subject, question.target, question.domain, invariant)
    except CheckError as error:
        raise CertificateError(f"the certificate does not hold: invariant: {error}") from error


_SINCE = " under the float semantics of today; certify the model again"


def _compared(stated: Mapping[str, Any], computed: Mapping[str, Any], version: int) -> list[str]:
    """Return the names of the parts that must be equal: all, and of version 1 those that mean the same today."""
    if version > 1:
        return [*computed, *(name for name in stated if name not in computed)]
    same = ["holds_up_to", "about", "tolerance", "word", "machine", "series", "domain", "placement"]
    return same if stated.get("about") == "head" else ["outcome", *same]


def read_certificate(path: str | Path) -> AgreementCertificate:
    """Read what :meth:`AgreementCertificate.write` wrote, and check it; see :func:`check_certificate`."""
    return check_certificate(path)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "…"


def _check_model(certificate: AgreementCertificate, model: Any) -> None:
    """Check that the model's numbers are the certified ones, and that it is wrong where the certificate says so."""
    pair = model if isinstance(model, tuple) else (model, None)
    subject, certified = analysed(subject_of(*pair)[0]), certificate.question.subject
    if certificate.model is None and certificate.about == "head":  # of version 1, which looked at nothing else
        subject = head_alone(subject)
    mine, theirs = subject.tensors(), certified.tensors()
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in mine or name not in theirs:
            raise CertificateError(f"the certificate is not about this model: only one of the two has {name}")
        if mine[name].dtype != theirs[name].dtype or not np.array_equal(mine[name], theirs[name]):
            raise CertificateError(f"the certificate is not about this model: {name} differs")
    if (subject.precision, subject.lookback) != (certified.precision, certified.lookback):
        raise CertificateError("the certificate is not about this model: precision or kind of head differs")
    if subject.attention != certified.attention:
        raise CertificateError("the certificate is not about this model: attention differs")
    if subject.streamed != certified.streamed:
        raise CertificateError("the certificate is not about this model: single steps are taken differently")
    if certificate.model is not None:
        identity = None if isinstance(model, tuple) else checkpoint_identity(model)
        if identity is None or _without_backend(identity) != _without_backend(certificate.model):
            raise CertificateError(
                "the certificate is not about this model: it is about the checkpoint whose weights have SHA-256 "
                f"{certificate.model.get('sha256')}"
            )
    refuted = certificate.outcome == "refuted"
    if refuted and not is_refuted(certificate, *pair):
        raise CertificateError("the word of the certificate does not refute this model on this computer")


def _without_backend(value: Any) -> Any:
    """Return an identity without the backend of the scan, which changes no result that is certified."""
    if isinstance(value, Mapping):
        return {name: _without_backend(part) for name, part in value.items() if name != "backend"}
    return [_without_backend(part) for part in value] if isinstance(value, list | tuple) else value


def _check_specification(
    certificate: AgreementCertificate,
    against: MooreMachine | DFA | WeightedAutomaton,
    letters: Sequence[str] | None,
) -> None:
    """Check that a specification agrees with the certificate's on every word, letter by letter by name."""
    question = certificate.question
    if letters is None:
        count = against.letters if isinstance(against, MooreMachine) else None
        letters = [*map(str, range(count))] if count is not None else [str(letter) for letter in against.alphabet]  # type: ignore[union-attr]
    try:
        specified = in_token_order(against, letters, question.letters)
    except ValueError as error:
        raise CertificateError(f"the certificate is not about this specification: {error}") from error
    word: Any
    if isinstance(specified, MooreMachine):
        if question.machine is None:
            raise CertificateError("the certificate is not about this specification: it is about values, not labels")
        word = specified.separating_word(question.machine)
    else:
        if question.series is None:
            raise CertificateError("the certificate is not about this specification: it is about labels, not values")
        theirs = question.series.over("rational")
        ours = specified.over("rational")
        named = WeightedAutomaton(theirs.initial, theirs.matrices, theirs.final, ours.alphabet)
        word = equivalent(ours, named).word
    if word is not None:
        spelled = " ".join(
            str(question.letters[each]) if isinstance(each, int | np.integer) else str(each) for each in word[:20]
        )
        raise CertificateError(
            f"the certificate is not about this specification: after {spelled or 'no letter'}"
            f"{' …' if len(word) > 20 else ''} the two say different things"
        )
