"""What the operations of this package are in ONNX.

The scan becomes ONNX's own ``Scan`` over the plain recurrence; the Cayley map an elimination: ONNX has no solve.
Values are those of ``onnx_ir``, typed Any: the packages are optional.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch


def translations() -> dict[Any, Callable[..., Any]]:
    """For every operation of ours that may stand in an exported graph, the function that writes it in ONNX."""
    operations = torch.ops.transductor
    return {
        operations.scan.default: _scan,
        operations.product.default: lambda left, right: _operators().MatMul(left, right),
        operations.cayley.default: _cayley,
    }


def _operators() -> Any:
    """Opset 18: the one torch's own translations are written in; torch converts all of them together."""
    return import_module("onnxscript").opset18


def _scan(matrices: Any, tokens: Any, bias: Any, initial: Any, mask: Any, offsets: Any, engine: str) -> tuple[Any, ...]:
    """States ``(B, T, D)``; masks are folded into the table before they come here, documents are not exported."""
    if mask is not None or offsets is not None:
        raise NotImplementedError("a scan with a mask or documents that were not folded has no ONNX form")
    ir, op = import_module("onnx_ir"), _operators()
    nodes: list[Any] = []

    def node(kind: str, *inputs: Any, **attributes: Any) -> Any:
        nodes.append(ir.node(kind, inputs, attributes=attributes))
        return nodes[-1].outputs[0]

    drive = matrices if tokens is None else tokens
    given = [drive] if bias is None else [drive, bias]
    state, *at_step = (ir.Value(name=f"scan_{n}", type=ir.TensorType(x.dtype)) for n, x in enumerate((initial, *given)))
    last = op.Constant(value_ints=[-1])
    matrix = at_step[0] if tokens is None else node("Gather", matrices, at_step[0], axis=0)
    after = node("Squeeze", node("MatMul", matrix, node("Unsqueeze", state, last)), last)
    if bias is not None:
        after = node("Add", after, at_step[1])
    body = ir.Graph([state, *at_step], [after, node("Identity", after)], nodes=nodes, name="recurrence")
    axes = [1] * len(given)
    final = op.Scan(
        initial, *given, body=body, num_scan_inputs=len(given), scan_input_axes=axes, scan_output_axes=[1]
    )  # fmt: skip
    # The schema of Scan does not say how many outputs it has; onnxscript then gives one.
    final.producer().resize_outputs(2)
    states = final.producer().outputs[1]
    return states, op.Identity(last), op.Identity(last)  # the backward pass's products: nobody asks for them


def _cayley(raw: Any, state_dim: int, squared: bool) -> tuple[Any, Any]:
    """``(I − A)⁻¹ (I + A)`` by elimination: I − A has a positive symmetric part, so no pivot is small.

    D rounds, each a few nodes over all matrices; then the same Newton step as in torch.
    """
    op = _operators()
    dim = int(state_dim)
    np = import_module("numpy")
    like = raw.dtype.numpy()
    rank = len(raw.shape) + 1
    transposing = [*range(rank - 2), rank - 1, rank - 2]
    skews = _skew(raw, dim, transposing)
    identity = op.Constant(value=import_module("onnx_ir").tensor(np.eye(dim, dtype=like)))
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
        step = op.Sub(column, op.Constant(value=import_module("onnx_ir").tensor(unit)))
        both = op.Sub(both, op.MatMul(step, row))
    found = op.Slice(both, op.Constant(value_ints=[dim]), op.Constant(value_ints=[2 * dim]), columns)
    turned = op.Transpose(found, perm=transposing)
    half, more = (op.CastLike(op.Constant(value_float=number), found) for number in (0.5, 1.5))
    rotations = op.Sub(op.Mul(more, found), op.Mul(half, op.MatMul(found, op.MatMul(turned, found))))
    return (op.MatMul(rotations, rotations), rotations) if squared else (rotations, op.Identity(columns))


def _skew(raw: Any, dim: int, transposing: list[int]) -> Any:
    """``A (..., D, D)`` of its entries above the diagonal ``(..., D(D−1)/2)``; a zero after them serves the others."""
    op, np = _operators(), import_module("numpy")
    entries = dim * (dim - 1) // 2
    places = np.full((dim, dim), entries, dtype=np.int64)
    places[np.triu_indices(dim, 1)] = np.arange(entries)
    ended = op.Pad(raw, op.Constant(value_ints=[0, 1]), None, op.Constant(value_ints=[-1]))
    upper = op.Gather(ended, op.Constant(value=import_module("onnx_ir").tensor(places)), axis=-1)
    return op.Sub(upper, op.Transpose(upper, perm=transposing))
