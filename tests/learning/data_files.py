"""Data files for the tests of this folder, drawn from the machines of the example data sets."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

from transductor.training import FileData

EXAMPLES = Path(__file__).parents[2] / "examples" / "data" / "make_examples.py"


@cache
def example_module() -> Any:
    """The script that writes the example data sets."""
    spec = importlib.util.spec_from_file_location("make_examples", EXAMPLES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_examples"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def parity_rows(count: int = 200, seed: int = 0, longest: int = 12) -> list[dict[str, Any]]:
    """Sequences of a and b, and whether the number of a's is odd."""
    generator = random.Random(seed)
    rows = []
    for _ in range(count):
        tokens = generator.choices("ab", k=generator.randint(0, longest))
        rows.append({"tokens": tokens, "label": "odd" if tokens.count("a") % 2 else "even"})
    return rows


def written(folder: Path, rows: list[dict[str, Any]], name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def source(folder: Path, rows: list[dict[str, Any]], goal: str = "recognition") -> FileData:
    return FileData(goal, str(written(folder, rows)))
