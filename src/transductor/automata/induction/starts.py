"""The rules by which merging is tried, one after the other: each start of the local search comes from one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transductor.automata.induction.search import Candidate

_SAME = 1e-6  # bits; two candidates so close are one machine


@dataclass(frozen=True)
class Rule:
    """How one merging scores a fold.

    Attributes:
        noise: η, the share of wrong labels that is reckoned with.
        trust: How far labels and letters that agree count.
        shape: γ, the weight of the evidence from next letters.
        most: States beyond which the merging is given up.
    """

    noise: float
    trust: float = 1.0
    shape: float = 0.0
    most: int = 100


# More states at the start than 100, or 40 with evidence from letters, have only cost time.
PLAIN = (Rule(0.02), Rule(0.08), Rule(0.002, trust=0.3))
_CREDULOUS = (Rule(0.08, trust=2.0), Rule(0.15, trust=2.0), Rule(0.15, trust=4.0))
_CARE = (0.6, 0.7, 0.85, 1.15, 1.5)  # below 1, equal states part by chance; local search joins them again
_EXACT = (Rule(0.002, trust=0.1), Rule(0.002, trust=0.03))
_SHAPED = tuple(Rule(noise, shape=shape, most=40) for shape in (0.3, 1.0) for noise in (0.02, 0.08))


def least_trust(noise: float) -> float:
    """Return the trust at which folding two equal states with one label a node is a draw on average.

    Two labels of one class agree with probability a = 1 − 2η(1 − η), and the Bayes factor of a pair is then log 2a; it
    is log 2(1 − a) where they contradict each other.
    """
    agree = 1 - 2 * noise * (1 - noise)
    return -(1 - agree) * math.log(2 * (1 - agree)) / (agree * math.log(2 * agree))


def best_of(results: Sequence[Candidate]) -> Candidate:
    """Return the first candidate with the shortest description."""
    return min(results, key=lambda candidate: candidate.bits)


def careful(candidate: Candidate, factor: float) -> Rule:
    """Return the rule for the noise that the candidate leaves, ``factor`` times the trust that is a draw."""
    noise = min(max(_share_wrong(candidate), 0.002), 0.2)
    return Rule(noise, trust=min(1.0, factor * least_trust(noise)))


def _share_wrong(candidate: Candidate) -> float:
    return candidate.errors / int(candidate.tally.sum())


def starts(results: Sequence[Candidate], *, tagged: bool, brief: bool = False) -> Iterator[Rule]:
    """Give the rules to try; what comes next depends on the results so far, to which the caller appends.

    Plain rules come first.  Many words that say nothing can outweigh the few that tell two states apart, so careful
    rules follow, for the noise that the best candidate leaves, the most careful first; they end once one of them has
    led to the best, as three starts in all have.  Unless two have, the evidence from next letters is added.
    """
    yield from PLAIN[:1] if brief else PLAIN
    if len(results) < 2:
        yield from _CREDULOUS
    for factor in (0.7, 1.15) if brief else _CARE:
        before = len(results)
        yield careful(best_of(results), factor)
        if len(results) > before and _is_best(results[-1], results) and agreeing(results) >= 3:
            break
    if brief:
        return
    if _share_wrong(best_of(results)) < 0.03:
        yield from _EXACT[: 1 if agreeing(results) >= 3 else 2]
    if agreeing(results) < 2 and not tagged:
        yield from _SHAPED


def _is_best(candidate: Candidate, results: Sequence[Candidate]) -> bool:
    return candidate.bits < best_of(results).bits + _SAME


def agreeing(results: Sequence[Candidate]) -> int:
    """Return how many results are as good as the best."""
    return sum(_is_best(result, results) for result in results)
