"""Checkpoint folders: tensors and a manifest, replaced by one atomic rename.

The manifest (JSON) names the tensors' file (safetensors) with its SHA-256; that file carries a part of the hash in its
own name, so an old bundle is replaced at the moment the manifest is renamed.  A process killed at any
moment leaves the old bundle or the new one.  The manifest's own SHA-256, its seal, tells whether it was altered.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import safetensors.torch
from torch import Tensor

from transductor.file_reading import opened_file
from transductor.json_reading import JSONError, brief, parsed_json, read_json
from transductor.one_writer import only_writer
from transductor.results import write_atomically

_LONGEST_WAIT: Final = 10.0  # seconds, for another process that saves to the same folder
_MISSES: Final = 10  # after which a file is missing, and not just being replaced
_PAUSE: Final = 0.01  # seconds between two of them
_LARGEST_HEADER: Final = 32 * 2**20


class CheckpointError(ValueError):
    """A checkpoint that is missing, incomplete or damaged; the message names the file and the reason."""


class UnsealedCheckpointWarning(UserWarning):
    """A checkpoint of an earlier release, whose configuration is under no hash."""


def _seal(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything that a manifest says but its seal."""
    content = {name: value for name, value in manifest.items() if name != "seal"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(dict(tensors), metadata={"format": "pt"})


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _data_of(path: Path) -> bytes:
    """Return the content of a safetensors file, if it is as large as its header says; otherwise nothing of it is read.

    Raises:
        OSError: If it cannot be read.
    """
    with opened_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = file.read(8)
        header = file.read(min(int.from_bytes(length, "little"), _LARGEST_HEADER))
        try:
            entries = [entry for name, entry in parsed_json(header.decode()).items() if name != "__metadata__"]
            promised = len(length) + len(header) + max((entry["data_offsets"][1] for entry in entries), default=0)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise CheckpointError(
                f"{path} is truncated or altered: its header is no header ({brief(error)})"
            ) from error
        if size != promised:
            raise CheckpointError(f"{path} is truncated or altered: {promised} bytes are promised, it has {size}")
        return length + header + file.read()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 that a bundle with these tensors names in its manifest."""
    return hashlib.sha256(_packed(tensors)).hexdigest()


@dataclass(frozen=True)
class Bundle:
    """One kind of bundle.

    Args:
        format: The name of the format, which the manifest repeats.
        version: The version of the format; others are refused.
        manifest: The file name of the manifest.
        stem: How the name of the tensors' file begins: ``stem-<hash>.safetensors``.
        fields: What the manifest must hold besides ``weights`` and ``sha256``.
        optional: What it may hold; everything else is refused, because this release does not know what it means.
    """

    format: str
    version: int
    manifest: str
    stem: str
    fields: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def write(self, folder: Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> Path:
        """Write or replace the bundle in ``folder``; return the folder."""
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(f"{folder} is a file; a checkpoint is a folder")
        data = _packed(tensors)
        digest = hashlib.sha256(data).hexdigest()
        weights = f"{self.stem}-{digest[:12]}.safetensors"
        head = {"format": self.format, "version": self.version, "weights": weights, "sha256": digest}
        plain = json.loads(json.dumps({**head, **content}, allow_nan=False))  # the seal is of what a reader will see
        manifest = json.dumps(plain | {"seal": _seal(plain)}, indent=2, allow_nan=False)
        with only_writer(folder, wait=_LONGEST_WAIT):
            self._check_replaceable(folder)
            write_atomically(folder / weights, data)
            write_atomically(folder / self.manifest, manifest.encode())
            self._sweep(folder, weights)
        return folder

    def _check_replaceable(self, folder: Path) -> None:
        """Refuse to replace a manifest that is not one of these bundles."""
        if not (folder / self.manifest).exists():
            return
        try:
            self.read_manifest(folder)
        except CheckpointError as error:
            raise CheckpointError(
                f"{folder} holds a {self.manifest} that is not a complete checkpoint: {error}"
            ) from error

    def _sweep(self, folder: Path, weights: str) -> None:
        """Remove the tensors of older bundles: the one just replaced, and those of writers that were killed.

        A file is one of them only if its name is the hash of its content: no other file is touched, whatever a manifest
        says.
        """
        for older in folder.glob(f"{self.stem}-*.safetensors"):
            if older.name == weights or not re.fullmatch(rf"{self.stem}-[0-9a-f]{{12}}\.safetensors", older.name):
                continue
            with contextlib.suppress(OSError):
                if older.is_file() and older.name == f"{self.stem}-{_file_digest(older)[:12]}.safetensors":
                    older.unlink()

    def read(self, folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Read manifest and tensors; raise a :class:`CheckpointError` unless they are complete and unaltered."""
        # Beside a process that saves, the file that the manifest named a moment ago may be gone: then the manifest is
        # read again.  A file is missing if it is missing again and again while the manifest says the same.
        until, misses, before = time.monotonic() + _LONGEST_WAIT, 0, ""
        while True:
            manifest = self.read_manifest(folder)
            weights = folder / manifest["weights"]
            try:
                data = _data_of(weights)
                break
            except OSError as error:
                misses, before = misses + 1 if manifest["weights"] == before else 1, manifest["weights"]
                if misses == _MISSES or time.monotonic() > until or not isinstance(error, FileNotFoundError):
                    raise CheckpointError(f"{weights} cannot be read: {error.strerror}") from error
                time.sleep(_PAUSE)
        if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
            raise CheckpointError(f"{weights} is truncated or altered: its SHA-256 is not the one in {self.manifest}")
        try:
            return manifest, safetensors.torch.load(data)
        except Exception as error:  # a header may name formats that safetensors knows and torch does not
            raise CheckpointError(f"{weights} is not a safetensors file: {brief(error)}") from error

    def read_manifest(self, folder: Path) -> dict[str, Any]:
        """Read the manifest alone."""
        file = folder / self.manifest
        try:
            manifest = read_json(file)
        except JSONError as error:
            advice = "" if file.is_file() else f"; is {folder} a checkpoint?"
            raise CheckpointError(f"{error}{advice}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != self.format:
            raise CheckpointError(f'{file} must say "format": "{self.format}"')
        if manifest.get("version") != self.version or type(manifest["version"]) is not int:
            version = repr(manifest.get("version"))
            raise CheckpointError(f"{file} has version {version:.40}; this release reads {self.version}")
        needed = ("format", "version", "weights", "sha256", *self.fields)
        for key in needed:
            if key not in manifest:
                raise CheckpointError(f"{file} lacks the field {key!r}")
        for key in manifest:
            if key not in (*needed, *self.optional, "seal"):
                raise CheckpointError(f"{file} has the field {key[:40]!r}, which this release does not know")
        weights = manifest["weights"]
        if not isinstance(weights, str) or Path(weights).name != weights or "\0" in weights:
            raise CheckpointError(f"{file}: weights must be the name of a file beside it")
        if "seal" not in manifest:
            warnings.warn(
                f"{file} is not sealed: an earlier release wrote it, and nothing tells whether its configuration was "
                "altered; save the model again",
                UnsealedCheckpointWarning,
                stacklevel=4,
            )
        elif manifest["seal"] != _seal(manifest):
            raise CheckpointError(f"{file} was altered: its seal is not the SHA-256 of its content")
        return manifest
