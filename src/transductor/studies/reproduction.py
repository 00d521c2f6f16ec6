"""Running all arms and seeds of several studies: finished runs are skipped, the rest is spread over processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from transductor.checks import check_positive, one_of
from transductor.one_writer import only_writer
from transductor.studies.running import is_done, run_arm, stacks
from transductor.studies.spreading import BACKENDS, spread
from transductor.studies.study import Arm, Study

# Called whenever a job ends, with the job, the number of jobs done, and the number of all jobs.
OnJob = Callable[["Job", int, int], None]


@dataclass(frozen=True)
class Job:
    """One arm and the seeds that are trained together."""

    study: Study
    arm: Arm
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """The study, the arm and the seeds, for people to read."""
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {', '.join(map(str, self.seeds))}"
        return f"{self.study.name} · {self.arm.name} · {seeds}"


def pending(studies: Sequence[Study], folder: str | Path, *, together: bool) -> tuple[list[Job], int]:
    """Return the jobs that are left, long ones first, and how many runs are done already."""
    folder = Path(folder)
    jobs: list[Job] = []
    done = 0
    for study in studies:
        for arm in study.arms:
            missing = tuple(seed for seed in study.seeds if not is_done(study, arm, seed, folder))
            done += len(study.seeds) - len(missing)
            # The seeds of an arm that seeks its rate share what it finds.
            if missing and (arm.rates or (together and stacks(arm))):
                jobs.append(Job(study, arm, missing))
            else:
                jobs += [Job(study, arm, (seed,)) for seed in missing]
    return sorted(jobs, key=lambda job: -_cost(job.arm)), done


def _cost(arm: Arm) -> float:
    """Estimate the cost roughly: tokens, times layers where there are some."""
    layers = getattr(getattr(arm.model, "backbone", arm.model), "layers", 0)
    judged = sum(probe.length * probe.sequences for probe in arm.probes)
    return (3 * arm.training.steps * arm.training.batch_size * arm.training.length + judged) * (1 + 4 * layers)


def reproduce(
    studies: Sequence[Study],
    folder: str | Path,
    *,
    jobs: int = 1,
    backend: str = "loky",
    device: str = "cpu",
    together: bool | None = None,
    on_job: OnJob | None = None,
) -> int:
    """Do every run that has no record in ``folder`` yet; return how many jobs there were to do.

    When it is interrupted, it leaves complete records and the state of unfinished runs; the next call continues there.

    Args:
        studies: The studies to run.
        folder: Where records and models are written.
        jobs: Number of processes; on GPUs their jobs are dealt to the GPUs in turn.
        backend: Where they are: ``"loky"`` (this computer), ``"dask"`` or ``"ray"`` (a cluster: see
            :func:`~transductor.studies.spreading.spread`; its workers must see ``folder``).
        device: ``"cpu"`` or ``"cuda"``.
        together: Whether all seeds of an arm are trained as one job, which is quicker for small models.  None: on a GPU
            they are, on a CPU every run is a job.
        on_job: Called whenever a job ends.
    """
    check_positive("jobs", jobs)
    one_of("backend", backend, BACKENDS)
    with only_writer(folder):
        todo, _ = pending(studies, folder, together=device != "cpu" if together is None else together)
        _done_all(todo, folder, jobs, backend, device, on_job)
        return len(todo)


def _done_all(
    todo: Sequence[Job], folder: str | Path, jobs: int, backend: str, device: str, on_job: OnJob | None
) -> None:
    if jobs == 1 and backend == "loky":
        for place, job in enumerate(todo, 1):
            _done(job, str(folder), device)
            if on_job is not None:
                on_job(job, place, len(todo))
        return
    # A cluster's workers were started elsewhere.
    shared = str(folder) if backend == "loky" else os.path.abspath(folder)
    calls = [(job, shared, device, 1, number) for number, job in enumerate(todo)]
    finished = spread(_done, calls, backend=backend, processes=jobs, device=device)
    with closing(finished):
        for count, job in enumerate(finished, 1):
            if on_job is not None:
                on_job(job, count, len(todo))


def _done(job: Job, folder: str, device: str, threads: int | None = None, number: int = 0) -> Job:
    if threads is not None:
        torch.set_num_threads(threads)  # the processes share the cores
        if device != "cpu":  # and deal the jobs to the GPUs in turn
            torch.cuda.set_device(number % torch.cuda.device_count())
    run_arm(job.study, job.arm, job.seeds, folder, device=device)
    return job
