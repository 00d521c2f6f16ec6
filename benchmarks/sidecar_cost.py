"""Measure what a sidecar costs its host model: a GPT-2 of 124 million parameters on a GPU, training and decoding.

All hosts take turns within one run.  Decoding is measured as users do it, with ``generate`` and a streamer that reads
the clock at every token.  With the cache that grows, Python calls the model: one host is used, its sidecar is attached
and detached within a call, ``bare`` is the same without any sidecar, and the sidecar's own call is timed too.  With a
static cache ``generate`` compiles the model: hosts share their weights, and a second bare host shows how much equal
hosts differ.

Writes ``benchmarks/results/sidecar_cost_cuda.json`` and ``sidecar_cost_cuda.png``.  Usage:
``python benchmarks/sidecar_cost.py [--quick] [--output FOLDER]``; ``--quick`` takes a small host without a GPU, does
not compile it, and only checks that everything runs.
"""

from __future__ import annotations

import argparse
import copy
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation.streamers import BaseStreamer

from transductor import RationalHead
from transductor.bench.timing import quiet_collector
from transductor.integrations.huggingface import attach, detach, head_for, sidecar_of, tabulate
from transductor.integrations.huggingface.host_models import host_of
from transductor.integrations.huggingface.sidecar import MODULE_NAME, install
from transductor.report.style import READABLE, median_interval, save_figure
from transductor.results import Record, environment
from transductor.transitions import CayleyTransitions, SharedBasisTransitions


@dataclass(frozen=True)
class Sizes:
    """Sizes of the host, the sidecar and the measurement."""

    layers: int = 12
    width: int = 768
    vocab_size: int = 50_257
    state_dim: int = 32
    batch: int = 16
    length: int = 1024
    steps_per_turn: int = 4
    turns: int = 8
    prompt: int = 128
    generated: int = 128
    left_out: int = 8
    decoding_turns: int = 7
    block: int = 16
    blocks: int = 17
    compiled_turns: int = 36


QUICK = Sizes(
    layers=2,
    width=32,
    vocab_size=101,
    batch=2,
    length=16,
    steps_per_turn=1,
    turns=2,
    prompt=4,
    generated=8,
    left_out=2,
    decoding_turns=2,
    block=4,
    blocks=5,
    compiled_turns=2,
)


CLASSES = 64
SUMS_ALONE = "sums alone"
SECOND_HOST = "a second bare host"
TABULATED = "embeddings, tabulated"  # only for decoding, after training
FEW_LAYERS = "classes, every fourth layer"
PLAIN = "classes, plain operations"
UNCOMPILED = (FEW_LAYERS, PLAIN)  # only for decoding where Python calls the model


def sidecars(sizes: Sizes) -> dict[str, Callable[[Any], None]]:
    """Return functions that attach a sidecar to a host: none, and four ways to drive one, two of them with variants.

    ``plain operations`` is what a head over tokens would cost without the kernel of a decoded token, which does not
    read projections of another class, such as those of an adapter.
    """
    tokens = {"vocab_size": sizes.vocab_size, "state_dim": sizes.state_dim}
    classes = torch.arange(sizes.vocab_size) % CLASSES

    def by_embeddings(host: Any) -> None:
        attach(host, head_for(host, state_dim=sizes.state_dim))

    def tabulated(host: Any) -> None:
        by_embeddings(host)
        tabulate(host)

    def by_tokens(family: Any, host: Any) -> None:
        attach(host, RationalHead(family(**tokens)))

    def few_classes(host: Any, every: int = 1) -> None:
        head = RationalHead(CayleyTransitions(vocab_size=CLASSES, state_dim=sizes.state_dim))
        attach(host, head, range(0, sizes.layers, every), token_classes=classes)

    def plain(host: Any) -> None:
        few_classes(host)
        projections: Any = sidecar_of(host).injection.projections
        projections.__class__ = type("Linear", (nn.Linear,), {})

    return {
        "bare": lambda host: None,
        "embeddings": by_embeddings,
        TABULATED: tabulated,
        "classes of tokens": few_classes,
        FEW_LAYERS: partial(few_classes, every=4),
        PLAIN: plain,
        "shared basis": partial(by_tokens, SharedBasisTransitions),
        "a matrix per token": partial(by_tokens, CayleyTransitions),
    }


def build(sizes: Sizes, name: str, device: str) -> Any:
    """Build the host, with the same weights every time, and its sidecar."""
    torch.manual_seed(0)
    attention_heads = max(1, sizes.width // 64)
    host = GPT2LMHeadModel(
        GPT2Config(
            n_layer=sizes.layers,
            n_embd=sizes.width,
            n_head=attention_heads,
            vocab_size=sizes.vocab_size,
            n_positions=max(sizes.length, sizes.prompt + sizes.generated, sizes.prompt + sizes.block * sizes.blocks),
            bos_token_id=None,
            eos_token_id=None,
        )
    ).to(device)
    if name != "bare":
        attach_trained(sizes, name, host)
    return host


def attach_trained(sizes: Sizes, name: str, host: Any) -> None:
    """Attach a sidecar whose projections are not zero, as after training."""
    sidecars(sizes)[name](host)
    projections = sidecar_of(host).injection.projections
    assert projections is not None
    nn.init.normal_(projections.weight, std=0.01)


def training_step(host: Any, tokens: Tensor) -> Callable[[], None]:
    """Return one step as a user writes it: bfloat16 autocast, AdamW."""
    optimiser = torch.optim.AdamW(host.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with torch.autocast(tokens.device.type, torch.bfloat16):
            loss = host(tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def take_turns(actions: dict[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Return the seconds that each action took, turn by turn."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    with quiet_collector():
        for number in range(-2, turns):  # the first two turns warm up
            for name in list(actions)[:: 1 if number % 2 else -1]:
                seconds = actions[name]()
                if number >= 0:
                    taken[name].append(seconds)
    return taken


def summarised(turns: dict[str, list[float]]) -> dict[str, Any]:
    """Return the seconds of a step or a token, and what is added to the bare host."""
    return {name: compared(several, turns["bare"]) for name, several in turns.items()}


def compared(several: list[float], bare: list[float]) -> dict[str, Any]:
    """Compare the turns of a host with those of the bare one."""
    added = [ours / theirs - 1 for ours, theirs in zip(several, bare, strict=True)]
    return {
        "seconds": median(several),
        "min": min(several),
        "max": max(several),
        "added": median(added),  # of turns next to each other, because the speed of a computer drifts
        "added_to_the_median": median(several) / median(bare) - 1,
        "added_to_the_least": min(several) / min(bare) - 1,
        "added_turn_by_turn": added,
    }


def waited_for(device: str) -> float:
    """Return the time when the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def trained(sizes: Sizes, device: str) -> dict[str, Any]:
    """Measure training steps."""
    tokens = torch.randint(0, sizes.vocab_size, (sizes.batch, sizes.length), device=device)
    hosts = {
        name: build(sizes, name, device).train() for name in sidecars(sizes) if name not in (TABULATED, *UNCOMPILED)
    }
    steps = {name: training_step(host, tokens) for name, host in hosts.items()}

    def several(step: Callable[[], None]) -> float:
        began = waited_for(device)
        for _ in range(sizes.steps_per_turn):
            step()
        return (waited_for(device) - began) / sizes.steps_per_turn

    entries = summarised(take_turns({name: partial(several, step) for name, step in steps.items()}, sizes.turns))
    for name, host in hosts.items():
        entries[name]["parameters"] = sum(parameter.numel() for parameter in host.parameters())
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            steps[name]()
            entries[name]["step_bytes"] = torch.cuda.max_memory_allocated() - before
    return entries


class Clock(BaseStreamer):
    """Records when ``generate`` hands out the prompt and every token after it."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Tensor) -> None:
        """Record the time: a user could read the token now."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing: there is nothing to flush."""


def generate(host: Any, prompt: Tensor, cache: str, tokens: int, clock: Clock) -> Clock:
    """Generate this many tokens greedily."""
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}
    host.generate(prompt, cache_implementation=cache, streamer=clock, pad_token_id=0, **options)
    return clock


def between_tokens(sizes: Sizes, host: Any, prompt: Tensor, cache: str) -> float:
    """Return the median seconds between a token and the next, without the first few."""
    times = generate(host, prompt, cache, sizes.generated, Clock()).times
    return median(later - earlier for earlier, later in pairwise(times[sizes.left_out :]))


class ExchangedSidecars:
    """One host whose sidecar is exchanged, because two equal hosts differ by a per cent or two.

    ``sums alone`` is no sidecar: a constant is added to the stream before each layer, and nothing else is done.
    """

    def __init__(self, sizes: Sizes, device: str) -> None:
        self.host = build(sizes, "bare", device).to(torch.bfloat16).eval()
        self.sidecars = {}
        for name in sidecars(sizes):
            if name != "bare":
                attach_trained(sizes, name, self.host)
                self.sidecars[name] = detach(self.host)
        self.term = torch.zeros(1, 1, sizes.width, device=device, dtype=torch.bfloat16)

    def attached(self, name: str) -> None:
        """Attach this sidecar and no other."""
        if hasattr(host_of(self.host).base, MODULE_NAME):
            detach(self.host)
        for layer in host_of(self.host).layers:
            layer.__dict__.pop("forward", None)
            if name == SUMS_ALONE:
                layer.__dict__["forward"] = partial(self.summed, layer.forward)
        if name in self.sidecars:
            install(host_of(self.host), self.sidecars[name])

    def summed(self, forward: Callable[..., Any], stream: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Do the least that any sidecar does: add a term to the stream."""
        return forward(stream + self.term, *args, **kwargs)


class Switch(Clock):
    """Detaches the sidecar and attaches it again, block by block of the tokens of one call.

    Between two calls the speed of a processor drifts by more than a sidecar costs.  The time of switching is not
    counted, nor are the first tokens after it.  ``blocks`` are the medians of blocks: attached, bare, attached, …
    """

    def __init__(self, changing: ExchangedSidecars, name: str, sizes: Sizes) -> None:
        super().__init__()
        self.changing, self.name, self.sizes = changing, name, sizes
        self.blocks: list[float] = []
        self.resumed = 0.0

    def put(self, value: Tensor) -> None:
        """Count one more token of the block."""
        self.times.append(time.perf_counter() - self.resumed)
        if len(self.times) == self.sizes.block:
            self.blocks.append(median(self.times[self.sizes.block // 4 :]))
            self.times.clear()
            self.changing.attached("bare" if len(self.blocks) % 2 else self.name)
        self.resumed = time.perf_counter()


def generated(sizes: Sizes, device: str) -> dict[str, Any]:
    """Measure seconds per token where Python calls the model, each block beside the bare block before it."""
    changing = ExchangedSidecars(sizes, device)
    prompt = drawn_prompt(sizes, device)
    attached: dict[str, list[float]] = {name: [] for name in ("bare", SUMS_ALONE, *changing.sidecars)}
    bare: dict[str, list[float]] = {name: [] for name in attached}
    with quiet_collector():
        for number in range(-1, sizes.decoding_turns):  # the first turn warms up
            for name in attached:
                changing.attached(name)
                tokens = sizes.block * sizes.blocks
                switch = Switch(changing, name, sizes)
                generate(changing.host, prompt, "dynamic", tokens, switch)
                if number >= 0:
                    bare[name] += switch.blocks[1::2]
                    attached[name] += switch.blocks[2::2]
    entries = {name: compared(attached[name], bare[name]) for name in attached}
    for name in changing.sidecars:
        changing.attached(name)
        entries[name]["own_seconds"] = own_seconds(sizes, changing.host, prompt)
    return entries


def own_seconds(sizes: Sizes, host: Any, prompt: Tensor) -> float:
    """Return the median seconds per token that the processor spends in the sidecar's own call, before any layer."""
    watch, began = sidecar_of(host), []
    spent: list[float] = []
    handles = [
        watch.register_forward_pre_hook(lambda *called: began.append(time.perf_counter())),
        watch.register_forward_hook(lambda *called: spent.append(time.perf_counter() - began[-1])),
    ]
    with quiet_collector():
        generate(host, prompt, "dynamic", sizes.generated, Clock())
    for handle in handles:
        handle.remove()
    return median(spent[sizes.left_out :])


def generated_compiled(sizes: Sizes, device: str, keep: Callable[[dict[str, Any]], Record]) -> Record:
    """Measure seconds per token with a static cache; every result is kept as soon as it is there.

    Each sidecar is measured beside two bare hosts, and all three are compiled again, because the guards of a model are
    checked more slowly the later it is compiled in a process.
    """
    prompt = drawn_prompt(sizes, device)
    first = build(sizes, "bare", device).to(torch.bfloat16).eval()
    measured: list[dict[str, list[float]]] = []
    for name in sidecars(sizes):
        if name not in ("bare", *UNCOMPILED):
            hosts = {one: twin(sizes, one, first) for one in ("bare", name, SECOND_HOST)}
            actions = {one: partial(between_tokens, sizes, host, prompt, "static") for one, host in hosts.items()}
            torch._dynamo.reset()
            measured.append(take_turns(actions, sizes.compiled_turns))
            record = keep(pooled(measured))
    return record


def pooled(measured: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Compare each sidecar with the bare host it took turns with, and the second bare host with the first."""
    entries = {}
    for turns in measured:
        entries.update(summarised(turns))
    every = {one: [value for turns in measured for value in turns[one]] for one in ("bare", SECOND_HOST)}
    return entries | summarised(every)


def twin(sizes: Sizes, name: str, host: Any) -> Any:
    """Return another host with the same weights, at the same addresses, and a sidecar of its own."""
    shared = {id(tensor): tensor for tensor in (*host.parameters(), *host.buffers())}
    other = copy.deepcopy(host, shared)
    if name in sidecars(sizes) and name != "bare":
        attach_trained(sizes, name, other)
    return other


def drawn_prompt(sizes: Sizes, device: str) -> Tensor:
    """Draw a prompt of one row."""
    return torch.randint(0, sizes.vocab_size, (1, sizes.prompt), device=device)


TRAINING = "training"
GENERATE, GENERATE_STATIC = "generate", "generate, static cache"
MARKS = {TRAINING: 3, GENERATE: 2, GENERATE_STATIC: 2}


def picture(record: Record, path: Path) -> Path:
    """Draw what each sidecar adds: a dot for every turn, the median and its interval; outliers are counted."""
    parts = record.measurements
    with plt.rc_context(READABLE):
        figure, axes = plt.subplots(len(parts), 1, figsize=(13, 4.4 * len(parts)), layout="constrained", squeeze=False)
        for axis, (name, part) in zip(axes.flat, parts.items(), strict=True):
            draw(axis, name, part)
        settings = record.settings
        figure.suptitle(f"GPT-2, 124 million parameters; d = {settings['state_dim']}; {record.environment['device']}")
        meaning = "a point: one turn; a bar: the median and its 95 % interval; red: the aim; grey: no head"
        figure.supxlabel(meaning, fontsize="small", color="0.25")
        return save_figure(figure, path)


def draw(axis: Any, name: str, part: dict[str, Any]) -> None:
    """Draw one way of using the host."""
    # Where bare blocks were compared with bare blocks, they are a control.
    nothing = {"bare": "nothing, twice"} if any(part["bare"]["added_turn_by_turn"]) else {}
    named = [one for one in part if one not in ("bare", SECOND_HOST)]
    named += [one for one in part if one == SECOND_HOST or one in nothing]
    everything = sorted(100 * value for one in named for value in part[one]["added_turn_by_turn"])
    cut = len(everything) // 10
    bottom, top = min(-MARKS[name], 1.3 * everything[cut]), 1.3 * max(everything[-1 - cut], 2 * MARKS[name])
    axis.set_ylim(bottom, top)
    for place, one in enumerate(named):
        added = [100 * value for value in part[one]["added_turn_by_turn"]]
        colour = "0.45" if one in ("bare", SECOND_HOST, SUMS_ALONE) else "#1f5fbf"
        axis.plot([place] * len(added), added, "o", color=colour, alpha=0.25, markersize=4)
        axis.plot([place - 0.25, place + 0.25], [100 * part[one]["added"]] * 2, color=colour, lw=3)
        axis.plot([place + 0.25] * 2, median_interval(added), color=colour, lw=3)
        for edge, away, side in (
            (top, sum(v > top for v in added), "top"),
            (bottom, sum(v < bottom for v in added), "bottom"),
        ):
            if away:
                beyond = f"{away} {'above' if side == 'top' else 'below'}"
                axis.text(place, edge, beyond, ha="center", va=side, color="0.3", fontsize="x-small")
    axis.axhline(0, color="0.3", lw=1)
    axis.axhline(MARKS[name], color="#d1495b", lw=1.5, ls="--")
    at_the_edge = axis.get_yaxis_transform()
    axis.text(1.01, MARKS[name], f"{MARKS[name]} %", color="#d1495b", va="center", transform=at_the_edge)
    labels = [textwrap.fill(nothing.get(one, one), 13, break_long_words=False) for one in named]
    axis.set_xticks(range(len(named)), labels, fontsize="small")
    axis.set_xlim(-0.6, len(named) - 0.4)
    unit = "a step" if name == TRAINING else "a token"
    axis.set_title(f"{name}\nbare host: {1e3 * part['bare']['seconds']:.2f} ms {unit}")
    axis.set_ylabel("added, per cent")


def main() -> None:
    """Measure, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not arguments.quick else "cpu"
    sizes = QUICK if arguments.quick else Sizes()
    parts_so_far: dict[str, Any] = {}

    def keep(parts: dict[str, Any]) -> Record:
        parts_so_far.update(parts)
        here = environment() | {"device": torch.cuda.get_device_name() if device == "cuda" else "CPU"}
        record = Record("sidecar_cost", asdict(sizes), parts_so_far, here)
        print(record.write(arguments.output / f"sidecar_cost_{device}.json"), flush=True)
        return record

    keep({TRAINING: trained(sizes, device)})
    record = keep({GENERATE: generated(sizes, device)})
    if device == "cuda":
        record = generated_compiled(sizes, device, lambda part: keep({GENERATE_STATIC: part}))
    print(picture(record, arguments.output / f"sidecar_cost_{device}.png"))
    for name, part in parts_so_far.items():
        for one, entry in part.items():
            low, high = median_interval(entry["added_turn_by_turn"])
            own = f"  of its own {1e6 * entry['own_seconds']:.0f} us" if "own_seconds" in entry else ""
            print(
                f"{name:26} {one:22} {1e3 * entry['seconds']:9.3f} ms  "
                f"{entry['added']:+.2%} [{low:+.2%}, {high:+.2%}]  "
                f"least {1e3 * entry['min']:9.3f} ms  {entry['added_to_the_least']:+.2%}{own}"
            )


if __name__ == "__main__":
    main()
