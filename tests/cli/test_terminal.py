"""What a person wrote appears as it was written: square brackets are no colours."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from transductor.cli.terminal import console, progress, working

TEXTS = ["pip install 'transductor[cpu]'", "run[1].json", "[a] [bold]b[/bold] [/]", "[red]"]


def written(**options):
    file = io.StringIO()
    return file, console(100, file=file, highlight=False, **options)


@pytest.mark.parametrize("text", TEXTS)
def test_lines_and_tables(text):
    file, terminal = written()
    terminal.print(text)
    table = Table(text, title=f"title {text}")
    table.add_row(f"cell {text}")
    terminal.print(table)
    assert file.getvalue().count(text) == 4


@pytest.mark.parametrize("text", TEXTS)
def test_progress(text):
    file, terminal = written(force_terminal=True)
    with progress("{task.description}", "bar", "{task.fields[words]}", console=terminal) as bars:
        bars.add_task(f"name {text}", total=1, words=f"words {text}")
    assert f"name {text}" in file.getvalue()
    assert f"words {text}" in file.getvalue()


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_being_done(text, monkeypatch):
    file, terminal = written(force_terminal=True)
    monkeypatch.setattr("transductor.cli.terminal.console", lambda **options: terminal)
    with working(f"reading {text}"):
        pass
    assert f"reading {text} …" in file.getvalue()
