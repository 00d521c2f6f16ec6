"""Make the tables of measurements on the pages about parts of the library: ``python docs/make_measured.py``.

Every number comes from a record in ``benchmarks/results``; what was measured, and how, the page says.  A test makes
all tables again and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import peer_tables
from make_code_models import PAGE as PAGE_OF_CODE_MODELS
from make_theory import ROOT, filled, table, written

from transductor.report.style import median_interval
from transductor.results import Record, read_record

DOCS, RECORDS = ROOT / "docs", ROOT / "benchmarks" / "results"
Numbers = dict[str, Any]


def record(name: str) -> Record:
    """Read a record of a benchmark by its name."""
    return read_record(RECORDS / f"{name}.json")


def share(value: float, decimals: int = 1) -> str:
    """Write a share in per cent; only exactly 1 is written 100 %, as long as the decimals allow."""
    return "100 %" if value == 1 else f"{100 * value:.{decimals}f} %"


def grouped(value: float) -> str:
    """Write an integer in groups of three digits."""
    return f"{value:,.0f}".replace(",", "\u2009")


def digits(value: float, count: int = 2) -> str:
    """Write a number with so many digits that count, without powers of ten."""
    text = f"{value:#.{count}g}"
    return f"{float(text):.0f}" if "e+" in text else text.removesuffix(".")


# docs/attention.md

_ATTENTION: Final = {
    "mod 5, full attention": "mod5, full",
    "parity, full attention": "parity, full",
    "mod 5, window of 16, rotary": "mod5, window",
    "parity, window of 16, rotary": "parity, window",
}


def certified_attention() -> str:
    """What is certified of models with attention, before and after narrowing."""
    measured = record("certified_attention")
    parts = [measured.measurements["summary"][key] for key in _ATTENTION.values()]

    def line(title: str, write: Callable[[Numbers], str]) -> list[str]:
        return [title, *(write(part) for part in parts)]

    def of_all(key: str) -> Callable[[Numbers], str]:
        return lambda part: f"{part[key]} of {part['runs']}"

    def lengths(part: Numbers) -> str:
        if part["proved_for_all_lengths"] == part["runs"]:
            return f"**all lengths: proved, {of_all('proved_for_all_lengths')(part)}**"
        mean, least, most = (grouped(round(part["float_length"][key], -3)) for key in ("mean", "min", "max"))
        return f"{mean} ({least} – {most})"

    def gap(part: Numbers) -> str:
        return "{mean:.2f} ({min:.2f} – {max:.2f})".format(**part["gap"])

    def accuracies(part: Numbers) -> str:
        return ", ".join(share(part[f"accuracy_at_500_{when}"]["mean"]) for when in ("before", "after"))

    return table(
        ("", *_ATTENTION),
        [
            line("hardened: certified", of_all("certified_before_narrowing")),
            line(
                "hardened: wrong at 20 000 tokens (1³ 0ⁿ (10)²⁰ or all ones)", of_all("wrong_at_20000_before_narrowing")
            ),
            line(
                "**narrowed: all lengths, exact averages**",
                lambda part: f"**{of_all('certified_with_exact_averages')(part)}**",
            ),
            line("narrowed: float32 up to (mean, min, max)", lengths),
            line("certified gap (mean, min, max)", gap),
            line("accuracy at 500 tokens, before and after", accuracies),
            line(
                f"mistakes at {grouped(measured.settings['long'])} tokens, three inputs each",
                lambda part: f"{part['mistakes_at_100000']} of {grouped(part['labels_at_100000'])}",
            ),
            line("least gap that was shown there", lambda part: f"{part['least_gap_at_100000']:.2f}"),
            line("seconds to certify, one core", lambda part: f"{part['seconds_to_certify']['mean']:.1f}"),
        ],
    )


# docs/automata.md


def large_machines() -> str:
    """Seconds of the operations on large machines, beside OpenFst."""
    measurements = record("automata_scale").measurements
    rows = [["", *["ours", "OpenFst"] * 3]]
    for name, entries in measurements.items():
        cells = [digits(one[who]) if who in one else "–" for one in entries for who in ("ours", "openfst")]
        rows.append([name, *cells])
    return table(("", "10⁴ states", "", "10⁵", "", "10⁶", ""), rows)


def spectral_learning() -> str:
    """How far learned automata are above the true perplexity."""
    names = {
        "`SpectralLearner()`": "default",
        "EM, the true number of states given": "em",
        "trigram, Witten–Bell": "trigram",
        "letters alone": "letters_alone",
    }
    summary = record("spectral_defaults").measurements["summary"]
    rows = [[title, *(share(summary[key][of], 2) for of in ("median", "worst"))] for title, key in names.items()]
    return table(("", "median", "worst"), rows)


# docs/heads.md


def norms() -> str:
    """The largest change of a state's norm, before and after :func:`steadied`."""
    measured = record("norm_over_length")
    runs, lengths = measured.measurements["runs"], [str(length) for length in measured.settings["lengths"]]

    def cell(family: str, kind: str, length: str) -> str:
        off = [
            max(abs(run["norms"][kind][when][length] - 1) for run in runs if run["family"] == family)
            for when in ("before", "after")
        ]
        return f"{digits(100 * off[0])} → {digits(100 * off[1])} %"

    rows = [
        [family + " (default)" * (family == "orthogonal")]
        + [cell(family, kind, length) for kind in ("random", "constant") for length in lengths]
        for family in dict.fromkeys(run["family"] for run in runs)
    ]
    return table(("family", "random words, 10⁵", "10⁶", "10⁷", "one letter, 10⁵", "10⁶", "10⁷"), rows)


# docs/induction.md


def machines_from_labels() -> str:
    """How often the machine behind labelled words is found."""
    measurements = record("machines_from_labels").measurements
    strings = measurements["label per string"]

    def ours(title: str, of: Numbers) -> list[str]:
        seconds = f"{of['seconds']['median']:.1f}, {of['seconds']['max']:.0f}"
        claimed = str(of["supported but not exact"])
        return [title, str(of["draws"]), share(of["exact"]), share(of["exact and supported"]), claimed, seconds]

    def classical(of: Numbers) -> list[str]:
        both = [of["edsm"], of["rpni"]]
        exact = ", ".join(share(one["exact"]) for one in both)
        median = max(one["seconds"]["median"] for one in both)
        worst = max(one["seconds"]["max"] for one in both)
        return ["– EDSM, RPNI (ours)", f"{both[0]['draws']} each", exact, "", "", f"{median:.1f}, {worst:.0f}"]

    def merging(title: str, of: Numbers) -> list[str]:
        seconds = f"{of['seconds']['median']:.1f}, {of['seconds']['max']:.0f}"
        return [title, str(of["draws"]), share(of["exact"]), "", str(of["supported but not exact"]), seconds]

    first = "10 000 words of 0–40 letters, a label each, none wrong"
    rows = [
        ours(first, strings["10000"]["description_length"]),
        ours("– 5 % wrong", strings["10000, 5 % wrong"]["description_length"]),
        ours("– 10 % wrong", strings["10000, 10 % wrong"]["description_length"]),
        merging("– RPNI (ours), 5 % wrong", strings["10000, 5 % wrong"]["rpni"]),
        merging("– RPNI (ours), 10 % wrong", strings["10000, 10 % wrong"]["rpni"]),
        ours("2 000 words, none wrong", strings["2000"]["description_length"]),
        classical(strings["2000"]),
        ours("500 words, none wrong", strings["500"]["description_length"]),
        classical(strings["500"]),
        ours("500 words, a label for every letter", measurements["label per letter, 500 strings"]),
    ]
    heads = ("sample", "draws", "exact machine", "exact and supported", "supported and wrong")
    return table((*heads, "seconds, median and worst"), rows)


def drawn_again() -> str:
    """Single draws beside the rows of the table."""
    rows = []
    for draw in record("machines_from_labels").measurements["drawn beside the rows"]:
        verdict = "exact" if draw["exact"] else "wrong"
        claimed = "claimed" if draw["supported"] else "not claimed"
        states = f"{draw['found_states']} of {draw['states']}"
        rows.append([draw["language"], str(draw["seed"]), states, f"{verdict}, {claimed}", f"{draw['seconds']:.0f}"])
    return table(("10 000 words, 10 % wrong", "draw", "states", "answer", "seconds"), rows)


def networks_from_labels() -> str:
    """How right networks are on the same samples."""
    names = {
        "dense readout, d = 32": ("10000", "dense"),
        "LSTM": ("10000", "lstm"),
        "Transformer": ("10000", "transformer"),
        "dense, 10 % of the labels wrong": ("10000, 10 % wrong", "dense"),
        "LSTM, 500 words": ("500", "lstm"),
    }
    measurements = record("networks_from_labels").measurements
    rows = []
    for title, (sample, network) in names.items():
        near, far = (measurements[sample][network][reach] for reach in ("to 40", "to 500"))
        rows.append([title, share(near["mean"]), share(far["mean"]), share(far["all right"], 0)])
    return table(("network, 10 000 words", "to 40 letters", "to 500", "no mistake to 500"), rows)


# docs/sidecar.md

_SIDECARS: Final = {
    "classes of tokens (`token_classes`)": "classes of tokens",
    "– into every fourth layer (`layers=[0, 4, 8]`)": "classes, every fourth layer",
    "– without the kernel of a decoded token": "classes, plain operations",
    "`shared_basis` over all tokens": "shared basis",
    "`cayley`, a matrix per token": "a matrix per token",
    "`head_for`: embeddings": "embeddings",
    "`head_for`, then `tabulate`": "embeddings, tabulated",
    "only the twelve additions": "sums alone",
}


def sidecars() -> str:
    """What a sidecar adds to a training step and to a decoded token."""
    parts = record("sidecar_cost_cuda").measurements
    training, static, default = (parts[name] for name in ("training", "generate, static cache", "generate"))

    def signed(value: float, sign: str = "+") -> str:
        text = f"{100 * value:{sign}.1f}".replace("-", "−")
        return "0.0" if text.strip("+−") == "0.0" else text

    def cell(part: Numbers, name: str) -> str:
        if name not in part:
            return ""
        low, high = median_interval(part[name]["added_turn_by_turn"])
        return f"{signed(part[name]['added'])} % ({signed(low, '-')} to {signed(high, '-')})"

    rows = [[title, *(cell(part, name) for part in (training, static, default))] for title, name in _SIDECARS.items()]
    rows.append(["no sidecar, measured twice", "", cell(static, "a second bare host"), cell(default, "bare")])
    heads = ("head", "a training step", 'a token, `cache_implementation="static"`', "a token, the default cache")
    return table(heads, rows)


# docs/scan.md and docs/kernels.md


def _time(contender: Numbers, which: str, scale: float, decimals: int) -> str:
    """Write a time of the scan; a contender that was not run leaves its reason in the record."""
    seconds = contender.get(which, {}).get("seconds")
    if seconds is None:
        return "–"
    scaled = scale * seconds
    return grouped(scaled) if scaled >= 100 else f"{scaled:.{decimals}f}"


def _both(case: Numbers, name: str, scale: float, decimals: int) -> str:
    return " / ".join(
        _time(case["contenders"][name], which, scale, decimals) for which in ("forward", "forward_backward")
    )


def _cases(name: str, chosen: Sequence[tuple[int, int]]) -> list[Numbers]:
    cases = {(case["case"]["batch"], case["case"]["time"]): case for case in record(name).measurements["lengths"]}
    return [cases[one] for one in chosen]


def scan_on_cpu() -> str:
    """Milliseconds of the scan beside its peers on a CPU."""
    names = ("auto", "chunked", "kogge_stone", "loop", "associative_scan", "jax", "lstm")
    chosen = [(1, 128), (1, 512), (1, 2048), (1, 8192), (1, 32768), (64, 32768)]
    rows = [
        [f"{batch}, {grouped(time)}", *(_both(case, name, 1e3, 2) for name in names)]
        for (batch, time), case in zip(chosen, _cases("scan_cpu", chosen), strict=True)
    ]
    peers = ("Kogge–Stone", "plain loop, `M @ h`", "torch `associative_scan`", "JAX `associative_scan`", "LSTM 16")
    return table(("B, T", "auto (numba)", "chunked", *peers), rows)


def scan_on_gpu() -> str:
    """Microseconds of the scan beside its peers on a GPU."""
    names = ("attention", "lstm", "kogge_stone", "associative_scan", "jax")
    chosen = [(1, 2048), (1, 32768), (1, 131072), (64, 8192)]
    rows = []
    for (batch, time), case in zip(chosen, _cases("scan_cuda", chosen), strict=True):
        own = [_time(case["contenders"]["auto"], which, 1e6, 0) for which in ("forward", "forward_backward")]
        rows.append([f"{batch}, {grouped(time)}", *own, *(_both(case, name, 1e6, 0) for name in names)])
    peers = ("attention (4 heads × 16, bf16)", "LSTM 16", "Kogge–Stone", "torch `associative_scan`")
    return table(("B, T", "forward", "forward + backward", *peers, "JAX `associative_scan`"), rows)


def _case(name: str, part: str, label: str, batch: int, time: int) -> Numbers:
    """Return a case of a record of the scan."""
    (case,) = (
        one
        for one in record(name).measurements[part]
        if (one["label"], one["case"]["batch"], one["case"]["time"]) == (label, batch, time)
    )
    return dict(case)


def floors() -> str:
    """What the parts of a scan take at the speed of the machine."""
    rates = record("scan_cuda").measurements["ceilings"]
    least = _case("scan_cuda", "lengths", "d=16, V=8", 64, 8192)["floor"]["forward"]
    copied, recurrence, products = (
        1e6 * least[what] / rates[rate]
        for what, rate in (("bytes", "bytes_per_second"), ("operations", "float32"), ("chunk_operations", "float32"))
    )
    return (
        "At B = 64, T = 8 192, d = 16, float32 on an H200 (measured there: "
        f"{rates['bytes_per_second'] / 1e12:.1f} TB/s for a large copy, {rates['float32'] / 1e12:.0f} TFLOP/s for "
        f"float32 products, {rates['float64'] / 1e12:.0f} for float64): "
        f"{copied:.0f} µs for the bytes, {recurrence:.0f} µs for the recurrence, {products:.0f} µs for the products, "
        f"{products / 2:.0f} with words of two tokens. So the products decide the time."
    )


def scan_errors() -> str:
    """The largest deviation of the scan from float64, over all cases in float32."""
    errors = [
        one["errors"]
        for one in record("scan_cuda").measurements["correctness"]
        if one["contender"] == "triton" and "T=32768" in one["case"]
    ]
    states = max(one["states"]["max"] for one in errors)
    gradients = max(one[name]["max"] for one in errors for name in one if name != "states")
    said = [f"{error:.1e}".replace("e-0", "e-") for error in (states, gradients)]
    return f"Errors at T = 32 768 against float64 on the same table: {said[0]} for states, {said[1]} for gradients."


def wide_scans() -> str:
    """Wide states, many tokens and many steps: before, now, and what was wanted."""
    wanted = {
        "d=16, V=8": ("99 / 410", "– / 250"),
        "d=32, V=8": ("902 / 1 707", "450 / 900"),
        "d=64, V=8": ("7 616 / 9 132", "2 800 / 4 000"),
        "d=128, V=8": ("refused", "–"),
    }
    rows = []
    for label, (before, reach) in wanted.items():
        case = _case("scan_wide_cuda", "wide", label, 64, 8192)
        cells = [_both(case, name, 1e6, 0) for name in ("auto", "attention", "lstm")]
        rows.append([f"B = 64, T = 8 192, {label}", before, cells[0], reach, *cells[1:]])
    parts = record("scan_parts_cuda").measurements
    for name, title, before, reach in (
        ("V=50257", "B = 64, T = 8 192, d=16, V=50 257", "– / 1 267", "– / 650"),
        ("V=50257, one token", "the same, one token everywhere", "–", "–"),
        ("a million steps", "B = 1, T = 1 048 576, d=16, V=8", "– / 1 816", "– / 700"),
    ):
        now = " / ".join(grouped(parts[name][which]) for which in ("forward", "forward_backward"))
        rows.append([title, before, now, reach, "", ""])
    heads = ("", "before", "now", "wanted", "attention (4 heads × 16, bf16)", "LSTM, d units")
    operations = 2 * 8 * 32_768 * 64**3
    products = 1e3 * operations / record("scan_wide_cuda").measurements["ceilings"]["float64"]
    (joined,) = (took for name, took in parts["V=50257, one token"]["kernels"] if name == "joined_runs")
    return (
        f"{table(heads, rows)}\n\nNot reached, or not shown: at d = 64, B = 8, T = 32 768, V = 256 the float64 "
        f"products alone take {products:.1f} ms at the full rate of the machine. Words are too many, rows too few for "
        "walks, and split products (TF32×3, bfloat16) truncate as they add, which adds up over a long chain. So this "
        "case is as before. For V = 50 257 half of the time are four passes over a kilobyte per position; of the time "
        "before, 71 µs were copies of a table that the benchmark had drawn transposed, which it no longer does. Direct "
        "sums were compared with float64 on the GPU, but not timed there, for want of machine time: they are two scans "
        f"of the first row. One token everywhere has since lost most of the {joined} µs in which its parts were added, "
        "which was compiled but not timed. Of the tests of walks, runs and blocks only some had run on the GPU when "
        "its time was spent; "
        "all run in the interpreter."
    )


def scan_versions() -> str:
    """What the versions of the kernels for wide states took, and what they taught."""
    versions = record("scan_versions_cuda").measurements["versions"]
    rows = [[one["version"], f"{grouped(one['microseconds'])} µs", one["lesson"]] for one in versions]
    return table(("version", "took", "what it taught"), rows)


def bounds() -> str:
    """How far the scan is from what bounds it."""

    def forward(label: str) -> tuple[float, Numbers]:
        case = _case("scan_wide_cuda", "wide", label, 64, 8192)
        return float(case["contenders"]["auto"]["forward"]["seconds"]), case["floor"]["forward"]

    seconds, floor = forward("d=32, V=8")
    walked = forward("d=64, V=8")[0] / (8192 / 3)
    old = _case("scan_cuda", "shapes", "d=16, V=50257", 64, 2048)
    large = old["contenders"]["auto"]["forward"]["seconds"] / old["floor"]["forward"]["seconds"]
    return (
        f"With a batch, d = 32 takes {3 * seconds / floor['chunk_seconds']:.1f} times its products alone, with words "
        f"of three tokens. d = 64 has no products and takes {1e9 * walked:.0f} ns a word of three tokens, of which the "
        "walk waits for most: a product with a vector, four rounds of shuffles, an exchange among all warps, one after "
        f"another. Reading V = 50 257 matrices once is {large:.0f} times its floor, because two passes gather a "
        "kilobyte per token from L2."
    )


def cost() -> str:
    """What a head costs a model, decoding and training."""
    added = [
        cell["models"]["transductor"]["seconds"] / cell["models"]["transformer"]["seconds"] - 1
        for cell in record("model_decoding_cuda").measurements["cells"]
    ]
    models = record("model_training_cuda").measurements["models"]
    without, with_head = (models[name]["device_seconds"] for name in ("transformer", "transductor"))
    clock = [turn for model in models.values() for turn in model["turns"]]
    records = {
        kind: f"[model_{kind}_cuda.json](../benchmarks/results/model_{kind}_cuda.json)"
        for kind in ("decoding", "training")
    }
    return (
        f"**Decoding** a token costs {100 * min(added):.1f} to {share(max(added))} more (B = 1 and 8 after 128, 2 048 "
        f"and 8 192 tokens; {records['decoding']}): one kernel for the step, one for all layers' projections, the "
        "additions inside kernels that are there anyway.\n\n"
        f"**A training step** takes {1e3 * without:.2f} ms without the head and {1e3 * with_head:.2f} ms with it, "
        f"captured in a CUDA graph: {100 * (with_head / without - 1):+.1f} % ({records['training']}). The mark is 3 %. "
        "What came to it: one product for all layers in place of one for each, and the kernels at d = 32. Most of the "
        "rest is the injection itself, written and read again.\n\n"
        f"By the host's clock the same step takes {1e3 * min(clock):.0f} to {1e3 * max(clock):.0f} ms for either "
        "model: on the machine at hand the host launches more slowly than the device computes, and by a different "
        "amount every time. Both clocks are in the record."
    )


def eager_calls() -> str:
    """Microseconds of an eager call, before and now, beside torch's attention in the same runs."""
    rows = []
    for device, time, title in (("cuda", 2048, "H200"), ("cuda", 128, "H200"), ("cpu", 128, "CPU"), ("cpu", 8, "CPU")):
        numbers = []
        for name, contender in (("before_", "auto"), ("", "auto"), ("before_", "attention"), ("", "attention")):
            cells = record(f"eager_calls_{name}{device}").measurements["cells"]
            (acts,) = (cell["contenders"][contender] for cell in cells if cell["case"]["time"] == time)
            seconds = (acts[act]["call"]["seconds"] for act in ("forward", "forward_backward"))
            numbers.append(" / ".join(grouped(1e6 * each) for each in seconds))
        rows.append([f"{title}, T = {grouped(time)}", *numbers])
    heads = ("", "scan before", "scan now", "attention, in the first run", "attention, in the second")
    return table(heads, rows)


def cost_of_bytes() -> str:
    """What a head costs the training step of a byte-level model, and what its injection could cost."""
    measured = record("model_profile_bytes_cuda").measurements
    models = measured["models"]
    without, with_head = (models[name]["device_seconds"] for name in ("transformer", "transductor"))
    few, many = measured["last_product_seconds"]
    more = sum(many[key] - few[key] for key in ("forward", "to_input", "to_weight"))
    return (
        "**A byte-level model** of 14 million parameters (8 layers of width 384, B = 16, T = 2 048) took "
        f"{1e3 * without:.2f} ms a training step, with a head of d = 32 {1e3 * with_head:.2f} ms: "
        f"{100 * (with_head / without - 1):+.1f} %, of which scan and rotations were "
        f"{1e6 * measured['scan_and_rotations_seconds']:.0f} µs "
        "([record](../benchmarks/results/model_profile_bytes_cuda.json), kernel by kernel). With 32 more columns the "
        f"three products of a layer take {1e6 * more:.0f} µs longer."
    )


def windows() -> str:
    """Attention in a window beside full attention, forward and backward."""
    measured = record("windowed_attention_cuda")
    rows = []
    for cell in measured.measurements["cells"]:
        ways = ("full", "window", "five dimensions", "flex")
        numbers = [grouped(1e6 * cell["seconds"][way]) if way in cell["seconds"] else "–" for way in ways]
        rows.append([f"{cell['dtype'].removeprefix('torch.')}, T = {grouped(cell['time'])}", *numbers])
    return table(("", "full", "window of 256", "as it was", "flex attention, compiled"), rows)


def wide_states() -> str:
    """Milliseconds of wide states and of a million steps on one core of a CPU."""
    rows = []
    for case in record("wide_states_cpu").measurements["beside"]:
        sizes = case["case"]
        names = ("auto", "chunked", "jax", "jax_loop", "lstm")
        least = {
            name: {act: {"seconds": taken.get("min")} for act, taken in acts.items()}
            for name, acts in case["contenders"].items()
        }
        head = f"{sizes['dim']}: {sizes['batch']}, {grouped(sizes['time'])}"
        rows.append([head, *(_both({"contenders": least}, name, 1e3, 1) for name in names)])
    peers = ("chunked", "JAX `associative_scan`", "JAX `lax.scan`", "`nn.LSTM`, d units")
    return table(("d: B, T", "auto (numba)", *peers), rows)


# docs/certify.md and docs/proofs.md


def nearly_right() -> str:
    """What is certified of counters whose turns are a little off."""
    rows = []
    for one in record("small_measurements").measurements["nearly right"]:
        error, horizon = f"{one['error']:.0e}".replace("e-0", "e-"), grouped(one["holds_up_to"])
        known = [error if one["error"] else "0", "perfect" if one["perfect"] else "wrong"]
        found = [horizon, f"1{_raised(one['word'])}"] if one["word"] else [f"{horizon}, the horizon asked for", "none"]
        rows.append([*known, *found, f"{one['seconds']:.2f} s", f"{one['check']:.2f} s"])
    words = ("error per turn", "1 000 random words", "certify: no word is wrong up to", "first wrong word")
    return table((*words, "time", "check"), rows)


def _raised(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def rocq() -> str:
    """Sizes of files for Rocq, and what coqc takes."""
    rows = []
    for one in record("small_measurements").measurements["rocq"]["table"]:
        name = one["machine"] if "|" not in one["machine"] else f"`{one['machine']}`".replace("|", "\\|")
        size = f"{one['bytes'] / 1e3:.0f} kB"
        rows.append([name, str(one["states"]), str(one["letters"]), size, f"{digits(one['seconds'])} s"])
    return table(("machine", "states", "letters", "file", "`coqc`"), rows)


# docs/constrained.md

_LIBRARIES: Final = ("Transductor", "Transductor, PatternMask", "outlines-core", "xgrammar", "llguidance")


def _libraries() -> Numbers:
    libraries: Numbers = record("constrained_decoding").measurements["libraries"]
    return {name: libraries[name] for name in _LIBRARIES}


def mask_times() -> str:
    """What masks take, beside the libraries."""
    rows = []
    for name, one in _libraries().items():
        token = one["token"]
        times = [grouped(1e6 * token[key]) if token[key] > 1e-4 else digits(1e6 * token[key]) for key in _SPREAD]
        making = "" if "PatternMask" in name else digits(1e6 * one["making"]["median"])
        build = [digits(1e3 * one["build"][key], 3) for key in ("median", "p95")]
        rows.append([name, *times, making, *build])
    heads = ("a token, µs: median", "p95", "mean", "making alone, median", "building, ms: median", "p95")
    return table(("", *heads), rows)


_SPREAD: Final = ("median", "p95", "mean")


def mask_correctness() -> str:
    """What the samples and the allowed sets of the libraries are like."""
    rows = []
    for name, one in _libraries().items():
        samples, places = one["samples"], one["places"]
        wrong = sum(samples.get(key, 0) for key in ("illegal", "dead end", "error"))
        rows.append(
            [
                name,
                str(samples.get("refused", 0)),
                grouped(samples.get("legal", 0)),
                str(wrong),
                str(samples.get("open", 0) + samples.get("undecided", 0)),
                f"{places['equal']} of {places['compared']}",
                f"{grouped(places['tokens wrongly allowed'])} / {grouped(places['tokens wrongly forbidden'])}",
            ]
        )
    heads = ("patterns refused", "legal texts", "illegal, stuck or error", "not ended", "places equal")
    return table(("", *heads, "wrongly allowed / forbidden"), rows)


def illegal_probability() -> str:
    """How much probability goes to forbidden tokens, without a mask."""
    rows = []
    for name, one in record("illegal_probability").measurements["patterns"].items():
        for length, answer in one["summary"].items():
            kinds = [answer[kind] for kind in ("host alone", "host and sidecar")]
            seeds = len(one["runs"]) // 2
            rows.append(
                [
                    name,
                    length,
                    *(share(kind["illegal"], 2) for kind in kinds),
                    f"{answer['seeds_with_less']} of {seeds}",
                    *(f"{kind['loss']:.3f}" for kind in kinds),
                ]
            )
    heads = ("pattern", "texts", "host alone", "with the sidecar", "seeds with less", "loss alone", "loss with")
    return table(heads, rows)


def distinguishability() -> str:
    """What became of the predictions, and the ratio beside mistakes and certified lengths."""
    runs = [
        {"task": task, **run}
        for task, each in record("distinguishability").measurements["runs"].items()
        for run in each
    ]
    both = [run["below nine tenths"] / run["crossing"] for run in runs if run["crossing"] and run["below nine tenths"]]
    first = [run for run in runs if run["first mistake"]]
    before = sum(run["crossing"] is None or run["first mistake"] < run["crossing"] for run in first)
    spans = [run["first mistake"] / run["certified length"] for run in first]
    told = (
        f"1. Accuracy falls below nine tenths at {digits(min(both), 3)} to {digits(max(both), 3)} times the crossing, "
        f"on {len(both)} heads (within a factor of two: **{_word(max(both) <= 2 and min(both) >= 0.5)}**).\n"
        f"2. First mistakes before the crossing: {before} of {len(first)} (all: **{_word(before == len(first))}**).\n"
        f"3. The first mistake is at {digits(min(spans))} to {digits(max(spans))} times the certified length "
        f"(at least four: **{_word(min(spans) >= 4)}**); {len(runs) - len(first)} heads made none."
    )

    def line(run: Numbers) -> list[str]:
        trained = "60" if "60" in run["ratio"] else "40"
        places = (run[key] for key in ("crossing", "below nine tenths", "first mistake", "certified length"))
        ratios = (digits(run["ratio"][key]) for key in (trained, "20000"))
        named = {"parity": "parity", "c6": "C6", "s3": "S3"}[run["task"]]
        return [
            f"{named}, seed {run['seed']}",
            digits(run["threshold"]),
            *ratios,
            *(grouped(p) if p else "–" for p in places),
        ]

    heads = (
        "head",
        "threshold",
        "ratio at the trained length",
        "ratio at 20 000",
        "crosses at",
        "below nine tenths at",
    )
    return f"{told}\n\n{table((*heads, 'first mistake at', 'certified up to'), [line(run) for run in runs])}"


def _word(holds: bool) -> str:
    return "confirmed" if holds else "refuted"


PAGES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "attention": {"certified attention": certified_attention},
    "automata": {"large machines": large_machines, "spectral learning": spectral_learning},
    "constrained": {
        "mask times": mask_times,
        "mask correctness": mask_correctness,
        "illegal probability": illegal_probability,
    },
    "heads": {"norms": norms},
    "induction": {
        "machines from labels": machines_from_labels,
        "drawn again": drawn_again,
        "networks from labels": networks_from_labels,
    },
    "sidecar": {"sidecars": sidecars},
    "scan": {"scan on a CPU": scan_on_cpu},
    "kernels": {
        "floors": floors,
        "scan on a GPU": scan_on_gpu,
        "errors": scan_errors,
        "bounds": bounds,
        "wide": wide_scans,
        "versions": scan_versions,
        "eager calls": eager_calls,
        "cost": cost,
        "cost of bytes": cost_of_bytes,
        "windows": windows,
        "wide states": wide_states,
    },
    "certify": {"nearly right": nearly_right},
    "proofs": {"rocq": rocq},
    "language_models": PAGE_OF_CODE_MODELS,
    "results": {"distinguishability": distinguishability},
    "peers": {
        "peer outcomes": peer_tables.outcomes,
        "peers on tracking": peer_tables.tracking,
        "layers": peer_tables.layers,
        "kernels": peer_tables.kernels,
        "rates": peer_tables.rates,
    },
}


def pages() -> dict[Path, str]:
    """Every page as the records say it is."""
    made = {}
    for name, parts in PAGES.items():
        page = DOCS / f"{name}.md"
        text = page.read_text()
        for mark, content in parts.items():
            text = filled(text, mark, content(), "make_measured")
        made[page] = text
    return made


def main() -> None:
    """Write the pages; with ``--check``, say whether one is old and write nothing."""
    print("written:", ", ".join(written(pages(), "make_measured")) or "nothing, all pages are up to date")


if __name__ == "__main__":
    main()
