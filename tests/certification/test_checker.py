"""The checker that runs alone: it accepts what is proved, and nothing else."""

from __future__ import annotations

import ast
import gzip
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.certification.perturbed import counter
from tests.certification.proofs import (
    abb,
    all_cases,
    dense,
    of_group,
    of_machine,
    permuting,
    prove,
    readout,
    signed_again,
    symmetric_group,
    without_twice_b,
)
from transductor import compile_model
from transductor.automata import MooreMachine, regex
from transductor.automata.formats import write
from transductor.certification import certify, checker
from transductor.certification.checker import CheckError
from transductor.certification.proof_objects import NoProofObject, built_invariant
from transductor.model import BackboneConfig, FullAttention
from transductor.model.storage import save
from transductor.transitions import OrthogonalTransitions

FILE = Path(checker.__file__)
CASES = all_cases()


def refusal(function, *arguments, **options):
    with pytest.raises(CheckError) as caught:
        function(*arguments, **options)
    return caught.value.status, str(caught.value)


def test_it_is_one_file_of_the_standard_library():
    tree = ast.parse(FILE.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    assert modules <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in imports)
    assert len(FILE.read_text().splitlines()) <= 500


def alone(*arguments):
    """Run the file where nothing but the standard library can be imported."""
    command = [sys.executable, "-I", "-S", str(FILE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={}, timeout=60)


def test_it_runs_alone(tmp_path):
    proof = prove(tmp_path, permuting(3), counter(3))
    run = alone(proof.certificate, proof.model, proof.specification)
    assert (run.returncode, run.stderr) == (0, "")
    first, second = run.stdout.splitlines()
    assert first.startswith("proved: after every word")
    assert proof.plain["model"]["sha256"] in first
    assert "3 nodes, 6 edges" in second
    write(regex("(a|b)*b", "ab"), proof.specification)
    run = alone(proof.certificate, proof.model, proof.specification)
    assert (run.returncode, run.stdout.startswith("does not hold: ")) == (1, True)
    assert alone(proof.certificate, proof.model).returncode == 2
    run = alone(proof.certificate, proof.model, tmp_path / "nothing")
    assert (run.returncode, run.stdout.startswith("cannot be checked: ")) == (2, True)


@pytest.mark.parametrize("name", CASES)
def test_what_is_proved_is_accepted(name, tmp_path):
    model, machine, domain = CASES[name]
    proof = prove(tmp_path, model, machine, domain)
    assert proof.check().startswith("proved: after every word of the domain" if domain else "proved: after every word ")
    packed = tmp_path / "certificate.json.gz"
    packed.write_bytes(gzip.compress(proof.certificate.read_bytes()))
    assert checker.check(packed, proof.model, proof.specification) == proof.check()
    other = MooreMachine(machine.transitions, np.where(machine.outputs == 0, 1, machine.outputs))
    write_tables(proof.specification, other, proof.plain["letters"])
    assert refusal(proof.check)[0] == 1


def write_tables(path, machine, letters):
    """Write a machine as plain tables."""
    tables = {"transitions": machine.transitions.tolist(), "outputs": machine.outputs.tolist(), "start": machine.start}
    path.write_text(json.dumps({"letters": letters, **tables}))


def test_letters_are_matched_by_name(tmp_path):
    proof = prove(tmp_path, of_machine(abb()), abb())
    write_tables(proof.specification, abb(), ["a", "b"])
    proof.check()
    write_tables(proof.specification, MooreMachine(abb().transitions[:, ::-1], abb().outputs), ["b", "a"])
    proof.check()
    write_tables(proof.specification, abb(), ["b", "a"])
    assert refusal(proof.check) == (
        1,
        "the machine of the certificate is not the specification: some word has another label",
    )
    write_tables(proof.specification, abb(), ["a", "c"])
    assert refusal(proof.check)[0] == 1
    write_tables(proof.specification, abb(), ["a", "a"])
    assert refusal(proof.check)[0] == 2


def test_a_specification_may_be_smaller_larger_or_silent(tmp_path):
    machine = counter(2)
    doubled = MooreMachine(np.array([[q, (q + 1) % 4] for q in range(4)]), np.array([0, 1, 0, 1]))
    proof = prove(tmp_path, of_machine(doubled), doubled)
    write_tables(proof.specification, machine, ["a", "b"])
    proof.check()
    write_tables(proof.specification, MooreMachine(machine.transitions, np.array([-100, 1])), ["a", "b"])
    proof.check()  # it asks for less
    silent = MooreMachine(doubled.transitions, np.array([0, 1, 0, -100]))
    plain = signed_again(proof.plain | {"machine": proof.plain["machine"] | {"outputs": silent.outputs.tolist()}})
    write_tables(proof.specification, machine, ["a", "b"])
    assert refusal(proof.check, plain)[0] == 1  # the certificate says less than is asked


def test_a_domain_is_compared_with_its_own_specification(tmp_path):
    proof = prove(tmp_path, of_machine(abb()), abb(), without_twice_b())
    file = tmp_path / "domain.json"
    write(regex("a*(ba+)*b?", "ab"), file)
    assert proof.check(domain_file=file).startswith("proved: after every word of the domain")
    write(regex("a*", "ab"), file)
    assert refusal(proof.check, domain_file=file)[0] == 1
    anything = MooreMachine(without_twice_b().transitions, np.full(without_twice_b().states, -100))
    write_tables(file, anything, ["a", "b"])
    assert refusal(proof.check, domain_file=file)[0] == 1  # a domain says of every word whether it is inside
    forged = {"transitions": [[0, 1], [0, 1]], "outputs": [1, 0], "start": 0}  # what ends in b is outside
    plain = proof.plain | {"domain": forged}
    plain["invariant"] = proof.plain["invariant"] | {"domain": [0] * 4}
    assert refusal(proof.check, signed_again(plain)) == (1, "the domain is not closed under prefixes")


def test_an_automaton_of_other_weights_is_no_specification(tmp_path):
    proof = prove(tmp_path, of_machine(abb()), abb())
    document = json.loads(proof.specification.read_text())
    proof.specification.write_text(json.dumps(document | {"weights": "min_plus"}))
    assert refusal(proof.check)[0] == 2
    unsure = json.loads(json.dumps(document))
    unsure["matrices"][0] = {"dense": [["1"] * 4] * 4}
    proof.specification.write_text(json.dumps(unsure))
    assert refusal(proof.check) == (2, f"{proof.specification} is not deterministic")
    halves = json.loads(json.dumps(document).replace('"1"', '"1/2"'))
    proof.specification.write_text(json.dumps(halves))
    assert refusal(proof.check)[0] == 2


def test_nothing_is_said_about_no_label(tmp_path):
    proof = prove(tmp_path, of_machine(counter(2)), counter(2))
    silent = MooreMachine(counter(2).transitions, np.array([-100, -100]))
    write_tables(proof.specification, silent, ["a", "b"])
    plain = signed_again(proof.plain | {"machine": proof.plain["machine"] | {"outputs": [-100, -100]}})
    assert refusal(proof.check, plain)[1].startswith("no word has a label")
    assert certify(of_machine(counter(2)), against=silent).invariant is None


def test_what_is_not_covered_is_refused_by_name(tmp_path):
    proof = prove(tmp_path, permuting(3), counter(3))
    torch.manual_seed(0)
    orthogonal = readout(OrthogonalTransitions(state_dim=3, vocab_size=2), np.eye(3)[0], np.eye(3))
    backbone = BackboneConfig(vocab_size=2, output_size=3, width=8, layers=1, attention=FullAttention())
    attending = compile_model(counter(3), backbone=backbone)
    for model, word in ((orthogonal, "orthogonal"), (attending, "NoAttention")):
        save(model, tmp_path / "other")
        manifest = json.loads((tmp_path / "other" / "config.json").read_text())
        plain = proof.plain | {"model": {"sha256": manifest["sha256"], "config": manifest["config"]}}
        proof.certificate.write_text(json.dumps(signed_again(plain)))
        status, sentence = refusal(checker.check, proof.certificate, tmp_path / "other", proof.specification)
        assert status == 2
        assert word in sentence
    for change in (
        {"outcome": "bounded", "verdict": "holds up to 9", "holds_up_to": 9},
        {"invariant": None},
        {"version": 1},
    ):
        assert refusal(proof.check, signed_again(proof.plain | change))[0] == 2
    assert refusal(proof.check, signed_again(proof.plain | {"model": None}))[0] == 1


def test_a_head_that_may_round_is_not_covered(tmp_path):
    matrices = {
        "other than 0, 1 and -1": ([[[0.5]], [[1.0]]], [1.0]),
        "in a row, or in a column": ([[[1, 1], [1, 0]], np.eye(2)], [1.0, 0]),
        "may round": ([[[1, 1], [0, 0]], np.eye(2)], [2.0**24, 1.0]),
        "leaves the range": ([[[1.0]], [[1.0]]], [2.0**-120]),
    }
    for sentence, (table, initial) in matrices.items():
        proof = prove(tmp_path, permuting(2), counter(2))
        model = readout(dense(table), initial, np.eye(2)[:, : len(initial)])
        save(model, tmp_path / "model")
        subject = checker.subject_of(*checker.read_checkpoint(proof.model)[1:])
        with pytest.raises(CheckError, match=sentence):
            checker.Model(*subject)


@pytest.mark.parametrize("what", ["products", "intervals"])
def test_what_is_too_large_has_no_proof_object(what, monkeypatch):
    certificate = certify(compile_model(counter(3)), against=counter(3))
    assert certificate.invariant is not None
    monkeypatch.setattr(f"transductor.certification.proof_objects.MOST_{what.upper()}", 10)
    certificate = replace(certificate)  # which has not made its proof object yet
    assert certificate.invariant is None
    assert certificate.reached is not None
    with pytest.raises(NoProofObject, match=f"{what}; at most 10"):
        built_invariant(certificate.question.subject, *certificate.reached, counter(3), None)


def test_damaged_files_are_refused_quickly(tmp_path):
    proof = prove(tmp_path, permuting(3), counter(3))
    text = proof.certificate.read_text()
    damaged = {
        "twice": text.replace('"verdict"', '"version": 2, "verdict"', 1),
        "NaN": text.replace('"horizon": null', '"horizon": NaN'),
        "huge": text.replace('"horizon": null', '"horizon": 1e999999999'),
        "digits": text.replace('"horizon": null', '"horizon": 1' + 10**6 * "0"),
        "deep": "[" * 10**6,
        "cut": text[:-20],
        "list": "[]",
        "empty": "",
        "null": "null",
        "text": '"proved"',
    }
    for name, content in damaged.items():
        proof.certificate.write_text(content)
        begin = time.perf_counter()
        status, sentence = refusal(proof.check)
        assert (status, time.perf_counter() - begin < 5) == (2, True), name
        assert len(sentence) < 250, name
        proof.certificate.write_text(text)
        proof.specification.write_text(content)
        assert refusal(proof.check)[0] == 2, name
        write_tables(proof.specification, counter(3), ["a", "b"])
    packed = tmp_path / "certificate.json.gz"
    packed.write_bytes(gzip.compress(text.encode())[:-30])
    assert refusal(checker.check, packed, proof.model, proof.specification)[0] == 2
    os.mkfifo(tmp_path / "pipe")
    assert refusal(checker.check, tmp_path / "pipe", proof.model, proof.specification)[0] == 2
    proof.check()


def test_a_small_specification_does_not_ask_for_much(tmp_path):
    """A file of five thousand bytes asked for eight gigabytes."""
    path, nothing = tmp_path / "machine.json", {"sparse": []}
    plain = {"format": "transductor.automaton", "weights": "boolean", "states": 2**20, "initial": nothing}
    plain |= {"final": nothing, "matrices": [], "alphabet": [*map(str, range(1000))]}
    path.write_text(json.dumps(plain))
    with pytest.raises(checker.CheckError, match="too many states and letters"):
        checker.read_machine(path)


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checker, "MOST_BYTES", 10**6)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 10**7))
    assert "more than 1000000 bytes" in refusal(checker.check, tmp_path / "bomb.json.gz", tmp_path, tmp_path)[1]


def test_altered_checkpoints_are_noticed(tmp_path):
    proof = prove(tmp_path, permuting(3), counter(3))
    file = proof.model / json.loads((proof.model / "config.json").read_text())["weights"]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert refusal(proof.check)[1].endswith("altered: its SHA-256 is not the one in config.json")
    manifest = json.loads((proof.model / "config.json").read_text())
    manifest["config"]["head"]["backend"] = "reference"
    data[-1] ^= 1
    file.write_bytes(data)
    (proof.model / "config.json").write_text(json.dumps(manifest))
    assert refusal(proof.check) == (1, f"the certificate is not about {proof.model}")


@pytest.mark.slow
def test_the_largest_group_is_checked_in_seconds(tmp_path):
    machine = symmetric_group()
    proof = prove(tmp_path, of_group(machine), machine)
    begin = time.perf_counter()
    run = alone(proof.certificate, proof.model, proof.specification)
    assert run.returncode == 0, run.stdout
    assert "120 nodes, 14400 edges" in run.stdout
    assert time.perf_counter() - begin < 60
