"""From a trained head or model to the finite machine it is near to, and a model hardened to that machine."""

from transductor.extraction.black_box import LearnedMachine, extract_from_labels, labelled
from transductor.extraction.extracting import (
    Extraction,
    NoMachineNearby,
    extract,
    extract_head,
)
from transductor.extraction.generated_groups import GeneratedGroup, generated_group
from transductor.extraction.hardening import Hardened, harden
from transductor.extraction.letters import LetterFact, directions_read, letter_facts, readable_from

__all__ = [
    "Extraction",
    "GeneratedGroup",
    "Hardened",
    "LearnedMachine",
    "LetterFact",
    "NoMachineNearby",
    "directions_read",
    "extract",
    "extract_from_labels",
    "extract_head",
    "generated_group",
    "harden",
    "labelled",
    "letter_facts",
    "readable_from",
]
