"""The paper's algorithm: prefix products by doubling, over one dense matrix per position.

Kept as a peer to measure against.  Memory is B·T·d² and work T·d³·log T.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.recurrence.overflow import overflowed_rows
from transductor.recurrence.problem import Problem, folded, some_rows
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
    flat, semiring = folded(problem), problem.semiring
    matrices = flat.matrices if flat.tokens is None else flat.matrices[flat.tokens]
    states = _prefixes(semiring, matrices, flat.bias, flat.initial)
    if semiring.name != "real" or not len(rows := overflowed_rows(states)):
        return states
    # Rows that overflowed are taken out before the products, so that no `0 · inf` reaches the gradient of a table that
    # all rows share, and the loop computes them; the other rows keep their bits.
    out = torch.zeros(problem.batch, 1, 1, dtype=torch.bool, device=states.device).index_fill(0, rows, True)
    matrices = matrices.masked_fill(out.unsqueeze(-1), 0.0)
    bias = None if flat.bias is None else flat.bias.masked_fill(out, 0.0)
    states = _prefixes(semiring, matrices, bias, flat.initial.masked_fill(out[..., 0], 0.0))
    return states.index_copy(0, rows, reference(some_rows(problem, rows)))


def _prefixes(semiring: Semiring, product: Tensor, offset: Tensor | None, initial: Tensor) -> Tensor:
    """Compute all states from a matrix per position ``(B, T, D, D)``."""
    time, reach = product.shape[1], 1
    while reach < time:
        earlier = product[:, :-reach], None if offset is None else offset[:, :-reach]
        later = product[:, reach:], None if offset is None else offset[:, reach:]
        joined, moved = combine(semiring, earlier, later)
        product = torch.cat((product[:, :reach], joined), 1)
        if offset is not None and moved is not None:
            offset = torch.cat((offset[:, :reach], moved), 1)
        reach *= 2
    states = semiring.matvec(product, initial[:, None].expand(-1, time, -1))
    return states if offset is None else semiring.add(states, offset)
