"""The options of train: every setting, the library's own names, and files of settings."""

from __future__ import annotations

import dataclasses
import random

import pytest
import typer
from typer.testing import CliRunner

from transductor import heads, transitions
from transductor.cli import app, training_options
from transductor.cli.training_options import model_from, settings_from
from transductor.configuration import to_plain
from transductor.model import FullAttention, NoAttention, NoPositions, RationalReadout, RotaryPositions, SlidingWindow
from transductor.training import Annealing, Curriculum, TrainingSettings

TINY = (
    "--width",
    "8",
    "--layers",
    "1",
    "--state-dim",
    "4",
    "--attention-heads",
    "1",
    "--batch-size",
    "8",
    "--steps",
    "2",
)


def invoke(*arguments, given=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=given, env={"COLUMNS": "200"})


def options():
    """The options of train and their defaults."""
    return {parameter.name: parameter.default for parameter in typer.main.get_command(app).commands["train"].params}


def built(**changes):
    return model_from({**options(), "width": 8, "attention_heads": 2, **changes}, 5, 3)


def test_the_names_are_those_of_the_library():
    assert tuple(transitions.FAMILIES) == training_options.FAMILIES
    # A factored filter is made of families side by side, which a line on a shell cannot say.
    assert tuple(name for name in heads.HEADS if name != "factored_filter") == training_options.HEADS


def test_every_setting_of_training_is_an_option():
    beside = {"labels": "count_labels"}
    for field in dataclasses.fields(TrainingSettings):
        parts = {"curriculum": Curriculum, "annealing": Annealing}.get(field.name)
        names = [beside.get(field.name, field.name)]
        if parts is not None:
            names = [f"{field.name}_{part.name}" for part in dataclasses.fields(parts)]
        for name in names:
            assert name in options(), name
    assert settings_from(options()) == TrainingSettings()
    changed = {
        "shortest": 2, "count_labels": "last", "weight_decay": 0.5, "gradient_clip": 2.0, "label_smoothing": 0.0,
        "optimiser": "adam", "schedule": "linear", "warmup": 3, "clipping": "none", "head_learning_rate": 0.1,
        "double": True, "explosion": 10.0, "curriculum_start": 4, "curriculum_factor": 3.0, "annealing_end": 0.2,
        "betas": (0.8, 0.95),
    }  # fmt: skip
    settings = settings_from({**options(), **changed})
    for name, value in changed.items():
        if not name.startswith(("curriculum", "annealing", "count")):
            assert getattr(settings, name) == value
    assert (settings.labels, settings.curriculum, settings.annealing) == (
        "last",
        Curriculum(4, factor=3.0),
        Annealing(end=0.2),
    )


def test_models():
    assert isinstance(built(model="readout", family="affine"), RationalReadout)
    for family in training_options.FAMILIES:
        assert built(model="readout", family=family).rational_head.transitions.name == family
    assert built(model="readout", family="householder:reflections=2").rational_head.transitions.reflections == 2
    universal = built(model="readout", head="universal", state_dim=6, stochastic_dim=2).rational_head
    assert type(universal).name == "universal"
    assert universal.transitions.part_dims == [4, 2]
    for head in ("lookback", "random_features"):
        assert type(built(head=head).rational_head).name == head
    assert built().backbone.config.attention == FullAttention()
    assert built(attention="none").backbone.config.attention == NoAttention()
    assert built(attention="7").backbone.config.attention == SlidingWindow(7)
    assert built().backbone.config.positions == NoPositions()
    assert built(model="transformer").backbone.config.positions == RotaryPositions()
    assert built(model="transformer", positions="none").backbone.config.positions == NoPositions()
    for positions in training_options.POSITIONS:
        kind = to_plain(built(positions=positions).config)["backbone"]["positions"]["kind"]
        assert kind.lower() == ("no" if positions == "none" else positions) + "positions"
    config = built(injection="input", feedforward=5, dropout=0.5).config
    assert (config.injection, config.backbone.feedforward, config.backbone.dropout) == ("input", 5, 0.5)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("--attention must be none, full or the width of a window, such as 64; got '0'", {"attention": "0"}),
        ("--attention must be", {"attention": "half"}),
        ("--positions must be one of 'none', 'learned'", {"positions": "gps"}),
        ("--head must be one of 'rational'", {"head": "cool"}),
        ("--family must be one of 'dense', 'affine'", {"family": "royal"}),
        ("--family must be a name, or name:option=number; got 'dplr:rank=x'", {"family": "dplr:rank=x"}),
        ("--family dplr:order=1: .*order", {"family": "dplr:order=1"}),
        (
            "--stochastic-dim must lie between 1 and --state-dim − 1 = 3",
            {"head": "universal", "state_dim": 4, "stochastic_dim": 4},
        ),
        ("--stochastic-dim must lie between", {"head": "universal", "state_dim": 1}),
        ("injection must be one of", {"injection": "shallow"}),
    ],
)
def test_wrong_values_are_refused_by_name(words, changes):
    with pytest.raises(ValueError, match=words):
        built(**changes)


def test_a_curriculum_needs_its_start():
    with pytest.raises(ValueError, match="--curriculum-start must be given with --curriculum-factor"):
        settings_from({**options(), "curriculum_factor": 2.0})


@pytest.fixture
def files(tmp_path):
    """A log whose last of `on` and `off` counts, though anything may come between: every one of them is a reset."""
    drawn = random.Random(1)
    rows = [drawn.choices(["on", "off", "wait"], k=drawn.randint(1, 12)) for _ in range(200)]
    labels = [
        "on" if (last := [name for name in row if name != "wait"]) and last[-1] == "on" else "off" for row in rows
    ]
    lines = [f"{number},{' '.join(row)},{label}" for number, (row, label) in enumerate(zip(rows, labels, strict=True))]
    (tmp_path / "log.csv").write_text("\n".join(["id,events,light", *lines]))
    return tmp_path


def test_a_file_of_settings(files, monkeypatch):
    (files / "run.toml").write_text(
        'data = "log.csv"\ntext-column = "events"\nlabel_column = "light"\nmodel = "readout"\nfamily = "stochastic"\n'
        'state_dim = 4\nbatch_size = 8\nsteps = 9\nheld_out_longest = 0.1\ndouble = true\noutput = "run"\n'
        "attention = 8\nbetas = [0.8, 0.95]\n[curriculum]\nstart = 3\n[annealing]\nstart = 1\nend = 0.5\n"
    )
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    result = invoke("train", "--config", files / "run.toml", "--steps", 3)
    assert result.exit_code == 0, result.output
    assert "goal: recognition, as the labels suggest" in result.output
    assert "longest (12 to 12 tokens)" in result.output
    assert str(files / "run" / "model") in result.output
    again = invoke("train", "--config", files / "run.toml", "--steps", 3)  # annealing has changed the temperature
    assert "going on from step 3" in again.output
    other = invoke("train", files / "run", "--config", files / "run.toml")
    assert other.exit_code == 2
    assert "holds another run: its settings differ" in other.output
    assert invoke("evaluate", files / "run").output.count("labels right") == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("there is no setting 'learnig_rate'; did you mean learning_rate", "learnig_rate = 1"),
        ("there is no setting 'zzz'; it may have annealing_end", "zzz = 1"),
        ("there is no setting 'curriculum_strat'; did you mean curriculum_start", "[curriculum]\nstrat = 1"),
        ("there is no setting 'config'", 'config = "x"'),
        ("steps must be a number or a text; got True", "steps = true"),
        ("steps must be a number or a text; got [1]", "steps = [1]"),
        ("double must be true or false; got 1", "double = 1"),
        ("betas must be two numbers in brackets; got 0.9", "betas = 0.9"),
        ("betas must be two numbers in brackets; got [0.9, True]", "betas = [0.9, true]"),
        ("betas must be two numbers in [0, 1); got (0.9, 1.0)", "betas = [0.9, 1]"),
        ("run.toml is not TOML: ", "steps ="),
        ("is not TOML", b"\xff"),
        ("is larger than 32 KiB", "a." * 20_000 + "a = 1"),  # which Python's reader takes minutes for
        ("gives a_1 twice", "a-1 = 1\na_1 = 2"),
        ("Invalid value for '--steps'", 'steps = "x"'),
    ],
)
def test_a_wrong_file_of_settings_is_refused(tmp_path, words, text):
    (tmp_path / "run.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = invoke("train", tmp_path / "run", "--task", "parity", "--config", tmp_path / "run.toml")
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / "run").exists()
    missing = invoke("train", tmp_path / "run", "--config", tmp_path / "nowhere.toml")
    assert missing.exit_code == 2
    assert "No such file" in missing.output


def test_a_run_is_resumed_from_another_folder(files, monkeypatch):
    monkeypatch.chdir(files)
    columns = ("--text-column", "events", "--label-column", "light")
    assert invoke("train", "-o", "run", "--data", "log.csv", *columns, *TINY).exit_code == 0
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    again = invoke("train", "../run", "--data", "../log.csv", *columns, *TINY)
    assert "going on from step 2" in again.output
    assert again.exit_code == 0
    (files / "same.csv").write_text((files / "log.csv").read_text())
    judged = invoke("evaluate", "../run", "--data", "../same.csv", "-o", "numbers.json")
    assert "of 200 labels right" in judged.output
    assert '"count": 200' in (files / "elsewhere" / "numbers.json").read_text()


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("RUN must be given once: as an argument, or as --output (-o)", ("--task", "parity")),
        ("RUN must be given once: as an argument, or as --output (-o)", ("a", "-o", "b", "--task", "parity")),
        ("--data and --task cannot be given together", ("a", "--data", "log.csv", "--task", "parity")),
        ("--labels is for --data", ("a", "--task", "parity", "--labels", "log.csv")),
        ("--held-out-longest is for --data", ("a", "--task", "parity", "--held-out-longest", "0.1")),
        ("--length is for --task", ("a", "--data", "log.csv", "--length", "9")),
        ("--split must be one of 'blanks', 'characters'", ("a", "--data", "log.csv", "--split", "commas")),
        ("--text-column must name one of the columns 'id', 'events', 'light'", ("a", "--data", "log.csv")),
        ("RUN must be a folder; log.csv is a file", ("log.csv", "--task", "parity")),
    ],
)
def test_stumbles_are_answered_in_one_line(files, monkeypatch, words, arguments):
    monkeypatch.chdir(files)
    result = invoke("train", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_longer_sequences_are_judged_and_a_reset_is_hinted_at(files, monkeypatch):
    monkeypatch.chdir(files)
    columns = ("--data", "log.csv", "--text-column", "events", "--label-column", "light", *TINY)
    assert "longer sequences were not judged" in invoke("train", "plain", *columns).output
    orthogonal = invoke("train", "run", *columns, "--held-out-longest", "0.1").output
    assert "validation (" in orthogonal
    assert "longest (12 to 12 tokens)" in orthogonal
    assert "orthogonal can be undone, so no token can reset the state" in orthogonal
    assert "`transductor fit " in orthogonal
    stochastic = invoke("train", "other", *columns, "--held-out-longest", "0.1", "--family", "dense").output
    assert "hint: the model does not generalise" in stochastic


def test_the_advice_learns_the_reset(files, monkeypatch):
    monkeypatch.chdir(files)
    advice = ("--model", "readout", "--family", "stochastic", "--annealing-start", 1, "--annealing-end", 0.05)
    columns = ("--data", "log.csv", "--text-column", "events", "--label-column", "light")
    sizes = ("--state-dim", "4", "--steps", "250", "--learning-rate", "0.05")
    result = invoke("train", "run", *columns, *advice, *sizes, "--held-out-longest", 0.1)
    assert "longest (12 to 12 tokens): 100.00%" in result.output, result.output
    assert "hint" not in result.output


def test_a_task_is_judged_on_longer_sequences(tmp_path):
    output = invoke("train", tmp_path / "run", "--task", "parity", "--length", 8, *TINY).output
    assert "8 tokens: " in output
    assert "32 tokens: " in output
