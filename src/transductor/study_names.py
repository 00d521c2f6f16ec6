"""Names of the studies and of their arms, in the order in which reports show them.

Standard library only: studies build their arms from these names, and reports, which are made where torch is not
installed, learn from them which arms have no record yet.  A study that is not listed here is reported too, with its
arms in natural order.
"""

from __future__ import annotations

from typing import Final

POSITIONS: Final = ("learned", "rotary", "relative", "none")
INJECTIONS: Final = ("deep", "input", "none")
INJECTED_TASKS: Final = ("counting", "held_count", "flip_flop")
FAMILIES: Final = (
    "cayley",
    "squared_cayley",
    "exponential",
    "signed_cayley",
    "orthogonal",
    "householder",
    "dense",
    "diagonal",
    "stochastic",
)
FROZEN_WIDTHS: Final = (2, 8, 32, 128, 512)
TRACKERS: Final = ("filter", "orthogonal", "dense", "columns", "lstm", "transformer")
# Automata that are tracked: how many states, the chain, and what is shown of the state.
TRACKED: Final = ("5_slow", "8_slow", "5_fast", "8_fast")
TRACKED_WIDE: Final = ("16_slow", "8_slow_revealed", "8_slow_vague")
TRACKED_MORE: Final = ("8_slow_vague", "16_slow", "16_fast", "32_slow", "32_fast")
# Studies of source code, which are run by name alone: arms without a record are not named as missing.
CODE_STUDIES: Final = ("stream_defaults", "code_models", "code_models_c")
TRACKED_INSIDE: Final = ("8_slow", "8_fast")
TRACKERS_INSIDE: Final = ("filter", "orthogonal", "dense", "columns", "transformer")
SWAP_TRACKERS: Final = ("five_of_8", "ten_of_20", "one_of_120", "lstm")
PROMPTS: Final = (
    *(f"{model}_on_observed" for model in ("filter", "inside", "stacked", "lstm")),
    *(f"{model}_on_hidden" for model in ("filter", "inside", "lstm")),
)
_COUNTING: Final = ("transductor_paper", "transductor_ours", *(f"transformer_{name}" for name in POSITIONS))

ARMS: Final[dict[str, tuple[str, ...]]] = {
    "regular_gap": _COUNTING,
    "length_generalization": _COUNTING,
    "long_addition": ("transductor_paper", "transductor_ours", "transformer_learned", "transformer_rotary"),
    "base_two_value": (
        "transductor_paper",
        "transductor_ours",
        "lstm_paper",
        "transformer_paper",
        "lstm",
        "transformer_relative",
        "transductor_ours_last_digit_first",
        "lstm_last_digit_first",
        "transformer_relative_last_digit_first",
    ),
    "state_tracking": (
        "parity",
        "even_pairs",
        "cycle_navigation",
        "modular_arithmetic",
        "a5_two_generators",
        "a5_all_elements",
        "s5_two_generators",
        "s5_swaps",
        "s5_32_random_generators",
        "s5_all_elements",
        "c6",
        "s3",
        "flip_flop",
    ),
    "ablations": (
        *(f"injection_{name}" for name in INJECTIONS),
        *(f"family_{family}_on_{task}" for task in ("counting", "parity", "flip_flop") for family in FAMILIES),
        *(f"smoothing_{name}_on_{task}" for task in ("parity", "arithmetic") for name in ("none", "tenth")),
        *(f"start_{name}" for name in ("at_identity", "near_identity", "away", "far_away")),
        *(f"frozen_{width}" for width in FROZEN_WIDTHS),
        "learned_2",
        *(f"positions_{name}" for name in ("none", "learned", "rotary", "sinusoidal")),
    ),
    "deep_injection": tuple(f"injection_{name}_on_{task}" for task in INJECTED_TASKS for name in INJECTIONS),
    "tracking": tuple(f"{tracker}_on_{process}" for process in TRACKED for tracker in TRACKERS),
    "tracking_wide": tuple(f"{tracker}_on_{process}" for process in TRACKED_WIDE for tracker in TRACKERS),
    "tracking_more": tuple(f"{tracker}_on_{process}" for process in TRACKED_MORE for tracker in TRACKERS),
    "tracking_inside": tuple(f"{tracker}_on_{process}" for process in TRACKED_INSIDE for tracker in TRACKERS_INSIDE),
    "hidden_swaps": tuple(f"{tracker}_on_five_things" for tracker in SWAP_TRACKERS),
    "repl_traces": PROMPTS,
}
