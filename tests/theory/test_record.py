"""The committed record of the statements: complete, confirmed, and what the quick ones give today."""

from __future__ import annotations

import math
import re

import pytest

from tests.records import records_folder
from transductor.results import read_record
from transductor.theory import STATEMENTS, theory_record

RECORD = read_record(records_folder() / "theory.json").measurements["statements"]


def test_every_statement_is_recorded_and_confirmed():
    assert list(RECORD) == list(STATEMENTS)
    assert all(answer["holds"] for answer in RECORD.values())
    assert all(answer["quick"] is STATEMENTS[name].quick for name, answer in RECORD.items())


def without_decimals(text):
    """Text without numbers that are rounded, which differ in their last digit between processors."""
    return re.sub(r"-?\d+\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+", "#", text)


def differences(where, kept, computed):
    """Where two answers differ by more than rounding; what is kept under ``rounding`` is the processor's own."""
    if where.endswith((".rounding", ".seconds", ".witness")):
        return []
    if isinstance(kept, dict) and isinstance(computed, dict):
        if kept.keys() != computed.keys():
            return [f"{where}: {sorted(kept)} and {sorted(computed)}"]
        return [each for key in kept for each in differences(f"{where}.{key}", kept[key], computed[key])]
    if isinstance(kept, list) and isinstance(computed, list) and len(kept) == len(computed):
        pairs = enumerate(zip(kept, computed, strict=True))
        return [each for place, (a, b) in pairs for each in differences(f"{where}[{place}]", a, b)]
    if isinstance(kept, float) and isinstance(computed, float):
        # What is smaller than this is rounding, of which nothing is left to compare.
        return [] if math.isclose(kept, computed, rel_tol=1e-6, abs_tol=1e-9) else [f"{where}: {kept} and {computed}"]
    same = without_decimals(kept) == without_decimals(computed) if isinstance(kept, str) else kept == computed
    return [] if same and type(kept) is type(computed) else [f"{where}: {kept!r} and {computed!r}"]


@pytest.mark.parametrize("name", [name for name, entry in STATEMENTS.items() if entry.quick])
def test_the_record_is_what_a_quick_statement_gives(name):
    computed = theory_record({name: (STATEMENTS[name].run(), 0.0)}).measurements["statements"][name]
    assert differences(name, RECORD[name], computed) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in STATEMENTS.items() if not entry.quick])
def test_and_any_other(name):
    computed = theory_record({name: (STATEMENTS[name].run(), 0.0)}).measurements["statements"][name]
    assert differences(name, RECORD[name], computed) == []


def test_differences_are_noticed():
    assert differences("a", {"x": 1.0, "t": "≈ 0.10"}, {"x": 1.0 + 1e-12, "t": "≈ 0.11"}) == []
    assert differences("a", {"rounding": 1.0}, {"rounding": 2.0}) == []
    for other in ({"x": 2}, {"x": 1.0}, {"y": 1}, {"x": "1"}, {"x": [1]}):
        assert differences("a", {"x": 1}, other) != []
    assert differences("a", {"t": "rank 5"}, {"t": "rank 6"}) != []
    assert differences("a", {"x": [1, 2]}, {"x": [1]}) != []
