"""Measure how much probability a decoder gives to tokens that a mask would forbid, with and without the frozen sidecar.

A tiny Llama over bytes learns texts of one pattern from nothing, alone and with the pattern as its sidecar, from the
same weights and the same texts.  Then both read texts that they have not seen, of the lengths that they were trained on
and three times as long; no mask is applied.

Writes ``benchmarks/results/illegal_probability.json``.  Usage:
``python benchmarks/illegal_probability.py [--quick] [--output FOLDER]``; ``--quick`` trains a few steps.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

from transductor.integrations.huggingface import TokenPattern, attach
from transductor.results import Record


@dataclass(frozen=True)
class Sizes:
    """The host, its training, and what it is asked."""

    width: int = 64
    layers: int = 2
    steps: int = 300
    batch: int = 16
    shortest: int = 8
    longest: int = 64
    longer: int = 192
    texts: int = 4000
    asked: int = 48
    learning_rate: float = 3e-3
    seeds: int = 3


QUICK = Sizes(steps=5, texts=100, asked=8, seeds=2)


def nested(depth: int) -> str:
    """Return the pattern of letters in brackets up to a depth."""
    inner = "[ab]"
    for _ in range(depth):
        inner = rf"(?:[ab]|\({inner}*\))"
    return f"{inner}+"


PATTERNS = {
    "records": r"(?:id=[0-9]{1,4};(?:ok|failed:(?:disk|net|user));)+end",
    "brackets four deep": nested(4),
    "an even number of a's": r"(?:[b-d]*a[b-d]*a)*[b-d]*\.",
}


class Texts:
    """Random texts of a pattern: every step is uniform over what can come, and the end is taken after some length."""

    def __init__(self, pattern: TokenPattern, seed: int) -> None:
        self.pattern, self.source = pattern, random.Random(seed)
        self.steps: dict[int, list[tuple[int, int]]] = {}

    def tokens(self, length: int) -> list[int]:
        """Return the tokens of a text that ends as soon as it can after ``length`` tokens."""
        while True:
            state, tokens = self.pattern.start, []
            while len(tokens) < 2 * length:
                if len(tokens) >= length and bool(self.pattern.accepting[state]):
                    return tokens
                ways = self.ways(state)
                if not ways:
                    break
                token, state = self.source.choice(ways)
                tokens.append(token)
            if bool(self.pattern.accepting[state]) and 2 * len(tokens) >= length:
                return tokens

    def ways(self, state: int) -> list[tuple[int, int]]:
        """Return the tokens that can come, but the end, and where they lead."""
        if state not in self.steps:
            tokens = self.pattern.allowed(state).nonzero()[:, 0].tolist()
            self.steps[state] = [
                (token, self.pattern.after(state, token))
                for token in tokens
                if token not in self.pattern.vocabulary.ends
            ]
        return self.steps[state]

    def batch(self, texts: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Return inputs and labels ``(B, T)``: a text stands between two ends."""
        (end,) = self.pattern.vocabulary.ends
        width = max(map(len, texts)) + 2
        inputs = torch.zeros(len(texts), width, dtype=torch.long)
        labels = torch.full_like(inputs, -100)
        for row, tokens in enumerate(texts):
            inputs[row, : len(tokens) + 2] = torch.tensor([end, *tokens, end])
            labels[row, 1 : len(tokens) + 2] = inputs[row, 1 : len(tokens) + 2]
        return inputs, labels


def host(sizes: Sizes, vocabulary: int, seed: int) -> Any:
    """Build the host model."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=sizes.width,
            intermediate_size=2 * sizes.width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=4,
            max_position_embeddings=4 * sizes.longer,
        )
    )


def trained(model: Any, batches: list[tuple[Tensor, Tensor]], sizes: Sizes) -> float:
    """Train on the batches in turn; return the last loss."""
    optimiser = torch.optim.AdamW(model.parameters(), sizes.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, sizes.learning_rate, total_steps=sizes.steps)
    model.train()
    for step in range(sizes.steps):
        inputs, labels = batches[step % len(batches)]
        loss = model(inputs, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return float(loss.detach())


@torch.no_grad()
def asked(model: Any, pattern: TokenPattern, texts: list[list[int]], batch: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Return the mean probability of forbidden tokens, how often one is the likeliest, and the loss."""
    inputs, labels = batch
    model.eval()
    output = model(inputs, labels=labels, use_cache=False)
    likely = output.logits.float().softmax(-1)
    masses, first = [], []
    for row, tokens in enumerate(texts):
        states = [pattern.start]
        for token in tokens:
            states.append(pattern.after(states[-1], token))
        forbidden = ~torch.stack([pattern.allowed(state) for state in states])
        probability = likely[row, : len(states)]
        masses += (probability * forbidden).sum(-1).tolist()
        first += forbidden.gather(1, probability.argmax(-1, keepdim=True))[:, 0].float().tolist()
    return {"illegal": mean(masses), "likeliest_is_illegal": mean(first), "loss": float(output.loss)}


def measured(sizes: Sizes) -> dict[str, Any]:
    """Train and ask all hosts."""
    tokenizer = ByT5Tokenizer()
    results: dict[str, Any] = {}
    for name, expression in PATTERNS.items():
        pattern = TokenPattern(expression, tokenizer)
        runs: list[dict[str, Any]] = []
        for seed in range(sizes.seeds):
            drawn = Texts(pattern, seed)

            def texts(count: int, shortest: int, longest: int, drawn: Texts = drawn) -> list[list[int]]:
                return [drawn.tokens(drawn.source.randint(shortest, longest)) for _ in range(count)]

            seen = texts(sizes.texts, sizes.shortest, sizes.longest)
            batches = [drawn.batch(seen[at : at + sizes.batch]) for at in range(0, len(seen), sizes.batch)]
            questions = {
                "trained lengths": texts(sizes.asked, sizes.shortest, sizes.longest),
                "three times as long": texts(sizes.asked, sizes.longer, sizes.longer),
            }
            for kind in ("host alone", "host and sidecar"):
                model = host(sizes, pattern.vocabulary.size, seed)
                if kind == "host and sidecar":
                    sidecar = pattern.sidecar(special_tokens="restart")
                    attach(model, sidecar.head, token_classes=sidecar.token_classes)
                began = time.perf_counter()
                loss = trained(model, batches, sizes)
                answers = {
                    length: asked(model, pattern, several, drawn.batch(several))
                    for length, several in questions.items()
                }
                runs.append(
                    {
                        "seed": seed,
                        "kind": kind,
                        "training_loss": loss,
                        "seconds": time.perf_counter() - began,
                        "answers": answers,
                    }
                )
                print(f"{name:24} {kind:18} seed {seed}  {runs[-1]['seconds']:5.1f} s  {answers}", flush=True)
        results[name] = {"pattern": expression, "runs": runs, "summary": summarised(runs)}
    return results


def summarised(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means over seeds, and in how many seeds the sidecar gives less to forbidden tokens."""
    summary: dict[str, Any] = {}
    for length in runs[0]["answers"]:
        by_kind = {
            kind: [run["answers"][length] for run in runs if run["kind"] == kind]
            for kind in ("host alone", "host and sidecar")
        }
        summary[length] = {
            kind: {key: mean(answer[key] for answer in answers) for key in answers[0]}
            for kind, answers in by_kind.items()
        }
        pairs = zip(by_kind["host alone"], by_kind["host and sidecar"], strict=True)
        summary[length]["seeds_with_less"] = sum(one["illegal"] > other["illegal"] for one, other in pairs)
    return summary


def main() -> None:
    """Measure, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = QUICK if arguments.quick else Sizes()
    began = time.perf_counter()
    results = measured(sizes)
    record = Record("illegal_probability", asdict(sizes), {"patterns": results, "seconds": time.perf_counter() - began})
    record.write(arguments.output / "illegal_probability.json")


if __name__ == "__main__":
    main()
