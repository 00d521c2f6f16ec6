"""The tables of docs/peers.md: recurrences of flash-linear-attention beside ours, from the records of their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from make_theory import ROOT, number, table

from transductor.report.study_cells import NOTHING
from transductor.report.study_excess import FAR, GOAL, GOAL_HEADING, excess_words, process_label
from transductor.report.study_records import Series, StudyRecords, at, read_studies
from transductor.report.style import label, percent
from transductor.results import read_record

RECORDS: Final = ROOT / "benchmarks" / "results"
PEERS: Final = {
    "deltanet": "DeltaNet",
    "deltaproduct": "DeltaProduct",
    "gated_deltanet": "Gated DeltaNet",
    "mamba2": "Mamba-2",
    "rwkv7": "RWKV-7",
}
# Of state_tracking: the lengths that are shown.
LENGTHS: Final = {
    "parity": (40, 256, 5120),
    "even_pairs": (40, 256, 5120),
    "cycle_navigation": (40, 256, 5120),
    "modular_arithmetic": (39, 255, 5120),
    **dict.fromkeys(("a5_all_elements", "s5_32_random_generators", "s5_all_elements"), (40, 256, 512)),
    **dict.fromkeys(("c6", "s3"), (60, 1000, 5120)),
    "flip_flop": (40, 512, 5120),
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


def state_tracking() -> str:
    """Write the tasks and lengths: ours, learned and hardened, and each peer, on random inputs."""
    studies: dict[str, StudyRecords] = {study.name: study for study in read_studies(ROOT / "results")}
    peers, rows = peers_of("state_tracking"), []
    for task, lengths in LENGTHS.items():
        ours = studies["state_tracking"].arm(task)
        assert ours is not None
        for place, length in enumerate(lengths):
            tallies = [Series(ours, form).tally(at(length)) for form in ("learned", "hardened")]
            cells = [shown(list(tally.values.values()), percent, 5) if tally.values else NOTHING for tally in tallies]
            for name in PEERS:
                runs = runs_on(peers[name], task) if name in peers else []
                cells.append(shown(values(runs, length, "positions"), percent, len(runs)))
            rows.append([label(task) if place == 0 else "", number(length), *cells])
    return table(("task", "length", "ours, learned", "ours, hardened", *PEERS.values()), rows)


def best_of_peers(task: str, length: int, kind: str = "random", *, named: bool = True) -> str:
    """Write the peer that is right most often on inputs of this length: its mean and range, and its name."""
    means = {}
    for name, peer in peers_of("state_tracking").items():
        if numbers := values(runs_on(peer, task), length, "positions", kind):
            means[name] = numbers
    if not means:
        return NOTHING
    best = max(means, key=lambda name: mean(means[name]))
    text = shown(means[best], percent, len(means[best]))
    return f"{text} {PEERS[best]}" if named else text


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
    """Write which rate was chosen how often."""
    rows = []
    for study in ("tracking", "state_tracking"):
        for name, peer in peers_of(study).items():
            tried = {one["rate"] for search in peer["search"].values() for one in search["tried"]}
            counts = {
                rate: sum(search["chosen"] == rate for search in peer["search"].values()) for rate in sorted(tried)
            }
            written = ", ".join(f"{rate:g}: {count}" for rate, count in counts.items())
            failed = sum(run["failure"] is not None for run in peer["runs"])
            rows.append([study, PEERS[name], written, str(failed), f"{peer['seconds']:.0f}"])
    return table(
        ("study", "model", "rate: tasks that chose it", "judged runs that failed", "seconds, all together"), rows
    )


def outcomes() -> str:
    """Say of each prediction what came out, part by part, in the order of the page."""
    peers, groups = peers_of("tracking"), peers_of("state_tracking")
    studies = {study.name: study for study in read_studies(ROOT / "results")}
    processes = list(dict.fromkeys(run["task"] for peer in peers.values() for run in peer["runs"]))

    def excess(name: str, process: str, length: int) -> float:
        numbers = values(runs_on(peers[name], process), length, "excess")
        return mean(numbers) if numbers else float("inf")

    def right(name: str, task: str, length: int) -> float | None:
        numbers = values(runs_on(groups[name], task), length, "positions") if name in groups else []
        return mean(numbers) if numbers else None

    best = {process: min(peers, key=lambda name: excess(name, process, FAR[1])) for process in processes}
    near = sum(within([run]) for peer in peers.values() for run in peer["runs"] if run["task"].endswith("slow"))
    lstm = {}
    for process in processes:
        arm = studies["tracking"].arm(f"lstm_on_{process}")
        assert arm is not None
        lstm[process] = Series(arm).tally(at(FAR[1], "excess")).mean()
    ahead = sum(lstm[process] < excess(best[process], process, FAR[1]) for process in processes)
    growths = {
        name: [excess(name, process, FAR[1]) / excess(name, process, 40) for process in processes]
        for name in ("deltanet", "deltaproduct")
    }
    slow = [excess("mamba2", each, length) for each in processes if each.endswith("slow") for length in (40, 160, *FAR)]
    told = ", ".join(f"{process_label(process)}: {PEERS[name]}" for process, name in best.items())
    lines = [
        [
            part(f"Seeds of peers within 1 % on the slow chains: {near}", near == 0, "none"),
            part(f"the LSTM is ahead of all five on {ahead} of {len(processes)}", ahead >= 3, "at least three"),
        ],
        [
            part(
                f"Best of the five at 2 560: {told}",
                set(best.values()) <= {"gated_deltanet", "rwkv7"},
                "either, on all",
            )
        ],
        [
            part(
                f"{PEERS[name]} loses {min(each):.1f} to {max(each):.1f} times as much at 2 560 as at 40",
                min(each) >= 2,
                "at least twice",
            )
            for name, each in growths.items()
        ],
        [part(f"Mamba-2 {excess_words(min(slow))}–{excess_words(max(slow))}", min(slow) > 0.5, "above 50 %")],
        _judged(groups, right, "parity", 256, lambda name: (0.99, 1.0) if name in HOUSEHOLDS else (0.0, 0.75)),
        [
            *_judged(
                groups, right, "s5_all_elements", 40, lambda name: (0.95, 1.0) if name == "deltaproduct" else (0, 0.6)
            ),
            *_judged(groups, right, "s5_all_elements", 512, lambda name: (0, 0.5)),
            *_judged(groups, right, "s5_32_random_generators", 256, lambda name: (0, 0.2)),
        ],
        _judged(groups, right, "modular_arithmetic", 255, lambda name: (0, 0.9)),
    ]
    return "\n".join(f"{place}. {'; '.join(parts)}." for place, parts in enumerate(lines, 1))


HOUSEHOLDS: Final = ("deltanet", "deltaproduct", "gated_deltanet")


def part(what: str, holds: bool, predicted: str) -> str:
    """Write what came out, what was predicted, and whether that is so."""
    return f"{what} ({predicted}: **{'confirmed' if holds else 'refuted'}**)"


def _judged(
    groups: Mapping[str, Any],
    right: Callable[[str, str, int], float | None],
    task: str,
    length: int,
    bounds: Callable[[str], tuple[float, float]],
) -> list[str]:
    """Write the shares of right labels that were predicted to lie between two bounds; all of them must."""
    found = {name: value for name in PEERS if name in groups and (value := right(name, task, length)) is not None}
    words = f"{label(task)} at {number(length)}"
    if not found:
        return [f"{words}: not run"]
    texts = ", ".join(f"{PEERS[name]} {percent(value)}" for name, value in found.items())
    holds = all(bounds(name)[0] <= value <= bounds(name)[1] for name, value in found.items())
    return [part(f"{words}: {texts}", holds, "as said above")]
