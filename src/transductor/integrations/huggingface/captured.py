"""One decoded token of a sidecar as a captured graph: what a GPU is asked to do for it is recorded once, and replayed.

Where Python calls the model, the half dozen small operations of a sidecar cost far more to launch than to compute.  A
graph is one launch.  It reads and writes at fixed addresses, so each cache that decodes has a step of its own; a step
whose cache is gone serves the next.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from transductor.injection import Inject, Injection
from transductor.kernels.plan import LARGEST_STATE
from transductor.transitions import (
    COMPOSITES,
    FAMILIES,
    ExponentialTransitions,
    SpectralCap,
    Stepper,
    TransitionFamily,
)

if TYPE_CHECKING:
    from transductor.integrations.huggingface.sidecar import Sidecar

__all__ = ["MOST_STATES", "CapturedStep", "captured_step", "overwritten"]

_LOGGER = logging.getLogger(__name__)

# So many states a step keeps until somebody must take them.
MOST_STATES = 64


class CapturedStep:
    """From a token, or its features, to the terms of all layers; the states are kept until they are asked for.

    Args:
        sidecar: Whose step it is.
        stepper: How its head takes a step; what it keeps stays where it is.
        state: ``(B, D)`` of a stream, for its shape.
        drive: Tokens ``(B, 1)`` or features ``(B, 1, F)``, for their shape.

    ``count`` is the number of states since :meth:`begin`; ``current`` whether the stream still stands where the step
    left it.
    """

    def __init__(self, sidecar: Sidecar, stepper: Stepper, state: Tensor, drive: Tensor) -> None:
        self.sidecar, self.addresses = weakref.ref(sidecar), _addresses(sidecar)
        self.stepper = stepper
        self.count, self.current = 0, False
        with torch.inference_mode(False):  # written to in either mode
            self.drive = torch.zeros_like(drive)
            self._state = torch.zeros_like(state)
            self._states = state.new_zeros(MOST_STATES, *state.shape)
            self._place = torch.zeros(1, dtype=torch.int64, device=state.device)
            self._terms = sidecar.injection.project(state.unsqueeze(1)).clone()
        self._inject = sidecar.injection.inject(self._terms)
        self._read = [each.detach() for each in _numbers(sidecar)]  # a graph keeps nothing alive
        self._replay = recorded(self._launches(sidecar.token_classes, sidecar.injection), state.device)

    def _launches(self, token_classes: Tensor | None, injection: Injection) -> Callable[[], None]:
        """What is recorded; it must not lead back to the sidecar, which a waiting step would keep alive."""
        drive, state, states, place, terms = self.drive, self._state, self._states, self._place, self._terms
        stepper = self.stepper

        def launch() -> None:
            letters = drive if token_classes is None else token_classes.take(drive.long())
            after = stepper(state, letters.squeeze(1))
            state.copy_(after)
            states.index_copy_(0, place, after.unsqueeze(0))
            place.add_(1)
            terms.copy_(injection.project(after.unsqueeze(1)))

        return launch

    def fits(self, drive: Tensor) -> bool:
        """Whether it was made for such tokens or features."""
        ours = self.drive
        return drive.shape == ours.shape and drive.dtype == ours.dtype and drive.device == ours.device

    def begin(self, state: Tensor) -> None:
        """Go on from the state ``(B, D)``."""
        self._state.copy_(state)
        self._place.zero_()
        self.count, self.current = 0, True

    def __call__(self, drive: Tensor) -> Inject:
        """``inject(slot, stream)`` after one more token."""
        self.drive.copy_(drive)
        self._replay()
        self.count += 1
        return self._inject

    def state(self) -> Tensor:
        """The last, ``(B, D)``."""
        return self._state.clone()

    def states(self) -> Tensor:
        """All since :meth:`begin`, ``(B, n, D)``."""
        return self._states[: self.count].transpose(0, 1).clone()

    def forget(self) -> None:
        """The stream goes on elsewhere."""
        self.count, self.current = 0, False


# Steps whose caches are gone: the last one of each sidecar.
_IDLE: weakref.WeakKeyDictionary[Any, list[CapturedStep]] = weakref.WeakKeyDictionary()


def captured_step(owner: Any, sidecar: Sidecar, stepper: Stepper, state: Tensor, drive: Tensor) -> CapturedStep | None:
    """A step for the cache layer ``owner`` until it is gone; None where nothing can be captured.

    Args:
        owner: Whoever the step belongs to alone.
        sidecar: Whose step it is.
        stepper: How its head takes a step, with the parameters of now.
        state: ``(B, D)``.
        drive: Tokens ``(B, 1)`` or features ``(B, 1, F)``.
    """
    if not _can_be_captured(sidecar, drive):
        return None
    idle = _IDLE.setdefault(sidecar, [])
    step = idle.pop() if idle else None
    if step is not None and step.fits(drive) and step.addresses == _addresses(sidecar):
        kept = overwritten(step.stepper.kept, stepper.kept)
        if kept is not None:
            step.stepper = replace(stepper, kept=kept)
            _returned_by(owner, idle, step)
            return step
    if not alone():
        return None
    try:
        step = CapturedStep(sidecar, stepper, state, drive)
    except RuntimeError as error:
        _LOGGER.warning("the sidecar's step was not captured, which costs time alone: %s", error)
        return None
    _returned_by(owner, idle, step)
    return step


def _returned_by(owner: Any, idle: list[CapturedStep], step: CapturedStep) -> None:
    """When the owner is gone, the step is the one that waits."""

    def give_back() -> None:
        step.forget()
        idle[:] = [step]

    weakref.finalize(owner, give_back).atexit = False


def overwritten(old: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
    """The old tensors with the numbers of the new ones; None where they cannot hold them."""
    if len(old) != len(new) or not all(
        (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
        and (torch.is_inference_mode_enabled() or not a.is_inference())
        for a, b in zip(old, new, strict=True)
    ):
        return None
    for a, b in zip(old, new, strict=True):
        if a.data_ptr() != b.data_ptr():
            a.copy_(b)
    return old


def _numbers(sidecar: nn.Module) -> list[Tensor]:
    return [*sidecar.parameters(), *sidecar.buffers()]


def _addresses(sidecar: nn.Module) -> list[tuple[int, torch.dtype]]:
    """Where a graph finds the numbers of the sidecar."""
    return [(each.data_ptr(), each.dtype) for each in _numbers(sidecar)]


def _can_be_captured(sidecar: Sidecar, drive: Tensor) -> bool:
    """Whether every launch of the step is known, on one stream, and what it reads stays where it is."""
    if not on_a_gpu(drive) or (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False  # ranks may gather parameters anew for every call
    touched = any(
        module._forward_hooks or module._forward_pre_hooks or hasattr(module, "_hf_hook") or "forward" in vars(module)
        for module in sidecar.modules()
    )
    families = [module for module in sidecar.modules() if isinstance(module, TransitionFamily)]
    return not touched and type(sidecar.injection.projections) is nn.Linear and all(map(_only_launches, families))


def _only_launches(family: TransitionFamily) -> bool:
    """Whether a step never waits for the GPU, which would spoil a capture; of families elsewhere nothing is known."""
    if type(family) not in (*FAMILIES.values(), *COMPOSITES.values()):
        return False
    # Driven by features, the matrices are computed in the step: there an exponential, or a solve, would wait.
    waits = isinstance(family, ExponentialTransitions | SpectralCap) or family.state_dim > LARGEST_STATE
    return family.feature_dim is None or not waits


def on_a_gpu(drive: Tensor) -> bool:
    """Whether the tensor is a plain one on a GPU, in its default stream: everything there happens in turn."""
    return (
        type(drive) is Tensor
        and drive.is_cuda
        and torch.cuda.current_stream(drive.device) == torch.cuda.default_stream(drive.device)
    )


def alone() -> bool:
    """Whether no other thread of Python runs: one that draws random numbers on the GPU during a capture would fail."""
    return all(
        thread is threading.current_thread() or isinstance(thread, threading._DummyThread)
        for thread in threading.enumerate()
    )


_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def recorded(launch: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """What ``launch`` has a GPU do, to be done again by one call."""
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream(device)
    stream, now = _STREAMS[device], torch.cuda.current_stream(device)
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(now)
    with torch.inference_mode(False), torch.no_grad(), torch.cuda.device(device), torch.cuda.stream(stream):
        launch()  # libraries prepare themselves here, and what cannot be done fails
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            launch()
        finally:  # torch's random numbers wait for it
            graph.capture_end()
    now.wait_stream(stream)
    return graph.replay
