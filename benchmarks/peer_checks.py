"""What the layers of flash-linear-attention really do on this machine.

The eigenvalues of the transitions that a layer makes, with its flag for negative ones off and on; and values and
gradients of the library's kernels beside the plain forms that peers run by (:mod:`plain_recurrences`).

Usage: ``python benchmarks/peer_checks.py FILE``, which writes JSON as it goes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from peer_layers import PEERS, Shape, library, mixer
from plain_recurrences import PLAIN


def eigenvalues(peer: str, flag: bool, device: str) -> dict[str, Any]:
    """The least and the largest real part of eigenvalues of the transitions that a layer makes of large inputs."""
    shape = Shape(1, 32, 2, 16, 0)
    torch.manual_seed(0)
    layer = mixer(peer, shape, 0).to(device)
    if hasattr(layer, "allow_neg_eigval"):
        layer.allow_neg_eigval = flag
    if peer == "rwkv7":  # its start has small gates
        for parameter in layer.parameters():
            parameter.data.add_(torch.randn_like(parameter))
    operations = {
        "deltanet": ("layers.delta_net", "fused_recurrent_delta_rule"),
        "deltaproduct": ("layers.gated_deltaproduct", "fused_recurrent_gated_delta_rule"),
        "gated_deltanet": ("layers.gated_deltanet", "fused_recurrent_gated_delta_rule"),
        "rwkv7": ("layers.rwkv7", "fused_mul_recurrent_rwkv7"),
    }
    module, name = operations[peer]
    own = getattr(library(module), name)
    seen: list[Tensor] = []

    def watched(**given: Any) -> Any:
        """Run one token from the identity with nothing written: the state that is left is the transition."""
        result = own(**given)
        rows, heads, dim = len(given["v"]), given["v"].shape[2], given["v"].shape[-1]
        start = torch.eye(dim, device=device).expand(rows, heads, dim, dim).contiguous()
        silent = {"v": torch.zeros_like(given["v"]), "initial_state": start, "output_final_state": True}
        seen.append(own(**{**given, **silent})[1])
        return result

    setattr(library(module), name, watched)
    try:
        with torch.no_grad():
            layer.eval()(20 * torch.randn(512, 1, 32, device=device))
    finally:
        setattr(library(module), name, own)
    values = torch.linalg.eigvals(torch.cat(seen).double().cpu())
    return {
        "peer": peer,
        "negative eigenvalues allowed": flag if hasattr(layer, "allow_neg_eigval") else None,
        "least real part": round(float(values.real.min()), 4),
        "largest modulus": round(float(values.abs().max()), 4),
    }


def compared(peer: str, length: int, device: str, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """What the library's kernels compute beside the plain form in float32: the largest errors, as shares."""
    torch.manual_seed(0)
    layer: Any = mixer(peer, Shape(1, 32, 2, 16, 0), 0).to(device).train()
    for parameter in layer.parameters():  # some starts are zero
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    stream = torch.randn(4, length, 32, device=device, requires_grad=True)
    wanted, weights = PLAIN[peer](layer, stream, None)[0], torch.randn(4, length, 32, device=device)
    inputs = {"stream": stream, **dict(layer.named_parameters())}
    right = torch.autograd.grad((wanted * weights).sum(), list(inputs.values()))
    found: dict[str, Any] = {"layer": peer, "length": length, "dtype": str(dtype).removeprefix("torch.")}
    if dtype != torch.float32:
        layer.mode = "chunk"
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        with torch.no_grad():
            found["values"] = _refused(lambda: _error(layer.eval()(stream)[0], wanted))
        layer.train()
        given = _refused(lambda: torch.autograd.grad((layer(stream)[0] * weights).sum(), list(inputs.values())))
    if isinstance(given, str):
        return found | {"gradients": given}
    errors = {name: _error(*pair) for name, *pair in zip(inputs, given, right, strict=True)}
    return found | {"gradients": max(errors.values()), "worst gradient": max(errors, key=lambda name: errors[name])}


def _error(ours: Tensor, right: Tensor) -> float:
    ours, right = ours.detach().float(), right.detach().float()
    return float((ours - right).abs().max() / right.abs().max().clamp_min(1e-9))


def _refused(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or why it gives nothing."""
    try:
        return call()
    except Exception as error:  # whatever a kernel dies of is what is to be said
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:250]}"


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    flags: list[tuple[str, bool]] = [(peer, flag) for peer in PEERS[:3] for flag in (False, True)] + [("rwkv7", False)]
    cases = [(peer, length) for length in (40, 160) for peer in PEERS]
    half = [(peer, 160, device, torch.bfloat16) for peer in ("deltanet", "deltaproduct")]
    machine = torch.cuda.get_device_name() if device == "cuda" else device
    found: dict[str, Any] = {"machine": f"{machine}, torch {torch.__version__}", "eigenvalues": [], "kernels": []}
    for place, results in (
        ("kernels", (compared(*case, device) for case in cases)),
        ("eigenvalues", (eigenvalues(*each, device) for each in flags)),
        ("kernels", (compared(*case) for case in half)),
    ):
        for result in results:
            found[place].append(result)
            Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
            print(result, flush=True)


if __name__ == "__main__":
    main()
