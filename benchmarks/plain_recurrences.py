"""What layers of flash-linear-attention compute, in plain torch and float32, any length, able to be vmapped.

The library's kernels cannot be stacked over models, some take 16 bits only, and the gradient of one is refused on the
GPU that we have.  Each function here takes one of its layers and a stream ``(B, T, width)``, and returns what the layer
returns; recurrences go in chunks, each one triangular system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# A chunk's decays multiply up; RWKV-7's, one for each channel, are divided by, and e^(0.61 * 64) is a float32 still.
CHUNK, SHORT = 256, 64
Mixed = tuple[Tensor, Tensor | None]


def convolved(values: Tensor, layer: Any) -> Tensor:
    """The causal convolution of each channel, and what follows it."""
    taps = layer.weight.squeeze(1)
    padded = functional.pad(values, (0, 0, taps.shape[-1] - 1, 0))
    parts = [padded[:, at : at + values.shape[1]] * taps[:, at] for at in range(taps.shape[-1])]
    return functional.silu(sum(parts[1:], parts[0]))


def scaled_to_one(values: Tensor, norm: Any) -> Tensor:
    return values * (values.square().mean(-1, keepdim=True) + norm.eps).rsqrt() * norm.weight


def unit(values: Tensor) -> Tensor:
    return values * (values.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def heads(values: Tensor, size: int) -> Tensor:
    return values.unflatten(-1, (-1, size))


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor | None = None, chunk: int = CHUNK) -> Tensor:
    """The (gated) delta rule on ``(B, T, H, …)``.

    With c the running sum of the gates' logarithms and Cᵢⱼ = exp(cᵢ − cⱼ), what each position of a chunk writes is the
    solution u of ``(I + tril(diag(beta) (k kᵀ ∘ C), −1)) u = diag(beta) (v − exp(c) k S)``; what it reads is
    ``exp(c) q S + tril(q kᵀ ∘ C) u``.
    """
    q, k, v, beta = q.transpose(1, 2) * q.shape[-1] ** -0.5, k.transpose(1, 2), v.transpose(1, 2), beta.transpose(1, 2)
    gates = None if g is None else g.transpose(1, 2)
    length, state, read = q.shape[2], None, []
    for begin in range(0, length, chunk):
        now = slice(begin, begin + chunk)
        qs, ks, vs, rate = q[:, :, now], k[:, :, now], v[:, :, now], beta[:, :, now, None]
        products, reads = ks @ ks.mT, qs @ ks.mT
        total = None if gates is None else gates[:, :, now].cumsum(-1)
        if total is not None:
            since = _differences(total).exp()
            products, reads = products * since, reads * since
        system = (rate * products).tril(-1) + torch.eye(qs.shape[2], device=q.device)
        grown = 1.0 if total is None else total.exp()[..., None]
        if state is not None:
            vs = vs - grown * (ks @ state)
        written = torch.linalg.solve_triangular(system, rate * vs, upper=False, unitriangular=True)
        answer = reads.tril() @ written
        if state is not None:
            answer = answer + grown * (qs @ state)
        read.append(answer)
        if begin + chunk < length:
            left = ks if total is None else ks * (total[..., -1:] - total).exp()[..., None]
            kept = 0.0 if state is None else (state if total is None else state * total[..., -1, None, None].exp())
            state = kept + left.mT @ written
    return torch.cat(read, 2).transpose(1, 2)


def _differences(total: Tensor) -> Tensor:
    """Return cᵢ − cⱼ for j ≤ i; beyond, whose exponential may overflow, −∞."""
    later = torch.ones(total.shape[-1], total.shape[-1], dtype=torch.bool, device=total.device).triu(1)
    return (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf)


def general_rule(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, decay: Tensor) -> Tensor:
    """``S ← S (diag(exp(decay)) + a bᵀ) + v kᵀ``, read by q, on ``(B, T, H, …)``: RWKV-7's recurrence."""
    q, k, v, a, b, decay = (each.transpose(1, 2) for each in (q, k, v, a, b, decay))
    length, state, read = q.shape[2], None, []
    for begin in range(0, length, SHORT):
        now = slice(begin, begin + SHORT)
        total = decay[:, :, now].cumsum(-2)
        past, grown = (-total).exp(), total.exp()
        asked, asking = a[:, :, now] * (total - decay[:, :, now]).exp(), q[:, :, now] * grown
        erased, added, values = b[:, :, now] * past, k[:, :, now] * past, v[:, :, now]
        known = (asked @ added.mT).tril(-1) @ values
        if state is not None:
            known = known + asked @ state
        system = torch.eye(values.shape[2], device=q.device) - (asked @ erased.mT).tril(-1)
        found = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
        answer = (asking @ erased.mT).tril() @ found + (asking @ added.mT).tril() @ values
        if state is not None:
            answer = answer + asking @ state
        read.append(answer)
        if begin + SHORT < length:
            fresh = erased.mT @ found + added.mT @ values
            state = (fresh if state is None else state + fresh) * grown[:, :, -1, :, None]
    return torch.cat(read, 2).transpose(1, 2)


def deltanet(layer: Any, stream: Tensor, handed: Tensor | None = None) -> Mixed:
    q, k, v = (
        heads(convolved(project(stream), convolution), layer.head_k_dim)
        for project, convolution in (
            (layer.q_proj, layer.q_conv1d), (layer.k_proj, layer.k_conv1d), (layer.v_proj, layer.v_conv1d)
        )
    )  # fmt: skip
    beta = layer.b_proj(stream).sigmoid() * (2.0 if layer.allow_neg_eigval else 1.0)
    answer = scaled_to_one(delta_rule(unit(q), unit(k), v, beta), layer.o_norm)
    return layer.o_proj(answer.flatten(-2)), handed


def deltaproduct(layer: Any, stream: Tensor, handed: Tensor | None = None) -> Mixed:
    """Each token is as many as there are Householder factors; the last of them is read."""
    count, size = layer.num_householder, layer.head_k_dim
    q = heads(convolved(layer.q_proj(stream), layer.q_conv1d), size)
    k = convolved(layer.k_proj(stream), layer.k_conv1d).unflatten(-1, (count, -1, size)).flatten(1, 2)
    v = convolved(layer.v_proj(stream), layer.v_conv1d).unflatten(-1, (count, -1, size)).flatten(1, 2)
    beta = layer.b_proj(stream).sigmoid() * (2.0 if layer.allow_neg_eigval else 1.0)
    beta = beta.unflatten(-1, (count, -1)).flatten(1, 2)
    spread = functional.pad(unit(q)[:, :, None], (0, 0, 0, 0, count - 1, 0)).flatten(1, 2)
    answer = delta_rule(spread, unit(k), v, beta, chunk=64).unflatten(1, (-1, count))[:, :, -1]
    return layer.o_proj(scaled_to_one(answer, layer.o_norm).flatten(-2)), handed


def gated_deltanet(layer: Any, stream: Tensor, handed: Tensor | None = None) -> Mixed:
    q, k, v = (
        heads(convolved(project(stream), convolution), layer.head_k_dim)
        for project, convolution in (
            (layer.q_proj, layer.q_conv1d), (layer.k_proj, layer.k_conv1d), (layer.v_proj, layer.v_conv1d)
        )
    )  # fmt: skip
    beta = layer.b_proj(stream).sigmoid() * (2.0 if layer.allow_neg_eigval else 1.0)
    gates = -layer.A_log.exp() * functional.softplus(layer.a_proj(stream) + layer.dt_bias)
    answer = scaled_to_one(delta_rule(unit(q), unit(k), v, beta, gates), layer.o_norm)
    return layer.o_proj(answer.flatten(-2) * functional.silu(layer.g_proj(stream))), handed


def mamba2(layer: Any, stream: Tensor, handed: Tensor | None = None) -> Mixed:
    inner, size = layer.intermediate_size, layer.ssm_state_size
    gate, mixed, step = layer.in_proj(stream).split([inner, layer.conv_dim, layer.num_heads], -1)
    taps = layer.conv1d.weight.squeeze(1)
    padded = functional.pad(mixed, (0, 0, taps.shape[-1] - 1, 0))
    parts = [padded[:, at : at + mixed.shape[1]] * taps[:, at] for at in range(taps.shape[-1])]
    mixed = functional.silu(sum(parts[1:], parts[0]) + layer.conv1d.bias)
    values, keys, queries = mixed.split([inner, size, size], -1)
    step = functional.softplus(step + layer.dt_bias)
    decay = (-layer.A_log.exp() * step).mT  # (B, H, T)
    parted = heads(values, layer.head_dim).transpose(1, 2)  # (B, H, T, P)
    moved = parted * step.mT[..., None]
    state, read = None, []
    for begin in range(0, stream.shape[1], CHUNK):
        now = slice(begin, begin + CHUNK)
        total = decay[..., now].cumsum(-1)
        asked, held = queries[:, None, now], keys[:, None, now]
        answer = ((asked @ held.mT) * _differences(total).exp()) @ moved[:, :, now]
        if state is not None:
            answer = answer + total.exp()[..., None] * (asked @ state)
        read.append(answer)
        if begin + CHUNK < stream.shape[1]:
            fresh = (held * (total[..., -1:] - total).exp()[..., None]).mT @ moved[:, :, now]
            state = fresh if state is None else fresh + state * total[..., -1, None, None].exp()
    answer = torch.cat(read, 2) + layer.D[:, None, None] * parted
    answer = answer.transpose(1, 2).flatten(2) * functional.silu(gate)
    return layer.out_proj(scaled_to_one(answer, layer.norm)), handed


def rwkv7(layer: Any, stream: Tensor, handed: Tensor | None = None) -> Mixed:
    """What the first block hands on is its values."""
    delta = functional.pad(stream, (0, 0, 1, 0))[:, :-1] - stream
    mixes = (layer.x_r, layer.x_w, layer.x_k, layer.x_v, layer.x_a, layer.x_g)
    xr, xw, xk, xv, xa, xg = (stream + delta * mix for mix in mixes)
    r, k, v = layer.r_proj(xr), layer.k_proj(xk), layer.v_proj(xv)
    decay = -0.6065306597126334 * layer.w_lora(xw).sigmoid()
    if layer.layer_idx == 0:
        handed = v
    else:
        assert handed is not None
        v = torch.lerp(v, handed, layer.v_lora(xv).sigmoid())
    a, gate = layer.a_lora(xa).sigmoid(), layer.g_lora(xg)
    key = functional.normalize(heads(k * layer.k_k, layer.head_dim), dim=-1)
    k = k + k * (a - 1) * layer.k_a
    r, k, v, a, decay = (heads(each, layer.head_dim) for each in (r, k, v, a, decay))
    answer = general_rule(r, k, v, -key, key * a, decay)
    flat = answer.flatten(-2).flatten(0, 1)
    answer = layer.g_norm(flat).unflatten(0, stream.shape[:2])
    answer = answer + ((r * k * layer.r_k).sum(-1, keepdim=True) * v).flatten(-2)
    return layer.o_proj(answer * gate), handed


PLAIN: dict[str, Callable[[Any, Tensor, Tensor | None], Mixed]] = {
    "deltanet": deltanet,
    "deltaproduct": deltaproduct,
    "gated_deltanet": gated_deltanet,
    "mamba2": mamba2,
    "rwkv7": rwkv7,
}
