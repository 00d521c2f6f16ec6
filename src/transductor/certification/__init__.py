"""Whether a head or a model agrees with an automaton: proved, refuted with a word, or true up to a length."""

from transductor.certification.certificates import AgreementCertificate
from transductor.certification.certifying import certify
from transductor.certification.checking import check_certificate, read_certificate
from transductor.certification.encoding import CertificateError
from transductor.certification.exactness import exactness
from transductor.certification.filters import FilterCertificate, certify_filter, worst_word
from transductor.certification.naming import in_token_order
from transductor.certification.subjects import subject_of

__all__ = [
    "AgreementCertificate",
    "CertificateError",
    "FilterCertificate",
    "certify",
    "certify_filter",
    "check_certificate",
    "exactness",
    "in_token_order",
    "read_certificate",
    "subject_of",
    "worst_word",
]
