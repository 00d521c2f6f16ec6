"""What a statement of the paper is here: a function that returns a certificate, listed by its name and number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal, ParamSpec, get_args

Finding = Literal["holds", "holds with care", "false as written"]
Relation = Literal["≤", "≥", "=", "⇒", "∄"]
# Exact where the statement is about automata (integers and fractions), a float where something is measured.
Value = int | Fraction | float

_Parameters = ParamSpec("_Parameters")


@dataclass(frozen=True)
class StatementCertificate:
    """The answer to one statement: what was claimed, what was built or measured, and what follows.

    ``claim`` is about what is *true*: for a statement that is false as written it is the counterexample or the repaired
    claim, so that ``holds`` says whether our own finding was confirmed by this computation.

    Attributes:
        title: The title of the statement in the paper.
        numbers: Its numbers in the paper; several where one computation answers several statements.
        claim: What is claimed here, in one sentence.
        relation: How ``measured`` must stand to ``bound``; ``⇒`` and ``∄`` count the violations, of which there may be
            at most ``bound``.
        bound: What the claim promises.
        measured: What was computed.
        witness: The example that shows it: the construction, or the worst case, or the counterexample.
        finding: What this means for the statement as it is written in the paper.
        care: The repaired statement, or why it is false as written; empty where it simply holds.
        tolerance: How far ``measured`` may miss the bound, for the reason that ``tolerance_reason`` gives; 0 is exact.
        tolerance_reason: Where the tolerance comes from.
        measurements: Numbers behind it, plain enough for JSON; figures are drawn from them.
    """

    title: str
    numbers: tuple[int, ...]
    claim: str
    relation: Relation
    bound: Value
    measured: Value
    witness: str
    finding: Finding
    care: str = ""
    tolerance: float = 0.0
    tolerance_reason: str = ""
    measurements: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.relation not in get_args(Relation):
            raise ValueError(f"relation must be one of {', '.join(get_args(Relation))}; got {self.relation!r}")
        if self.finding not in get_args(Finding):
            raise ValueError(f"finding must be one of {', '.join(get_args(Finding))}; got {self.finding!r}")
        if (self.finding == "holds") == bool(self.care):
            raise ValueError("care must say what to mind unless the statement simply holds, and be empty if it does")
        if not (self.tolerance >= 0 and math.isfinite(self.tolerance)):
            raise ValueError(f"tolerance must be a finite number of at least 0; got {self.tolerance!r}")
        if bool(self.tolerance) != bool(self.tolerance_reason):
            raise ValueError("tolerance_reason must say where the tolerance comes from, if there is one")

    @property
    def holds(self) -> bool:
        """Whether what was measured stands to the bound as claimed; NaN does not."""
        excess: Any = self.measured - self.bound  # exact for integers and fractions, and so is its comparison
        if self.relation == "=":
            return bool(abs(excess) <= self.tolerance)
        return bool(-excess <= self.tolerance if self.relation == "≥" else excess <= self.tolerance)

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.numbers))
        verdict = self.finding if self.holds else "NOT CONFIRMED"
        measured = f"measured {self.measured}, {self.relation} {self.bound}"
        return f"{numbers} {self.title}: {verdict}. {self.claim} ({measured})"

    @property
    def shown(self) -> str:
        """What was measured beside the bound, and the witness; it begins with *not confirmed* if the claim fails."""
        refused = "" if self.holds else "NOT CONFIRMED: "
        return f"{refused}{self.measured} {self.relation} {self.bound}: {self.witness}"

    def plain(self) -> dict[str, Any]:
        """Return it for JSON: fractions become text such as ``"3/4"``."""
        return {
            "title": self.title,
            "numbers": list(self.numbers),
            "claim": self.claim,
            "relation": self.relation,
            "bound": _plain(self.bound),
            "measured": _plain(self.measured),
            "holds": self.holds,
            "witness": self.witness,
            "finding": self.finding,
            "care": self.care,
            "tolerance": self.tolerance,
            "tolerance_reason": self.tolerance_reason,
            "measurements": dict(self.measurements),
        }


def _plain(value: Value) -> int | float | str:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    return value


@dataclass(frozen=True)
class Statement:
    """One entry of ``STATEMENTS``.

    Attributes:
        name: The name of its function, its title in words joined by underscores.
        title: The title in the paper.
        numbers: The numbers that it answers.
        run: The function; its arguments all have defaults.
        quick: Whether it takes at most a few seconds with its defaults, so that a test recomputes the record.
    """

    name: str
    title: str
    numbers: tuple[int, ...]
    run: Callable[..., StatementCertificate]
    quick: bool


# By name, in the order of the paper.
STATEMENTS: Final[dict[str, Statement]] = {}


def statement(
    title: str, *numbers: int, quick: bool = True
) -> Callable[[Callable[_Parameters, StatementCertificate]], Callable[_Parameters, StatementCertificate]]:
    """List a function as the answer to the statements of these numbers; what it returns must be about them.

    The function has the statement's title as its name, arguments with defaults, and returns the certificate.
    """

    def listed(run: Callable[_Parameters, StatementCertificate]) -> Callable[_Parameters, StatementCertificate]:
        @functools.wraps(run)
        def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> StatementCertificate:
            certificate = run(*args, **kwargs)
            if (certificate.title, certificate.numbers) != (title, numbers):
                raise AssertionError(f"{run.__name__} answers {certificate.title!r} {certificate.numbers}")
            return certificate

        if run.__name__ in STATEMENTS:
            raise AssertionError(f"two statements are called {run.__name__}")
        entries = [*STATEMENTS.values(), Statement(run.__name__, title, numbers, checked, quick)]
        STATEMENTS.clear()
        STATEMENTS.update({entry.name: entry for entry in sorted(entries, key=lambda entry: entry.numbers)})
        return checked

    return listed
