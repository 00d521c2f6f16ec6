"""Saves a sidecar in a folder of its own: ``sidecar.json`` and the weights, see :mod:`transductor.model.bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

from torch import Tensor

from transductor.configuration import from_plain, to_plain
from transductor.heads import build_head
from transductor.integrations.huggingface.host_models import Host, host_of
from transductor.integrations.huggingface.sidecar import (
    Sidecar,
    checked_classes,
    checked_layers,
    frozen_to_buffers,
    install,
    sidecar_of,
)
from transductor.model.bundle import Bundle, CheckpointError
from transductor.model.storage import rebuilt
from transductor.typed_values import check_kind

_BUNDLE: Final = Bundle("transductor-sidecar", 1, "sidecar.json", "sidecar", ("host", "layers", "trainable", "head"))


def save_sidecar(model: Any, folder: str | Path) -> Path:
    """Write the sidecar of ``model``, and nothing of the host model, to ``folder``; return the folder.

    A process that is killed while it writes leaves the old files or the new ones.  If the weights are spread over ranks
    (FSDP2), all ranks must call this: the weights are gathered, and every rank writes the same.
    """
    sidecar = sidecar_of(model)
    tensors = {name: _gathered(value).detach().cpu().contiguous() for name, value in sidecar.state_dict().items()}
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise ValueError(f"the sidecar must hold finite numbers; {broken[0]} has NaN or infinity, nothing was written")
    content = {
        "host": _description(host_of(model)),
        "layers": list(sidecar.layers),
        "trainable": [name for name, parameter in sidecar.named_parameters() if parameter.requires_grad],
        "head": to_plain(sidecar.rational_head.config),
    }
    return _BUNDLE.write(Path(folder), tensors, content)


def load_sidecar(model: Any, folder: str | Path) -> Sidecar:
    """Attach a saved sidecar, in the precision it was saved in, to a host model of the same kind and shape.

    Raises:
        CheckpointError: If anything is missing, truncated or altered, or the host model is another one; the model is
            then left as it was.
    """
    folder, host = Path(folder), host_of(model)
    manifest, tensors = _BUNDLE.read(folder)
    file, weights, trainable = folder / "sidecar.json", folder / manifest["weights"], manifest["trainable"]
    saved, present = manifest["host"], _description(host)
    if saved != present:
        raise CheckpointError(f"{file} is for a host model with {_listed(saved)}; this one has {_listed(present)}")

    def described() -> Sidecar:
        check_kind("layers", manifest["layers"], list[int])
        head = build_head(from_plain(manifest["head"]))
        return Sidecar(
            head,
            width=host.width,
            depth=len(host.layers),
            layers=checked_layers(manifest["layers"], len(host.layers)),
            token_classes=checked_classes(tensors.get("token_classes"), head, host),
        )

    sidecar = rebuilt(described, manifest["head"], tensors, file, weights, "sidecar")
    parameters = dict(sidecar.named_parameters())
    if not isinstance(trainable, list) or not all(isinstance(name, str) and name in parameters for name in trainable):
        raise CheckpointError(f"{file}: trainable must be a list of names of parameters")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trainable)
    frozen_to_buffers(sidecar.rational_head)
    install(host, sidecar.to(host.embeddings.get_parameter("weight").device))
    return sidecar


def _gathered(value: Tensor) -> Tensor:
    gather: Any = getattr(value, "full_tensor", None)  # a DTensor's; torch may be built without them
    return value if gather is None else cast(Tensor, gather())


def _description(host: Host) -> dict[str, Any]:
    layers = len(host.layers)
    return {"family": host.model_type, "layers": layers, "width": host.width, "vocab_size": host.vocab_size}


def _listed(host: Any) -> str:
    if not isinstance(host, dict):
        return f"{host!r:.100}"
    return ", ".join(f"{'model_type' if key == 'family' else key} {value!s:.40}" for key, value in host.items())[:300]
