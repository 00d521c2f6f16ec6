"""The demo's table and figure, from its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.table import Table

from transductor.report.style import COLOURS, LABELS, save_figure, smoothed, spread
from transductor.results import Record


def demo_table(record: Record) -> Table:
    """Return the table of accuracy at every position, by length and model."""
    models: Mapping[str, Any] = record.measurements["models"]
    training = record.settings["training"]
    seeds = len(record.settings["seeds"])
    table = Table(
        title=f"mod-{record.settings['task']['modulus']} counting, trained at length {training['length']}"
        + (f", mean (min–max) of {seeds} seeds" if seeds > 1 else "")
    )
    table.add_column("evaluated on")
    for name in models:
        table.add_column(f"{LABELS[name]}\n{models[name]['parameters']:,} parameters", justify="right")
    for index, length in enumerate(record.settings["lengths"]):
        cells = [
            spread([run["lengths"][index]["every_position"] for run in model["runs"]]) for model in models.values()
        ]
        table.add_row(f"random, length {length}", *cells)
    longest = max(record.settings["lengths"])
    last = record.settings["lengths"].index(longest)
    cells = [spread([run["lengths"][last]["beyond"] for run in model["runs"]]) for model in models.values()]
    table.add_row(f"the same beyond {training['length']}", *cells, end_section=True)
    for kind in next(iter(models.values()))["runs"][0]["adversarial"]:
        cells = [spread([run["adversarial"][kind] for run in model["runs"]]) for model in models.values()]
        table.add_row(f"{kind}, length {longest}", *cells)
    table.caption = f"every position counts; chance is {record.measurements['chance']:.0%}"
    return table


def demo_certificate(record: Record) -> str:
    """Return what is certified of the hardened transductor, in one sentence; nothing for a record without it."""
    said = record.measurements.get("certified")
    if said is None:
        return ""
    if said["refused"] is not None:
        return f"hardened: no. {said['refused']}"
    machine = f"hardened: a machine of {said['states']} states"
    if said["about"] == "head":
        return f"{machine}; its head alone is {said['verdict']}, attention could change labels"
    if said["holds_up_to"] is None:
        return f"{machine}; the whole model is proved right at every length"
    length = f"{said['holds_up_to']:,}".replace(",", " ")
    return f"{machine}; certified at every length with exact averages in attention, in float32 up to {length} tokens"


def demo_figure(record: Record, path: str | Path) -> Path:
    """Draw accuracy by position at the longest length, and the training curves."""
    trained = record.settings["training"]["length"]
    figure, (by_position, curves) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=[1.7, 1], layout="constrained")
    for name, model in record.measurements["models"].items():
        for index, run in enumerate(model["runs"]):
            label = LABELS[name] if index == 0 else None
            positions = range(1, len(run["by_position"]) + 1)
            by_position.plot(positions, smoothed(run["by_position"], 5), color=COLOURS[name], lw=1.8, label=label)
            steps = [point["step"] for point in run["training"]]
            accuracies = [point["accuracy"] for point in run["training"]]
            curves.plot(steps, accuracies, color=COLOURS[name], lw=1.8)
    hardened = (record.measurements.get("certified") or {}).get("by_position")
    if hardened is not None:
        places = range(1, len(hardened) + 1)
        label = f"{LABELS['transductor']}, hardened"
        by_position.plot(places, smoothed(hardened, 5), color="0.15", lw=1.4, ls=(0, (4, 4)), label=label)
    chance = record.measurements["chance"]
    by_position.axvspan(0, trained, color="0.93", zorder=0)
    by_position.text(trained + 6, 0.52, f"← trained to {trained}", color="0.35", fontsize=9)
    for axis in (by_position, curves):
        axis.axhline(chance, color="0.6", lw=1, ls=":")
        axis.set_ylim(0, 1.05)
        axis.spines[["top", "right"]].set_visible(False)
    curves.text(0.98 * max(steps), chance + 0.012, "chance", color="0.45", fontsize=9, ha="right", va="bottom")
    by_position.set(xlabel="position in the sequence", ylabel="accuracy", xlim=(0, len(positions)))
    by_position.set_title(f"mod-{record.settings['task']['modulus']} counting on unseen random sequences", fontsize=11)
    by_position.legend(loc="center right", frameon=False)
    curves.set(xlabel="training step", xlim=(0, max(steps)))
    curves.set_title(f"training, length {trained}", fontsize=11)
    if certified := demo_certificate(record):
        figure.supxlabel(certified if len(certified) < 140 else certified[:137] + "…", fontsize=9, color="0.25")
    return save_figure(figure, path)
