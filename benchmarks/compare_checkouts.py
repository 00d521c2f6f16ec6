"""Time two checkouts of the project beside each other, in one run: what did a refactoring cost?

    python benchmarks/compare_checkouts.py OLD NEW --device cuda --rounds 8

OLD and NEW are folders with ``src/transductor``.  Each round starts one process per checkout, in alternating order, and
times scans, heads and models through the public interface.  A ratio is NEW over OLD within a round; beside its median
stand the least and the largest ratio, and the spread of OLD against itself from one round to the next.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"


def cases(device: str) -> dict[str, Callable[[], object]]:
    """What is timed, by name; only names that every checkout has."""
    import torch

    from transductor import BackboneConfig, RationalHead, RationalReadout, RationalTransductor, Transformer, scan
    from transductor.transitions import CayleyTransitions, OrthogonalTransitions

    torch.manual_seed(0)
    large = device == "cuda"
    calls: dict[str, Callable[[], object]] = {}

    def training_step(module: torch.nn.Module, tokens: torch.Tensor, **options: torch.Tensor) -> Callable[[], object]:
        def step() -> None:
            module.zero_grad(set_to_none=True)
            module(tokens, **options).float().square().mean().backward()

        return step

    for batch, length, dim in ((1, 128, 16), (1, 8192, 16), (64, 2048 if large else 256, 16), (8, 2048, 32)):
        table = torch.linalg.qr(torch.randn(8, dim, dim, device=device))[0].requires_grad_()
        tokens = torch.randint(0, 8, (batch, length), device=device)
        start = torch.ones(dim, device=device)
        lengths = torch.randint(1, length + 1, (batch,), device=device)
        name = f"B={batch} T={length} d={dim}"

        def forward(table=table, tokens=tokens, start=start):
            with torch.no_grad():
                return scan(table, tokens, initial_state=start)

        def both_ways(table=table, tokens=tokens, start=start, **options):
            table.grad = None
            scan(table, tokens, initial_state=start, **options).square().mean().backward()

        calls[f"scan forward, {name}"] = forward
        calls[f"scan both ways, {name}"] = both_ways
        calls[f"scan both ways, chunked, {name}"] = lambda both_ways=both_ways: both_ways(backend="chunked")
        calls[f"scan both ways, lengths, {name}"] = lambda both_ways=both_ways, lengths=lengths: both_ways(
            lengths=lengths
        )

    for family in (CayleyTransitions, OrthogonalTransitions):
        readout = RationalReadout(RationalHead(family(vocab_size=64, state_dim=32)), 8).to(device)
        tokens = torch.randint(0, 64, (8, 1024), device=device)
        calls[f"{family.name} readout, training step"] = training_step(readout, tokens)

    backbone = BackboneConfig(vocab_size=64, width=256 if large else 64, layers=4, attention_heads=4)
    tokens = torch.randint(0, 64, (8, 512 if large else 128), device=device)
    mask = torch.rand(tokens.shape, device=device) < 0.8
    head = RationalHead(OrthogonalTransitions(vocab_size=64, state_dim=32))
    for model in (RationalTransductor(head, backbone).to(device), Transformer(backbone).to(device)):
        name = type(model).__name__
        calls[f"{name}, training step"] = training_step(model, tokens)
        calls[f"{name}, training step, mask"] = training_step(model, tokens, mask=mask)

        def decode(model=model):
            with torch.no_grad():
                stream = model.start(batch_size=4)
                for step in range(16):
                    _, stream = model.advance(tokens[:4, step : step + 1], stream)

        calls[f"{name}, 16 decoded tokens"] = decode
    try:
        calls |= sidecar_cases(device)
    except ImportError:
        print("transformers is missing: sidecars are not timed", file=sys.stderr)
    return calls


def sidecar_cases(device: str) -> dict[str, Callable[[], object]]:
    """Training and generation of a small GPT-2 with a sidecar."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from transductor import RationalHead
    from transductor.integrations.huggingface import attach
    from transductor.transitions import OrthogonalTransitions

    config = GPT2Config(
        vocab_size=256, n_positions=256, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=None
    )
    host = GPT2LMHeadModel(config).to(device)
    attach(host, RationalHead(OrthogonalTransitions(vocab_size=256, state_dim=16)).to(device))
    tokens = torch.randint(1, 256, (4, 64), device=device)

    def train() -> None:
        host.train()
        host.zero_grad(set_to_none=True)
        host(input_ids=tokens, labels=tokens).loss.backward()

    def generate() -> None:
        host.eval()
        mask = torch.ones_like(tokens)
        host.generate(
            tokens, attention_mask=mask, max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=0
        )

    return {"sidecar on GPT-2, training step": train, "sidecar on GPT-2, 16 generated tokens": generate}


def measure(device: str, seconds: float) -> dict[str, float]:
    """Least seconds of one call of every case, after a warm-up: what else the machine does only adds time."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    times = {}
    for name, call in cases(device).items():
        for _ in range(3):
            call()
        wait()
        began, samples = time.perf_counter(), []
        while len(samples) < 5 or time.perf_counter() - began < seconds:
            start = time.perf_counter()
            call()
            wait()
            samples.append(time.perf_counter() - start)
        times[name] = min(samples)
    return times


def run_in(folder: Path, device: str, seconds: float) -> dict[str, float]:
    """The measurement of one checkout in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve() / "src")}
    code = [sys.executable, __file__, "--worker", "--device", device, "--seconds", str(seconds)]
    finished = subprocess.run(code, env=environment, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(f"{folder}: {finished.stderr[-2000:]}")
    return json.loads(finished.stdout.splitlines()[-1])


def compared(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Ratios of every case, and how far OLD differs from itself between neighbouring rounds."""
    table = {}
    for name in rounds[0]["old"]:
        ratios = sorted(each["new"][name] / each["old"][name] for each in rounds)
        old = [each["old"][name] for each in rounds]
        itself = [max(pair) / min(pair) for pair in pairwise(old)]
        table[name] = {
            "old_seconds": median(old),
            "new_seconds": median(each["new"][name] for each in rounds),
            "ratio": median(ratios),
            "least": ratios[0],
            "largest": ratios[-1],
            "old_to_itself": max(itself, default=1.0),
        }
    return table


def draw(table: dict[str, dict[str, float]], path: Path, title: str) -> None:
    """One line per case: its ratios, over the spread of OLD against itself."""
    import matplotlib.pyplot as plt

    names = list(table)[::-1]
    figure, axes = plt.subplots(figsize=(8.5, 0.3 * len(names) + 1.4), layout="constrained")
    for y, name in enumerate(names):
        row = table[name]
        axes.barh(y, row["old_to_itself"] - 1 / row["old_to_itself"], left=1 / row["old_to_itself"], color="#dde5ee")
        axes.plot([row["least"], row["largest"]], [y, y], color="#35618f", linewidth=1.5)
        axes.plot(row["ratio"], y, "o", color="#14304d", markersize=5)
    axes.axvline(1, color="#888888", linewidth=0.8)
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="time of NEW ÷ time of OLD", title=title)
    axes.set_xlim(0.5, 2)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.5, 0.7, 1, 1.4, 2], ["0.5", "0.7", "1", "1.4", "2"])
    figure.savefig(path, dpi=110)


def main() -> None:
    """Compare, print a table, write a record and a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.3, help="time spent on each case in each round")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(measure(given.device, given.seconds)))
        return
    from transductor.results import Record, environment

    folders = {"old": given.old, "new": given.new}
    rounds = []
    for number in range(given.rounds):
        order = ("old", "new") if number % 2 == 0 else ("new", "old")
        rounds.append({which: run_in(folders[which], given.device, given.seconds) for which in order})
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
    table = compared(rounds)
    for name, row in table.items():
        spread = f"({row['least']:.3f}–{row['largest']:.3f}), old to itself {row['old_to_itself']:.3f}"
        print(f"{name:45} {row['ratio']:.3f} {spread}")
    machine = environment()
    if given.device == "cuda":
        import torch

        machine["device"] = torch.cuda.get_device_name()
    name = f"compare_checkouts_{given.device}"
    settings = {"rounds": given.rounds, "seconds": given.seconds, "device": given.device}
    Record(name, settings, {"table": table, "rounds": rounds}, machine).write(given.output / f"{name}.json")
    draw(table, given.output / f"{name}.png", f"{machine.get('device', machine['processor'])}, {given.rounds} rounds")


if __name__ == "__main__":
    main()
