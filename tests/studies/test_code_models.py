"""Studies of source code: what is compared, how it is judged, and that a small one runs, goes on and is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from transductor.corpora import LANGUAGES, build
from transductor.model import BackboneConfig, GuidedConfig, TransductorConfig
from transductor.report import study_report
from transductor.report.study_code import KINDS, paired, reference_of
from transductor.report.study_records import read_studies
from transductor.results import read_record
from transductor.studies import OF_CODE, STUDIES, quick_code, reproduce
from transductor.studies.code_choices import choices_of
from transductor.studies.code_judging import judge_code
from transductor.studies.running import record_path, seeded_model
from transductor.study_names import CODE_STUDIES
from transductor.tasks import SourceCode
from transductor.tasks.source_code import _opened, _training

CHOSEN = ("transformer", "slow", "frozen")


def file(name):
    """Return source code in which strings, brackets and blocks begin and end."""
    lines = [f'"""{name}"""\n\n\nclass {name}:\n    names = ["{name}", {{"one": (1, [2, 3])}}]\n']
    for place in range(40):
        lines.append(
            f"\n    def f{place}(self, a):\n        if a:\n            return '{name} {place}'\n        return a\n"
        )
    return "".join(lines).encode()


@pytest.fixture(autouse=True)
def small_corpus(tmp_path, monkeypatch):
    """A corpus of a few made-up files in the place of the standard library's."""
    parts = {"training": ("ant", "bee", "cat"), "validation": ("dog",), "test": ("eel", "fox", "gnu", "hen")}
    files = [(part, "made", f"{name}.py", file(name)) for part, names in parts.items() for name in names]
    folder = tmp_path / "corpora" / "standard_library"
    build(files, folder, name="standard_library", language=LANGUAGES["python"], packages=[])
    monkeypatch.setenv("TRANSDUCTOR_CORPORA", str(folder.parent))
    cached = (_opened, _training)
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


def small_study():
    study = quick_code(OF_CODE["stream_defaults"])
    arms = [arm for arm in study.arms if arm.name in CHOSEN]
    return replace(study, arms=tuple(replace(a, training=replace(a.training, steps=4, warmup=1)) for a in arms))


def test_they_are_run_by_name_alone():
    assert tuple(OF_CODE) == CODE_STUDIES
    assert not set(OF_CODE) & set(STUDIES)


@pytest.mark.parametrize("name", CODE_STUDIES)
def test_every_model_has_about_as_many_parameters(name):
    sizes = {}
    for arm in OF_CODE[name].arms:
        if isinstance(arm.task, SourceCode):
            with torch.device("meta"):
                large = arm.name.endswith("_30m")
            count = parameters(arm.model)
            sizes.setdefault(large, []).append(count)
    for counts in sizes.values():
        assert max(counts) / min(counts) < 1.04
    assert max(sizes[False]) < 15e6


def parameters(config):
    """Count a model's parameters from its configuration, without making it."""
    match config:
        case BackboneConfig():
            per_layer = 12 * config.width**2 + 13 * config.width
            return config.layers * per_layer + 2 * 256 * config.width + 256 + 2 * config.width
        case GuidedConfig():
            return parameters(config.backbone) + config.backbone.layers * config.backbone.width * 27
        case TransductorConfig():
            stream = config.backbone
            spec = config.head.transitions
            parts = spec.parts or (spec,)
            dims = [part.arguments["state_dim"] for part in parts]
            head = sum(256 * dim**2 for dim in dims)  # at most
            return parameters(stream) + stream.layers * stream.width * sum(dims) + head
    return 8 * config.layers * config.width**2 + 2 * 256 * config.width


@pytest.mark.parametrize("name", CODE_STUDIES)
def test_every_arm_has_a_transformer_beside_it(name):
    names = {arm.name for arm in OF_CODE[name].arms if isinstance(arm.task, SourceCode)}
    for arm in names - {"lstm"}:
        kind = next(kind for kind in KINDS if arm.endswith(kind))
        assert f"transformer{kind}" in names


def test_arms_of_a_seed_begin_with_the_same_transformer():
    study = small_study()
    models = [seeded_model(arm, 3, "cpu") for arm in study.arms]
    for model in models[1:]:
        for name, value in models[0].backbone.state_dict().items():
            assert torch.equal(value, model.backbone.state_dict()[name]), name
    tokens = torch.randint(256, (2, 40))
    assert torch.equal(models[0](tokens), models[1](tokens))  # zero projections: bit for bit
    assert torch.equal(models[0](tokens), models[2](tokens))


def test_a_small_study_runs_goes_on_and_is_reported(tmp_path):
    study = small_study()
    assert reproduce([study], tmp_path / "runs") == len(CHOSEN)
    assert reproduce([study], tmp_path / "runs") == 0
    for arm in study.arms:
        measured = read_record(record_path(tmp_path / "runs", study.name, arm.name, 0)).measurements
        assert [entry["length"] for entry in measured["learned"]] == [128, 1024]
        short = measured["learned"][0]
        assert short["bits"] == pytest.approx(np.mean([bits for _, bits in short["files"]]), abs=1e-4)
        assert set(short["replaced"]) == (set() if arm.name == "transformer" else {"zeros", "another file's"})
        assert set(measured["learned"][1]["choices"]) == {"bracket", "quote", "block ends", "block goes on"}
        assert measured["costs"]["decode_seconds"] > 0
        assert len(measured["corpus"]) == 64
    written = study_report(tmp_path / "runs", tmp_path / "report")
    assert [path.name for path in written] == ["stream_defaults_quick.md", "stream_defaults_quick.png"]
    text = written[0].read_text()
    assert "| frozen |" in text
    assert "Bits a byte more, when the state is replaced" in text
    (records,) = read_studies(tmp_path / "runs")
    slow, transformer = records.arm("slow"), records.arm("transformer")
    assert reference_of(records, slow) is transformer
    mean, low, high, seeds = paired(slow, transformer, 1024)
    assert low <= mean <= high
    assert seeds == 1


def test_a_state_that_is_not_read_can_be_replaced():
    study = small_study()
    arm = next(arm for arm in study.arms if arm.name == "frozen")
    entry = judge_code(seeded_model(arm, 0, "cpu"), arm)[0]
    assert set(entry["replaced"]) == {"zeros", "another file's"}
    for bits in entry["replaced"].values():  # projections are zero
        assert bits == pytest.approx(entry["bits"], abs=1e-5)


def test_choices():
    text = b"def f(a):\n    x = [a, 'b', {\"c\": 1}]\n    if x:\n        y = '''d\n'''\n    return x\n\n\nz = 1\n"
    found = choices_of(text)
    brackets = found["bracket"]
    assert [chr(text[place]) for place in brackets.places] == [")", "}", "]"]
    assert [chr(text[p - d]) for p, d in zip(brackets.places, brackets.distances, strict=True)] == ["(", "{", "["]
    quotes = found["quote"]
    assert [text[p - d : p] for p, d in zip(quotes.places, quotes.distances, strict=True)] == [b"'b", b'"c', b"'''d\n"]
    ends = found["block ends"]
    assert [text[p : p + 3] for p in ends.places] == [b"ret", b"z ="]
    assert [text[p - d : p - d + 3] for p, d in zip(ends.places, ends.distances, strict=True)] == [b"if ", b"def"]
    goes_on = found["block goes on"]
    assert [text[p : p + 5] for p in goes_on.places] == [b"    i", b"     ", b"    r"]
    assert {text[p - d : p - d + 3] for p, d in zip(goes_on.places, goes_on.distances, strict=True)} == {b"def"}
    sure = torch.full((3, 256), -1e4)
    sure[torch.arange(3), torch.tensor([text[place] for place in brackets.places])] = 0
    assert brackets.right(sure).all()
    assert not brackets.right(sure.flip(0))[0]
