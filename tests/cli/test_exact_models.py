"""``transductor compile``, ``extract``, ``harden``, ``certify``, ``look``, as a person uses them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.extraction.near_machines import clock, noisy_readout
from transductor import RationalHead, load, save
from transductor.automata import machine, regex, write
from transductor.cli import app
from transductor.configuration import to_json
from transductor.model import LSTM, RationalReadout, StackedTransductor
from transductor.portraits import read_portrait
from transductor.tasks import task_named
from transductor.training import FileData, Vocabulary
from transductor.transitions import DenseTransitions

pytestmark = pytest.mark.usefixtures("coarse")

PAGE = Path(__file__).parents[2] / "docs" / "certify.md"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "160", "TERM": "dumb"})


def done(*arguments, status=0):
    shown = invoke(*arguments)
    assert shown.exit_code == status, shown.output
    assert "Traceback" not in shown.output
    return shown.output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trained(folder):
    """A counter that turns too far by a hundredth of a radian."""
    save(clock(5, 1e-2).float(), folder / "trained")
    return folder


@pytest.fixture
def untrained(folder):
    torch.manual_seed(0)
    save(RationalReadout(RationalHead(DenseTransitions(vocab_size=3, state_dim=6)), 4), folder / "untrained")
    return folder


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("parity", ()),
        ("adder:2", ()),
        ("counter:5", ("--head", "lookback", "--precision", "float64")),
        ("regex:(ab|c)*", ()),
        ("mso:exists x. a(x)", ("-a", "ab")),
        ("task:addition:2", ("--head", "lookback")),
        ("task:counting:5", ("--family", "dense")),
    ],
)
def test_what_is_compiled_is_proved(folder, source, options):
    shown = done("compile", source, "model", *options)
    assert "exact at every length" in shown
    assert "written: model" in shown
    assert not any(parameter.requires_grad for parameter in load("model").parameters())
    alphabet = options if options[:1] == ("-a",) else ()
    shown = done("certify", "model", "--against", source, *alphabet)
    assert shown.startswith("proved: after every word")
    assert "assumes:" in shown


def test_of_a_head_alone_nothing_is_called_proved(folder):
    done("compile", "adder:3", "head", "--form", "head")
    shown = done("certify", "head", "--against", "adder:3", status=4)
    assert shown.startswith("separated: after every word token and state of the head determine the machine's label")
    done("compile", "counter:3", "third", "--form", "head")
    assert done("certify", "third", "--against", "counter:5", status=5).startswith("confused: after")


def test_letters_are_matched_by_name(folder):
    done("compile", "regex:(a|b)*b", "model", "--alphabet", "ba")
    assert "refuted" in done("certify", "model", "--against", "regex:(a|b)*a", "--alphabet", "ab", status=1)
    done("certify", "model", "--against", "regex:(a|b)*b", "--alphabet", "ab", "-o", "proof.json")
    other = done("certify", "model", "--against", "regex:(a|c)*c", "--alphabet", "ac", status=2)
    assert "it has 'a', 'c', and the model 'b', 'a'" in " ".join(other.split())
    yes = done("certify", "--check", "proof.json", "--model", "model", "--against", "regex:(a|b)*b")
    assert "it is about model, it is about regex:(a|b)*b" in yes
    no = done("certify", "--check", "proof.json", "--model", "model", "--against", "regex:(a|b)*a", status=2)
    assert "not about this specification: after" in " ".join(no.split())
    assert "give --against" in done("certify", "--check", "proof.json", "--model", "model")
    done("compile", "counter:2", "numbers", "--alphabet", "01")
    save(load("numbers"), "unnamed")
    assert "by name" in done("certify", "unnamed", "--against", "regex:(0|1)*1(0|1)*|a", status=2)
    done("certify", "unnamed", "--against", "counter:2")
    done("certify", "model", "--against", "regex:(a|b)*b", "--letters", "ba", status=2)
    done("certify", "unnamed", "--against", "regex:(a|ba*b)*ba*", "--letters", "ab")


def test_what_is_proved_is_written_for_rocq(trained):
    done("harden", "trained", "hardened")
    assert "written: proof.v" in done("certify", "hardened", "--against", "counter:5", "--rocq", "proof.v")
    digest = json.loads((trained / "hardened" / "config.json").read_text())["sha256"]
    assert digest in (trained / "proof.v").read_text()
    done("compile", "parity", "stream")
    assert "residual stream" in done("certify", "stream", "--against", "parity", "--rocq", "other.v", status=2)
    assert not (trained / "other.v").exists()


def test_tokens_are_told(folder):
    assert "tokens: 0 = a, 1 = b" in done("compile", "regex:(ab)*", "model")
    words = torch.tensor([[0, 1, 0, 1, 1]])
    assert load("model")(words).argmax(-1).tolist() == [[0, 1, 0, 1, 0]]


def test_a_file_is_compiled_and_certified(folder):
    for suffix in ("json", "dot", "jff"):
        write(regex("a*b"), folder / f"machine.{suffix}")
        done("compile", f"machine.{suffix}", f"model_{suffix}")
        assert "proved" in done("certify", f"model_{suffix}", "--against", "regex:a*b")


def test_a_series_is_compiled_as_values(folder):
    assert "its states round" in done("compile", "base_value:2", "value")
    assert done("certify", "value", "--against", "base_value:2", status=3).startswith("holds up to 24")
    done("compile", "counter:5", "residue", "--as", "series")
    assert load("residue").readout.out_features == 1
    assert "the value of the readout is the automaton's" in done("certify", "residue", "--against", "counter:5")
    assert "is no finite machine with labels" in done("compile", "base_value:2", "no", "--as", "labels", status=2)
    assert not (folder / "no").exists()


def test_other_forms(folder):
    assert "level(s), exact" in done("compile", "regex:a*b", "cascade", "--form", "cascade")
    assert isinstance(load("cascade"), StackedTransductor)
    assert "got StackedTransductor" in done("certify", "cascade", "--against", "regex:a*b", status=2)
    done("compile", "parity", "start", "--trainable")
    assert all(parameter.requires_grad for parameter in load("start").parameters())
    assert "its states round" in done("compile", "parity", "turns", "--family", "orthogonal")
    bounded = done("certify", "turns", "--against", "parity", "--horizon", "100", status=4)
    assert bounded.startswith("separated up to 100")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compile", "nosuch", "x"), "there is no file 'nosuch'"),
        (("compile", "regex:(", "x"), "error:"),
        (("compile", "parity", "x", "--family", "nosuch"), "family must be one of"),
        (("compile", "counter:5", "x", "--family", "diagonal"), "'permutation' and 'dense' can"),
        (("compile", "parity", "x", "--form", "cloud"), "--form"),
        (("compile", "parity", "x", "--as", "music"), "--as"),
        (("compile", "parity", "x", "--precision", "float8"), "--precision"),
        (("compile", "parity", "x", "--form", "cascade", "--trainable"), "--form cascade takes no"),
        (("compile", "base_value:2", "x", "--form", "cascade"), "machine must be"),
        (("compile", "task:recall", "x"), "has no finite machine"),
        (("compile", "task:nosuch", "x"), "name must begin with"),
        (("compile", "mso:exists x. a(x)", "x"), "alphabet must be given"),
        (("extract", "nowhere", "x.json"), "nowhere"),
        (("harden", "nowhere", "x"), "nowhere"),
        (("look", "nowhere"), "nowhere"),
        (("certify", "nowhere", "--against", "parity"), "nowhere"),
        (("certify",), "a model and --against are needed"),
        (("certify", "--check", "nowhere.json"), "cannot be read"),
        (("certify", "--check", "nowhere.json", "--against", "parity"), "cannot be read"),
        (("certify", "--check", "nowhere.json", "--domain", "parity"), "--check takes the question"),
        (("certify", "a", "--model", "b", "--check", "c"), "give it once"),
    ],
)
def test_wrong_inputs_are_one_line_and_write_nothing(folder, arguments, words):
    shown = done(*arguments, status=2)
    assert words in shown
    assert shown.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_wrong_inputs_for_a_model(trained):
    for arguments, words in (
        (("extract", "trained", "machine.exe"), "must end in one of"),
        (("extract", "trained", "machine.fst"), "must end in one of"),
        (("extract", "trained", "machine.json", "--label", "7"), "--label must be one of [0, 1, 2, 3, 4]"),
        (("extract", "trained", "machine.json", "--max-states", "2"), "more than max_states = 2"),
        (("extract", "trained", "machine.json", "--words", "nowhere.txt"), "nowhere.txt"),
        (("extract", "trained", "machine.json", "--words", "a", "--task", "b"), "one of --words and --task"),
        (("harden", "trained", "trained"), "another folder"),
        (("certify", "trained", "--against", "adder:2"), "the letters of the model, by name"),
        (("certify", "trained", "--against", "counter:7"), "labels in [0, 5)"),
        (("certify", "trained", "--against", "base_value:2"), "one output"),
        (("look", "trained", "-o", "figure.txt"), ".png, .svg or .pdf"),
        (("look", "trained", "--against", "base_value:2"), "no finite machine with labels"),
    ):
        assert words in done(*arguments, status=2), arguments
    assert [path.name for path in trained.iterdir()] == ["trained"]


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "no sequences"), ("0 1\n0 x\n", "words.txt:2: 'x'"), ("\n\n", "are empty"), ("0 7\n", "which has 0, 1")],
)
def test_a_file_of_words_is_read_with_care(trained, content, words):
    (trained / "words.txt").write_text(content)
    shown = done("extract", "trained", "machine.json", "--words", "words.txt", status=2)
    assert words in shown
    assert not (trained / "machine.json").exists()


def test_the_machine_comes_back(trained):
    shown = done("extract", "trained", "machine.json")
    for words in ("5 states, 2 letters", "spread", "separation", "100.00% of the labels stay", "written: machine.json"):
        assert words in shown
    assert "equal (proved" in done("automaton", "equivalent", "machine.json", "counter:5")
    done("compile", "machine.json", "again")
    assert "proved" in done("certify", "again", "--against", "machine.json")


def test_the_machine_in_other_formats(trained):
    done("extract", "trained", "zero.jff", "--label", "0")
    shown = done("automaton", "equivalent", "zero.jff", "regex:0*(10*10*10*10*10*)*")
    assert "equal" in shown
    assert "token t is the letter t + 1" in done("extract", "trained", "machine.att")
    done("harden", "trained", "hardened")
    assert "proved" in done(
        "certify", "hardened", "--against", "machine.att", "--weights", "rational", "--letters", "1 2"
    )


def test_a_whole_transductor_and_a_head_come_back(folder):
    done("compile", "task:addition:2", "model", "--head", "lookback")
    shown = done("extract", "model", "sums.json")
    assert "2 states" in shown  # two carries
    assert "100.00% of fresh words' labels agree" in shown
    assert "proved" in done("certify", "model", "--against", "sums.json")
    done("compile", "parity", "head", "--form", "head")
    assert "the numbers of the states" in done("extract", "head", "states.json")


def test_asking_alone(trained):
    shown = done("extract", "trained", "asked.json", "--ask")
    assert "nothing is known beyond" in shown
    assert "equal" in done("automaton", "equivalent", "asked.json", "counter:5")
    save(LSTM(vocab_size=2, output_size=1, width=4), trained / "lstm")
    assert "1 states" in done("extract", "lstm", "lstm.json", "--ask")
    done("compile", "parity", "head", "--form", "head")
    assert "needs a model that answers" in done("extract", "head", "x.json", "--ask", status=2)


def test_a_trained_head_is_refuted_and_its_hardened_one_proved(trained):
    shown = done("certify", "trained", "--against", "task:counting:5", "-o", "trained.json", status=1)
    assert shown.startswith("refuted: after")
    word = re.search(r"^word: +\(1\)\^(\d+)$", shown, re.MULTILINE)
    assert int(word[1]) == 63
    assert re.search(r"no word of at most \d{2} letters is wrong", shown)
    assert re.search(r"^margin: +[\d.]+$", shown, re.MULTILINE)
    assert "100.00% of the labels" in done("harden", "trained", "hardened")
    shown = done("certify", "hardened", "--against", "task:counting:5", "-o", "hardened.json")
    assert shown.startswith("proved: after every word")
    million = torch.ones(1, 10**6, dtype=torch.long)
    assert torch.equal(load("hardened")(million).argmax(-1), task_named("counting:5").truth(million))
    # Certificates: good ones, of the other model, altered.
    assert "follows from its numbers, it is about hardened" in done(
        "certify", "--check", "hardened.json", "--model", "hardened"
    )
    assert "proved" in done("certify", "--check", "hardened.json")
    assert "refuted" in done("certify", "trained", "--check", "trained.json", status=1)
    for certificate, model in (("hardened", "trained"), ("trained", "hardened")):
        shown = done("certify", "--check", f"{certificate}.json", "--model", model, status=2)
        assert "not about this model" in shown
    plain = json.loads((trained / "trained.json").read_text())
    (trained / "trained.json").write_text(json.dumps(plain | {"holds_up_to": 10**6}))
    assert "was altered" in done("certify", "--check", "trained.json", status=2)


def test_a_horizon_that_is_short_holds(trained):
    shown = done("certify", "trained", "--against", "counter:5", "--horizon", "30", status=3)
    assert shown.startswith("holds up to 30: after every word of at most 30 letters")


def test_a_wrong_machine_is_refuted_with_its_word(folder):
    done("compile", "regex:(ab)*", "model")
    shown = done("certify", "model", "--against", "regex:(a|b)*", status=1)
    assert "word:     a" in shown
    assert "proved" in done("certify", "model", "--against", "regex:(ab)*", "--domain", "regex:(ab)*a?")
    shown = done("certify", "model", "--against", "regex:(ab)*", "--domain", "regex:ab", status=2)
    assert "domain" in shown


def test_what_is_near_no_machine_is_refused_and_nothing_is_written(untrained):
    for arguments in (("harden", "untrained", "hardened"), ("extract", "untrained", "machine.json")):
        assert "near no finite machine" in done(*arguments, status=2)
    assert [path.name for path in untrained.iterdir()] == ["untrained"]
    shown = done("look", "untrained", "-o", "figure.png")
    assert "near no finite machine" in shown
    assert (untrained / "figure.png").exists()


def test_words_of_a_task_or_a_file_say_what_can_occur(folder):
    task = task_named("arithmetic:3")
    save(noisy_readout(task.automaton(), 3), folder / "trained")
    shown = done("extract", "trained", "machine.json", "--task", "arithmetic:3", "--length", "41")
    assert "stands for everything the words never showed" in shown
    words = task.sample(600, 41, torch.Generator().manual_seed(3))
    (folder / "words.txt").write_text("\n".join(" ".join(map(str, row)) for row in words.tolist()))
    done("harden", "trained", "hardened", "--words", "words.txt")
    assert "proved" in done("certify", "hardened", "--against", "task:arithmetic:3")
    assert "proved" in done("certify", "hardened", "--against", "machine.json")


def test_letters_have_the_names_of_the_data(trained):
    data = FileData("recognition", "words.txt", vocabulary=Vocabulary(("stay", "go"), tuple("01234")))
    (trained / "trained" / "data.json").write_text(to_json(data))
    done("extract", "trained", "machine.json")
    assert "stay → 0  go → 1" in done("automaton", "show", "machine.json")
    done("harden", "trained", "hardened")
    assert (trained / "hardened" / "data.json").read_text() == to_json(data)
    for content in ("[", to_json(FileData("recognition", "x", vocabulary=Vocabulary(("a",))))):
        (trained / "trained" / "data.json").write_text(content)
        assert "does not describe data" in done("extract", "trained", "machine.json", status=2)


def test_look_draws_and_tells(trained):
    data = FileData("recognition", "words.txt", vocabulary=Vocabulary(("stay", "go"), tuple("01234")))
    (trained / "trained" / "data.json").write_text(to_json(data))
    shown = done("look", "trained", "--against", "task:counting:5", "-o", "figures/trained.png", "--data", "seen.json")
    assert "5 states; what is one state is within" in shown
    assert "the learned machine is the target" in shown
    assert (trained / "figures" / "trained.png").read_bytes().startswith(b"\x89PNG")
    seen = read_portrait("seen.json")
    assert seen.target.states == 5
    assert seen.letters == ["stay", "go"]
    assert "other than the target after go go go go go" in done(
        "look", "trained", "--against", "counter:6", "-o", "a.svg"
    )


def test_the_commands_of_the_page_run(trained):
    """In the order of the page, on a model like its own; a comment says how a command ends if not well."""
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    seen = 0
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        expected = re.search(r"exit status (\d)", line)
        if words[:1] == ["transductor"]:
            done(*words[1:], status=int(expected[1]) if expected else 0)
            seen += 1
        elif words:
            subprocess.run(words, check=True)
    assert seen >= 8


def test_help_names_them_all():
    shown = invoke("--help").output
    for command in ("compile", "extract", "harden", "certify", "look"):
        assert command in shown
        assert "Usage" in done(command, "--help")
    assert machine("parity").name in done("automaton", "list")
