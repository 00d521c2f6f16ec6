"""Checkpoints of models: a folder with ``config.json`` and the weights, see :mod:`transductor.model.bundle`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import nn

from transductor.checks import one_of
from transductor.configuration import from_plain, to_plain
from transductor.heads import FilterHead, HeadConfig, RationalHead, build_head
from transductor.json_reading import brief
from transductor.model.backbone import BackboneConfig
from transductor.model.base import SequenceModel
from transductor.model.bundle import Bundle, CheckpointError, tensors_digest
from transductor.model.filter_readout import FilterReadout, FilterReadoutConfig
from transductor.model.guided import GuidedConfig, GuidedTransformer
from transductor.model.linear_rnn import LinearRNN, LinearRNNConfig
from transductor.model.linear_stack import LinearStack, LinearStackConfig
from transductor.model.lstm import LSTM, LSTMConfig
from transductor.model.rational_readout import RationalReadout, ReadoutConfig
from transductor.model.stacked import StackedConfig, StackedTransductor
from transductor.model.transductor import RationalTransductor, TransductorConfig
from transductor.model.transformer import Transformer
from transductor.transitions import COMPOSITES, FAMILIES, FamilySpec

_BUNDLE: Final = Bundle(
    "transductor-checkpoint", 1, "config.json", "model", ("frozen", "config"), ("letters", "classes")
)

Saveable = SequenceModel[Any] | RationalHead
_Module = TypeVar("_Module", bound=nn.Module)


def build(config: Any) -> Saveable:
    """Build a fresh model or head from its configuration."""
    match config:
        case TransductorConfig():
            return RationalTransductor(
                build_head(config.head),
                config.backbone,
                injection=config.injection,
                projections=config.projections,
            )
        case GuidedConfig():
            return GuidedTransformer(
                config.backbone, config.machine, injection=config.injection, permutation=config.permutation
            )
        case StackedConfig():
            return StackedTransductor([build_head(head) for head in config.heads], config.backbone)
        case LinearStackConfig():
            heads = [build_head(head) for head in config.heads]
            return LinearStack(heads, config.output_size, width=config.width)
        case ReadoutConfig():
            return RationalReadout(build_head(config.head), config.output_size)
        case FilterReadoutConfig():
            head = build_head(config.head)
            if not isinstance(head, FilterHead):
                raise ValueError(f"head must be a filter in a FilterReadoutConfig; got {config.head.head!r}")
            return FilterReadout(head, config.output_size)
        case BackboneConfig():
            return Transformer(config)
        case LSTMConfig():
            return LSTM(**vars(config))
        case LinearRNNConfig():
            return LinearRNN(**vars(config))
        case HeadConfig():
            return build_head(config)
    raise TypeError(f"config must be the configuration of a model or a head; got {type(config).__name__}")


def save(
    model: Saveable,
    path: str | Path,
    *,
    letters: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
) -> Path:
    """Write a model or a head to the folder ``path``; return the folder.

    Args:
        model: A model or a head.
        path: The folder; what it holds of an older checkpoint is replaced.
        letters: The names of the tokens 0, 1, …, if they have any: what :func:`letters_of` returns.
        classes: The names of the outputs 0, 1, …, likewise: what :func:`classes_of` returns.
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
    named = {key: list(names) for key, names in (("letters", letters), ("classes", classes)) if names is not None}
    return _BUNDLE.write(Path(path), tensors, {"frozen": frozen, "config": config, **named})


def letters_of(path: str | Path) -> tuple[str, ...] | None:
    """Return the names of the tokens that a checkpoint was saved with; None where it was saved without."""
    return _names(Path(path), "letters")


def classes_of(path: str | Path) -> tuple[str, ...] | None:
    """Return the names of the outputs that a checkpoint was saved with; None where it was saved without."""
    return _names(Path(path), "classes")


def _names(folder: Path, key: str) -> tuple[str, ...] | None:
    names = _BUNDLE.read_manifest(folder).get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{folder / 'config.json'}: {key} must be a list of names")
    return tuple(names)


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
    file, weights, frozen = folder / "config.json", folder / manifest["weights"], manifest["frozen"]
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if finite and broken:
        raise CheckpointError(f"{weights}: {broken[0]} has NaN or infinity (finite=False loads it)")
    model = rebuilt(lambda: build(from_plain(manifest["config"])), manifest["config"], tensors, file, weights)
    parameters = dict(model.named_parameters())
    if not isinstance(frozen, list) or not all(isinstance(name, str) and name in parameters for name in frozen):
        raise CheckpointError(f"{file}: frozen must be a list of names of parameters")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in frozen)
    return model.to(device).eval()


def rebuilt(
    make: Callable[[], _Module],
    described: Any,
    tensors: Mapping[str, torch.Tensor],
    file: Path,
    weights: Path,
    kind: str = "model",
) -> _Module:
    """Return a module with these tensors in the precision they have, or refuse what a file says before it is made.

    Args:
        make: Makes the module from what the file says.
        described: What the file says, as plain JSON.
        tensors: The tensors, by their names in the module.
        file: The file that describes the module, for messages.
        weights: The file of the tensors, likewise.
        kind: What it describes, likewise.

    Raises:
        CheckpointError: If no module is described, or another one than the tensors are of.
    """
    try:
        numbers = sum(value.numel() for value in tensors.values())
        _check_sizes(described, {"layers": len(tensors), "state_dim": numbers, "parts": len(tensors)})
        with torch.device("meta"):  # which takes no memory: what the file holds is compared before anything is made
            empty = make()
    except Exception as error:  # an altered configuration may break anything; the fault is in the file
        raise CheckpointError(f"{file} does not describe a {kind}: {brief(error)}") from error
    _check_shapes(empty, tensors, file, weights)
    try:
        module = make()
        config = _head_or_model(module).config
        module.load_state_dict(dict(tensors), assign=True)  # assign: every tensor keeps the precision it was saved in
        if _head_or_model(module).config != config:  # the images of permutations are in both
            raise ValueError("its tensors are those of another configuration")
    except Exception as error:
        raise CheckpointError(f"{weights} does not fit its {file.name}: {brief(error)}") from error
    return module


def _head_or_model(module: Any) -> Any:
    """Return the part that has a configuration: the head of a sidecar, or the module itself."""
    return module if hasattr(module, "config") else module.rational_head


def _check_sizes(config: Any, most: Mapping[str, int]) -> None:
    """Refuse more layers or parts than there are tensors, and states larger than all of them: each has some."""
    if isinstance(config, dict):
        for name, limit in most.items():
            value = config.get(name)
            size = len(value) if isinstance(value, list) else value
            if isinstance(size, int) and size > limit:
                raise ValueError(f"{name} is {size}, and the weights have room for {limit}")
        config = list(config.values())
    if isinstance(config, list):
        for value in config:
            _check_sizes(value, most)


def _check_shapes(empty: nn.Module, tensors: Mapping[str, torch.Tensor], file: Path, weights: Path) -> None:
    expected = empty.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        ours, theirs = (
            f"{_kind_of(held[name])} {tuple(held[name].shape)}" if name in held else "left out"
            for held in (expected, tensors)
        )
        if theirs != ours:
            raise CheckpointError(f"{weights} does not fit its {file.name}: {name} must be {ours}; got {theirs}")


def _kind_of(tensor: torch.Tensor) -> str:
    """Return what the numbers of a tensor are: real, in any precision, or of one dtype."""
    return "real" if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
