"""Certificates, records, atomic files, configurations."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import pytest

from transductor.configuration import ConfigurationError, configuration, from_json, from_plain, to_json, to_plain
from transductor.results import Certificate, Record, environment, read_record, write_atomically


def test_a_certificate_holds_only_within_its_bound():
    assert Certificate("MᵀM = I", 1e-5, 1e-6).holds
    assert not Certificate("MᵀM = I", 1e-5, 1e-4).holds
    assert not Certificate("MᵀM = I", 1e-5, float("nan")).holds
    assert "FAILS" in str(Certificate("MᵀM = I", 1e-5, 1.0, "symbol 3"))
    assert "symbol 3" in str(Certificate("MᵀM = I", 1e-5, 1.0, "symbol 3"))


def test_records_round_trip(tmp_path):
    record = Record("study", {"steps": 3}, {"accuracy": 0.5})
    assert read_record(record.write(tmp_path / "deep" / "record.json")) == record
    assert record.environment["versions"]["torch"]


def test_a_record_refuses_nan_and_leaves_the_old_file(tmp_path):
    path = Record("study", {}, {"loss": 1.0}).write(tmp_path / "record.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        Record("study", {}, {"loss": float("nan")}).write(path)
    assert read_record(path).measurements["loss"] == 1.0
    assert os.listdir(tmp_path) == ["record.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', "\x00"])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(ValueError, match=r"record\.json is not a record"):
        read_record(tmp_path / "record.json")


def test_a_failed_write_leaves_the_old_content(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "file", b"old")

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_environment_names_the_hardware():
    found = environment()
    assert found["processor"]
    assert found["cores"] >= 1
    json.dumps(found)


@configuration
@dataclass(frozen=True)
class Inner:
    size: int

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("size must be ≥ 0")


@configuration
@dataclass(frozen=True)
class Outer:
    inner: Inner
    many: tuple[Inner, ...] = ()
    name: str | None = None


def test_configurations_round_trip_through_json():
    value = Outer(Inner(1), (Inner(2), Inner(3)), "x")
    assert from_json(to_json(value)) == value


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"kind": "Inner"}, "Inner needs the field 'size'"),
        ({"kind": "Inner", "size": 1, "colour": 2}, "Inner has no field 'colour'; its fields are size"),
        ({"kind": "Inner", "size": -1}, "Inner: size must be ≥ 0"),
        ({"kind": "Unheard"}, "kind must be one of .*Inner"),
    ],
)
def test_what_cannot_be_read_is_named(plain, words):
    with pytest.raises(ConfigurationError, match=words):
        from_plain(plain)


def test_text_that_is_not_json_and_values_that_cannot_be_written():
    with pytest.raises(ConfigurationError, match="not JSON"):
        from_json("{")
    with pytest.raises(ConfigurationError, match="got set"):
        to_plain({"x": {1}})


def test_two_configurations_cannot_share_a_name():
    with pytest.raises(TypeError, match="named Inner exists already"):
        configuration(dataclass(frozen=True)(type("Inner", (), {})))
    with pytest.raises(TypeError, match="must be a dataclass"):
        configuration(type("Plain", (), {}))


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "1" * 5_000, "[]", "5", '{"name": 1}', '{"name": "a", "name": "b"}', '{"measurements": NaN}']
    + [
        json.dumps({"name": "a", "settings": {}, "measurements": {}, "environment": {}} | change)
        for change in ({"name": 3}, {"settings": []}, {"environment": None}, {"more": 1})
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_record_is_refused_with_one_kind_of_error(tmp_path, text):
    file = tmp_path / "record.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"record\.json is not a record"):
        read_record(file)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5_000, '{"kind": []}', '{"kind": {"a": 1}}', '{"kind": NaN}'])
def test_what_is_no_configuration_is_refused_with_one_kind_of_error(text):
    with pytest.raises(ConfigurationError):
        from_json(text)


def test_a_deep_configuration_is_refused():
    depth = 600
    with pytest.raises(ConfigurationError, match="deeply"):
        from_json('{"a":' * depth + "1" + "}" * depth)
