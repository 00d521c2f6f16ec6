"""Make the tables of measurements on the pages about parts of the library: ``python docs/make_measured.py``.

Every number comes from a record in ``benchmarks/results``; what was measured, and how, the page says.  A test makes
all tables again and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

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

    first = "10 000 words of 0–40 letters, a label each, none wrong"
    rows = [
        ours(first, strings["10000"]["description_length"]),
        ours("– 5 % wrong", strings["10000, 5 % wrong"]["description_length"]),
        ours("– 10 % wrong", strings["10000, 10 % wrong"]["description_length"]),
        ours("2 000 words, none wrong", strings["2000"]["description_length"]),
        classical(strings["2000"]),
        ours("500 words, none wrong", strings["500"]["description_length"]),
        classical(strings["500"]),
        ours("500 words, a label for every letter", measurements["label per letter, 500 strings"]),
    ]
    heads = ("sample", "draws", "exact machine", "exact and supported", "supported and wrong")
    return table((*heads, "seconds, median and worst"), rows)


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


PAGES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "attention": {"certified attention": certified_attention},
    "automata": {"large machines": large_machines, "spectral learning": spectral_learning},
    "heads": {"norms": norms},
    "induction": {"machines from labels": machines_from_labels, "networks from labels": networks_from_labels},
    "sidecar": {"sidecars": sidecars},
    "scan": {"scan on a CPU": scan_on_cpu},
    "kernels": {"scan on a GPU": scan_on_gpu},
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
