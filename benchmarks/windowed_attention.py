"""Attention to the last 256 positions beside attention to all of them: forward and backward, as in training.

Everything takes turns within one run: torch's causal attention, the window as a model computes it, the window as it was
computed before (blocks as a fifth dimension, for which torch has no fused kernel), and flex attention, compiled for
each length.  The window is first compared with full attention under a mask, in values and gradients.  Writes
``results/windowed_attention_<device>.json`` and prints the table.  Usage:
``python benchmarks/windowed_attention.py [--device cuda] [--rounds 10] [--flex] [--output FOLDER]``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from torch.nn import functional as F

from transductor.bench.correctness import one_line
from transductor.bench.timing import quiet_collector, run_environment, stopwatch, take_turns
from transductor.kernels.windowed_attention import Blocks, windowed_attention
from transductor.results import Record

RESULTS = Path(__file__).parent / "results"
WINDOW = 256
# Rows, heads, width of a head; lengths; dtypes.
SIZES = {"cuda": (4, 6, 64, (2048, 8192, 32_768)), "cpu": (1, 6, 64, (1024, 2048, 4096))}
DTYPES = {"cuda": (torch.bfloat16, torch.float32), "cpu": (torch.float32,)}


def full(queries, keys, values):
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)


def window(queries, keys, values):
    return windowed_attention(queries, keys, values, WINDOW)


def five_dimensions(queries, keys, values):
    blocks = Blocks(WINDOW, queries.shape[2], 0)
    present = torch.ones(queries.shape[2], dtype=torch.bool, device=queries.device)
    allowed = blocks.allowed(queries.device) & blocks.of_keys(present, 0).unsqueeze(-2)
    hidden = torch.finfo(queries.dtype).min / 2
    added = torch.zeros(allowed.shape, dtype=queries.dtype, device=queries.device).masked_fill(~allowed, hidden)

    def cut(value):
        padded = F.pad(value, (0, 0, WINDOW, blocks.count * WINDOW - queries.shape[2]))
        return padded.unfold(2, 2 * WINDOW, WINDOW).movedim(-1, 3)

    mixed = F.scaled_dot_product_attention(blocks.of_queries(queries, 2), cut(keys), cut(values), attn_mask=added)
    return mixed.flatten(2, 3)[:, :, : queries.shape[2]]


def masked(queries, keys, values):
    index = torch.arange(queries.shape[2], device=queries.device)
    distance = index[:, None] - index
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=(distance >= 0) & (distance < WINDOW))


def flexible(length, device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(row, head, query, key):
        return (key <= query) & (query - key < WINDOW)

    mask = create_block_mask(seen, None, None, length, length, device=device)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda queries, keys, values: compiled(queries, keys, values, block_mask=mask)


def call_of(function, leaves, cotangent):
    def call():
        mixed = function(*leaves)
        return mixed.detach(), *torch.autograd.grad(mixed, leaves, cotangent)

    return call


def drawn(length, dtype, device):
    rows, heads, width, _ = SIZES[device]
    source = torch.Generator().manual_seed(length)
    # Heads taken out of one stream, as a layer makes them.
    shape = rows, length, heads, width
    parts = [torch.randn(shape, generator=source).to(device, dtype).transpose(1, 2) for _ in range(4)]
    return [part.requires_grad_() for part in parts[:3]], parts[3]


def largest_error(dtype, device):
    """The largest difference to full attention under a mask, relative to the largest entry, of values and gradients."""
    leaves, cotangent = drawn(1000, dtype, device)
    exact = call_of(masked, [leaf.detach().double().requires_grad_() for leaf in leaves], cotangent.double())()
    found = call_of(window, leaves, cotangent)()
    gaps = [(ours.double() - right).abs().max() / right.abs().max() for ours, right in zip(found, exact, strict=True)]
    return max(float(gap) for gap in gaps)


def cell_of(length, dtype, device, rounds, *, flex):
    leaves, cotangent = drawn(length, dtype, device)
    ways = {"full": full, "window": window, "five dimensions": five_dimensions}
    watches, skipped = {}, {}
    if flex and dtype == torch.bfloat16:
        try:
            ways["flex"] = flexible(length, device)
        except Exception as error:
            skipped["flex"] = one_line(error)
    for name, function in ways.items():
        try:
            watches[name] = stopwatch([call_of(function, leaves, cotangent)], device)
        except Exception as error:
            skipped[name] = one_line(error)
    turns = take_turns(watches, box=1.0, rounds=rounds)
    seconds = {name: median(samples) for name, samples in turns.items() if not isinstance(samples, Exception)}
    timed = {name: watches[name].timed for name in seconds}
    return {"time": length, "dtype": str(dtype), "seconds": seconds, "timed": timed, "skipped": skipped}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=SIZES, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--flex", action="store_true", help="compile flex attention, too")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    device, began = options.device, time.perf_counter()
    rows, heads, width, lengths = SIZES[device]
    errors = {str(dtype): largest_error(dtype, device) for dtype in DTYPES[device]}
    print(errors)
    cells = []
    with quiet_collector():
        for dtype in DTYPES[device]:
            for length in lengths:
                cells.append(cell_of(length, dtype, device, options.rounds, flex=options.flex and length == 8192))
                numbers = ", ".join(f"{name} {1e6 * value:.0f}" for name, value in cells[-1]["seconds"].items())
                print(f"{dtype} T={length}: {numbers} µs {cells[-1]['skipped'] or ''}")
    settings = {"window": WINDOW, "rows": rows, "heads": heads, "width": width, "rounds": options.rounds}
    record = Record(
        f"windowed_attention_{device}",
        settings,
        {"largest_error": errors, "cells": cells},
        run_environment(device, began),
    )
    print(record.write(options.output / f"{record.name}.json"))


if __name__ == "__main__":
    main()
