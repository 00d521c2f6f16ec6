"""Between automata and models: compile, extract, harden, certify, look.

Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transductor.bridge.black_box import LearnedMachine, extract_from_labels, labelled
    from transductor.bridge.certificates import (
        AgreementCertificate,
        CertificateError,
        check_certificate,
        read_certificate,
    )
    from transductor.bridge.certification import certify
    from transductor.bridge.compilation import (
        CannotCompile,
        compile_cascade,
        compile_head,
        compile_model,
        compile_program,
        program_tokens,
    )
    from transductor.bridge.extraction import (
        Extraction,
        GeneratedGroup,
        NoMachineNearby,
        extract,
        extract_head,
        generated_group,
    )
    from transductor.bridge.hardening import Hardened, harden
    from transductor.bridge.labelled_series import labels_of_series, series_of_labels
    from transductor.bridge.looking import portrait
    from transductor.bridge.portraits import Portrait, read_portrait

_HOME = {
    "AgreementCertificate": "certificates",
    "CannotCompile": "compilation",
    "CertificateError": "certificates",
    "Extraction": "extraction",
    "GeneratedGroup": "extraction",
    "Hardened": "hardening",
    "LearnedMachine": "black_box",
    "NoMachineNearby": "extraction",
    "Portrait": "portraits",
    "certify": "certification",
    "check_certificate": "certificates",
    "compile_cascade": "compilation",
    "compile_head": "compilation",
    "compile_model": "compilation",
    "compile_program": "compilation",
    "extract": "extraction",
    "extract_from_labels": "black_box",
    "extract_head": "extraction",
    "generated_group": "extraction",
    "harden": "hardening",
    "labelled": "black_box",
    "labels_of_series": "labelled_series",
    "portrait": "looking",
    "program_tokens": "compilation",
    "read_certificate": "certificates",
    "read_portrait": "portraits",
    "series_of_labels": "labelled_series",
}

__all__ = [
    "AgreementCertificate",
    "CannotCompile",
    "CertificateError",
    "Extraction",
    "GeneratedGroup",
    "Hardened",
    "LearnedMachine",
    "NoMachineNearby",
    "Portrait",
    "certify",
    "check_certificate",
    "compile_cascade",
    "compile_head",
    "compile_model",
    "compile_program",
    "extract",
    "extract_from_labels",
    "extract_head",
    "generated_group",
    "harden",
    "labelled",
    "labels_of_series",
    "portrait",
    "program_tokens",
    "read_certificate",
    "read_portrait",
    "series_of_labels",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'transductor.bridge' has no attribute {name!r}")
    value = getattr(import_module(f"transductor.bridge.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
