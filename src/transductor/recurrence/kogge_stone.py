"""The paper's algorithm: prefix products by doubling, over one dense matrix per position.

Kept as a peer to measure against.  Memory is B·T·d² and work T·d³·log T.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.recurrence.overflow import all_finite
from transductor.recurrence.problem import Problem, folded
from transductor.recurrence.reference import reference
from transductor.recurrence.semirings import Semiring


def combine(
    semiring: Semiring, earlier: tuple[Tensor, Tensor | None], later: tuple[Tensor, Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """Compose two affine steps: ``(M2 M1, M2 b1 + b2)``."""
    (m1, b1), (m2, b2) = earlier, later
    product = semiring.matmul(m2, m1)
    if b1 is None or b2 is None:
        return product, None
    return product, semiring.add(semiring.matvec(m2, b1), b2)


def kogge_stone(problem: Problem) -> Tensor:
    """Compute all states ``(B, T, D)`` in ⌈log₂ T⌉ rounds."""
    original, problem = problem, folded(problem)
    semiring, time = problem.semiring, problem.time
    product = problem.matrices if problem.tokens is None else problem.matrices[problem.tokens]
    offset = problem.bias
    reach = 1
    while reach < time:
        earlier = product[:, :-reach], None if offset is None else offset[:, :-reach]
        later = product[:, reach:], None if offset is None else offset[:, reach:]
        joined, moved = combine(semiring, earlier, later)
        product = torch.cat((product[:, :reach], joined), 1)
        if offset is not None and moved is not None:
            offset = torch.cat((offset[:, :reach], moved), 1)
        reach *= 2
    states = semiring.matvec(product, problem.initial[:, None].expand(-1, time, -1))
    if offset is not None:
        states = semiring.add(states, offset)
    return states if semiring.name != "real" or all_finite(states) else reference(original)
