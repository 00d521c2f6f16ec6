"""CONTRIBUTING.md followed literally, in a copy of the project: every file, line and command of its recipes.

A block that begins with the path of a file is that file.  A block of changes names a file, shows a line that is there,
and adds the lines that follow it.  A shell block is run.
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forks import run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
COPIED = ("src", "tests", "docs", "README.md", "CONTRIBUTING.md", "pyproject.toml", "constraints.txt")


@dataclass(frozen=True)
class Block:
    """A fenced block of the page, and the heading it stands under."""

    heading: str
    language: str
    text: str


def blocks() -> list[Block]:
    every, heading = [], ""
    for match in re.finditer(r"^## ([^\n]*)$|^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        heading = match[1] or heading
        if match[2]:
            every.append(Block(heading, match[2], match[3]))
    return every


def add_lines(folder: Path, change: str) -> None:
    """Apply a block of changes: each run of new lines goes below the line shown above it, which occurs once."""
    name, *lines = change.splitlines()
    path = folder / name
    text = path.read_text().splitlines()
    anchor = None
    for line in lines:
        mark, content = line[:1], line[1:]
        if mark == "+":
            text.insert(anchor + 1, content)
            anchor += 1
        else:
            assert text.count(content) == 1, f"{name} must have this line once: {content}"
            anchor = text.index(content)
    path.write_text("\n".join(text) + "\n")


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The project with every recipe of the page carried out."""
    folder = tmp_path_factory.mktemp("project")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "kept", "*.egg-info"))
        else:
            shutil.copy(source, folder / name)
    for block in blocks():
        if block.language == "python":
            first, _, rest = block.text.partition("\n")
            path = folder / first.removeprefix("# ")
            assert first.startswith("# "), f"{block.heading}: {first}"
            assert not path.exists(), path
            path.write_text(rest)
        elif block.language == "diff":
            add_lines(folder, block.text)
    return folder


COMMANDS = [(block.heading, line) for block in blocks() if block.language == "sh" for line in block.text.splitlines()]


def test_every_recipe_has_a_command_that_tests_it():
    expected = ["A new family", "A new task", "A new study", "A new backend of the scan"]
    assert [heading for heading, _ in COMMANDS] == expected


@pytest.mark.parametrize("command", [command for _, command in COMMANDS])
def test_the_inherited_suites_take_what_was_added(copy, command):
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    # The process of which this is a fork has imported modules that pytest would have rewritten.
    options = ("-q", "-p", "no:cacheprovider", "-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
    output = run("-m", "pytest", *options, *arguments, folder=copy, PYTHONPATH=copy / "src")
    assert re.search(r"\d+ passed", output), output[-1000:]
