"""Models for pages: one that drifts, one in the user's words, a complete model, one that is hostile in every name."""

from __future__ import annotations

from functools import cache

import torch

from tests.extraction.near_machines import clock, noisy_readout
from transductor.automata import TokenAlphabet
from transductor.certification import certify
from transductor.compilation import compile_model
from transductor.extraction import harden
from transductor.heads import LookbackHead
from transductor.model import BackboneConfig, NoAttention, RationalReadout
from transductor.portraits import Explored, explored_model, proof_of
from transductor.tasks import task_named
from transductor.transitions import OrthogonalTransitions

HOSTILE = (
    "</script><script>window.broken=1</script>",
    "<img src=x onerror=window.broken=1>",
    "a\u2028&lt;{{script}}\\",
)
WORDS = TokenAlphabet.of_names(("<start>", "<end>", "<unknown>", "open", "close", "wait"))


def counting():
    return task_named("counting:5").automaton()


@cache
def drifting_model() -> RationalReadout:
    """A clock of five hours that is off by a thousandth at every turn, in float32."""
    return clock(5, 1e-3).float()


@cache
def noisy_model() -> RationalReadout:
    """S3 in a random basis, with noise."""
    return noisy_readout(task_named("group:S3:all").automaton(), 6, noise=2e-3)


@cache
def wordy_model() -> RationalReadout:
    """A head that looks back, over a file's words, near no machine."""
    torch.manual_seed(3)
    family = OrthogonalTransitions(vocab_size=6, state_dim=4)
    return RationalReadout(LookbackHead(family), 3)


@cache
def complete_model():
    """A complete model, whose labels are no linear map of the head's state."""
    backbone = BackboneConfig(vocab_size=2, output_size=2, width=8, layers=1, attention=NoAttention())
    return compile_model(task_named("parity").automaton(), backbone=backbone)


@cache
def explored(name: str) -> Explored:
    """What a page holds of one of them."""
    if name == "drifting":
        proof = proof_of(certify(harden(drifting_model()).model, against=counting()), "the hardened twin")
        return explored_model(
            drifting_model(), name, against=counting(), against_name="counting:5", certificates=[proof]
        )
    if name == "noisy":
        return explored_model(noisy_model(), name)
    if name == "wordy":
        return explored_model(wordy_model(), name, alphabet=WORDS, classes=["shut", "ajar", "agape"])
    if name == "complete":
        return explored_model(complete_model(), name)
    alphabet = TokenAlphabet(HOSTILE, (0, 1, 2))
    model = noisy_readout(task_named("cycle").automaton(), 5, noise=1e-3)
    classes = [f"{name}{HOSTILE[number % 3]}" for number in range(5)]
    return explored_model(model, HOSTILE[0], alphabet=alphabet, classes=classes, notes=[HOSTILE[1]])
