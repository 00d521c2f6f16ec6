"""The most likely path through a machine: Viterbi's scores by the scan over (max, +), and the path from its end."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.recurrence.layout import mask_from_lengths
from transductor.recurrence.scanning import scan


@torch.no_grad()
def best_paths(
    transitions: Tensor,
    tokens: Tensor | None = None,
    *,
    initial_state: Tensor,
    final: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the paths of largest weight ``(B, T + 1)``, states before and after every step, and their weights ``(B)``.

    Weights are logarithms, which add up along a path; ``-inf`` is an arc that does not exist.  A row without a path has
    the weight ``-inf``.  Steps beyond the length of a row have the state −1.

    Args:
        transitions: A table ``(V, D, D)`` with tokens, or ``(B, T, D, D)``; ``M[..., to, from]``.
        tokens: ``(B, T)`` integers.
        initial_state: Weights of starting, ``(D)`` or ``(B, D)``.
        final: Weights of stopping, ``(D)`` or ``(B, D)``; 0 by default.
        lengths: ``(B)`` integers; every row is complete by default.
    """
    if transitions.ndim != (4 if tokens is None else 3) or (tokens is not None and tokens.ndim != 2):
        raise ValueError("tokens must have shape (B, T) with a table, and transitions (B, T, D, D) without tokens")
    scores, last = scan(
        transitions, tokens, initial_state=initial_state, lengths=lengths, semiring="max_plus", return_final=True
    )
    batch, time, dim = scores.shape
    ended = last if final is None else last + final.to(last)
    weights, state = ended.max(-1)
    entering = torch.cat((initial_state.to(scores).expand(batch, dim).unsqueeze(1), scores), 1)[:, :time]
    real = None if lengths is None else mask_from_lengths(lengths, batch, time, scores.device)
    path, rows = [state], torch.arange(batch, device=scores.device)
    for t in range(time - 1, -1, -1):
        arcs = transitions[rows, t, state] if tokens is None else transitions[tokens[:, t].long(), state]
        before = (arcs.to(scores) + entering[:, t]).argmax(-1)
        state = before if real is None else before.where(real[:, t], state)
        path.append(state)
    paths = torch.stack(path[::-1], 1)
    if real is not None:
        paths = torch.cat((paths[:, :1], paths[:, 1:].where(real, -1)), 1)
    return paths, weights
