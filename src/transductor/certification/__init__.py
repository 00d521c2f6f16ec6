"""Whether a head or a model agrees with an automaton: proved, refuted with a word, or true up to a length."""

from transductor.certification.certificates import (
    AgreementCertificate,
    CertificateError,
    check_certificate,
    read_certificate,
)
from transductor.certification.certifying import certify

__all__ = [
    "AgreementCertificate",
    "CertificateError",
    "certify",
    "check_certificate",
    "read_certificate",
]
