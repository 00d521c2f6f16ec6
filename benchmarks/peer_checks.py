"""What the layers of flash-linear-attention really do on this machine.

The eigenvalues of the transitions that a layer makes, with its flag for negative ones off and on; and every operation
that peers train with beside the library's own naive reference, in values and gradients.

Usage: ``python benchmarks/peer_checks.py FILE``, which writes JSON as it goes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from peer_layers import (
    HOUSEHOLDERS,
    PEERS,
    Shape,
    library,
    mixer,
    one_chunk,
    one_chunk_ssd,
    use_gradients_that_are_right,
)

HEADS, DIM, ROWS = 2, 16, 4


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


def compared(name: str, ours: Callable[..., Tensor], right: Callable[..., Tensor], **given: Tensor) -> dict[str, Any]:
    """The largest error of values and of each gradient, as a share of the largest entry; or why there is none."""
    inputs = {key: value.clone().requires_grad_() for key, value in given.items()}
    answer = right(**{key: value.float() for key, value in inputs.items()})
    weights = torch.randn_like(answer)
    wanted = torch.autograd.grad((answer * weights).sum(), list(inputs.values()))
    outcome: dict[str, Any] = {"operation": name, "length": next(iter(given.values())).shape[1]}
    try:
        values = ours(**inputs)
        got = torch.autograd.grad((values.float() * weights).sum(), list(inputs.values()))
    except Exception as error:  # whatever a kernel dies of is what is to be said
        return outcome | {"fails": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
    pairs = {"values": (values, answer)} | {key: (got[at], wanted[at]) for at, key in enumerate(inputs)}
    return outcome | {
        key: float((a.detach().float() - b.detach().float()).abs().max() / b.detach().float().abs().max())
        for key, (a, b) in pairs.items()
    }


def gradient_checks(device: str, lengths: tuple[int, ...] = (40, 160)) -> Iterator[dict[str, Any]]:
    """Every operation beside the library's naive reference, in float32 and where it takes none in bfloat16."""
    yield _mamba2_check(device)
    for length in lengths:
        yield from _delta_checks(length, device)
        yield _product_check(length, device)
        yield _general_check(length, device)


def _vectors(length: int, device: str) -> Tensor:
    return torch.randn(ROWS, length, HEADS, DIM, device=device)


def _unit(values: Tensor) -> Tensor:
    return functional.normalize(values, dim=-1)


def _flipped(operation: Callable[..., Any], *each: Tensor) -> Tensor:
    """Call a reference that wants heads before time."""
    return operation(*(one.transpose(1, 2) for one in each))[0].transpose(1, 2)  # type: ignore[no-any-return]


def _by(operation: Callable[..., Any], dtype: torch.dtype = torch.float32) -> Callable[..., Tensor]:
    def called(**given: Tensor) -> Tensor:
        gates = {"g": given.pop("g")} if "g" in given else {}
        rounded = {key: value.to(dtype) for key, value in given.items()}
        return operation(**rounded, **gates, use_qk_l2norm_in_kernel=True)[0]  # type: ignore[no-any-return]

    return called


def _delta_checks(length: int, device: str) -> list[dict[str, Any]]:
    delta, gated = library("ops.delta_rule"), library("ops.gated_delta_rule")
    slow_delta = library("ops.delta_rule.naive").delta_rule_recurrence
    slow_gated = library("ops.gated_delta_rule.naive").naive_recurrent_gated_delta_rule
    torch.manual_seed(0)
    rule = {name: _vectors(length, device) for name in "qkv"}
    rule["beta"] = 2 * torch.rand(ROWS, length, HEADS, device=device)
    gates = -torch.rand(ROWS, length, HEADS, device=device)

    def right_delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
        return _flipped(slow_delta, _unit(q), _unit(k), v, beta)

    def right_gated(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> Tensor:
        return slow_gated(_unit(q), _unit(k), v, beta, g)[0]  # type: ignore[no-any-return]

    def by_one_chunk(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> Tensor:
        return one_chunk(_unit(q), _unit(k), v, beta, g)

    chunked, half = delta.chunk_delta_rule, torch.bfloat16
    return [
        compared("fused_recurrent_delta_rule", _by(delta.fused_recurrent_delta_rule), right_delta, **rule),
        compared("chunk_delta_rule", _by(chunked), right_delta, **rule),
        compared("chunk_delta_rule, bfloat16", _by(chunked, half), right_delta, **rule),
        compared("chunk_gated_delta_rule", _by(gated.chunk_gated_delta_rule), right_gated, **rule, g=gates),
        compared("one_chunk, gated", by_one_chunk, right_gated, **rule, g=gates),
    ]


def _product_check(length: int, device: str) -> dict[str, Any]:
    slow = library("ops.gated_delta_product.naive").naive_recurrent_gated_delta_product
    many = HOUSEHOLDERS * length
    torch.manual_seed(0)
    given = {"q": _vectors(length, device), "k": _vectors(many, device), "v": _vectors(many, device)}
    given["beta"] = 2 * torch.rand(ROWS, many, HEADS, device=device)

    def right(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
        answer = slow(_unit(q), _unit(k), v, None, beta, DIM**-0.5, num_householder=HOUSEHOLDERS)
        return answer[0]  # type: ignore[no-any-return]

    def ours(**given: Tensor) -> Tensor:
        use_gradients_that_are_right()
        operation = library("layers.gated_deltaproduct").chunk_gated_delta_product
        return operation(**given, num_householder=HOUSEHOLDERS)[0]  # type: ignore[no-any-return]

    return compared("delta product by fused_recurrent_delta_rule", ours, right, **given)


def _general_check(length: int, device: str) -> dict[str, Any]:
    slow = library("ops.generalized_delta_rule.dplr.naive").dplr_recurrence
    fast = library("ops.rwkv7").chunk_rwkv7
    torch.manual_seed(0)
    given = {name: _vectors(length, device) for name in ("r", "k", "v", "kk", "w")}
    given["rate"] = torch.rand(ROWS, length, HEADS, DIM, device=device)
    least = -0.6065306597126334

    def right(r: Tensor, k: Tensor, v: Tensor, kk: Tensor, w: Tensor, rate: Tensor) -> Tensor:
        return _flipped(slow, r * DIM**0.5, k, v, -_unit(kk), _unit(kk) * rate, least * w.sigmoid())

    def ours(r: Tensor, k: Tensor, v: Tensor, kk: Tensor, w: Tensor, rate: Tensor) -> Tensor:
        more = {"scale": 1.0, "safe_gate": True, "lower_bound": least, "chunk_size": 64}
        given = {"r": r, "w": least * w.sigmoid(), "k": k, "v": v, "a": -_unit(kk), "b": _unit(kk) * rate}
        return fast(**given, **more)[0]  # type: ignore[no-any-return]

    return compared("chunk_rwkv7", ours, right, **given)


def _mamba2_check(device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    layer: Any = mixer("mamba2", Shape(1, 24, 3, 16, 0), 0).to(device)
    slow = getattr(library("layers.mamba2").Mamba2, "slow_forward", type(layer).torch_forward)
    given = {"stream": torch.randn(ROWS, 40, 24, device=device)}
    weights = {name: weight.detach() for name, weight in layer.named_parameters()}

    def by(operation: Callable[..., Any]) -> Callable[..., Tensor]:
        def called(stream: Tensor, **values: Tensor) -> Tensor:
            layer.forward = lambda: operation(layer, stream)
            names = {name.replace("_of_", "."): value for name, value in values.items()}
            answer = torch.func.functional_call(layer, names, ())
            return answer[0] if isinstance(answer, tuple) else answer  # type: ignore[no-any-return]

        return called

    given |= {name.replace(".", "_of_"): value for name, value in weights.items()}
    return compared("one_chunk_ssd beside torch_forward", by(one_chunk_ssd), by(slow), **given)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    flags: list[tuple[str, bool]] = [(peer, flag) for peer in PEERS[:3] for flag in (False, True)] + [("rwkv7", False)]
    found: dict[str, list[dict[str, Any]]] = {"eigenvalues": [], "operations": []}
    for place, results in (
        ("eigenvalues", (eigenvalues(*each, device) for each in flags)),
        ("operations", gradient_checks(device)),
    ):
        for result in results:
            found[place].append(result)
            Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
            print(result, flush=True)


if __name__ == "__main__":
    main()
