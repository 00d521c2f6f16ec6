"""Translations of this package's torch operations to ONNX.

The scan becomes ONNX's own ``Scan`` over the plain recurrence; the Cayley map becomes an elimination, because ONNX
cannot solve linear systems.  Values are those of ``onnx_ir``, typed Any because the package is optional.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch


def translations() -> dict[Any, Callable[..., Any]]:
    """Return, for each of our operations that may occur in an exported graph, the function that writes it in ONNX."""
    operations = torch.ops.transductor
    return {
        operations.scan.default: _scan,
        operations.normalised_scan.default: _normalised_scan,
        operations.product.default: lambda left, right: _operators().MatMul(left, right),
        operations.cayley.default: _cayley,
    }


def _operators() -> Any:
    """Return opset 18, in which torch's own translations are written; torch converts all of them together."""
    return import_module("onnxscript").opset18


def _constant(array: np.ndarray[Any, Any]) -> Any:
    return _operators().Constant(value=import_module("onnx_ir").tensor(array))


def _scan(matrices: Any, tokens: Any, bias: Any, initial: Any, mask: Any, offsets: Any, engine: str) -> tuple[Any, ...]:
    """Return the states ``(B, T, D)``; a mask is part of the table by now, and documents are not exported."""
    if mask is not None or offsets is not None:
        raise NotImplementedError("a scan with a mask or documents that were not folded has no ONNX form")
    ir, op = import_module("onnx_ir"), _operators()
    nodes, node = _nodes()
    drive = matrices if tokens is None else tokens
    inputs = [drive] if bias is None else [drive, bias]
    state, *at_step = (
        ir.Value(name=f"scan_{n}", type=ir.TensorType(x.dtype)) for n, x in enumerate((initial, *inputs))
    )
    last = op.Constant(value_ints=[-1])
    matrix = at_step[0] if tokens is None else node("Gather", matrices, at_step[0], axis=0)
    after = node("Squeeze", node("MatMul", matrix, node("Unsqueeze", state, last)), last)
    if bias is not None:
        after = node("Add", after, at_step[1])
    body = ir.Graph([state, *at_step], [after, node("Identity", after)], nodes=nodes, name="recurrence")
    count = len(inputs)
    final = op.Scan(
        initial, *inputs, body=body, num_scan_inputs=count, scan_input_axes=[1] * count, scan_output_axes=[1]
    )
    # The schema of Scan does not say how many outputs it has; onnxscript then gives one.
    final.producer().resize_outputs(2)
    states = final.producer().outputs[1]
    return states, op.Identity(last), op.Identity(last)  # the other outputs are only used by the backward pass


def _nodes() -> tuple[list[Any], Callable[..., Any]]:
    """Return a list of nodes, for the body of a loop, and the function that adds one and returns its output."""
    ir, nodes = import_module("onnx_ir"), list[Any]()

    def node(kind: str, *inputs: Any, **attributes: Any) -> Any:
        nodes.append(ir.node(kind, inputs, attributes=attributes))
        return nodes[-1].outputs[0]

    return nodes, node


_NORMS = {"l1": "ReduceL1", "l2": "ReduceL2", "max": "ReduceMax"}


def _normalised_scan(matrices: Any, tokens: Any, initial: Any, offsets: Any, norm: str, engine: str) -> tuple[Any, Any]:
    """Return states of norm 1 ``(B, T, D)`` and the logs of the running norms ``(B, T)``, in float64."""
    if offsets is not None:
        raise NotImplementedError("documents are not exported")
    ir, op = import_module("onnx_ir"), _operators()
    nodes, node = _nodes()
    drive, last, double = matrices if tokens is None else tokens, op.Constant(value_ints=[-1]), ir.DataType.DOUBLE
    one = op.CastLike(op.Constant(value_floats=[1.0]), initial)
    zero = op.Sub(one, one)

    def divided(made: Callable[..., Any], state: Any) -> tuple[Any, Any]:
        sizes = made("Abs", state) if norm == "max" else state
        size = made(_NORMS[norm], sizes, last, keepdims=1)
        whole = made("Where", made("Equal", size, zero), one, size)
        return made("Div", state, whole), made("Log", made("Cast", size, to=double))

    def outside(kind: str, *inputs: Any, **attributes: Any) -> Any:
        return getattr(op, kind)(*inputs, **attributes)

    begun, log_begun = divided(outside, initial)
    kinds = (("state", initial.dtype), ("log", double), ("step", drive.dtype))
    state, log, step = (ir.Value(name=f"filter_{name}", type=ir.TensorType(kind)) for name, kind in kinds)
    matrix = step if tokens is None else node("Gather", matrices, step, axis=0)
    after, size = divided(node, node("Squeeze", node("MatMul", matrix, node("Unsqueeze", state, last)), last))
    total = node("Add", log, size)
    outputs = [after, total, node("Identity", after), node("Identity", total)]
    body = ir.Graph([state, log, step], outputs, nodes=nodes, name="filter")
    final = op.Scan(begun, log_begun, drive, body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1, 1])
    final[0].producer().resize_outputs(4) if isinstance(final, tuple) else final.producer().resize_outputs(4)
    node_outputs = (final[0] if isinstance(final, tuple) else final).producer().outputs
    return node_outputs[2], op.Squeeze(node_outputs[3], last)


def _cayley(raw: Any, state_dim: int, squared: bool) -> tuple[Any, Any]:
    """Compute ``(I − A)⁻¹ (I + A)`` by elimination: I − A has a positive symmetric part, so no pivot is small.

    It takes D rounds of a few nodes over all matrices, then the same Newton step as in torch.
    """
    op, dim, like, rank = _operators(), int(state_dim), raw.dtype.numpy(), len(raw.shape) + 1
    transposing = [*range(rank - 2), rank - 1, rank - 2]
    skews = _skew(raw, dim, transposing)
    identity = _constant(np.eye(dim, dtype=like))
    both = op.Concat(op.Sub(identity, skews), op.Add(identity, skews), axis=-1)  # (..., D, 2D)
    rows, columns = op.Constant(value_ints=[-2]), op.Constant(value_ints=[-1])
    for k in range(dim):
        begin, end = op.Constant(value_ints=[k]), op.Constant(value_ints=[k + 1])
        row = op.Slice(both, begin, end, rows)
        row = op.Div(row, op.Slice(row, begin, end, columns))
        column = op.Slice(both, begin, end, columns)
        unit = np.zeros((dim, 1), dtype=like)
        unit[k] = 1
        # Row k becomes the divided row; every other row loses its multiple of it.
        step = op.Sub(column, _constant(unit))
        both = op.Sub(both, op.MatMul(step, row))
    solution = op.Slice(both, op.Constant(value_ints=[dim]), op.Constant(value_ints=[2 * dim]), columns)
    transposed = op.Transpose(solution, perm=transposing)
    half, more = (op.CastLike(op.Constant(value_float=number), solution) for number in (0.5, 1.5))
    rotations = op.Sub(op.Mul(more, solution), op.Mul(half, op.MatMul(solution, op.MatMul(transposed, solution))))
    return (op.MatMul(rotations, rotations), rotations) if squared else (rotations, op.Identity(columns))


def _skew(raw: Any, dim: int, transposing: list[int]) -> Any:
    """Build ``A (..., D, D)`` from its entries above the diagonal ``(..., D(D−1)/2)`` and a zero for the others."""
    op = _operators()
    entries = dim * (dim - 1) // 2
    index = np.full((dim, dim), entries, dtype=np.int64)
    index[np.triu_indices(dim, 1)] = np.arange(entries)
    padded = op.Pad(raw, op.Constant(value_ints=[0, 1]), None, op.Constant(value_ints=[-1]))
    upper = op.Gather(padded, _constant(index), axis=-1)
    return op.Sub(upper, op.Transpose(upper, perm=transposing))
