"""Descriptions of data from strangers: a run opens the data it was begun with, and nothing of another file is told."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import transductor
from transductor.configuration import ConfigurationError, from_plain, to_plain
from transductor.portraits import read_portrait
from transductor.training import DataError, FileData, Vocabulary

DATA = FileData("recognition", "words.txt", vocabulary=Vocabulary(("<start>", "<end>", "<unknown>", "a"), ("0", "1")))
# Where JSON is read without the strict reader, and why.
EXCEPTIONS = {
    "json_reading.py": "the strict reader itself",
    "model/bundle.py": "reads what it has just written, so that the seal is of what a reader will see",
    "certification/checker.py": "imports nothing of ours, and has limits of its own",
    "automata/formats/dot.py": "one attribute of a file whose size is limited, answered by a FormatError",
    "integrations/huggingface/token_spelling.py": "a text that the tokenizer's library has just made",
}


def test_json_of_strangers_is_read_by_the_strict_reader():
    root = Path(transductor.__file__).parent
    names = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"json\.loads?\(", path.read_text(encoding="utf-8"))
    }
    assert names == set(EXCEPTIONS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", 5), ("labels", ["x"]), ("sha256", None), ("vocabulary", "abc"), ("vocabulary", {"a": 1}),
        ("held_out", "0.5"), ("held_out", True), ("split_seed", 1.5), ("goal", []), ("text_column", 3), ("part", {}),
    ],
)  # fmt: skip
def test_a_damaged_description_is_refused_by_the_name_of_its_field(field, value):
    with pytest.raises(ConfigurationError, match=field):
        from_plain({**to_plain(DATA), field: value})


@pytest.mark.parametrize("tokens", ["ab", [1], ["a", "a"], [["a"]], None, {"a": "b"}])
@pytest.mark.parametrize("field", ["tokens", "classes"])
def test_a_damaged_vocabulary_is_refused(field, tokens):
    with pytest.raises(ConfigurationError, match=field):
        from_plain({**to_plain(DATA.vocabulary), field: tokens})


def test_nothing_is_told_of_a_file_that_the_run_was_not_begun_with(tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_text('{"tokens": "a", "label": "1"}\n')
    begun, _ = FileData("recognition", str(file)).read()
    file.write_text("root:secret:0:0\n")
    with pytest.raises(DataError, match="is not what this run was started with") as refusal:
        begun.read()
    assert "secret" not in str(refusal.value)
    file.unlink()
    with pytest.raises(DataError, match="No such file"):
        begun.read()


def test_devices_and_pipes_are_no_data(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(DataError, match="not a regular file"):
            FileData("next_token", str(path)).read()
    with pytest.raises(DataError, match="cannot be read"):
        FileData("next_token", "a\0b").read()


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"title": NaN}', '{"a": 1, "a": 2}', "9" * 5000, "[]", "5"])
def test_a_damaged_portrait_is_no_portrait(tmp_path, text):
    file = tmp_path / "portrait.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="is no portrait"):
        read_portrait(file)
