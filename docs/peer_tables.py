"""The tables of docs/peers.md: recurrences of flash-linear-attention beside ours, from the records of their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from make_theory import ROOT, number, table

from transductor.report.study_cells import NOTHING
from transductor.report.study_excess import FAR, GOAL, GOAL_HEADING, excess_words, process_label
from transductor.report.study_records import Series, StudyRecords, at, read_studies
from transductor.report.style import label
from transductor.results import read_record

RECORDS: Final = ROOT / "benchmarks" / "results"
PEERS: Final = {
    "deltanet": "DeltaNet",
    "deltaproduct": "DeltaProduct",
    "gated_deltanet": "Gated DeltaNet",
    "mamba2": "Mamba-2",
    "rwkv7": "RWKV-7",
}
Runs = list[dict[str, Any]]


def peers_of(study: str) -> Mapping[str, Any]:
    """Return what each peer's runs came to."""
    found: Mapping[str, Any] = read_record(RECORDS / f"peers_{study}.json").measurements["peers"]
    return found


def runs_on(peer: Mapping[str, Any], task: str) -> Runs:
    """Return the runs of a peer on a task, a run for each seed."""
    return [run for run in peer["runs"] if run["task"] == task]


def values(runs: Runs, length: int, key: str, kind: str = "random") -> list[float]:
    """Return one number for each run that did not fail."""
    return [
        entry[key]
        for run in runs
        for entry in run["judged"]
        if entry["length"] == length and entry["kind"] == kind and key in entry
    ]


def mean(numbers: Sequence[float]) -> float:
    """Return the mean."""
    return sum(numbers) / len(numbers)


def shown(numbers: Sequence[float], words: Callable[[float], str], runs: int) -> str:
    """Write mean and least–largest, and how many runs failed."""
    if not runs:
        return NOTHING
    if not numbers:
        return "failed"
    text = words(mean(numbers))
    if words(min(numbers)) != words(max(numbers)):
        text += f" ({words(min(numbers))}–{words(max(numbers))})"
    return text if len(numbers) == runs else f"{text}; {runs - len(numbers)} failed"


def within(runs: Runs) -> int:
    """Count the seeds within the goal at both far lengths."""
    far = [values([run], length, "excess") for run in runs for length in FAR]
    pairs = zip(far[::2], far[1::2], strict=True)
    return sum(1 for pair in pairs if all(each and each[0] <= GOAL for each in pair))


def tracking() -> str:
    """Write the automata and models: ours, the LSTM, and each peer."""
    studies: dict[str, StudyRecords] = {study.name: study for study in read_studies(ROOT / "results")}
    lengths, rows = (40, 160, *FAR), []
    peers = peers_of("tracking")
    for process in dict.fromkeys(run["task"] for peer in peers.values() for run in peer["runs"]):
        for tracker in ("filter", "lstm"):
            arm = studies["tracking"].arm(f"{tracker}_on_{process}")
            assert arm is not None
            tallies = [Series(arm).tally(at(length, "excess")) for length in lengths]
            cells = [shown(list(tally.values.values()), excess_words, 5) for tally in tallies]
            far = [tally.values for tally in tallies[-2:]]
            good = sum(1 for seed in far[0] if all(tally[seed] <= GOAL for tally in far))
            parameters = arm.runs[0].record.measurements["parameters"]
            first = process_label(process) if tracker == "filter" else ""
            rows.append([first, label(tracker), number(parameters), *cells, f"{good} of 5"])
        for name, words in PEERS.items():
            if name not in peers or not (runs := runs_on(peers[name], process)):
                rows.append(["", words, NOTHING, *[NOTHING] * len(lengths), "not run"])
                continue
            cells = [shown(values(runs, length, "excess"), excess_words, len(runs)) for length in lengths]
            rows.append(["", words, number(runs[0]["parameters"]), *cells, f"{within(runs)} of {len(runs)}"])
    return table(("automaton", "model", "parameters", *map(number, lengths), GOAL_HEADING), rows)


def layers() -> str:
    """Write what the layers were found to do: eigenvalues with the flag off and on."""
    rows = []
    for one in read_record(RECORDS / "peers_tracking.json").measurements["layers"]["eigenvalues"]:
        flag = {True: "on", False: "off", None: "has none"}[one["negative eigenvalues allowed"]]
        numbers = (
            f"{one[key]:.2f}".replace("-", "−").replace("−0.00", "0.00")
            for key in ("least real part", "largest modulus")
        )
        rows.append([PEERS[one["peer"]], flag, *numbers])
    return table(("layer", "`allow_neg_eigval`", "least real part", "largest modulus"), rows)


def kernels() -> str:
    """Write how the library's kernels compare with the plain forms, or why they do not run."""
    rows = []
    for one in read_record(RECORDS / "peers_tracking.json").measurements["layers"]["kernels"]:
        errors = [one[key] if isinstance(one[key], str) else f"{one[key]:.0e}" for key in ("values", "gradients")]
        rows.append([PEERS[one["layer"]], number(one["length"]), one["dtype"], *errors])
    return table(("layer", "length", "numbers", "error of values", "largest error of a gradient"), rows)


def rates() -> str:
    """Write how every rate was chosen."""
    rows = []
    for name, peer in peers_of("tracking").items():
        for task, search in peer["search"].items():
            tried = ", ".join(f"{one['rate']:g}: {excess_words(mean(one['excess']))}" for one in search["tried"])
            failed = sum(run["failure"] is not None for run in runs_on(peer, task))
            seconds = f"{peer['seconds']:.0f}"
            rows.append([PEERS[name], process_label(task), tried, f"{search['chosen']:g}", str(failed), seconds])
    heads = (
        "model",
        "automaton",
        "rate: excess at the trained length",
        "chosen",
        "failed runs",
        "seconds, all together",
    )
    return table(heads, rows)


def outcomes() -> str:
    """Say of each prediction what came out, as far as it was run, in the order of the page."""
    peers = peers_of("tracking")
    studies = {study.name: study for study in read_studies(ROOT / "results")}
    (process,) = dict.fromkeys(run["task"] for peer in peers.values() for run in peer["runs"])
    where, far = process_label(process), FAR[1]
    means = {
        name: {n: mean(values(runs_on(peer, process), n, "excess")) for n in (40, 160, *FAR)}
        for name, peer in peers.items()
    }
    best = min(means, key=lambda name: means[name][far])
    near = sum(within([run]) for peer in peers.values() for run in peer["runs"])
    lstm = studies["tracking"].arm(f"lstm_on_{process}")
    assert lstm is not None
    ahead = Series(lstm).tally(at(far, "excess")).mean() < means[best][far]
    rest = "the other automata were not run"
    if len(means) == len(PEERS):
        foremost = part(
            f"{where}: {PEERS[best]} is the best", best in ("gated_deltanet", "rwkv7"), "Gated DeltaNet or RWKV-7"
        )
    else:
        foremost = f"{where}: {PEERS[best]} is the best of the {len(means)} that were run, which decides nothing"
    growths = {name: means[name][far] / means[name][40] for name in ("deltanet", "deltaproduct") if name in means}
    lines = [
        [
            part(f"{where}: seeds of the {len(means)} peers that were run within 1 %: {near}", near == 0, "none"),
            part(f"the LSTM is {'ahead of' if ahead else 'behind'} the best of them", ahead, "ahead"),
            rest,
        ],
        [foremost, rest],
        [
            part(
                f"{where}: {PEERS[name]} loses {growths[name]:.1f} times as much at 2 560 as at 40",
                growths[name] >= 2,
                "at least 2",
            )
            if name in growths
            else f"{PEERS[name]} was not run"
            for name in ("deltanet", "deltaproduct")
        ],
        _mamba2(means, where),
        *[["not run"]] * 3,
    ]
    return "\n".join(f"{place}. {'; '.join(parts)}." for place, parts in enumerate(lines, 1))


def _mamba2(means: Mapping[str, Mapping[int, float]], where: str) -> list[str]:
    if "mamba2" not in means:
        return ["not run"]
    least, most = min(means["mamba2"].values()), max(means["mamba2"].values())
    return [part(f"{where}: Mamba-2 {excess_words(least)}–{excess_words(most)}", least > 0.5, "above 50 %")]


def part(what: str, holds: bool, predicted: str) -> str:
    """Write what came out, what was predicted, and whether that is so."""
    return f"{what} ({predicted}: **{'confirmed' if holds else 'refuted'}**)"
