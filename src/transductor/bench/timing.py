"""Calls are timed by replays of a captured graph, by events or by the host's clock; contenders take turns."""

from __future__ import annotations

import gc
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from transductor.bench.workloads import Ceilings
from transductor.results import environment

Call = Callable[[], Any]
Key = TypeVar("Key")

# One sample lasts about this long on a device, so that starting and stopping the clock does not show.
_SAMPLE_SECONDS = 2e-3
# Python itself leaves some hundred objects out of garbage collection; a caller who does so leaves out far more.
_OF_PYTHON = 10_000


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Leave the objects that exist now out of garbage collection, which then takes almost no time.

    Where the caller did so before, what was left out stays left out.
    """
    before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if before < _OF_PYTHON:
            gc.unfreeze()


@contextmanager
def full_float32() -> Iterator[None]:
    """Multiply float32 matrices in float32, never in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Stopwatch(ABC):
    """A clock whose ``sample()`` gives seconds per call, averaged over a short burst."""

    timed: str
    note: str = ""

    def summary(self, samples: Sequence[float]) -> dict[str, Any]:
        """Return the entry of these samples in a record."""
        return {**spread(samples), "timed": self.timed, **({"note": self.note} if self.note else {})}

    @abstractmethod
    def sample(self) -> float:
        """Return the seconds of one call."""


class HostClock(Stopwatch):
    """The host's clock around one call, each time on the next set of operands."""

    timed = "host"

    def __init__(self, calls: Sequence[Call], wait: Callable[[Any], object]) -> None:
        self._calls, self._wait, self._turn = calls, wait, 0
        self._wait(calls[0]())  # the first call warms up

    def sample(self) -> float:
        """Return the seconds of one call."""
        self._turn += 1
        call = self._calls[self._turn % len(self._calls)]
        gc.collect()  # so that this call does not pay for the garbage of another
        begin = time.perf_counter()
        self._wait(call())
        return time.perf_counter() - begin


class _Bursts(Stopwatch):
    """A clock around several rounds of all calls, as many as fill a sample."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls, self._rounds = calls, 1
        self._rounds = max(1, min(50, round(_SAMPLE_SECONDS / max(self._seconds(), 1e-7))))

    @abstractmethod
    def _seconds(self) -> float:
        """Return the seconds of all rounds."""

    def sample(self) -> float:
        """Return the seconds per call."""
        return self._seconds() / (self._rounds * len(self._calls))


class HostBurst(_Bursts):
    """The host's clock around a burst of asynchronous calls, for libraries with streams of their own."""

    timed = "burst"

    def __init__(self, calls: Sequence[Call], wait: Callable[[Any], object]) -> None:
        self._wait = wait
        for call in calls:
            wait(call())
        super().__init__(calls)

    def _seconds(self) -> float:
        begin = time.perf_counter()
        for _ in range(self._rounds):
            results = [call() for call in self._calls]
        for result in results:
            self._wait(result)
        return time.perf_counter() - begin


class Events(_Bursts):
    """Device events around eager calls; includes the time in which the device waits for the host."""

    timed = "events"

    def _burst(self) -> None:
        for call in self._calls:
            call()

    def _seconds(self) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(self._rounds):
            self._burst()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3


class Replays(Events):
    """Device events around replays of a graph that holds one call per set of operands."""

    timed = "graph"

    def __init__(self, calls: Sequence[Call]) -> None:
        self._graph, self._results = captured(calls)
        super().__init__(calls)
        self._rounds = max(5, self._rounds)  # launching a long graph takes time; the next launches queue behind it

    def _burst(self) -> None:
        self._graph.replay()


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum under the names they have in a record."""
    return {"seconds": median(samples), "min": min(samples), "max": max(samples)}


def _warmed_up(calls: Sequence[Call]) -> torch.cuda.Stream:
    """Return a stream to capture on, warmed up: libraries compile on first use and keep workspaces per stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    return side


def captured(calls: Sequence[Call]) -> tuple[torch.cuda.CUDAGraph, list[tuple[Tensor, ...]]]:
    """Return a graph of all calls and the results it writes; refuse calls that wait for the device.

    The refusal comes before the wait reaches the driver, so that the capture ends in order.  The results are
    overwritten with NaN and replayed: a graph that writes other values than the eager calls is refused.
    """
    side, outer, graph = _warmed_up(calls), torch.cuda.current_stream(), torch.cuda.CUDAGraph()
    try:
        with warnings.catch_warnings(), torch.cuda.graph(graph, stream=side):
            warnings.simplefilter("ignore")  # "a prototype feature"
            torch.cuda.set_sync_debug_mode("error")
            try:
                results = [_tensors(call()) for call in calls]
            finally:
                torch.cuda.set_sync_debug_mode("default")
    except Exception:
        torch.cuda.set_stream(outer)  # a capture that broke leaves its own stream behind
        raise
    expected = [_tensors(call()) for call in calls]
    for result in results:
        for values in result:
            values.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    for result, wanted in zip(results, expected, strict=True):
        for values, right in zip(result, wanted, strict=True):
            gap = (values.double() - right.double()).norm() / right.double().norm().clamp_min(1e-30)
            if not float(gap) < 1e-2:
                raise RuntimeError(f"the captured graph gives other values: off by {float(gap):.1e}")
    return graph, results


def _tensors(result: Any) -> tuple[Tensor, ...]:
    values = result if isinstance(result, tuple) else (result,)
    return tuple(value.detach() for value in values if isinstance(value, Tensor) and value.is_floating_point())


def stopwatch(
    calls: Sequence[Call], device: str, wait: Callable[[Any], object] | None = None, *, capturable: bool = True
) -> Stopwatch:
    """Return the best clock for these calls, warmed up.  ``wait`` marks a library with streams of its own."""
    if device != "cuda":
        return HostClock(calls, wait or (lambda _: None))
    if wait is not None:
        return HostBurst(calls, wait)
    if not capturable:
        _warmed_up(calls)
        return Events(calls)
    try:
        return Replays(calls)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        torch.cuda.synchronize()  # a device that cannot go on raises here
        watch = Events(calls)
        watch.note = f"not captured: {str(error).splitlines()[0][:160] if str(error) else type(error).__name__}"
        return watch


def call_time(calls: Sequence[Call], wait: Callable[[Any], object] | None, box: float) -> float:
    """Return the median seconds of one call as a user makes it, from an idle device to an idle device."""
    wait = wait or (lambda _: torch.cuda.synchronize())
    torch.cuda.synchronize()
    samples: list[float] = []
    began = time.perf_counter()
    while len(samples) < 5 or (len(samples) < 50 and time.perf_counter() - began < box):
        call = calls[len(samples) % len(calls)]
        begin = time.perf_counter()
        wait(call())
        samples.append(time.perf_counter() - begin)
    return median(samples)


def take_turns(
    watches: Mapping[Key, Stopwatch], *, box: float, rounds: int, fewest: int = 2
) -> dict[Key, list[float] | Exception]:
    """Sample every contender in turns, so that a slow moment of the computer hits all of them.

    Each stops after ``rounds`` samples, or ``fewest`` once its time box is spent.
    """
    samples: dict[Key, list[float] | Exception] = {key: [] for key in watches}
    spent = dict.fromkeys(watches, 0.0)
    for _ in range(rounds):
        for key, watch in watches.items():
            so_far = samples[key]
            if isinstance(so_far, Exception) or (spent[key] > box and len(so_far) >= fewest):
                continue
            begin = time.perf_counter()
            try:
                so_far.append(watch.sample())
            except Exception as error:
                samples[key] = error
            spent[key] += time.perf_counter() - begin
    return samples


def measured_ceilings(device: str, *, quick: bool = False) -> Ceilings:
    """Time a large copy, counting bytes read and written, and large products in float32 (no TF32) and float64."""
    numbers, side = (1 << 22, 256) if quick else (1 << 28, 8192) if device == "cuda" else (1 << 26, 2048)
    with full_float32(), torch.no_grad():
        source = torch.randn(numbers, device=device)
        target = torch.empty_like(source)
        copy = _quickest(lambda: target.copy_(source), device)
        return Ceilings(
            bytes_per_second=2 * source.nbytes / copy,
            float32=_product_rate(side, torch.float32, device),
            float64=_product_rate(side, torch.float64, device),
        )


def _product_rate(side: int, dtype: torch.dtype, device: str) -> float:
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * side**3 / _quickest(lambda: torch.mm(left, right, out=out), device)


def _quickest(call: Call, device: str) -> float:
    """Return the seconds of the quickest of seven calls, after one that warms up."""
    samples = []
    for _ in range(8):
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        samples.append(time.perf_counter() - begin)
    return min(samples[1:])


def run_environment(device: str, began: float, **details: Any) -> dict[str, Any]:
    """Return what a record says of the run that ``began`` then: hardware, versions, device, threads, duration."""
    here = environment()
    return {
        **here,
        "device": torch.cuda.get_device_name() if device == "cuda" else here["processor"],
        "threads": torch.get_num_threads(),
        **details,
        "seconds": round(time.perf_counter() - began, 1),
    }
