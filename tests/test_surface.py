"""The guarded surface: public names, README blocks, quick help, no torch where none is needed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import transductor
from tests import forks

ROOT = Path(__file__).parents[1]
PUBLIC = {
    "scan",
    "RationalHead",
    "UniversalHead",
    "RandomFeatureHead",
    "BackboneConfig",
    "RationalReadout",
    "RationalTransductor",
    "StackedTransductor",
    "Transformer",
    "LSTM",
    "LinearRNN",
    "save",
    "load",
    "compile_head",
    "compile_model",
    "extract",
    "harden",
    "certify",
    "TransductorClassifier",
    "TransductorRegressor",
}


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, **options)


def test_the_public_names_are_these_and_at_most_twenty():
    assert set(transductor.__all__) == PUBLIC
    assert len(PUBLIC) <= 20
    for name in PUBLIC:
        assert callable(getattr(transductor, name)), name
    assert set(dir(transductor)) == PUBLIC | {"__version__"}


def test_no_public_name_is_hidden_by_a_room():
    """Importing a room binds it on the package; a public name of the same name would turn into a module."""
    rooms = {path.stem for path in (ROOT / "src" / "transductor").iterdir()}
    assert not rooms & PUBLIC


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Perceptron'"):
        _ = transductor.Perceptron


@pytest.mark.parametrize("module", ["transductor", "transductor.cli", "transductor.results", "transductor.report"])
def test_torch_is_not_imported(module):
    run("-c", f"import sys, {module}; assert 'torch' not in sys.modules")


def test_help_waits_for_nothing_heavy():
    """Seconds depend on the machine; what must be imported does not."""
    code = """
import sys
sys.argv = ["transductor", "--help"]
from transductor.cli import main
try:
    main()
except SystemExit:
    pass
"""
    heavy = "torch", "numpy", "matplotlib", "safetensors"
    shown = run("-c", code + f"assert not set({heavy}) & set(sys.modules), sys.modules.keys()").stdout
    assert "demo" in shown
    assert "info" in shown


# CONTRIBUTING.md has a test of its own, which follows its recipes in a copy of the project.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


# Every block has a folder and names of its own.
RUN_BLOCKS = """
import json, os, sys
for number, block in enumerate(json.loads(sys.argv[1])):
    os.mkdir(str(number))
    os.chdir(str(number))
    exec(compile(block, f"block {number} of {sys.argv[2]}", "exec"), {"__name__": "__main__"})
    os.chdir("..")
"""


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_documentation_runs(page, tmp_path):
    imported = re.findall(r"^(?:from|import) (\w+)", "\n".join(blocks(page)), re.MULTILINE)
    if missing := {name for name in imported if importlib.util.find_spec(name) is None}:
        pytest.skip(f"could not import {', '.join(sorted(missing))}")
    forks.run("-c", RUN_BLOCKS, json.dumps(blocks(page)), page.name, folder=tmp_path, PYTHONWARNINGS="error")


def test_the_first_example_fits_on_the_first_screen():
    readme = (ROOT / "README.md").read_text().splitlines()
    first = readme.index("```python")
    length = readme[first:].index("```") - 1
    assert length <= 10
    assert first + length <= 40
    for command in ("make demo", "make test"):
        assert any(command in line for line in readme[:40])


def test_every_picture_of_the_documentation_exists():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_link_between_pages_exists():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_page_of_families_names_every_family():
    from transductor.transitions import COMPOSITES, FAMILIES

    page = (ROOT / "docs" / "families.md").read_text()
    for family in (*FAMILIES.values(), *COMPOSITES.values()):
        assert f"`{family.__name__}`" in page, family.__name__
