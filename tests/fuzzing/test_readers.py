"""Every reader of strangers' files is given thousands of altered ones: it refuses them, or reads what they say."""

from __future__ import annotations

import os

import pytest

from tests.fuzzing.readers import all_readers
from tests.fuzzing.running import Fuzzer, Tally, run_all, shared_out

READERS = {reader.name: reader for reader in all_readers()}
IN_ALL = 4_500  # tests/integrations/test_hostile_files.py gives its readers the rest of five thousand
COUNTS = shared_out([*READERS.values()], IN_ALL)


def assert_good(tally: Tally, count: int) -> None:
    assert tally.failures == []
    assert tally.outcomes.total() == count


@pytest.mark.parametrize("name", READERS)
def test_what_is_altered_is_refused_or_means_what_it_says(name, tmp_path):
    tally = Fuzzer(READERS[name], tmp_path, use_every=100).run(COUNTS[name])
    assert_good(tally, COUNTS[name])
    assert name == "lock files" or 0.2 < tally.outcomes["refused"] / COUNTS[name] < 1


@pytest.mark.slow
def test_a_hundred_thousand_altered_files(tmp_path):
    hugging_face = pytest.importorskip("tests.fuzzing.hugging_face", exc_type=ImportError)
    readers = [*READERS.values(), *hugging_face.hugging_face_readers()]
    for name, tally in run_all(readers, 100_000, tmp_path).items():
        assert_good(tally, shared_out(readers, 100_000)[name])


# What the fuzzer itself must notice: readers that are wrong in one way each.


def wrong_reader(read, **changes):
    from dataclasses import replace

    return replace(READERS["records"], read=read, **changes)


def read_with_a_foreign_error(folder):
    raise KeyError(str(folder))


def read_without_a_name(folder):
    raise ValueError("something is wrong")


def read_beside(folder):
    return READERS["records"].read(folder) and (folder.parent / "outside" / "secret.txt").read_text()


def read_and_write(folder):
    record = READERS["records"].read(folder)
    (folder / "index").touch()
    return record


def read_something_else(folder):
    from transductor.results import Record

    READERS["records"].read(folder)
    return Record("another", {}, {}, {})


def read_much(folder):
    record = READERS["records"].read(folder)
    if record.name != "a run":
        bytearray(2**31)
    return record


@pytest.mark.skipif(os.name != "posix", reason="memory and pipes are those of POSIX")
@pytest.mark.parametrize(
    ("read", "words"),
    [
        (read_with_a_foreign_error, "KeyError"),
        (read_without_a_name, "names no file"),
        (read_beside, "touched"),
        (read_and_write, "touched"),
        (read_something_else, "another record"),
        (read_much, "MemoryError"),
    ],
)
def test_the_fuzzer_notices(read, words, tmp_path):
    fuzzer = Fuzzer(READERS["records"], tmp_path)
    fuzzer.reader = wrong_reader(read)
    tally = fuzzer.run(60)
    assert tally.failures
    assert any(words in failure for failure in tally.failures), tally.failures[0]


def test_equal_seeds_give_equal_answers(tmp_path):
    one, other = (Fuzzer(READERS["portraits"], tmp_path / name).run(40, seed=7) for name in "ab")
    assert one.outcomes == other.outcomes
