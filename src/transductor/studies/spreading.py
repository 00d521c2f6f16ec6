"""Calls spread over processes: of this computer, of a Dask cluster or of a Ray cluster.

Dask and Ray replace a worker that dies and make its call again; loky gives up, and says so.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor
from importlib import import_module
from typing import Any, Final, TypeVar

import torch

from transductor.checks import check_positive, one_of

BACKENDS: Final = ("loky", "dask", "ray")
_TRIES: Final = 4  # workers that one call may lose; Dask's own number
_Result = TypeVar("_Result")


def processes_for(device: str) -> int:
    """Return how many processes suit a device: one for each core, or one for each GPU.

    A process for each core of a computer would have them share one GPU and its memory.
    """
    if device != "cpu":
        return max(1, torch.cuda.device_count())
    import joblib

    return int(joblib.cpu_count())


def spread(
    function: Callable[..., _Result],
    calls: Sequence[tuple[Any, ...]],
    *,
    backend: str,
    processes: int,
    device: str = "cpu",
) -> Generator[_Result]:
    """Yield what a function returns for each tuple of arguments, as the calls end.

    Args:
        function: A function of a module, which every process can import.
        calls: Its arguments; the first calls begin first.
        backend: ``"loky"``: processes of this computer.  ``"dask"`` or ``"ray"``: workers of the cluster that
            ``DASK_SCHEDULER_ADDRESS`` or ``RAY_ADDRESS`` names; without it, of one that is started here and ends with
            the last call.
        processes: How many; a cluster that runs already has as many as it has.
        device: ``"cpu"``, or ``"cuda"`` where Ray is to give every call its share of a GPU.

    Raises:
        BrokenExecutor: If a process dies (loky), or one call loses four workers (Dask, Ray).
    """
    check_positive("processes", processes)
    one_of("backend", backend, BACKENDS)
    if backend == "loky":
        return _by_loky(function, calls, processes)
    if backend == "dask":
        return _by_dask(function, calls, processes)
    return _by_ray(function, calls, processes, device)


def _by_loky(function: Callable[..., _Result], calls: Sequence[tuple[Any, ...]], processes: int) -> Generator[_Result]:
    import joblib

    parallel = joblib.Parallel(n_jobs=processes, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
    results = parallel(joblib.delayed(function)(*call) for call in calls)
    try:
        for result in results:  # noqa: UP028
            yield result  # `yield from` would close them before warnings are caught
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # when interrupted, joblib advises smaller tasks
            results.close()


def _by_dask(function: Callable[..., _Result], calls: Sequence[tuple[Any, ...]], processes: int) -> Generator[_Result]:
    distributed = _required("dask.distributed", "dask[distributed]")
    if not calls:
        return
    configured = import_module("dask").config.get("scheduler-address", None)
    # No limit of memory: a run's need is not the computer's memory divided by the workers.
    local = {"n_workers": processes, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    with distributed.Client(**({} if configured else local)) as client:
        if any(threads != 1 for threads in client.nthreads().values()):
            raise ValueError(
                "every worker must have one thread, because torch's random numbers belong to a process; "
                "start them with dask worker --nthreads 1"
            )
        futures = client.map(function, *zip(*calls, strict=True), pure=False)
        try:
            for future in distributed.as_completed(futures):
                yield future.result()
        except distributed.KilledWorker as error:
            raise BrokenExecutor(_LOST) from error
        finally:
            client.cancel(futures)


def _by_ray(
    function: Callable[..., _Result], calls: Sequence[tuple[Any, ...]], processes: int, device: str
) -> Generator[_Result]:
    ray = _required("ray", "ray")
    if not calls:
        return
    begun_here = not ray.is_initialized()
    if begun_here:
        local = {"address": "local", "num_cpus": processes, "include_dashboard": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send statistics to its makers
        ray.init(**({} if "RAY_ADDRESS" in os.environ else local), log_to_driver=False, logging_level="ERROR")
    gpus = 0.0 if device == "cpu" else min(1.0, torch.cuda.device_count() / processes)
    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=_TRIES - 1)(function)
    left = [remote.remote(*call) for call in calls]
    try:
        while left:
            (ended,), left = ray.wait(left)
            yield ray.get(ended)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise BrokenExecutor(_LOST) from error
    finally:
        for call in left:
            ray.cancel(call, force=True)
        if begun_here:
            ray.shutdown()


_LOST: Final = (
    f"{_TRIES} workers ended during the same run, most likely because memory ran out; records are complete, and the "
    "same command goes on from there"
)


def _required(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        backend = module.split(".")[0]
        raise ImportError(f"backend {backend!r} needs the package {package}; loky needs nothing") from error
