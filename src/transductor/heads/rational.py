"""The rational head: a family, an initial state, a scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import torch
from torch import Tensor, nn

from transductor.checks import check_positive, check_token_ids, one_of, readable, working_dtype
from transductor.configuration import configuration
from transductor.recurrence import BACKENDS, scan, sequence_parallel_scan
from transductor.transitions import FamilySpec, Stepper, TransitionFamily

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Up to this many steps, stepping is cheaper than setting up a scan.
FEW_STEPS = 4


@configuration
@dataclass(frozen=True)
class HeadConfig:
    """How to build a head again: which class, which family, which backend."""

    head: str
    transitions: FamilySpec
    backend: str = "auto"


@dataclass(frozen=True)
class HeadState:
    """Where a stream stands: the state ``(B, D)``, and the transitions with the parameters of its start.

    ``step`` takes one step; ``table`` is what longer stretches are scanned with (None when driven by features).
    """

    state: Tensor
    step: Stepper
    table: Tensor | None

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
    def output_dim(self) -> int:
        """Numbers per position that leave the head: D, unless it shows more after its state."""
        return self.state_dim

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow a model to its device, but not below float32: an angle rounded to bfloat16 is another automaton."""

        def kept(value: Tensor) -> Tensor:
            moved = fn(value)
            if moved.is_floating_point() and working_dtype(moved.dtype) != moved.dtype:
                return value.to(device=moved.device, dtype=working_dtype(value.dtype))
            return moved

        super()._apply(kept, recurse)  # type: ignore[no-untyped-call]
        return self

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
        time_group: ProcessGroup | None = ...,
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
        time_group: ProcessGroup | None = ...,
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
        time_group: ProcessGroup | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """All states ``(B, T, D)``, in at least float32; see :func:`transductor.scan` for the options.

        Args:
            drive: Tokens ``(B, T)`` or ``(T)``; features ``(B, T, F)`` or ``(T, F)`` for a family driven by
                features.
            bias: Additive term per position, ``(B, T, D)``.
            initial_state: Instead of the learned one: ``(D)`` or ``(B, D)``.
            time_group: Ranks that hold a stretch of the time axis each; see
                :func:`~transductor.recurrence.sequence_parallel_scan`.
        """
        if not isinstance(drive, Tensor):
            raise TypeError(f"tokens (or features) must be a torch.Tensor; got {type(drive).__name__}")
        start = self.initial_state() if initial_state is None else initial_state
        options: dict[str, Any] = {"mask": mask, "lengths": lengths, "cu_seqlens": cu_seqlens, "backend": self.backend}
        transitions, tokens = self._operands(drive)
        options |= {"bias": bias, "initial_state": start, "return_final": return_final}
        if time_group is not None:
            return sequence_parallel_scan(transitions, tokens, group=time_group, **options)
        return scan(transitions, tokens, **options)  # type: ignore[no-any-return]

    def _operands(self, drive: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.transitions.feature_dim is not None:
            return self.transitions.matrices(drive), None
        return self.transitions.table(), drive

    def start(self, batch_size: int) -> HeadState:
        """A stream at time 0, for ``batch_size`` rows."""
        check_positive("batch_size", batch_size)
        family = self.transitions
        with family.full_precision():
            state = self.initial_state().expand(batch_size, -1)
            return HeadState(state, family.stepper(), None if family.vocab_size is None else family.table())

    def advance(
        self, drive: Tensor, stream: HeadState, *, bias: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, HeadState]:
        """The next n states ``(B, n, D)`` of a stream, and where it then stands.

        Equal to the parallel pass to rounding, however the input is split; one step costs
        ``transitions.step_cost()`` multiply–adds a row.
        """
        self._check_stretch(drive, stream, bias, mask)
        if drive.shape[1] > FEW_STEPS:
            transitions = self.transitions.matrices(drive) if stream.table is None else stream.table
            states, final = scan(
                transitions,
                None if stream.table is None else drive,
                bias=bias,
                initial_state=stream.state,
                mask=mask,
                backend=self.backend,
                return_final=True,
            )
            return states, replace(stream, state=final)
        if stream.table is not None:
            drive = drive.long()
        stepped, state = [], stream.state
        with self.transitions.full_precision():
            for t in range(drive.shape[1]):
                after = stream.step(state, drive[:, t])
                if bias is not None:
                    after = after + bias[:, t]
                state = after if mask is None else after.where(mask[:, t, None], state)
                stepped.append(state)
        if len(stepped) == 1:  # the usual one, where a copy would be felt
            return state.unsqueeze(1), replace(stream, state=state)
        states = torch.stack(stepped, 1) if stepped else state.new_empty(len(state), 0, self.state_dim)
        return states, replace(stream, state=state)

    def _check_stretch(self, drive: Tensor, stream: HeadState, bias: Tensor | None, mask: Tensor | None) -> None:
        """What the scan would refuse is refused for single steps too."""
        family, rows = self.transitions, stream.state.shape[0]  # len() would make it a constant of a graph
        wanted = "(B, n)" if family.feature_dim is None else f"(B, n, {family.feature_dim})"
        name = "tokens" if family.feature_dim is None else "features"
        if not isinstance(drive, Tensor) or drive.ndim != wanted.count(",") + 1:
            raise ValueError(f"{name} must be a tensor of shape {wanted}; got {_described(drive)}")
        if drive.shape[0] != rows:
            raise ValueError(f"{name} must have {rows} rows like the stream; got {drive.shape[0]}")
        if family.vocab_size is not None:
            check_token_ids("tokens", drive, family.vocab_size)
        elif readable(drive) and not drive.isfinite().all():
            raise ValueError("features must hold finite numbers")
        shape = rows, drive.shape[1]
        if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != shape):
            raise ValueError(f"mask must be a bool tensor of shape {shape}; got {_described(mask)}")
        wide = rows, drive.shape[1], self.state_dim
        if bias is not None and (not isinstance(bias, Tensor) or bias.shape != wide or not bias.isfinite().all()):
            raise ValueError(f"bias must hold finite numbers in shape {wide}; got {_described(bias)}")

    def extra_repr(self) -> str:
        """State dimension."""
        return f"state_dim={self.state_dim}, backend={self.backend!r}"


def _described(value: object) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
