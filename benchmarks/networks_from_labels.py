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
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from labelled_languages import Language, drawn, languages, same_language
from machines_from_labels import CONDITIONS, SECONDS, accuracy_beyond, draw_seed, kept, read
from stacked_networks import FORWARD, KINDS, RATES, STATE, WIDTH, Steps, Weights, started
from transductor.automata import learned_from_labels
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.extraction import NoMachineNearby, extract
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.results import Record, environment, read_record
from transductor.transitions import DenseTransitions

FOLDER = Path("runs/networks_from_labels")
RESULT = Path("benchmarks/results/networks_from_labels.json")
LONGEST, LONG = 40, 500
JUDGED = (("to 40", LONGEST, 1000), ("to 500", LONG, 200))
BATCH = 64
Chosen = list[tuple[Language, int]]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def padded(words: list[list[int]], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens ``(N, 1 + longest)`` with the start in front, and the place of each word's last token."""
    tokens = np.zeros((len(words), longest + 1), dtype=np.uint8)
    for row, word in enumerate(words):
        tokens[row, 1 : len(word) + 1] = np.array(word) + 1
    return tokens, np.array([len(word) for word in words])


class Samples:
    """Samples of languages as arrays, drawn by processes of their own while networks are trained."""

    def __init__(self, jobs: int) -> None:
        # Processes that begin with nothing: a copy of one that holds a GPU would be of no use.
        self.pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
        self.asked: dict[tuple[Any, ...], list[Future[Arrays]]] = {}

    def ask(self, chosen: Chosen, count: int, noise: float, longest: int = LONGEST, other: int = 0) -> None:
        """Begin to draw; ``other`` is added to the seeds."""
        key = (len(chosen), count, noise, longest, other)
        if key not in self.asked:
            self.asked[key] = [
                self.pool.submit(as_arrays, language, count, draw_seed(language, seed) + other, noise, longest)
                for language, seed in chosen
            ]

    def drawn(self, chosen: Chosen, count: int, noise: float, longest: int = LONGEST, other: int = 0) -> Arrays:
        """Tokens, places of last letters and labels of all, stacked."""
        self.ask(chosen, count, noise, longest, other)
        parts = [each.result() for each in self.asked[len(chosen), count, noise, longest, other]]
        tokens, last, labels = (np.stack(each) for each in zip(*parts, strict=True))
        return tokens, last, labels


def as_arrays(language: Language, count: int, seed: int, noise: float, longest: int) -> Arrays:
    sample = drawn(language, count, seed, noise, longest=longest)
    return *padded(sample.words, longest), np.array(sample.labels)


def train(kind: str, condition: str, chosen: Chosen, samples: Samples, arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder) / "train"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{kind} {condition}".replace(" ", "_")
    if (folder / f"{stem}.json").exists():
        return
    count, noise = CONDITIONS[condition]
    device = arguments.device
    tokens, last, labels = (torch.from_numpy(each).to(device) for each in samples.drawn(chosen, count, noise))
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(0)
    weights = started(kind, len(chosen), generator, device)
    steps = Steps(kind, weights, tokens, last, labels, BATCH, record=not arguments.eager)
    for step in range(arguments.steps):
        rate = RATES[kind] * 0.5 * (1 + math.cos(math.pi * step / arguments.steps))
        # Short strings first: the longest allowed length grows over the first two thirds.
        longest = min(LONGEST, 8 + round(48 * step / arguments.steps)) if kind == "dense" else LONGEST
        steps.step(torch.randint(0, count, (len(chosen), BATCH), generator=generator), rate, longest)
        if step % 300 == 0:
            loss = f"{steps.loss.item() / len(chosen):.4f}"
            print(kind, condition, step, loss, f"{time.perf_counter() - began:.0f} s", flush=True)
    del steps
    if device != "cpu":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    scores = judged(kind, weights, chosen, device, samples)
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
    print(kind, condition, f"{seconds:.0f} s, judged after {time.perf_counter() - began:.0f} s", flush=True)


@torch.no_grad()
def judged(kind: str, weights: Weights, chosen: Chosen, device: str, samples: Samples) -> list[dict[str, float]]:
    """The share of right labels on fresh strings of up to 40 letters, and of up to 500."""
    scores: list[dict[str, float]] = [{} for _ in chosen]
    for name, longest, count in JUDGED:
        arrays = samples.drawn(chosen, count, 0.0, longest, 7)
        for start in range(0, len(chosen), 49):
            part = slice(start, start + 49)
            tokens, last, labels = (torch.from_numpy(each[part]).to(device) for each in arrays)
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


def networks(arguments: argparse.Namespace) -> Chosen:
    two_classes = [each for each in languages() if each.classes == 2 and arguments.only in f"{each.group} {each.name}"]
    return [(language, seed) for seed in range(arguments.seeds) for language in two_classes]


def report(folder: Path, measured_with: str) -> None:
    before = read_record(RESULT) if RESULT.exists() else None
    table: dict[str, dict[str, Any]] = dict(before.measurements) if before else {}
    sources: dict[str, str] = {}
    if before is not None:
        named = before.settings["measured with"]
        sources = named if isinstance(named, dict) else {"others": named}
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
        sources[f"{rows[0]['condition']}, {rows[0]['kind']}"] = measured_with
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
    settings = {"measured with": sources, "batch": BATCH, "width": WIDTH, "state": STATE}
    Record("networks_from_labels", settings, table, environment()).write(RESULT)
    print(json.dumps(table, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "extract", "relabel", "report"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--eager", action="store_true", help="record no step, where recording fails")
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
        samples, chosen = Samples(arguments.jobs), networks(arguments)
        work = [(kind, each) for each in arguments.conditions.split(";") for kind in arguments.kinds.split(",")]
        samples.ask(chosen, *CONDITIONS[work[0][1]])
        for _, longest, count in JUDGED:
            samples.ask(chosen, count, 0.0, longest, 7)
        for _, condition in work:
            samples.ask(chosen, *CONDITIONS[condition])
        for kind, condition in work:
            train(kind, condition, chosen, samples, arguments)
        samples.pool.shutdown()
    elif arguments.what == "report":
        report(Path(arguments.folder), arguments.measured_with)
    else:
        asked(arguments, machine_of_network if arguments.what == "extract" else machine_of_both)


if __name__ == "__main__":
    main()
