"""Data in files: every goal, both formats, and every way a file can be wrong."""

from __future__ import annotations

import json
import math

import pytest
import torch

from transductor.configuration import from_json, to_json
from transductor.model import LSTM
from transductor.training import Curriculum, DataError, FileData, Trainer, TrainingSettings, score

SEQUENCES = ["a b a", "", "b", "a a c"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.txt").write_text("\n".join(SEQUENCES) + "\n")
    (tmp_path / "classes.txt").write_text("odd\neven\neven\nodd\n")
    (tmp_path / "tags.txt").write_text("1 1 2\n\n0\n1 2 2\n")
    (tmp_path / "numbers.txt").write_text("2\n0\n0\n2.5\n")
    return tmp_path


def data(folder, goal, labels=None, **options):
    return FileData(goal, str(folder / "x.txt"), None if labels is None else str(folder / labels), **options)


def test_recognition_has_one_label_at_the_end(folder):
    named, examples = data(folder, "recognition", "classes.txt").read()
    assert named.vocabulary.tokens == ("<start>", "<end>", "<unknown>", "a", "b", "c")
    assert named.vocabulary.classes == ("even", "odd")
    assert (named.vocab_size, named.output_size) == (6, 2)
    assert [each.tolist() for each in examples.tokens] == [[0, 3, 4, 3], [0], [0, 4], [0, 3, 3, 5]]
    assert [each.tolist() for each in examples.labels] == [[-100, -100, -100, 1], [0], [-100, 0], [-100, -100, -100, 1]]


def test_tagging_has_one_label_per_token(folder):
    _, examples = data(folder, "tagging", "tags.txt").read()
    assert [each.tolist() for each in examples.labels] == [[-100, 1, 1, 2], [-100], [-100, 0], [-100, 1, 2, 2]]


def test_next_tokens_are_the_sequence_itself_and_its_end(folder):
    named, examples = data(folder, "next_token").read()
    assert named.output_size == named.vocab_size
    assert [each.tolist() for each in examples.labels] == [[3, 4, 3, 1], [1], [4, 1], [3, 3, 5, 1]]


def test_regression_has_a_number_at_the_end(folder):
    named, examples = data(folder, "regression", "numbers.txt").read()
    assert named.output_size == 1
    assert examples.labels[3][-1] == 2.5
    assert examples.labels[3][:-1].isnan().all()


def test_padding_carries_no_label(folder):
    _, examples = data(folder, "tagging", "tags.txt").read()
    tokens, labels, lengths = examples.padded([0, 1])
    assert tokens.shape == labels.shape == (2, 4)
    assert lengths.tolist() == [4, 1]
    assert (labels[1] == -100).all()


def test_json_lines(folder):
    rows = [
        {"tokens": line.split(), "label": index % 2, "labels": ["t"] * len(line.split())}
        for index, line in enumerate(SEQUENCES)
    ]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    named, examples = FileData("recognition", str(path)).read()
    assert named.vocabulary.classes == ("0", "1")
    assert [int(each[-1]) for each in examples.labels] == [0, 1, 0, 1]
    assert len(FileData("tagging", str(path)).read()[1]) == len(FileData("next_token", str(path)).read()[1]) == 4


def test_unknown_tokens_are_read_as_unknown_and_unknown_labels_refused(folder):
    named, _ = data(folder, "recognition", "classes.txt").read()
    assert named.encoded(["a", "z"], None)[0].tolist() == [0, 3, 2]
    with pytest.raises(DataError, match="'maybe' did not occur in training, which had even, odd"):
        named.encoded(["a"], "maybe")


def test_a_split_is_disjoint_whole_and_repeatable(tmp_path):
    (tmp_path / "x.txt").write_text("\n".join(f"t{number}" for number in range(50)))
    parts = {
        part: FileData("next_token", str(tmp_path / "x.txt"), held_out=0.2, part=part).read()[0].read()[1]
        for part in ("training", "validation")
    }
    assert (len(parts["training"]), len(parts["validation"])) == (40, 10)
    named, training = FileData("next_token", str(tmp_path / "x.txt"), held_out=0.2).read()
    assert named.vocab_size == 43  # the vocabulary knows nothing of what was held out
    assert [each.tolist() for each in training.tokens] == [each.tolist() for each in parts["training"].tokens]


def test_changed_data_is_noticed(folder):
    named, _ = data(folder, "recognition", "classes.txt").read()
    assert from_json(to_json(named)) == named
    (folder / "classes.txt").write_text("odd\nodd\neven\nodd\n")
    with pytest.raises(DataError, match="not what this run was started with"):
        named.read()


def test_training_on_files_resumes_bit_for_bit(folder, tmp_path):
    def trainer():
        torch.manual_seed(0)
        named, _ = data(folder, "tagging", "tags.txt").read()
        model = LSTM(vocab_size=named.vocab_size, output_size=named.output_size, width=8)
        return Trainer(model, named, TrainingSettings(steps=9, batch_size=3))

    whole, part = trainer(), trainer()
    whole.run()
    for _ in range(4):
        part.advance()
    part.save(tmp_path / "run")
    resumed = Trainer.resumed(tmp_path / "run")
    resumed.run()
    assert resumed.points == whole.points
    assert all(torch.equal(a, b) for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True))
    seen = []
    for step in range(4):  # twelve draws are three epochs of four sequences
        whole.step = step
        seen += [len(row[row != 0]) for row in whole._batch()[0]]
    assert sorted(seen) == sorted(3 * [3, 0, 1, 3])


def test_a_curriculum_draws_short_sequences_first_and_resumes(folder, tmp_path):
    lines = ["a " * length for length in (2, 3, 5, 9) for _ in range(4)]
    (folder / "grow.txt").write_text("\n".join(lines) + "\n")

    def trainer(threshold):
        torch.manual_seed(0)
        named, _ = FileData("next_token", str(folder / "grow.txt")).read()
        model = LSTM(vocab_size=named.vocab_size, output_size=named.output_size, width=8)
        curriculum = Curriculum(1, factor=2.0, threshold=threshold)
        settings = TrainingSettings(steps=30, batch_size=8, learning_rate=0.1, curriculum=curriculum)
        return Trainer(model, named, settings)

    stuck = trainer(1.0)
    assert stuck._batch()[2].tolist() == [3] * 8  # the shortest, though the curriculum begins with less
    growing, part = trainer(0.2), trainer(0.2)
    reached = []
    while not growing.finished:
        reached.append(growing.length)
        assert int(growing._batch()[2].max()) - 1 <= max(2, growing.length)
        growing.advance()
    assert reached == sorted(reached)
    assert (reached[0], reached[-1]) == (1, 9)  # up to the longest of the file
    for _ in range(9):
        part.advance()
    part.save(tmp_path / "run")
    assert Trainer.resumed(tmp_path / "run").run() == growing.points


def test_only_the_last_label_may_count(folder):
    named, _ = data(folder, "tagging", "tags.txt").read()
    model = LSTM(vocab_size=named.vocab_size, output_size=named.output_size, width=8)
    _, labels, lengths = Trainer(model, named, TrainingSettings(batch_size=4, labels="last"))._batch()
    assert (labels != -100).sum(1).tolist() == [int(length > 1) for length in lengths]
    assert all(row[length - 1] != -100 for row, length in zip(labels, lengths, strict=True) if length > 1)


def test_scores_of_a_known_model(folder):
    class Constant(torch.nn.Module):
        def __init__(self, output):
            super().__init__()
            self.output = torch.nn.Parameter(torch.tensor(output))

        def forward(self, tokens, lengths):
            return self.output.expand(*tokens.shape, len(self.output))

    named, examples = data(folder, "recognition", "classes.txt").read()
    result = score(Constant([0.0, 10.0]), named, examples, batch_size=3)
    assert (result.positions, result.sequences, result.count) == (0.5, 0.5, 4)
    named, examples = data(folder, "regression", "numbers.txt").read()
    result = score(Constant([1.0]), named, examples)
    assert result.loss == pytest.approx((1 + 1 + 1 + 2.25) / 4)
    assert math.isnan(result.positions)
    named, examples = data(folder, "next_token").read()
    assert score(Constant([0.0] * 6), named, examples).perplexity == pytest.approx(6)


@pytest.mark.parametrize(
    ("words", "files", "goal", "labels"),
    [
        ("cannot be read: No such file", {}, "next_token", None),
        ("holds no sequences", {"x.txt": ""}, "next_token", None),
        ("labels must name the file", {"x.txt": "a\n"}, "tagging", None),
        ("y.txt has 2 lines, .*x.txt has 1", {"x.txt": "a\n", "y.txt": "1\n1\n"}, "recognition", "y.txt"),
        ("y.txt:1: 2 labels for 1 tokens", {"x.txt": "a\n", "y.txt": "1 2\n"}, "tagging", "y.txt"),
        (
            "y.txt:1: there is no label; give one, or leave the sequence out",
            {"x.txt": "a\n", "y.txt": "\n"},
            "recognition",
            "y.txt",
        ),
        ("y.txt:1: must hold a finite number; got 'two'", {"x.txt": "a\n", "y.txt": "two\n"}, "regression", "y.txt"),
        ("finite number; got 'nan'", {"x.txt": "a\n", "y.txt": "nan\n"}, "regression", "y.txt"),
        ("x.txt:1: <end> is a reserved name", {"x.txt": "a <end>\n"}, "next_token", None),
        ("x.txt:2: not UTF-8 text: byte 0xff", {"x.txt": b"a\n\xff\xfe\n"}, "next_token", None),
        ("x.txt:1: a NUL byte: perhaps UTF-16", {"x.txt": "a b\n".encode("utf-16")}, "next_token", None),
        ("x.txt:2: a NUL byte: this is not a text file", {"x.txt": "a\nb\0\n"}, "next_token", None),
        ("x.txt:1: <start> is a reserved name", {"x.txt": "<start>\n"}, "next_token", None),
    ],
)
def test_wrong_files_are_refused_with_their_line(tmp_path, words, files, goal, labels):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=words):
        data(tmp_path, goal, labels).read()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("rows.jsonl:1: not JSON", "{"),
        ("rows.jsonl:1: not JSON: an object has the field 'label' twice", '{"tokens": [], "label": 1, "label": 2}'),
        ('an object with "tokens"', "[1]"),
        ('"tokens" must be a list or a text', '{"tokens": 3, "label": 1}'),
        ('"tokens" must hold texts or numbers; got None', '{"tokens": [null], "label": 1}'),
        ("rows.jsonl:1: there is no label; give one", '{"tokens": ["a"], "label": null}'),
        ("label_column must name one of the fields 'tokens', 'truth' of this line", '{"tokens": ["a"], "truth": 1}'),
        ("text_column must name one of the fields 'letters', 'label'", '{"letters": ["a"], "label": 1}'),
        ("must hold one label; got 2.  The goal tagging .* 1 here", '{"tokens": ["a"], "label": [1, 2]}'),
    ],
)
def test_wrong_json_lines_are_refused(tmp_path, words, line):
    (tmp_path / "rows.jsonl").write_text(line)
    with pytest.raises(DataError, match=words):
        FileData("recognition", str(tmp_path / "rows.jsonl")).read()


def test_bad_arguments_are_refused_by_name(folder):
    for words, act in (
        ("goal must be one of 'recognition'", lambda: data(folder, "translation")),
        ("held_out must lie in", lambda: data(folder, "next_token", held_out=1.0)),
        ("part must be one of", lambda: data(folder, "next_token", part="test")),
        ("read\\(\\) builds it", lambda: data(folder, "next_token").vocab_size),
    ):
        with pytest.raises(ValueError, match=words):
            act()
