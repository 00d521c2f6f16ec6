"""The rational head: a family of transitions, an initial state, and a scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn

from transductor.checks import (
    check_positive,
    check_tensor,
    check_token_ids,
    described,
    one_of,
    readable,
    vmapped,
    working_dtype,
)
from transductor.configuration import configuration
from transductor.recurrence import Layout, Shards, backend_names, check_mask, scan, sequence_parallel_scan
from transductor.transitions import FamilySpec, Stepper, TransitionFamily, only_moves

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Up to this many steps, stepping is cheaper than setting up a scan.
FEW_STEPS = 4


@configuration
@dataclass(frozen=True)
class HeadConfig:
    """What is needed to build a head again: its class, its family and its backend."""

    head: str
    transitions: FamilySpec
    backend: str = "auto"


@dataclass(frozen=True)
class HeadState:
    """Where a stream stands: the state ``(B, D)``, and the transitions with the parameters of its start.

    ``step`` takes one step; ``table`` is what longer inputs are scanned with (None when driven by features).
    """

    state: Tensor
    step: Stepper
    table: Tensor | None

    def reordered(self, rows: Tensor) -> HeadState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return replace(self, state=self.state.index_select(0, rows))


class HeadOptions(TypedDict, total=False):
    """The options of :meth:`RationalHead.forward` that do not change what it returns, for the type checker."""

    bias: Tensor | None
    initial_state: Tensor | None
    mask: Tensor | None
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    time_group: ProcessGroup | None
    layout: Layout | None


class RationalHead(nn.Module):
    """Tokens (or features) to automaton states ``h_t = M_{x_t} h_{t-1}``, from a learned ``h_0``.

    Several heads in parallel are one head over a :class:`~transductor.transitions.DirectSum`.

    Args:
        transitions: The family.  Driven by tokens, the head reads ``(B, T)`` ids; driven by features,
            ``(B, T, F)``.
        backend: The backend of the scan.
    """

    name = "rational"
    shows_previous: ClassVar[bool] = False  # whether the state before each token is shown beside the state after it
    trains: ClassVar[bool] = True  # whether parameters start trainable
    linear: ClassVar[bool] = True  # whether a state is a linear function of the one before

    def __init__(self, transitions: TransitionFamily, *, backend: str = "auto") -> None:
        super().__init__()
        if not isinstance(transitions, TransitionFamily):
            raise TypeError(f"transitions must be a transition family; got {type(transitions).__name__}")
        one_of("backend", backend, backend_names())
        self.transitions = transitions
        self.backend = backend
        self.raw_initial_state = nn.Parameter(torch.randn(transitions.state_dim))
        if not self.trains:
            self.requires_grad_(False)

    @classmethod
    def from_family(cls, transitions: TransitionFamily, backend: str) -> Self:
        """Build the head of this class over a family built elsewhere, with all its options."""
        head = cls(**cls._arguments(transitions), backend=backend)
        head.transitions = transitions if cls.trains else transitions.requires_grad_(False)
        return head

    @classmethod
    def _arguments(cls, transitions: TransitionFamily) -> dict[str, Any]:
        """Return the arguments with which the constructor makes a head over such a family."""
        return {"transitions": transitions}

    @property
    def state_dim(self) -> int:
        """The dimension D of the state."""
        return self.transitions.state_dim

    @property
    def output_dim(self) -> int:
        """How many numbers leave the head at each position."""
        return 2 * self.state_dim if self.shows_previous else self.state_dim

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
        """The configuration that builds this head again."""
        return HeadConfig(self.name, self.transitions.spec(), self.backend)

    def initial_state(self) -> Tensor:
        """Return ``h_0 (D)``, shaped to the family: a distribution for stochastic ones."""
        raw = self.raw_initial_state
        return self.transitions.start_from(raw.to(working_dtype(raw.dtype)))

    @overload
    def forward(
        self, drive: Tensor, *, return_final: Literal[False] = ..., **options: Unpack[HeadOptions]
    ) -> Tensor: ...

    @overload
    def forward(
        self, drive: Tensor, *, return_final: Literal[True], **options: Unpack[HeadOptions]
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
        layout: Layout | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the states ``(B, T, D)``, in at least float32; see :func:`transductor.scan` for the options.

        Args:
            drive: Tokens ``(B, T)`` or ``(T)``; features ``(B, T, F)`` or ``(T, F)`` for a family driven by
                features.
            bias: Additive term per position, ``(B, T, D)``.
            initial_state: Replaces the learned initial state: ``(D)`` or ``(B, D)``.
            time_group: Ranks that hold a shard of the time axis each; see
                :func:`~transductor.recurrence.sequence_parallel_scan`.
            layout: Replaces ``mask``, ``lengths``, ``cu_seqlens`` and ``time_group``; from a model, which has checked
                them and the tokens.
        """
        if not isinstance(drive, Tensor):
            raise TypeError(f"tokens (or features) must be a torch.Tensor; got {type(drive).__name__}")
        start = self.initial_state() if initial_state is None else initial_state
        family, tokens = self.transitions, None if self.transitions.vocab_size is None else drive
        transitions = family.matrices(drive) if tokens is None else family.table()
        if layout is None:
            if family.vocab_size is not None:
                check_token_ids("tokens", drive, family.vocab_size)
            if mask is not None:
                check_tensor("mask", mask)
            shape = drive.shape if family.feature_dim is None else drive.shape[:-1]
            shards = None if time_group is None else Shards.of(time_group, shape[-1], drive.device)
            layout = Layout.of(shape, drive.device, mask=mask, lengths=lengths, cu_seqlens=cu_seqlens, shards=shards)
        states, final = self._scanned(transitions, tokens, start, layout, bias)
        shown = self._shown(states, start, layout)
        return (shown, final) if return_final else shown

    def _scanned(
        self, transitions: Tensor, tokens: Tensor | None, start: Tensor, layout: Layout, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the states ``(B, T, D)``, and the last one of each row or document."""
        run: Callable[..., Any] = sequence_parallel_scan
        if layout.shards is None:
            run = partial(scan, blocks=self.transitions.blocks())
        states, final = run(
            transitions,
            tokens,
            bias=bias,
            initial_state=start,
            layout=layout,
            backend=self._scan_backend(layout),
            return_final=True,
        )
        return states, final

    if TYPE_CHECKING:
        __call__ = forward  # what nn.Module calls: a user's type checker then knows what a head returns

    def _scan_backend(self, layout: Layout) -> str:
        """Return our backend; for ``auto``, the one that the family asks for where it can run."""
        # A compiled graph and a sharded scan know the backends for matrices of any structure alone.
        if self.backend != "auto" or layout.shards is not None or torch.compiler.is_compiling():
            return self.backend
        return self.transitions.scan_backend()

    def _shown(self, states: Tensor, start: Tensor, layout: Layout) -> Tensor:
        """Return what leaves the head: the states ``(..., T, D)`` after each token, which began at ``start``."""
        return states

    def start(self, batch_size: int) -> HeadState:
        """Return a stream at time 0, for ``batch_size`` rows."""
        check_positive("batch_size", batch_size)
        family = self.transitions
        with family.full_precision():
            state = self.initial_state().expand(batch_size, -1)
            table = None if family.vocab_size is None else family.table()
            return HeadState(state, self.stepper(table), table)

    def stepper(self, table: Tensor | None) -> Stepper:
        """Return one step of a stream: the family's, or by ``table`` where its matrices only move numbers.

        Such a head is exact at every length; the factors of a family could round where the table does not.
        """
        stepper = self.transitions.stepper()
        if table is None or stepper.multiplies_table or torch.compiler.is_compiling() or vmapped(table):
            return stepper
        return Stepper.by_matrices(table) if only_moves(table) else stepper

    def advance(
        self,
        drive: Tensor,
        stream: HeadState,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        layout: Layout | None = None,
    ) -> tuple[Tensor, HeadState]:
        """Return the next n states ``(B, n, D)`` of a stream, and where it then stands.

        Equal to the parallel pass to rounding, however the input is split; one step costs
        ``transitions.step_cost()`` multiply–adds a row.  A ``layout`` replaces the mask, as in :meth:`forward`.
        """
        layout = self._checked_layout(drive, stream, bias, mask, layout)
        states, state = self._advanced(drive, stream, bias, layout)
        return self._shown(states, stream.state, layout), replace(stream, state=state)

    def _advanced(self, drive: Tensor, stream: HeadState, bias: Tensor | None, layout: Layout) -> tuple[Tensor, Tensor]:
        if drive.shape[1] > FEW_STEPS:
            transitions = self.transitions.matrices(drive) if stream.table is None else stream.table
            tokens = None if stream.table is None else drive
            return self._scanned(transitions, tokens, stream.state, layout, bias)
        if stream.table is not None:
            drive = drive.long()
        stepped, state = [], stream.state
        with self.transitions.full_precision():
            for t in range(drive.shape[1]):
                after = stream.step(state, drive[:, t])
                if bias is not None:
                    after = after + bias[:, t]
                state = after if layout.mask is None else after.where(layout.mask[:, t, None], state)
                stepped.append(state)
        if len(stepped) == 1:  # the usual case, where a copy would take noticeable time
            return state.unsqueeze(1), state
        states = torch.stack(stepped, 1) if stepped else state.new_empty(len(state), 0, self.state_dim)
        return states, state

    def _checked_layout(
        self, drive: Tensor, stream: HeadState, bias: Tensor | None, mask: Tensor | None, layout: Layout | None
    ) -> Layout:
        """Refuse for single steps what the scan would refuse; return the layout of the next positions."""
        family, rows = self.transitions, stream.state.shape[0]  # len() would make it a constant of a graph
        shape = "(B, n)" if family.feature_dim is None else f"(B, n, {family.feature_dim})"
        name = "tokens" if family.feature_dim is None else "features"
        if not isinstance(drive, Tensor) or drive.ndim != shape.count(",") + 1:
            raise ValueError(f"{name} must be a tensor of shape {shape}; got {described(drive)}")
        if drive.shape[0] != rows:
            raise ValueError(f"{name} must have {rows} rows like the stream; got {drive.shape[0]}")
        if family.vocab_size is None and readable(drive) and not drive.isfinite().all():
            raise ValueError("features must hold finite numbers")
        wide = rows, drive.shape[1], self.state_dim
        if bias is not None and (not isinstance(bias, Tensor) or bias.shape != wide or not bias.isfinite().all()):
            raise ValueError(f"bias must hold finite numbers in shape {wide}; got {described(bias)}")
        if layout is not None:
            return layout
        if family.vocab_size is not None:
            check_token_ids("tokens", drive, family.vocab_size)
        if mask is not None:
            check_mask(mask, drive.shape[:2])
        return Layout(mask)

    def extra_repr(self) -> str:
        """Describe the state dimension and the backend."""
        return f"state_dim={self.state_dim}, backend={self.backend!r}"
