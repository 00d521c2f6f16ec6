"""Proof objects: the reachable graph as an inductive invariant, with every logit as an interval."""

from __future__ import annotations

from typing import Any

from transductor.automata.moore import MooreMachine
from transductor.certification.ball_arithmetic import Array
from transductor.certification.reachability import Graph
from transductor.certification.subjects import Subject


def invariant_of(
    subject: Subject, graph: Graph, states: Array, machine: MooreMachine, domain: MooreMachine | None
) -> dict[str, Any] | None:
    """Return the invariant of a proof; None where it would be too large."""
    return None
