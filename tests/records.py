"""The committed records, for tests that judge them."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def records_folder(name: str = "results") -> Path:
    """Return a folder of committed records; skip the module or test that asks where a source distribution has none."""
    folder = ROOT / name
    if not folder.is_dir():
        pytest.skip(f"a source distribution holds no records: {name}", allow_module_level=True)
    return folder
