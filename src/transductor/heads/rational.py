"""The rational head: a family, an initial state, a scan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self, overload

import torch
from torch import Tensor, nn

from transductor.configuration import configuration
from transductor.notation import check_token_ids, one_of, working_dtype
from transductor.recurrence import BACKENDS, scan
from transductor.transitions import FamilySpec, Stepper, TransitionFamily

__all__ = ["HeadConfig", "HeadState", "RationalHead"]

# Up to this many steps, stepping is cheaper than setting up a scan.
_FEW_STEPS = 4


@configuration
@dataclass(frozen=True)
class HeadConfig:
    """How to build a head again: which class, which family, which backend."""

    head: str
    transitions: FamilySpec
    backend: str = "auto"


@dataclass(frozen=True)
class HeadState:
    """Where a stream stands: the state ``(B, D)`` and how to take one step with the parameters of its start."""

    state: Tensor
    step: Stepper

    def reordered(self, rows: Tensor) -> HeadState:
        """The stream with batch rows picked anew, as beam search does."""
        return replace(self, state=self.state.index_select(0, rows))


class RationalHead(nn.Module):
    """Tokens (or features) to automaton states ``h_t = M_{x_t} h_{t-1}``, from a learned ``h_0``.

    Several heads in parallel are one head over a :class:`~transductor.transitions.DirectSum`.

    Args:
        transitions: The family.  Driven by tokens, the head reads ``(B, T)`` ids; driven by features,
            ``(B, T, F)``.
        backend: Backend of the scan.
    """

    name = "rational"

    def __init__(self, transitions: TransitionFamily, *, backend: str = "auto") -> None:
        super().__init__()
        if not isinstance(transitions, TransitionFamily):
            raise TypeError(f"transitions must be a transition family; got {type(transitions).__name__}")
        one_of("backend", backend, ["auto", *BACKENDS])
        self.transitions = transitions
        self.backend = backend
        self.raw_initial_state = nn.Parameter(torch.randn(transitions.state_dim))

    @classmethod
    def from_family(cls, transitions: TransitionFamily, backend: str) -> Self:
        """The head of this class over a family built elsewhere."""
        return cls(transitions, backend=backend)

    @property
    def state_dim(self) -> int:
        """D."""
        return self.transitions.state_dim

    @property
    def config(self) -> HeadConfig:
        """How to build this head again."""
        return HeadConfig(self.name, self.transitions.spec(), self.backend)

    def initial_state(self) -> Tensor:
        """``h_0 (D)``, shaped to the family: a distribution for stochastic ones."""
        raw = self.raw_initial_state
        return self.transitions.start_from(raw.to(working_dtype(raw.dtype)))

    @overload
    def forward(
        self,
        drive: Tensor,
        *,
        bias: Tensor | None = ...,
        initial_state: Tensor | None = ...,
        mask: Tensor | None = ...,
        lengths: Tensor | None = ...,
        cu_seqlens: Tensor | None = ...,
        return_final: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        drive: Tensor,
        *,
        bias: Tensor | None = ...,
        initial_state: Tensor | None = ...,
        mask: Tensor | None = ...,
        lengths: Tensor | None = ...,
        cu_seqlens: Tensor | None = ...,
        return_final: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        drive: Tensor,
        *,
        bias: Tensor | None = None,
        initial_state: Tensor | None = None,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        return_final: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """All states ``(B, T, D)``, in at least float32; see :func:`transductor.scan` for the options.

        Args:
            drive: Tokens ``(B, T)`` or ``(T)``; features ``(B, T, F)`` or ``(T, F)`` for a family driven by
                features.
            bias: Additive term per position, ``(B, T, D)``.
            initial_state: Instead of the learned one: ``(D)`` or ``(B, D)``.
        """
        start = self.initial_state() if initial_state is None else initial_state
        options = {"mask": mask, "lengths": lengths, "cu_seqlens": cu_seqlens, "backend": self.backend}
        transitions, tokens = self._operands(drive)
        return scan(  # type: ignore[call-overload, no-any-return]
            transitions, tokens, bias=bias, initial_state=start, return_final=return_final, **options
        )

    def _operands(self, drive: Tensor) -> tuple[Tensor, Tensor | None]:
        with torch.autocast(drive.device.type, enabled=False):
            if self.transitions.feature_dim is not None:
                return self.transitions.matrices(drive), None
            return self.transitions.table(), drive

    def start(self, batch_size: int) -> HeadState:
        """A stream at time 0, for ``batch_size`` rows."""
        with torch.autocast(self.raw_initial_state.device.type, enabled=False):
            state = self.initial_state().expand(batch_size, -1)
            return HeadState(state, self.transitions.stepper())

    def advance(
        self, drive: Tensor, stream: HeadState, *, bias: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, HeadState]:
        """The next n states ``(B, n, D)`` of a stream, and where it then stands.

        Equal to the parallel pass to rounding, however the input is split; one step costs
        ``transitions.step_cost()`` multiply–adds a row.
        """
        vocab_size = self.transitions.vocab_size
        if vocab_size is not None:
            check_token_ids("tokens", drive, vocab_size)
        if drive.shape[1] > _FEW_STEPS:
            states, final = self(drive, bias=bias, initial_state=stream.state, mask=mask, return_final=True)
            return states, replace(stream, state=final)
        states, state = [], stream.state
        with torch.autocast(drive.device.type, enabled=False):
            for t in range(drive.shape[1]):
                after = stream.step(state, drive[:, t])
                if bias is not None:
                    after = after + bias[:, t]
                state = after if mask is None else after.where(mask[:, t, None], state)
                states.append(state)
        stacked = torch.stack(states, 1) if states else state.new_empty(len(state), 0, self.state_dim)
        return stacked, replace(stream, state=state)

    def extra_repr(self) -> str:
        """State dimension."""
        return f"state_dim={self.state_dim}, backend={self.backend!r}"
