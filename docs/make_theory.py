"""Make the generated parts and the figures of docs/theory.md and docs/beyond.md: ``python docs/make_theory.py``.

Every number on both pages comes from a record: ``results/theory.json``, which ``transductor theory --json`` writes,
and the records of three studies in ``benchmarks/results``.  A test makes the pages again and compares; figures are
written only without ``--check``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from transductor.report.groups_map import EXPLAINED, accuracy_rows, faster_outcome, map_rows, outcomes
from transductor.report.style import save_figure
from transductor.report.theory_figures import statement_figure, statement_figure_name, study_figure_of_theory
from transductor.results import read_record

ROOT = Path(__file__).parents[1]
PAGE, BEYOND, FIGURES = ROOT / "docs" / "theory.md", ROOT / "docs" / "beyond.md", ROOT / "docs" / "figures"
RECORD = ROOT / "results" / "theory.json"
RESULTS = ROOT / "benchmarks" / "results"
STUDIES = {name: RESULTS / f"{name}.json" for name in ("cover_transition", "label_smoothing", "groups_map")}
DRAWN = {"cover_transition": "theory_cover_transition", "label_smoothing": "theory_label_smoothing",
         "groups_map": "theory_groups"}  # fmt: skip

Entry = Mapping[str, Any]
HORIZONS = ("predicted", "certified", "true")

# What each statement of the paper says, by its number there.
SAYS = {
    1: "A cascade of linear automata, each driven by the state of the one before, is one automaton of Σ d_k states.",
    2: "A cascade needs Σ d_k² numbers per letter where one automaton of the same dimension needs (Σ d_k)².",
    3: "With a non-linearity between its layers a cascade can need far more than Σ d_k states as one linear automaton.",
    4: "Rotary and sinusoidal encodings of positions are the states of an automaton.",
    5: "A bounded-precision Transformer with hard attention cannot tell parity at every length; two states can.",
    6: "k states count modulo k exactly at every length, and a finite-depth Transformer cannot.",
    7: "Two states compute the value of a numeral in base b exactly.",
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
    20: "A linear map takes the states of a random automaton of dimension |X_L| to those of any, up to length L.",
    21: "A readout of d frozen features approximates every function of norm C in the kernel's space to order C/√d.",
    22: "Parity needs two learned states, but Ω(1/ε²) frozen random ones.",
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
    "theory_dyck_scores": "Scores of hard attention over exact states: each closing bracket finds its opening one",
    "theory_grams": "Gram matrices of uniform orthogonal features: with d they approach the identity, a table of words",
    "theory_hessians": "Norm of the Hessian against the length: it grows as T² at γ = 1, and falls in the end below",
    "theory_error_bound": "The theorem's bound, the error, the certified horizon and the first wrong label",
    "theory_rademacher": "Exact Rademacher complexity and the theorem's bound",
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
    return table(("norm of the Hessian", *(f"T = {length}" for length in lengths)), rows)


def _twenty_seven(m: Entry) -> str:
    rows = [[number(one[key]) for key in ("drift", "certified", "first_failure")] for one in m["heads"]]
    return table(("error of the angle, γ = 1", "certified horizon", "first wrong label"), rows)


def _twenty_eight(m: Entry) -> str:
    rows = [[number(one[key]) for key in ("words", "truth", "bound")] for one in m["letters_64"]]
    return table(("N, 64 letters equally often", "exact complexity", "the theorem's bound"), rows)


def _twenty_nine(m: Entry) -> str:
    rows = [[number(one["length"]), number(round(one["nuclear_norm"], 9))] for one in m["parity"]]
    return table(("T", "nuclear norm of parity's block"), rows)


def _thirty(m: Entry) -> str:
    rows = [[number(one["length"]), number(one["quotient"]), number(one["sharp"])] for one in m["points"][::2]]
    return table(("T", "measured quotient", "Tγ^(T−1)"), rows)


# More numbers of a statement, by its number.
DETAILS: dict[int, Callable[[Entry], str]] = {
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


def cover_numbers(points: Sequence[Entry]) -> str:
    """Where half of the draws separate parity, and how wide the step is, for each length."""
    rows = []
    for length in sorted({one["length"] for one in points}):
        cells = [str(length), number(2**length)]
        for features in ("haar", "near_identity"):
            chosen = sorted(
                (one["dim"] / 2**length, one["separated"] / one["trials"])
                for one in points
                if (one["features"], one["length"]) == (features, length)
            )
            places = [crossing(chosen, share) for share in (0.25, 0.5, 0.75)]
            middle = "–" if places[1] is None else f"{places[1]:.3f}"
            cells.append(middle)
            if features == "haar":
                wide = None if None in places else (places[2] - places[0]) * 2**length / 2 ** (length / 2)
                cells.append("–" if wide is None else f"{wide:.2f}")
        rows.append(cells)
    heads = ("L", "words", "half at d / 2^L", "quartiles apart, in √(2^L)", "half, near the identity")
    return table(heads, rows)


def crossing(points: Sequence[tuple[float, float]], share: float) -> float | None:
    """Return where the line through the points first reaches a share; None where it does not."""
    for (x, y), (after, above) in pairwise(points):
        if y < share <= above:
            return x + (after - x) * (share - y) / (above - y)
    return None


def _between(values: Sequence[float], cap: float) -> str:
    ends = [f"≥ {number(value)}" if value >= cap else number(value) for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " – ".join(ends)


def smoothing_table(runs: Sequence[Entry], cap: int) -> str:
    """Horizons over the seeds for each protocol, smoothing and trained length; one row where all reach the end."""
    rows = []
    for protocol in dict.fromkeys((one["readout"], one["steps"]) for one in runs):
        heads = [one for one in runs if (one["readout"], one["steps"]) == protocol]
        endless = all(one[kind] >= cap for one in heads for kind in HORIZONS)
        groups: dict[tuple[str, str], list[Entry]] = {}
        for one in heads:
            key = ("all", "all") if endless else (number(one["smoothing"]), str(one["length"]))
            groups.setdefault(key, []).append(one)
        for key, chosen in groups.items():
            horizons = [_between([one[kind] for one in chosen], cap) for kind in HORIZONS]
            rows.append([protocol[0], number(protocol[1]), *key, *horizons])
    return table(("readout", "steps", "ε", "T", *HORIZONS), rows)


def smoothing_minima(minima: Sequence[Entry]) -> str:
    """Where the expected loss has its minimum with a free readout."""
    rows = [
        [number(one["smoothing"]), str(one["length"]), number(one["delta"]), number(one["horizon"])] for one in minima
    ]
    return table(("ε", "T", "δ at the minimum of the expected loss", "its horizon"), rows)


def smoothing_outcome(runs: Sequence[Entry]) -> str:
    """What became of each prediction, in numbers of the record."""

    def chosen(readout: str, steps: int, smooth: Callable[[float], bool]) -> dict[tuple[float, int, int], Entry]:
        return {
            (one["smoothing"], one["length"], one["seed"]): one
            for one in runs
            if (one["readout"], one["steps"]) == (readout, steps) and smooth(one["smoothing"])
        }

    few, many = sorted({one["steps"] for one in runs if one["readout"] == "free"})
    ideal = chosen("ideal", few, lambda smoothing: smoothing == 0)
    hard = {steps: chosen("free", steps, lambda smoothing: smoothing == 0) for steps in (few, many)}
    soft = {steps: chosen("free", steps, lambda smoothing: smoothing > 0) for steps in (few, many)}
    gains = {
        steps: [one["true"] / hard[steps][0.0, *key[1:]]["true"] for key, one in soft[steps].items()] for steps in hard
    }
    multiples = [one["true"] / one["length"] for one in hard[few].values()]
    lengths = sorted({one["length"] for one in runs})
    growth = [
        median([one["true"] for one in hard[many].values() if one["length"] == length])
        / median([one["true"] for one in hard[few].values() if one["length"] == length])
        for length in lengths
    ]
    large = [one for key, one in soft[many].items() if key[0] >= 0.05]
    past = {length: sum(one["true"] > 1e5 for one in large if one["length"] == length) for length in lengths}
    each = len(large) // len(lengths)
    closeness = [one["true"] / one["predicted"] for one in large]
    tight = [one["certified"] / one["true"] for one in soft[many].values()]
    every = [one["certified"] / one["true"] for one in runs if one["readout"] == "free"]
    reached = _between([one["true"] for one in ideal.values()], 1e9)
    first = "confirmed" if sum(past.values()) > len(large) / 2 else "refuted"
    second = "confirmed" if max(growth) < 3 else "refuted"
    ten = sum(gain >= 10 for gain in gains[few])
    lines = [
        f"* Ideal readout, no smoothing: the heads are right up to {reached} letters, and were followed no further. "
        "**The first prediction is refuted**, for the reason above.",
        f"* Free readout, {number(few)} steps, no smoothing: horizons are {min(multiples):.2g} to {max(multiples):.2g} "
        f"times T, the median {median(multiples):.2g} times. With smoothing they are {min(gains[few]):.2g} to "
        f"{max(gains[few]):.2g} times those without, the median {median(gains[few]):.2g} times; {ten} of "
        f"{len(gains[few])} are ten times as long. **The second is refuted too**: the corners were not yet regular.",
        f"* {number(many)} steps: with smoothing horizons are {number(min(gains[many]))} to {number(max(gains[many]))} "
        f"times those without, the median {number(median(gains[many]))} times. With ε of at least 0.05, "
        + ", ".join(f"{past[length]} of {each} pass 100 000 letters at T = {length}" for length in lengths)
        + f". **The third is {first} in this half**. Without smoothing the median grows by factors of "
        + ", ".join(f"{factor:.2g} (T = {length})" for factor, length in zip(growth, lengths, strict=True))
        + f", where less than 3 was predicted: **{second} in the other**.",
        f"* With ε of at least 0.05 and {number(many)} steps the true horizon is {min(closeness):.2g} to "
        f"{max(closeness):.2g} times the one predicted from the expected loss alone, the median "
        f"{median(closeness):.2g} times. With smoothing the certified one is {min(tight):.2g} to {max(tight):.2g} "
        f"times the true one; over all heads with a free readout {min(every):.2g} to {max(every):.2g} times, because a "
        "bound by norms sees an irregular readout from its worst side. At most a factor of two was predicted: "
        f"**{'confirmed' if min(every) >= 0.5 else 'refuted'}**.",
    ]
    return "\n".join(lines)


def groups_parts(measurements: Entry, settings: Entry) -> dict[str, str]:
    """The generated parts about the map of groups, by their marks."""
    checked = measurements["answers"]
    faults = sum(bool(one["faults"]) for one in checked)
    never = sum(one["verdict"] == "impossible" for one in checked)
    tight = sum(one["least"] is not None for one in checked)
    wider = [one for one in checked if one["fewest_reflections"] is not None]
    summary = (
        f"{len(checked)} cells: in {tight} the least dimension is known, with a witness there and a bound below it; "
        f"{never} are impossible in every dimension; {len(checked) - tight - never} are open. "
        f"In {faults} of them a witness or a hypothesis did not pass its check."
    )
    if wider:
        some = ", ".join(
            f"{one['monoid']} with {one['fewest_reflections']} in d = {one['in_dimension']}" for one in wider
        )
        summary += f" Fewer reflections do in more dimensions for {some}."
    keys = "; ".join(f"**{mark}**: {reason}" for mark, reason in EXPLAINED.items())
    length = settings["lengths"][1]
    trained = (
        f"In each cell: the least dimension (and reflections k), or — and why none; below, how many of "
        f"{settings['seeds']} seeds make no mistake up to {length} letters on {settings['sequences']} random inputs · "
        f"on every input kind too. {keys}."
    )
    predictions = "\n".join(f"{place}. {line}" for place, line in enumerate(outcomes(measurements, settings), 1))
    return {
        "map of groups": f"{summary}\n\n{trained}\n\n{table(*map_rows(measurements, settings))}",
        "predictions about groups": predictions,
        "faster heads on groups": faster_outcome(measurements, settings),
        "accuracies on groups": table(*accuracy_rows(measurements, settings)),
    }


def filled(text: str, mark: str, content: str, maker: str = "make_theory") -> str:
    """Return a page with the part between two marks made again."""
    pattern = rf"(<!-- {mark}: made by docs/{maker}.py -->\n).*?(<!-- end of {mark} -->)"
    if len(re.findall(pattern, text, re.DOTALL)) != 1:
        raise ValueError(f"the page must have the two marks of {mark} once")
    return re.sub(pattern, lambda marks: f"{marks[1]}\n{content}\n\n{marks[2]}", text, flags=re.DOTALL)


def pages() -> dict[Path, str]:
    """Both pages as the records say they are."""
    cover, smoothing, groups = (read_record(STUDIES[name]) for name in STUDIES)
    theory = filled(PAGE.read_text(), "statements", statements(entries(read_record(RECORD).measurements)))
    beyond = filled(BEYOND.read_text(), "cover", cover_numbers(cover.measurements["points"]))
    runs = smoothing.measurements["runs"]
    horizons = f"{smoothing_outcome(runs)}\n\n{smoothing_table(runs, smoothing.settings['cap'])}"
    beyond = filled(beyond, "minima", smoothing_minima(smoothing.measurements["minima"]))
    beyond = filled(beyond, "smoothing", horizons)
    for mark, content in groups_parts(groups.measurements, groups.settings).items():
        beyond = filled(beyond, mark, content)
    return {PAGE: theory, BEYOND: beyond}


def written(made: Mapping[Path, str], maker: str) -> list[str]:
    """Write the pages that are old, and name them; with ``--check``, write nothing and end, with an error if one is."""
    old = [path for path, text in made.items() if path.read_text() != text]
    names = [str(path.relative_to(ROOT)) for path in old]
    if "--check" in sys.argv[1:]:
        sys.exit(f"old: {', '.join(names)}; run python docs/{maker}.py" if old else 0)
    for path in old:
        path.write_text(made[path])
    return names


def main() -> None:
    """Write pages and figures; with ``--check``, say whether a page is old and write nothing."""
    old = written(pages(), "make_theory")
    for entry in entries(read_record(RECORD).measurements):
        for each in entry["numbers"]:
            name = statement_figure_name(each, entry["measurements"])
            if name is not None:
                save_figure(statement_figure(each, entry["measurements"]), FIGURES / f"{name}.png")
    for name, path in STUDIES.items():
        record = read_record(path)
        plain = {"measurements": record.measurements, "settings": record.settings}
        save_figure(study_figure_of_theory(name, plain), FIGURES / f"{DRAWN[name]}.png")
    print("written:", ", ".join(old) or "figures only, both pages are up to date")


if __name__ == "__main__":
    main()
