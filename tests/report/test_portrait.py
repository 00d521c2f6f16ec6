"""The figure of a portrait: every kind of head is drawn, nothing overlaps, and torch is not needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import combinations

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tests.extraction.near_machines import clock
from transductor.automata import machine, regex
from transductor.compilation import compile_head, compile_model
from transductor.portraits import portrait
from transductor.report.portrait import _figure, portrait_figure
from transductor.report.portrait_machines import state_colours
from transductor.report.style import READABLE
from transductor.tasks import task_named


def truth(name):
    return task_named(name).automaton()


PORTRAITS = {
    "drifting": lambda: portrait(clock(5, 1e-3), truth("counting:5"), length=2000),
    "other": lambda: portrait(clock(5, 0.0), truth("counting:6"), letters=["stays", "counts on"], length=100),
    "exact": lambda: portrait(compile_model(truth("parity")), truth("parity"), length=100),
    "large": lambda: portrait(compile_model(truth("addition")), truth("addition"), length=100),
    "one state": lambda: portrait(compile_model(regex("a*")), regex("a*"), length=100),
    "a head": lambda: portrait(compile_head(truth("cycle"), family="orthogonal"), length=1000),
    "a series": lambda: portrait(compile_model(machine("base_value:2").automaton)),
}


@cache
def made(name):
    return PORTRAITS[name]()


@pytest.mark.parametrize("name", ["drifting", "large"])
def test_a_picture_is_small_and_whole(name, tmp_path):
    path = portrait_figure(made(name), tmp_path / "new" / "figure.png")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 10_000 < len(data) < 200_000


@pytest.mark.parametrize("name", list(PORTRAITS))
def test_titles_do_not_overlap(name):
    with matplotlib.rc_context(READABLE):
        figure = _figure(made(name))
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        parts = [axes.title for axes in figure.axes if axes.get_title()]
        parts += [axes.xaxis.label for axes in figure.axes if axes.axison and axes.get_xlabel()]
        parts += [figure._suptitle]
        boxes = [part.get_window_extent(renderer) for part in parts]
    for first, second in combinations(boxes, 2):
        assert not first.overlaps(second)
    for box in boxes:
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1


def test_what_is_written_says_what_was_found():
    with matplotlib.rc_context(READABLE):
        titles = {
            name: " ".join(axes.get_title() for axes in _figure(made(name)).axes)
            for name in ("drifting", "other", "exact", "a series")
        }
        texts = [text.get_text() for axes in _figure(made("exact")).axes for text in axes.texts]
    assert "5 states,\nwith the target's labels on every word" in titles["drifting"]
    assert "other than the target after counts on co … (5 letters)" in titles["other"]
    assert "no machine is near" in titles["a series"]
    assert any("0 for every letter" in text for text in texts)
    assert any("0 at every length up to 100" in text for text in texts)


@pytest.mark.parametrize("suffix", [".svg", ".pdf"])
def test_other_formats(suffix, tmp_path):
    assert portrait_figure(made("exact"), tmp_path / f"figure{suffix}").stat().st_size > 5_000


def test_a_format_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf"):
        portrait_figure(made("exact"), tmp_path / "figure.txt")


def test_curves_with_gaps_are_drawn(tmp_path):
    seen = made("drifting")
    gaps = [None if place % 5 == 0 else gap for place, gap in enumerate(seen.drift.worst)]
    nothing = [None] * len(gaps)
    partly = replace(seen, drift=replace(seen.drift, worst=gaps, median=nothing, powers={}))
    leaks = replace(partly, leak=replace(seen.leak, worst=[None, 0.1], mean=[None, 0.0]))
    whole = portrait_figure(seen, tmp_path / "whole.png").read_bytes()
    assert portrait_figure(leaks, tmp_path / "figure.png").read_bytes() != whole


def test_states_have_colours_of_their_own():
    for count in (1, 5, 8, 9, 60):
        assert len(set(state_colours(count))) == count


def test_it_is_drawn_from_a_file_without_torch(tmp_path):
    source, target = made("exact").write(tmp_path / "portrait.json"), tmp_path / "figure.png"
    code = (
        "import sys; from transductor.portraits.values import read_portrait; "
        "from transductor.report.portrait import portrait_figure; "
        f"portrait_figure(read_portrait({str(source)!r}), {str(target)!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert target.exists()
