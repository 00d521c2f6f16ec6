"""Certificates as files of the proof assistant Rocq, which it accepts by computation.

The theorems are in ``proofs/`` of the repository: what their checker accepts is right on every word of the domain,
however the scan is associated and however every sum is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.ball_arithmetic import Array
from transductor.certification.certificates import AgreementCertificate, Question
from transductor.certification.rocq_evidence import (
    FORMATS,
    Invariant,
    Products,
    closed_domain,
    rocq_invariant,
    undecided,
)
from transductor.results import write_atomically

_LONGEST_LIST: Final = 200  # Rocq reads nested terms; shorter lists, appended, keep its stack small

_OPENING: Final = """(** Written by transductor; `coqc -Q proofs Transductor` accepts it by computation.

    The theorem: after every word of at least one letter{domain}, however the scan is associated and however every sum
    is taken, {label}.

    Tensors are bit patterns of {head} and, for the readout, {readout}: {letters} matrices {dim} x {dim},
    a state of {dim} numbers, {classes} rows of weights.  Entries that are not listed are +0. *)

From Coq Require Import ZArith NArith List String.
From Transductor Require Import Patterns Certificate Checker Soundness.
Import ListNotations.
Open Scope Z_scope.

(** SHA-256 of the checkpoint that the tensors were read from. *)
Definition checkpoint_sha256 : string := "{sha256}"%string.
"""

_CLOSING: Final = """
Theorem checkpoint_agrees : agrees checkpoint reference.
Proof. apply check_sound with (e := invariant). vm_cast_no_check (eq_refl true). Qed.

Print Assumptions checkpoint_agrees.
"""


def write_rocq(
    certificate_or_question: AgreementCertificate | Question, path: str | Path, *, model_sha256: str
) -> Path:
    """Write a statement about a readout's labels as a file that ``coqc`` accepts; return its path.

    Args:
        certificate_or_question: A certificate that says *proved*, or a question that is yet to be answered.
        path: Where to write; it ends in ``.v``.
        model_sha256: SHA-256 of the checkpoint, in hexadecimal: the file names it.

    Raises:
        ValueError: If the theorem does not cover the model: a stream, half precision, a head that may round, labels
            too close to tell.
    """
    target = Path(path)
    if target.suffix != ".v":
        raise ValueError(f"path must end in .v, as Rocq wants it; got {target.name}")
    write_atomically(target, rocq_text(certificate_or_question, model_sha256=model_sha256).encode())
    return target


def rocq_text(certificate_or_question: AgreementCertificate | Question, *, model_sha256: str) -> str:
    """Return what :func:`write_rocq` writes."""
    if isinstance(certificate_or_question, AgreementCertificate):
        if certificate_or_question.outcome != "proved":
            raise ValueError(f"only what is proved can be written for Rocq; this is {certificate_or_question.verdict}")
        question = certificate_or_question.question
    else:
        question = certificate_or_question
    if not re.fullmatch("[0-9a-f]{64}", model_sha256):
        raise ValueError(f"model_sha256 must be 64 hexadecimal digits; got {model_sha256!r}")
    _check_covered(question)
    subject, machine = question.subject, question.target
    domain = closed_domain(question.domain, subject.letters)
    invariant = rocq_invariant(subject, machine, domain)
    doubt = undecided(subject, machine, invariant)
    if doubt is not None:
        raise ValueError(f"Rocq's theorem does not cover this readout: {doubt}")
    weight, bias = subject.readout()
    opening = _OPENING.format(
        label="the logit of the reference's label is larger than every other one"
        if len(weight) > 1
        else "the only logit is above zero where the reference's label is 1, below where it is 0",
        domain="" if question.domain is None else " of the domain",
        head=f"binary{8 * subject.table.itemsize}",
        readout=f"binary{8 * weight.itemsize}",
        letters=subject.letters,
        dim=subject.dim,
        classes=len(weight),
        sha256=model_sha256,
    )
    parts = [opening]
    for letter, matrix in enumerate(subject.table):
        parts.append(f"Definition matrix_{letter} : list row := {_rows(matrix)}.")
    parts += [
        f"Definition weight_rows : list row := {_rows(weight)}.",
        "Definition checkpoint : model := Model\n"
        f"  binary{8 * subject.table.itemsize} binary{8 * weight.itemsize} {str(subject.lookback).lower()}\n"
        f"  {_list(f'matrix_{letter}' for letter in range(subject.letters))}\n"
        f"  {_list(_patterns(subject.initial))}\n  weight_rows\n  {_list(_patterns(bias))}.",
        "\n(** The reference: a Moore machine, whose negative outputs are ignored, and the domain of its words. *)",
        f"Definition reference : specification := Specification\n  {_machine(machine)}\n  {_machine(domain)}.",
        *_evidence(invariant),
        _CLOSING,
    ]
    return "\n".join(parts)


def _check_covered(question: Question) -> None:
    """Refuse what the theorem says nothing about, by name."""
    subject = question.subject
    if question.machine is None:
        raise ValueError("Rocq's theorem is about labels; the question is about a series")
    if subject.stream:
        raise ValueError("Rocq's theorem is about a linear readout of a head; the model has a residual stream")
    if subject.weight is None:
        raise ValueError("Rocq's theorem is about labels; the head has no readout")
    if subject.precision not in FORMATS:
        raise ValueError(f"Rocq's theorem is about float32 and float64; the readout is in {subject.precision}")
    for name, values in (("weight", subject.weight), ("bias", subject.bias)):
        if values is None or values.dtype.name != subject.precision:
            raise ValueError(f"{name} must be stored in the readout's precision, {subject.precision}")


def _patterns(values: Array) -> Iterator[str]:
    """Yield the bit patterns of numbers, in hexadecimal."""
    unsigned = np.ascontiguousarray(values).view(np.dtype(f"u{values.itemsize}"))
    return (f"0x{pattern:x}" for pattern in unsigned.reshape(-1).tolist())


def _list(items: Iterable[str], scope: str = "") -> str:
    return f"[{'; '.join(items)}]{scope}"


def _rows(matrix: Array) -> str:
    """Return the rows of a matrix: columns and bit patterns of all entries but +0."""
    return _list(
        _list(f"{column} |-> {bits}" for column, bits in enumerate(_patterns(row)) if bits != "0x0") for row in matrix
    )


def _machine(machine: MooreMachine) -> str:
    rows = _list(_list(map(str, row), "%N") for row in machine.transitions.tolist())
    outputs = _list(f"({output})" if output < 0 else str(output) for output in machine.outputs.tolist())
    return f"{rows} {outputs} {machine.start}%N"


def _evidence(invariant: Invariant) -> Iterator[str]:
    """Yield the definitions of the invariant: its nodes in parts, and what the scan's exactness rests on."""
    yield "\n(** Evidence, which the theorem does not mention: where words lead, and why no sum of the scan rounds. *)"
    nodes = [
        f"Node {_list(_signed(node.state))} {node.machine}%N {node.domain}%N {_targets(node.targets)}"
        for node in invariant.nodes
    ]
    yield from _definition("invariant_nodes", "node", nodes)
    reason = str(invariant.reason).capitalize()
    if isinstance(invariant.reason, Products):
        products = zip(invariant.reason.matrices, invariant.reason.targets, strict=True)
        lines = [f"ProductNode {_list(_list(_signed(c)) for c in matrix)} {_targets(row)}" for matrix, row in products]
        yield from _definition("letter_products", "product_node", lines)
        reason = f"(Bounded {invariant.reason.largest} letter_products)"
    yield (
        f"Definition invariant : evidence := Evidence\n  {reason} ({invariant.state_unit}) ({invariant.weight_unit})"
        f" {_targets(invariant.first)} invariant_nodes."
    )


def _definition(name: str, kind: str, items: list[str]) -> Iterator[str]:
    """Yield the definition of a list, in parts where it is long."""
    parts = [items[begin : begin + _LONGEST_LIST] for begin in range(0, len(items), _LONGEST_LIST)]
    for number, part in enumerate(parts):
        yield f"Definition {name}_{number} : list {kind} := [\n  " + ";\n  ".join(part) + "]."
    whole = " ++ ".join(f"{name}_{number}" for number in range(len(parts))) or "[]"
    yield f"Definition {name} : list {kind} := {whole}."


def _signed(values: Iterable[int]) -> Iterator[str]:
    return (f"({value})" if value < 0 else str(value) for value in values)


def _targets(row: Iterable[int]) -> str:
    """Return the numbers of nodes; where a word leaves the domain, the checker asks for none."""
    return _list((str(max(0, target)) for target in row), "%N")
