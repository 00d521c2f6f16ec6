"""Compare masks for constrained decoding: ours beside outlines-core, xgrammar and llguidance, where they are installed.

Two hundred regular expressions (``pattern_families.py``) over a byte-level BPE of 50 257 tokens, trained on the sources
of CPython's standard library.  Every library builds each pattern and writes fifty samples: tokens are drawn uniformly
from what it allows; after sixteen tokens a text ends as soon as it may, and single characters are preferred, closing
quotes and brackets most of all.  Python's ``re.fullmatch`` judges the texts.  At one place of each pattern the allowed
tokens of all libraries are compared, one by one, with partial matches of the package ``regex``.

Timed are, per token: following the token and making the mask, and applying it to one row of scores.  Every library
applies its masks by its own kernel for a CPU.  A pattern is one after another at every library, so that all meet the
same machine.  One core.

Writes ``benchmarks/results/constrained_decoding.json`` and ``.png``.  Usage:
``python benchmarks/constrained_decoding.py [--quick] [--output FOLDER]``; ``--quick`` takes few patterns and samples.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import regex as other_regex
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from mask_engines import AS_PROCESSOR, ENGINES, LIBRARIES, OURS, Engine, Ours
from pattern_families import pattern_families
from transductor.integrations.huggingface import TokenPattern, TokenVocabulary
from transductor.results import Record

VOCABULARY = 50_257


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    patterns: int = 200
    samples: int = 50
    free_tokens: int = 16
    most_tokens: int = 96
    seed: int = 0


QUICK = Sizes(patterns=9, samples=3)


def trained_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the standard library, without its tests."""
    root = Path(re.__file__).parents[1]
    texts = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if "site-packages" in parts or "test" in parts or "tests" in parts:
            continue
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
    built = Tokenizer(models.BPE())
    built.pre_tokenizer, built.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    built.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            show_progress=False,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|endoftext|>")


class Draws:
    """Scores whose largest allowed entry is a uniform choice, made beforehand: drawing is not what is timed."""

    def __init__(self, vocabulary: TokenVocabulary, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.size = vocabulary.size
        self.values = torch.rand(64 * self.size, generator=generator)
        self.closing = torch.zeros(vocabulary.size)
        for token, spelled in enumerate(vocabulary.spelled):
            if spelled and len(spelled) == 1:
                self.closing[token] = 4.0 if spelled in b"\"')]}" else 2.0
        self.closing[list(vocabulary.ends)] = 9.0
        self.source = random.Random(seed)

    def scores(self, closing: bool) -> Tensor:
        """Return a row ``(1, V)`` that may be changed."""
        first = self.source.randrange(len(self.values) - self.size)
        row = self.values[first : first + self.size]
        return (row + self.closing if closing else row.clone())[None]


@dataclass
class Tally:
    """What one library did."""

    build: list[float] = field(default_factory=list)
    make: list[float] = field(default_factory=list)
    apply: list[float] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    by_family: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    by_pattern: dict[str, list[float]] = field(default_factory=dict)
    examples: list[dict[str, str]] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)


def within_seconds(seconds: float, function: Callable[[], Any]) -> Any:
    """Return the result, or None if backtracking takes too long."""

    def stop(*called: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return function()
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def sampled(engine: Engine, draws: Draws, sizes: Sizes, ends: frozenset[int], tally: Tally) -> tuple[str, list[int]]:
    """Write one text; return how it came to its end, and its tokens."""
    tokens: list[int] = []
    token = None
    engine.begin()
    while len(tokens) < sizes.most_tokens:
        scores = draws.scores(len(tokens) >= sizes.free_tokens)
        began = time.perf_counter()
        engine.make(token)
        made = time.perf_counter()
        scores = engine.apply(scores)
        tally.apply.append(time.perf_counter() - made)
        tally.make.append(made - began)
        token = int(scores[0].numpy().argmax())
        if scores[0, token] == -torch.inf:
            return "dead end", tokens
        if token in ends:
            return "ended", tokens
        tokens.append(token)
    return "open", tokens


@cache
def with_pythons_classes(pattern: str) -> str:
    r"""Return the pattern for the package ``regex`` with ``\w`` and ``\d`` as Python's ``re`` has them."""
    characters = [chr(point) for point in range(0x110000)]
    classes = {
        "w": "".join(character for character in characters if character.isalnum() or character == "_"),
        "d": "".join(character for character in characters if character.isdecimal()),
    }
    return re.sub(
        r"\\(.)", lambda match: f"[{in_ranges(classes[match[1]])}]" if match[1] in classes else match[0], pattern
    )


def in_ranges(characters: str) -> str:
    """Write sorted characters as the ranges of a class."""
    points = np.array([ord(character) for character in characters])
    parts = np.split(points, np.flatnonzero(np.diff(points) > 1) + 1)
    return "".join(f"\\U{part[0]:08x}-\\U{part[-1]:08x}" for part in parts)


def judged(pattern: str, outcome: str, spelled: bytes) -> str:
    """Judge a text: legal, illegal, a dead end; or open, where its beginning can be completed or not."""
    if outcome == "dead end":
        return outcome
    try:
        text = spelled.decode()
    except UnicodeDecodeError as error:
        if outcome == "open" and error.end == len(spelled):
            return "open"  # within a character
        return "illegal"
    if outcome == "ended":
        fits = within_seconds(5, lambda: bool(re.fullmatch(pattern, text)))
        return "undecided" if fits is None else "legal" if fits else "illegal"
    return "open" if other_regex.fullmatch(with_pythons_classes(pattern), text, partial=True, timeout=5) else "illegal"


def measured_samples(
    engine: Engine, name: str, family: str, pattern: str, sizes: Sizes, draws: Draws, vocabulary: TokenVocabulary,
    tally: Tally,
) -> None:  # fmt: skip
    """Write and judge all samples of one pattern."""
    first = len(tally.make)
    for _ in range(sizes.samples):
        try:
            outcome, tokens = sampled(engine, draws, sizes, vocabulary.ends, tally)
        except Exception as error:  # whatever a library raises while it follows its own masks
            verdict, spelled, outcome = "error", str(error)[:200].encode(), "error"
        else:
            spelled = b"".join(vocabulary.bytes_of(token) for token in tokens)
            verdict = judged(pattern, outcome, spelled)
        tally.verdicts[verdict] += 1
        tally.by_family[family][verdict] += 1
        if verdict not in ("legal", "open") and sum(one["pattern"] == pattern for one in tally.examples) < 1:
            tally.examples.append(
                {"pattern": pattern, "verdict": verdict, "text": repr(spelled.decode(errors="backslashreplace"))[:200]}
            )
    spent = [make + apply for make, apply in zip(tally.make[first:], tally.apply[first:], strict=True)]
    if spent:
        tally.by_pattern[pattern] = [float(np.median(spent)), float(np.mean(spent))]


def oracle(pattern: str, before: bytes, vocabulary: TokenVocabulary) -> dict[int, bool]:
    """Return for every token whether it can come after ``before``, by partial matches; half characters are left out."""
    compiled = other_regex.compile(with_pythons_classes(pattern))
    judgements: dict[bytes, bool] = {}
    allowed = {}
    for token, spelled in enumerate(vocabulary.spelled):
        if not spelled:
            continue
        if spelled not in judgements:
            try:
                text = (before + spelled).decode()
            except UnicodeDecodeError:
                continue
            judgements[spelled] = compiled.fullmatch(text, partial=True, timeout=5) is not None
        allowed[token] = judgements[spelled]
    ends = re.fullmatch(pattern, before.decode()) is not None
    return {**allowed, **dict.fromkeys(vocabulary.ends, ends)}


def compared_places(
    engines: dict[str, Engine], pattern: str, sizes: Sizes, draws: Draws, vocabulary: TokenVocabulary,
    tallies: dict[str, Tally],
) -> None:  # fmt: skip
    """Compare what every library allows after the same tokens, which the oracle allows too."""
    depth, chosen = draws.source.randint(0, 5), []
    guide = Ours.__new__(Ours)
    guide.pattern = TokenPattern(pattern, vocabulary)
    guide.begin()
    token = None
    for _ in range(depth):
        guide.make(token)
        token = int(guide.apply(draws.scores(False))[0].argmax())
        if token in vocabulary.ends or not vocabulary.bytes_of(token).isascii():
            break
        chosen.append(token)
    before = b"".join(map(vocabulary.bytes_of, chosen))
    try:
        truth = oracle(pattern, before, vocabulary)
    except TimeoutError:
        return
    for name, engine in engines.items():
        places = tallies[name].places
        try:
            engine.begin()
            for token in [None, *chosen]:
                engine.make(token)
            allowed = (engine.apply(torch.zeros(1, vocabulary.size))[0] > -1).tolist()
        except Exception:
            places["cannot follow"] += 1
            continue
        too_many = sum(allowed[token] and not can for token, can in truth.items())
        too_few = sum(can and not allowed[token] for token, can in truth.items())
        places["compared"] += 1
        places["equal"] += not too_many and not too_few
        places["tokens wrongly allowed"] += too_many
        places["tokens wrongly forbidden"] += too_few
        if too_many or too_few:
            wrong = next(token for token, can in truth.items() if allowed[token] != can)
            tallies[name].examples.append(
                {
                    "pattern": pattern,
                    "verdict": "allowed set: " + ("too many" if allowed[wrong] else "too few"),
                    "text": f"{before.decode()!r}, then {vocabulary.bytes_of(wrong).decode()!r}",
                }
            )


def spread(seconds: list[float]) -> dict[str, float]:
    """Summarise times."""
    if not seconds:
        return {}
    values = np.array(seconds)
    middle, high = np.quantile(values, [0.5, 0.95])
    return {
        "median": float(middle),
        "p95": float(high),
        "mean": float(values.mean()),
        "max": float(values.max()),
        "count": len(values),
    }


def summarised(tally: Tally) -> dict[str, Any]:
    """Return what a record keeps of a library."""
    totals = [make + apply for make, apply in zip(tally.make, tally.apply, strict=True)]
    patterns = np.array(list(tally.by_pattern.values())) if tally.by_pattern else np.zeros((0, 2))
    return {
        "build": {**spread(tally.build), "total": sum(tally.build)},
        "token": spread(totals),
        "making": spread(tally.make),
        "applying": spread(tally.apply),
        "median_of_patterns": {
            "median": float(np.median(patterns[:, 0])) if len(patterns) else 0.0,
            "mean": float(np.median(patterns[:, 1])) if len(patterns) else 0.0,
        },
        "samples": dict(tally.verdicts),
        "families": {family: dict(verdicts) for family, verdicts in tally.by_family.items()},
        "places": dict(tally.places),
        "examples": tally.examples[:40],
    }


def measured(sizes: Sizes) -> tuple[dict[str, Any], dict[str, Tally]]:
    """Run all libraries over all patterns."""
    families = pattern_families(sizes.seed)
    patterns = [(family, pattern) for family, several in families.items() for pattern in several]
    if sizes.patterns < len(patterns):
        patterns = patterns[:: len(patterns) // sizes.patterns][: sizes.patterns]
    began = time.perf_counter()
    tokenizer = trained_tokenizer()
    training = time.perf_counter() - began
    vocabulary = TokenVocabulary(tokenizer)
    engines: dict[str, Engine] = {}
    preparation: dict[str, float] = {}
    missing = []
    for name, engine in ENGINES.items():
        began = time.perf_counter()
        try:
            engines[name] = engine(tokenizer, vocabulary)
        except ImportError:
            missing.append(name)
            continue
        preparation[name] = time.perf_counter() - began
    draws = Draws(vocabulary, sizes.seed)
    for engine in engines.values():  # compiles kernels
        for pattern in ("ab?", "[^a]{1,3}"):
            engine.build(pattern)
            for _ in range(3):
                sampled(engine, draws, sizes, vocabulary.ends, Tally())
    tallies = {name: Tally() for name in engines}
    gc.collect()
    gc.freeze()
    for number, (family, pattern) in enumerate(patterns):
        built = {}
        for name, engine in engines.items():
            began = time.perf_counter()
            try:
                engine.build(pattern)
            except Exception as error:  # each library refuses with errors of its own
                tallies[name].verdicts["refused"] += 1
                tallies[name].by_family[family]["refused"] += 1
                tallies[name].examples.append({"pattern": pattern, "verdict": "refused", "text": str(error)[:200]})
                continue
            tallies[name].build.append(time.perf_counter() - began)
            built[name] = engine
            measured_samples(engine, name, family, pattern, sizes, draws, vocabulary, tallies[name])
        compared_places(built, pattern, sizes, draws, vocabulary, tallies)
        if number % 10 == 9 or sizes == QUICK:
            print(f"{number + 1} of {len(patterns)}: {family}: {pattern[:60]!r}", file=sys.stderr, flush=True)
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    measurements = {
        "versions": versions,
        "missing": missing,
        "tokenizer": {"tokens": vocabulary.size, "training_seconds": training},
        "preparation": preparation,
        "libraries": {name: summarised(tally) for name, tally in tallies.items()},
        "patterns": len(patterns),
    }
    others = [measurements["libraries"][name]["token"] for name in engines if name in LIBRARIES]
    if others:
        fastest = min(each["median"] for each in others)
        for name in (OURS, AS_PROCESSOR):
            each = measurements["libraries"][name]
            each["times_the_fastest"] = each["token"]["median"] / fastest
            each["times_the_fastest_making"] = each["making"]["median"] / min(
                measurements["libraries"][other]["making"]["median"] for other in engines if other in LIBRARIES
            )
    return measurements, tallies


def drawn(tallies: dict[str, Tally], path: Path) -> None:
    """Draw the distributions of the times of a token, and of builds."""
    import matplotlib.pyplot as plt

    from transductor.report.style import READABLE, save_figure

    with plt.rc_context(READABLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
        for axis, title, times in (
            (left, "a token", lambda tally: np.add(tally.make, tally.apply)),
            (right, "building a pattern", lambda tally: np.array(tally.build)),
        ):
            for name, tally in tallies.items():
                values = np.sort(times(tally)) * 1e6
                axis.plot(values, np.linspace(0, 1, len(values)), label=name)
            axis.set(xscale="log", xlabel="microseconds", title=title)
            axis.grid(alpha=0.3)
        left.set(ylabel="share at most this long")
        left.legend(fontsize=8)
        save_figure(figure, path)


def main() -> None:
    """Measure, print, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = QUICK if arguments.quick else Sizes()
    began = time.perf_counter()
    measurements, tallies = measured(sizes)
    measurements["seconds"] = time.perf_counter() - began
    record = Record("constrained_decoding", asdict(sizes), measurements)
    record.write(arguments.output / "constrained_decoding.json")
    drawn(tallies, arguments.output / "constrained_decoding.png")
    for name, each in measurements["libraries"].items():
        token, make, build = each["token"], each["making"], each["build"]
        print(
            f"{name:26} build {1e3 * build['median']:8.2f} ms (p95 {1e3 * build['p95']:8.1f})"
            f"  token {1e6 * token['median']:7.1f} us (p95 {1e6 * token['p95']:7.1f}, mean {1e6 * token['mean']:7.1f})"
            f"  making {1e6 * make['median']:6.1f}  {each['samples']}  {each['places']}"
        )


if __name__ == "__main__":
    main()
