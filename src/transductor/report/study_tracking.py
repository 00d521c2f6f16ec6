"""The tables of our own studies: ``state_tracking`` beside published results, and those whose arms form groups."""

from __future__ import annotations

import math
from collections import Counter

from transductor.report.study_cells import NOTHING, Sheet, adversarial_lengths, cell, random_lengths, worst
from transductor.report.study_claims import AVERAGED, PUBLISHED, Published
from transductor.report.study_records import ArmRuns, Entries, Pick, Series, StudyRecords, Tally, at, is_adversarial
from transductor.report.style import label


def state_tracking_sheets(study: StudyRecords) -> list[Sheet]:
    """Return the tables beside the best published results, by length, and of mistakes in reads."""
    return [_beside_published(study), _by_length(study), _reads(study)]


def _beside_published(study: StudyRecords) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for arm in study.arms:
        learned, hardened = Series(arm), Series(arm, "hardened")
        published = PUBLISHED.get(arm.name, Published(NOTHING, NOTHING))
        trained = [length for length in random_lengths(learned) if length <= arm.trained_length]
        rows.append(
            (
                label(arm.name),
                f"{arm.trained_length:,}",
                cell(learned.tally(at(max(trained)))) if trained else NOTHING,
                cell(learned.tally(protocol)),
                cell(hardened.tally(protocol)),
                states_found(arm),
                published.parallel,
                published.sequential,
                published.protocol,
            )
        )
        if arm.name == AVERAGED[-1]:
            averages = [cell(_average(study, form)) for form in ("learned", "hardened")]
            best = PUBLISHED["average"]
            rows.append(("average of these four", "", "", *averages, "", best.parallel, best.sequential, best.protocol))
    columns = (
        "task",
        "trained to",
        "accuracy there",
        "41–256, ours learned",
        "41–256, ours hardened",
        "states found",
        "best published, parallel",
        "sequential",
        "their protocol",
    )
    return Sheet(
        "Beside the best published, quoted and not run here (in percent, or as they say)", columns, tuple(rows)
    )


def protocol(entries: Entries) -> float | None:
    """Pick the accuracy beyond the trained length on inputs of 256 tokens: each position ends an input of 41 to 256."""
    accuracy = at(256, "beyond")(entries)
    return at(255, "beyond")(entries) if accuracy is None else accuracy


def _average(study: StudyRecords, form: str) -> Tally:
    """Return the average of the four tasks, for each seed that has all of them."""
    arms = [arm for name in AVERAGED if (arm := study.arm(name))]
    if len(arms) < len(AVERAGED):
        return Tally({}, {})
    tallies = [Series(arm, form).tally(protocol) for arm in arms]
    absent = {seed: word for tally in reversed(tallies) for seed, word in tally.absent.items()}
    seeds = [seed for seed in tallies[0].values if all(seed in tally.values for tally in tallies)]
    return Tally(
        {seed: math.fsum(tally.values[seed] for tally in tallies) / len(tallies) for seed in seeds},
        dict(sorted(absent.items())),
    )


def states_found(arm: ArmRuns) -> str:
    """Write how many states the exact machines have, and how many the task's own machine has."""
    if not arm.hardens:
        return NOTHING
    hardenings = [run.hardening for run in arm.runs if run.hardening and run.hardening["refused"] is None]
    counts = Counter(int(hardening["states"]) for hardening in hardenings)
    text = ", ".join(f"{states:,} ×{count}" for states, count in sorted(counts.items())) or "none"
    of_the_task = {
        int(hardening["states_of_the_task"]) for hardening in hardenings if "states_of_the_task" in hardening
    }
    return text + (f" (the task has {', '.join(map(str, sorted(of_the_task)))})" if of_the_task else "")


def _by_length(study: StudyRecords) -> Sheet:
    rows = []
    for arm in study.arms:
        forms = (Series(arm), Series(arm, "hardened"))
        asked = {
            (entry["length"], "" if is_adversarial(entry["input"]) else entry["task"])
            for _, entries in forms[0].answers()
            for entry in entries
        }
        tasks = {task for _, task in asked if task}
        random = {key for key in asked if key[1]}
        only_adversarial = {key for key in asked if not key[1]} - {(length, "") for length, _ in random}
        for length, task in sorted([*random, *only_adversarial]):
            name = f"{label(arm.name)} ({task})" if len(tasks) > 1 and task else label(arm.name)
            picks = [at(length, key, task=task) if task else _nothing for key in ("positions", "exact")]
            rows.append(
                (
                    name,
                    f"{length:,}",
                    *(cell(one.tally(pick)) for pick in picks for one in forms),
                    *(worst(one, length) for one in forms),
                )
            )
    columns = tuple(
        f"{what}, {form}"
        for what in ("every position", "whole sequences", "worst family")
        for form in ("learned", "hardened")
    )
    return Sheet(
        "By length: random inputs, and the worst adversarial family", ("task", "length", *columns), tuple(rows)
    )


def _reads(study: StudyRecords) -> Sheet:
    """Return the table of wrong reads of a flip-flop, among about a million."""
    arm = study.arm("flip_flop")
    forms = (Series(arm), Series(arm, "hardened")) if arm else ()
    asked = {
        (entry["task"], entry["length"], entry["labels"])
        for one in forms[:1]
        for _, entries in one.answers()
        for entry in entries
        if not is_adversarial(entry["input"])
    }
    reads: dict[tuple[str, int], list[int]] = {}
    for task, length, labels in sorted(asked):
        reads.setdefault((task, length), []).append(labels)

    def mistakes(length: int, task: str) -> Pick:
        wrong, all_of_them = at(length, "mistakes", task=task), at(length, "labels", task=task)

        def pick(entries: Entries) -> float | None:
            count, labels = wrong(entries), all_of_them(entries)
            return None if count is None or not labels else 1e6 * count / labels

        return pick

    rows = tuple(
        (
            task,
            f"{length:,}",
            f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,}–{max(counts):,}",
            *(cell(one.tally(mistakes(length, task)), _count) for one in forms),
        )
        for (task, length), counts in reads.items()
    )
    columns = ("input", "length", "reads a seed", "mistakes in a million, learned", "hardened")
    return Sheet("What a flip-flop reads wrong", columns, rows)


def _count(value: float) -> str:
    """Write a number of mistakes, as 0 only if there are none."""
    return f"{value:,.1f}" if value >= 0.05 else f"{value:.1e}" if value else "0"


def _nothing(_: object) -> None:
    return None


def ablation_groups(study: StudyRecords) -> dict[str, dict[str, ArmRuns]]:
    """Return the arms in groups by what is changed, and within a group by what it is changed to."""
    prefixes = {
        "injection_": "Where the state enters",
        "start_": "How far from the identity the matrices start",
        "frozen_": "Frozen random features beside a learned state",
        "learned_": "Frozen random features beside a learned state",
        "positions_": "Positions of the backbone",
    }
    by_tasks = {"family_": "Families", "smoothing_": "Label smoothing", "injection_": "Where the state enters"}
    groups: dict[str, dict[str, ArmRuns]] = {}
    for arm in study.arms:
        by_task = next((kind for kind in by_tasks if arm.name.startswith(kind) and "_on_" in arm.name), None)
        prefix = next((prefix for prefix in prefixes if arm.name.startswith(prefix)), None)
        if by_task is not None:
            choice, _, task = arm.name.removeprefix(by_task).rpartition("_on_")
            groups.setdefault(f"{by_tasks[by_task]} on {label(task)}", {})[label(choice)] = arm
        elif prefix in ("frozen_", "learned_"):
            groups.setdefault(prefixes[prefix], {})[f"{prefix[:-1]}, width {arm.name.removeprefix(prefix)}"] = arm
        elif prefix is not None:
            groups.setdefault(prefixes[prefix], {})[label(arm.name.removeprefix(prefix))] = arm
        else:
            groups.setdefault("Others", {})[label(arm.name)] = arm
    return groups


def ablation_sheets(study: StudyRecords) -> list[Sheet]:
    """Return one table for each group."""
    return [_group(title, arms) for title, arms in ablation_groups(study).items()]


def _group(title: str, arms: dict[str, ArmRuns]) -> Sheet:
    series = {
        f"{name}, hardened" if form == "hardened" else name: Series(arm, form)
        for name, arm in arms.items()
        for form in ("learned", "hardened")
        if form == "learned" or arm.hardens
    }
    random, adversarial = random_lengths(*series.values()), adversarial_lengths(*series.values())
    rows = tuple(
        (
            name,
            *(cell(one.tally(at(length))) for length in random),
            *(worst(one, length) for length in adversarial),
        )
        for name, one in series.items()
    )
    first = next(iter(arms.values()))
    columns = (
        "arm",
        *(f"random, {length:,}" for length in random),
        *(f"worst family, {length:,}" for length in adversarial),
    )
    return Sheet(
        f"{title} (trained to {first.trained_length:,}, chance {first.chance:.0%}; every position)", columns, rows
    )
