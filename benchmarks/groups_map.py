"""Which recurrence does which group?  The map: least dimensions with witnesses, impossibilities, and what is learned.

``transductor.theory.groups_map`` answers every cell (family × monoid) with a checked witness and a checked bound, or
with a checked impossibility.  Here the same cells are trained under one protocol: 16 dimensions, a linear readout, the
same data, steps, curriculum and learning rate, five seeds, at most 40 letters; and judged on every position of random
inputs and of all input kinds at 40, 160 and 640 letters.  A cell is *learned* by a seed that makes no mistake up to
160 letters.  Writes ``results/groups_map.json`` after every monoid and goes on where it stopped;
``docs/make_theory.py`` draws the figure.  All families and seeds of a monoid are trained as one job, each as if alone
(to rounding), which takes about twelve minutes of one core.

The protocol was fixed after a pilot with other seeds (100 to 104), which set the number of steps and was seen before
the predictions: the orthogonal family learned S3 and A5, dense matrices flip-flop and A4, and stochastic ones did not
learn Z3.  Predicted before the run, with *all* for all five seeds:

1. Where the table says *impossible in every dimension*, no seed learns.
2. The orthogonal family learns all groups but S5 with all seeds, and no other monoid.
3. Rotating planes learn the cyclic groups with all seeds.
4. Cayley learns Z3, Z5, Q8, A4 and A5 with all seeds.
5. Products of four reflections learn, with all seeds, what the orthogonal family learns with all.
6. Dense matrices learn ``seen`` and ``flip-flop`` with all seeds, and fewer groups with all seeds than the orthogonal
   family, because nothing keeps them from drifting between 40 and 160 letters.
7. Stochastic matrices, annealed, learn ``seen`` and ``flip-flop`` with all seeds, and no group but Z2 with any.
8. Diagonal matrices learn ``seen`` alone, signed ones ``seen`` and Z2, with all seeds.
9. Nothing learns T3 with all seeds.

While it ran, planes and stochastic matrices were seen to stay near their start: at a rate of 0.005 with a cosine, Adam
moves a number by about 1.5 in 600 steps, where a plane needs angles of up to π and the softmax starts at a logit of
4.9 for staying.  So a second run (``--head-rate 0.05 --out FOLDER`` with ``--families "rotating planes"
column-stochastic "permutation × diagonal"``) gives their heads ten times the rate on what they can do; the map stays
with one protocol, and the record of the second is kept beside it, under ``faster``.  Predicted before that run:

10. Planes then learn the four cyclic groups with all seeds, and stochastic matrices ``seen`` and ``flip-flop``.

Permutation × diagonal, whose columns are chosen straight through, became trainable after these predictions were
written.  Predicted before any run with it:

11. It learns ``seen`` with all seeds, by its gains, and nothing else with any: its choices start as far from another
    as the softmax does, and its gains from -1.
12. With ten times the rate it learns ``seen``, ``flip-flop`` and Z2 with all seeds, and S5 with none.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from rich.progress import track
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.configuration import configuration
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.recurrence import scan
from transductor.results import Record, read_record
from transductor.studies.judging import judge
from transductor.studies.study import EVERY_KIND, Probe
from transductor.tasks.base import AutomatonTask
from transductor.tasks.sampling import repeated
from transductor.theory.finite_monoids import WAIT, finite_monoid
from transductor.theory.groups_map import answer, table_of_answers
from transductor.theory.monoid_witnesses import FAMILIES
from transductor.training import Annealing, Curriculum, TrainingSettings
from transductor.training.steps import build_optimiser, labelled_loss, set_schedule, set_temperature
from transductor.training.together import clip_each, draw_batches
from transductor.transitions import FamilySpec, build_family

RESULTS = Path(__file__).parent / "results"
MONOIDS = ("Z2", "Z3", "Z5", "Z6", "S3", "D4", "Q8", "A4", "A5", "S5", "seen", "flip-flop", "staircase", "T3")
# What is trained for each family of the map, and its options.
TRAINED = {
    "diagonal": ("diagonal", {}),
    "signed diagonal": ("signed_diagonal", {}),
    "rotating planes": ("exponential", {"state_dim": 2}),  # a direct sum of such
    "permutation × diagonal": ("column_choice", {}),
    "column-stochastic": ("stochastic", {}),
    "Householder": ("householder", {"reflections": 4}),
    "Cayley": ("cayley", {}),
    "orthogonal": ("orthogonal", {}),
    "dense": ("dense", {}),
}
LENGTHS = (40, 160, 640)
SEQUENCES = 64


@final
@configuration
@dataclass(frozen=True)
class MonoidWordProblem(AutomatonTask):
    """Tokens are the letters of a finite monoid; the label is the element that the letters so far multiply to."""

    monoid: str = "S3"

    @property
    def title(self):
        return f"{self.monoid} word problem"

    @property
    def vocab_size(self):
        return len(finite_monoid(self.monoid).letters)

    @property
    def output_size(self):
        return len(finite_monoid(self.monoid))

    def _machine(self):
        monoid = finite_monoid(self.monoid)
        return MooreMachine(monoid.after, np.arange(len(monoid)))

    def _sample(self, batch_size, length, generator, bias):
        return torch.randint(0, self.vocab_size, (batch_size, length), generator=generator)

    def _input_kinds(self, length):
        letters = finite_monoid(self.monoid).letters
        numbered = dict(enumerate(letters))
        wait = letters.index(WAIT)
        kinds = {f"only {name}": [letter] * length for letter, name in numbered.items()}
        for first, second in itertools.combinations(numbered, 2):
            kinds[f"{numbered[first]} and {numbered[second]} in turn"] = repeated((first, second), length)
            if first == wait:
                kinds[f"{numbered[second]}, then only {WAIT}"] = [second, *[wait] * (length - 1)]
        kinds["every letter in turn"] = repeated(range(len(letters)), length)
        return kinds


def built(family, monoid, dim, seed):
    """Return a head with a linear readout, started far from the identity."""
    torch.manual_seed(seed)
    name, own = TRAINED[family]
    arguments = {"state_dim": dim, "vocab_size": len(monoid.letters), "init_scale": 0.3 / math.sqrt(dim)} | own
    spec = FamilySpec(name, arguments)
    if arguments["state_dim"] < dim:
        spec = FamilySpec("direct_sum", {}, (spec,) * (dim // arguments["state_dim"]))
    return RationalReadout(RationalHead(build_family(spec)), len(monoid))


def measured(model, task, seed, trained_length):
    """Return what is right at each length: on random inputs, and on the worst of the input kinds."""
    entries = {}
    for length in LENGTHS:
        (random,) = judge(model, task, Probe(length, SEQUENCES), trained_length=trained_length, seed=seed)
        kinds = judge(model, task, Probe(length, 1, family=EVERY_KIND), trained_length=trained_length, seed=seed)
        worst = min(kinds, key=lambda entry: entry["positions"])
        entries[str(length)] = {
            "random": random["positions"],
            "random_sequences": random["exact"],
            "worst": worst["positions"],
            "worst_kind": worst["input"],
        }
    return entries


@final
class Parts(nn.Module):
    """What the states of a model are made of, as a module without input: its matrices and its initial state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self):
        head = self.model.rational_head
        return head.transitions.table(), head.initial_state()


@final
class Stack:
    """The seeds of one family, their weights side by side."""

    def __init__(self, models):
        self.models = models
        self.parts = [Parts(model) for model in models]
        self.weights, self.buffers = stack_module_state(self.parts)
        self.first = {name: weight.detach().clone() for name, weight in self.weights.items()}

    def numbers(self):
        """Return matrices (S, V, D, D), initial states (S, D), readout (S, N, D) and its bias (S, N)."""
        run = vmap(lambda parameters, held: functional_call(self.parts[0], (parameters, held), ()))
        read = (self.weights[f"model.readout.{name}"] for name in ("weight", "bias"))
        return *run(self.weights, self.buffers), *read

    def begin_again(self, place, optimiser):
        """Put one model where it began, so that the others can go on after its loss became infinite."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight[place] = self.first[name][place]
                for moment in ("exp_avg", "exp_avg_sq"):
                    optimiser.state[weight].get(moment, self.first[name])[place] = 0

    def finish(self, settings):
        """Give each model its weights."""
        with torch.no_grad():
            for place, part in enumerate(self.parts):
                for name, parameter in part.named_parameters():
                    parameter.copy_(self.weights[name][place])
                set_temperature(part, settings.annealing.end)
                part.eval()


def logits_of(stacks, tokens):
    """Return the logits (M, B, T, N) of all models of the stacks on tokens (M, B, T), by one scan."""
    tables, starts, weights, biases = (torch.cat(each) for each in zip(*(one.numbers() for one in stacks), strict=True))
    models, vocab = tables.shape[:2]
    placed = tokens + vocab * torch.arange(models)[:, None, None]  # each model reads its own part of one long table
    states = scan(
        tables.flatten(0, 1), placed.flatten(0, 1), initial_state=starts.repeat_interleave(tokens.shape[1], 0)
    ).unflatten(0, tokens.shape[:2])
    return torch.einsum("mbtd,mnd->mbtn", states, weights) + biases[:, None, None]


def train_side_by_side(stacks, task, settings):
    """Train all models of the stacks in place as one job; return the last loss and accuracy of each, None if it failed.

    Each model sees the data of its own seed and has its own curriculum and clipping, as if it trained alone.
    """
    seeds = [seed for one in stacks for seed in range(len(one.models))]
    named = [(name, weight, False) for one in stacks for name, weight in one.weights.items()]
    optimiser = build_optimiser(named, settings)
    shared = nn.ModuleList(one.parts[0] for one in stacks)  # it computes for all seeds, at its temperature
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    lengths, failed = [settings.first_length] * len(seeds), set()
    measured = vmap(lambda logits, labels: labelled_loss(logits, labels, settings.label_smoothing))
    for step in range(settings.steps):
        set_schedule(optimiser, shared, settings, step)
        tokens, labels = draw_batches(task, settings, lengths, generators)
        logits = logits_of(stacks, tokens)
        losses = measured(logits, labels)
        right = ((logits.detach().argmax(-1) == labels) & (labels != IGNORED)).sum((1, 2))
        shares = right / (labels != IGNORED).sum((1, 2))
        optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        for one in stacks:
            clip_each(list(one.weights.values()), settings)
        optimiser.step()
        values = list(zip(losses.tolist(), shares.tolist(), strict=True))
        for place, (loss, share) in enumerate(values):
            if math.isfinite(loss):
                lengths[place] = settings.next_length(lengths[place], loss, share)
            else:
                failed.add(place)
                stacks[place // len(stacks[0].models)].begin_again(place % len(stacks[0].models), optimiser)
    return [None if place in failed else value for place, value in enumerate(values)]


def trained_monoid(name, families, settings, options):
    """Train all families and seeds of one monoid together and judge them."""
    task, monoid = MonoidWordProblem(name), finite_monoid(name)
    stacks = [Stack([built(family, monoid, options.dim, seed) for seed in range(options.seeds)]) for family in families]
    began = time.process_time()
    ends = train_side_by_side(stacks, task, settings)
    seconds = (time.process_time() - began) / len(ends)
    runs = []
    for place, ((family, stack), seed) in enumerate(
        itertools.product(zip(families, stacks, strict=True), range(options.seeds))
    ):
        stack.finish(settings)
        run = {"family": family, "monoid": name, "seed": seed}
        if ends[place] is None:
            runs.append(run | {"failed": "the loss is not finite"})
            continue
        loss, accuracy = ends[place]
        lengths = measured(stack.models[seed], task, seed, settings.length)
        runs.append(run | {"loss": loss, "accuracy": accuracy, "lengths": lengths, "seconds": round(seconds, 2)})
    return runs


def taken_over(path, settings, parser):
    """Return the runs of a record that is there, if it has the same settings."""
    if not path.exists():
        return []
    record = read_record(path)
    if record.settings != settings:
        parser.error(f"{path} was made with other settings; move it away first")
    return list(record.measurements["runs"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--monoids", nargs="*", default=MONOIDS, help="train these alone, in this order")
    parser.add_argument("--families", nargs="*", default=list(TRAINED), choices=TRAINED, help="train these alone")
    parser.add_argument("--head-rate", type=float, help="peak learning rate of the head; that of the rest if not given")
    parser.add_argument("--faster", type=Path, help="the record of a run with another rate, to be kept beside")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="records whose runs are taken over")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = TrainingSettings(
        steps=options.steps,
        length=LENGTHS[0],
        batch_size=options.batch,
        optimiser="adam",
        clipping="per_tensor",
        curriculum=Curriculum(4),
        head_learning_rate=options.head_rate,
        annealing=Annealing(),  # touches families with a temperature alone
    )
    chosen = {name: getattr(options, name) for name in ("seeds", "steps", "batch", "dim")}
    settings = chosen | {"lengths": list(LENGTHS), "sequences": SEQUENCES, "training": asdict(training)}
    path = options.out / "groups_map.json"
    runs = []
    for part in (path, *options.merge):
        done = {(run["family"], run["monoid"]) for run in runs}
        runs += [run for run in taken_over(part, settings, parser) if (run["family"], run["monoid"]) not in done]
    done = {(run["family"], run["monoid"]) for run in runs}
    cells = {name: [family for family in options.families if (family, name) not in done] for name in options.monoids}
    if options.head_rate is not None:  # beside the map: only what is possible
        cells = {
            name: [family for family in families if answer(family, finite_monoid(name)).possible]
            for name, families in cells.items()
        }
    for name in track([name for name, families in cells.items() if families], "training"):
        runs += trained_monoid(name, cells[name], training, options)
        Record("groups_map", settings, {"runs": runs}).write(path)
    places = {name: place for place, name in enumerate(MONOIDS)}
    runs.sort(key=lambda run: (places[run["monoid"]], FAMILIES.index(run["family"]), run["seed"]))
    answers = table_of_answers([finite_monoid(name) for name in MONOIDS])
    measurements = {"runs": runs, "answers": [each.plain() for each in answers]}
    if options.faster is not None:
        faster = read_record(options.faster)
        measurements["faster"] = {"runs": faster.measurements["runs"], "training": faster.settings["training"]}
    print("written:", Record("groups_map", settings, measurements).write(path))


if __name__ == "__main__":
    main()
