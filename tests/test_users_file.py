"""The user's file that ``make lint`` type-checks names everything that is public, and runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import transductor
from tests import users_file


def test_it_uses_every_public_name():
    text = Path(users_file.__file__).read_text()
    assert [name for name in transductor.__all__ if len(re.findall(rf"\b{name}\b", text)) < 2] == []


@pytest.mark.parametrize("part", [users_file.states, users_file.models, users_file.proof])
def test_it_runs(part):
    part()
