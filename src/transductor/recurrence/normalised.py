"""The normalised scan: ``h_t = M_t h_{t-1} / ‖M_t h_{t-1}‖`` and the log of the running norm.

Normalisation is projective, so the scan stays linear up to scale.  ``reference`` is its meaning.
Elsewhere padded steps are identities, and packed documents are taken apart and scanned side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from transductor.checks import check_tensor
from transductor.recurrence.norms import Normalised, log_dtyped, normalised
from transductor.recurrence.problem import Problem, documents


def reference(problem: Problem, norm: str) -> Normalised:
    """Compute states ``(B, T, D)`` and logs ``(B, T)`` step by step; autograd sees through every one of them."""
    begins: dict[int, int] = {}
    if problem.offsets is not None:
        bounds = problem.offsets.tolist()
        begins = {begin: n for n, begin in enumerate(bounds[:-1]) if begin < bounds[n + 1]}
    starts, logs_before = normalised(problem.initial, norm)
    state, log = starts, logs_before
    if problem.offsets is not None:
        state, log = starts[:1], logs_before[:1]
    states, logs = [], []
    for t in range(problem.time):
        if t in begins:
            state, log = starts[begins[t]].unsqueeze(0), logs_before[begins[t]].unsqueeze(0)
        matrix = problem.matrices[:, t] if problem.tokens is None else problem.matrices[problem.tokens[:, t]]
        after, step = normalised((matrix @ state.unsqueeze(-1)).squeeze(-1), norm)
        # A zero stays one: its log is a constant, which takes no gradient.
        step = torch.where(step > -torch.inf, log + step, -torch.inf)
        if problem.mask is not None:
            after, step = after.where(problem.mask[:, t, None], state), step.where(problem.mask[:, t], log)
        state, log = after, step
        states.append(state)
        logs.append(log)
    if not states:
        rows = problem.batch
        return Normalised(state.expand(rows, -1).unsqueeze(1)[:, :0], log.expand(rows).unsqueeze(1)[:, :0])
    return Normalised(torch.stack(states, 1), torch.stack(logs, 1))


def documents_side_by_side(offsets: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield batches of packed documents of similar length: which, their positions ``(n, L)``, and which are theirs.

    Lengths of a batch are within a factor of two, so at most half of its positions repeat a document's last one.
    """
    lengths = offsets.diff()
    kinds = [int(length).bit_length() for length in lengths.tolist()]
    for kind in sorted(set(kinds) - {0}):
        rows = torch.tensor([n for n, each in enumerate(kinds) if each == kind], device=offsets.device)
        last = lengths[rows].unsqueeze(1) - 1
        step = torch.arange(int(last.max()) + 1, device=offsets.device)
        yield rows, offsets[rows].unsqueeze(1) + torch.minimum(step, last), step <= last


def cut_out(problem: Problem, rows: Tensor, positions: Tensor) -> Problem:
    """Return the scan of some documents of a packed row, side by side."""
    tokens = problem.tokens
    return replace(
        problem,
        matrices=problem.matrices[0, positions] if tokens is None else problem.matrices,
        tokens=None if tokens is None else tokens[0, positions],
        start=problem.initial[rows],
        offsets=None,
    )


def checked_logs(logs: Tensor, initial: Tensor) -> Tensor:
    """Return the logs ``(rows)`` that a scan goes on from; refuse those that do not fit the initial states."""
    check_tensor("initial_state.logs", logs)
    rows = initial.shape[0]
    if tuple(logs.shape) not in ((), (rows,)):
        raise ValueError(f"initial_state.logs must have shape () or ({rows},); got {tuple(logs.shape)}")
    return log_dtyped(logs).expand(rows)


def continued(problem: Problem, result: Normalised, logs: Tensor | None) -> Normalised:
    """Add the logs that the initial states came with."""
    if logs is None or problem.time == 0:
        return result
    if problem.offsets is None:
        return Normalised(result.states, result.logs + logs.unsqueeze(1))
    document, _ = documents(problem.offsets, problem.time)
    return Normalised(result.states, result.logs + logs[document])


def final_of(problem: Problem, result: Normalised, norm: str, logs: Tensor | None) -> Normalised:
    """Return state and log after the last step of each row or document."""
    starts = Normalised(*normalised(problem.initial, norm))
    if logs is not None:
        starts = Normalised(starts.states, starts.logs + logs)
    if problem.time == 0:
        return starts
    if problem.offsets is None:
        return Normalised(result.states[:, -1], result.logs[:, -1])
    last = (problem.offsets[1:] - 1).clamp_min(0)
    some = problem.offsets.diff() > 0
    states = result.states[0, last].where(some.unsqueeze(-1), starts.states)
    return Normalised(states, result.logs[0, last].where(some, starts.logs))
