"""What others say: the paper's numbers, what its recipe leaves open, and the best published results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Claim:
    """A number of the paper, and where to find ours in the records.

    Args:
        section: Title of the section; section numbers change.
        says: The claim in a few words.
        value: The number.
        arm: The arm that follows its recipe, as we read it.
        length: Length of the inputs.
        key: What is measured, as records name it.
        automaton: Whether the claim is about Rational Transductors, so that our column answers it too.
    """

    section: str
    says: str
    value: float
    arm: str
    length: int
    key: str
    automaton: bool = True


_GAP: Final = "The Regular Gap: Modulo Counting"
_LENGTH: Final = "Length Generalization and Time-Invariance"
_ADDITION: Final = "Algorithmic Generalization: Long-Integer Addition"
_VALUE: Final = "Quantitative Generalization and Precision"

CLAIMS: Final[dict[str, tuple[Claim, ...]]] = {
    "regular_gap": (
        Claim(_GAP, "Rational Transductor: 100% to length 500", 1.0, "transductor_paper", 500, "positions"),
        Claim(_GAP, "Transformer: ≈ 20% beyond", 0.2, "transformer_learned", 500, "beyond", automaton=False),
    ),
    "length_generalization": (
        Claim(_LENGTH, "Rational Transductor: ≥ 99% at length 1,000", 0.99, "transductor_paper", 1000, "positions"),
        Claim(_LENGTH, "Transformer: ≈ 20% beyond", 0.2, "transformer_learned", 1000, "beyond", automaton=False),
    ),
    "long_addition": (
        Claim(_ADDITION, "Rational Transductor: 100% exact at 1,000 digits", 1.0, "transductor_paper", 1000, "exact"),
        Claim(
            _ADDITION, "Transformer: 0% exact at 100 digits", 0.0, "transformer_learned", 100, "exact", automaton=False
        ),
    ),
    "base_two_value": (
        Claim(_VALUE, "Rational Transductor: MSE 5.9e-9 at L = 64", 5.9e-9, "transductor_paper", 64, "mse"),
        Claim(_VALUE, "LSTM: MSE 8.4e-2 at L = 64", 8.4e-2, "lstm_paper", 64, "mse", automaton=False),
        Claim(_VALUE, "Transformer: MSE 8.4e-2 at L = 64", 8.4e-2, "transformer_paper", 64, "mse", automaton=False),
    ),
}

_EVERY_MODEL: Final = (
    "the layer: the text calls it the standard pre-norm one, and writes attention and feed-forward part side by side, "
    "x + Attn(LN x) + FFN(LN x); here they follow each other",
    "the width of the feed-forward part, its activation and dropout: four times the width, GELU, none",
    "the weight decay of AdamW, and whether it reaches the head: 0.01, on weight matrices outside the head alone",
    "how near the identity the matrices start, and where the learned initial state does: noise that keeps ‖M − I‖₂ "
    "below about one half, and a normal draw shaped to the family",
    "whether a matrix is read from a table or projected from an embedding (both are written): a table",
    "whether strings are drawn once or at every step: at every step",
    "whether every position is judged or the last one, and on how many strings: every position, on the numbers of "
    "strings given in the records",
)
_COUNTING: Final = (
    *_EVERY_MODEL,
    "how often a one is drawn: with probability ½",
    "how many positions the Transformer's table has (its 25 thousand parameters leave room for few): 1 000",
)
# What the paper's text leaves open in a recipe, and what was done here: no conclusion about the recipe is safer than
# these choices.
NOT_SPECIFIED: Final[dict[str, tuple[str, ...]]] = {
    "regular_gap": _COUNTING,
    "length_generalization": _COUNTING,
    "long_addition": (
        *_EVERY_MODEL,
        "what is in the head: a *universal* one, “effectively routing to” its stochastic part of four states; here the "
        "stochastic part alone",
        "how two numbers become tokens: a token for each pair of digits, the last digits first, and the sum's digit as "
        "the label",
        "how digits are drawn: uniformly, so that a carry is passed on by every tenth pair",
    ),
    "base_two_value": (
        "what “3,600 steps (60 epochs)” goes through: it reads as sixty passes over a fixed set of strings, whose size "
        "is not given; here strings are drawn at every step",
        "which positions have a label: the last one alone",
        "what stands on the head of one layer: a linear readout and nothing else",
        "how near the identity the matrices start: noise that keeps ‖M − I‖₂ below about one half",
        "how the baselines have about 12 thousand parameters at the sizes given: those sizes give the numbers of "
        "parameters below",
        "how the LSTM was trained, which the table of hyperparameters does not name: as the others",
        "which relative positions the Transformer has: a learned number for each head and distance, far ones in groups",
    ),
}


@dataclass(frozen=True)
class Published:
    """The best published results on a task, and the protocol they were measured by."""

    protocol: str
    parallel: str
    sequential: str = "–"


_PROTOCOL: Final = "train 3–40, test 40–256, last token"
_LONGEST: Final = "train ≤ 60, longest length with ≥ 90%"

PUBLISHED: Final[dict[str, Published]] = {
    "parity": Published(_PROTOCOL, "100.0 (D-SLiCE), 99.9 (PD-SSM)", "LSTM 100"),
    "even_pairs": Published(_PROTOCOL, "100 (DeltaNet, Mamba)", "LSTM 100"),
    "cycle_navigation": Published(_PROTOCOL, "100.0 (BD4-LNCDE), 99.5 (PD-SSM)", "LSTM 100"),
    "modular_arithmetic": Published(_PROTOCOL, "98.4 ± 0.7 (D-DE-SLiCE), 96.2 (PD-SSM)", "LSTM 99.9"),
    "average": Published(_PROTOCOL, "98.8 (PD-SSM)", "LSTM 100"),
    "a5_all_elements": Published("train 3–40", "SLiCEs to ≈ 320, DeltaProduct ≈ 2×", "LSTM to 5,120"),
    "s5_all_elements": Published("train 128, prefix-exact", "DeltaProduct₄: ≈ 1 to 190, ≈ 0 at 512"),
    "s5_32_random_generators": Published("train ≤ 40, test 40–256", "1.2 (no published model solves it)"),
    "c6": Published(_LONGEST, "400", "tanh RNN 1,000 (cap)"),
    "s3": Published(_LONGEST, "1,000", "tanh RNN 1,000 (cap)"),
    "flip_flop": Published("sparse and dense out of distribution", "PaTH 0–0.0001% error", "LSTM ≈ 0"),
}
# The tasks whose average is published.
AVERAGED: Final = ("parity", "even_pairs", "cycle_navigation", "modular_arithmetic")
