"""Models with a proof object: a checkpoint, a certificate and a specification, side by side in a folder."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.certification.perturbed import counter, one_hot
from transductor import compile_model
from transductor.automata import MooreMachine, regex
from transductor.automata.formats import write
from transductor.automata.labelled_series import series_of_labels
from transductor.certification import certify, checker
from transductor.heads import LookbackHead, RationalHead
from transductor.model import RationalReadout
from transductor.model.storage import load, save
from transductor.transitions import DenseTransitions, DirectSum, PermutationTransitions


def signed(plain):
    """Give an object the digest of its content, as a forger can."""
    rest = {name: value for name, value in plain.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return rest | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def signed_again(plain):
    """Give a certificate, and each of its parts that has one, the digest of its content."""
    plain = dict(plain)
    for name in ("machine", "domain"):
        if isinstance(plain.get(name), dict):
            plain[name] = signed(plain[name])
    subject = plain.get("subject")
    if isinstance(subject, dict) and isinstance(subject.get("tensors"), dict):
        tensors = {name: signed(each) if isinstance(each, dict) else each for name, each in subject["tensors"].items()}
        plain["subject"] = subject | {"tensors": tensors}
    return signed(plain)


@dataclass(frozen=True)
class Proof:
    """Where a checkpoint, a specification and a certificate lie, and what the certificate says."""

    folder: Path
    plain: dict

    @property
    def model(self):
        return self.folder / "model"

    @property
    def specification(self):
        return self.folder / "specification.json"

    @property
    def certificate(self):
        return self.folder / "certificate.json"

    def check(self, plain=None, **options):
        if plain is not None:
            self.certificate.write_text(json.dumps(plain))
        return checker.check(self.certificate, self.model, self.specification, **options)


def prove(folder, model, machine, domain=None, letters=None):
    """Save a model, and write its certificate and its specification."""
    save(model, folder / "model")
    loaded = load(folder / "model")
    letters = [chr(ord("a") + letter) for letter in range(machine.letters)] if letters is None else letters
    write(series_of_labels(machine, letters), folder / "specification.json")
    certificate = certify(loaded, against=machine, domain=domain, letters=letters)
    assert certificate.outcome == "proved", certificate
    plain = json.loads(json.dumps(certificate.plain()))
    proof = Proof(folder, plain)
    certificate.write(proof.certificate)
    return proof


def readout(family, initial, weight, bias=None, *, head=RationalHead, dtype=torch.float32):
    """A head over a family, and a linear map with exactly these numbers."""
    model = RationalReadout(head(family), len(weight)).eval()
    with torch.no_grad():
        model.rational_head.raw_initial_state.copy_(torch.as_tensor(np.asarray(initial, dtype=float)))
        model.readout.weight.copy_(torch.as_tensor(np.asarray(weight, dtype=float)))
        model.readout.bias.copy_(torch.as_tensor(np.zeros(len(weight)) if bias is None else np.asarray(bias, float)))
    return model.to(dtype)


def dense(table):
    table = np.asarray(table, dtype=float)
    family = DenseTransitions(state_dim=table.shape[1], vocab_size=len(table))
    with torch.no_grad():
        family.source.raw.copy_(torch.as_tensor(table.reshape(len(table), -1)))
    return family


def of_machine(machine, **options):
    table, initial, weight = one_hot(machine)
    return readout(dense(table), initial, weight, **options)


def permuting(modulus, **options):
    family = PermutationTransitions(permutations=[list(range(modulus)), [*range(1, modulus), 0]])
    return readout(family, np.eye(modulus)[0], np.eye(modulus), **options)


def abb():
    return MooreMachine.from_dfa(regex("(a|b)*abb", "ab"))


def without_twice_b():
    return MooreMachine.from_dfa(regex("a*(ba+)*b?", "ab"))


def parity_of_both():
    """Which letters came an odd number of times: two counters side by side, one for each letter."""
    rows = [[state ^ 1, state ^ 2] for state in range(4)]
    return MooreMachine(np.array(rows), np.arange(4))


def summed():
    still, turned = [0, 1], [1, 0]
    first = PermutationTransitions(permutations=[turned, still])
    second = dense([np.eye(2), np.eye(2)[turned]])
    weight = [[1 - 2 * (label & 1), 0, 1 - (label & 2), 0] for label in range(4)]
    return readout(DirectSum(first, second), [1, -1, 1, -1], weight)


def step_back():
    """Shows whether the letter changed the state: the sum of both states, in one coordinate."""
    machine = MooreMachine(np.array([[0, 1], [2, 3], [0, 1], [2, 3]]), np.array([0, 1, 2, 3]))
    table = np.zeros((2, 2, 2))
    table[0, 0], table[1, 1] = 1, 1  # the state is the last letter
    weight = [[1 - (q & 1), q & 1, 1 - (q >> 1), q >> 1] for q in range(4)]
    return readout(dense(table), [1, 0], weight, head=LookbackHead), machine


def one_logit(**options):
    machine = counter(2)
    table, initial, _ = one_hot(machine)
    return readout(dense(table), initial, [[-0.75, 0.5]], **options), machine


def negating(**options):
    """A state that changes its sign."""
    return readout(dense([[[1.0]], [[-1.0]]]), [0.3], [[1.0], [-1.0]], [0.25, -0.125], **options), counter(2)


def all_cases():
    """Name, model, machine and domain of one model of every kind that is covered."""
    bf16, f16, f64 = torch.bfloat16, torch.float16, torch.float64
    looking, machine = step_back()
    ignoring = MooreMachine(counter(3).transitions, np.array([0, -100, 1]))
    return {
        "permutations": (permuting(3), counter(3), None),
        "expression": (of_machine(abb()), abb(), None),
        "float64": (of_machine(abb(), dtype=f64), abb(), None),
        "bfloat16": (permuting(5, dtype=bf16), counter(5), None),
        "float16": (of_machine(abb(), dtype=f16), abb(), None),
        "domain": (of_machine(abb()), abb(), without_twice_b()),
        "one logit": (*one_logit(), None),
        "signs": (*negating(), None),
        "look back": (looking, machine, None),
        "direct sum": (summed(), parity_of_both(), None),
        "ignored": (of_machine(ignoring), ignoring, None),
        "stream": (compile_model(counter(3)), counter(3), None),
        "stream, float64": (compile_model(abb(), dtype=f64), abb(), None),
        "stream, bfloat16": (compile_model(counter(3)).to(bf16), counter(3), None),
        "stream, look back": (compile_model(abb(), head="lookback"), abb(), without_twice_b()),
    }


def symmetric_group(points=5):
    """The machine that multiplies permutations: as many letters and states as there are, each with its own label."""
    elements = list(itertools.permutations(range(points)))
    number = {element: place for place, element in enumerate(elements)}
    table = [[number[tuple(by[q] for q in element)] for by in elements] for element in elements]
    return MooreMachine(np.array(table), np.arange(len(elements)))


def of_group(machine):
    family = PermutationTransitions(permutations=machine.transitions.T.tolist())
    return readout(family, np.eye(machine.states)[0], np.eye(machine.states))
