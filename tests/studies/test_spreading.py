"""Calls spread over processes and clusters: workers that die, errors, clusters that run already, GPUs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import BrokenExecutor
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from tests.studies.miniatures import ANNEALED, PLAIN, findings, measured
from transductor.json_reading import JSONError, read_json
from transductor.one_writer import LOCK_FILE
from transductor.studies import Study, reproduce, reproduction
from transductor.studies.spreading import processes_for, spread

CLUSTERS = {"dask": "dask.distributed", "ray": "ray"}
# Long enough to be killed after its first written state, which is that of step 500.
LONG = replace(ANNEALED, name="long", training=replace(ANNEALED.training, steps=3000))
STUDY = Study("miniature", "Does it run?", (PLAIN, LONG), (0, 1))


@pytest.fixture(params=CLUSTERS)
def cluster(request, monkeypatch):
    """The name of a backend whose package is installed; no cluster of it runs yet."""
    pytest.importorskip(CLUSTERS[request.param])
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return request.param


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def divided(numerator, denominator):
    return numerator / denominator


def kill_first_writer(folder, ended):
    """Kill the first process that holds the state of a run, once it has written one."""
    while not ended.is_set():
        for state in folder.glob(".state/miniature/long/seed*/training.json"):
            try:
                os.kill(read_json(state.with_name(LOCK_FILE))["process"], signal.SIGKILL)
            except JSONError:
                continue
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_leaves_the_records_of_a_plain_run(cluster, tmp_path):
    ended, seen = threading.Event(), []
    killer = threading.Thread(target=kill_first_writer, args=(tmp_path / "spread", ended))
    killer.start()
    try:
        assert reproduce(
            [STUDY], tmp_path / "spread", jobs=2, backend=cluster, on_job=lambda *job: seen.append(job[1:])
        ) == len(seen)
    finally:
        ended.set()
        killer.join()
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    resumed = [measured(tmp_path / "spread", STUDY, LONG, seed)["training"].get("resumed_at", 0) for seed in (0, 1)]
    assert max(resumed) >= 500  # a worker died, and another one went on
    reproduce([STUDY], tmp_path / "plain")
    assert findings(tmp_path / "spread", STUDY) == findings(tmp_path / "plain", STUDY)
    assert reproduce([STUDY], tmp_path / "spread", jobs=2, backend=cluster) == 0


@pytest.mark.slow
def test_a_call_that_takes_every_worker_down_is_given_up(cluster):
    with pytest.raises(BrokenExecutor, match=r"^4 workers ended during the same run"):
        list(spread(die, [(0,)], backend=cluster, processes=1))


@pytest.mark.slow
def test_an_error_is_that_of_the_call(cluster):
    with pytest.raises(ZeroDivisionError, match=r"^float division by zero$") as caught:
        list(spread(divided, [(1.0, 0.0), (1.0, 2.0)], backend=cluster, processes=1))
    assert type(caught.value) is ZeroDivisionError


@pytest.mark.slow
def test_a_cluster_that_runs_already_is_used_and_left_running(cluster):
    calls = [(float(number), 2.0) for number in range(8)]
    if cluster == "dask":
        dask, distributed = pytest.importorskip("dask"), pytest.importorskip("dask.distributed")
        options = {"n_workers": 1, "dashboard_address": None, "memory_limit": 0}
        for threads in (1, 2):
            with (
                distributed.LocalCluster(**options, threads_per_worker=threads) as local,
                distributed.Client(local) as client,
                dask.config.set({"scheduler-address": local.scheduler_address}),  # what DASK_SCHEDULER_ADDRESS sets
            ):
                if threads == 1:
                    assert sorted(spread(divided, calls, backend="dask", processes=7)) == [n / 2 for n in range(8)]
                else:
                    with pytest.raises(ValueError, match="every worker must have one thread"):
                        list(spread(divided, calls, backend="dask", processes=7))
                assert list(client.nthreads().values()) == [threads]
        return
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        assert sorted(spread(divided, calls, backend="ray", processes=7)) == [number / 2 for number in range(8)]
        with closing(spread(divided, calls, backend="ray", processes=7)) as some:
            next(some)
        assert ray.cluster_resources()["CPU"] == 1
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    ("backend", "module", "package"), [("dask", "dask.distributed", r"dask\[distributed\]"), ("ray", "ray", "ray")]
)
def test_a_missing_package_is_named(monkeypatch, backend, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"backend '{backend}' needs the package {package}; loky needs nothing"):
        list(spread(divided, [(1.0, 2.0)], backend=backend, processes=1))


def test_without_calls_nothing_is_started():
    assert list(spread(divided, [], backend="loky", processes=2)) == []


@pytest.mark.slow
def test_without_calls_no_cluster_is_started(cluster):
    begun = time.monotonic()
    assert list(spread(divided, [], backend=cluster, processes=2)) == []
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(("gpus", "processes"), [(0, 1), (1, 1), (4, 4)])
def test_a_gpu_is_not_shared_by_as_many_processes_as_there_are_cores(monkeypatch, gpus, processes):
    monkeypatch.setattr("joblib.cpu_count", lambda: 16)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert (processes_for("cuda"), processes_for("cpu")) == (processes, 16)


def test_jobs_are_dealt_to_the_gpus_in_turn(monkeypatch):
    dealt = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", dealt.append)
    monkeypatch.setattr(reproduction, "run_arm", lambda *_, device: dealt.append(device))
    job = reproduction.Job(STUDY, PLAIN, (0,))
    for number in range(4):
        reproduction._done(job, "nowhere", "cuda", 1, number)
    assert dealt == [0, "cuda", 1, "cuda", 2, "cuda", 0, "cuda"]
    reproduction._done(job, "nowhere", "cpu", 1, 4)
    assert dealt[8:] == ["cpu"]
