"""Checks a certificate by computing it again from the numbers it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transductor.certification.certificates import AgreementCertificate, evidence_of, question_of, read_content
from transductor.certification.encoding import CertificateError
from transductor.certification.model_answers import is_refuted
from transductor.certification.subjects import subject_of
from transductor.certification.verdicts import judged


def check_certificate(
    source: str | Path | Mapping[str, Any] | AgreementCertificate, model: Any = None
) -> AgreementCertificate:
    """Compute a certificate again from the numbers it holds, and return the one computed here.

    Args:
        source: A file, its JSON value, or a certificate.
        model: What the certificate should be about: its numbers must be the certified ones, and a word that refutes
            must refute it.  A head with a readout is given as the pair of both.

    Raises:
        CertificateError: If it is damaged, or if anything in it is not what follows from its numbers.
    """
    stated = read_content(source.plain() if isinstance(source, AgreementCertificate) else source)
    try:
        certificate = judged(question_of(stated), evidence_of(stated))
    except CertificateError:
        raise
    except Exception as error:  # whatever altered numbers break, it is the certificate that is wrong
        raise CertificateError(f"the certificate does not hold: {error!r}") from error
    computed = certificate.content()
    for name in (*computed, *stated):
        ours, theirs = (json.dumps(content.get(name), sort_keys=True) for content in (computed, stated))
        if name not in stated or ours != theirs:
            raise CertificateError(
                f"the certificate does not hold: {name} is {_short(stated.get(name))}, but "
                f"{_short(computed.get(name))} follows from its numbers"
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
    """Check that the model's numbers are the certified ones, and that it is wrong where the certificate says so."""
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
    if certificate.outcome == "refuted" and certificate.about != "head" and not is_refuted(certificate, *pair):
        raise CertificateError("the word of the certificate does not refute this model on this computer")
