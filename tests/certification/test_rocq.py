"""Files for Rocq: what they say, and that ``coqc`` accepts the right ones and refuses those with one bit changed."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.certification.perturbed import counter, one_hot, readout_model, rotating_counter
from transductor.automata import IGNORED, MooreMachine, WeightedAutomaton, regex
from transductor.certification import certify, rocq, subject_of
from transductor.certification.certificates import Question
from transductor.certification.rocq import rocq_text, write_rocq
from transductor.certification.rocq_evidence import Products, closed_domain, rocq_invariant
from transductor.extraction.hardening import machine_head
from transductor.heads import LookbackHead, RationalHead
from transductor.model import BackboneConfig, NoAttention, RationalReadout, RationalTransductor, load, save
from transductor.transitions import PermutationTransitions

PROOFS = Path(__file__).parents[2] / "proofs"
HASH = "0123456789abcdef" * 4
ONE, BELOW_ONE = "0x3f800000", "0x3f7fffff"  # 1 and 0.99999994


def group(size, *, even=False, generators=None):
    """Permutations of ``size`` things, multiplied by generators, or by all; each is its own label."""
    permutations = [
        p for p in itertools.permutations(range(size)) if not even or np.linalg.det(np.eye(size)[list(p)]) > 0
    ]
    letters = permutations if generators is None else generators
    numbers = {p: number for number, p in enumerate(permutations)}
    rows = [[numbers[tuple(g[k] for k in p)] for g in letters] for p in permutations]
    return MooreMachine(np.array(rows), np.arange(len(rows)))


MACHINES = {
    "parity": lambda: counter(2),
    "mod5": lambda: counter(5),
    "abb": lambda: MooreMachine.from_dfa(regex("(a|b)*abb", "ab")),
    "a5": lambda: group(5, even=True, generators=[(1, 2, 0, 3, 4), (1, 2, 3, 4, 0)]),
    "s5": lambda: group(5, generators=[(1, 0, 2, 3, 4), (1, 2, 3, 4, 0)]),
}


def checkpoint(machine, folder):
    """Save a head of the machine with a readout of its labels; return what is loaded, and the hash of the weights."""
    weight = torch.as_tensor(one_hot(machine)[2], dtype=torch.float32)
    model = RationalReadout(machine_head(machine), len(weight))
    with torch.no_grad():
        model.readout.weight.copy_(weight)
        model.readout.bias.zero_()
    save(model, folder)
    manifest = json.loads((folder / "config.json").read_text())
    digest = hashlib.sha256((folder / manifest["weights"]).read_bytes()).hexdigest()
    assert digest == manifest["sha256"]
    return load(folder), digest


def question(model, machine, **options):
    return Question(subject_of(model)[0], machine, **options)


def text_of(model, machine, **options):
    return rocq_text(question(model, machine, **options), model_sha256=HASH)


def parity_model(**options):
    table, initial, weight = one_hot(counter(2))
    return readout_model(table, initial, weight, **{"dtype": torch.float32} | options)


@pytest.fixture(scope="session")
def library():
    """Build the proofs once, or say why files cannot be given to Rocq."""
    if shutil.which("coqc") is None or shutil.which("coq_makefile") is None:
        pytest.skip("coqc is not installed: make proofs installs it")
    with (PROOFS / "Makefile").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers build the same files
        built = subprocess.run(["make", "-C", PROOFS, "library"], capture_output=True, text=True, check=False)
    if "Flocq" in built.stderr and "Cannot find" in built.stderr:
        pytest.skip("Flocq is not installed: make proofs installs it")
    assert built.returncode == 0, built.stderr
    return PROOFS


@pytest.fixture
def coqc(library, tmp_path):
    """Give a text to coqc; return whether it is accepted, and what was printed."""

    def run(text, name="certificate"):
        (tmp_path / f"{name}.v").write_text(text)
        command = ["coqc", "-q", "-Q", str(library), "Transductor", f"{name}.v"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:  # a file is refused because the checker says no, not because it cannot be read
            assert re.search(r"expected to have type\s+.check checkpoint reference invariant = true", done.stderr), done
        return done.returncode == 0, done.stdout

    return run


def computed(cases):
    """Return a file in which Rocq computes what its checker says of each text, and compares it with an answer."""
    header, body, closing = "", [], "\nTheorem checkpoint_agrees"
    for number, (text, answer) in enumerate(cases):
        header, definitions = text.split("Open Scope Z_scope.", 1)
        body.append(f"Module case_{number}.{definitions.split(closing, 1)[0]}")
        body.append(f"Goal check checkpoint reference invariant = {str(answer).lower()}.")
        body.append(f"Proof. vm_compute. reflexivity. Qed.\nEnd case_{number}.")
    return "\n".join([header, "Open Scope Z_scope.", *body])


class TestText:
    def test_checkpoints_hash_and_bits(self, tmp_path):
        machine = counter(2)
        model, digest = checkpoint(machine, tmp_path / "model")
        certificate = certify(model, against=machine)
        path = write_rocq(certificate, tmp_path / "parity.v", model_sha256=digest)
        text = path.read_text()
        assert f'checkpoint_sha256 : string := "{digest}"' in text
        assert f"matrix_1 : list row := [[1 |-> {ONE}]; [0 |-> {ONE}]]." in text
        assert f"[{ONE}; 0x0]" in text
        assert "Node [1; 0] 0%N 0%N [0; 1]%N" in text

    def test_every_entry_but_plus_zero_is_written(self):
        table, initial, weight = one_hot(counter(2))
        table[0, 0, 1] = -0.0
        model = readout_model(table, initial, weight, [0.1, -0.5], dtype=torch.float32)
        text = text_of(model, counter(2))
        assert f"[0 |-> {ONE}; 1 |-> 0x80000000]" in text
        bits = {f"0x{pattern:x}" for pattern in np.float32([0.1, -0.5]).view(np.uint32).tolist()}
        assert bits <= set(re.findall("0x[0-9a-f]+", text))

    def test_formats(self):
        wide = text_of(parity_model(dtype=torch.float64), counter(2))
        assert "binary64 binary64 false" in wide
        assert "0x3ff0000000000000" in wide
        mixed = readout_model(*one_hot(counter(2)))
        mixed.readout.float()
        assert "binary64 binary32 false" in text_of(mixed, counter(2))

    def test_domain_and_ignored_labels(self):
        domain = MooreMachine(np.array([[0, 1], [1, 2], [2, 2]]), np.array([1, 1, 0]))
        machine = MooreMachine(np.array([[0, 1], [1, 0]]), np.array([0, IGNORED]))
        text = text_of(parity_model(), machine, domain=domain)
        assert "of the domain" in text
        assert f"[[0; 1]%N; [1; 0]%N] [0; ({IGNORED})] 0%N" in text
        assert "[1; 1; 1; 0]" in text  # the empty word, and the domain's states
        assert "of the domain" not in text_of(parity_model(), counter(2))

    def test_long_lists_are_split(self, monkeypatch):
        monkeypatch.setattr(rocq, "_LONGEST_LIST", 2)
        text = text_of(readout_model(*one_hot(counter(5)), dtype=torch.float32), counter(5))
        assert "invariant_nodes_0 ++ invariant_nodes_1 ++ invariant_nodes_2." in text

    def test_products_of_integers_are_listed(self):
        model, machine = third_turns()
        reason = rocq_invariant(subject_of(model)[0], machine, closed_domain(None, 2)).reason
        assert isinstance(reason, Products)
        assert (reason.largest, len(reason.matrices)) == (1, 3)
        assert "(Bounded 1 letter_products)" in text_of(model, machine)


def third_turns():
    """A third of a turn as a matrix of integers, in whose rows and columns there are two: its products are three."""
    turn = np.array([[0, -1], [1, -1]])
    weight = [[2, -1], [-1, 2], [-1, -1]]
    return readout_model([np.eye(2), turn], [1.0, 0], weight, dtype=torch.float32), counter(3)


class TestRefusals:
    """What the theorem does not cover is refused by name, and nothing is written."""

    def refused(self, message, model, machine=None, **options):
        with pytest.raises(ValueError, match=message):
            text_of(model, machine or counter(2), **options)

    def test_models(self):
        head = RationalHead(PermutationTransitions(permutations=[[0, 1], [1, 0]]))
        config = BackboneConfig(vocab_size=2, output_size=2, width=4, layers=1, feedforward=2, attention=NoAttention())
        self.refused("residual stream", RationalTransductor(head, config).eval())
        self.refused("no readout", head)
        half = parity_model()
        half.readout.to(torch.bfloat16)
        self.refused("readout is in bfloat16", half)

    def test_heads_that_may_round(self, monkeypatch):
        monkeypatch.setattr("transductor.certification.rocq_evidence._MOST_NUMBERS", 1000)
        self.refused("not exact: entry .* is 0.30", rotating_counter(0.0), counter(5))
        growing = readout_model([np.eye(2), [[1, 1], [0, 1]]], [1.0, 0], np.eye(2), dtype=torch.float32)
        self.refused("too many products", growing, MooreMachine(np.zeros((1, 2)), np.zeros(1)))
        model, machine = third_turns()
        with torch.no_grad():
            model.rational_head.raw_initial_state.copy_(torch.tensor([2.0**24, 1.0]))
        self.refused("format has 24 bits", model, machine)

    def test_readouts_that_do_not_decide(self):
        self.refused("label 0 is not ahead of label 1", parity_model(bias=[0.0, 2.0]))
        self.refused(
            "not ahead", readout_model(*one_hot(counter(2))[:2], [[1, 0], [1 - 2.0**-23, 1]], dtype=torch.float32)
        )
        self.refused(
            "leave the range", readout_model(*one_hot(counter(2))[:2], np.eye(2) * 2.0**127, dtype=torch.float32)
        )
        self.refused("not ahead", readout_model(*one_hot(counter(2))[:2], [[0.0, 0.0]], dtype=torch.float32))
        tiny = readout_model(one_hot(counter(2))[0], [2.0**-99, 0], np.eye(2) * 2.0**-60, dtype=torch.float32)
        self.refused("not ahead", tiny)  # every logit underflows to zero

    def test_domains_and_sizes(self, monkeypatch):
        back = MooreMachine(np.array([[0, 1], [0, 1]]), np.array([1, 0]))
        self.refused("closed under prefixes", parity_model(), domain=back)
        monkeypatch.setattr("transductor.certification.rocq_evidence._MOST_NUMBERS", 9)
        self.refused("more than 1 states", readout_model(*one_hot(counter(5)), dtype=torch.float32), counter(5))

    def test_questions(self, tmp_path):
        series = WeightedAutomaton([1, 0], [[[1, 0], [0, 1]], [[0, 1], [1, 0]]], [1, 0], "01")
        with pytest.raises(ValueError, match="about a series"):
            rocq_text(Question(subject_of(parity_model())[0], series=series), model_sha256=HASH)
        with pytest.raises(ValueError, match="only what is proved"):
            rocq_text(certify(parity_model(bias=[0.0, 2.0]), against=counter(2)), model_sha256=HASH)
        asked = question(parity_model(), counter(2))
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            rocq_text(asked, model_sha256="abc")
        with pytest.raises(ValueError, match=r"end in \.v"):
            write_rocq(asked, tmp_path / "parity.txt", model_sha256=HASH)
        assert not list(tmp_path.iterdir())


class TestAccepted:
    @pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "s5" else []) for name in MACHINES]
    )
    def test_checkpoints(self, name, coqc, tmp_path):
        machine = MACHINES[name]()
        model, digest = checkpoint(machine, tmp_path / "model")
        text = rocq_text(certify(model, against=machine), model_sha256=digest)
        accepted, printed = coqc(text)
        assert accepted
        assert "Classical_Prop.classic" in printed
        one_bit = text.replace(ONE, BELOW_ONE, 1)  # of a matrix: the head is no longer exact
        assert not coqc(one_bit)[0]
        swapped = re.sub(r"(weight_rows : list row := \[)(\[.*?\]); (\[.*?\])", r"\1\3; \2", text, count=1)
        other_edge = re.sub(
            r"(Node .*? )\[(\d+); (\d+)\]%N", lambda edge: f"{edge[1]}[{int(edge[2]) ^ 1}; {edge[3]}]%N", text, count=1
        )
        assert len({text, one_bit, swapped, other_edge}) == 4
        assert coqc(computed([(changed, False) for changed in (one_bit, swapped, other_edge)]))[0]

    @pytest.mark.slow
    def test_all_letters_of_s5(self, coqc, tmp_path):
        machine = group(5)
        model, digest = checkpoint(machine, tmp_path / "model")
        assert coqc(rocq_text(question(model, machine), model_sha256=digest))[0]

    def test_other_models(self, coqc):
        table, initial, weight = one_hot(counter(2))
        back = np.concatenate((np.zeros((2, 2)), weight), 1)  # shows the state before the token
        rounded = readout_model([np.eye(1), [[-1.0]]], [0.3], [[1.0], [-1]])  # float64, cast to float32
        rounded.readout.float()
        models = {
            "cast": (rounded, counter(2)),
            "one logit": (readout_model(table, initial, [[-1.0, 1]], dtype=torch.float32), counter(2)),
            "float64": (parity_model(dtype=torch.float64, bias=[0.1, 0.2]), counter(2)),
            "integers": third_turns(),
            "wide": (readout_model(table, [1e30, 1e-30], [[1.0, -1], [-1, 1]], dtype=torch.float32), counter(2)),
            "signs": (readout_model([np.eye(1), [[-1.0]]], [0.3], [[1.0], [-1]], dtype=torch.float32), counter(2)),
            "looks back": (readout_model(table, initial, back, dtype=torch.float32, head=LookbackHead), delayed()),
        }
        assert coqc(computed([(text_of(model, machine), True) for model, machine in models.values()]))[0]

    def test_domain(self, coqc):
        """A readout that is wrong after two ones is right where no word has two ones."""
        machine = MooreMachine(np.array([[0, 1], [1, 2], [2, 2]]), np.arange(3))
        table, initial, weight = one_hot(machine)
        model = readout_model(table, initial, weight * [1, 1, 0], dtype=torch.float32)
        domain = MooreMachine(np.array([[0, 1], [1, 2], [2, 2]]), np.array([1, 1, 0]))
        assert coqc(text_of(model, machine, domain=domain))[0]
        with pytest.raises(ValueError, match="not ahead"):
            text_of(model, machine)


def delayed():
    """Parity of all letters but the last."""
    return MooreMachine(np.array([[0, 1], [2, 3], [2, 3], [0, 1]]), np.array([0, 0, 1, 1]))


class TestOneBit:
    """Changes that matter are refused, one that does not is accepted."""

    CHANGES = (
        ("matrix_0", ONE, BELOW_ONE),
        ("matrix_0", ONE, "0xbf800000"),  # its sign
        ("matrix_0", ONE, "0x7f800000"),  # an exponent of ones: infinity
        ("matrix_1", "[1 |-> ", "[0 |-> "),  # an edge of the head
        ("weight_rows", f"[[0 |-> {ONE}]; [1 |-> {ONE}]]", f"[[1 |-> {ONE}]; [0 |-> {ONE}]]"),
        ("weight_rows", ONE, "0xbf800000"),
        ("weight_rows", ONE, "0x0"),
        ("Model", f"[{ONE}; 0x0]", f"[{BELOW_ONE}; 0x1]"),  # a state that the invariant does not begin with
        ("Model", "[0x0; 0x0].", f"[0x0; {ONE}]."),  # a bias
        ("Specification", "[1; 0]%N", "[1; 1]%N"),  # an edge of the machine
        ("Specification", "[0; 1] 0%N", "[1; 0] 0%N"),  # its labels
        ("Node [1; 0]", "0%N 0%N [0; 1]%N", "0%N 0%N [0; 0]%N"),  # an edge of the invariant
        ("Node [1; 0]", "Node [1; 0]", "Node [1; 1]"),
        ("Evidence\n", "[0; 1]%N", "[1; 1]%N"),
        ("Evidence\n", "Rows (0)", "Rows (1)"),  # a unit that does not divide
    )

    def test_refused(self, coqc):
        text = text_of(parity_model(), counter(2))
        cases = [(text, True)]
        for place, old, new in self.CHANGES:
            begin = text.index(place)
            changed = text[:begin] + text[begin:].replace(old, new, 1)
            assert changed != text, place
            cases.append((changed, False))
        assert coqc(computed(cases))[0]

    def test_a_bit_that_does_not_matter(self, coqc):
        text = text_of(parity_model(), counter(2))
        assert f"weight_rows : list row := [[0 |-> {ONE}]" in text
        changed = text.replace(
            f"weight_rows : list row := [[0 |-> {ONE}]", f"weight_rows : list row := [[0 |-> {BELOW_ONE}]"
        )
        smaller_unit = changed.replace("Rows (0) (0)", "Rows (0) (-24)")
        assert coqc(computed([(changed, False), (smaller_unit, True)]))[0]

    def test_python_and_rocq_draw_the_same_line(self, coqc, monkeypatch):
        """Near the smallest gap that rounding allows, both say yes or no together."""
        cases = []
        for steps in (2, 7, 8, 9, 10, 40):
            weight = [[1, 0], [1 - steps * 2.0**-24, 1]]
            model = readout_model([np.eye(2)], [1.0, 0], weight, dtype=torch.float32)
            asked = question(model, MooreMachine(np.zeros((1, 1)), np.zeros(1)))
            try:
                rocq_text(asked, model_sha256=HASH)
                answer = True
            except ValueError:
                answer = False
            with monkeypatch.context() as patch:
                patch.setattr(rocq, "undecided", lambda *_: None)
                cases.append((rocq_text(asked, model_sha256=HASH), answer))
        assert {True, False} == {answer for _, answer in cases}
        assert coqc(computed(cases))[0]


class TestAssumptions:
    def run(self, library, file):
        command = ["sh", str(library / "assumptions.sh"), str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @pytest.mark.slow
    def test_theorems_rest_on_the_reals_alone(self, library):
        done = self.run(library, library / "Assumptions.v")
        assert done.returncode == 0, done.stderr
        assert "10 statements rest on nothing but: Classical" in done.stdout

    def test_another_axiom_is_refused(self, library, tmp_path):
        file = tmp_path / "Cheat.v"
        file.write_text(
            "From Transductor Require Import Certificate.\nAxiom everything : forall m s, agrees m s.\n"
            "Print Assumptions everything.\n"
        )
        done = self.run(library, file)
        assert done.returncode == 1
        assert "not allowed: everything" in done.stderr
        file.write_text("From Transductor Require Import Certificate.\n")
        assert "prints no assumptions" in self.run(library, file).stderr


def test_no_proof_is_open():
    sources = {path.name: path.read_text() for path in PROOFS.glob("*.v")}
    listed = set((PROOFS / "_CoqProject").read_text().split()) & set(sources)
    assert set(sources) - listed == {"Assumptions.v"}
    for name, source in sources.items():
        assert not re.search(r"\b(Admitted|admit|Axiom|Parameter|Conjecture|Unset Guard Checking)\b", source), name


def test_nn_linear_readouts_are_what_is_written():
    """The weights of the text are those of the layer that runs."""
    model = parity_model(bias=[0.25, 0.125])
    assert type(model.readout) is nn.Linear
    for value in model.readout.bias.tolist():
        assert f"0x{np.float32(value).view(np.uint32):x}" in text_of(model, counter(2))
