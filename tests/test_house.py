"""Rules of the house that a reader can rely on: imports, sizes, repeated code, docstrings, words, the page about it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tokenize import COMMENT, tokenize

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "transductor"
MODULES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in MODULES}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


# Commands import what they need when they run, so that `--help` is quick.  These modules need an optional package, or
# are the optional part; every entry says which.
IMPORTS_INSIDE_FUNCTIONS = {
    "kernels/rotation.py": "Triton",
    "kernels/gpu/decoding.py": "Triton",
    "recurrence/blocks.py": "Triton",
    "recurrence/operator.py": "Triton",
}


def own_imports_inside_functions(tree: ast.Module) -> list[int]:
    lines = []
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                modules = []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    modules = [node.module or "transductor"]
                lines += [node.lineno for module in modules if module.split(".")[0] == "transductor"]
    return sorted(set(lines))


def test_own_modules_are_imported_at_the_top():
    inside = {name_of(path): own_imports_inside_functions(tree) for path, tree in TREES.items()}
    inside = {name: lines for name, lines in inside.items() if lines and not name.startswith("cli/")}
    assert set(inside) == set(IMPORTS_INSIDE_FUNCTIONS), inside


# The checker of certificates is one file because it runs alone; a referee reads it in an hour.
LONGER = {"certification/checker.py": 500}


def test_a_file_can_be_read_in_one_sitting():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGER.get(name, 400)} == {}


def test_no_two_places_share_ten_lines():
    """Blank lines, comments, imports and lone brackets aside; white space is folded."""
    places = defaultdict(list)
    for path in MODULES:
        lines = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = " ".join(line.split())
            if re.search(r"\w", text) and not re.match(r"(#|from .* import|import )", text):
                lines.append((number, text))
        for first in range(len(lines) - 9):
            window = tuple(text for _, text in lines[first : first + 10])
            places[window].append(f"{name_of(path)}:{lines[first][0]}")
    shared = [where for where in places.values() if len(where) > 1]
    assert shared == []


def docstrings(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and text of every docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return [(getattr(node, "lineno", 1), text) for node in nodes if (text := ast.get_docstring(node))]


def test_a_docstring_begins_with_a_sentence():
    fragments = [
        f"{name_of(path)}:{line}: {text}"
        for path, tree in TREES.items()
        for line, docstring in docstrings(tree)
        if (text := docstring.split("\n\n")[0]) and (not text.endswith((".", "?", ":")) or len(text.split()) < 3)
    ]
    assert fragments == []


# Words that made readers wonder whether they are terms; docs/glossary.md has what is written instead.
AVOIDED = re.compile(r"\b(nobody|anew|stretch(es)?)\b|counts not|who knows better|to see that all runs", re.IGNORECASE)


def comments(path: Path) -> list[tuple[int, str]]:
    """Line and text of every comment."""
    with path.open("rb") as file:
        return [(token.start[0], token.string) for token in tokenize(file.readline) if token.type == COMMENT]


def test_source_and_documentation_use_plain_words():
    """Comments, docstrings and pages; names of inputs and quoted claims are data."""
    texts = [(path, line, text) for path, tree in TREES.items() for line, text in docstrings(tree)]
    texts += [(path, line, text) for path in MODULES for line, text in comments(path)]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    texts += [(page, 1, page.read_text()) for page in pages if page.name != "glossary.md"]
    avoided = [(path, line, match[0]) for path, line, text in texts for match in AVOIDED.finditer(text)]
    assert avoided == []


def test_variables_are_not_called_found():
    for path, tree in TREES.items():
        names = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "found"]
        assert names == [], f"{name_of(path)}: {names}"


def test_every_folder_says_what_it_holds():
    for folder in {path.parent for path in MODULES}:
        text = ast.get_docstring(TREES[folder / "__init__.py"])
        assert text, folder
        assert len(text.splitlines()[0].split()) >= 5, folder


def test_the_page_and_picture_of_the_house_are_up_to_date():
    pytest.importorskip("grimp")
    subprocess.run([sys.executable, ROOT / "docs" / "make_architecture.py", "--check"], check=True)


def test_every_path_on_the_page_of_the_house_exists():
    """Paths are written from the package (`heads/rational.py`) or from the project (`tests/tasks/test_truths.py`)."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in set(re.findall(r"`([\w/]+(?:\.py|\.md|/))`", text)):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), name
