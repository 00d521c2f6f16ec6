from __future__ import annotations

import pytest

from tests.learning.data_files import parity_rows, source
from transductor.automata.moore import IGNORED
from transductor.learning.divided_data import LabelledWords, divided, most_frequent
from transductor.training import DataError


def test_the_parts_are_all_of_the_data_and_the_longest_are_longer_than_what_trains(tmp_path):
    rows = parity_rows(300)
    data = divided(source(tmp_path, rows), seed=3)
    words = [word for part in data.parts() for word in part.words.words]
    letters = data.source.vocabulary.letters
    assert sorted(tuple(letters[each] for each in word) for word in words) == sorted(tuple(r["tokens"]) for r in rows)
    assert data.longer is not None
    assert data.training.longest < min(data.longer.examples.lengths)
    assert data.validation.longest < min(data.longer.examples.lengths)
    assert 0.05 < len(data.longer.examples) / 300 < 0.15
    assert 0.05 < len(data.validation.examples) / 300 < 0.15


def test_labels_belong_to_their_words(tmp_path):
    data = divided(source(tmp_path, parity_rows(200)))
    letters, classes = data.source.vocabulary.letters, data.source.vocabulary.classes
    for part in data.parts():
        for word, label in zip(part.words.words, part.words.labels, strict=True):
            odd = sum(letters[each] == "a" for each in word) % 2
            assert classes[label] == ("odd" if odd else "even")


def test_equally_long_sequences_leave_none_to_keep_back_and_that_is_said(tmp_path):
    rows = [{"tokens": list(f"{number:04b}"), "label": str(number % 2)} for number in range(16)]
    data = divided(source(tmp_path, rows))
    assert data.longer is None
    assert "all sequences have 4 tokens" in data.note
    assert data.held_out is data.validation


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no sequences"),
        ([{"tokens": ["a"], "label": "x"}], "at least 10 sequences"),
        ([{"tokens": ["a"] * n, "label": "x"} for n in range(20)], "at least two classes; all are 'x'"),
        ([*({"tokens": ["a"] * n, "label": "x"} for n in range(20)), {"tokens": ["a"], "label": ""}], "data.jsonl:21"),
    ],
)
def test_data_that_cannot_be_learned_from_are_refused(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        divided(source(tmp_path, rows))


def test_next_tokens_are_refused_with_the_way_to_go(tmp_path):
    with pytest.raises(DataError, match="transductor train"):
        divided(source(tmp_path, parity_rows(20), goal="next_token"))


def test_conflicting_labels_are_counted():
    labelled = LabelledWords(((0,), (0,), (0,), (1,), ()), (1, 0, 1, 1, 0))
    assert labelled.conflicts() == 1
    assert labelled.unavoidable_errors() == 1


def test_conflicting_tags_are_counted_at_the_beginning_where_they_occur():
    labelled = LabelledWords(((0, 1), (0, 0), (0, 1)), ((0, 1), (1, 1), (0, IGNORED)))
    assert labelled.unavoidable_errors() == 1
    assert list(labelled.classes()) == [0, 1, 1, 1, 0]


def test_the_most_frequent_class_is_the_smallest_of_several():
    assert most_frequent([2, 1, 1, 2, 0]) == 1
