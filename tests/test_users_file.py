"""The user's file that ``make lint`` type-checks names everything that is public, and runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import transductor
from tests import users_file
from tests.check_release import COMMANDS
from transductor.cli import app


def test_it_uses_every_public_name():
    text = Path(users_file.__file__).read_text()
    assert [name for name in transductor.__all__ if len(re.findall(rf"\b{name}\b", text)) < 2] == []


@pytest.mark.parametrize("part", [users_file.states, users_file.models, users_file.proof])
def test_it_runs(part):
    part()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command[0] == "transductor"], ids=" ".join)
def test_a_command_that_the_release_tries_is_one(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command[1:])
    assert result.exit_code == 0, result.output
