"""predict: lines are answered as they arrive, whatever they hold and however long they are."""

from __future__ import annotations

import subprocess

import pytest
import torch
from typer.testing import CliRunner

from tests import forks
from transductor import BackboneConfig, RationalHead, RationalTransductor, save
from transductor.cli import app
from transductor.cli.models import model_folder, write_data
from transductor.model import LSTM, FullAttention, LearnedPositions, NoAttention, RationalReadout, SlidingWindow
from transductor.training import FileData, Vocabulary
from transductor.transitions import OrthogonalTransitions

VOCABULARY = Vocabulary(("<start>", "<end>", "<unknown>", "a", "b"), ("New York", "Rome", "é"))


def invoke(*arguments, given=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=given, env={"COLUMNS": "200"})


def backbone(attention=None, **options):
    sizes = {"vocab_size": 5, "output_size": 3, "width": 8, "layers": 1, "attention_heads": 2}
    return BackboneConfig(**sizes, attention=attention or FullAttention(), **options)


def head():
    return RationalHead(OrthogonalTransitions(vocab_size=5, state_dim=4))


MODELS = {
    "readout": lambda: RationalReadout(head(), 3),
    "none": lambda: RationalTransductor(head(), backbone(NoAttention())),
    "window": lambda: RationalTransductor(head(), backbone(SlidingWindow(5))),
    "full": lambda: RationalTransductor(head(), backbone()),
    "lstm": lambda: LSTM(vocab_size=5, output_size=3, width=8),
    "learned": lambda: RationalTransductor(head(), backbone(positions=LearnedPositions(1500))),
}


@pytest.fixture
def run(tmp_path):
    """Return a function that saves an untrained model as `train` does, and returns it and the folder of its run."""

    def saved(name="readout", goal="recognition", **options):
        torch.manual_seed(3)
        model = MODELS[name]().eval()
        save(model, tmp_path / "run" / "model")
        write_data(FileData(goal, "x.txt", vocabulary=VOCABULARY, **options), tmp_path / "run" / "model")
        return model, tmp_path / "run"

    return saved


def expected(model, words, goal):
    tokens = torch.tensor([[0, *(VOCABULARY.token_ids(words))]])
    with torch.no_grad():
        best = model(tokens)[0].argmax(-1).tolist()
    names = [VOCABULARY.classes[each] for each in best]
    return " ".join(names[1:]) if goal == "tagging" else names[-1]


@pytest.mark.parametrize("goal", ["recognition", "tagging"])
@pytest.mark.parametrize("name", ["readout", "none", "window", "full", "lstm"])
def test_short_and_long_lines_are_answered_as_by_the_model(run, name, goal):
    model, folder = run(name, goal)
    lines = [["a", "b"], [], ["a"] * 3, ["a", "b", "b"] * 1500, ["b"]]
    result = invoke("predict", folder, "--batch-size", 2, given="\n".join(map(" ".join, lines)))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [expected(model, words, goal) for words in lines]


def test_two_million_tokens_in_one_line(run):
    letters = "ab" * 1_000_000
    model, folder = run(split="characters")
    result = invoke("predict", folder, given=letters + "\n")
    assert result.exit_code == 0, result.output
    tokens = torch.tensor([VOCABULARY.token_ids(letters)])
    with torch.no_grad():
        states = model.advance(torch.tensor([[0]]), model.start(1))[1]
        last = model.advance(tokens, states)[0][0, -1]
    assert result.stdout == VOCABULARY.classes[int(last.argmax())] + "\n"


def test_two_million_tokens_and_full_attention(run):
    _, folder = run("full", split="characters")
    result = invoke("predict", folder, given="ab\n" + "ab" * 1_000_000)
    assert result.exit_code == 2
    assert "line 2: 2,000,000 tokens are too many for a model with full attention" in result.stderr
    assert "GiB" in result.stderr
    assert len(result.stdout.splitlines()) == 1
    _, folder = run("learned")
    result = invoke("predict", folder, given="a " * 2000)
    assert result.exit_code == 2
    assert "1500" in result.stderr


@pytest.mark.parametrize("name", ["window", "full"])
def test_long_sequences_are_judged_in_pieces(run, tmp_path, name):
    _, folder = run(name, "tagging")
    lines = [["a", "b", "b"] * 1500, ["b"]]
    (tmp_path / "x.txt").write_text("\n".join(map(" ".join, lines)))
    answers = invoke("predict", folder, given=(tmp_path / "x.txt").read_text()).stdout
    (tmp_path / "y.txt").write_text(answers.replace("New York", "Rome"))
    judged = invoke("evaluate", folder, "--data", tmp_path / "x.txt", "--labels", tmp_path / "y.txt").stdout
    right = answers.replace("New York", "wrong").split()
    share = sum(each != "wrong" for each in right) / len(right)
    assert judged.startswith(f"{share:.2%} of 4,501 labels right")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 16 bytes."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
)
def test_too_little_memory_is_said_in_one_line(run, monkeypatch, error):
    _, folder = run()

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(RationalReadout, "forward", refuse)
    result = invoke("predict", folder, given="a\n")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is not enough memory")
    assert result.stderr.count("\n") == 1
    monkeypatch.setattr(RationalReadout, "forward", lambda *_, **__: 1 / 0)
    assert isinstance(invoke("predict", folder, given="a\n").exception, ZeroDivisionError)  # a mistake of ours


def test_unknown_words_are_named_once_and_counted(run):
    _, folder = run()
    given = "\ufeffa z\r\nz b q\r\n" + " ".join(f"w{number}" for number in range(30)) + "\n<end>"
    result = invoke("predict", folder, given=given)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    assert result.stderr.count("'z' did not occur") == 1
    assert "line 1: 'z'" in result.stderr
    assert "further unknown words are counted" in result.stderr
    assert "34 of 36 tokens (33 different words) did not occur in training" in result.stderr
    assert invoke("predict", folder, given="a b\n").stderr == ""


def test_strict_refuses_unknown_words_and_answers_what_came_before(run):
    _, folder = run()
    result = invoke("predict", folder, "--strict", given="a\nb\na z\nb\n")
    assert result.exit_code == 2
    assert result.stderr.strip() == "error: line 3: 'z' did not occur in training, which had a, b, …"
    assert len(result.stdout.splitlines()) == 2
    bad = invoke("predict", folder, given=b"a\n\xff\n")
    assert bad.exit_code == 2
    assert "line 2: not UTF-8" in bad.stderr


def test_nothing_and_a_file_for_the_answers(run, tmp_path):
    model, folder = run()
    assert invoke("predict", folder, given="").stdout == ""
    result = invoke("predict", folder / "model", "-o", tmp_path / "answers.txt", given="a b")
    assert result.stdout == ""
    assert (tmp_path / "answers.txt").read_text(encoding="utf-8") == expected(model, ["a", "b"], "recognition") + "\n"


def piped(folder):
    command = [*forks.python(), "-m", "transductor", "predict", str(folder)]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=forks.environment(PYTHONIOENCODING="utf-8"), **streams)


def test_a_line_is_answered_before_the_next_one_comes(run):
    model, folder = run()
    with piped(folder) as pipe:
        for words in (["a"], [], ["b", "a"]):
            pipe.stdin.write((" ".join(words) + "\n").encode())
            pipe.stdin.flush()
            assert pipe.stdout.readline().decode() == expected(model, words, "recognition") + "\n"
        pipe.stdin.close()
        assert pipe.wait(60) == 0


def test_the_reader_of_the_answers_may_end_first(run):
    _, folder = run()
    with piped(folder) as pipe:
        pipe.stdin.write(b"a\n")
        pipe.stdin.flush()
        pipe.stdout.readline()
        pipe.stdout.close()
        pipe.stdin.write(b"a\n" * 50_000)
        pipe.stdin.close()
        assert pipe.wait(60) == 1
        assert pipe.stderr.read() == b""


def test_the_folder_of_a_run_means_its_model(run, tmp_path):
    _, folder = run()
    assert model_folder(folder) == model_folder(folder / "model") == folder / "model"
    assert model_folder(tmp_path / "nowhere") == tmp_path / "nowhere"
    assert invoke("info", folder).exit_code == 0
    for wrong in (tmp_path / "nowhere", tmp_path):
        result = invoke("predict", wrong, given="a\n")
        assert result.exit_code == 2
        assert str(wrong) in result.stderr
    (folder / "model" / "data.json").write_text("{}")
    assert "does not describe data" in invoke("predict", folder, given="a\n").stderr
    save(head(), tmp_path / "head")
    assert "holds a head" in invoke("predict", tmp_path / "head", given="a\n").stderr


@pytest.mark.parametrize("command", ["predict", "evaluate", "train", "demo", "reproduce", "bench"])
def test_a_device_that_is_not_there_is_refused_in_one_line(run, tmp_path, command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def no_cuda(*_, device=None, **__):
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch, "empty", no_cuda)
    monkeypatch.chdir(tmp_path)
    arguments = {
        "predict": ("predict", "run"),
        "evaluate": ("evaluate", "run", "--data", "x.txt"),
        "train": ("train", "other", "--task", "parity"),
        "demo": ("demo",),
        "reproduce": ("reproduce", "regular_gap"),
        "bench": ("bench", "scan"),
    }[command]
    result = invoke(*arguments, "--device", "cuda")
    assert result.exit_code == 2
    assert result.stderr == "error: --device cuda cannot be used here: Torch not compiled with CUDA enabled\n"
