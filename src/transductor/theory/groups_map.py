"""Which recurrence does which monoid: for each family the least dimension with a witness, or a checked impossibility.

A head *does* a monoid if, after every word, the largest logit of an affine readout is that of the word's element, by a
margin that does not tend to 0, while its states stay bounded.  docs/beyond.md derives every bound that is used here;
this module computes the hypotheses of those derivations, and :meth:`Answer.faults` computes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, Final, final

from transductor.checks import one_of
from transductor.theory.characters import Characters, RealIrreducible
from transductor.theory.finite_monoids import FiniteMonoid
from transductor.theory.group_actions import CosetAction, coset_actions, least_faithful
from transductor.theory.monoid_witnesses import (
    FAMILIES,
    Witness,
    moving_cosets,
    moving_points,
    multiplying,
    representing,
)

COMMUTING: Final = ("diagonal", "signed diagonal", "rotating planes")
INVERTIBLE: Final = ("rotating planes", "Householder", "Cayley", "orthogonal")


@final
@dataclass(frozen=True)
class Obstacle:
    """Why a family cannot do a monoid, in any dimension or in few.

    Attributes:
        reason: One of ``REASONS``.
        evidence: Elements of the monoid that show it: two that do not commute, an idempotent, a chain of idempotents.
        least: The least dimension that is not excluded; None if every dimension is.
        reflections: For Householder matrices, the least number of reflections that is not excluded.
    """

    reason: str
    evidence: tuple[int, ...]
    least: int | None = None
    reflections: int | None = None

    def faults(self, family: str, monoid: FiniteMonoid) -> list[str]:
        """Compute the hypothesis again; return what does not hold, empty if the argument applies."""
        one_of("reason", self.reason, REASONS)
        wrong_family = family not in REASONS[self.reason][0]
        if wrong_family:
            return [f"the argument {self.reason!r} does not speak of {family} matrices"]
        if not all(0 <= each < len(monoid) for each in self.evidence):
            return [f"evidence must be elements 0 … {len(monoid) - 1}; got {self.evidence}"]
        fault = REASONS[self.reason][1](self, family, monoid)
        return [] if fault is None else [fault]


@final
@dataclass(frozen=True)
class Answer:
    """What one family does of one monoid.

    Attributes:
        family: The family of matrices.
        monoid: The monoid.
        obstacle: Why not, or why not in fewer dimensions; None where nothing excludes even one dimension.
        witness: A head that does it; None where none is known, and where there is none.
        fewest_reflections: A witness with fewer reflections in more dimensions, for Householder matrices; None where
            the witness of least dimension has the fewest.
    """

    family: str
    monoid: FiniteMonoid
    obstacle: Obstacle | None
    witness: Witness | None
    fewest_reflections: Witness | None = None

    @property
    def possible(self) -> bool:
        """Whether there is a witness."""
        return self.witness is not None

    @property
    def least(self) -> int:
        """The least dimension that is not excluded; only for what is possible or open."""
        return 1 if self.obstacle is None or self.obstacle.least is None else self.obstacle.least

    @property
    def verdict(self) -> str:
        """``d = 3``; ``impossible``; or ``open`` where bound and witness do not meet."""
        if self.obstacle is not None and self.obstacle.least is None:
            return "impossible"
        if self.witness is None:
            return f"open, d ≥ {self.least}"
        if self.witness.dim != self.least:
            return f"{self.least} ≤ d ≤ {self.witness.dim}"
        return f"d = {self.least}"

    def faults(self) -> list[str]:
        """Check witness and obstacle again, exactly; return what is wrong, empty if the answer stands."""
        wrong = [] if self.obstacle is None else self.obstacle.faults(self.family, self.monoid)
        for witness in (self.witness, self.fewest_reflections):
            if witness is not None:
                if (witness.family, witness.monoid) != (self.family, self.monoid):
                    wrong.append("the witness is of another cell")
                wrong += witness.faults()
        if self.witness is not None and self.obstacle is not None:
            if self.obstacle.least is None:
                wrong.append("there is a witness of what is said to be impossible")
            elif self.witness.dim < self.obstacle.least:
                wrong.append(f"the witness has {self.witness.dim} dimensions, fewer than the bound")
        return wrong

    def plain(self) -> dict[str, Any]:
        """Return it for JSON."""
        obstacle, witness = self.obstacle, self.witness
        return {
            "family": self.family,
            "monoid": self.monoid.name,
            "verdict": self.verdict,
            "least": self.least if witness is not None and witness.dim == self.least else None,
            "reflections": None if witness is None else witness.reflections,
            "fewest_reflections": None if self.fewest_reflections is None else self.fewest_reflections.reflections,
            "in_dimension": None if self.fewest_reflections is None else self.fewest_reflections.dim,
            "reason": None if obstacle is None else obstacle.reason,
            "evidence": [] if obstacle is None else list(obstacle.evidence),
            "faults": self.faults(),
        }


@cache
def characters(group: FiniteMonoid) -> Characters:
    """Return the representations of a group, computed once."""
    return Characters(group)


@cache
def _fewest_points(group: FiniteMonoid, signed: bool) -> tuple[CosetAction, ...]:
    return least_faithful(coset_actions(group, signed=signed))


def _smallest(group: FiniteMonoid, allowed: Sequence[RealIrreducible] | None = None) -> tuple[RealIrreducible, ...]:
    """Return the faithful sum of fewest dimensions; of those the one with the fewest reflections."""
    table = characters(group)
    sums = table.faithful_sums(table.irreducibles if allowed is None else allowed)
    return min(sums, key=lambda parts: (_dim(parts), _reflections(group, parts), len(parts)))


def _dim(parts: Sequence[RealIrreducible]) -> int:
    return sum(each.dim for each in parts)


def _reflections(group: FiniteMonoid, parts: Sequence[RealIrreducible]) -> int:
    """Return how many dimensions a letter moves at most: as many reflections make it, and no fewer."""
    table = characters(group)
    return max(sum(each.moved(int(table.class_of[x])) for each in parts) for x in group.of_letter)


def without_half_turns(group: FiniteMonoid) -> list[RealIrreducible]:
    """Return the irreducible representations in which no letter has the eigenvalue −1."""
    table = characters(group)
    classes = [int(table.class_of[x]) for x in group.of_letter]
    return [each for each in table.irreducibles if not any(each.half_turns(c) for c in classes)]


def least_rank(family: str, monoid: FiniteMonoid, chain: Sequence[int] | None = None) -> tuple[int, tuple[int, ...]]:
    """Return how many dimensions a chain of idempotents needs, by default the chain that needs most, and that chain.

    Each idempotent of the chain needs one more than the next, and at least as many as the group around it has in its
    smallest faithful representation: by real matrices, by signed permutations, or by permutations.
    """
    floor = 1 if family == "column-stochastic" else 0  # the sum of a distribution never vanishes

    def alone(e: int) -> int:
        return max(_of_group(family, monoid.group_at(e)), floor if e == monoid.zero else 1)

    if chain is not None:
        needed = 0
        for place, e in enumerate(reversed(chain)):
            needed = max(alone(e), needed + 1 if place else 0)
        return needed, tuple(chain)
    times, known = monoid.times, dict[int, tuple[int, tuple[int, ...]]]()

    def needs(e: int) -> tuple[int, tuple[int, ...]]:
        if e not in known:
            lower = [needs(f) for f in monoid.idempotents if f != e and times[e, f] == f == times[f, e]]
            below, rest = max(lower, default=(-1, ()))
            own = alone(e)
            known[e] = (own, (e,)) if own > below + 1 or not lower else (below + 1, (e, *rest))
        return known[e]

    return needs(0)


def _of_group(family: str, group: FiniteMonoid) -> int:
    if len(group) == 1:
        return 0
    if family == "column-stochastic":
        return sum(action.degree for action in _fewest_points(group, False))
    if family == "permutation × diagonal":
        return sum(action.degree for action in _fewest_points(group, True))
    return _dim(_smallest(group))


def _not_commuting(obstacle: Obstacle, family: str, monoid: FiniteMonoid) -> str | None:
    x, y = obstacle.evidence
    if not {x, y} <= set(monoid.of_letter) or monoid.times[x, y] == monoid.times[y, x]:
        return f"elements {x} and {y} must be letters that do not commute"
    return _every_dimension(obstacle)


def _not_positive(obstacle: Obstacle, family: str, monoid: FiniteMonoid) -> str | None:
    (x,) = obstacle.evidence
    allowed = 2 if family == "signed diagonal" else 1
    order = _order(monoid, x)
    if x not in monoid.of_letter or order is None or order <= allowed:
        return f"element {x} must be a letter with a power that is 1, and no smaller one than {allowed + 1}"
    return _every_dimension(obstacle)


def _order(monoid: FiniteMonoid, x: int) -> int | None:
    """Return the least power that is the identity; None if there is none."""
    power, order = x, 1
    while power != 0:
        power, order = int(monoid.times[power, x]), order + 1
        if order > len(monoid):
            return None
    return order


def _reset(obstacle: Obstacle, family: str, monoid: FiniteMonoid) -> str | None:
    (e,) = obstacle.evidence
    if e == 0 or e not in monoid.idempotents:
        return f"element {e} must be an idempotent other than the identity"
    return _every_dimension(obstacle)


def _half_turn(obstacle: Obstacle, family: str, monoid: FiniteMonoid) -> str | None:
    (x,) = obstacle.evidence
    if x == 0 or not monoid.is_group or x not in characters(monoid).kernel(without_half_turns(monoid)):
        return f"element {x} must be no identity, but act as it wherever no letter has the eigenvalue −1"
    return _every_dimension(obstacle)


def _every_dimension(obstacle: Obstacle) -> str | None:
    return None if obstacle.least is None else "the argument excludes every dimension, and not only few"


def _faithful(obstacle: Obstacle, family: str, monoid: FiniteMonoid) -> str | None:
    if not monoid.is_group:
        return f"{monoid.name} must be a group"
    if family == "rotating planes" and monoid.not_commuting:
        return f"{monoid.name} must be commutative"
    bound = _dimensions(family, monoid)
    if obstacle.least is None or obstacle.least > bound:
        return f"only fewer than {bound} dimensions are excluded, not all below {obstacle.least}"
    if obstacle.reflections is not None and obstacle.reflections > _fewest(monoid)[0]:
        return f"only fewer than {_fewest(monoid)[0]} reflections are excluded, not all below {obstacle.reflections}"
    return None


def _dimensions(family: str, group: FiniteMonoid) -> int:
    """Return the dimensions that a family of orthogonal matrices needs for a group, which it can do."""
    if len(group) == 1:
        return 1
    if family == "rotating planes":
        return 2 * min(map(len, characters(group).faithful_sums(characters(group).irreducibles)))
    return _dim(_smallest(group, without_half_turns(group) if family == "Cayley" else None))


def _fewest(group: FiniteMonoid) -> tuple[int, tuple[RealIrreducible, ...]]:
    """Return how many reflections a group needs in any dimension, and the smallest sum that needs no more."""
    table = characters(group)
    sums = table.faithful_sums(table.irreducibles)
    best = min(sums, key=lambda parts: (_reflections(group, parts), _dim(parts), len(parts)))
    return _reflections(group, best), best


def _ranks(obstacle: Obstacle, family: str, monoid: FiniteMonoid) -> str | None:
    chain, times = obstacle.evidence, monoid.times
    if not chain or any(e not in monoid.idempotents for e in chain):
        return "evidence must be idempotents"
    for e, f in pairwise(chain):
        if e == f or not times[e, f] == f == times[f, e]:
            return f"element {f} must be below {e}, and absorb it from both sides"
    needed, _ = least_rank(family, monoid, chain)
    if obstacle.least is None or obstacle.least > needed:
        return f"only fewer than {needed} dimensions are excluded, not all below {obstacle.least}"
    return None


_Check = Callable[[Obstacle, str, FiniteMonoid], "str | None"]
# By name: the families that an argument speaks of, and what is wrong with its hypothesis.
REASONS: Final[Mapping[str, tuple[tuple[str, ...], _Check]]] = {
    "letters that do not commute": (COMMUTING, _not_commuting),
    "no such root": (("diagonal", "signed diagonal"), _not_positive),
    "no reset": (INVERTIBLE, _reset),
    "no half turn": (("Cayley",), _half_turn),
    "faithful representation": (INVERTIBLE, _faithful),
    "ranks of idempotents": (
        ("diagonal", "signed diagonal", "permutation × diagonal", "column-stochastic", "dense"), _ranks,
    ),
}  # fmt: skip


def answer(family: str, monoid: FiniteMonoid) -> Answer:
    """Return what a family does of a monoid: an obstacle, a witness, or both where they meet."""
    one_of("family", family, FAMILIES)
    if family in INVERTIBLE and not monoid.is_group:
        return Answer(family, monoid, Obstacle("no reset", (monoid.idempotents[1],)), None)
    if family in COMMUTING:
        if monoid.not_commuting is not None:
            pair = tuple(monoid.of_letter[monoid.letters.index(name)] for name in monoid.not_commuting)
            return Answer(family, monoid, Obstacle("letters that do not commute", pair), None)
        if family != "rotating planes":
            allowed = 2 if family == "signed diagonal" else 1
            roots = [x for x in monoid.of_letter if (_order(monoid, x) or 0) > allowed]
            if roots:
                return Answer(family, monoid, Obstacle("no such root", (roots[0],)), None)
    if family in INVERTIBLE:
        return _represented(family, monoid)
    least, chain = least_rank(family, monoid)
    bound = Obstacle("ranks of idempotents", chain, least) if least > 1 else None
    return Answer(family, monoid, bound, min(_exact(family, monoid), key=lambda each: each.dim, default=None))


def _represented(family: str, group: FiniteMonoid) -> Answer:
    table, allowed = characters(group), None
    if family == "Cayley":
        allowed = without_half_turns(group)
        kernel = table.kernel(allowed)
        if kernel != {0}:
            return Answer(family, group, Obstacle("no half turn", (min(kernel - {0}),)), None)
    parts, fewest = _smallest(group, allowed), None
    if family == "rotating planes":
        parts = min(table.faithful_sums(table.irreducibles), key=len)
    reflections = _reflections(group, parts) if family == "Householder" else None
    witness, least = representing(family, table, parts, reflections), _dimensions(family, group)
    if reflections is not None and _fewest(group)[0] < reflections:
        fewest = representing(family, table, _fewest(group)[1], _fewest(group)[0])
    needed = None if reflections is None else _fewest(group)[0]
    bound = Obstacle("faithful representation", (), least, needed) if least > 1 or reflections else None
    return Answer(family, group, bound, witness, fewest)


def _exact(family: str, monoid: FiniteMonoid) -> list[Witness]:
    """Return heads of a family whose states are finitely many."""
    if family in ("diagonal", "signed diagonal"):
        diagonal = multiplying(family, monoid)
        return [] if diagonal is None else [diagonal]
    if monoid.is_group:
        if family == "dense":
            return [representing(family, characters(monoid), _smallest(monoid))]
        return [moving_cosets(family, monoid, _fewest_points(monoid, family == "permutation × diagonal"))]
    points = [moving_points(family, monoid)]
    if family != "column-stochastic" and monoid.not_commuting is None:
        diagonal = multiplying("signed diagonal", monoid)
        points += [] if diagonal is None else [replace(diagonal, family=family)]
    return points


def table_of_answers(monoids: Sequence[FiniteMonoid], families: Sequence[str] = FAMILIES) -> list[Answer]:
    """Return the answers of all cells, monoid by monoid."""
    return [answer(family, monoid) for monoid in monoids for family in families]
