"""Exports models to other runtimes: ONNX files and ``torch.export`` programs, compared with the model before writing.

One file serves every batch size and every length.  In a ``torch.export`` program the scan is the registered operation
``transductor::scan``; in ONNX it is ONNX's own ``Scan``, so running the file does not need this package.
"""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

import transductor
from transductor.checks import VALUE_TOLERANCE, one_of
from transductor.configuration import to_json
from transductor.heads import RationalHead
from transductor.integrations.exported_forms import AllPositions, OneStep, reachable_lengths, tabulated
from transductor.integrations.onnx_operations import translations
from transductor.model import LSTM, SequenceModel
from transductor.recurrence import BACKENDS
from transductor.results import Certificate, write_atomically

LENGTHS: Final = (1, 7, 64, 129, 1000)
_LARGEST_FILE: Final = 2**31 - 2**20  # a protobuf must be smaller than 2 GiB
_EXAMPLE: Final = (3, 11)  # batch size and length of the traced input; a 1 would be taken for a constant

Model = SequenceModel[Any] | RationalHead
Form = AllPositions | OneStep


class ExportError(ValueError):
    """The error for a model that cannot be exported, or whose export differs from it; nothing was written."""


@dataclass(frozen=True)
class OnnxFile:
    """A written ONNX file: the names of its inputs and outputs in order, and how far onnxruntime is from torch.

    ``certificate`` is None if onnxruntime is not installed.
    """

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    certificate: Certificate | None


def exported(model: Model, *, mask: bool = False, backend: str | None = None) -> torch.export.ExportedProgram:
    """Return the model as a ``torch.export`` program for any batch size and length, on the model's device.

    To load it from a file, ``import transductor`` first: that registers the operation ``transductor::scan``.

    Args:
        model: Any model or head; a copy is traced in eval mode.
        mask: Whether the program takes ``(tokens, mask)``; ``(tokens)`` otherwise.
        backend: Backend of the scan in the program.  None keeps the model's, so that results are the same bit for
            bit; ``"chunked"`` also runs where numba or a GPU is missing.
    """
    _check_model(model)
    if backend is not None:
        one_of("backend", backend, [name for name, each in BACKENDS.items() if each.traceable])
    return _traced(AllPositions(deepcopy(model).eval(), mask, backend))


def export_program(
    model: Model,
    path: str | Path,
    *,
    mask: bool = False,
    backend: str | None = None,
    lengths: Sequence[int] = LENGTHS,
) -> Path:
    """Write :func:`exported` to ``path`` (.pt2), unless the program differs from the model at one of ``lengths``."""
    program = exported(model, mask=mask, backend=backend)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    with _quiet():
        loaded = torch.export.load(buffer).module()
    form = AllPositions(deepcopy(model).eval(), mask, backend)
    with torch.no_grad():
        for time in reachable_lengths(model, lengths):
            inputs = form.example(2, time)
            expected = form(*inputs)
            try:
                same = torch.equal(loaded(*inputs), expected)
            except (AssertionError, RuntimeError) as error:  # from a guard of the program, or an operation in it
                raise ExportError(f"the exported program fails at length {time}: {_first_line(error)}") from error
            if not same:
                raise ExportError(f"the exported program differs from the model at length {time}; nothing was written")
    return write_atomically(path, buffer.getvalue())


def export_onnx(
    model: Model,
    path: str | Path,
    *,
    mask: bool = False,
    streaming: bool = False,
    lengths: Sequence[int] = LENGTHS,
) -> OnnxFile:
    """Write the model as one ONNX file for every batch size and length.

    The graph takes ``tokens (batch, time)`` int64 (and ``mask (batch, time)`` bool) and gives ``logits``; a bare head
    gives ``states``, from ``features`` where those drive it.  The model's configuration is in the file's metadata.

    Args:
        model: Any model or head in float32 or float64; it is not changed.
        path: The file to write.
        mask: Whether the graph takes a mask, true where a token is real; left and right padding both work.
        streaming: Whether to export a single step: ``tokens (batch)`` and ``state`` in, ``logits`` and ``next_state``
            out.  For heads, :class:`~transductor.RationalReadout`, and models without attention; the first state is in
            the metadata.
        lengths: Lengths at which onnxruntime, if installed, is compared with torch; a file that differs is not written.
    """
    _check_model(model)
    if mask and streaming:
        raise ValueError("streaming takes one real token at a time: give mask=False")
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    if not dtypes <= {torch.float32, torch.float64}:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise ExportError(f"model must be in float32 or float64 for ONNX; it holds {names}: call model.float() first")
    onnx = _required("onnx")
    _required("onnxscript")
    plain = tabulated(deepcopy(model).cpu().eval())
    form: Form = OneStep(plain) if streaming else AllPositions(plain, mask, "chunked")
    graph = _onnx_model(form)
    _tidy(graph, form)
    metadata = {"transductor.version": transductor.__version__, "transductor.config": to_json(model.config)}
    if isinstance(form, OneStep):
        start = {name: value[0].tolist() for name, value in form.start(1).items()}
        metadata["transductor.start"] = json.dumps(start)
    onnx.helper.set_model_props(graph, metadata)
    if graph.ByteSize() > _LARGEST_FILE:
        raise ExportError(f"model must fit into 2 GiB of ONNX; it takes {graph.ByteSize() / 2**30:.1f} GiB")
    onnx.checker.check_model(graph, full_check=True)
    data: bytes = graph.SerializeToString()
    certificate = None
    if find_spec("onnxruntime") is not None:
        certificate = _comparison(data, deepcopy(model).cpu().eval(), form, reachable_lengths(model, lengths))
        if not certificate.holds:
            raise ExportError(f"{certificate}; nothing was written")
    return OnnxFile(write_atomically(path, data), form.inputs, form.outputs, certificate)


def _check_model(model: object) -> None:
    if not isinstance(model, (SequenceModel, RationalHead)):
        raise TypeError(f"model must be a transductor model or head; got {type(model).__name__}")
    if isinstance(model, LSTM):
        raise ExportError("an LSTM cannot be exported for every length: torch would write each step separately")


def _required(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"ONNX files need {package}: pip install 'transductor[onnx]'") from error


def _traced(form: Form) -> torch.export.ExportedProgram:
    """Trace a form for any batch size (dimension 0 of every input) and any length (dimension 1, if not one step)."""
    example, dynamic = form.example(*_EXAMPLE), torch.export.Dim.DYNAMIC
    shape = {0: dynamic} if isinstance(form, OneStep) else {0: dynamic, 1: dynamic}
    try:
        with _quiet(), torch.enable_grad():  # without gradient, injection would branch on the length
            program = torch.export.export(form, example, dynamic_shapes=tuple(shape for _ in example), strict=False)
            return _without_idle_regions(program)
    except Exception as error:  # the tracer raises errors of many kinds
        raise ExportError(f"the model cannot be traced: {_first_line(error)}") from error


def _without_idle_regions(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Take regions out in which autocast is off but of which nothing is used; a file that has one cannot be read."""
    graph = program.graph_module.graph
    for node in reversed(list(graph.nodes)):
        if node.target is torch.ops.higher_order.wrap_with_autocast and not node.users:
            graph.erase_node(node)
    program.graph_module.recompile()
    return program


def _onnx_model(form: Form) -> Any:
    """Return the ONNX model (a protobuf) of a form."""
    with _SimpleAttention():
        program = _traced(form)
    try:
        with _quiet():
            onnx_program = torch.onnx.export(
                program,
                input_names=list(form.inputs),
                output_names=list(form.outputs),
                custom_translation_table=translations(),
                verbose=False,
            )
    except Exception as error:  # torch's exporter raises errors of many kinds, and its own are private
        reason = _first_line(error.__cause__ or error)
        missing = re.search(r"target=torch\.ops\.([\w.]+?)(?:\.default)?\]", reason)
        raise ExportError(f"the model has no ONNX form: {missing[1] + ' has none' if missing else reason}") from error
    assert onnx_program is not None
    return onnx_program.model_proto


def _attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Compute attention from simple operations: torch translates only four dimensions, and windows have a fifth."""
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    if is_causal:
        index = torch.arange(queries.shape[-2], device=queries.device)
        attn_mask = torch.where(index[:, None] >= index, 0.0, torch.finfo(queries.dtype).min / 2).to(queries.dtype)
    if attn_mask is not None:
        scores = scores + attn_mask
    mixed: Tensor = scores.softmax(-1) @ values
    return mixed


class _SimpleAttention(TorchFunctionMode):
    """Traces attention as simple operations; decomposing the finished program would take twice the time of tracing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (_attention if func is F.scaled_dot_product_attention else func)(*args, **(kwargs or {}))


def _tidy(graph: Any, form: Form) -> None:
    """Name the dimensions ``batch`` and ``time``; drop unused weights and the tracer's notes on inner values."""
    del graph.graph.value_info[:]
    read = _names_read(graph.graph)
    kept = [weight for weight in graph.graph.initializer if weight.name in read]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
    first = graph.graph.input[0].type.tensor_type.shape.dim
    names = {first[0].dim_param: "batch"}
    if isinstance(form, AllPositions):
        names[first[1].dim_param] = "time"
    for value in (*graph.graph.input, *graph.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.get(dim.dim_param, dim.dim_param)


def _names_read(graph: Any) -> set[str]:
    """Return every name that a node reads, also in the bodies of loops, and the graph's outputs."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= _names_read(attribute.g)
    return names


def _comparison(data: bytes, model: Any, form: Form, lengths: Sequence[int]) -> Certificate:
    """Compare onnxruntime with the model in torch on random input; the error is relative to the largest output."""
    runtime = import_module("onnxruntime")
    try:
        session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own errors
        raise ExportError(f"onnxruntime refuses the graph: {_first_line(error)}") from error

    def run(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        arrays = {name: value.numpy() for name, value in zip(form.inputs, inputs, strict=True)}
        return tuple(map(torch.from_numpy, session.run(None, arrays)))

    claim, worst, witness, bound = "onnxruntime equals torch", 0.0, "", 0.0
    for time, rows in product(lengths, (1, 2)):
        where = f"batch {rows}, length {time}"
        try:
            with torch.no_grad():
                output, exact = form.run_beside(run, model, rows, time)
        except Exception as error:  # the runtime's own errors
            raise ExportError(f"onnxruntime fails at {where}: {_first_line(error)}") from error
        bound = VALUE_TOLERANCE[exact.dtype]
        finite = exact.isfinite()  # after an overflow there is nothing to compare
        if output.shape != exact.shape or not output[finite].isfinite().all():
            return Certificate(claim, bound, float("inf"), where)
        output, exact = output[finite], exact[finite]
        distance = float((output - exact).abs().amax() / exact.abs().amax().clamp_min(1)) if finite.any() else 0.0
        if distance >= worst:
            worst, witness = distance, where
    return Certificate(claim, bound, worst, witness)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages and warnings of torch's exporter that do not concern the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            # torch 2.11 reads weights from read-only bytes.
            warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)
            # The float64 number that hides a key does not fit into float32.
            warnings.filterwarnings("ignore", message="overflow encountered in cast", category=RuntimeWarning)
            yield
    finally:
        logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}"
