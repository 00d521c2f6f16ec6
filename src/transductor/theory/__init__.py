"""The statements of the paper as something that runs: each is built or measured, and answered with a certificate."""

from transductor.theory import (
    capacity,
    cascades,
    circuits,
    expressivity,
    generalisation,
    hierarchy,
    logic,
    optimisation,
    random_features,
    representations,
)
from transductor.theory.recording import theory_record
from transductor.theory.statements import STATEMENTS, Finding, Statement, StatementCertificate, statement

__all__ = [
    "STATEMENTS",
    "Finding",
    "Statement",
    "StatementCertificate",
    "capacity",
    "cascades",
    "circuits",
    "expressivity",
    "generalisation",
    "hierarchy",
    "logic",
    "optimisation",
    "random_features",
    "representations",
    "statement",
    "theory_record",
]
