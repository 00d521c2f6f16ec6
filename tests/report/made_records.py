"""Records made up without training: the arms of the real studies, numbers drawn at random."""

from __future__ import annotations

import functools
import random

from transductor.configuration import to_plain
from transductor.results import Record, write_atomically
from transductor.studies import STUDIES
from transductor.tasks import HiddenProcess

ENVIRONMENT = {"python": "3", "platform": "here", "processor": "a processor", "device": "cpu", "versions": {}}
REASON = "the head is near no finite machine: it has more than 2000 states | 3 walks"
FAILURE = "training diverged at step 7: the loss is nan"


@functools.cache
def family_names(task):
    return tuple(task.adversarial(21))


def inputs(probe, task):
    """Names of what a probe asks, as the judge names them."""
    if probe.family is None:
        return ["random" if probe.bias is None else f"p = {probe.bias:g}"]
    return list(family_names(task)) if probe.family == "every" else [probe.family]


def share(draw):
    """Right everywhere as often as not, so that both kinds of cells are met."""
    return 1.0 if draw.random() < 0.4 else draw.random()


def class_entry(draw, name, task, probe):
    labels = probe.length * probe.sequences
    positions = share(draw)
    beside_bayes = {"excess": 10 ** draw.uniform(-4, 3), "least_loss": draw.random()}
    return {
        "input": name,
        "task": task.name,
        "length": probe.length,
        "sequences": probe.sequences,
        "labels": labels,
        "positions": positions,
        "beyond": share(draw),
        "last": share(draw),
        "exact": share(draw) if probe.family is None else float(draw.random() < 0.7),
        "mistakes": round((1 - positions) * labels),
        "first_mistake": None if positions == 1 else 1,
        "curve": [[end, draw.random()] for end in (1, 2, probe.length)],
        **(beside_bayes if isinstance(task, HiddenProcess) else {}),
    }


def number_entry(draw, name, task, probe):
    return {
        "input": name,
        "task": task.name,
        "length": probe.length,
        "sequences": probe.sequences,
        "mse_every_position": 10 ** draw.uniform(-30, 0),
        "mse": 10 ** draw.uniform(-4, 0),
        "relative_error": 10 ** draw.uniform(-4, 0),
        "curve": [[end, 10 ** draw.uniform(-30, 0)] for end in range(1, probe.length + 1)],
    }


def search(draw, arm):
    tried = [{"rate": rate, "excess": [draw.random(), 1e308 * draw.randint(0, 1)]} for rate in arm.rates]
    return {"seeds": [100, 101], "tried": tried, "chosen": draw.choice(arm.rates)}


def made_record(study, arm, seed, *, failure=None, refused=None):
    """As the runner writes it."""
    draw = random.Random(f"{study.name} {arm.name} {seed}")
    real = arm.task.output_kind == "real"
    make = number_entry if real else class_entry

    def entries():
        return [
            make(draw, name, probe.task or arm.task, probe)
            for probe in arm.probes
            for name in inputs(probe, probe.task or arm.task)
        ]

    measurements = {
        "parameters": draw.randrange(100, 50_000),
        "chance": arm.task.chance,
        "training": {
            "seconds": draw.uniform(1, 90),
            "together": draw.choice((1, 5)),
            "failure": failure,
            "curve": [[1, 0.5, None]],
        },
        **({"search": search(draw, arm)} if arm.rates else {}),
        "learned": None if failure else entries(),
        "hardened": None,
    }
    if arm.harden and not failure:
        measurements["hardening"] = {"refused": refused, "seconds": 1.0}
        if refused is None and real:
            measurements["hardening"] |= {"states": 2, "farthest_from_an_integer": draw.uniform(0, 1e-6)}
            asked = {"input": "random and adversarial", "task": arm.task.name, "length": 1000, "sequences": 69}
            measurements["hardened"] = [{**asked, "exact": share(draw)}]
        elif refused is None:
            measurements["hardening"] |= {"states": draw.choice((5, 6)), "agreement": draw.random()}
            measurements["hardened"] = entries()
    settings = {"study": study.name, "question": study.question, "arm": to_plain(arm), "seed": seed}
    return Record(f"{study.name}/{arm.name}", settings, measurements, ENVIRONMENT)


def write_study(folder, name, seeds=(0, 1, 2), arms=None, odd=None):
    """Records of a study, or of some of its arms.

    ``odd`` tells which runs are special: ``{arm: {seed: what}}``, with what one of ``"failed"``, ``"refused"``,
    ``"missing"``, ``"damaged"``.
    """
    study = STUDIES[name]
    for arm in study.arms:
        for seed in seeds if arms is None or arm.name in arms else ():
            what = (odd or {}).get(arm.name, {}).get(seed)
            path = folder / name / arm.name / f"seed{seed}.json"
            if what == "damaged":
                write_atomically(path, b'{"name": "cut off')
            elif what != "missing":
                reasons = {
                    "failure": FAILURE if what == "failed" else None,
                    "refused": REASON if what == "refused" else None,
                }
                made_record(study, arm, seed, **reasons).write(path)
