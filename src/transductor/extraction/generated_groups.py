"""The group that the matrices of a head generate, as permutations of the states of its machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transductor.automata.decomposition.permutation_groups import Permutation, PermutationGroup
from transductor.extraction.extracting import TOLERANCES, Extraction, extract
from transductor.heads import RationalHead
from transductor.model import RationalReadout, RationalTransductor


@dataclass(frozen=True)
class GeneratedGroup:
    """The group that the letters of an extracted machine generate.

    The states that words lead to span everything that is read, so this is the group of the matrices there.

    Attributes:
        generators: For each letter where it takes the machine's states.
        order: How many elements the group has.
        name: ``Z6``, ``A5``, …, where the group has a known name.
        extraction: The machine.
    """

    generators: tuple[Permutation, ...]
    order: int
    name: str
    extraction: Extraction


def generated_group(
    model: RationalReadout | RationalTransductor | RationalHead,
    *,
    max_states: int = 2000,
    tolerances: Sequence[float] = TOLERANCES,
) -> GeneratedGroup:
    """Return the finite group that the matrices of a head generate, as permutations of the machine's states.

    Raises:
        NoMachineNearby: If the matrices generate no finite group that is near.
        ValueError: If a letter takes two states to one, so that there is no group.
    """
    extraction = extract(model, max_states=max_states, tolerances=tolerances)
    columns = tuple(tuple(column) for column in extraction.machine.transitions.T.tolist())
    for letter, column in enumerate(columns):
        second = next((state for state, target in enumerate(column) if target in column[:state]), None)
        if second is not None:
            raise ValueError(
                f"model must permute its {len(column)} states; letter {letter} takes states "
                f"{column.index(column[second])} and {second} to one"
            )
    group = PermutationGroup(extraction.machine.states, columns)
    return GeneratedGroup(columns, group.order, group.name, extraction)
