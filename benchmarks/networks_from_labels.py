"""Networks trained on labelled strings: an LSTM, a Transformer and a dense readout, beside the machines.

The samples are those of :mod:`machines_from_labels`.  One network is trained for every language and seed; all of a kind
are trained as one stacked job, which is what a GPU is good at (``train``).  Each is judged on strings of at most 40
letters, and of up to 500.  The dense readouts are then asked for their machine as ``transductor extract`` asks
(``extract``), and the machine is learned from the strings with the labels that the readout gives them (``relabel``):
what a network adds to the search, if anything.  ``report`` writes ``benchmarks/results/networks_from_labels.json``.

Usage: ``python benchmarks/networks_from_labels.py {train,extract,relabel,report} [--device D] [--seeds N] [--jobs N]
[--kinds K,…] [--conditions C;…] [--folder FOLDER] [--steps N] [--only TEXT]``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor
from torch.nn import functional

from labelled_languages import Language, drawn, languages, same_language
from machines_from_labels import CONDITIONS, SECONDS, accuracy_beyond, draw_seed, kept, read
from transductor.automata import learned_from_labels
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.extraction import NoMachineNearby, extract
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.results import Record, environment
from transductor.transitions import DenseTransitions

FOLDER = Path("runs/networks_from_labels")
RESULT = Path("benchmarks/results/networks_from_labels.json")
LONGEST, LONG = 40, 500
VOCABULARY = 11  # start, then up to ten letters
WIDTH, LAYERS, HEADS, STATE = 64, 2, 4, 32
BATCH = 64
KINDS = ("lstm", "transformer", "dense")
Weights = dict[str, Tensor]


def padded(words: list[list[int]], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens ``(N, 1 + longest)`` with the start in front, and the place of each word's last token."""
    tokens = np.zeros((len(words), longest + 1), dtype=np.uint8)
    for row, word in enumerate(words):
        tokens[row, 1 : len(word) + 1] = np.array(word) + 1
    return tokens, np.array([len(word) for word in words])


def started(kind: str, count: int, generator: torch.Generator, device: str) -> Weights:
    """Stacked weights of networks of one kind."""

    def normal(*shape: int, scale: float) -> Tensor:
        values = torch.randn(count, *shape, generator=generator) * scale
        return values.to(device).requires_grad_()

    def fixed(*shape: int, value: float = 0.0) -> Tensor:
        return torch.full((count, *shape), value, device=device).requires_grad_()

    if kind == "dense":
        eye = torch.eye(STATE).expand(count, VOCABULARY, STATE, STATE)
        noise = torch.randn(count, VOCABULARY, STATE, STATE, generator=generator) * (0.3 / math.sqrt(STATE))
        return {
            "matrices": (eye * 0.9 + noise).to(device).requires_grad_(),
            "initial": normal(STATE, scale=1 / math.sqrt(STATE)),
            "readout": normal(2, STATE, scale=1 / math.sqrt(STATE)),
            "bias": fixed(2),
        }
    if kind == "lstm":
        weights = {"inputs": normal(VOCABULARY, 4 * WIDTH, scale=1 / math.sqrt(WIDTH))}
        for layer in range(LAYERS):
            weights[f"hidden{layer}"] = normal(WIDTH, 4 * WIDTH, scale=1 / math.sqrt(WIDTH))
            weights[f"between{layer}"] = normal(WIDTH, 4 * WIDTH, scale=1 / math.sqrt(WIDTH))
            weights[f"bias{layer}"] = fixed(4 * WIDTH)
    else:
        weights = {"inputs": normal(VOCABULARY, WIDTH, scale=1.0)}
        for layer in range(LAYERS):
            weights |= {
                f"attention{layer}": normal(WIDTH, 3 * WIDTH, scale=1 / math.sqrt(WIDTH)),
                f"joined{layer}": normal(WIDTH, WIDTH, scale=1 / math.sqrt(2 * LAYERS * WIDTH)),
                f"wide{layer}": normal(WIDTH, 4 * WIDTH, scale=1 / math.sqrt(WIDTH)),
                f"narrow{layer}": normal(4 * WIDTH, WIDTH, scale=1 / math.sqrt(8 * LAYERS * WIDTH)),
                f"scale_one{layer}": fixed(WIDTH, value=1.0),
                f"scale_two{layer}": fixed(WIDTH, value=1.0),
            }
    return weights | {"readout": normal(2, WIDTH, scale=1 / math.sqrt(WIDTH)), "bias": fixed(2)}


def by_dense(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    count, rows, length = tokens.shape
    state = weights["initial"][:, None, :].expand(count, rows, STATE)
    final = state
    flat = weights["matrices"].permute(0, 1, 3, 2).reshape(count, VOCABULARY * STATE, STATE)
    for time_ in range(length):
        # One product of all letters' matrices: the state sits in the block of its letter.
        chosen = functional.one_hot(tokens[:, :, time_], VOCABULARY).to(state.dtype)
        blocks = (chosen[..., None] * state[:, :, None, :]).reshape(count, rows, -1)
        state = torch.bmm(blocks, flat)
        final = torch.where((last == time_)[..., None], state, final)
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def by_lstm(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    count, rows, length = tokens.shape
    zero = torch.zeros(count, rows, WIDTH, device=tokens.device)
    hidden, cell = [zero] * LAYERS, [zero] * LAYERS
    final = zero
    at = torch.arange(count, device=tokens.device)[:, None]
    for time_ in range(length):
        below: Tensor | None = None
        for layer in range(LAYERS):
            gates = torch.baddbmm(weights[f"bias{layer}"][:, None], hidden[layer], weights[f"hidden{layer}"])
            if below is None:
                gates = gates + weights["inputs"][at, tokens[:, :, time_]]
            else:
                gates = torch.baddbmm(gates, below, weights[f"between{layer}"])
            add, forget, value, show = gates.chunk(4, -1)
            cell[layer] = torch.sigmoid(forget + 1) * cell[layer] + torch.sigmoid(add) * torch.tanh(value)
            hidden[layer] = torch.sigmoid(show) * torch.tanh(cell[layer])
            below = hidden[layer]
        final = torch.where((last == time_)[..., None], hidden[-1], final)
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def by_transformer(weights: Weights, tokens: Tensor, last: Tensor) -> Tensor:
    """Pre-norm, causal, rotary positions."""
    count, rows, length = tokens.shape
    stream = weights["inputs"][torch.arange(count, device=tokens.device)[:, None, None], tokens]
    for layer in range(LAYERS):
        normed = functional.layer_norm(stream, (WIDTH,)) * weights[f"scale_one{layer}"][:, None, None]
        joined = torch.einsum("mbtw,mwx->mbtx", normed, weights[f"attention{layer}"])
        query, key, value = (
            part.reshape(count * rows, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in joined.chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(count, rows, length, WIDTH)
        stream = stream + torch.einsum("mbtw,mwx->mbtx", mixed, weights[f"joined{layer}"])
        normed = functional.layer_norm(stream, (WIDTH,)) * weights[f"scale_two{layer}"][:, None, None]
        wide = functional.gelu(torch.einsum("mbtw,mwx->mbtx", normed, weights[f"wide{layer}"]))
        stream = stream + torch.einsum("mbtw,mwx->mbtx", wide, weights[f"narrow{layer}"])
    final = functional.layer_norm(stream, (WIDTH,))
    final = final.gather(2, last[:, :, None, None].expand(-1, -1, 1, WIDTH))[:, :, 0]
    return torch.einsum("mkd,mbd->mbk", weights["readout"], final) + weights["bias"][:, None]


def rotated(values: Tensor) -> Tensor:
    length, size = values.shape[-2:]
    rates = 10_000.0 ** (-torch.arange(0, size, 2, device=values.device) / size)
    angles = torch.arange(length, device=values.device)[:, None] * rates
    even, odd = values[..., ::2], values[..., 1::2]
    turned = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(turned, -1).flatten(-2)


FORWARD: dict[str, Callable[[Weights, Tensor, Tensor], Tensor]] = {
    "dense": by_dense,
    "lstm": by_lstm,
    "transformer": by_transformer,
}
RATES = {"dense": 5e-3, "lstm": 5e-3, "transformer": 2e-3}


def train(kind: str, condition: str, chosen: list[tuple[Language, int]], arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder) / "train"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{kind} {condition}".replace(" ", "_")
    if (folder / f"{stem}.json").exists():
        return
    began = time.perf_counter()
    count, noise = CONDITIONS[condition]
    samples = Parallel(arguments.jobs)(
        delayed(drawn)(language, count, draw_seed(language, seed), noise) for language, seed in chosen
    )
    device = arguments.device
    arrays = [padded(sample.words, LONGEST) for sample in samples]
    tokens = torch.from_numpy(np.stack([each for each, _ in arrays])).to(device)
    last = torch.from_numpy(np.stack([each for _, each in arrays])).to(device)
    labels = torch.tensor([sample.labels for sample in samples], device=device)
    generator = torch.Generator().manual_seed(0)
    weights = started(kind, len(chosen), generator, device)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=RATES[kind], weight_decay=0.0, fused=device != "cpu")
    forward = FORWARD[kind]
    at = torch.arange(len(chosen), device=device)[:, None]
    for step in range(arguments.steps):
        for group in optimiser.param_groups:
            group["lr"] = RATES[kind] * 0.5 * (1 + math.cos(math.pi * step / arguments.steps))
        # Short strings first: the longest allowed length grows over the first two thirds.
        longest = min(LONGEST, 8 + round(48 * step / arguments.steps)) if kind == "dense" else LONGEST
        rows = torch.randint(0, count, (len(chosen), BATCH), generator=generator).to(device)
        batch, ends, wanted = tokens[at, rows].long(), last[at, rows], labels[at, rows].clone()
        wanted[ends > longest] = -100
        logits = forward(weights, batch[:, :, : longest + 1], ends.clamp_max(longest))
        losses = functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), reduction="none", label_smoothing=0.1, ignore_index=-100
        ).view(len(chosen), BATCH)
        loss = (losses.sum(1) / (wanted != -100).sum(1).clamp_min(1)).sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        clip(list(weights.values()))
        optimiser.step()
        if step % 300 == 0:
            print(
                kind,
                condition,
                step,
                f"{loss.item() / len(chosen):.4f}",
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
    seconds = time.perf_counter() - began
    scores = judged(kind, weights, chosen, device, arguments.jobs)
    rows_out = [
        {
            "language": language.name,
            "group": language.group,
            "seed": seed,
            "kind": kind,
            "condition": condition,
            **score,
        }
        for (language, seed), score in zip(chosen, scores, strict=True)
    ]
    plain = {"seconds for all": round(seconds, 1), "networks": len(chosen), "steps": arguments.steps, "rows": rows_out}
    if kind == "dense":
        arrays_out = {name: each.detach().float().cpu().numpy() for name, each in weights.items()}
        np.savez(folder / f"{stem}.npz", **arrays_out)  # type: ignore[arg-type]
    (folder / f"{stem}.json").write_text(json.dumps(plain))


def clip(weights: list[Tensor]) -> None:
    """Clip each network's gradients by its own norm."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    factor = torch.nan_to_num((1.0 / (norm + 1e-6)).clamp_max(1.0))
    for gradient in gradients:
        torch.nan_to_num_(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))


@torch.no_grad()
def judged(
    kind: str, weights: Weights, chosen: list[tuple[Language, int]], device: str, jobs: int
) -> list[dict[str, float]]:
    """The share of right labels on fresh strings of up to 40 letters, and of up to 500."""
    scores: list[dict[str, float]] = [{} for _ in chosen]
    for name, longest, count in (("to 40", LONGEST, 1000), ("to 500", LONG, 200)):
        samples = Parallel(jobs)(
            delayed(drawn)(language, count, draw_seed(language, seed) + 7, longest=longest) for language, seed in chosen
        )
        for start in range(0, len(chosen), 49):
            part = slice(start, start + 49)
            arrays = [padded(sample.words, longest) for sample in samples[part]]
            tokens = torch.from_numpy(np.stack([each for each, _ in arrays])).to(device)
            last = torch.from_numpy(np.stack([each for _, each in arrays])).to(device)
            labels = torch.tensor([sample.clean for sample in samples[part]], device=device)
            some = {key: each[part] for key, each in weights.items()}
            right = torch.cat(
                [
                    FORWARD[kind](some, tokens[:, at : at + 100].long(), last[:, at : at + 100]).argmax(-1)
                    == labels[:, at : at + 100]
                    for at in range(0, count, 100)
                ],
                1,
            )
            for place, value in enumerate(right.float().mean(1).tolist(), start):
                scores[place][name] = round(value, 4)
    return scores


def as_readout(weights: dict[str, np.ndarray], place: int, letters: int) -> RationalReadout:
    """The house's own model with these weights, over start and letters."""
    table = torch.from_numpy(weights["matrices"][place, : letters + 1])
    family = DenseTransitions(vocab_size=letters + 1, state_dim=STATE)
    model = RationalReadout(RationalHead(family), 2)
    with torch.no_grad():
        for parameter in family.parameters():
            parameter.copy_(table.reshape(parameter.shape))
        torch.testing.assert_close(family.table(), table)
        model.rational_head.raw_initial_state.copy_(torch.from_numpy(weights["initial"][place]))
        model.readout.weight.copy_(torch.from_numpy(weights["readout"][place]))
        model.readout.bias.copy_(torch.from_numpy(weights["bias"][place]))
    return model.eval()


def machine_of_network(
    weights: dict[str, np.ndarray], place: int, language: Language, seed: int, condition: str
) -> dict[str, Any]:
    """Ask a dense readout for its machine, with words of its own sample."""
    torch.set_num_threads(1)
    truth = language.machine
    model = as_readout(weights, place, truth.letters)
    count, noise = CONDITIONS[condition]
    sample = drawn(language, count, draw_seed(language, seed), noise)
    record = {"language": language.name, "group": language.group, "seed": seed, "condition": condition}
    words = [torch.tensor([0, *(letter + 1 for letter in word)]) for word in sample.words[:2000]]
    names = tuple(map(str, range(truth.letters + 1)))
    alphabet = TokenAlphabet(names, tuple(range(1, truth.letters + 1)), begin=0)
    began = time.perf_counter()
    try:
        extraction = extract(model, examples=words, alphabet=alphabet)
    except NoMachineNearby as error:
        return record | {"exact": False, "refused": str(error)[:200], "seconds": round(time.perf_counter() - began, 2)}
    machine = extraction.machine
    return record | {
        "exact": same_language(machine, truth),
        "found_states": machine.states,
        "way": getattr(extraction, "way", ""),
        "beyond": accuracy_beyond(machine, language, seed),
        "seconds": round(time.perf_counter() - began, 2),
    }


def machine_of_both(
    weights: dict[str, np.ndarray], place: int, language: Language, seed: int, condition: str
) -> dict[str, Any]:
    """Learn the machine from the sample's strings with the labels that the readout gives them."""
    torch.set_num_threads(1)
    truth = language.machine
    model = as_readout(weights, place, truth.letters)
    count, noise = CONDITIONS[condition]
    sample = drawn(language, count, draw_seed(language, seed), noise)
    tokens, last = padded(sample.words, LONGEST)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens.astype(np.int64)))
    labels = logits[torch.arange(count), torch.from_numpy(last)].argmax(-1).tolist()
    began = time.perf_counter()
    answer = learned_from_labels(sample.words, labels, letters=truth.letters, classes=2, seconds=SECONDS)
    return {
        "language": language.name, "group": language.group, "seed": seed, "condition": condition,
        "exact": same_language(answer.machine, truth), "supported": answer.supported,
        "found_states": answer.machine.states, "seconds": round(time.perf_counter() - began, 2),
        "labels changed": sum(a != b for a, b in zip(labels, sample.labels, strict=True)),
    }  # fmt: skip


def asked(arguments: argparse.Namespace, call: Callable[..., dict[str, Any]]) -> None:
    folder = Path(arguments.folder) / arguments.what
    folder.mkdir(parents=True, exist_ok=True)
    work = []
    for condition in arguments.conditions.split(";"):
        path = Path(arguments.folder) / "train" / f"dense {condition}.npz".replace(" ", "_")
        weights = dict(np.load(path))
        for place, (language, seed) in enumerate(networks(arguments)):
            alone = {name: each[place : place + 1] for name, each in weights.items()}
            name = f"{language.name} {condition} {seed}"
            work.append(delayed(kept)(folder, name, call, alone, 0, language, seed, condition))
    began = time.perf_counter()
    for number, _ in enumerate(Parallel(arguments.jobs, return_as="generator_unordered")(work), 1):
        if number % max(1, len(work) // 20) == 0:
            print(f"{number} of {len(work)}, {time.perf_counter() - began:.0f} s", flush=True)


def networks(arguments: argparse.Namespace) -> list[tuple[Language, int]]:
    two_classes = [each for each in languages() if each.classes == 2 and arguments.only in f"{each.group} {each.name}"]
    return [(language, seed) for seed in range(arguments.seeds) for language in two_classes]


def report(folder: Path, measured_with: str) -> None:
    table: dict[str, dict[str, Any]] = {}
    for path in sorted((folder / "train").glob("*.json")):
        plain = json.loads(path.read_text())
        rows = plain.pop("rows")
        cell = {
            name: {
                "mean": round(statistics.mean(each[name] for each in rows), 4),
                "min": min(each[name] for each in rows),
                "all right": round(sum(each[name] == 1 for each in rows) / len(rows), 4),
            }
            for name in ("to 40", "to 500")
        }
        table.setdefault(rows[0]["condition"], {})[rows[0]["kind"]] = plain | cell
    for what in ("extract", "relabel"):
        records = read(folder / what)
        for condition in CONDITIONS:
            part = [each for each in records if each.get("condition") == condition]
            if part:
                table.setdefault(condition, {})[f"dense, {what}"] = {
                    "networks": len(part),
                    "exact": round(sum(each["exact"] for each in part) / len(part), 4),
                    "refused": sum("refused" in each for each in part),
                    "seconds": round(statistics.median(each["seconds"] for each in part), 2),
                }
    settings = {"measured with": measured_with, "batch": BATCH, "width": WIDTH, "state": STATE}
    Record("networks_from_labels", settings, table, environment()).write(RESULT)
    print(json.dumps(table, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "extract", "relabel", "report"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--only", default="")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--conditions", default=";".join(CONDITIONS), help="separated by semicolons")
    parser.add_argument("--folder", default=str(FOLDER))
    parser.add_argument(
        "--measured-with", default="this machine and code", help="for the report: which code and machine"
    )
    arguments = parser.parse_args()
    if arguments.what == "train":
        if arguments.device != "cpu":
            torch.set_float32_matmul_precision("high")
        for kind in arguments.kinds.split(","):
            for condition in arguments.conditions.split(";"):
                train(kind, condition, networks(arguments), arguments)
    elif arguments.what == "report":
        report(Path(arguments.folder), arguments.measured_with)
    else:
        asked(arguments, machine_of_network if arguments.what == "extract" else machine_of_both)


if __name__ == "__main__":
    main()
