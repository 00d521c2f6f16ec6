"""From a file to a proof, in the file's own words: extract, harden, look and certify on models trained from files."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from transductor.automata import MooreMachine, TokenAlphabet, labels_of_series, read, regex
from transductor.certification import checker
from transductor.cli.app import app
from transductor.compilation import compile_model
from transductor.configuration import to_json
from transductor.heads import RationalHead
from transductor.model import RationalReadout, load, save
from transductor.portraits import read_portrait
from transductor.training import FileData, Trainer, TrainingSettings, Vocabulary
from transductor.transitions import DenseTransitions

pytestmark = pytest.mark.usefixtures("coarse")

LANGUAGE = "(ab)*"


def done(*arguments, status=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == status, result.output + repr(result.exception)
    return result.output


def labelled_words(count, seed=0):
    """Words of (ab)*, words that just miss it, and random ones, with yes and no."""
    rng, words = random.Random(seed), []
    for number in range(count):
        word = ["a", "b"] * rng.randrange(8)
        if number % 2:
            place = rng.randrange(len(word) + 1)
            word[place : place + rng.randrange(2)] = rng.choice("ab")
        if number % 4 == 3:
            word = [rng.choice("ab") for _ in range(rng.randrange(16))]
        words.append(word)
    return words, ["yes" if re.fullmatch(LANGUAGE, "".join(word)) else "no" for word in words]


@pytest.fixture(scope="module")
def from_file(tmp_path_factory):
    """A readout with spare dimensions, trained on a file and saved as ``transductor train`` does."""
    folder = tmp_path_factory.mktemp("from_file")
    words, labels = labelled_words(600)
    (folder / "words.txt").write_text("".join(" ".join(word) + "\n" for word in words))
    (folder / "labels.txt").write_text("".join(label + "\n" for label in labels))
    data = FileData("recognition", str(folder / "words.txt"), str(folder / "labels.txt")).read()[0]
    torch.manual_seed(0)
    head = RationalHead(DenseTransitions(vocab_size=data.vocab_size, state_dim=8))
    trainer = Trainer(
        RationalReadout(head, 2), data, TrainingSettings(steps=350, batch_size=32, learning_rate=1e-2, seed=0)
    )
    trainer.run()
    save(trainer.model, folder / "run" / "model")
    (folder / "run" / "model" / "data.json").write_text(to_json(data))
    return folder


@pytest.fixture
def folder(from_file, tmp_path, monkeypatch):
    """A copy to write into, as the current directory."""
    shutil.copytree(from_file, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def named_model(folder, machine, names, classes, *, goal="recognition"):
    """A compiled model that says of itself that it was trained on a file with these names."""
    alphabet = TokenAlphabet.of_names(["<start>", "<end>", "<unknown>", *names])
    tokens = alphabet.idle(machine, before=False)
    save(compile_model(MooreMachine(tokens.transitions, tokens.outputs, tokens.start)), folder)
    data = FileData(goal, "gone.txt", vocabulary=Vocabulary(alphabet.names, tuple(classes)))
    (folder / "data.json").write_text(to_json(data))


def test_from_a_file_to_a_proof_and_to_the_checker(folder):
    shown = done("extract", "run", "-o", "machine.json")
    for words in ("3 states, 2 letters", "known from", "0: no, 1: yes"):
        assert words in shown
    assert "a → 1  b → 2" in done("automaton", "show", "machine.json")
    learned = labels_of_series(read("machine.json"))
    alphabet = TokenAlphabet.of_names(["<start>", "<end>", "<unknown>", "a", "b"])
    expected = MooreMachine.from_dfa(regex(LANGUAGE, ["a", "b"]))
    assert alphabet.lifted(learned).separating_word(alphabet.lifted(expected)) is None

    shown = done("harden", "run", "-o", "hardened")
    assert "3 states" in shown
    assert "100.00% of the labels" in shown
    # The complete table of tokens stays: <start> comes first, and what was never taught changes nothing.
    hard, data = load("hardened"), json.loads((folder / "hardened" / "data.json").read_text())
    assert hard.vocab_size == len(data["vocabulary"]["tokens"]) == 5
    plain = torch.tensor([[0, 3, 4, 3, 4]])
    idle = torch.tensor([[0, 3, 2, 1, 4, 0, 3, 4]])
    assert hard(plain).argmax(-1).tolist() == [[1, 0, 1, 0, 1]]
    assert hard(idle).argmax(-1).tolist() == [[1, 0, 0, 0, 1, 1, 0, 1]]

    shown = done(
        "certify", "hardened", "--against", f"regex:{LANGUAGE}", "-o", "certificate.json", "--tables", "tables"
    )
    assert "words are <start> and then any of a, b; other sequences are outside of the domain" in shown
    assert "proved: after every word of the domain" in shown
    content = json.loads((folder / "certificate.json").read_text())
    assert content["letters"] == ["<start>", "<end>", "<unknown>", "a", "b"]
    assert content["classes"] == ["no", "yes"]
    assert content["domain"] is not None
    arguments = ["certificate.json", "hardened", "tables/specification.json", "tables/domain.json"]
    subprocess.run([sys.executable, checker.__file__, *arguments], check=True)
    for against, status in ((f"regex:{LANGUAGE}", 0), ("regex:(ab)*a?", 2)):
        done("certify", "--check", "certificate.json", "--model", "hardened", "--against", against, status=status)
        done("certify", "--check", "certificate.json", "--against", against, status=status)
    assert "proved" in done("certify", "hardened", "--against", "machine.json")
    # Another language is refuted, by a word in the file's spelling.
    shown = done("certify", "hardened", "--against", "regex:(ab)*a?", status=1)
    assert "word:     <start> a" in shown
    assert "refuted" in done("certify", "hardened", "--against", "regex:(ab)+", status=1)  # the empty word
    assert "proved" in done("certify", "hardened", "--against", "regex:(ab)+", "--nonempty")
    assert "proved" in done("certify", "hardened", "--against", "regex:b?(ab)*", "--domain", "regex:(a.*)?")


def test_words_are_the_lines_of_the_data(folder):
    (folder / "few.txt").write_text("a b\n\na b a b\na\nb a\na a b b\n" * 60)
    (folder / "few.jsonl").write_text('{"tokens": ["a", "b"]}\n{"tokens": []}\n{"tokens": ["a", "b", "a"]}\n' * 60)
    for words in ("words.txt", "few.txt"):
        assert "3 states" in done("extract", "run", "-o", f"{words}.json", "--words", words)
    shown = done("extract", "run", "-o", "sink.json", "--words", "few.jsonl")
    assert "stands for everything the words never showed" in shown  # no b comes first, no letter twice
    (folder / "other.txt").write_text("a b\na c\n")
    shown = done("extract", "run", "-o", "other.json", "--words", "other.txt", status=2)
    assert "other.txt:2: 'c' is no letter of the model, which has a, b" in shown
    (folder / "none.txt").write_text("\n\n")
    assert "all of them are empty" in done("extract", "run", "-o", "none.json", "--words", "none.txt", status=2)


def test_the_language_of_a_class_by_its_name(folder):
    done("extract", "run", "-o", "yes.json", "--label", "yes")
    assert "equal" in done("automaton", "equivalent", "yes.json", f"regex:{LANGUAGE}")
    shown = done("extract", "run", "-o", "x.json", "--label", "maybe", status=2)
    assert "--label must be one of the classes no, yes; got 'maybe'" in shown
    assert "OUTPUT must be given once" in done("extract", "run", status=2)
    assert "OUTPUT must be given once" in done("harden", "run", "here", "-o", "there", status=2)


def test_looking_shows_the_files_own_words(folder):
    shown = done("look", "run", "--against", f"regex:{LANGUAGE}", "-o", "look.png", "--data", "look.json")
    assert "the learned machine is the target" in shown
    seen = read_portrait("look.json")
    assert seen.letters == ["a", "b"]
    assert set(seen.learned.labels) == {"no", "yes"}
    assert seen.drift.lengths[-1] == 10_000
    shown = done("look", "run", "--against", "regex:(ab)+", "-o", "look.png", "--drift", "50")
    assert "other than the target after ε" in shown


def test_letters_of_several_characters_and_classes_that_say_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine = MooreMachine.from_dfa(regex(LANGUAGE, ["a", "b"]))
    named_model(tmp_path / "door", machine, ["open", "close"], ["alarm", "quiet"])
    shown = done("certify", "door", "--against", "regex:(open close)*", status=2)
    assert "--accept must say which class means acceptance: one of alarm, quiet" in shown
    assert "proved" in done("certify", "door", "--against", "regex:(open close)*", "--accept", "quiet")
    assert "refuted" in done("certify", "door", "--against", "regex:(open close)*", "--accept", "alarm", status=1)
    assert "proved" in done("certify", "door", "--against", "regex:([open close]{2})*", "--accept", "quiet",
                            "--domain", "regex:(open close)* open?")  # fmt: skip
    shown = done("certify", "door", "--against", "regex:(open shut)*", "--accept", "quiet", status=2)
    assert "'shut' is none of the letters open, close" in shown
    shown = done("certify", "door", "--against", "regex:(open close)*", "--accept", "loud", status=2)
    assert "--accept must be one of the classes alarm, quiet; got 'loud'" in shown


def test_the_class_that_accepts_is_known_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine = MooreMachine.from_dfa(regex(LANGUAGE, ["a", "b"]))
    turned = MooreMachine(machine.transitions, 1 - machine.outputs, machine.start)
    named_model(tmp_path / "turned", turned, "ab", ["Accept", "Reject"])
    assert "proved" in done("certify", "turned", "--against", f"regex:{LANGUAGE}")
    named_model(tmp_path / "three", machine, "ab", ["a", "b", "c"])
    shown = done("certify", "three", "--against", f"regex:{LANGUAGE}", status=2)
    assert "a language tells two classes apart, and the model has 3" in shown


def test_tags_say_nothing_of_the_empty_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine = MooreMachine.from_dfa(regex("(ab)+", ["a", "b"]))
    named_model(tmp_path / "tags", machine, "ab", ["0", "1"], goal="tagging")
    assert "proved" in done("certify", "tags", "--against", f"regex:{LANGUAGE}")
    named_model(tmp_path / "whole", machine, "ab", ["0", "1"])
    assert "refuted" in done("certify", "whole", "--against", f"regex:{LANGUAGE}", status=1)
