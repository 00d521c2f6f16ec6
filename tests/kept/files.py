"""Where the kept files lie, and how they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

HERE = Path(__file__).parent / "0.1.0"


def written(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def stored(path: Path, tensors: dict[str, Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file({name: value.detach().contiguous().clone() for name, value in tensors.items()}, path)
