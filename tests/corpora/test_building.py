"""Corpora: what is fetched is what was listed, parts are split and without duplicates, windows begin well."""

from __future__ import annotations

import dataclasses
import hashlib
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from transductor.cli import app
from transductor.corpora import LANGUAGES, PACKAGES, PARTS, Package, build, building, opened
from transductor.corpora.building import built_from_packages, built_from_standard_library, fetched
from transductor.tasks import IGNORED, SourceCode
from transductor.tasks.source_code import _opened, _training


def source(name, lines=40):
    """Return a file of source code that no other name gives."""
    body = "".join(f"    value_{line} = ['{name}', {line}]\n" for line in range(lines))
    return f"'''{name}\nx = 1\n'''\nimport {name}\n\n\ndef f():\n{body}\n\nprint(f)\n".encode()


def wheel(folder, name, files):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(f"{name}/{place}", text)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


def listed(path, part, language="python"):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Package(path.name.split("-")[0], "1.0", "MIT", part, digest, language)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Three packages in a folder that pip may fetch from, listed as a corpus named small."""
    index = tmp_path / "index"
    index.mkdir()
    common = source("common")
    paths = {
        "one": wheel(
            index, "one", {"a.py": source("a"), "same.py": common, "again.py": common, "bad.py": b"\xff" * 400}
        ),
        "two": wheel(index, "two", {"b.py": source("b"), "short.py": b"x = 1\n", "long.py": b"x = 1" + b"0" * 2000}),
        "three": wheel(
            index, "three", {"c.py": source("c"), "copied.py": common.replace(b"\n\n", b"\n  \n"), "d.txt": common}
        ),
    }
    small = tuple(listed(paths[name], part) for name, part in zip(paths, PARTS, strict=True))
    monkeypatch.setitem(PACKAGES, "small", small)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return small


def test_a_corpus_of_packages(packages, tmp_path):
    corpus = built_from_packages("small", tmp_path / "small")
    assert [corpus.names(part) for part in PARTS] == [
        ["one one/a.py", "one one/again.py"],  # the second of two equal files is left out
        ["two two/b.py"],
        ["three three/c.py"],  # what stands in training is not tested
    ]
    assert corpus.manifest["left_out"] == {"unfit": 3, "twice": 2}
    assert corpus.files("test") == [source("c")]
    assert bytes(corpus.part("test")) == source("c") + b"\0"
    assert corpus.damage is None
    assert corpus.manifest["packages"][0]["sha256"] == packages[0].sha256


def test_a_corpus_that_is_there_is_kept(packages, tmp_path, monkeypatch):
    first = built_from_packages("small", tmp_path / "small")
    monkeypatch.setattr(building, "build", None)  # would be called
    assert built_from_packages("small", tmp_path / "small").sha256 == first.sha256
    assert opened(tmp_path / "small").manifest == first.manifest


def test_a_damaged_corpus_is_made_again(packages, tmp_path):
    first = built_from_packages("small", tmp_path / "small")
    (tmp_path / "small" / "test.bin").write_bytes(b"x = 1")
    assert "is not the file that the manifest describes" in opened(tmp_path / "small").damage
    assert built_from_packages("small", tmp_path / "small").damage is None
    assert first.files("test") == [source("c")]


def test_another_archive_is_refused(packages, tmp_path):
    changed = dataclasses.replace(packages[0], sha256="0" * 64)
    with pytest.raises(ValueError, match=r"is not the file that was listed: its SHA-256 is .*, not 0000"):
        fetched(changed, tmp_path)
    with pytest.raises(ValueError, match=r"four 1\.0 cannot be fetched: "):
        fetched(dataclasses.replace(packages[0], name="four"), tmp_path)


def test_archives_of_sources_are_read_too(tmp_path):
    text = b"/* a file */\n" + b"static int f(int x)\n{\n\treturn x + 1;\n}\nint y;\n\n" * 10
    (tmp_path / "f.c").write_bytes(text)
    path = tmp_path / "lib-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tmp_path / "f.c", "lib-1.0/src/f.c")
    package = listed(path, "training", "c")
    assert fetched(package, tmp_path) == path
    ((_, _, name, read),) = building._files_of(package, path, LANGUAGES["c"])
    assert (name, read) == ("lib-1.0/src/f.c", text)
    begins = LANGUAGES["c"].begins(text)
    assert {text[place:].split(b"\n")[0] for place in begins.tolist()} == {b"int y;", b"static int f(int x)"}


def test_windows_of_python_begin_at_statements():
    text = source("a")
    places = LANGUAGES["python"].begins(text).tolist()
    assert [text[place:].split(b"\n")[0] for place in places] == [b"'''a", b"import a", b"def f():", b"print(f)"]


def test_a_part_may_not_be_empty(tmp_path):
    files = [("training", "one", "a.py", source("a"))]
    with pytest.raises(ValueError, match="none is left of validation, test"):
        build(files, tmp_path, name="none", language=LANGUAGES["python"], packages=[])


def test_there_may_be_no_corpus(tmp_path):
    with pytest.raises(ValueError, match=r"there is no corpus in .*; make it with transductor corpus nothing"):
        opened(tmp_path / "nothing")
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="does not describe a corpus"):
        opened(tmp_path)


def test_the_command(packages, tmp_path):
    answer = CliRunner().invoke(app, ["corpus", "small", "-o", str(tmp_path / "out")])
    assert answer.exit_code == 0, answer.output
    assert "training: 2 files" in answer.output
    refused = CliRunner().invoke(app, ["corpus", "cobol", "-o", str(tmp_path / "out")])
    assert refused.exit_code == 2
    assert "name must be one of python, c, small; got 'cobol'" in refused.output


def test_what_is_listed_is_whole():
    for name, packages in PACKAGES.items():
        assert {package.part for package in packages} == set(PARTS), name
        assert len({package.name for package in packages}) == len(packages)
        assert all(len(package.sha256) == 64 for package in packages)


@pytest.fixture
def small_task(packages, tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSDUCTOR_CORPORA", str(tmp_path))
    corpus = built_from_packages("small", tmp_path / "small")
    for cached in (_opened, _training):
        cached.cache_clear()
    yield SourceCode("small", corpus.sha256)
    for cached in (_opened, _training):
        cached.cache_clear()


def test_windows_of_the_task(small_task):
    tokens, labels = small_task.drawn(8, 64, torch.Generator().manual_seed(0))
    assert torch.equal(tokens[:, 1:], labels[:, :-1])
    data = bytes(small_task.opened().part("training"))
    begins = set(small_task.opened().begins("training").tolist())
    for row in tokens:
        assert any(data.startswith(bytes(row.tolist()), place) for place in begins)
    again = small_task.sample(8, 65, torch.Generator().manual_seed(0))
    assert torch.equal(again[:, :-1], tokens)
    truth = small_task.truth(tokens)
    assert torch.equal(truth[:, :-1], tokens[:, 1:])
    assert (truth[:, -1] == IGNORED).all()
    assert small_task.adversarial(500)["the longest file"].shape == (1, 500)
    with pytest.raises(ValueError, match="length must be at most"):
        small_task.sample(1, 10**6, torch.Generator())


def test_another_corpus_is_refused(small_task):
    with pytest.raises(ValueError, match="holds another corpus"):
        dataclasses.replace(small_task, sha256="0" * 64).opened()


def test_the_standard_library_is_made_where_it_is_missing(tmp_path):
    corpus = built_from_standard_library(tmp_path)
    assert min(len(corpus.files(part)) for part in PARTS) > 5
    text = corpus.files("test")[0]
    assert LANGUAGES["python"].begins(text)[0] <= 1000
    assert np.isin(0, corpus.begins("test"))
