"""The tables of docs/language_models.md, made from the records of its studies; ``docs/make_measured.py`` calls them."""

from __future__ import annotations

from functools import cache
from typing import Any

from make_theory import ROOT, table

from transductor.report.study_cells import Sheet
from transductor.report.study_code import (
    bits,
    code_arms,
    code_sheets,
    difference,
    entry_of,
    judged,
    lengths_of_files,
    paired,
    right_share,
)
from transductor.report.study_records import StudyRecords, read_studies
from transductor.report.style import label
from transductor.results import read_record

LENGTHS = (2048, 32_768)


@cache
def study() -> StudyRecords:
    """Return the records of ``stream_defaults``."""
    return next(each for each in read_studies(ROOT / "results") if each.name == "stream_defaults")


def measured(name: str) -> dict[str, Any]:
    """Return the measurements of a benchmark."""
    return dict(read_record(ROOT / "benchmarks" / "results" / f"{name}.json").measurements)


def written(sheet: Sheet) -> str:
    """Return a sheet as a table."""
    return table(sheet.columns, [list(row) for row in sheet.rows])


def answer() -> str:
    """Return the answer so far in a paragraph; refuse where the records no longer say it."""
    pairs = {name: tuple(map(study().arm, name.split("-"))) for name in ("frozen-placebo", "before-transformer")}
    apart = {}
    for name, (one, other) in pairs.items():
        assert one is not None
        assert other is not None
        difference_of_pair = paired(one, other, LENGTHS[0])
        assert difference_of_pair is not None
        apart[name] = difference_of_pair
    frozen, before = apart["frozen-placebo"], apart["before-transformer"]
    placebo, learned = study().arm("placebo"), [study().arm(name) for name in ("fast", "forgetting", "universal")]
    assert placebo is not None
    gains = [pair for arm in learned if arm and (pair := paired(arm, placebo, LENGTHS[0]))]
    if frozen[2] >= 0 or before[1] <= 0 or min(high for _, _, high, _ in gains) < 0:
        raise ValueError("the records no longer say what docs/language_models.md says")
    seeds = "one seed" if frozen[3] == 1 else f"{frozen[3]} seeds"
    return (
        f"**The answer so far: not known.** What was run is small: {seeds} of models of 14.5 million parameters with a "
        "window of 256, trained on 6.6 million bytes of Python each. There, a *frozen* machine that knows Python's "
        f"strings, comments, brackets and indentation is better than a placebo by {-frozen[0]:.3f} bits a byte (95 %: "
        f"{-frozen[2]:.3f} to {-frozen[1]:.3f}) at {bits(judged(placebo, LENGTHS[0]).mean())}. *Learned* heads are not "
        "better than the placebo, and nothing that they count was found. With projections that start as `nn.Linear` "
        f"starts them a head makes the model worse by {before[0]:.3f} ({before[1]:.3f} to {before[2]:.3f}); at zero, "
        "it does not."
    )


def code_bits() -> str:
    """Bits a byte of every arm, and paired differences."""
    return written(code_sheets(study())[0])


def code_contrasts() -> str:
    """Paired differences that the plan asks for beside those to the Transformer."""
    asked = [
        ("frozen", "placebo"),
        ("forgetting", "placebo"),
        ("fast", "before"),
        ("slow", "before"),
        ("slow", "fast"),
        ("forgetting", "slow"),
        ("frozen_full", "transformer_full"),
        ("frozen_long", "transformer_long"),
    ]
    rows = []
    for one, other in asked:
        pair = study().arm(one), study().arm(other)
        if pair[0] is not None and pair[1] is not None:
            cells = [difference(paired(pair[0], pair[1], length)) for length in LENGTHS]
            rows.append([f"{label(one)} − {label(other)}", *cells])
    return table(("difference", *(f"first {length:,} bytes" for length in LENGTHS)), rows)


def code_states() -> str:
    """What is lost when the state is replaced."""
    return written(code_sheets(study())[1])


def code_brackets() -> str:
    """Closing brackets and ends of blocks, by how far back they are decided, for four arms."""
    rows = []
    for kind in ("bracket", "quote", "block ends", "block goes on"):
        for name in ("transformer", "forgetting", "frozen", "placebo"):
            arm = study().arm(name)
            if arm is None:
                continue
            entry = next(e for run in arm.runs if (e := entry_of(arm, run.seed, LENGTHS[1])) is not None)
            inside, beyond = (1, 2), (3, 4)
            cells = []
            for parts in (inside, beyond):
                counts = [entry["choices"][kind][part][0] for part in parts]
                right = [right_share(arm, kind, LENGTHS[1], part) for part in parts]
                shares = [
                    sum(tally.values[seed] * count for tally, count in zip(right, counts, strict=True) if count)
                    / sum(counts)
                    for seed in right[-1].values
                ]
                cells.append(f"{sum(shares) / len(shares):.1%} of {sum(counts):,}")
            rows.append([kind, label(name), *cells])
    return table(("choice", "model", "decided 17 to 256 bytes back", "further back than the window"), rows)


def code_tasks() -> str:
    """How starts and rates do on tasks that a head has to carry."""
    return written(code_sheets(study())[-1])


def head_letters() -> str:
    """What the bytes of learned heads do, and what can be read from their states."""
    rows = []
    for name, arm in measured("head_of_code")["arms"].items():
        for kind in ("untrained", "trained"):
            part = arm[kind]
            used = [row for row in part["letters"] if row[0] in part["used"]]
            rows.append(
                [
                    label(name),
                    kind,
                    f"{min(row[1] for row in used):.2f}–{max(row[1] for row in used):.2f}",
                    f"{min(row[2] for row in used):.2f}–{max(row[2] for row in used):.2f}",
                    f"{part['with_an_order']} of {len(used)}",
                    f"{part['directions_read']:.1f} of {part['state_dim']}",
                    *(f"{part['readable'][block]:+.2f}" for block in ("context", "depth", "level")),
                ]
            )
    heads = ("head", "", "moves", "keeps", "bytes of an order to 24", "directions read", "context", "depth", "level")
    return table(heads, rows)


def sidecar_on_stories() -> str:
    """Permutation traces in text on a pretrained host: sidecar, LoRA, both."""
    everything = measured("pretrained_sidecar")
    rows = [["nothing", "0", *_shares(everything["bare"]), f"{everything['bare']['bits']:.3f}"]]
    for run in everything["runs"]:
        rows.append(
            [f"{run['arm']}, seed {run['seed']}", f"{run['parameters']:,}", *_shares(run), f"{run['bits']:.3f}"]
        )
    lengths = list(everything["bare"]["right"])
    heads = ("added", "trained numbers", *(f"{length} moves" for length in lengths), "bits a token of its own stories")
    return table(heads, rows)


def _shares(part: dict[str, Any]) -> list[str]:
    return [f"{share:.1%}" for share in part["right"].values()]


def seeds_of_arms() -> str:
    """Say which seeds were run."""
    seeds: dict[tuple[int, ...], list[str]] = {}
    for arm in code_arms(study()):
        numbers = tuple(run.seed for run in arm.runs if lengths_of_files(arm))
        seeds.setdefault(numbers, []).append(label(arm.name))
    parts = [f"seed {', '.join(map(str, numbers))}: {', '.join(names)}" for numbers, names in sorted(seeds.items())]
    reference = study().arm("transformer")
    assert reference is not None
    mean = bits(judged(reference, LENGTHS[0]).mean())
    return f"Runs on code: {'; '.join(parts)}. The Transformer is at {mean} bits a byte on the first {LENGTHS[0]:,}."


PAGE = {
    "answer": answer,
    "runs": seeds_of_arms,
    "bits": code_bits,
    "contrasts": code_contrasts,
    "states": code_states,
    "choices": code_brackets,
    "tasks": code_tasks,
    "head": head_letters,
    "stories": sidecar_on_stories,
}
