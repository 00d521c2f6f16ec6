"""Whether a value is what a document says: judged by the standard JSON reader and a few lines, without ours."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import torch

from transductor.configuration import _KINDS

BITS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
BITS |= {"I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool, "I8": torch.int8, "I16": torch.int16}


def document(path: Path) -> Any:
    """What the standard library reads, whatever it is."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def same(one: Any, other: Any) -> bool:
    """Equal, where 1, 1.0 and true are three values, except that a number may be written as an integer."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool) or not isinstance(one, int | float):
        return type(one) is type(other) and one == other
    return isinstance(other, int | float) and one == other


def means(said: Any, read: Any) -> bool:
    """Whether a configuration, as plain JSON, is what a document says; fields it leaves out have their defaults."""
    if isinstance(said, dict) and "kind" in said and isinstance(read, dict):
        if not said.keys() <= read.keys():
            later = _KINDS[said["kind"]].__dataclass_fields__
            unwritten = {name: later[name].default for name in said.keys() - read.keys() if name in later}
            return means({name: each for name, each in said.items() if name not in unwritten}, read) and all(
                same(said[name], default) for name, default in unwritten.items()
            )
        fields = _KINDS[said["kind"]].__dataclass_fields__
        left_out = read.keys() - said.keys()
        defaults = all(
            fields[name].default is not dataclasses.MISSING or fields[name].default_factory is not dataclasses.MISSING
            for name in left_out
        )
        if said["kind"] == "FamilySpec":  # a family writes down all of its arguments
            arguments = said.get("arguments", {})
            stated = {name: read["arguments"][name] for name in arguments if name in read["arguments"]}
            parts = means(said.get("parts", []), read["parts"])
            return defaults and said["family"] == read["family"] and same(arguments, stated) and parts
        return defaults and all(means(said[name], read[name]) for name in said)
    if isinstance(said, dict) and isinstance(read, dict):
        return said.keys() == read.keys() and all(means(said[name], read[name]) for name in said)
    if isinstance(said, list) and isinstance(read, list | tuple):
        return len(said) == len(read) and all(map(means, said, read))
    return same(said, read)


def tensors_in(path: Path) -> dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]:
    """The tensors of a safetensors file as bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    return {
        name: (BITS[entry["dtype"]], tuple(entry["shape"]), body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def bits_of(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    """A tensor in the same form."""
    flat = tensor.detach().contiguous().reshape(-1)
    return tensor.dtype, tuple(tensor.shape), bytes(flat.view(torch.uint8).tolist()) if len(flat) else b""


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest with the seal that a forger gives it."""
    rest = {name: value for name, value in manifest.items() if name != "seal"}
    rest = {name: value for name, value in manifest.items() if name != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return rest | {"seal": hashlib.sha256(text.encode()).hexdigest()}


def sign_bundle(folder: Path, rng: random.Random, manifest: str) -> None:
    """Give altered weights their hash, and an altered manifest its seal; or take the seal away."""
    plain = document(folder / manifest)
    if (folder / plain["weights"]).is_file() and (folder / plain["weights"]).stat().st_size < 2**20:
        plain["sha256"] = hashlib.sha256((folder / plain["weights"]).read_bytes()).hexdigest()
    plain = sealed(plain)
    if rng.random() < 0.3:
        del plain["seal"]
    (folder / manifest).write_text(json.dumps(plain))
