"""Checkpoint folders: tensors and a manifest, replaced by one atomic rename.

The manifest (JSON) names the tensors' file (safetensors) with its SHA-256; that file carries a part of the hash in its
own name, so an old bundle is replaced at the moment the manifest is renamed.  A process killed at any
moment leaves the old bundle or the new one.  The manifest's own SHA-256, its seal, tells whether it was altered.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from transductor.json_reading import JSONError, read_json
from transductor.results import write_atomically

_TRIES: Final = 5  # of reading beside a process that saves again and again


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
    """

    format: str
    version: int
    manifest: str
    stem: str
    fields: tuple[str, ...]

    def write(self, folder: Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> Path:
        """Write or replace the bundle in ``folder``; return the folder."""
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(f"{folder} is a file; a checkpoint is a folder")
        previous = self._previous(folder)
        data = _packed(tensors)
        digest = hashlib.sha256(data).hexdigest()
        weights = f"{self.stem}-{digest[:12]}.safetensors"
        write_atomically(folder / weights, data)
        head = {"format": self.format, "version": self.version, "weights": weights, "sha256": digest}
        plain = json.loads(json.dumps({**head, **content}, allow_nan=False))  # the seal is of what a reader will see
        manifest = json.dumps(plain | {"seal": _seal(plain)}, indent=2, allow_nan=False)
        write_atomically(folder / self.manifest, manifest.encode())
        # A file of another name was not written here, whatever the manifest says.
        if previous not in (None, weights) and re.fullmatch(rf"{self.stem}-[0-9a-f]{{12}}\.safetensors", previous):
            (folder / previous).unlink(missing_ok=True)
        self._sweep(folder)
        return folder

    def _previous(self, folder: Path) -> str | None:
        """Return the tensors' file of the bundle already in the folder; a foreign manifest is not replaced."""
        if not (folder / self.manifest).exists():
            return None
        try:
            return str(self.read_manifest(folder)["weights"])
        except CheckpointError as error:
            raise CheckpointError(
                f"{folder} holds a {self.manifest} that is not a complete checkpoint: {error}"
            ) from error

    def _sweep(self, folder: Path) -> None:
        """Remove what a process that was killed while saving left behind, once no other can still be writing it."""
        for left in (*folder.glob(f".{self.manifest}.*"), *folder.glob(f".{self.stem}-*.safetensors.*")):
            with contextlib.suppress(FileNotFoundError):  # its writer, perhaps another rank, has just finished
                if time.time() - left.stat().st_mtime > 60:
                    left.unlink()

    def read(self, folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Read manifest and tensors; raise a :class:`CheckpointError` unless they are complete and unaltered."""
        manifest = self.read_manifest(folder)
        for _ in range(_TRIES):
            weights = folder / manifest["weights"]
            try:
                if weights.exists() and not weights.is_file():
                    raise CheckpointError(f"{weights} cannot be read: it is not a regular file")
                data = weights.read_bytes()
                break
            except OSError as error:
                before, manifest = manifest, self.read_manifest(folder)
                if manifest == before:  # otherwise another process has just saved, and removed the older file
                    raise CheckpointError(f"{weights} cannot be read: {error.strerror}") from error
        else:
            raise CheckpointError(f"{folder} cannot be read: another process saves to it all the time")
        if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
            raise CheckpointError(f"{weights} is truncated or altered: its SHA-256 is not the one in {self.manifest}")
        try:
            return manifest, safetensors.torch.load(data)
        except SafetensorError as error:
            raise CheckpointError(f"{weights} is not a safetensors file: {error}") from error

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
            raise CheckpointError(f"{file} has version {manifest.get('version')!r}; this release reads {self.version}")
        for key in ("weights", "sha256", *self.fields):
            if key not in manifest:
                raise CheckpointError(f"{file} lacks the field {key!r}")
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
