"""SIGTERM and SIGHUP as an exception that waits until a training step is complete, so that its state can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP


class EndedBySignal(KeyboardInterrupt):
    """The process was asked to end.

    Attributes:
        number: The signal.
        saved: Where the state was saved because of it; None where there was nothing to save.
        step: The step of that state.
    """

    def __init__(self, number: int, saved: Path | None = None, step: int = 0) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number, self.saved, self.step = number, saved, step


class _Request:
    """What was asked for and has not been answered yet."""

    waiting = 0  # how many parts of the program answer by themselves
    arrived: int | None = None


@contextmanager
def answered_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into :class:`EndedBySignal`, raised at once or where :func:`postponed` allows it.

    Only the main thread can do this, and only where the program has not chosen otherwise (``nohup`` ignores SIGHUP);
    elsewhere nothing changes.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {each: signal.getsignal(each) for each in SIGNALS if signal.getsignal(each) is signal.SIG_DFL}
    for each in before:
        signal.signal(each, _on_signal)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        if before:  # it was asked of what ran here
            _Request.arrived = None


def _on_signal(number: int, _: FrameType | None) -> None:
    first, _Request.arrived = _Request.arrived is None, number
    if _Request.waiting and first:
        return
    # At once; also for the second signal of somebody impatient.  What is raised while Python collects garbage or runs a
    # callback is printed and lost: then the next step that asks what has arrived is the one that ends.
    raise EndedBySignal(number)


@contextmanager
def postponed() -> Iterator[Callable[[], int | None]]:
    """Postpone the exception; the function that is yielded returns the signal that has arrived, or None."""
    _Request.waiting += 1
    try:
        yield lambda: _Request.arrived
    finally:
        _Request.waiting -= 1
