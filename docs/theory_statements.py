"""The page of the paper's statements, in Markdown: one section for each certificate of the record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transductor.report.theory_figures import statement_figure_name

ROOT = Path(__file__).parents[1]

Entry = Mapping[str, Any]


# What each statement of the paper says, by its number there.
SAYS = {
    1: "A cascade of linear automata, each driven by the state of the one before, is one automaton of Σ d_k states.",
    2: "A cascade needs Σ d_k² numbers per letter where one automaton of the same dimension needs (Σ d_k)².",
    3: "With a non-linearity between its layers a cascade can need far more than Σ d_k states as one linear automaton.",
    4: "Rotary and sinusoidal encodings of positions are the states of an automaton.",
    5: "A bounded-precision Transformer with hard attention cannot tell parity at every length; two states can.",
    6: "k states count modulo k exactly at every length, and a finite-depth Transformer cannot.",
    7: "Two states compute the value of a numeral in base b exactly, computing over the reals.",
    8: "Rational series and Transformers are strictly below Transductors, and those strictly below recurrent networks.",
    9: "At every horizon Transductors have a larger pseudo-dimension than Transformers of the same width.",
    10: "A stacked Transductor simulates every finite automaton, by its Krohn–Rhodes decomposition.",
    11: "With hard attention and linear layers, Transductors are exactly weighted monadic second-order logic.",
    12: "Definition: a vector-valued rational function is the sequence of states of a weighted automaton.",
    13: "A Transductor is exactly a Transformer after a vector-valued rational function.",
    14: "No other associative linear state beside a Transformer is more expressive.",
    15: "Attention over injected states h_t gives decision boundaries that are linear in h_t ⊗ h_t′.",
    16: "Every function of a Transductor is in PNC¹.",
    17: "A rational head is a linear branching program of width d, so it simulates bounded-width branching programs.",
    18: "Some function of a Transductor is not in AC⁰.",
    19: "AC⁰ is strictly inside the functions of Transductors, and those are inside PNC¹.",
    20: "A linear map takes the states of a generic random automaton of dimension |X_L| to any other's, to length L.",
    21: "A readout of d frozen features approximates every function of norm C in the kernel's space to order C/√d.",
    22: "Parity needs two learned states, but Ω(1/ε²) frozen random ones for an error of ε.",
    23: "With everything else frozen, the loss is convex in the projection W.",
    24: "Gradients do not explode for ‖M‖ ≤ γ ≤ 1, and keep their norm exactly for orthogonal M.",
    25: "The gradient at t − k is at least ‖Σ_j (Mᵀ)^j v_(t−1−j)‖ − γᵏ‖δ_t‖, so injections keep it alive.",
    26: "For ‖M‖ ≤ γ < 1 the Hessian of the loss is bounded independently of the length.",
    27: "For ‖M̂‖ ≤ γ < 1 and ‖M̂ − M*‖ ≤ ε the states differ by at most εC/(1 − γ), at every length.",
    28: "For γ < 1 the Rademacher complexity is at most W‖α‖/(√N (1 − γ)), whatever the length.",
    29: "A bounded nuclear norm of the Hankel matrix bounds the Rademacher complexity.",
    30: "For γ < 1 the last state is Lipschitz in the inputs with constant K‖α‖/(1 − γ), whatever the length.",
    31: "Definition: a linear representation is an initial vector, a matrix per letter and a final vector.",
    32: "A series is rational exactly if its Hankel matrix has finite rank, which is then the least dimension.",
}
CAPTIONS = {
    "theory_hankel_ranks": "Hankel ranks of two-layer stacks, by their gates",
    "theory_drift": "How far a head is from the exact position: in proportion to the position, below its bound",
    "theory_dyck_scores": "Scores of hard attention over exact states: each closing bracket finds its opening one",
    "theory_grams": "Gram matrices of uniform orthogonal features: with d they approach the identity, a table of words",
    "theory_hessians": "Norm of the Hessian against the length: it grows as T² at γ = 1, and falls in the end below",
    "theory_error_bound": "The theorem's bound, the error, the certified horizon and the first wrong label",
    "theory_rademacher": "Exact Rademacher complexity and the theorem's bound",
}


# The counterexample of each statement that is false as written, in a line that a reader can run.
IN_A_LINE = {
    9: "from transductor.theory import capacity; print(capacity.effective_capacity_increase(longest=1).shown)",
    11: "from transductor.theory import logic; "
    "print(logic.logical_characterization_via_weighted_mso(machines=0).shown)",
    21: "from transductor.theory import random_features as features; "
    "print(features.uniform_spectral_approximation_bound(dims=(8,), draws=1, length=2).shown)",
    25: "from transductor.theory import optimisation; "
    "print(optimisation.gradient_maintenance_via_deep_injection(cases=0).shown)",
    28: "from transductor.theory import generalisation; "
    "print(generalisation.length_independent_generalization(tokens=25).shown)",
}
BEYOND_THE_PAPER = {
    22: "How sharp the step is, from L = 4 on, and why parity is no harder than a constant label: "
    "[random against learned](beyond.md#random-against-learned-covers-transition).\n\n"
    "![Share of draws in which frozen features separate parity](figures/theory_cover_transition.png)",
}


def number(value: object) -> str:
    """Write a number of a record: integers in full, floats with four digits, fractions as they stand."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e6):
        return f"{int(value):,}".replace(",", "\u2009")
    return f"{value:.4g}"


def entries(measurements: Entry) -> list[Entry]:
    """Return the certificates of a record with the names of their functions, in the order of the paper."""
    named = [{"name": name, **entry} for name, entry in measurements["statements"].items()]
    return sorted(named, key=lambda entry: min(entry["numbers"]))


def sentence(text: str) -> str:
    """Return a text with its full stop."""
    return text if text.endswith(".") else f"{text}."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _four(m: Entry) -> str:
    longest = number(max(m["lengths"]))
    parts = [
        f"{number(drift[-1])} in {name}, where at most {number(m['rounding']['bound'][name][-1])} is possible"
        for name, drift in m["rounding"]["drift"].items()
    ]
    return f"Drift of {m['frequencies']} frequencies at t = {longest}: {'; '.join(parts)}."


def _twenty(m: Entry) -> str:
    rows = [
        [number(one[key]) for key in ("length", "words", "dense", "diagonal", "parikh_vectors")] for one in m["ranks"]
    ]
    conditions = ", ".join(f"{number(v)} ({k.replace('_', ' ')})" for k, v in m["median_condition_at_length_6"].items())
    heads = ("L", "words", "rank, every entry drawn", "rank, diagonal", "Parikh vectors")
    return f"{table(heads, rows)}\n\nMedian condition number of the states at L = 6, d = 127: {conditions}."


def _twenty_one(m: Entry) -> str:
    rows = [[number(one["dim"]), number(one["rms"]), number(one["sampling_noise"])] for one in m["curve"]]
    return table(("d", f"off-diagonal rms, words of length {m['length']}", "1/√(draws · d)"), rows)


def _twenty_two(m: Entry) -> str:
    rows = [
        [number(one["dim"]), number(one["ratio"]), f"{one['separated']} of {m['trials']}", number(one["cover"])]
        for one in m["points"]
    ]
    return table(("d", "d / 2^L", "draws that separate parity", "Cover's probability"), rows)


def _twenty_three(m: Entry) -> str:
    worst = ", ".join(f"{number(value)} ({name})" for name, value in m["worst_excess"].items())
    losses = ", ".join(f"{number(value)}" for value in m["separable"]["loss"])
    scales = ", ".join(map(number, m["separable"]["scale"]))
    return f"Worst excess of the middle over the mean: {worst}. Separable data, W times {scales}: loss {losses}."


def _twenty_four(m: Entry) -> str:
    rows = [[number(one["steps"]), number(one["gamma_1"]), number(one["gamma"])] for one in m["norm_with_injections"]]
    return table(("k", "norm with injections of norm 1, γ = 1", f"γ = {number(m['gamma'])}"), rows)


def _twenty_five(m: Entry) -> str:
    broken = ", ".join(f"{value} with exponent {name}" for name, value in m["violations"].items())
    return f"Of {m['cases']} random cases the inequality is violated in {broken}."


def _twenty_six(m: Entry) -> str:
    lengths = sorted({one["length"] for one in m["points"]})
    gammas = list(dict.fromkeys(one["gamma"] for one in m["points"]))
    norms = {(one["gamma"], one["length"]): one["norm"] for one in m["points"]}
    rows = [[f"γ = {number(gamma)}", *(number(norms[gamma, length]) for length in lengths)] for gamma in gammas]
    curves = table(("norm of the Hessian", *(f"T = {length}" for length in lengths)), rows)
    return (
        f"{curves}\n\nA bound for every T at γ = {number(m['gamma'])}: {number(m['bound'])}; the series of the proof, "
        f"(1 − γ)⁻⁴ + 4(1 − γ)⁻³ for this loss, give {number(round(m['bound_of_the_proof'], 6))}."
    )


def _twenty_seven(m: Entry) -> str:
    rows = [[number(one[key]) for key in ("drift", "certified", "first_failure")] for one in m["heads"]]
    return table(("error of the angle, γ = 1", "certified horizon", "first wrong label"), rows)


def _twenty_eight(m: Entry) -> str:
    rows = [[number(one[key]) for key in ("words", "truth", "bound")] for one in m["letters_64"]]
    return table(("N, 64 letters equally often", "exact complexity", "the theorem's bound"), rows)


def _twenty_nine(m: Entry) -> str:
    rows = [[number(one["length"]), number(round(one["nuclear_norm"], 9))] for one in m["parity"]]
    norms = table(("T", "nuclear norm of parity's block"), rows)
    return (
        f"{norms}\n\nOn the sample, for r = 1: the bound is {number(m['bound_per_r'])}, the complexity at most "
        f"{number(m['complexity_per_r_at_most'])}; split best, a prefix or a suffix belongs to at most "
        f"{number(m['fewest_collisions'])} of the words."
    )


def _thirty(m: Entry) -> str:
    rows = [[number(one["length"]), number(one["quotient"]), number(one["sharp"])] for one in m["points"][::2]]
    return table(("T", "measured quotient", "Tγ^(T−1)"), rows)


# More numbers of a statement, by its number.
DETAILS: dict[int, Callable[[Entry], str]] = {
    4: _four,
    20: _twenty,
    21: _twenty_one,
    22: _twenty_two,
    23: _twenty_three,
    24: _twenty_four,
    25: _twenty_five,
    26: _twenty_six,
    27: _twenty_seven,
    28: _twenty_eight,
    29: _twenty_nine,
    30: _thirty,
}


def plain_details(measurements: Entry) -> str:
    """One line for what a certificate measured beside its claim: numbers, and names with a number each."""

    def short(value: object) -> bool:
        return isinstance(value, int | float | str) and len(str(value)) < 40

    parts = []
    for key, value in measurements.items():
        name = key.replace("_", " ")
        if short(value):
            parts.append(f"{name} {number(value)}")
        elif isinstance(value, Mapping) and value and all(map(short, value.values())) and len(value) <= 12:
            parts.append(f"{name}: {', '.join(f'{each} {number(part)}' for each, part in value.items())}")
    return f"*Also measured:* {'; '.join(parts)}." if parts else ""


def comparison(entry: Entry) -> str:
    """What was measured beside what is claimed; the last two relations count violations."""
    if entry["relation"] in ("⇒", "∄"):
        return f"{number(entry['measured'])} violations, {number(entry['bound'])} allowed"
    return f"{number(entry['measured'])} {entry['relation']} {number(entry['bound'])}"


def overview(every: Sequence[Entry]) -> str:
    """One row for each certificate."""
    rows = []
    for entry in every:
        confirmed = entry["finding"] if entry["holds"] else "not confirmed"
        numbers = ", ".join(map(str, entry["numbers"]))
        rows.append([numbers, entry["title"], f"**{confirmed}**", comparison(entry), f"`{entry['name']}`"])
    return table(("#", "statement", "finding", "measured", "function"), rows)


def places(name: str) -> tuple[Path, list[Path]]:
    """Return the file of a statement's function and the files that test it."""
    (code,) = (path for path in (ROOT / "src/transductor/theory").glob("*.py") if f"\ndef {name}(" in path.read_text())
    tests = [
        path for path in sorted((ROOT / "tests/theory").glob("*.py")) if re.search(rf"\b{name}\b", path.read_text())
    ]
    if not tests:
        raise ValueError(f"{name} has no test")
    return code, tests


def _link(path: Path) -> str:
    return f"../{path.relative_to(ROOT)}"


def section(entry: Entry) -> str:
    """The paragraphs of one certificate: what the statement says, what is checked and came out, and the care."""
    numbers, measurements = entry["numbers"], entry["measurements"]
    verdict = f"**{entry['finding'][0].upper()}{entry['finding'][1:]}.**" if entry["holds"] else "**Not confirmed.**"
    tolerance = f", within {number(entry['tolerance'])}: {entry['tolerance_reason']}" if entry["tolerance"] else ""
    code, tests = places(entry["name"])
    parts = [
        f"### {', '.join(map(str, numbers))} {entry['title']}",
        " ".join(SAYS[each] for each in numbers),
        f"*Checked by `{entry['name']}()`:* {sentence(entry['claim'])} "
        f"Measured: {comparison(entry)}{tolerance}. *Shown by* {sentence(entry['witness'])}",
        f"{verdict} {entry['care']}".strip(),
        f"*Code:* [`{code.name}`]({_link(code)}). *Tests:* "
        + ", ".join(f"[`{test.name}`]({_link(test)})" for test in tests)
        + ".",
    ]
    if entry["finding"] == "false as written":
        parts.append(f"The counterexample, in a line:\n\n```python\n{IN_A_LINE[min(numbers)]}\n```")
    for each in numbers:
        details = DETAILS[each](measurements) if each in DETAILS else ""
        if each == min(numbers) and not details:
            details = plain_details(measurements)
        parts += [details] if details else []
        name = statement_figure_name(each, measurements)
        if name is not None:
            parts.append(f"![{CAPTIONS[name]}](figures/{name}.png)")
        if each in BEYOND_THE_PAPER:
            parts.append(BEYOND_THE_PAPER[each])
    return "\n\n".join(parts)


def statements(every: Sequence[Entry]) -> str:
    """The generated part of docs/theory.md."""
    return "\n\n".join([overview(every), "## Statement by statement", *map(section, every)])
