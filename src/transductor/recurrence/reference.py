"""The meaning of a scan: a loop over time, in any dtype, differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.recurrence.problem import Problem


def reference(problem: Problem) -> Tensor:
    """Compute all states ``(B, T, D)`` step by step, one matrix times one vector for every row."""
    semiring = problem.semiring
    begins: dict[int, int] = {}
    if problem.offsets is not None:
        bounds = problem.offsets.tolist()
        # A later document wins where an empty one begins at the same step.
        begins = {begin: n for n, begin in enumerate(bounds[:-1]) if begin < bounds[n + 1]}
    state = problem.initial if problem.offsets is None else problem.initial[:1]
    states = []
    for t in range(problem.time):
        if t in begins:
            state = problem.initial[begins[t]].unsqueeze(0)
        matrix = problem.matrices[:, t] if problem.tokens is None else problem.matrices[problem.tokens[:, t]]
        after = semiring.matvec(matrix, state)
        if problem.bias is not None:
            after = semiring.add(after, problem.bias[:, t])
        state = after if problem.mask is None else after.where(problem.mask[:, t, None], state)
        states.append(state)
    if not states:
        return state.expand(problem.batch, -1).unsqueeze(1)[:, :0]
    return torch.stack(states, 1)
