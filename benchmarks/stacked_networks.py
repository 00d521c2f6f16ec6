"""Small networks of one kind, hundreds of them with stacked weights, trained side by side as one job.

``by_dense``, ``by_lstm`` and ``by_transformer`` say what the three kinds compute, and judge with it.  Training computes
the same faster: the LSTM a layer at a time with a backward pass of its own (:class:`LSTMLayer`), the Transformer
compiled with its products in bfloat16, and of both, on a GPU, the complete step as one recorded graph (:class:`Steps`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

VOCABULARY = 11  # start, then up to ten letters
WIDTH, LAYERS, HEADS, STATE = 64, 2, 4, 32
KINDS = ("lstm", "transformer", "dense")
RATES = {"dense": 5e-3, "lstm": 5e-3, "transformer": 2e-3}
EAGER_STEPS = 3  # before a step is recorded: libraries and the optimiser make their workspaces in the first
Weights = dict[str, Tensor]


def started(kind: str, count: int, generator: torch.Generator, device: str) -> Weights:
    """Stacked weights of networks of one kind."""

    def normal(*shape: int, scale: float) -> Tensor:
        values = torch.randn(count, *shape, generator=generator) * scale
        return values.to(device).requires_grad_()

    def fixed(*shape: int, value: float = 0.0) -> Tensor:
        return torch.full((count, *shape), value, device=device).requires_grad_()

    if kind == "dense":
        eye = torch.eye(STATE).expand(count, VOCABULARY, STATE, STATE)
        noise = torch.randn(count, VOCABULARY, STATE, STATE, generator=generator) * (0.3 / math.sqrt(STATE))
        return {
            "matrices": (eye * 0.9 + noise).to(device).requires_grad_(),
            "initial": normal(STATE, scale=1 / math.sqrt(STATE)),
            "readout": normal(2, STATE, scale=1 / math.sqrt(STATE)),
            "bias": fixed(2),
        }
    if kind == "lstm":
        weights = {"inputs": normal(VOCABULARY, 4 * WIDTH, scale=1 / math.sqrt(WIDTH))}
        for layer in range(LAYERS):
            weights[f"hidden{layer}"] = normal(WIDTH, 4 * WIDTH, scale=1 / math.sqrt(WIDTH))
            weights[f"between{layer}"] = normal(WIDTH, 4 * WIDTH, scale=1 / math.sqrt(WIDTH))
            weights[f"bias{layer}"] = fixed(4 * WIDTH)
    else:
        weights = {"inputs": normal(VOCABULARY, WIDTH, scale=1.0)}
        for layer in range(LAYERS):
            weights |= {
                f"attention{layer}": normal(WIDTH, 3 * WIDTH, scale=1 / math.sqrt(WIDTH)),
                f"joined{layer}": normal(WIDTH, WIDTH, scale=1 / math.sqrt(2 * LAYERS * WIDTH)),
                f"wide{layer}": normal(WIDTH, 4 * WIDTH, scale=1 / math.sqrt(WIDTH)),
                f"narrow{layer}": normal(4 * WIDTH, WIDTH, scale=1 / math.sqrt(8 * LAYERS * WIDTH)),
                f"scale_one{layer}": fixed(WIDTH, value=1.0),
                f"scale_two{layer}": fixed(WIDTH, value=1.0),
            }
    return weights | {"readout": normal(2, WIDTH, scale=1 / math.sqrt(WIDTH)), "bias": fixed(2)}


def by_dense(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    count, rows, length = tokens.shape
    state = weights["initial"][:, None, :].expand(count, rows, STATE)
    final = state
    flat = weights["matrices"].permute(0, 1, 3, 2).reshape(count, VOCABULARY * STATE, STATE)
    for time_ in range(length):
        # One product of all letters' matrices: the state sits in the block of its letter.
        chosen = functional.one_hot(tokens[:, :, time_], VOCABULARY).to(state.dtype)
        blocks = (chosen[..., None] * state[:, :, None, :]).reshape(count, rows, -1)
        state = torch.bmm(blocks, flat)
        final = torch.where((last == time_)[..., None], state, final)
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def by_lstm(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    count, rows, length = tokens.shape
    zero = torch.zeros(count, rows, WIDTH, device=tokens.device)
    hidden, cell = [zero] * LAYERS, [zero] * LAYERS
    final = zero
    at = torch.arange(count, device=tokens.device)[:, None]
    for time_ in range(length):
        below: Tensor | None = None
        for layer in range(LAYERS):
            gates = torch.baddbmm(weights[f"bias{layer}"][:, None], hidden[layer], weights[f"hidden{layer}"])
            if below is None:
                gates = gates + weights["inputs"][at, tokens[:, :, time_]]
            else:
                gates = torch.baddbmm(gates, below, weights[f"between{layer}"])
            add, forget, value, show = gates.chunk(4, -1)
            cell[layer] = torch.sigmoid(forget + 1) * cell[layer] + torch.sigmoid(add) * torch.tanh(value)
            hidden[layer] = torch.sigmoid(show) * torch.tanh(cell[layer])
            below = hidden[layer]
        final = torch.where((last == time_)[..., None], hidden[-1], final)
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def by_transformer(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    """Pre-norm, causal, rotary positions."""
    count, rows, length = tokens.shape
    stream = weights["inputs"][torch.arange(count, device=tokens.device)[:, None, None], tokens]
    for layer in range(LAYERS):
        normed = functional.layer_norm(stream, (WIDTH,)) * weights[f"scale_one{layer}"][:, None, None]
        joined = torch.einsum("mbtw,mwx->mbtx", normed, weights[f"attention{layer}"])
        query, key, value = (
            part.reshape(count * rows, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in joined.chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(count, rows, length, WIDTH)
        stream = stream + torch.einsum("mbtw,mwx->mbtx", mixed, weights[f"joined{layer}"])
        normed = functional.layer_norm(stream, (WIDTH,)) * weights[f"scale_two{layer}"][:, None, None]
        wide = functional.gelu(torch.einsum("mbtw,mwx->mbtx", normed, weights[f"wide{layer}"]))
        stream = stream + torch.einsum("mbtw,mwx->mbtx", wide, weights[f"narrow{layer}"])
    final = functional.layer_norm(stream, (WIDTH,))
    final = final.gather(2, last[:, :, None, None].expand(-1, -1, 1, WIDTH))[:, :, 0]
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def rotated(values: Tensor) -> Tensor:
    length, size = values.shape[-2:]
    return turned(values, torch.arange(length, device=values.device)[:, None] * rates_of(size, values.device))


def rates_of(size: int, device: torch.device) -> Tensor:
    return 10_000.0 ** (-torch.arange(0, size, 2, device=device) / size)


def turned(values: Tensor, angles: Tensor) -> Tensor:
    even, odd = values[..., ::2], values[..., 1::2]
    both = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(both, -1).flatten(-2)


FORWARD: dict[str, Callable[[Weights, Tensor, Tensor], Tensor]] = {
    "dense": by_dense,
    "lstm": by_lstm,
    "transformer": by_transformer,
}


def shown(tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """One-hot tokens ``(…, 16)``: a product with them has a gradient that is a product, where indexing must sort."""
    return (tokens[..., None] == torch.arange(16, device=tokens.device)).to(dtype)


def table_of(weights: Weights) -> Tensor:
    return functional.pad(weights["inputs"], (0, 0, 0, 16 - VOCABULARY))


class LSTMLayer(torch.autograd.Function):
    """A layer of every network over all times: inputs ``(T, M, B, I)`` to hidden states ``(T, M, B, W)``.

    On a GPU the gates are PyTorch's own fused kernels, forwards and backwards.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, between: Tensor, bias: Tensor, recurrent: Tensor) -> Tensor:
        length, count, rows, _ = inputs.shape
        width = recurrent.shape[1]
        hidden = inputs.new_empty(length + 1, count, rows, width)
        cells, gates = torch.empty_like(hidden), inputs.new_empty(length, count, rows, 4 * width)
        hidden[0], cells[0] = 0, 0
        offset = torch.zeros(4, width, device=inputs.device)
        offset[1] = 1  # a cell forgets little at first
        added = (bias + offset.flatten())[:, None]
        for time in range(length):
            below = torch.baddbmm(added, inputs[time], between)
            own = torch.bmm(hidden[time], recurrent)
            shape = (count * rows, -1)
            hidden_now, cell_now, gates_now = _cell(below.view(shape), own.view(shape), cells[time].view(shape))
            hidden[time + 1], cells[time + 1] = hidden_now.view_as(hidden[0]), cell_now.view_as(hidden[0])
            gates[time] = gates_now.view_as(gates[0])
        ctx.save_for_backward(inputs, between, recurrent, hidden, cells, gates)
        return hidden[1:]

    @staticmethod
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:  # type: ignore[override]
        inputs, between, recurrent, hidden, cells, gates = ctx.saved_tensors
        length, count, rows, _ = inputs.shape
        by_inputs = torch.empty_like(inputs) if ctx.needs_input_grad[0] else None
        by_between, by_recurrent = torch.zeros_like(between), torch.zeros_like(recurrent)
        by_bias = inputs.new_zeros(count, gates.shape[-1])
        by_hidden, by_cell = torch.zeros_like(hidden[0]), torch.zeros_like(cells[0])
        shape = (count * rows, -1)
        for time in reversed(range(length)):
            by_hidden = by_hidden + wanted[time]
            by_gates, by_cell = _cell_backward(
                by_hidden.view(shape),
                by_cell.view(shape),
                cells[time].view(shape),
                cells[time + 1].view(shape),
                gates[time].view(shape),
            )
            by_gates = by_gates.view(count, rows, -1)
            by_hidden = torch.bmm(by_gates, recurrent.transpose(1, 2))
            if by_inputs is not None:
                torch.bmm(by_gates, between.transpose(1, 2), out=by_inputs[time])
            by_between.baddbmm_(inputs[time].transpose(1, 2), by_gates)
            by_recurrent.baddbmm_(hidden[time].transpose(1, 2), by_gates)
            by_bias += by_gates.sum(1)
        return by_inputs, by_between, by_bias, by_recurrent


def _cell(below: Tensor, own: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden state, cell and the four gates after their nonlinearities."""
    if below.is_cuda:
        return torch.ops.aten._thnn_fused_lstm_cell(below, own, cell)  # type: ignore[no-any-return]
    add, forget, value, show = (below + own).chunk(4, -1)
    add, forget, value, show = add.sigmoid(), forget.sigmoid(), value.tanh(), show.sigmoid()
    after = forget * cell + add * value
    return show * after.tanh(), after, torch.cat([add, forget, value, show], -1)


def _cell_backward(
    by_hidden: Tensor, by_cell: Tensor, before: Tensor, after: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the gates before their nonlinearities, and of the cell before."""
    if gates.is_cuda:
        by_gates, by_before, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(
            by_hidden, by_cell, before, after, gates, False
        )
        return by_gates, by_before
    add, forget, value, show = gates.chunk(4, -1)
    seen = after.tanh()
    by_cell = by_cell + by_hidden * show * (1 - seen**2)
    parts = (
        by_cell * value * add * (1 - add),
        by_cell * before * forget * (1 - forget),
        by_cell * add * (1 - value**2),
        by_hidden * seen * show * (1 - show),
    )
    return torch.cat(parts, -1), by_cell * forget


def quick_lstm(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    """What :func:`by_lstm` computes, a layer at a time."""
    stream = shown(tokens.permute(2, 0, 1), torch.float32)
    between = table_of(weights)
    for layer in range(LAYERS):
        stream = LSTMLayer.apply(stream, between, weights[f"bias{layer}"], weights[f"hidden{layer}"])
        between = weights.get(f"between{layer + 1}", between)
    final = stream.gather(0, last[None, :, :, None].expand(-1, -1, -1, WIDTH))[0]
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def quick_transformer(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    """What :func:`by_transformer` computes: the last layer for the last letter alone, products in bfloat16 on a GPU."""
    count, rows, length = tokens.shape
    size = WIDTH // HEADS
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        table = table_of(weights)
        stream = torch.bmm(shown(tokens, table.dtype).view(count, rows * length, 16), table).float()
        for layer in range(LAYERS - 1):
            normed = functional.layer_norm(stream, (WIDTH,)) * weights[f"scale_one{layer}"][:, None]
            joined = torch.bmm(normed, weights[f"attention{layer}"])
            query, key, value = (
                part.reshape(count * rows, length, HEADS, size).transpose(1, 2) for part in joined.chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(
                rotated(query).to(value.dtype), rotated(key).to(value.dtype), value, is_causal=True
            )
            mixed = mixed.transpose(1, 2).reshape(count, rows * length, WIDTH)
            stream = stream + torch.bmm(mixed, weights[f"joined{layer}"])
            stream = stream + _widened(weights, layer, stream)
        layer = LAYERS - 1
        normed = functional.layer_norm(stream, (WIDTH,)) * weights[f"scale_one{layer}"][:, None]
        joined = torch.bmm(normed, weights[f"attention{layer}"][:, :, WIDTH:])
        key, value = (part.reshape(count, rows, length, HEADS, size).float() for part in joined.chunk(2, -1))
        query = torch.bmm(_at(normed, last, length), weights[f"attention{layer}"][:, :, :WIDTH]).float()
        angles = last[:, :, None, None] * rates_of(size, tokens.device)
        query = turned(query.view(count, rows, HEADS, size), angles)
        key = rotated(key.transpose(2, 3)).transpose(2, 3)
        scores = (query[:, :, None] * key).sum(-1) / math.sqrt(size)
        later = torch.arange(length, device=tokens.device) > last[..., None]
        chances = scores.masked_fill(later[..., None], -math.inf).softmax(2)
        mixed = (chances[..., None] * value).sum(2).reshape(count, rows, WIDTH)
        final = _at(stream, last, length) + torch.bmm(mixed, weights[f"joined{layer}"])
        final = final + _widened(weights, layer, final)
    final = functional.layer_norm(final.float(), (WIDTH,))
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def _widened(weights: Weights, layer: int, stream: Tensor) -> Tensor:
    normed = functional.layer_norm(stream, (WIDTH,)) * weights[f"scale_two{layer}"][:, None]
    return torch.bmm(functional.gelu(torch.bmm(normed, weights[f"wide{layer}"])), weights[f"narrow{layer}"])


def _at(stream: Tensor, last: Tensor, length: int) -> Tensor:
    """Rows ``(M, B, W)`` of a stream ``(M, B·T, W)`` at the last letter of each word."""
    count, rows = last.shape
    index = last[:, :, None, None].expand(-1, -1, 1, WIDTH)
    return stream.view(count, rows, length, WIDTH).gather(2, index)[:, :, 0]


class Steps:
    """Training steps of all networks on rows of their samples; on a GPU one step is recorded and then repeated.

    Dense readouts see short words first, so that each of their steps is another, and none is recorded.
    """

    def __init__(
        self, kind: str, weights: Weights, tokens: Tensor, last: Tensor, labels: Tensor, batch: int, *, record: bool
    ) -> None:
        self.kind, self.weights = kind, weights
        self.tokens, self.last, self.labels = tokens, last, labels
        device = tokens.device
        self.at = torch.arange(len(tokens), device=device)[:, None]
        self.rows = torch.zeros(len(tokens), batch, dtype=torch.int64, device=device)
        self.rate = torch.tensor(0.0, device=device)
        self.loss = torch.zeros((), device=device)
        cuda = device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            list(weights.values()), lr=self.rate, weight_decay=0.0, fused=cuda, capturable=cuda, foreach=False
        )
        quick = {
            "lstm": quick_lstm,
            "transformer": torch.compile(quick_transformer) if record and cuda else quick_transformer,
        }
        self.forward = quick.get(kind, FORWARD[kind])
        self.recorded: torch.cuda.CUDAGraph | None = None
        self.eager = EAGER_STEPS if record and cuda and kind in quick else math.inf

    def step(self, rows: Tensor, rate: float, longest: int) -> None:
        """Train on the chosen rows ``(M, B)``; words longer than ``longest`` are left out."""
        self.rows.copy_(rows, non_blocking=True)
        self.rate.fill_(rate)
        if self.recorded is not None:
            self.recorded.replay()
        elif self.eager == math.inf:
            self._computed(longest)
        elif self.eager > 0:
            self.eager -= 1
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._computed(longest)
            torch.cuda.current_stream().wait_stream(side)
        else:
            torch.cuda.synchronize()
            self.recorded = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.recorded):
                self._computed(longest)
            self.recorded.replay()

    def _computed(self, longest: int) -> None:
        tokens = self.tokens[self.at, self.rows, : longest + 1].long()
        last, labels = self.last[self.at, self.rows], self.labels[self.at, self.rows]
        labels = torch.where(last > longest, -100, labels)
        logits = self.forward(self.weights, tokens, last.clamp_max(longest))
        losses = functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="none", label_smoothing=0.1, ignore_index=-100
        ).view(labels.shape)
        loss = (losses.sum(1) / (labels != -100).sum(1).clamp_min(1)).sum()
        # Not backward(): it adds gradients up on the stream where weights were first used, which no recording allows.
        weights = list(self.weights.values())
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
            weight.grad = gradient
        clip(weights)
        self.optimiser.step()
        self.loss.copy_(loss.detach())


def clip(weights: list[Tensor]) -> None:
    """Clip each network's gradients by its own norm."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    factor = torch.nan_to_num((1.0 / (norm + 1e-6)).clamp_max(1.0))
    for gradient in gradients:
        torch.nan_to_num_(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
