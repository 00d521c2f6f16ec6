"""A small cost model: how a scan is cut into chunks, and which algorithm is expected to be quickest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

# Microseconds, measured on a two-core server in 2026; only their ratios matter.  A torch call from Python; one
# multiply–add in a batched product of small matrices, in a gathered matrix–vector product, in a wide
# product; one number copied to fresh memory.
_CALL, _PRODUCT, _GATHERED, _WIDE, _COPY = 5.0, 3e-5, 3e-4, 1.5e-5, 1e-3


@dataclass(frozen=True)
class Plan:
    """``chunks`` of ``length`` steps per row, with products over ``gram`` tokens at a time; the rest is a tail."""

    chunks: int
    length: int
    gram: int = 1
    microseconds: float = 0.0


@lru_cache(maxsize=1024)
def plan_chunks(
    batch: int, time: int, dim: int, symbols: int | None, *, additive: bool, expanded: bool = False
) -> Plan:
    """Choose the cut with the least estimated time: few calls against little extra work.

    ``symbols`` is V for a table, None for a matrix per position.  ``expanded`` products write every term to
    memory, as the semirings without a matrix unit must.
    """
    vector = _GATHERED if symbols is None else min(_GATHERED, _WIDE * symbols)
    product_term = _PRODUCT
    if expanded:
        vector, product_term = 2 * _COPY, 4 * _COPY

    def cost(plan: Plan) -> float:
        apply = batch * time * dim**2 * vector
        if plan.chunks == 1:
            return apply + 2 * _CALL * time
        product = batch * time * dim**3 * product_term / plan.gram
        grams = float((symbols or 1) ** plan.gram) * dim**3 * _PRODUCT
        carry = 3 * plan.chunks**0.5 if plan.chunks > 64 else plan.chunks  # cut again when it is long
        tail = time % plan.length
        calls = 60 + 2 * (plan.length * (1 + 1 / plan.gram) + carry + tail)
        return apply + product + grams + _CALL * calls + (_COPY * batch * time * dim if tail else 0)

    plans = [Plan(1, time)]
    longest = min(time // 2, 8 * max(16, round(time**0.5)))
    for gram in range(1, 5):
        if gram > 1 and (symbols is None or additive or expanded or symbols**gram > 512):
            break
        # Chunks of at least 2d steps keep the products smaller than half the states.
        shortest = -(-max(2 * dim, 8) // gram) * gram
        plans += [Plan(time // length, length, gram) for length in range(shortest, longest + 1, gram)]
    best = min(plans, key=cost)
    return replace(best, microseconds=cost(best))


@lru_cache(maxsize=1024)
def plan_normalised(batch: int, time: int, dim: int) -> Plan:
    """Choose the cut of a normalised scan: about ten calls a step, and one step after the other across the chunks."""

    def cost(plan: Plan) -> float:
        apply = batch * time * dim**2 * _GATHERED
        if plan.chunks == 1:
            return apply + 10 * _CALL * time
        product = batch * time * (dim**3 * _PRODUCT + 3 * dim**2 * _COPY)
        return apply + product + 10 * _CALL * (2 * plan.length + 2 * plan.chunks + time % plan.length)

    middle = max(8, round(time**0.5))
    lengths = {length for length in (middle // 2, middle, 2 * middle, 4 * middle) if 8 <= length <= time // 2}
    best = min([Plan(1, time), *(Plan(time // length, length) for length in sorted(lengths))], key=cost)
    return replace(best, microseconds=cost(best))


def kogge_stone_microseconds(batch: int, time: int, dim: int) -> float:
    """Estimate the time of the doubling scan: log₂ T rounds over all positions."""
    rounds = max(1, (time - 1).bit_length())
    return rounds * (6 * _CALL + batch * time * (dim**3 * _PRODUCT + dim**2 * _COPY))
