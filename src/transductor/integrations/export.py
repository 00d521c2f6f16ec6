"""Models for other runtimes: ONNX files and ``torch.export`` programs, compared with the model before they are kept.

One file serves every batch size and every length.  In a ``torch.export`` program the scan is the registered operation
``transductor::scan``; in ONNX it is ONNX's own ``Scan``, and nothing of this package is needed to run it.
"""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

import transductor
from transductor.checks import VALUE_TOLERANCE, one_of
from transductor.configuration import to_json
from transductor.heads import RationalHead
from transductor.integrations.exported_forms import Step, Whole, tabulated
from transductor.model import LSTM, SequenceModel
from transductor.recurrence import BACKENDS
from transductor.results import Certificate, write_atomically

LENGTHS: Final = (1, 7, 64, 129, 1000)
_LARGEST: Final = 2**31 - 2**20  # a protobuf is refused from 2 GiB on
_EXAMPLE: Final = (3, 11)  # sizes of the batch that is traced; dimensions of 1 would be taken for constants

Model = SequenceModel[Any] | RationalHead


class ExportError(ValueError):
    """A model that has no such form, or whose form came out different; nothing was written."""


@dataclass(frozen=True)
class OnnxFile:
    """What was written: inputs and outputs by name, in order, and how far onnxruntime is from torch.

    ``certificate`` is None where onnxruntime is not installed.
    """

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    certificate: Certificate | None


def exported(model: Model, *, mask: bool = False, backend: str | None = None) -> torch.export.ExportedProgram:
    """The model as a ``torch.export`` program with dynamic batch and length, on the model's device.

    To load it from a file, ``import transductor`` first: that registers the operation ``transductor::scan``.

    Args:
        model: Any model or head; it is traced in eval mode and left as it is.
        mask: Whether the program takes ``(tokens, mask)``; ``(tokens)`` otherwise.
        backend: Of the scan in the program.  None keeps the model's, so that results are the same bit for bit;
            ``"chunked"`` also runs where numba or a GPU is missing.
    """
    _check_model(model)
    if backend is not None:
        one_of("backend", backend, [name for name, each in BACKENDS.items() if each.traceable])
    form = Whole(deepcopy(model).eval(), mask, backend)
    return _traced(form, form.example(*_EXAMPLE))


def export_program(
    model: Model,
    path: str | Path,
    *,
    mask: bool = False,
    backend: str | None = None,
    lengths: Sequence[int] = LENGTHS,
) -> Path:
    """Write :func:`exported` to ``path`` (.pt2); a program that differs from the model at ``lengths`` is not kept."""
    program = exported(model, mask=mask, backend=backend)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    with _quiet():
        loaded = torch.export.load(buffer).module()
    form = Whole(deepcopy(model).eval(), mask, backend)
    with torch.no_grad():
        for time in form.reachable(lengths):
            given = form.example(2, time)
            wanted = form(*given)
            try:
                same = torch.equal(loaded(*given), wanted)
            except (AssertionError, RuntimeError) as error:  # a guard of the program, or an operation in it
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
        model: Any model or head in float32 or float64; it is left as it is.
        path: The file.
        mask: Whether the graph takes a mask, true where a token is real; left and right padding both work.
        streaming: One step instead: ``tokens (batch)`` and ``state`` in, ``logits`` and ``next_state`` out.  For heads,
            :class:`~transductor.RationalReadout`, and models without attention; the first state is in the metadata.
        lengths: Where onnxruntime, if installed, is compared with torch; a file that differs is not written.
    """
    _check_model(model)
    if mask and streaming:
        raise ValueError("streaming takes one real token at a time: give mask=False")
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    if not dtypes <= {torch.float32, torch.float64}:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise ExportError(f"model must be in float32 or float64 for ONNX; it holds {names}: call model.float() first")
    onnx = _needed("onnx")
    _needed("onnxscript")
    plain = tabulated(deepcopy(model).cpu().eval())
    form: Whole | Step = Step(plain) if streaming else Whole(plain, mask, "chunked")
    graph = _written_in_onnx(form)
    _tidied(graph, form)
    entries = {"transductor.version": transductor.__version__, "transductor.config": to_json(model.config)}
    if isinstance(form, Step):
        starts = {name: value[0].tolist() for name, value in form.start(1).items()}
        entries["transductor.start"] = json.dumps(starts)
    onnx.helper.set_model_props(graph, entries)
    if graph.ByteSize() > _LARGEST:
        raise ExportError(f"model must fit into 2 GiB of ONNX; it takes {graph.ByteSize() / 2**30:.1f} GiB")
    onnx.checker.check_model(graph, full_check=True)
    data: bytes = graph.SerializeToString()
    certificate = None
    if find_spec("onnxruntime") is not None:
        certificate = _compared(data, deepcopy(model).cpu().eval(), form, form.reachable(lengths))
        if not certificate.holds:
            raise ExportError(f"{certificate}; nothing was written")
    return OnnxFile(write_atomically(path, data), form.inputs, form.outputs, certificate)


def _check_model(model: object) -> None:
    if not isinstance(model, (SequenceModel, RationalHead)):
        raise TypeError(f"model must be a transductor model or head; got {type(model).__name__}")
    if isinstance(model, LSTM):
        raise ExportError("an LSTM cannot be exported for every length: torch writes one step after the other")


def _needed(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"ONNX files need {package}: pip install 'transductor[onnx]'") from error


def _traced(form: nn.Module, example: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    """A program in which dimension 0 of every input is the batch and dimension 1 of what has one the time."""
    dynamic = torch.export.Dim.DYNAMIC
    streamed = isinstance(form, Step)
    shapes = tuple({0: dynamic} if streamed else {0: dynamic, 1: dynamic} for _ in example)
    try:
        with _quiet(), torch.enable_grad():  # without gradient, injection takes another way for short input
            return torch.export.export(form, example, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever the tracer cannot follow, it is the model that cannot be exported
        raise ExportError(f"the model cannot be traced: {_first_line(error)}") from error


def _written_in_onnx(form: Whole | Step) -> Any:
    """The ONNX model (a protobuf) of a form."""
    from transductor.integrations.onnx_operations import translations

    program = _traced(form, form.example(*_EXAMPLE))
    try:
        with _quiet():
            program = program.run_decompositions({torch.ops.aten.scaled_dot_product_attention.default: _attention})
            found = torch.onnx.export(
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
    assert found is not None
    return found.model_proto


def _attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Attention written out: torch's translation takes four dimensions only, and windows have a fifth."""
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    if is_causal:
        index = torch.arange(queries.shape[-2], device=queries.device)
        attn_mask = torch.where(index[:, None] >= index, 0.0, torch.finfo(queries.dtype).min / 2).to(queries.dtype)
    if attn_mask is not None:
        scores = scores + attn_mask
    mixed: Tensor = scores.softmax(-1) @ values
    return mixed


def _tidied(graph: Any, form: Whole | Step) -> None:
    """``batch`` and ``time`` for the names a tracer invented, without weights that nothing reads.

    What the tracer noted of values in between is dropped.
    """
    del graph.graph.value_info[:]
    read = _names_read(graph.graph)
    kept = [weight for weight in graph.graph.initializer if weight.name in read]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
    first = graph.graph.input[0].type.tensor_type.shape.dim
    names = {first[0].dim_param: "batch"}
    if isinstance(form, Whole):
        names[first[1].dim_param] = "time"
    for value in (*graph.graph.input, *graph.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.get(dim.dim_param, dim.dim_param)


def _names_read(graph: Any) -> set[str]:
    """Every name that a node reads, in the bodies of loops too, and the graph's outputs."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= _names_read(attribute.g)
    return names


def _compared(data: bytes, model: Any, form: Whole | Step, lengths: Sequence[int]) -> Certificate:
    """onnxruntime against the model in torch, on random input of two rows; relative to the largest number."""
    runtime = import_module("onnxruntime")
    try:
        session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own errors
        raise ExportError(f"onnxruntime refuses the graph: {_first_line(error)}") from error

    def run(given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        numbers = {name: value.numpy() for name, value in zip(form.inputs, given, strict=True)}
        return tuple(map(torch.from_numpy, session.run(None, numbers)))

    claim, worst, witness, bound = "onnxruntime equals torch", 0.0, "", 0.0
    for time, rows in product(lengths, (1, 2)):
        where = f"batch {rows}, length {time}"
        try:
            with torch.no_grad():
                found, exact = form.run_beside(run, model, rows, time)
        except Exception as error:  # the runtime's own errors
            raise ExportError(f"onnxruntime fails at {where}: {_first_line(error)}") from error
        bound = VALUE_TOLERANCE[exact.dtype]
        known = exact.isfinite()  # beyond an overflow there is nothing to compare
        if found.shape != exact.shape or not found[known].isfinite().all():
            return Certificate(claim, bound, float("inf"), where)
        off = float((found - exact)[known].abs().amax() / exact[known].abs().amax().clamp_min(1)) if known.any() else 0
        if off >= worst:
            worst, witness = off, where
    return Certificate(claim, bound, worst, witness)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says about itself and about packages that have no part in this."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            # torch 2.11 reads weights from bytes that nobody writes to.
            warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)
            # The number that hides a key in float64, looked at as a float32.
            warnings.filterwarnings("ignore", message="overflow encountered in cast", category=RuntimeWarning)
            yield
    finally:
        logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}"
