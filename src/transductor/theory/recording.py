"""What the statements answered, as a record: the page about theory and its figures are made from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from transductor.results import Record
from transductor.theory.statements import STATEMENTS, StatementCertificate


def theory_record(
    answers: Mapping[str, tuple[StatementCertificate, float]], arguments: Mapping[str, Any] | None = None
) -> Record:
    """Return the record of certificates and the seconds that they took, by the names of their statements.

    Numbers under ``rounding`` in the measurements depend on the processor; all others are the same everywhere, but for
    the last bits of floats.
    """
    given = {name: _plain(value) for name, value in (arguments or {}).items()}
    statements = {
        name: {**_plain(certificate.plain()), "quick": STATEMENTS[name].quick, "seconds": round(seconds, 2)}
        for name, (certificate, seconds) in answers.items()
    }
    return Record("theory", {"arguments": given}, {"statements": statements})


def _plain(value: Any) -> Any:
    """Return a value for JSON, which has no fractions, infinities and NaN."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)
