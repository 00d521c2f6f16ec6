"""Files as strangers bring them: text, JSONL and CSV, their oddities, and the goal that the labels suggest."""

from __future__ import annotations

import csv
import json
import os

import pytest

from transductor.configuration import from_json, to_json
from transductor.training import DataError, FileData, FileFormat, guessed_goal, read_rows
from transductor.training.files import Row


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def names_and_labels(path, labels=None, **options):
    return [(row.names, row.label) for row in read_rows(path, labels, FileFormat(**options))]


ODD_LINES = {
    "a byte order mark": (b"\xef\xbb\xbfa b\nc\n", [["a", "b"], ["c"]]),
    "CRLF": (b"a b\r\nc\r\n", [["a", "b"], ["c"]]),
    "CR alone": (b"a b\rc", [["a", "b"], ["c"]]),
    "no last line end": (b"a b\nc", [["a", "b"], ["c"]]),
    "empty lines": (b"a\n\n\nb\n", [["a"], [], [], ["b"]]),
    "tabs and many blanks": (b" a \t b \n", [["a", "b"]]),
    # Only line ends separate lines: splitlines of Python would also cut here.
    "a form feed": ("a\u2028b\x0cc\n".encode(), [["a", "b", "c"]]),
    "a huge line": (b"a " * 300_000, [["a"] * 300_000]),
}


@pytest.mark.parametrize("name", ODD_LINES)
def test_odd_text(tmp_path, name):
    content, expected = ODD_LINES[name]
    assert [row.names for row in read_rows(written(tmp_path, "x.txt", content))] == expected


def test_characters_as_tokens(tmp_path):
    path = written(tmp_path, "x.txt", "0110\n\n1 0\u00a0é\n")
    assert [row.names for row in read_rows(path, form=FileFormat("characters"))] == [
        ["0", "1", "1", "0"],
        [],
        ["1", "0", "é"],
    ]
    named, _ = FileData("next_token", path, split="characters").read()
    assert named.vocabulary.letters == ("0", "1", "é")
    assert from_json(to_json(named)) == named


TABLES = {
    "plain": ("text,label\na b,yes\n,no\n", [(["a", "b"], "yes"), ([], "no")]),
    "quotes, commas and line breaks": (
        'text,label\r\n"a, ""b""","New York"\r\n"c\nd",yes\r\n',
        [(["a,", '"b"'], "New York"), (["c", "d"], "yes")],
    ),
    "empty lines and a byte order mark": (
        "\ufefftext,label\n\na,1\n\n",
        [(["a"], "1")],
    ),
    "other columns and capitals": ("Id,Label,Sequence\n7,x,a\n", [(["a"], "x")]),
    "a huge cell": (f"text,label\n{'a ' * 200_000},1\n", [(["a"] * 200_000, "1")]),
    "a missing label": ("text,label\na,\n", [(["a"], "")]),
    "no line but the header": ("text,label\n", []),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(tmp_path, name):
    content, expected = TABLES[name]
    limit = csv.field_size_limit()
    assert names_and_labels(written(tmp_path, "x.csv", content)) == expected
    assert csv.field_size_limit() == limit


def test_columns_by_name_and_tabs(tmp_path):
    path = written(tmp_path, "x.tsv", "log\tstate\nopen, close\tshut\n")
    assert names_and_labels(path, text_column="log", label_column="state") == [(["open,", "close"], "shut")]
    named, examples = FileData("recognition", path, text_column="log", label_column="state").read()
    assert named.vocabulary.classes == ("shut",)
    assert examples.lengths == (2,)
    lines = written(tmp_path, "x.jsonl", '{"log": "a b", "state": 1}\n\n{"log": ["c d"], "state": 2}\n')
    assert names_and_labels(lines, text_column="log", label_column="state") == [(["a", "b"], "1"), (["c d"], "2")]


WRONG_TABLES = {
    "x.csv:3: 1 cells, but line 1 names 2 columns": "text,label\na,1\nb\n",
    "x.csv:4: 3 cells, but line 1 names 2 columns": 'text,label\n"a\nb",1\na,1,2\n',
    "x.csv:2: there is no label; give one, or leave the sequence out": "text,label\na,\n",
    "x.csv:1: no column is called label, labels, class .* must name one of the columns 'text', 'truth'": (
        "text,truth\na,1\n"
    ),
    "x.csv:1: no column is called tokens, text, .* 'ab', '1' .the first line names the columns": "ab,1\nba,0\n",
    "'text;label' .cells end at a comma in .csv and at a tab in .tsv, not at a semicolon": "text;label\na;1\n",
    "x.csv:2: not CSV: ": 'text,label\n"a,1\n',
    "x.csv:2: a NUL byte": "text,label\na\0,1\n",
    "x.csv:2: not UTF-8": b"text,label\n\xe9,1\n",
    "x.csv holds no sequences": "text,label\n",
    "holds no sequences": "",
}


@pytest.mark.parametrize("words", WRONG_TABLES)
def test_wrong_tables_are_refused_with_their_line(tmp_path, words):
    with pytest.raises(DataError, match=words):
        FileData("recognition", written(tmp_path, "x.csv", WRONG_TABLES[words])).read()


def test_one_json_value_is_no_file_of_lines(tmp_path):
    with pytest.raises(DataError, match=r"x.json: write one object a line, and let the name end in .jsonl"):
        read_rows(written(tmp_path, "x.json", '[{"tokens": ["a"], "label": 1}]'))


def test_wrong_columns_are_refused_by_name(tmp_path):
    path = written(tmp_path, "x.csv", "text,label,text\na,1,b\n")
    for words, options in (
        ("there is no column 'log': text_column must be one of 'text', 'label', 'text'", {"text_column": "log"}),
        ("column 'text' occurs twice", {"text_column": "text"}),
        ("must be two columns; got 'label' for both", {"text_column": "label", "label_column": "label"}),
    ):
        with pytest.raises(DataError, match=words):
            FileData("recognition", path, **options).read()
    with pytest.raises(DataError, match="labels must be a column of"):
        read_rows(path, path)
    with pytest.raises(DataError, match="columns are for files that end in"):
        read_rows(written(tmp_path, "x.txt", "a\n"), form=FileFormat(text_column="text"))
    with pytest.raises(ValueError, match="split must be one of 'blanks', 'characters'; got 'commas'"):
        FileData("recognition", path, split="commas")


GUESSES = {
    "recognition": [("a b", "odd"), ("a", "even"), ("", "even")],
    "recognition of two words": [("a b c", "New York"), ("a", "Rome")],
    "recognition by small numbers": [("a b", "1"), ("a", "0")],
    "recognition of single letters": [("a", "x"), ("b", "y")],
    "tagging": [("a b", "x y"), ("", ""), ("a", "x")],
    "tagging with one wrong line": [("a b", "x y")] * 30 + [("a b c", "x y")],
    "regression": [("a b", "1.5"), ("a", "-2")],
    "regression by many numbers": [("a", str(number)) for number in range(80)],
}


@pytest.mark.parametrize("name", GUESSES)
def test_the_goal_is_guessed_from_the_labels(name):
    rows = [Row(f"x:{number}", text.split(), label) for number, (text, label) in enumerate(GUESSES[name])]
    assert guessed_goal(rows) == name.split()[0]


def test_the_goal_of_characters():
    form = FileFormat("characters")

    def guess(*pairs):
        return guessed_goal([Row("x", list(text), label) for text, label in pairs], form)

    assert guess(("011", "010"), ("1", "1"), ("", "")) == "tagging"
    assert guess(("011", "odd"), ("110", "odd"), ("101", "eve")) == "recognition"  # as long as the words, by chance
    assert guess(("011", "1"), ("1", "0")) == "recognition"


def test_guessed_data(tmp_path):
    rows = [{"tokens": ["a", "b"], "labels": ["x", "y"]}, {"tokens": [], "labels": []}]
    path = written(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    data = FileData.guessed(path, held_out=0.5)
    assert (data.goal, data.held_out) == ("tagging", 0.5)
    with pytest.raises(DataError, match=r"x\.txt has no labels: labels must name their file, or label_column must"):
        FileData.guessed(written(tmp_path, "x.txt", "a\n"))
    with pytest.raises(DataError, match=r"empty\.txt holds no sequences"):
        FileData.guessed(written(tmp_path, "empty.txt", ""))


def test_a_run_can_be_read_from_another_folder(tmp_path, monkeypatch):
    written(tmp_path, "x.txt", "a\nb\n")
    written(tmp_path, "y.txt", "1\n0\n")
    monkeypatch.chdir(tmp_path)
    named, _ = FileData("recognition", "x.txt", "y.txt").read()
    assert (named.path, named.labels) == (os.fspath(tmp_path / "x.txt"), os.fspath(tmp_path / "y.txt"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(from_json(to_json(named)).read()[1]) == 2


def test_the_longest_are_set_aside(tmp_path):
    path = written(tmp_path, "x.txt", "\n".join("a " * length for length in range(40) for _ in range(5)))
    data = FileData("next_token", path, held_out=0.1, held_out_longest=0.1)
    lengths = {}
    for part in ("training", "validation", "longest"):
        _, examples = FileData(**{**vars(data), "part": part}).read()
        lengths[part] = examples.lengths
        assert len(examples.lengths) == len(examples) > 0
    assert sorted(lengths["longest"]) == sorted([36, 37, 38, 39] * 5)
    assert max(lengths["training"] + lengths["validation"]) == 35
    assert len(lengths["validation"]) == 18
    assert sum(map(len, lengths.values())) == 200
    same = written(tmp_path, "same.txt", "a b\nb a\na\n")
    with pytest.raises(DataError, match="more than half of all have 2 tokens"):
        FileData("next_token", same, held_out_longest=0.1).read()
    with pytest.raises(ValueError, match="held_out_longest must be given with part='longest'"):
        FileData("next_token", same, part="longest")


def test_a_class_that_only_a_held_out_sequence_has(tmp_path):
    path = written(tmp_path, "x.csv", "text,label\n" + "a,yes\n" * 9 + "a a b,never trained\n")
    named, _ = FileData("recognition", path, held_out_longest=0.1).read()
    assert named.vocabulary.classes == ("never trained", "yes")
    assert named.vocabulary.letters == ("a",)
    longest, examples = FileData(
        "recognition", path, held_out_longest=0.1, part="longest", vocabulary=named.vocabulary
    ).read()
    assert examples.tokens[0].tolist() == [0, 3, 3, 2]
    assert named.vocabulary.unknown(["a", "b", "<end>"]) == ["b", "<end>"]
    assert longest.vocabulary == named.vocabulary
