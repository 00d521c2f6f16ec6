"""The forward algorithm beside other libraries: log-likelihoods and gradients against float64, and the time they take.

Hidden Markov models of 8, 16, 32 and 64 states and 100 letters, on a million letters in one row and on 64 rows of
8 192.  ``mixing`` chains are drawn from Dirichlet distributions; ``sticky`` ones stay where they are with probability
0.99 and show vague letters, so that beliefs forget slowly.  Steps, each a command:

* ``draw`` writes the letters, ``exact`` log-likelihoods and gradients by sums in log space in float64 (half an hour of
  one core at most), both to ``--folder``;
* ``cpu`` times ours beside hmmlearn, pomegranate and dynamax, as far as they are installed, in processor seconds of one
  thread, and writes ``benchmarks/results/forward_algorithm_cpu.json``;
* ``cuda`` times ours beside JAX, by its associative scan over scaled matrices and by a loop in log space, and writes
  ``forward_algorithm_cuda.json``; ``warm`` only compiles what it needs, which takes longer than the measurement;
* ``figure`` draws both records.

Everybody computes the log-likelihood and the beliefs after every letter, in float32, except hmmlearn and pomegranate,
which know float64 or the log-likelihood alone.  A peer that is too slow is timed on the first letters; its seconds are
then those of as many letters as the others had, in proportion, and the record has how many there were.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import torch

from transductor.automata import HiddenMarkovModel
from transductor.recurrence import scan
from transductor.results import Record, environment, read_record

RESULTS = Path(__file__).parent / "results"
LETTERS = 100
TURNS = 5
TOO_SLOW = 15.0  # seconds of a call that is not made again in full


class Case(NamedTuple):
    """One model and the letters it is run on."""

    chain: str
    states: int
    rows: int
    length: int

    @property
    def name(self) -> str:
        """Its name in files and records."""
        return f"{self.chain}_{self.states}_{self.rows}x{self.length}"


SIZES = (8, 16, 32, 64)
CASES = tuple(
    Case(chain, states, rows, length)
    for chain, shapes in (("mixing", ((1, 10**6), (64, 8192))), ("sticky", ((1, 10**6),)))
    for states in SIZES
    for rows, length in shapes
)


def model(case: Case) -> HiddenMarkovModel:
    """Draw the model of a case."""
    rng, states = np.random.default_rng(case.states), case.states
    start = rng.dirichlet(np.ones(states))
    if case.chain == "sticky":
        moves = 0.99 * np.eye(states) + 0.01 / states
        return HiddenMarkovModel(start, moves, rng.dirichlet(np.full(LETTERS, 5.0), states))
    moves = rng.dirichlet(np.full(states, 0.5), states)
    return HiddenMarkovModel(start, moves, rng.dirichlet(np.full(LETTERS, 0.3), states))


def letters_of(case: Case) -> np.ndarray:
    """Draw letters ``(rows, length)``; a single long row is 64 shorter ones, one after the other."""
    hidden, rng = model(case), np.random.default_rng(1)
    steps = case.rows * case.length // 64
    moves, shows = (np.cumsum(values, 1) for values in (hidden.transitions, hidden.emissions))
    state = rng.integers(0, case.states, 64)
    letters = np.empty((64, steps), np.uint8)
    for step in range(steps):
        luck = rng.random((2, 64, 1))
        letters[:, step] = np.minimum((luck[0] > shows[state]).sum(1), LETTERS - 1)
        state = np.minimum((luck[1] > moves[state]).sum(1), case.states - 1)
    return letters.reshape(case.rows, case.length)


def draw(folder: Path) -> None:
    """Write the letters of every case."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if not (path := folder / f"letters_{case.name}.npy").exists():
            np.save(path, letters_of(case))


def exact(folder: Path) -> None:
    """Write log-likelihoods ``(rows)`` and the gradient of their sum in the table, by float64 in log space."""
    import numba

    @numba.njit(fastmath=False, error_model="numpy")
    def passes(logs: Any, letters: Any, start: Any, gradient: Any) -> Any:
        length, states = len(letters), len(start)
        before = np.empty((length + 1, states))
        before[0] = start
        terms = np.empty(states)
        for t in range(length):
            for j in range(states):
                largest = -np.inf
                for i in range(states):
                    terms[i] = before[t, i] + logs[letters[t], j, i]
                    largest = max(largest, terms[i])
                total = 0.0
                for i in range(states):
                    total += np.exp(terms[i] - largest)
                before[t + 1, j] = largest + np.log(total)
        largest = before[length].max()
        likelihood = largest + np.log(np.exp(before[length] - largest).sum())
        later, earlier = np.zeros(states), np.empty(states)
        left, right = np.empty(states), np.empty(states)
        for t in range(length - 1, -1, -1):
            here, there = before[t].max(), later.max()
            scale = np.exp(here + there - likelihood)
            for i in range(states):
                left[i], right[i] = np.exp(before[t, i] - here), np.exp(later[i] - there)
            for j in range(states):
                for i in range(states):
                    gradient[letters[t], j, i] += right[j] * left[i] * scale
            for i in range(states):
                largest = -np.inf
                for j in range(states):
                    terms[j] = later[j] + logs[letters[t], j, i]
                    largest = max(largest, terms[j])
                total = 0.0
                for j in range(states):
                    total += np.exp(terms[j] - largest)
                earlier[i] = largest + np.log(total)
            later[:] = earlier
        return likelihood

    for case in CASES:
        if (path := folder / f"exact_{case.name}.npz").exists():
            continue
        hidden, letters = model(case), np.load(folder / f"letters_{case.name}.npy")
        table = hidden.matrices()
        gradient = np.zeros_like(table)
        with np.errstate(divide="ignore"):
            logs, start = np.log(table), np.log(hidden.start)
        values = np.array([passes(logs, row, start, gradient) for row in letters])
        np.savez_compressed(path, values=values, gradient=gradient.astype(np.float32))
        print(case.name, values.sum(), flush=True)


class Ours:
    """Our scan on a device, in float32."""

    def __init__(self, case: Case, letters: np.ndarray, device: str) -> None:
        hidden = model(case)
        self.table = torch.tensor(hidden.matrices(), dtype=torch.float32, device=device).requires_grad_()
        self.start = torch.tensor(hidden.start, dtype=torch.float32, device=device)
        self.tokens = torch.from_numpy(letters.astype(np.int64)).to(device)

    def forward(self) -> torch.Tensor:
        """Return the log-likelihoods; beliefs are computed too."""
        with torch.no_grad():
            return scan(self.table, self.tokens, initial_state=self.start, normalise="l1").logs[:, -1]

    def both(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-likelihoods and the gradient of their sum."""
        logs = scan(self.table, self.tokens, initial_state=self.start, normalise="l1").logs[:, -1]
        return logs.detach(), torch.autograd.grad(logs.sum(), self.table)[0]

    def errors(self, folder: Path, case: Case) -> dict[str, float]:
        """Return relative errors: of the log-likelihood of the worst row, of the worst entry of the gradient."""
        if not (path := folder / f"exact_{case.name}.npz").exists():
            self.both()
            return {}
        right = np.load(path)
        logs, gradient = (value.double().cpu().numpy() for value in self.both())
        return {
            "log_likelihood": float(np.abs(logs / right["values"] - 1).max()),
            "gradient": float(np.abs(gradient - right["gradient"]).max() / np.abs(right["gradient"]).max()),
        }


def hmmlearn_call(case: Case, letters: np.ndarray, implementation: str) -> Callable[[], Any]:
    """Return a call of hmmlearn's ``score``."""
    hmm = import_module("hmmlearn.hmm")
    hidden = model(case)
    theirs = hmm.CategoricalHMM(case.states, implementation=implementation)
    theirs.startprob_, theirs.transmat_ = hidden.start, hidden.transitions
    theirs.emissionprob_, theirs.n_features = hidden.emissions, LETTERS
    column, lengths = letters.reshape(-1, 1).astype(np.int64), [letters.shape[1]] * len(letters)
    return lambda: theirs.score(column, lengths)


def pomegranate_call(case: Case, letters: np.ndarray) -> Callable[[], Any]:
    """Return a call of pomegranate's forward algorithm, which works in log space."""
    dense = import_module("pomegranate.hmm").DenseHMM
    categorical = import_module("pomegranate.distributions").Categorical
    hidden = model(case)
    shows = [categorical(row[None].astype(np.float32)) for row in hidden.emissions]
    theirs = dense(shows, edges=hidden.transitions.astype(np.float32), starts=hidden.start.astype(np.float32))
    data = torch.from_numpy(letters.astype(np.int64)).unsqueeze(-1)
    return lambda: theirs.log_probability(data)


def dynamax_call(case: Case, letters: np.ndarray) -> Callable[[], Any]:
    """Return a call of dynamax's compiled filter, which gives beliefs and the log-likelihood."""
    jax, hmm_filter = import_module("jax"), import_module("dynamax.hidden_markov_model").hmm_filter
    hidden = model(case)
    start, moves, shows = (
        jax.numpy.asarray(x, "float32") for x in (hidden.start, hidden.transitions, hidden.emissions)
    )
    rows = jax.numpy.asarray(letters.astype(np.int32))

    @jax.jit
    def run(rows: Any) -> Any:
        each = jax.vmap(lambda row: hmm_filter(start, moves, jax.numpy.log(shows.T[row])))(rows)
        return each.marginal_loglik, each.filtered_probs

    return lambda: jax.block_until_ready(run(rows))


PEERS: dict[str, Callable[[Case, np.ndarray], Callable[[], Any]]] = {
    "hmmlearn, scaling": lambda case, letters: hmmlearn_call(case, letters, "scaling"),
    "hmmlearn, log": lambda case, letters: hmmlearn_call(case, letters, "log"),
    "pomegranate": pomegranate_call,
    "dynamax": dynamax_call,
}


def timed(make: Callable[[np.ndarray], Callable[[], Any]], letters: np.ndarray, clock: Callable[[], float]) -> Any:
    """Return the seconds of every turn for all letters, and how many letters of a row were run."""
    part = max(1000, letters.shape[1] // 50)
    call = make(letters[:, :part])
    call()
    began = clock()
    call()
    expected = (clock() - began) * letters.shape[1] / part
    share = 1.0 if expected < TOO_SLOW else 0.1
    if expected > 10 * TOO_SLOW:
        share = part / letters.shape[1]
    call = make(letters[:, : int(share * letters.shape[1])])
    call()
    samples = []
    for _ in range(TURNS if expected * share < 2 else 2):
        began = clock()
        call()
        samples.append((clock() - began) / share)
    return {"seconds": median(samples), "samples": samples, "letters": int(share * letters.shape[1])}


def cpu(folder: Path, output: Path) -> None:
    """Time ours and every peer that is installed."""
    torch.set_num_threads(1)
    entries = []
    for case in CASES:
        if case.chain != "mixing":
            ours = Ours(case, np.load(folder / f"letters_{case.name}.npy"), "cpu")
            entries.append({**case._asdict(), "errors": ours.errors(folder, case)})
            continue
        letters = np.load(folder / f"letters_{case.name}.npy")
        ours = Ours(case, letters, "cpu")
        entry: dict[str, Any] = {**case._asdict(), "errors": ours.errors(folder, case), "peers": {}}
        entry["ours"] = timed(lambda some, case=case: Ours(case, some, "cpu").forward, letters, time.process_time)
        entry["with_gradient"] = timed(lambda some, case=case: Ours(case, some, "cpu").both, letters, time.process_time)
        for name, make in PEERS.items():
            try:
                entry["peers"][name] = timed(lambda some, m=make, c=case: m(c, some), letters, time.process_time)
            except Exception as error:
                entry["peers"][name] = {"failure": f"{type(error).__name__}: {error}"[:300]}
        print(entry, flush=True)
        entries.append(entry)
    _write(output / "forward_algorithm_cpu.json", "cpu", entries, environment()["processor"])


class Jax:
    """JAX's two ways, compiled, in float32."""

    def __init__(self, case: Case, letters: np.ndarray) -> None:
        self.jax = import_module("jax")
        hidden, np_ = model(case), self.jax.numpy
        self.table, self.start = np_.asarray(hidden.matrices(), "float32"), np_.asarray(hidden.start, "float32")
        self.logs = np_.log(np_.maximum(self.table, 1e-37))
        self.rows = np_.asarray(letters.astype(np.int32))

    def associative(self, table: Any, rows: Any) -> Any:
        """Return log-likelihoods and beliefs by ``associative_scan`` over matrices, each divided by its largest."""
        jax, np_ = self.jax, self.jax.numpy

        def scaled(matrix: Any, log: Any) -> Any:
            largest = matrix.max((-2, -1), keepdims=True)
            return matrix / largest, log + np_.log(largest[..., 0, 0])

        def combine(earlier: Any, later: Any) -> Any:
            return scaled(later[0] @ earlier[0], earlier[1] + later[1])

        leaves = scaled(table[rows], np_.zeros(rows.shape))
        products, logs = jax.lax.associative_scan(combine, leaves, axis=1)
        weights = products @ self.start
        totals = weights.sum(-1)
        return logs[:, -1] + np_.log(totals[:, -1]), weights / totals[..., None]

    def loop(self, logs: Any, rows: Any) -> Any:
        """Return log-likelihoods and log-beliefs by a loop over time in log space."""
        jax, np_ = self.jax, self.jax.numpy

        def step(belief: Any, letter: Any) -> Any:
            after = jax.nn.logsumexp(logs[letter] + belief[:, None, :], -1)
            return after, after

        start = np_.broadcast_to(np_.log(self.start), (len(rows), len(self.start)))
        last, every = jax.lax.scan(step, start, rows.T)
        return jax.nn.logsumexp(last, -1), every

    def compiled(self, way: str, gradient: bool) -> Callable[[], Any]:
        """Compile one way; return a call that waits for its result."""
        jax = self.jax
        run = self.associative if way == "associative scan" else self.loop
        table = self.table if way == "associative scan" else self.logs
        function = run
        if gradient:
            function = jax.value_and_grad(lambda table, rows: run(table, rows)[0].sum())
        made = jax.jit(function).lower(table, self.rows).compile()
        return lambda: jax.block_until_ready(made(table, self.rows))


def jax_jobs() -> list[tuple[Case, str, bool, int]]:
    """Return what JAX is asked, the largest first: the case, the way, with gradient, and how many letters of a row."""
    jobs = []
    for case in sorted(CASES, key=lambda case: -case.states):
        if case.chain == "mixing":
            jobs.append((case, "associative scan", False, case.length))
            jobs.append((case, "loop in log space", False, min(case.length, 100_000)))
            if case.states == 64 and case.rows > 1:
                jobs.append((case, "associative scan", True, case.length))
    return jobs


def prepared(folder: Path, jobs: list[Any]) -> list[Any]:
    """Compile all jobs at once; return calls, or what went wrong."""

    def one(job: Any) -> Any:
        case, way, gradient, length = job
        try:
            letters = np.load(folder / f"letters_{case.name}.npy")[:, :length]
            return Jax(case, letters).compiled(way, gradient)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]

    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(one, jobs))


def on_device(call: Callable[[], Any], turns: int) -> list[float]:
    """Return seconds of the host's clock, from an idle device to an idle device."""
    samples = []
    for _ in range(turns):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - began)
    return samples


def warm(folder: Path) -> None:
    """Compile what :func:`cuda` measures, JAX's programs side by side."""
    began = time.perf_counter()
    for case in CASES:
        Ours(case, np.load(folder / f"letters_{case.name}.npy"), "cuda").both()
    print(f"ours: {time.perf_counter() - began:.1f} s", flush=True)
    calls = prepared(folder, jax_jobs())
    print(f"JAX: {time.perf_counter() - began:.1f} s", [call for call in calls if isinstance(call, str)], flush=True)


def cuda(folder: Path, output: Path, seconds: float) -> None:
    """Time ours, then JAX as long as there is time; the record is written as it grows."""
    entries: dict[str, dict[str, Any]] = {}
    began = time.perf_counter()
    there = [case for case in CASES if (folder / f"letters_{case.name}.npy").exists()]
    for case in sorted(there, key=lambda case: -case.states):
        ours = Ours(case, np.load(folder / f"letters_{case.name}.npy"), "cuda")
        entry: dict[str, Any] = {**case._asdict(), "errors": ours.errors(folder, case), "peers": {}}
        entries[case.name] = entry
        for name, call in (("ours", ours.forward), ("with_gradient", ours.both)):
            call()
            samples = on_device(call, 9)
            entry[name] = {"seconds": median(samples), "samples": samples, "letters": case.length}
        print(f"{time.perf_counter() - began:.1f} s", entry, flush=True)
    path = output / "forward_algorithm_cuda.json"
    _write(path, "cuda", list(entries.values()), torch.cuda.get_device_name())
    torch.cuda.empty_cache()
    for job in jax_jobs():
        case, way, gradient, length = job
        if case not in there:
            continue
        name = f"JAX, {way}" + (", with gradient" if gradient else "")
        peers = entries[case.name]["peers"]
        if time.perf_counter() - began > seconds:
            peers[name] = {"failure": "not run: no time was left"}
            continue
        (call,) = prepared(folder, [job])
        if isinstance(call, str):
            peers[name] = {"failure": call}
        else:
            try:
                call()
                factor = case.length / length
                samples = [factor * each for each in on_device(call, 3 if factor == 1 else 1)]
                peers[name] = {"seconds": median(samples), "samples": samples, "letters": length}
            except Exception as error:
                peers[name] = {"failure": f"{type(error).__name__}: {error}"[:300]}
        print(f"{time.perf_counter() - began:.1f} s", case.name, name, peers[name], flush=True)
        _write(path, "cuda", list(entries.values()), torch.cuda.get_device_name())
    _write(path, "cuda", list(entries.values()), torch.cuda.get_device_name())


def _write(path: Path, device: str, entries: list[Any], name: str) -> None:
    versions = {}
    for package in ("torch", "triton", "numba", "hmmlearn", "pomegranate", "dynamax", "jax"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    settings = {"letters": LETTERS, "turns": TURNS, "threads": 1} if device == "cpu" else {"letters": LETTERS}
    machine = {**environment(), "device": name, "versions": versions}
    Record(f"forward_algorithm_{device}", settings, {"cases": entries}, machine).write(path)


COLOURS = {
    "ours": "#1f5fbf",
    "hmmlearn, scaling": "#d1495b",
    "hmmlearn, log": "#e58fb1",
    "pomegranate": "#ee9b3a",
    "dynamax": "#8c6d46",
    "JAX, associative scan": "#9c2f6b",
    "JAX, loop in log space": "#35b0ab",
}


def figure(output: Path) -> Path:
    """Draw seconds for a million letters against the number of states, of both records."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from transductor.report.style import save_figure

    drawing, axes = plt.subplots(1, 2, figsize=(10.5, 4.4), sharey=True, layout="constrained")
    for axis, (rows, words) in zip(axes, ((1, "one row of 1 000 000 letters"), (64, "64 rows of 8 192")), strict=True):
        for device, where, style in (("cpu", "one core", "o-"), ("cuda", "H200", "s--")):
            cases = read_record(output / f"forward_algorithm_{device}.json").measurements["cases"]
            lines: dict[str, list[tuple[int, float]]] = {}
            for case in cases:
                if (case["chain"], case["rows"]) == ("mixing", rows):
                    for name, timing in {"ours": case["ours"], **case["peers"]}.items():
                        if "seconds" in timing and "gradient" not in name:
                            million = timing["seconds"] * 1e6 / (rows * case["length"])
                            lines.setdefault(name, []).append((case["states"], million))
            for name, points in lines.items():
                axis.plot(
                    *zip(*sorted(points), strict=True), style, color=COLOURS[name], label=f"{name}, {where}", ms=5
                )
        axis.set(xscale="log", yscale="log", title=words, xlabel="hidden states")
        axis.set_xticks(SIZES, [str(size) for size in SIZES])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("seconds for a million letters")
    axes[1].legend(frameon=False, fontsize=8, bbox_to_anchor=(1, 1), loc="upper left")
    return save_figure(drawing, output / "forward_algorithm.png")


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("draw", "exact", "cpu", "warm", "cuda", "figure"))
    parser.add_argument("--folder", type=Path, default=Path("build/forward_algorithm"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--seconds", type=float, default=600, help="begin nothing new on the GPU after so long")
    options = parser.parse_args()
    steps = {
        "draw": lambda: draw(options.folder),
        "exact": lambda: exact(options.folder),
        "cpu": lambda: cpu(options.folder, options.output),
        "warm": lambda: warm(options.folder),
        "cuda": lambda: cuda(options.folder, options.output, options.seconds),
        "figure": lambda: figure(options.output),
    }
    steps[options.step]()


if __name__ == "__main__":
    main()
