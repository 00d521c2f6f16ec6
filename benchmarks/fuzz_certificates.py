"""Try to make a certificate say something false: models with tensors of every size, in four formats, by brute force.

    python benchmarks/fuzz_certificates.py --models 100000 --processes 16

Each model follows a random machine through a head that is exact or slightly off, with a linear readout or a complete
stream; every tensor is multiplied by a power of two of its own.  What `certify` says is compared with what the model
says on all words of up to six letters and on random words of up to 2 000: nothing that is proved may be wrong, no
horizon may lie past a failure.  Of the models that are right everywhere and whose numbers stay well inside their
format, nine of ten must be proved.  The first false statement ends the run with its seed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from transductor.automata import MooreMachine
from transductor.certification import certify
from transductor.compilation import compile_model
from transductor.extraction.hardening import machine_head
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, NoAttention, RationalReadout, SlidingWindow
from transductor.results import Record, environment
from transductor.transitions import DenseTransitions

RESULTS = Path(__file__).parent / "results"
FORMATS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# How far exponents are drawn, and up to where every product of a few numbers stays well inside the format.
SPREAD = {"float64": 700, "float32": 90, "bfloat16": 90, "float16": 14}
INSIDE = {"float64": 80, "float32": 12, "bfloat16": 12, "float16": 2}
SHORT = torch.tensor(list(itertools.product(range(2), repeat=6)))
LONG = 2000
STREAM_EXPONENTS = 3  # beyond it the scale of a stream decides its labels


def drawn_machine(random: np.random.Generator) -> MooreMachine:
    """Return a machine of two to five states over two letters."""
    states = int(random.integers(2, 6))
    outputs = random.integers(0, 3, states)
    outputs[0], outputs[-1] = 0, 1
    return MooreMachine(random.integers(0, states, (states, 2)), outputs)


def exponent(random: np.random.Generator, spread: int, inside: int) -> int:
    """Return an exponent that is mostly moderate and sometimes anything."""
    most = spread if random.random() < 0.4 else inside
    return int(random.integers(-most, most + 1))


def drawn_model(seed: int) -> tuple[torch.nn.Module, MooreMachine, str, str, bool]:
    """Return a model, the machine it should follow, its kind, its format, and whether its numbers are moderate."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    machine, name = drawn_machine(random), str(random.choice(list(FORMATS)))
    kind = str(random.choice(["readout", "drifting readout", "stream", "attention"], p=[0.6, 0.2, 0.15, 0.05]))
    if name in ("bfloat16", "float16") and kind == "attention":
        kind = "stream"
    if kind in ("stream", "attention"):
        attention = NoAttention() if kind == "stream" else SlidingWindow(4)
        config = BackboneConfig(vocab_size=2, output_size=3, width=16, layers=1, attention_heads=2, attention=attention)
        model: torch.nn.Module = compile_model(machine, backbone=config)
        tensors = ["injection.projections.weight", "backbone.final_norm.weight", "backbone.readout.weight"]
    else:
        head = machine_head(machine)
        if kind == "drifting readout":  # permutations cannot drift
            table = head.transitions.table()
            head = RationalHead(DenseTransitions(state_dim=machine.states, vocab_size=machine.letters))
            with torch.no_grad():
                head.transitions.get_parameter("source.raw").copy_(table.flatten(1))
                head.raw_initial_state.zero_()[machine.start] = 1.0
        readout = torch.nn.functional.one_hot(torch.tensor(machine.outputs), 3).T.float()
        model = RationalReadout(head, 3)
        with torch.no_grad():
            model.readout.weight.copy_(readout + 0.2 * torch.randn(readout.shape))
            model.readout.bias.copy_(0.2 * torch.randn(3))
            if kind == "drifting readout":
                raw = head.transitions.get_parameter("source.raw")
                raw.add_(10.0 ** float(random.uniform(-9, -2)) * torch.randn(raw.shape))
        tensors = ["rational_head.raw_initial_state", "readout.weight", "readout.bias"]
    model = model.to(FORMATS[name]).eval()
    if name == "float64" or random.random() < 0.2:
        model.rational_head.double()
    moderate = True
    with torch.no_grad():
        for tensor in tensors:
            power = exponent(random, SPREAD[name], INSIDE[name] if "readout" in kind else STREAM_EXPONENTS)
            moderate &= abs(power) <= (INSIDE[name] if "readout" in kind else STREAM_EXPONENTS)
            parameter = model.get_parameter(tensor)
            scaled = parameter.double() * 2.0**power
            largest = torch.finfo(parameter.dtype).max
            parameter.copy_(scaled.clamp(-largest, largest))
        if "readout" in kind and random.random() < 0.7:  # biases that leave the labels to the states
            state, weight = model.rational_head.raw_initial_state, model.readout.weight
            model.readout.bias.mul_(0).add_(
                weight.double().abs().max() * state.double().abs().max() * 1e-3 * torch.randn(3)
            )
    return model, machine, kind, name, moderate


@torch.no_grad()
def first_wrong(model: torch.nn.Module, machine: MooreMachine, seed: int) -> int | None:
    """Return the length of the shortest word on which the model is wrong or undecided; None if there is none."""
    generator = torch.Generator().manual_seed(seed)
    long = torch.randint(0, 2, (2, LONG), generator=generator)
    long[1, LONG // 2 :] = int(seed) % 2  # a long run of one letter
    wrong = []
    for words in (SHORT, long):
        logits = model(words).double()
        best, second = logits.topk(2).values.unbind(-1)
        right = (logits.argmax(-1) == machine.labels(words)) & (best > second) & logits.isfinite().all(-1)
        wrong += ((~right).any(0)).nonzero().flatten()[:1].tolist()
    return min(wrong) + 1 if wrong else None


def tried(seed: int) -> tuple[str, str, str, str | None]:
    """Return kind, format and outcome of one model, and what is false about its certificate."""
    model, machine, kind, name, moderate = drawn_model(seed)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        return kind, name, "not finite", None
    try:
        certificate = certify(model, against=machine, horizon=LONG)
    except ValueError as error:
        if "finite numbers" in str(error):  # a family refuses them
            return kind, name, "not finite", None
        raise RuntimeError(f"seed {seed}: {error}") from error
    wrong = first_wrong(model, machine, seed)
    false = None
    if certificate.about != "head":
        if certificate.outcome == "proved" and wrong is not None:
            false = f"proved, but wrong after {wrong} letters"
        elif certificate.holds_up_to is not None and wrong is not None and wrong <= certificate.holds_up_to:
            false = f"{certificate.verdict} ({certificate.outcome}), but wrong after {wrong} letters"
    outcome = certificate.outcome if certificate.about != "head" else "head alone"
    if kind != "drifting readout" and wrong is None:
        outcome += ", right" + (" and moderate" if moderate else "")
    return kind, name, outcome, None if false is None else f"seed {seed}, {kind}, {name}: {false}"


def part(seeds: range) -> tuple[Counter[tuple[str, str, str]], list[str]]:
    """Try several models in one process."""
    torch.set_num_threads(1)
    counts: Counter[tuple[str, str, str]] = Counter()
    false = []
    for seed in seeds:
        kind, name, outcome, wrong = tried(seed)
        counts[kind, name, outcome] += 1
        if wrong is not None:
            false.append(wrong)
    return counts, false


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop when so much time has passed")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    false: list[str] = []
    began = time.perf_counter()
    size = 200
    last = options.first_seed + options.models
    parts = [range(begin, min(last, begin + size)) for begin in range(options.first_seed, last, size)]
    with ProcessPoolExecutor(options.processes) as pool:
        for number, (some, wrong) in enumerate(pool.map(part, parts), 1):
            counts += some
            false += wrong
            passed = time.perf_counter() - began
            print(f"\r{counts.total()} models, {len(false)} false, {passed:.0f} s", end="", file=sys.stderr, flush=True)
            if passed > options.seconds and number < len(parts):
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print(file=sys.stderr)
    right = {
        each: sum(count for key, count in counts.items() if key[2].endswith(", right and moderate") and each in key[2])
        for each in ("proved", "bounded", "refuted", "head alone")
    }
    share = right["proved"] / max(1, sum(right.values()))
    table = [
        {"kind": kind, "format": name, "outcome": outcome, "models": count}
        for (kind, name, outcome), count in sorted(counts.items())
    ]
    record = Record(
        "fuzz_certificates",
        {"models": counts.total(), "first_seed": options.first_seed, "longest": LONG},
        {"false": false[:20], "false_statements": len(false), "right_and_moderate": right, "share_proved": share,
         "table": table, "seconds": round(time.perf_counter() - began, 1)},
        environment(),
    )  # fmt: skip
    print(f"{counts.total()} models; false statements: {len(false)}; of the right and moderate {share:.1%} proved")
    for each in false[:20]:
        print(each)
    record.write(options.output / "fuzz_certificates.json")
    sys.exit(1 if false else 0)


if __name__ == "__main__":
    main()
