"""A head that tracks a hidden state: the belief after each token, and how likely the token was."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from transductor.heads.rational import HeadState, RationalHead
from transductor.recurrence import Layout, Normalised, scan
from transductor.recurrence.norms import normalised
from transductor.recurrence.problem import documents
from transductor.transitions import Stepper


class FilterHead(RationalHead):
    """Shows ``[h_t ; log c_t]`` with ``c_t = ‖M h_{t−1}‖₁`` and ``h_t = M h_{t−1} / c_t``: the forward algorithm.

    Over non-negative matrices ``h_t`` is a belief, a distribution over hidden states given the tokens so far, and
    ``log c_t`` the log-likelihood of the token given those before, as far as the matrices are those of a hidden Markov
    model.  All positions are computed by one scan, ``scan(..., normalise="l1")``.

    The state of a stream is what is shown: D beliefs, then the log, which the next step does not read.
    :class:`~transductor.transitions.PositiveTransitions` are made for it.
    """

    name = "filter"
    linear: ClassVar[bool] = False

    @property
    def state_dim(self) -> int:
        """How many numbers a stream keeps: the belief, and the last log."""
        return self.transitions.state_dim + 1

    def initial_state(self) -> Tensor:
        """Return ``[h_0 ; 0]``, with a belief before the first token."""
        return self._begun(super().initial_state())

    def _begun(self, start: Tensor) -> Tensor:
        """Return ``[h ; log]`` for ``(..., D)`` or ``(..., D + 1)``; a start of zeros stays one."""
        dim = self.transitions.state_dim
        if start.shape[-1] not in (dim, dim + 1):
            raise ValueError(f"initial_state must end in dimension {dim} or {dim + 1}; got {tuple(start.shape)}")
        logs = start[..., dim:] if start.shape[-1] > dim else torch.zeros_like(start[..., :1])
        return torch.cat((one_begun(start[..., :dim]), logs), -1)

    def beliefs(self, drive: Tensor, *, initial_state: Tensor | Normalised | None = None, **options: Any) -> Any:
        """Return beliefs ``(B, T, D)`` and the log-likelihoods ``(B, T)`` of the tokens so far, in float64.

        Args:
            drive: Tokens or features, as for :meth:`forward`.
            initial_state: The belief to go on from; the learned one if not given.
            options: ``mask``, ``lengths``, ``cu_seqlens``, ``return_final``: see :func:`transductor.scan`.

        Returns:
            A :class:`~transductor.recurrence.Normalised`; with ``return_final`` two, the last one of each row.
        """
        family = self.transitions
        start = self.initial_state()[..., :-1] if initial_state is None else initial_state
        tokens = None if family.vocab_size is None else drive
        matrices = family.matrices(drive) if tokens is None else family.table()
        return scan(matrices, tokens, initial_state=start, normalise="l1", backend=self.backend, **options)

    def log_likelihood(self, drive: Tensor, **options: Any) -> Tensor:
        """Return the log-likelihood ``(B)`` of complete rows, in float64; see :meth:`beliefs`."""
        logs: Tensor = self.beliefs(drive, **options, return_final=True)[1].logs
        return logs

    def _scanned(
        self, transitions: Tensor, tokens: Tensor | None, start: Tensor, layout: Layout, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        _refuse_bias(bias)
        if layout.shards is not None:
            raise ValueError("time_group must be None: a filter's beliefs are not computed across ranks")
        return self._filtered(transitions, tokens, self._begun(start), layout)

    def _filtered(
        self, transitions: Tensor, tokens: Tensor | None, start: Tensor, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        """Return what is shown, and what is last of it, from a start ``[h ; log]``."""
        states, logs = scan(
            transitions, tokens, initial_state=start[..., :-1], layout=layout, normalise="l1", backend=self.backend
        )
        time = states.shape[-2]
        document, begins = (None, None) if layout.offsets is None else documents(layout.offsets, time)
        before = torch.nn.functional.pad(logs, (1, 0))[..., :-1]
        if begins is not None:
            before = before.where(~begins, 0.0)
        alive = logs > -torch.inf
        likely = (logs.where(alive, 0.0) - before.where(alive, 0.0)).where(alive, -torch.inf)
        likely = _bounded(likely, states)
        if layout.mask is not None:
            likely = _kept(likely, layout.mask.view(likely.shape), start[..., -1:], layout.offsets, document)
        shown = torch.cat((states, likely.unsqueeze(-1)), -1)
        return shown, _last(shown, start, layout.offsets)

    def stepper(self, table: Tensor | None) -> Stepper:
        """Return one step of a stream: the family's, divided by its sum."""

        def step(state: Tensor, drive: Tensor, parts: list[Stepper]) -> Tensor:
            return filtered_step(parts[0], state[..., :-1], drive)

        return Stepper.of_parts([super().stepper(table)], step)

    def _advanced(self, drive: Tensor, stream: HeadState, bias: Tensor | None, layout: Layout) -> tuple[Tensor, Tensor]:
        _refuse_bias(bias)
        return super()._advanced(drive, stream, bias, layout)


def one_begun(start: Tensor) -> Tensor:
    """Return a belief ``(..., D)`` of any scale as one of sum 1; zeros stay zeros."""
    return normalised(start, "l1")[0]


def filtered_step(step: Stepper, belief: Tensor, drive: Tensor) -> Tensor:
    """Return ``[h ; log]`` after one step from a belief ``(..., D)``."""
    after, likely = normalised(step(belief, drive), "l1")
    return torch.cat((after, _bounded(likely, after).unsqueeze(-1)), -1)


def _refuse_bias(bias: Tensor | None) -> None:
    if bias is not None:
        raise ValueError("bias must be None: a belief is divided by its sum, and has no scale that a bias could add to")


def _bounded(likely: Tensor, states: Tensor) -> Tensor:
    """Return logs in the dtype of states; a reading held impossible gets the log of the smallest normal number."""
    return likely.clamp_min(math.log(torch.finfo(states.dtype).tiny)).to(states.dtype)


def _kept(likely: Tensor, mask: Tensor, begun: Tensor, offsets: Tensor | None, document: Tensor | None) -> Tensor:
    """Return logs ``(..., T)`` with those of padded steps replaced by the last real one, or that of the start."""
    index = torch.arange(mask.shape[-1], device=mask.device)
    last = index.where(mask, -1).cummax(-1).values
    first, start = torch.zeros_like(index), begun
    if offsets is not None and document is not None:
        first = offsets[document]
        start = begun.squeeze(-1)[document] if begun.ndim == 2 else begun
    carried = likely.gather(-1, last.clamp_min(0))
    return carried.where(last >= first, start)


def _last(shown: Tensor, start: Tensor, offsets: Tensor | None) -> Tensor:
    """Return what is shown at the end of each row or document."""
    if offsets is None:
        return shown[..., -1, :] if shown.shape[-2] else start.expand(*shown.shape[:-2], -1)
    some, rows = offsets.diff() > 0, shown.reshape(-1, shown.shape[-1])
    start = start.expand(len(some), -1)
    if not len(rows):
        return start
    return rows[(offsets[1:] - 1).clamp_min(0)].where(some.unsqueeze(-1), start)
