"""Compiles automata into models that are right on every word, without training.

A finite machine is a 0/1 weighted automaton, so one head holds any of them and its state is exact at every length
(see :mod:`.realisation`).  Orthogonal and other charts hold the same matrices up to rounding: their states drift,
slowly, and their horizon is finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from transductor.automata.barrington import PermutationProgram
from transductor.checks import check_positive, one_of
from transductor.compilation.inverse_charts import compiled_family
from transductor.compilation.position_tables import PositionTable, compiled_transductor
from transductor.compilation.realisation import Automaton, Realisation, mealy_merged, realised
from transductor.heads import HEADS, RationalHead
from transductor.model import BackboneConfig, RationalReadout, RationalTransductor
from transductor.transitions import DirectSum

_HEADS: Final = ("rational", "lookback")


def compile_head(
    automaton: Automaton | Sequence[Automaton],
    *,
    family: str | Sequence[str] = "auto",
    head: str = "rational",
    realisation: str = "regular",
    dtype: torch.dtype = torch.float32,
    trainable: bool = False,
) -> RationalHead:
    """Compile an automaton into a head whose states are those of the automaton.

    Args:
        automaton: A DFA (also what ``regex`` and ``mso`` give), an NFA, a Moore machine or a weighted automaton; a list
            of several over the same letters becomes one head over their direct sum.
        family: ``"auto"`` (permutations where every letter permutes, else dense), or a family's name: one for all, or
            one for each of several automata.
        head: ``"rational"``, or ``"lookback"`` to also show the state before the token.
        realisation: ``"regular"``: coordinate q is state q.  ``"smallest"``: a counter as turns of the plane (d ≤ 2), a
            weighted automaton in its minimal dimension.
        dtype: ``torch.float32`` or ``torch.float64``.
        trainable: False freezes the head.  True starts training from the automaton: a stochastic head then has
            temperature 1 and leaks 1e-4 a letter; at temperature 0, the default, it is exact and has no gradient.

    Raises:
        CannotCompile: If the family does not hold the automaton's matrices; the message says why, and which do.
    """
    one_of("head", head, _HEADS)
    several: Any = automaton
    automata: list[Automaton] = list(several) if isinstance(several, list | tuple) else [several]
    if not automata:
        raise ValueError("automaton must be an automaton or a list of at least one; got an empty one")
    targets = [realised(each, realisation) for each in automata]
    for target in targets[1:]:
        if target.alphabet != targets[0].alphabet:
            both = " and ".join(
                f"{each.letters} letters, {', '.join(map(repr, each.alphabet[:8]))}" for each in (targets[0], target)
            )
            raise ValueError(f"automaton must be several over the same letters; got {both}")
    return _head(targets, family, head, dtype=dtype, trainable=trainable)


def _head(
    targets: Sequence[Realisation], family: str | Sequence[str], head: str, *, dtype: torch.dtype, trainable: bool
) -> RationalHead:
    names = [family] * len(targets) if isinstance(family, str) else list(family)
    if len(names) != len(targets):
        raise ValueError(f"family must be one name, or {len(targets)}, one for each automaton; got {len(names)}")
    built = [
        compiled_family(name, target, dtype=dtype, trainable=trainable)
        for name, target in zip(names, targets, strict=True)
    ]
    parts = [part for part, _ in built]
    compiled = HEADS[head].from_family(parts[0] if len(parts) == 1 else DirectSum(*parts), "auto").to(dtype)
    with torch.no_grad():
        compiled.raw_initial_state.copy_(torch.from_numpy(np.concatenate([start for _, start in built])))
    return compiled.requires_grad_(trainable)


def compile_model(
    automaton: Automaton,
    *,
    family: str = "auto",
    head: str = "rational",
    realisation: str = "regular",
    backbone: BackboneConfig | None = None,
    output_size: int | None = None,
    dtype: torch.dtype = torch.float32,
    trainable: bool = False,
) -> RationalTransductor | RationalReadout:
    """Compile an automaton into a complete model whose output equals it on every word, at every position.

    *Finite machines* (DFA, NFA, Moore machine, truth-valued automaton) become a :class:`RationalTransductor` whose
    argmax is the label: 1 for acceptance, 0 for rejection, or the Moore machine's own.  The right logit is 8 ahead of
    any other, at every length: an exact head has finitely many states, so the stream of a position is one of finitely
    many, all of them tried; and the final norm, one increasing affine map for all coordinates, cannot change which of
    them is largest.

    *Weighted automata* become a :class:`RationalReadout` whose one output is the value of the prefix.  No backbone: a
    final norm has length at most √W, so behind it no value can grow, and a series may.

    Args:
        family, realisation, dtype, trainable: As for :func:`compile_head`.  Weights that are not written start silent,
            so a trainable model is right at step 0; a frozen one trains nothing.  "Every length" needs a family that
            is exact, as ``"auto"`` is; where it rounds, the state drifts with the length and the margin shrinks.
        head: ``"lookback"`` reads a label off the state *before* the token and the token, as a Mealy machine does:
            fewer states (long addition: two carries), and a feed-forward unit for every pair.
        backbone: A wider or deeper backbone, also with attention; the additional parts start silent.
        output_size: How many classes there are, at least as many as labels.

    Raises:
        CannotCompile: As for :func:`compile_head`; or if the states are too close to be told apart in ``dtype``.
    """
    one_of("head", head, _HEADS)
    target = realised(automaton, realisation)
    machine = target.machine
    if machine is None:
        if backbone is not None or output_size not in (None, 1):
            raise ValueError(
                "backbone and output_size are for finite machines; a weighted automaton has one real output"
            )
        return _readout(target, family, head, dtype=dtype, trainable=trainable)
    if output_size is not None:
        check_positive("output_size", output_size)
        if output_size < target.classes:
            raise ValueError(
                f"output_size must be at least {target.classes}, the labels of this automaton; got {output_size}"
            )
    classes = target.classes if output_size is None else output_size
    options: Any = {"dtype": dtype, "trainable": trainable}
    if head == "lookback":
        if realisation != "regular":
            raise ValueError(f"realisation must be 'regular' with head 'lookback'; got {realisation!r}")
        merged, labels = mealy_merged(machine)
        table = PositionTable.of_states_before(merged, labels, classes)
        target = realised(merged)
    elif realisation == "regular":
        table = PositionTable.of_one_hot_states(machine, classes)
    else:
        assert target.vectors is not None
        table = PositionTable.of_vectors(machine, target.vectors, classes)
    compiled = _head([target], family, head, **options)
    return compiled_transductor(compiled, table, classes, backbone=backbone, **options)


def _readout(target: Realisation, family: str, head: str, *, dtype: torch.dtype, trainable: bool) -> RationalReadout:
    assert target.final is not None
    model = RationalReadout(_head([target], family, head, dtype=dtype, trainable=trainable), 1).to(dtype)
    with torch.no_grad():
        model.readout.weight.zero_()
        model.readout.weight[0, : target.dim] = torch.from_numpy(target.final)
        model.readout.bias.zero_()
    model = model.requires_grad_(trainable)
    return model if trainable else model.eval()


def compile_program(program: PermutationProgram, **options: Any) -> RationalTransductor:
    """Compile Barrington's program: five states, one permutation a token, class 1 where the formula holds.

    Feed it :func:`program_tokens`; the value is at the last position.  Options are those of :func:`compile_model`.
    """
    if not isinstance(program, PermutationProgram):
        raise TypeError(
            f"program must be a PermutationProgram, as permutation_program(formula) gives; got {type(program).__name__}"
        )
    model = compile_model(program.automaton(), **options)
    assert isinstance(model, RationalTransductor)
    return model


def program_tokens(program: PermutationProgram, *assignments: Mapping[str, bool]) -> Tensor:
    """Return the program's instructions ``(B, T)`` under each assignment; an empty program is one identity."""
    letters = {permutation: token for token, permutation in enumerate(program.letters)}
    identity = tuple(range(5))
    rows = [[letters[each] for each in program.chosen(one)] or [letters[identity]] for one in assignments]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), max(1, len(program)))
