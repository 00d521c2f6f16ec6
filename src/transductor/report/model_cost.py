"""The tables of the model-cost study are made from its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from transductor.report.style import LABELS
from transductor.results import Record


def model_cost_tables(*records: Record) -> Group:
    """Show what the head adds, in per cent, to a training step, its memory, and a decoded token."""
    views: list[RenderableType] = []
    for record in records:
        device = f"{record.environment['device']}; torch {record.environment['versions']['torch']}"
        views.append(Text(device, style="bold"))
        views.extend(_training_table(record) if "models" in record.measurements else [_decoding_table(record)])
    return Group(*views)


def _training_table(record: Record) -> list[RenderableType]:
    study, training = record.settings, record.measurements["models"]
    plain, ours = training["transformer"], training["transductor"]
    table = Table(
        title=f"one training step: {study['layers']} layers, width {study['width']}, B = {study['batch']}, "
        f"T = {study['length']:,}, V = {study['vocab_size']}, bfloat16; head d = {study['state_dim']}"
    )
    table.add_column("")
    for column in (*(LABELS[name] for name in training), "the head adds"):
        table.add_column(column, justify="right")
    table.add_row(
        "parameters", *(f"{entry['parameters']:,}" for entry in training.values()), _more("parameters", training)
    )
    if "device_seconds" in plain:
        captured = (f"{1e3 * entry['device_seconds']:.2f}" for entry in training.values())
        how = "captured" if all(entry["device_timed"] == "graph" for entry in training.values()) else "not captured"
        table.add_row(f"milliseconds on the device, {how}", *captured, _more("device_seconds", training))
    for words, key in (("host clock, median", "seconds"), ("least", "min"), ("most", "max")):
        table.add_row(words, *(f"{1e3 * entry[key]:.2f}" for entry in training.values()), _more(key, training))
    paired = [b / a - 1 for a, b in zip(plain["turns"], ours["turns"], strict=True)]
    table.add_row("turn by turn", "", "", f"{min(paired):+.1%} to {max(paired):+.1%}")
    if "peak_bytes" in plain:
        sizes = (f"{entry['peak_bytes'] / 2**20:,.0f}" for entry in training.values())
        table.add_row("peak memory, MiB", *sizes, _more("peak_bytes", training))
    table.add_row("compiled", *(entry["compiled"] for entry in training.values()), "")
    return [table, *(Text(f"{LABELS[name]}: {entry['note']}") for name, entry in training.items() if "note" in entry)]


def _decoding_table(record: Record) -> Table:
    decoding = Table(
        title="decoding one token, compiled like training: microseconds (on a GPU also as a user calls it, host clock)"
    )
    cells = record.measurements["cells"]
    for column in ("B", "context", *(LABELS[name] for name in cells[0]["models"]), "the head adds"):
        decoding.add_column(column, justify="right")
    for cell in cells:
        models = cell["models"]
        decoding.add_row(
            f"{cell['batch']}", f"{cell['context']:,}", *map(_times, models.values()), _more_decoded(models)
        )
    return decoding


def _more(key: str, models: Mapping[str, Any]) -> str:
    return f"{models['transductor'][key] / models['transformer'][key] - 1:+.1%}"


def _times(entry: Mapping[str, Any]) -> str:
    if "seconds" not in entry:
        return "–"
    time = f"{1e6 * entry['seconds']:,.0f}"
    return f"{time} ({1e6 * entry['call_seconds']:,.0f})" if "call_seconds" in entry else time


def _more_decoded(models: Mapping[str, Any]) -> str:
    if any("seconds" not in entry for entry in models.values()):
        return "–"
    more = _more("seconds", models)
    return f"{more} ({_more('call_seconds', models)})" if "call_seconds" in models["transductor"] else more
