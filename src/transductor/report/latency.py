"""The tables and the figure of the latency study are made from its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import SubFigure
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from transductor.report.style import mark_quick, save_figure
from transductor.results import Record

ACTS = {"forward": "forward", "forward_backward": "forward + backward"}
# The label, colour and marker of each contender.
LOOKS = {
    "auto": ("scan (auto)", "#1f5fbf", "o"),
    "chunked": ("chunked", "#7aa6e0", "."),
    "reference": ("reference loop", "0.6", "."),
    "kogge_stone": ("Kogge–Stone", "#d1495b", "s"),
    "loop": ("loop, M @ h", "#2e933c", "x"),
    "associative_scan": ("torch associative_scan", "#e39b2d", "."),
    "jax": ("JAX associative_scan", "#8e5ea2", "D"),
    "attention": ("attention (SDPA)", "#17a2a2", "^"),
    "lstm": ("LSTM", "#8c6d46", "v"),
    "delta_rule": ("delta rule (fla)", "#d773b5", "."),
}
_FLOOR = "floor: the least time to move\neach operand and result once,\nor for the arithmetic, at\nthe machine's speed"
# Other contenders take the next of these colours.
SPARE = ("#4b4b9c", "#9c4b4b", "#4b9c7a")

Cell = Mapping[str, Any]


def latency_tables(record: Record) -> Group:
    """Show the distance to the floor, what was skipped and why, microseconds, and the ratios to ours."""
    lengths: Sequence[Cell] = record.measurements.get("lengths", [])
    shapes: Sequence[Cell] = record.measurements.get("shapes", [])
    wide: Sequence[Cell] = record.measurements.get("wide", [])
    views: list[Table | Text] = []
    titles = "other shapes and precisions", "wide states, many tokens, many steps", "beside its peers"
    for title, cells in zip(titles, (shapes, wide, lengths), strict=True):
        if cells:
            views.append(_distances(title, cells))
    views += [Text(line) for line in _remarks((*lengths, *shapes, *wide))]
    memory = record.measurements["memory"]
    case = memory["case"]
    views.append(
        Text(
            f"peak memory of forward + backward at B = {case['batch']}, T = {case['time']:,}, d = {case['dim']}: "
            f"{memory['over_least']:.2f} × inputs + states + their gradient"
        )
    )
    if wide:
        views.append(_times(wide, "seconds", f"microseconds a call, {_clock(record)}"))
    if lengths:
        views.append(_times(lengths, "seconds", f"microseconds a call, {_clock(record)}"))
        if any("call_seconds" in outcome for cell in lengths for _, _, outcome in _outcomes(cell)):
            views.append(_times(lengths, "call_seconds", "microseconds a call as a user makes it, host clock"))
        views.append(_ratios(lengths))
    return Group(*views, Text(_headline(record), style="bold"))


def latency_figure(record: Record, path: str | Path) -> Path:
    """Draw latency by length for one sequence, and the distance to the floor of every shape."""
    lengths = [cell for cell in record.measurements.get("lengths", []) if cell["case"]["batch"] == 1]
    shapes = [*record.measurements.get("shapes", []), *record.measurements.get("wide", [])]
    drawn = [(_draw_lengths, lengths, 4.4), (_draw_shapes, shapes, 1.0 + 0.18 * len(shapes))]
    drawn = [(draw, cells, height) for draw, cells, height in drawn if cells]
    heights = [height for *_, height in drawn]
    figure = plt.figure(figsize=(11, sum(heights) + 0.4), layout="constrained")
    panels = figure.subfigures(len(drawn), 1, height_ratios=heights, squeeze=False)[:, 0]
    for (draw, cells, _), panel in zip(drawn, panels, strict=True):
        draw(cells, panel)
    figure.suptitle(_headline(record), fontsize=11)
    if record.settings.get("quick", False):
        mark_quick(figure)
    return save_figure(figure, path)


def _headline(record: Record) -> str:
    versions = record.environment["versions"]
    software = ", ".join(f"{name} {versions[name]}" for name in ("torch", "triton", "jax") if name in versions)
    threads = "" if record.name.endswith("cuda") else f", {record.environment['threads']} threads"
    if record.environment.get("load", 0) > 0.5:
        software += f"; load {record.environment['load']} before the run"
    return f"{record.environment['device']}{threads}; {software}"


def _clock(record: Record) -> str:
    return "device time (* eager calls, between events)" if record.name.endswith("cuda") else "host clock"


def _label(name: str) -> str:
    return LOOKS[name][0] if name in LOOKS else name


def _names(cells: Sequence[Cell]) -> list[str]:
    """Return the contenders with at least one number, in the order they were run."""
    timed = {name for cell in cells for name, _, outcome in _outcomes(cell) if "seconds" in outcome}
    return [name for cell in cells[:1] for name in cell["contenders"] if name in timed]


def _outcomes(cell: Cell) -> list[tuple[str, str, Mapping[str, Any]]]:
    return [(name, act, outcome) for name, acts in cell["contenders"].items() for act, outcome in acts.items()]


def _seconds(cell: Cell, name: str, act: str, key: str = "seconds") -> float | None:
    value: float | None = _outcome(cell, name, act).get(key)
    return value


def _outcome(cell: Cell, name: str, act: str) -> Mapping[str, Any]:
    outcome: Mapping[str, Any] = cell["contenders"].get(name, {}).get(act, {})
    return outcome


def _microseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{1e6 * value:,.0f}" if value >= 1e-5 else f"{1e6 * value:.1f}"


def _star(cell: Cell, name: str, act: str, key: str) -> str:
    """Mark a call that could not be captured: its device time includes the time of the host."""
    return "*" if key == "seconds" and _outcome(cell, name, act).get("timed") == "events" else ""


def _place(cell: Cell) -> str:
    return f"{cell['case']['batch']}, {cell['case']['time']:,}"


def _table(names: Sequence[str], title: str) -> Table:
    """Return a table with a column for each contender."""
    return Table(*(Column(name, justify="right") for name in ("B, T", *map(_label, names))), title=title)


def _times(cells: Sequence[Cell], key: str, title: str) -> Table:
    names = _names(cells)
    labels = {cell["label"] for cell in cells}
    table = _table(names, f"{title}; forward / forward + backward{f'; {labels.pop()}' if len(labels) == 1 else ''}")
    varied = bool(labels)
    for cell in cells:
        row = [
            " / ".join(_microseconds(_seconds(cell, name, act, key)) + _star(cell, name, act, key) for act in ACTS)
            for name in names
        ]
        table.add_row(f"{_place(cell)}, {cell['label']}" if varied else _place(cell), *row)
    return table


def _ratios(cells: Sequence[Cell]) -> Table:
    names = [name for name in _names(cells) if name != "auto"]
    table = _table(names, "peer / scan (auto): how many times our scan is quicker; forward / forward + backward")
    for cell in cells:
        row = []
        for name in names:
            pairs = [(_seconds(cell, name, act), _seconds(cell, "auto", act)) for act in ACTS]
            row.append(" / ".join(f"{a / b:,.1f}×" if a is not None and b is not None else "–" for a, b in pairs))
        table.add_row(_place(cell), *row)
    return table


def _distances(title: str, cells: Sequence[Cell]) -> Table:
    table = Table(
        title=f"scan (auto), {title}: the floor is the larger of bytes and vector operations over measured ceilings"
    )
    for column in ("B, T", "case", "act", "MB", "GFLOP", "floor µs", "bound by", "measured µs", "measured / floor"):
        table.add_column(column, justify="left" if column in ("case", "act", "bound by") else "right")
    table.add_column("chunk products: GFLOP, µs", justify="right")
    for cell in cells:
        for act, words in ACTS.items():
            floor, seconds = cell["floor"][act], _seconds(cell, "auto", act)
            table.add_row(
                _place(cell),
                cell["label"],
                words,
                f"{floor['bytes'] / 1e6:,.1f}",
                f"{floor['operations'] / 1e9:,.2f}",
                _microseconds(floor["seconds"]),
                floor["bound_by"],
                _microseconds(seconds),
                "–" if seconds is None else f"{seconds / floor['seconds']:,.1f}×",
                f"{floor['chunk_operations'] / 1e9:,.2f}, {_microseconds(floor['chunk_seconds'])}",
            )
    return table


def _remarks(cells: Sequence[Cell]) -> list[str]:
    """Return each reason once, with the number of cells it concerns."""
    counts: dict[str, int] = {}
    for cell in cells:
        for name, _, outcome in _outcomes(cell):
            for kind in ("skipped", "note"):
                if kind in outcome:
                    line = f"{_label(name)}: {kind}: {outcome[kind]}"
                    counts[line] = counts.get(line, 0) + 1
    return [f"{line} ({count} times)" if count > 1 else line for line, count in counts.items()]


def _draw_lengths(cells: Sequence[Cell], panel: SubFigure) -> None:
    axes = panel.subplots(1, 2, sharey=True)
    names = _names(cells)
    spare = iter(SPARE)
    colours = {name: LOOKS[name][1] if name in LOOKS else next(spare, "0.4") for name in names}
    times = [cell["case"]["time"] for cell in cells]
    hollow = False
    for axis, (act, words) in zip(axes, ACTS.items(), strict=True):
        for name in names:
            points = [
                (t, 1e6 * value, _outcome(cell, name, act).get("timed"))
                for t, cell in zip(times, cells, strict=True)
                if (value := _seconds(cell, name, act))
            ]
            ours = name == "auto"
            axis.plot(
                [t for t, *_ in points],
                [value for _, value, _ in points],
                marker=LOOKS[name][2] if name in LOOKS else ".",
                ms=7 if ours else 4,
                lw=6 if ours else 1.2,  # wide and below: the backend that was chosen runs along it
                alpha=0.5 if ours else 1.0,
                zorder=1 if ours else 2,
                color=colours[name],
                label=_label(name),
            )
            eager = [(t, value) for t, value, timed in points if timed == "events"]
            if eager:  # hollow: eager calls between events, which include the host's time
                axis.plot(*zip(*eager, strict=True), ls="", marker="o", ms=6, mfc="white", mec=colours[name])
                hollow = True
        floors = [1e6 * cell["floor"][act]["seconds"] for cell in cells]
        axis.plot(times, floors, ls="--", color="0.35", lw=1.2, label=_FLOOR)
        case = cells[0]["case"]
        axis.set(xscale="log", yscale="log", xlabel="length T")
        axis.set_title(f"{words}; B = 1, d = {case['dim']}, V = {case['symbols']}", fontsize=10)
        axis.set_xticks(times, [f"{t:,}" for t in times], fontsize=8)
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("microseconds (median)")
    handles, labels = axes[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] != _label("auto"))  # ours first
    if hollow:
        handles.append(axes[0].plot([], [], ls="", marker="o", ms=6, mfc="white", mec="0.3")[0])
        labels.append("hollow: eager calls,\nthe host's time included")
        order.append(len(labels) - 1)
    panel.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside right upper", frameon=False, fontsize=9
    )


def _draw_shapes(cells: Sequence[Cell], panel: SubFigure) -> None:
    """Draw one bar per case: how far our scan is from the floor, on a logarithmic axis that starts at 1."""
    axes = panel.subplots(1, 2)
    labels = [f"{cell['label']};  B={cell['case']['batch']}, T={cell['case']['time']:,}" for cell in cells]
    for axis, (act, words) in zip(axes, ACTS.items(), strict=True):
        widest = 1.0
        for place, cell in enumerate(cells):
            seconds = _seconds(cell, "auto", act)
            distance = None if seconds is None else max(1.0, seconds / cell["floor"][act]["seconds"])
            text = "skipped" if distance is None else f"{distance:,.0f}×" if distance >= 10 else f"{distance:.1f}×"
            widest = max(widest, distance or 1.0)
            colour = "#1f5fbf" if cell["case"]["batch"] == 1 else "#7aa6e0"
            axis.barh(place, distance or 1.0, height=0.72, color=colour)
            axis.text((distance or 1.0) * 1.08, place, text, va="center", fontsize=7)
        axis.set_yticks(range(len(cells)), labels if axis is axes[0] else [], fontsize=7.5)
        axis.invert_yaxis()
        axis.set(xscale="log", xlim=(1, widest * 3), ylim=(len(cells) - 0.4, -0.6), xlabel="measured / floor")
        axis.set_title(f"{words}: distance to the floor", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
