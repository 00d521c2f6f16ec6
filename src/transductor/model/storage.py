"""Checkpoints: safetensors and JSON, committed by one atomic rename.

A checkpoint is a folder.  ``config.json`` holds the configuration and names the weights file with its SHA-256;
the weights carry a part of that hash in their own name, so saving over an old checkpoint replaces it in the
instant ``config.json`` is renamed.  A process killed at any moment leaves the old checkpoint or the new one.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from transductor.configuration import from_plain, to_plain
from transductor.heads import HeadConfig, RationalHead, build_head
from transductor.model.backbone import BackboneConfig
from transductor.model.base import SequenceModel
from transductor.model.linear_rnn import LinearRNN, LinearRNNConfig
from transductor.model.lstm import LSTM, LSTMConfig
from transductor.model.stacked import StackedConfig, StackedTransductor
from transductor.model.transductor import RationalTransductor, TransductorConfig
from transductor.model.transformer import Transformer
from transductor.notation import one_of
from transductor.results import write_atomically
from transductor.transitions import COMPOSITES, FAMILIES, FamilySpec

__all__ = ["CheckpointError", "build", "load", "save"]

_FORMAT = "transductor-checkpoint"
_VERSION = 1

Saveable = SequenceModel[Any] | RationalHead


class CheckpointError(ValueError):
    """A checkpoint that is missing, incomplete or damaged; the message names the file and the reason."""


def build(config: Any) -> Saveable:
    """A fresh model or head from its configuration."""
    match config:
        case TransductorConfig():
            return RationalTransductor(build_head(config.head), config.backbone, injection=config.injection)
        case StackedConfig():
            return StackedTransductor([build_head(head) for head in config.heads], config.backbone)
        case BackboneConfig():
            return Transformer(config)
        case LSTMConfig():
            return LSTM(
                vocab_size=config.vocab_size,
                output_size=config.output_size,
                width=config.width,
                layers=config.layers,
            )
        case LinearRNNConfig():
            return LinearRNN(vocab_size=config.vocab_size, output_size=config.output_size, width=config.width)
        case HeadConfig():
            return build_head(config)
    raise TypeError(f"config must be the configuration of a model or a head; got {type(config).__name__}")


def save(model: Saveable, path: str | Path) -> Path:
    """Write a model or a head to the folder ``path``; returns the folder."""
    if not isinstance(model, (SequenceModel, RationalHead)):
        raise TypeError(f"model must be a transductor model or head; got {type(model).__name__}")
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder")
    previous = _own_weights(folder)
    config = to_plain(model.config)
    _check_rebuildable(config)
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise ValueError(f"model must hold finite numbers; {broken[0]} has NaN or infinity, nothing was written")
    data = safetensors.torch.save(tensors, metadata={"format": "pt"})
    digest = hashlib.sha256(data).hexdigest()
    weights = f"model-{digest[:12]}.safetensors"
    write_atomically(folder / weights, data)
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "weights": weights,
        "sha256": digest,
        "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
        "config": config,
    }
    write_atomically(folder / "config.json", json.dumps(manifest, indent=2, allow_nan=False).encode())
    if previous is not None and previous != weights:
        (folder / previous).unlink(missing_ok=True)
    _sweep(folder)
    return folder


def _own_weights(folder: Path) -> str | None:
    """The weights file of the checkpoint already in the folder; a config.json of somebody else is not replaced."""
    if not (folder / "config.json").exists():
        return None
    try:
        return str(_manifest(folder)["weights"])
    except CheckpointError as error:
        raise CheckpointError(f"{folder} holds a config.json that is no whole checkpoint of ours: {error}") from error


def _check_rebuildable(config: Any) -> None:
    """Refuse, before anything is written, a family that `load` could not find again."""
    if isinstance(config, dict):
        if config.get("kind") == FamilySpec.__name__:
            one_of("family", config["family"], [*FAMILIES, *COMPOSITES])
        for value in config.values():
            _check_rebuildable(value)
    elif isinstance(config, list):
        for value in config:
            _check_rebuildable(value)


def _sweep(folder: Path) -> None:
    """Remove what a process killed while saving left behind, once it is clear that nobody is still writing it."""
    for left in (*folder.glob(".config.json.*"), *folder.glob(".model-*.safetensors.*")):
        if time.time() - left.stat().st_mtime > 60:
            left.unlink(missing_ok=True)


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Any:
    """Read what :func:`save` wrote: the model or head, in the precision it was saved in, in eval mode.

    Raises:
        CheckpointError: If anything is missing, truncated, altered, or of another kind; no partial model is
            ever returned.
    """
    folder = Path(path)
    manifest = _manifest(folder)
    weights = folder / manifest["weights"]
    try:
        data = weights.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{weights} cannot be read: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise CheckpointError(f"{weights} is truncated or altered: its SHA-256 is not the one in config.json")
    try:
        tensors = safetensors.torch.load(data)
    except SafetensorError as error:
        raise CheckpointError(f"{weights} is not a safetensors file: {error}") from error
    try:
        model = build(from_plain(manifest["config"]))
    except Exception as error:  # whatever an altered configuration breaks, it is the file that is wrong
        raise CheckpointError(f"{folder / 'config.json'} does not describe a model: {error}") from error
    try:
        # assign: every tensor keeps the precision it was saved in.
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"{weights} does not fit its config.json: {error}") from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in manifest["frozen"])
    return model.to(device).eval()


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        manifest = json.loads(file.read_text())
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}; is {folder} a checkpoint?") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise CheckpointError(f'{file} must say "format": "{_FORMAT}"')
    if manifest.get("version") != _VERSION:
        raise CheckpointError(f"{file} has version {manifest.get('version')!r}; this release reads {_VERSION}")
    for key in ("weights", "sha256", "frozen", "config"):
        if key not in manifest:
            raise CheckpointError(f"{file} lacks the field {key!r}")
    if not isinstance(manifest["weights"], str) or Path(manifest["weights"]).name != manifest["weights"]:
        raise CheckpointError(f"{file}: weights must be the name of a file beside it")
    return manifest
