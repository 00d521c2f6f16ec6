"""Reports of folders as they are: cut files, missing runs, strangers; and what the figures show."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

from tests.report.made_records import REASON, made_record, write_study
from transductor.report import read_studies, study_report
from transductor.report.study_figures import study_figure
from transductor.report.study_records import Series, at
from transductor.report.style import COLOURS, label
from transductor.studies import STUDIES
from transductor.study_names import ARMS

pytestmark = pytest.mark.usefixtures("coarse")

GAP = STUDIES["regular_gap"]
OURS = next(arm for arm in GAP.arms if arm.name == "transductor_ours")


def arm_names(study):
    return [arm.name for arm in STUDIES[study].arms]


def only(folder):
    (study,) = read_studies(folder)
    return study


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def is_picture(path):
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 5_000


@pytest.mark.parametrize("name", list(ARMS))
def test_one_seed_of_one_arm_is_enough(tmp_path, name):
    arm = ARMS[name][1]
    write_study(tmp_path, name, (7,), arms={arm})
    tables, figure = study_report(tmp_path)
    assert (tables.parent, figure.parent) == (tmp_path, tmp_path)
    assert is_picture(figure)
    text = tables.read_text()
    assert text.startswith(f"# {name}\n")
    assert STUDIES[name].question in text
    assert f"![{name}]({name}.png)" in text
    assert "1 of 1 seed" in text
    assert text.count("no readable record") == len(ARMS[name]) - 1


def nan_somewhere(plain):
    plain["measurements"]["learned"][0]["positions"] = float("nan")


def no_entries(plain):
    plain["measurements"]["learned"] = None


def entry_without_length(plain):
    del plain["measurements"]["learned"][3]["length"]


def another_seed(plain):
    plain["settings"]["seed"] = 5


def no_arm(plain):
    plain["settings"]["arm"] = None


def list_for_entry(plain):
    plain["measurements"]["hardened"] = [[1, 2]]


@pytest.mark.parametrize(
    "damage", [nan_somewhere, no_entries, entry_without_length, another_seed, no_arm, list_for_entry]
)
def test_a_record_that_says_nonsense_is_named_and_left_out(tmp_path, damage):
    write_study(tmp_path, "regular_gap", arms={"transductor_ours", "transductor_paper"})
    path = tmp_path / "regular_gap" / "transductor_ours" / "seed1.json"
    plain = json.loads(path.read_text())
    damage(plain)
    path.write_text(json.dumps(plain))
    text = study_report(tmp_path)[0].read_text()
    assert "Damaged, and left out: regular_gap/transductor_ours/seed1.json is not a record" in text
    assert "×2 of 3; seed 1 damaged" in text
    assert [arm.name for arm in only(tmp_path).arms] == ["transductor_paper", "transductor_ours"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', "\x00"])
def test_a_file_cut_off_is_named_and_left_out(tmp_path, text):
    write_study(tmp_path, "long_addition")
    (tmp_path / "long_addition" / "transformer_rotary" / "seed0.json").write_text(text)
    study = only(tmp_path)
    assert len(study.damaged) == 1
    assert study.damaged[0].startswith("long_addition/transformer_rotary/seed0.json is not a record")
    assert study.arm("transformer_rotary").absent == {0: "damaged"}


def test_a_folder_in_place_of_a_record_is_named(tmp_path):
    write_study(tmp_path, "regular_gap", (0,))
    (tmp_path / "regular_gap" / "transductor_ours" / "seed3.json").mkdir()
    assert "regular_gap/transductor_ours/seed3.json" in only(tmp_path).damaged[0]


def test_where_all_is_damaged_the_report_says_so(tmp_path):
    write_study(tmp_path, "regular_gap", (0,), arms={"transductor_ours"}, odd={"transductor_ours": {0: "damaged"}})
    tables, figure = study_report(tmp_path)
    assert "seed0.json is not a record" in tables.read_text()
    assert tables.read_text().count("no readable record") == len(GAP.arms)
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", list(STUDIES))
def test_where_every_run_failed_the_report_says_so(tmp_path, name):
    odd = {arm: {0: "failed", 1: "failed"} for arm in arm_names(name)}
    write_study(tmp_path, name, (0, 1), odd=odd)
    tables, figure = study_report(tmp_path)
    assert tables.read_text().count("0 of 2 seeds; seeds 0, 1 failed: training diverged") == len(STUDIES[name].arms)
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", list(STUDIES))
def test_where_every_hardening_was_refused_the_report_says_so(tmp_path, name):
    write_study(tmp_path, name, (0, 1), odd={arm: {0: "refused", 1: "refused"} for arm in arm_names(name)})
    tables, figure = study_report(tmp_path)
    hardens = sum(arm.harden for arm in STUDIES[name].arms)
    assert tables.read_text().count(f"seeds 0, 1 refused: {REASON}".replace("|", "\\|")) == hardens
    assert is_picture(figure)


def test_nothing_at_all_is_refused_with_the_place(tmp_path):
    (tmp_path / ".state" / "regular_gap").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=f"{tmp_path.name} holds no records"):
        study_report(tmp_path)


def test_states_of_unfinished_runs_are_no_records(tmp_path):
    write_study(tmp_path, "regular_gap", (0,))
    hidden = tmp_path / ".state" / "arm"
    hidden.mkdir(parents=True)
    (hidden / "seed0.json").write_text("{")
    (tmp_path / "regular_gap" / "transductor_ours" / "seedling.json").write_text("{")
    assert only(tmp_path).damaged == ()


def test_seeds_with_other_settings_are_told_apart(tmp_path):
    write_study(tmp_path, "regular_gap", (0, 1))
    other = replace(OURS, training=replace(OURS.training, steps=3), probes=OURS.probes[:4])
    made_record(GAP, other, 2).write(tmp_path / "regular_gap" / "transductor_ours" / "seed2.json")
    text = study_report(tmp_path)[0].read_text()
    assert "settings are not the same: training, probes differ between seeds 0, 1 and 2" in text
    assert "×2 of 3; seed 2 not judged" in text


def test_strangers_are_reported_too(tmp_path):
    stranger = replace(OURS, name="transductor_wider")
    made_record(GAP, stranger, 0).write(tmp_path / "regular_gap" / "transductor_wider" / "seed0.json")
    study = replace(GAP, name="something_new", arms=(stranger,))
    made_record(study, stranger, 0).write(tmp_path / "something_new" / "transductor_wider" / "seed0.json")
    written = study_report(tmp_path, tmp_path / "report")
    assert [path.name for path in written] == [
        "regular_gap.md",
        "regular_gap.png",
        "something_new.md",
        "something_new.png",
    ]
    for path in written[::2]:
        assert "transductor wider, hardened" in path.read_text()


def test_what_overflowed_is_not_a_number(tmp_path):
    write_study(tmp_path, "base_two_value", (0, 1), arms={"lstm", "transductor_ours"})
    path = tmp_path / "base_two_value" / "lstm" / "seed0.json"
    plain = json.loads(path.read_text())
    for entry in plain["measurements"]["learned"]:
        entry["mse"], entry["curve"] = 1e308, [[end, 1e308] for end, _ in entry["curve"]]
    path.write_text(json.dumps(plain))
    tables, figure = study_report(tmp_path)
    assert "| overflow (" in tables.read_text()
    assert is_picture(figure)


@pytest.mark.parametrize("name", ["regular_gap", "length_generalization", "long_addition", "base_two_value"])
def test_the_legend_names_every_model_and_counts_its_seeds(tmp_path, name):
    write_study(tmp_path, name, odd={"transductor_ours": {1: "refused"}, ARMS[name][0]: {0: "failed"}})
    names = labels(study_figure(only(tmp_path)))
    for arm in ARMS[name]:
        assert any(text.startswith(label(arm.removesuffix("_last_digit_first"))) for text in names), arm
    assert f"{label(ARMS[name][0])} (2 of 3 seeds)" in names
    if name != "base_two_value":
        assert "Rational Transductor, ours, hardened (2 of 3 seeds)" in names
    assert any(text.startswith("chance") for text in names)
    assert any(text.startswith("trained to") for text in names)


def test_the_lines_are_the_means_in_the_colours_of_the_models(tmp_path):
    write_study(tmp_path, "regular_gap")
    study = only(tmp_path)
    figure = study_figure(study)
    assert [axis.get_title() for axis in figure.axes] == ["random, fair coins", "p = 0.1", "p = 0.9", "all ones"]
    for axis, given in zip(figure.axes, ("random", "p = 0.1", "p = 0.9", "all ones"), strict=True):
        assert axis.get_xscale() == "log"
        assert [0.2, 0.2] in [list(line.get_ydata()) for line in axis.lines]  # chance
        drawn = {to_hex(line.get_color()): line for line in axis.lines}
        for arm in study.arms:
            line = drawn[COLOURS[arm.name]]
            for length, mean in zip(line.get_xdata(), line.get_ydata(), strict=True):
                assert mean == pytest.approx(Series(arm).tally(at(int(length), kind=given)).mean())
        assert COLOURS["transductor_hardened"] in drawn


def test_the_figure_of_values_shows_errors_by_position_and_the_papers_claim(tmp_path):
    write_study(tmp_path, "base_two_value")
    study = only(tmp_path)
    figure = study_figure(study)
    assert [axis.get_title().split("\n")[0] for axis in figure.axes] == ["first digit first", "last digit first"]
    for axis in figure.axes:
        assert axis.get_yscale() == "log"
        assert {5.9e-9, 8.4e-2} <= {line.get_ydata()[0] for line in axis.lines}
    line = next(line for line in figure.axes[0].lines if to_hex(line.get_color()) == COLOURS["transductor_ours"])
    curves = [run.entries("learned")[-1]["curve"] for run in study.arm("transductor_ours").runs]
    means = [sum(curve[place][1] for curve in curves) / 3 for place in range(128)]
    assert list(line.get_ydata()) == pytest.approx(means)


def test_the_map_of_tasks_shows_learned_beside_hardened(tmp_path):
    write_study(tmp_path, "state_tracking", odd={"parity": {0: "refused", 1: "refused", 2: "refused"}})
    study = only(tmp_path)
    learned, hardened = study_figure(study).axes
    assert [text.get_text().split("  ")[0] for text in learned.get_yticklabels()] == [
        label(arm.name) for arm in study.arms
    ]
    assert "0 of 3" in [text.get_text() for text in hardened.texts]
    mean = Series(study.arm("even_pairs")).tally(at(256)).mean()
    shown = "100" if mean == 1 else f"{100 * mean:.1f}"
    (cell,) = [text for text in learned.texts if text.get_position() == (1, 1)]
    assert cell.get_text() == shown


def test_the_panels_of_the_ablations(tmp_path):
    write_study(tmp_path, "ablations", odd={"injection_deep": {1: "failed"}})
    figure = study_figure(only(tmp_path))
    axes = [axis for part in figure.subfigs for axis in part.axes]
    assert len(axes) == 9
    assert {"deep (2/3)", "input", "none"} <= {text.get_text() for axis in axes for text in axis.get_yticklabels()}
    assert "chance" in labels(figure)
