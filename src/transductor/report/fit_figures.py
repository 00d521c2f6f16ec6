"""The pictures of a fit as SVG text: its machine, and how right its models are at longer lengths."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from transductor.portraits.values import Drawn
from transductor.report.portrait_machines import draw_machine

_MOST_STATES: Final = 60
_PEER, _OURS, _CHOSEN, _BASELINE = "#ee9b3a", "#8fb3e0", "#1f5fbf", "0.75"


def _as_svg(figure: Figure) -> str:
    """Return a figure as SVG text and close it; equal figures give equal text."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "transductor"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    return buffer.getvalue()


def machine_svg(facts: Mapping[str, Any]) -> str | None:
    """Return the machine in the user's words and classes; None where it is too large for a picture."""
    machine, data = facts["machine"], facts["data"]
    if machine["states"] > _MOST_STATES:
        return None
    labels = [data["classes"][label] if label >= 0 else None for label in machine["outputs"]]
    figure, axes = plt.subplots(figsize=(6.4, 6.0), layout="constrained")
    draw_machine(axes, Drawn(machine["transitions"], labels, machine["start"]), data["letters"])
    return _as_svg(figure)


def accuracy_svg(facts: Mapping[str, Any]) -> str | None:
    """Return bars: how right each model is at each multiple of the trained length; None where labels are numbers."""
    recipes = [each for each in facts["recipes"] if each["failed"] is None]
    if facts["data"]["goal"] == "regression" or not recipes:
        return None
    names = [facts["baseline"]["name"], *(each["name"] for each in recipes)]
    shares = [facts["baseline"]["bands"], *(each["bands"] for each in recipes)]
    colours = [_BASELINE] + [
        _PEER if each["peer"] else _CHOSEN if each["name"] == facts["chosen"]["name"] else _OURS for each in recipes
    ]
    count = len(facts["bands"])
    figure, panels = plt.subplots(
        1, count, figsize=(1.5 + 3.2 * count, 1.2 + 0.34 * len(names)), sharey=True, squeeze=False, layout="constrained"
    )
    for place, axes in enumerate(panels[0]):
        rights = [each[place]["right"] / max(1, each[place]["count"]) for each in shares]
        below = [max(0.0, right - each[place]["low"]) for right, each in zip(rights, shares, strict=True)]
        above = [max(0.0, each[place]["high"] - right) for right, each in zip(rights, shares, strict=True)]
        axes.barh(names, rights, color=colours, xerr=[below, above], error_kw={"lw": 1, "capsize": 2})
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of labels that are right")
        axes.set_title(f"{facts['bands'][place]} (n = {shares[0][place]['count']:,})")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].invert_yaxis()
    return _as_svg(figure)
