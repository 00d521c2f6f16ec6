"""Checkpoints of models: a folder with ``config.json`` and the weights, see :mod:`transductor.model.bundle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from transductor.checks import one_of
from transductor.configuration import from_plain, to_plain
from transductor.heads import HeadConfig, RationalHead, build_head
from transductor.model.backbone import BackboneConfig
from transductor.model.base import SequenceModel
from transductor.model.bundle import Bundle, CheckpointError, tensors_digest
from transductor.model.linear_rnn import LinearRNN, LinearRNNConfig
from transductor.model.lstm import LSTM, LSTMConfig
from transductor.model.rational_readout import RationalReadout, ReadoutConfig
from transductor.model.stacked import StackedConfig, StackedTransductor
from transductor.model.transductor import RationalTransductor, TransductorConfig
from transductor.model.transformer import Transformer
from transductor.transitions import COMPOSITES, FAMILIES, FamilySpec

_BUNDLE: Final = Bundle("transductor-checkpoint", 1, "config.json", "model", ("frozen", "config"))

Saveable = SequenceModel[Any] | RationalHead


def build(config: Any) -> Saveable:
    """Build a fresh model or head from its configuration."""
    match config:
        case TransductorConfig():
            return RationalTransductor(build_head(config.head), config.backbone, injection=config.injection)
        case StackedConfig():
            return StackedTransductor([build_head(head) for head in config.heads], config.backbone)
        case ReadoutConfig():
            return RationalReadout(build_head(config.head), config.output_size)
        case BackboneConfig():
            return Transformer(config)
        case LSTMConfig():
            return LSTM(**vars(config))
        case LinearRNNConfig():
            return LinearRNN(**vars(config))
        case HeadConfig():
            return build_head(config)
    raise TypeError(f"config must be the configuration of a model or a head; got {type(config).__name__}")


def save(model: Saveable, path: str | Path, *, letters: Sequence[str] | None = None) -> Path:
    """Write a model or a head to the folder ``path``; return the folder.

    Args:
        model: A model or a head.
        path: The folder; what it holds of an older checkpoint is replaced.
        letters: The names of the tokens 0, 1, …, if they have any: what :func:`letters_of` returns.
    """
    if not isinstance(model, (SequenceModel, RationalHead)):
        raise TypeError(f"model must be a transductor model or head; got {type(model).__name__}")
    config = to_plain(model.config)
    _check_rebuildable(config)
    tensors = _tensors(model)
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise ValueError(f"model must hold finite numbers; {broken[0]} has NaN or infinity, nothing was written")
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    named = {} if letters is None else {"letters": list(letters)}
    return _BUNDLE.write(Path(path), tensors, {"frozen": frozen, "config": config, **named})


def letters_of(path: str | Path) -> tuple[str, ...] | None:
    """Return the names of the tokens that a checkpoint was saved with; None where it was saved without."""
    letters = _BUNDLE.read_manifest(Path(path)).get("letters")
    if letters is None:
        return None
    if not isinstance(letters, list) or not all(isinstance(name, str) for name in letters):
        raise CheckpointError(f"{Path(path) / 'config.json'}: letters must be a list of names")
    return tuple(letters)


def _tensors(model: Saveable) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}


def checkpoint_identity(model: Saveable) -> dict[str, Any]:
    """Return what tells a model from every other: the SHA-256 of its weights, as `save` writes them, and its config."""
    return {"sha256": tensors_digest(_tensors(model)), "config": to_plain(model.config)}


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


def load(path: str | Path, *, device: str | torch.device = "cpu", finite: bool = True) -> Any:
    """Read what :func:`save` wrote: the model or head, in the precision it was saved in, in eval mode.

    Args:
        path: The folder.
        device: Where the model is put.
        finite: Refuse weights that are NaN or infinite; False to look at a model that was damaged.

    Raises:
        CheckpointError: If anything is missing, truncated, altered, or of another kind; no partial model is
            ever returned.
    """
    folder = Path(path)
    manifest, tensors = _BUNDLE.read(folder)
    file, frozen = folder / "config.json", manifest["frozen"]
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if finite and broken:
        raise CheckpointError(
            f"{folder / manifest['weights']}: {broken[0]} has NaN or infinity (finite=False loads it)"
        )
    try:
        config = from_plain(manifest["config"])
        numbers = sum(value.numel() for value in tensors.values())
        _check_sizes(manifest["config"], {"layers": len(tensors), "state_dim": numbers})
        with torch.device("meta"):  # which takes no memory: what the file holds is compared before anything is made
            empty = build(config)
    except Exception as error:  # an altered configuration may break anything; the fault is in the file
        raise CheckpointError(f"{file} does not describe a model: {error}") from error
    _check_shapes(empty, tensors, folder / manifest["weights"])
    parameters = dict(empty.named_parameters())
    if not isinstance(frozen, list) or not all(isinstance(name, str) and name in parameters for name in frozen):
        raise CheckpointError(f"{file}: frozen must be a list of names of parameters")
    model = build(config)
    try:
        # assign: every tensor keeps the precision it was saved in.
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        weights = folder / manifest["weights"]
        raise CheckpointError(f"{weights} does not fit its config.json: {error}") from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return model.to(device).eval()


def _check_sizes(config: Any, most: Mapping[str, int]) -> None:
    """Refuse more layers than there are tensors, and states larger than all of them: each layer and head has some."""
    if isinstance(config, dict):
        for name, limit in most.items():
            if isinstance(config.get(name), int) and config[name] > limit:
                raise ValueError(f"{name} is {config[name]}, and the weights have room for {limit}")
        config = list(config.values())
    if isinstance(config, list):
        for value in config:
            _check_sizes(value, most)


def _check_shapes(empty: Saveable, tensors: Mapping[str, torch.Tensor], weights: Path) -> None:
    expected = {name: tuple(value.shape) for name, value in empty.state_dict().items()}
    for name in sorted(expected.keys() | tensors.keys()):
        theirs = tuple(tensors[name].shape) if name in tensors else "nothing"
        if theirs != expected.get(name, "nothing"):
            raise CheckpointError(
                f"{weights} does not fit its config.json: {name} must be {expected.get(name, 'left out')}; got {theirs}"
            )
