"""Make the generated parts of README.md and of docs/paper.md, results.md, filter.md and demo.md.

``python docs/make_results.py`` does it.  Every number comes from a committed record: the runs in ``results``,
``results/theory.json``, and in ``benchmarks/results`` the demo, the scans and the comparison of orthogonal families.  A
sentence that the records no longer support is refused, and a test makes all pages again and compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from make_theory import RECORD, ROOT, filled, number, table, written

from transductor.report.study_cells import Words, cell, scientific
from transductor.report.study_claims import CLAIMS, NOT_SPECIFIED, PUBLISHED
from transductor.report.study_excess import (
    FAR,
    GOAL,
    GOAL_HEADING,
    best_of_others,
    by_process,
    excess_words,
    process_label,
    reached,
)
from transductor.report.study_predictions import (
    excess_outcomes,
    excess_rows,
    injection_outcomes,
    injection_rows,
)
from transductor.report.study_records import Pick, Series, StudyRecords, Tally, at, read_studies, worst_kind
from transductor.report.style import label, percent
from transductor.results import read_record
from transductor.study_names import TRACKERS

README, DOCS = ROOT / "README.md", ROOT / "docs"
PAPER, RESULTS, DEMO, FILTER = (DOCS / f"{name}.md" for name in ("paper", "results", "demo", "filter"))
BENCHMARKS = ROOT / "benchmarks" / "results"
SEEDS = 5
# The lengths at which the tasks of state tracking are shown: the usual protocol's, and far ones.
TRACKED = {
    "parity": (256, 10_000),
    "even_pairs": (256, 10_000),
    "cycle_navigation": (256, 10_000),
    "modular_arithmetic": (255, 9999),
    **dict.fromkeys(("a5_two_generators", "a5_all_elements"), (512, 5120)),
    **dict.fromkeys(("s5_two_generators", "s5_swaps", "s5_32_random_generators", "s5_all_elements"), (512, 5120)),
    **dict.fromkeys(("c6", "s3"), (1000, 100_000)),
}
NOTHING = "–"


class Records:
    """Numbers of the studies, as the cells of a page."""

    def __init__(self, folder: Path = ROOT / "results") -> None:
        self.studies: dict[str, StudyRecords] = {study.name: study for study in read_studies(folder)}

    def tally(self, study: str, arm: str, pick: Pick, form: str = "learned") -> Tally:
        """Return one number for each seed, of which none may be missing."""
        runs = self.studies[study].arm(arm)
        tally = Tally({}, {}) if runs is None else Series(runs, form).tally(pick)
        if tally.values and (len(tally.values) != SEEDS or tally.absent):
            raise ValueError(f"{study}/{arm} has not five seeds: {cell(tally)}")
        return tally

    def cell(self, study: str, arm: str, pick: Pick, form: str = "learned", words: Words = percent) -> str:
        """Write mean and least–largest; the page says that there are five seeds."""
        return cell(self.tally(study, arm, pick, form), words).removesuffix(f" ×{SEEDS}")

    def proved(self, study: str, arm: str) -> bool:
        """Say whether the hardened model of every seed is proved for all lengths."""
        runs = self.studies[study].arm(arm)
        verdicts = [run.hardening["certificate"] if run.hardening else {} for run in runs.runs] if runs else []
        return len(verdicts) == SEEDS and all(
            one.get("verdict") == "proved" and one["word_length"] is None for one in verdicts
        )

    def mean(self, study: str, arm: str, pick: Pick, form: str = "learned") -> float:
        """Return the mean over the seeds."""
        return self.tally(study, arm, pick, form).mean()


def supported(text: str, holds: bool) -> str:
    """Return a sentence, if the records support it."""
    if not holds:
        raise ValueError(f"the records do not support: {text}")
    return text


def findings(statements: dict[str, Any], docs: str = "") -> str:
    """The paragraph about the paper's statements.

    Args:
        statements: The certificates of the record.
        docs: The folder of the pages, as links of this page spell it.
    """
    supported("every statement has a certificate that holds", all(one["holds"] for one in statements.values()))
    counts = Counter(one["finding"] for one in statements.values() for _ in one["numbers"])
    hold, care, wrong = (counts.pop(finding) for finding in ("holds", "holds with care", "false as written"))
    supported("there is no other finding", not counts)
    return (
        f"Each of its {hold + care + wrong} numbered statements is a function that returns a certificate: {hold} hold, "
        f"{care} hold with care, and {wrong} are false as written, each with a counterexample "
        f"([statement by statement]({docs}theory.md); `transductor theory` runs them)."
    )


def results(records: Records) -> str:
    """What our models do: random inputs and the worst input kind side by side."""
    value, integers = at(128, "mse"), at(1000, "exact", kind="random and adversarial")
    exact = records.tally("base_two_value", "transductor_ours", integers, "hardened").least == 1
    numeral = records.cell("base_two_value", "transductor_ours", value, words=scientific)
    rows = [
        _row(records, "mod 5, 40 tokens", "length_generalization", "transductor_ours", 1000),
        _row(records, "", "length_generalization", "transductor_ours", 10_000),
        _row(records, "addition, 10–40 digits, whole sums", "long_addition", "transductor_ours", 10_000, "exact"),
        *(
            _row(records, f"{label(name)}, ≤ 40 tokens", "state_tracking", name, lengths[0])
            for name, lengths in TRACKED.items()
            if name not in ("c6", "s3")
        ),
    ]
    rows.insert(
        3,
        [
            "base-2 value, ≤ 16 digits, mean squared error",
            "128",
            numeral,
            NOTHING,
            supported("exact integers at 1 000 digits", exact),
        ],
    )
    return table(("trained on", "judged at", "learned: random", "learned: worst kind", "hardened: either"), rows)


def _row(records: Records, title: str, study: str, arm: str, length: int, key: str = "positions") -> list[str]:
    picks = at(length, key), worst_kind(length, key)
    tallies = [records.tally(study, arm, pick, "hardened") for pick in picks]
    exact = all(tally.least == 1 for tally in tallies if tally.values) and records.proved(study, arm)
    supported(f"{study}/{arm} is right when hardened, and proved", exact and bool(tallies[0].values))
    return [title, number(length), *(records.cell(study, arm, pick) for pick in picks), "100%"]


def claims_in_words(records: Records) -> str:
    """The paper's claims and what came out, in one line each, successes first."""
    paper, ours = "transductor_paper", "transductor_ours"
    near = [
        records.tally(study, paper, at(length, key)).least
        for study, length, key in (
            ("regular_gap", 50, "positions"),
            ("length_generalization", 40, "positions"),
            ("long_addition", 20, "exact"),
            ("long_addition", 40, "exact"),
        )
    ]
    gap, far = at(500), at(1000)
    exact, chains = at(1000, "exact"), worst_kind(1000, "exact")
    value, beyond = at(64, "mse"), at(128, "mse")

    def error(arm: str, pick: Pick) -> str:
        return records.cell("base_two_value", arm, pick, words=scientific)

    rows = [
        [
            "100 % on the training distribution in 5/5 runs",
            supported("**holds**, in counting and addition, on random inputs", min(near) == 1),
        ],
        [
            "Mod 5, trained at 50: 100 % to 500, the Transformer at chance beyond",
            supported("**holds** to a few labels", records.mean("regular_gap", paper, gap) > 0.999)
            + f": {records.cell('regular_gap', paper, gap)} at 500, all ones "
            f"{records.cell('regular_gap', paper, worst_kind(500))}; the Transformer "
            f"{records.cell('regular_gap', 'transformer_learned', at(500, 'beyond'))} beyond 50",
        ],
        [
            "Mod 5, trained at 40: ≥ 99 % at 1 000",
            supported("**some seeds**", records.tally("length_generalization", paper, far).largest > 0.99)
            + f": {records.cell('length_generalization', paper, far)}; ours, without attention, with another family "
            f"and label smoothing, {records.cell('length_generalization', ours, far)}, and "
            f"{records.cell('length_generalization', ours, at(10_000))} at 10 000",
        ],
        [
            "Addition is exact to 1 000 digits, the Transformer at 0 % from 100 digits on",
            supported("**holds on random digits**, nearly", records.mean("long_addition", paper, exact) > 0.99)
            + f": {records.cell('long_addition', paper, exact)}; Transformer "
            f"{records.cell('long_addition', 'transformer_learned', at(100, 'exact'))}. On the worst kind of carries "
            f"{records.cell('long_addition', paper, chains)}, ours {records.cell('long_addition', ours, chains)}",
        ],
        [
            "Base-2 value: MSE 5.9e-9 at 64; LSTM and Transformer collapse to 8.4e-2",
            f"{error(paper, value)}, and {error(paper, beyond)} at 128; the LSTM **collapses** as it says, "
            f"{error('lstm_paper', value)}; the Transformer does not, {error('transformer_paper', value)}",
        ],
        [
            "A scan of log depth overtakes the loop beyond T = 512; attention is quick when short, slow when long",
            latency(),
        ],
        ["Pure Cayley heads with d ≥ 3 embed reflections", cayley(records)],
        [
            "Rotations conserve the state, so counting is exact at any length",
            "the norm is conserved, the *angle* is learned: its error adds up. Random coins partly cancel it, all ones "
            "do not; [hardening](certify.md) makes it exact",
        ],
    ]
    return table(("the paper", "what we found, with our reading of its recipe"), rows)


def latency() -> str:
    """Kogge–Stone beside the loop and attention, on both machines."""
    times: dict[str, dict[int, dict[str, float]]] = {}
    for device in ("cuda", "cpu"):
        for one in read_record(BENCHMARKS / f"scan_{device}.json").measurements["lengths"]:
            if one["case"]["batch"] == 1:
                timed = {name: how["forward"].get("seconds") for name, how in one["contenders"].items()}
                times.setdefault(device, {})[one["case"]["time"]] = {k: 1e3 * v for k, v in timed.items() if v}
    gpu, cpu = times["cuda"], times["cpu"]
    both = [length for length in gpu if "loop" in gpu[length]]
    faster = all(gpu[length]["kogge_stone"] < gpu[length]["loop"] for length in both)
    under = min(length for length in gpu if gpu[length]["kogge_stone"] < gpu[length]["attention"])
    ours = min(length for length in gpu if gpu[length]["auto"] < gpu[length]["attention"])
    ratios = [cpu[length]["kogge_stone"] / cpu[length]["loop"] for length in cpu if "loop" in cpu[length]]
    on_cpu = ", ".join(
        f"{cpu[length]['kogge_stone']:.1f} ms against {cpu[length]['loop']:.1f} at {number(length)}"
        for length in (512, 8192, 32_768)
    )
    return (
        supported("**holds** on an H200", faster)
        + f", wherever both were timed ({1e3 * gpu[both[0]]['kogge_stone']:.0f} µs against "
        f"{number(round(1e3 * gpu[both[0]]['loop']))} at {both[0]}); Kogge–Stone passes attention at "
        f"{number(under)}, our kernels at {number(ours)}. "
        + supported("On two CPU cores neither is much faster", max(ratios) < 1.5 and min(ratios) > 1 / 1.5)
        + f": {on_cpu} "
        "([GPU](../benchmarks/results/scan_cuda.json), [CPU](../benchmarks/results/scan_cpu.json))"
    )


def cayley(records: Records) -> str:
    """What a Cayley head cannot do, what a network on it can, and how families compare in two protocols."""
    runs = read_record(BENCHMARKS / "orthogonal_families.json").measurements["runs"]

    def parity(family: str) -> str:
        chosen = {
            run["seed"]: run["accuracy"]["2000"] for run in runs if (run["family"], run["modulus"]) == (family, 2)
        }
        return cell(Tally(chosen, {})).removesuffix(f" ×{SEEDS}")

    def counting(family: str) -> str:
        return records.cell("ablations", f"family_{family}_on_counting", at(500))

    return (
        "they do not: −1 is no eigenvalue of a Cayley matrix, so no *affine threshold* of such a head is parity at all "
        "lengths. A network on it can represent parity (a quarter turn, h₁² − h₂²). The default here, "
        "`C(A)²·diag(±1)`, has −1; which family *learns* better depends on the protocol: parity at 2 000 with a "
        f"network {parity('orthogonal')} "
        f"against {parity('cayley')} ([six families](transitions.md#which-orthogonal-family)), but mod 5 at 500 "
        f"with a readout alone {counting('orthogonal')} against {counting('cayley')} "
        "([ablations](../results/ablations.md))"
    )


def claims(records: Records) -> str:
    """Every number of the paper, on random inputs and on the worst input kind."""
    rows = []
    for study, every in CLAIMS.items():
        for claim in every:
            words = scientific if claim.key == "mse" else percent
            other = at(128, "mse") if claim.key == "mse" else worst_kind(claim.length, claim.key)
            kinds = (
                ("random", at(claim.length, claim.key)),
                ("L = 128" if claim.key == "mse" else "worst kind", other),
            )
            for place, (inputs, pick) in enumerate(kinds):
                asked = [(claim.arm, "learned")]
                if claim.automaton:
                    asked += [("transductor_ours", "learned"), ("transductor_ours", "hardened")]
                cells = [_or_nothing(records, study, arm, pick, form, words) for arm, form in asked]
                named = [f"[`{study}`](../results/{study}.md)", claim.says] if place == 0 else ["", ""]
                rows.append([*named, inputs, *cells, *[NOTHING] * (3 - len(cells))])
    heads = ("study", "the paper says", "inputs", "our reading of its recipe", "ours, learned", "ours, hardened")
    return table(heads, rows)


def _or_nothing(records: Records, study: str, arm: str, pick: Pick, form: str, words: Words) -> str:
    return records.cell(study, arm, pick, form, words) if records.tally(study, arm, pick, form).values else NOTHING


def not_specified() -> str:
    """What the paper leaves open, once where it is about several studies."""
    names = {lines: [study for study in NOT_SPECIFIED if lines in NOT_SPECIFIED[study]] for lines in _all_open()}
    groups: dict[tuple[str, ...], list[str]] = {}
    for line, studies in names.items():
        groups.setdefault(tuple(studies), []).append(line)
    parts = []
    for studies, lines in groups.items():
        parts.append(", ".join(f"`{study}`" for study in studies) + ":\n\n" + "\n".join(f"* {line}" for line in lines))
    return "\n\n".join(parts)


def _all_open() -> Sequence[str]:
    return list(dict.fromkeys(line for lines in NOT_SPECIFIED.values() for line in lines))


def tracking(records: Records) -> str:
    """State tracking: learned and hardened, random inputs and the worst input kind."""
    rows = []
    for name, lengths in TRACKED.items():
        for place, length in enumerate(lengths):
            best = PUBLISHED[name].parallel if place == 0 and name in PUBLISHED else ("" if place else NOTHING)
            row = _row(records, label(name) if place == 0 else "", "state_tracking", name, length)
            whole = records.cell("state_tracking", name, at(length, "exact"))
            rows.append([*row[:3], whole, *row[3:], best])
    flip, flops = at(8192, task="flip-flop, 0.98 ignored"), at(8192, "exact", task="flip-flop, 0.98 ignored")
    far = worst_kind(100_000)
    cells = [records.cell("state_tracking", "flip_flop", pick) for pick in (flip, flops, far)]
    exact = all(records.tally("state_tracking", "flip_flop", pick, "hardened").least == 1 for pick in (flip, far))
    supported("the hardened flip-flops are right", exact)
    numbers = number(8192), *cells[:2], f"{cells[2]} at {number(100_000)}", "100%", PUBLISHED["flip_flop"].parallel
    rows.append(["flip-flop, 0.98 ignored", *numbers])
    heads = (
        "task",
        "length",
        "learned, random",
        "whole inputs",
        "learned, worst kind",
        "hardened, either",
        "others, quoted, not run here",
    )
    return table(heads, rows)


def injected(records: Records) -> str:
    """Where the state enters six layers with attention: what became of the predictions, and the table."""
    study = records.studies["deep_injection"]
    told = "\n".join(f"{place}. {line}" for place, line in enumerate(injection_outcomes(study), 1))
    return f"{told}\n\n{table(*injection_rows(study))}"


def beliefs(records: Records) -> str:
    """Beliefs beside Bayes: what became of the predictions, both tables, and what was not run."""
    study, wide = records.studies["tracking"], records.studies["tracking_wide"]
    told = "\n".join(f"{place}. {line}" for place, line in enumerate(excess_outcomes(study, wide), 1))
    return "\n\n".join((told, table(*excess_rows(study)), table(*excess_rows(wide)), _not_run(study, wide)))


def more_words(records: Records) -> str:
    """The filter with vague readings and more words a batch, beside what ``tracking_wide`` has."""
    record = read_record(BENCHMARKS / "filter_words.json")
    runs, words = record.measurements["runs"], record.settings["training"]["batch_size"]
    arm, lengths = record.settings["arm"], [entry["length"] for entry in runs[0]["judged"]]

    def of_all(length: int) -> Tally:
        return Tally({run["seed"]: e["excess"] for run in runs for e in run["judged"] if e["length"] == length}, {})

    near = sum(all(of_all(length).values[seed] <= GOAL for length in FAR) for seed in range(SEEDS))
    few = [records.cell("tracking_wide", arm, at(length, "excess"), words=excess_words) for length in lengths]
    more = [cell(of_all(length), excess_words).removesuffix(f" ×{SEEDS}") for length in lengths]
    wide = records.studies["tracking_wide"].arm(arm)
    assert wide is not None
    rows = [["64", *few, reached(wide)], [str(words), *more, f"{near} of {SEEDS}"]]
    return table(("words a batch", *map(number, lengths), GOAL_HEADING), rows)


def _not_run(*studies: StudyRecords) -> str:
    missing: dict[str, list[str]] = {}
    for arm in (arm for study in studies for arm in study.missing):
        tracker, _, process = arm.partition("_on_")
        missing.setdefault(process_label(process), []).append(label(tracker))
    left = "; ".join(
        f"{process}: {', '.join(trackers) if len(trackers) < len(TRACKERS) else 'all'}"
        for process, trackers in missing.items()
    )
    return f"Not run: {left or 'nothing'}."


def inside(records: Records) -> str:
    """Heads that track inside a Transformer: how far each arm that was run is from Bayes."""
    return table(*excess_rows(records.studies["tracking_inside"]))


def filters(records: Records) -> str:
    """The filter beside the best of the others, for each automaton of which both were run."""
    rows = []
    for study in ("tracking", "tracking_wide"):
        for process, arms in by_process(records.studies[study]).items():
            others = [name for name in arms if name != "filter"]
            if "filter" not in arms or not others:
                continue
            best = best_of_others(arms)
            cells = [
                records.cell(study, f"{name}_on_{process}", at(length, "excess"), words=excess_words)
                for name in ("filter", best)
                for length in FAR
            ]
            rows.append([process_label(process), *cells[:2], f"{label(best)}, of {len(others)}", *cells[2:]])
    far = [number(length) for length in FAR]
    return table(("automaton", *(f"filter, {one}" for one in far), "best of the others", *far), rows)


# The rows of the README's table: what was trained and judged, the study, the arms of ours, and the paper's words.
FRONT = (
    ("mod 5: trained at 50, judged at 500", "regular_gap", "transductor_ours", 500, "positions", "100%"),
    ("mod 5: at 40, at 1 000", "length_generalization", "transductor_ours", 1000, "positions", "≥ 99%"),
    ("sums of 40 digits, of 1 000", "long_addition", "transductor_ours", 1000, "exact", "100%"),
    ("modular arithmetic: at 40, at 255", "state_tracking", "modular_arithmetic", 255, "positions", NOTHING),
    ("A5: at 40, at 512", "state_tracking", "a5_all_elements", 512, "positions", NOTHING),
    ("S5: at 40, at 512", "state_tracking", "s5_all_elements", 512, "positions", NOTHING),
)


def front(records: Records) -> str:
    """The table of the README: the paper, ours learned and hardened, and the best peer of the same runs."""
    rows = []
    for title, study, arm, length, key, paper in FRONT:
        tally = records.tally(study, arm, at(length, key), "hardened")
        supported(f"{study}/{arm} is right when hardened, and proved", tally.least == 1 and records.proved(study, arm))
        for place, (inputs, pick) in enumerate((("random", at(length, key)), ("worst", worst_kind(length, key)))):
            theirs = _or_nothing(records, study, "transductor_paper", pick, "learned", percent)
            hardened = records.tally(study, arm, pick, "hardened")
            supported(f"{study}/{arm} is right on {inputs} inputs when hardened", hardened.least == 1)
            rows.append(
                [
                    title if place == 0 else "",
                    inputs,
                    paper if place == 0 else NOTHING,
                    theirs,
                    records.cell(study, arm, pick),
                    "100%",
                    best_peer(records, study, pick),
                ]
            )
    heads = (
        "task",
        "inputs",
        "paper says",
        "paper's, as we read it",
        "ours, learned",
        "hardened",
        "best peer run here",
    )
    return table(heads, rows)


def best_peer(records: Records, study: str, pick: Pick) -> str:
    """Write the best of the arms that are no Transductor, by its mean; nothing where none was run."""
    arms = [runs.name for runs in records.studies[study].arms if "transformer" in runs.name or "lstm" in runs.name]
    tallies = {arm: records.tally(study, arm, pick) for arm in arms}
    measured = {arm: tally.mean() for arm, tally in tallies.items() if tally.values}
    return records.cell(study, max(measured, key=measured.__getitem__), pick) if measured else NOTHING


def demonstration() -> str:
    """The table of the demo: both models at every length, on random and on special inputs."""
    record = read_record(BENCHMARKS / "demo.json")
    models, longest = record.measurements["models"], max(record.settings["lengths"])

    def row(title: str, pick: Callable[[dict[str, Any]], float]) -> list[str]:
        tallies = [Tally({run["seed"]: pick(run) for run in models[key]["runs"]}, {}) for _, key in _DEMO_MODELS]
        return [title, *(cell(tally).removesuffix(f" ×{SEEDS}") for tally in tallies)]

    def judged(run: dict[str, Any], length: int) -> dict[str, float]:
        (entry,) = (each for each in run["lengths"] if each["length"] == length)
        return entry

    rows = [
        row(f"random, length {length}", lambda run, length=length: judged(run, length)["every_position"])
        for length in record.settings["lengths"]
    ]
    rows.append(row("the same, beyond the trained positions", lambda run: judged(run, longest)["beyond"]))
    kinds = models["transductor"]["runs"][0]["adversarial"]
    rows += [row(f"{kind}, length {longest}", lambda run, kind=kind: run["adversarial"][kind]) for kind in kinds]
    heads = [f"{name}, {number(models[key]['parameters'])} parameters" for name, key in _DEMO_MODELS]
    trained = record.settings["training"]["length"]
    return table((f"mod-5 counting, trained at length {trained}", *heads), rows)


_DEMO_MODELS = (("Rational Transductor", "transductor"), ("Transformer", "transformer"))


def pages() -> dict[Path, str]:
    """Every page as the records say it is."""
    records, maker = Records(), "make_results"
    statements = read_record(RECORD).measurements["statements"]
    readme = filled(README.read_text(), "statements", findings(statements, "docs/"), maker)
    readme = filled(readme, "results", front(records), maker)
    paper = filled(PAPER.read_text(), "statements", findings(statements), maker)
    paper = filled(paper, "claims", claims_in_words(records), maker)
    paper = filled(paper, "results", results(records), maker)
    page = filled(RESULTS.read_text(), "claims", claims(records), maker)
    page = filled(page, "open questions", not_specified(), maker)
    page = filled(page, "state tracking", tracking(records), maker)
    page = filled(page, "deep injection", injected(records), maker)
    page = filled(page, "beliefs", beliefs(records), maker)
    page = filled(page, "more words", more_words(records), maker)
    page = filled(page, "inside", inside(records), maker)
    return {
        README: readme,
        PAPER: paper,
        RESULTS: page,
        FILTER: filled(FILTER.read_text(), "filters", filters(records), maker),
        DEMO: filled(DEMO.read_text(), "demo", demonstration(), maker),
    }


def main() -> None:
    """Write the pages; with ``--check``, say whether one is old and write nothing."""
    print("written:", ", ".join(written(pages(), "make_results")) or "nothing, all pages are up to date")


if __name__ == "__main__":
    main()
