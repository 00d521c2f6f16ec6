"""The contenders are our scan as a user calls it, its backends, and what others ship.

A peer that is not installed, refuses or runs out of memory raises an error; the study records the reason.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transductor.bench.workloads import Case, Operands
from transductor.recurrence import BACKENDS, scan


class Unavailable(RuntimeError):
    """A peer cannot run here; the message is the reason."""


@dataclass(frozen=True)
class BoundCall:
    """A contender with its operands in place.

    ``forward`` gives the states, ``forward_backward`` the states and the gradients of matrices and initial state
    (of its own inputs, for a peer that computes something else).  ``wait`` waits for a library with streams of its
    own; ``numbers`` turns a result into torch tensors.
    """

    forward: Callable[[], Any]
    forward_backward: Callable[[], tuple[Any, ...]]
    wait: Callable[[Any], object] | None = None
    numbers: Callable[[Any], Tensor] = lambda value: value


@dataclass(frozen=True)
class Contender:
    """A name and a way to bind operands.

    Args:
        ours: Whether it is our own: a wrong result then stops the study.
        same: Whether it computes our recurrence, so that its values can be compared.
        dense: Whether it holds a matrix per position, and per round when differentiated.
        growth: Power of T by which it slows down.
        longest: Largest T by device; beyond it a call takes minutes.
        capturable: Whether a CUDA graph can hold it.  A call that waits for the host cannot be captured, and a
            capture that breaks disturbs the contenders after it.
    """

    name: str
    bind: Callable[[Operands], BoundCall]
    ours: bool = False
    same: bool = True
    dense: bool = False
    growth: int = 1
    longest: Mapping[str, int] = field(default_factory=dict)
    capturable: bool = True

    def footprint(self, case: Case, act: str) -> int:
        """Estimate roughly the bytes that a call needs."""
        positions = case.batch * case.time
        if not self.dense:
            return 12 * 4 * positions * case.dim
        rounds = max(1, case.time.bit_length())
        return 4 * positions * case.dim**2 * (3 * rounds if act == "forward_backward" else 4)


def all_contenders(device: str) -> list[Contender]:
    """Return all contenders, ours first; backends are taken as they are registered."""
    backends = [
        Contender(name, library(name), ours=True, dense=name == "reference", capturable=name == "triton")
        for name in BACKENDS
        # Kogge–Stone is timed below without our checks, which is kinder to it.  On a GPU the plain loop also stands for
        # the reference.  Kernels are timed on the device they are written for.
        if name not in ("kogge_stone", *(("reference", "numba") if device == "cuda" else ("triton",)))
    ]
    return [
        Contender("auto", library("auto"), ours=True),
        *backends,
        Contender("kogge_stone", _bound(_kogge_stone), dense=True),
        Contender("loop", _bound(_loop), longest={"cuda": 2048}, capturable=False),
        Contender("associative_scan", _bound(_associative_scan), dense=True),
        Contender("jax", _jax, dense=True),
        Contender("attention", _attention, same=False, growth=2),
        Contender("lstm", _lstm, same=False, longest={"cuda": 32_768}),
        Contender("delta_rule", _delta_rule, same=False),
    ]


def untimed_backends() -> list[Contender]:
    """Return backends that are checked like the others, but timed only in a form without our checks."""
    return [Contender("kogge_stone backend", library("kogge_stone"), ours=True, dense=True)]


def _differentiable(states: Callable[[], Tensor], leaves: tuple[Tensor, ...], cotangent: Tensor) -> BoundCall:
    def forward() -> Tensor:
        with torch.no_grad():
            return states()

    def forward_backward() -> tuple[Tensor, ...]:
        values = states()
        return values.detach(), *torch.autograd.grad(values, leaves, cotangent)

    return BoundCall(forward, forward_backward)


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_()


def library(name: str) -> Callable[[Operands], BoundCall]:
    """Bind our scan with this backend."""

    def bind(operands: Operands) -> BoundCall:
        matrices, start = _leaf(operands.matrices), _leaf(operands.start)
        bias = None if operands.bias is None else _leaf(operands.bias)
        leaves = (matrices, start) if bias is None else (matrices, start, bias)
        case, blocks, inside = operands.case, None, None
        if case.blocks > 1:  # where a direct sum is zero, backends differ in what they give as its gradient
            blocks = [case.dim // case.blocks] * case.blocks
            inside = torch.block_diag(*(start.new_ones(size, size) for size in blocks)).detach()
        return _differentiable(
            lambda: scan(
                matrices if inside is None else matrices * inside,
                operands.tokens,
                bias=bias,
                initial_state=start,
                mask=operands.mask,
                cu_seqlens=operands.cu_seqlens,
                blocks=blocks,
                backend=name,
            ),
            leaves,
            operands.cotangent,
        )

    return bind


def _bound(states: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Operands], BoundCall]:
    """Bind a peer ``states(table, tokens, start)`` that reads a table and has no options."""

    def bind(operands: Operands) -> BoundCall:
        if operands.tokens is None or not operands.plain:
            raise Unavailable("reads a table and tokens only")
        table, tokens, start = _leaf(operands.matrices), operands.tokens, _leaf(operands.start)
        return _differentiable(lambda: states(table, tokens, start), (table, start), operands.cotangent)

    return bind


def _loop(table: Tensor, tokens: Tensor, start: Tensor) -> Tensor:
    """Run the loop a person would write: `M @ h` per step, without checks."""
    states = []
    if len(tokens) == 1:
        matrices, state = table.unbind(0), start
        for token in tokens[0].tolist():
            state = matrices[token] @ state
            states.append(state)
        return torch.stack(states)[None]
    state = start.expand(len(tokens), -1).unsqueeze(-1)
    for column in tokens.unbind(1):
        state = table[column] @ state
        states.append(state)
    return torch.stack(states, 1).squeeze(-1)


def _kogge_stone(table: Tensor, tokens: Tensor, start: Tensor) -> Tensor:
    """Run the paper's algorithm: prefix products by doubling."""
    product, reach = table[tokens], 1
    while reach < tokens.shape[1]:
        product = torch.cat((product[:, :reach], product[:, reach:] @ product[:, :-reach]), 1)
        reach *= 2
    return product @ start


def _associative_scan(table: Tensor, tokens: Tensor, start: Tensor) -> Tensor:
    """Run torch's own scan, generic and eager: a captured graph holds no Python that compiling could remove."""
    operator = importlib.import_module("torch._higher_order_ops.associative_scan").associative_scan
    products: Tensor = operator(lambda earlier, later: later @ earlier, table[tokens], dim=1, combine_mode="generic")
    return products @ start


@cache
def _jax_functions() -> tuple[Any, Any, Any]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch needs the memory too
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        raise Unavailable("jax is not installed") from None
    numpy = importlib.import_module("jax.numpy")

    def states(table: Any, start: Any, tokens: Any) -> Any:
        # "highest" is float32; the default on a GPU is TF32, whose values are wrong at T = 32 768.
        products = jax.lax.associative_scan(
            lambda earlier, later: numpy.matmul(later, earlier, precision="highest"), table[tokens], axis=1
        )
        return numpy.matmul(products, start, precision="highest")

    def with_gradients(table: Any, start: Any, tokens: Any, cotangent: Any) -> tuple[Any, ...]:
        values, pull = jax.vjp(lambda m, h: states(m, h, tokens), table, start)
        return (values, *pull(cotangent))

    return jax, jax.jit(states), jax.jit(with_gradients)


def _jax(operands: Operands) -> BoundCall:
    if operands.tokens is None or not operands.plain:
        raise Unavailable("reads a table and tokens only")
    jax, states, with_gradients = _jax_functions()
    platform = "gpu" if operands.start.is_cuda else "cpu"
    if platform == "gpu" and jax.default_backend() != "gpu":
        raise Unavailable(f"jax sees only {jax.default_backend()}")
    place = jax.devices(platform)[0]

    def moved(value: Tensor) -> Any:
        return jax.device_put(value.detach().cpu().numpy(), place)

    table, start, cotangent = (moved(value) for value in (operands.matrices, operands.start, operands.cotangent))
    tokens = moved(operands.tokens.int())
    return BoundCall(
        lambda: states(table, start, tokens),
        lambda: with_gradients(table, start, tokens, cotangent),
        wait=jax.block_until_ready,
        numbers=lambda value: torch.tensor(importlib.import_module("numpy").asarray(value)),
    )


def _noise(operands: Operands, *shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=operands.start.device).to(dtype)


def _attention(operands: Operands) -> BoundCall:
    """Bind causal attention, four heads of 16, through SDPA; in bfloat16 on a GPU, which its fast kernels need."""
    device, dtype = operands.start.device, torch.bfloat16 if operands.start.is_cuda else torch.float32
    shape = operands.case.batch, 4, operands.case.time, 16
    query, key, value, cotangent = (_leaf(torch.randn(shape, device=device).to(dtype)) for _ in range(4))
    return _differentiable(
        lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        (query, key, value),
        cotangent.detach(),
    )


def _lstm(operands: Operands) -> BoundCall:
    """Bind nn.LSTM with as many units as the state has numbers, which is cuDNN's on a GPU."""
    units = operands.case.dim
    network = nn.LSTM(units, units, batch_first=True).to(operands.start.device)
    drive = _leaf(_noise(operands, operands.case.batch, operands.case.time, units, dtype=torch.float32))

    def states() -> Tensor:
        network.train(torch.is_grad_enabled())  # inference needs no reserve for a backward pass
        outputs: Tensor = network(drive)[0]
        return outputs

    return _differentiable(states, (drive, *network.parameters()), torch.randn_like(drive))


def _delta_rule(operands: Operands) -> BoundCall:
    """Bind flash-linear-attention's chunked delta rule, one head of 16, in bfloat16."""
    if not operands.start.is_cuda:
        raise Unavailable("its kernels need a GPU")
    try:
        chunk_delta_rule = importlib.import_module("fla.ops.delta_rule").chunk_delta_rule
    except ImportError as error:
        raise Unavailable(f"fla cannot be imported: {error}") from None
    shape = operands.case.batch, operands.case.time, 1, 16
    query, key, value = (_noise(operands, *shape, dtype=torch.bfloat16) for _ in range(3))
    key = F.normalize(key.float(), dim=-1).to(torch.bfloat16)
    beta = _noise(operands, *shape[:3], dtype=torch.bfloat16).sigmoid()
    leaves = tuple(map(_leaf, (query, key, value, beta)))
    return _differentiable(lambda: chunk_delta_rule(*leaves)[0], leaves, torch.randn_like(value))
