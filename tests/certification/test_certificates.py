from __future__ import annotations

import base64
import copy
import hashlib
import json
import math

import numpy as np
import pytest
import torch

from tests.certification.perturbed import counter, one_hot, readout_model, rotating_counter, turn
from transductor.automata import MooreMachine, WeightedAutomaton, machine, regex
from transductor.certification import (
    AgreementCertificate,
    CertificateError,
    certify,
    check_certificate,
    read_certificate,
)
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, NoAttention, RationalTransductor
from transductor.transitions import DenseTransitions, PermutationTransitions


def parity():
    return MooreMachine(np.array([[0, 1], [1, 0]]), np.arange(2))


def exact_model():
    return readout_model(*one_hot(parity()), dtype=torch.float32)


def head_with(table, initial, dtype=torch.float64):
    head = RationalHead(DenseTransitions(state_dim=len(initial), vocab_size=len(table))).to(dtype)
    with torch.no_grad():
        head.transitions.source.raw.copy_(torch.as_tensor(np.reshape(table, (len(table), -1))))
        head.raw_initial_state.copy_(torch.as_tensor(np.asarray(initial)))
    return head


def stream_model():
    torch.manual_seed(0)
    head = RationalHead(PermutationTransitions(permutations=[[0, 1], [1, 0]]))
    config = BackboneConfig(vocab_size=2, output_size=2, width=4, layers=1, feedforward=2, attention=NoAttention())
    return RationalTransductor(head, config).eval()


def ones(horizon):
    """The number of ones, as floats count it."""
    series = WeightedAutomaton([1, 0], [[[1, 0], [0, 1]], [[1, 0], [1, 1]]], [0, 1], "01")
    head = head_with([np.eye(2), [[1, 0], [1, 1]]], [1.0, 0])
    return certify(head, torch.tensor([[0.0, 1.0]], dtype=torch.float64), against=series, horizon=horizon)


@pytest.fixture(scope="module")
def certificates():
    other = parity()
    drifting = readout_model([np.eye(2), -turn(0.05)], [1.0, 0], [[1.0, 0], [-1, 0]])
    change = np.array([[1.0, 0.5], [0, 1]])
    table, initial, weight = one_hot(parity())
    noisy = change @ (table + 1e-3 * np.arange(8).reshape(2, 2, 2)) @ np.linalg.inv(change)
    return {
        "proved": certify(exact_model(), against=other),
        "refuted": certify(drifting, against=other, horizon=1000),
        "bounded": certify(rotating_counter(1e-2, modulus=3), against=counter(3), horizon=20),
        "domain": certify(exact_model(), against=counter(2), domain=regex("0*(10+)*1?", "01")),
        "atoms": certify(
            readout_model(noisy, change @ initial, weight @ np.linalg.inv(change)), against=other, horizon=5000
        ),
        "series": ones(1000),
        "model": certify(stream_model(), against=other),
        "head": certify(head_with([np.eye(2), -turn(0.01)], [1.0, 0]), against=other, horizon=1000),
    }


KINDS = ["proved", "refuted", "bounded", "domain", "atoms", "series", "model", "head"]


def test_the_certificates_are_of_every_kind(certificates):
    assert list(certificates) == KINDS
    assert {certificate.outcome for certificate in certificates.values()} == {"proved", "refuted", "bounded"}
    assert {certificate.about for certificate in certificates.values()} == {"labels", "model", "head", "series"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_and_holds(certificates, kind, tmp_path):
    certificate = certificates[kind]
    path = certificate.write(tmp_path / "certificate.json")
    again = read_certificate(path)
    assert isinstance(again, AgreementCertificate)
    assert again.plain() == certificate.plain() == json.loads(path.read_text())
    assert (again.verdict, again.word, again.claim) == (certificate.verdict, certificate.word, certificate.claim)


def leaves(value, path=()):
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, (*path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from leaves(part, (*path, index))
    else:
        yield path, value


def altered(plain, path, value):
    out = copy.deepcopy(plain)
    part = out
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return out


def sealed(plain):
    """With the digest of the altered content, as somebody would who wants to deceive."""
    content = {name: value for name, value in plain.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return content | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_can_be_altered(certificates, kind):
    plain = certificates[kind].plain()
    numbers = [(path, value) for path, value in leaves(plain) if isinstance(value, (int, float))]
    assert len(numbers) > 10
    for path, value in numbers:
        others = [not value] if isinstance(value, bool) else [value + 1, -value - 1, value * 3 + 1]  # of −1, too
        others += [math.nextafter(value, math.inf)] if isinstance(value, float) else []
        for other in others:
            with pytest.raises(CertificateError):
                check_certificate(altered(plain, path, other))


# What somebody may ask for another horizon or tolerance, and what a model and a specification are compared with;
# everything else follows from the numbers.
ASKED = ("horizon", "tolerance", "version")
COMPARED = ("letters", "classes", "model")


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_digest_does_not_help(certificates, kind):
    plain = certificates[kind].plain()
    assert check_certificate(sealed(plain)).plain() == plain
    numbers = [
        (path, value)
        for path, value in leaves(plain)
        if isinstance(value, (int, float))
        and path[0] not in (*ASKED, *COMPARED)
        and path[:2] != ("invariant", "logits")
    ]
    for path, value in numbers:
        other = not value if isinstance(value, bool) else value + 1
        with pytest.raises(CertificateError):
            check_certificate(sealed(altered(plain, path, other)))
        if isinstance(value, float):
            with pytest.raises(CertificateError):
                check_certificate(sealed(altered(plain, path, math.nextafter(value, math.inf))))


def test_intervals_of_logits_must_hold_what_the_model_computes_and_show_the_label(certificates):
    """They are evidence: any that are wide enough for the model and narrow enough for the labels will do."""
    plain = certificates["proved"].plain()
    place = next(n for n, each in enumerate(plain["invariant"]["logits"]) if each is not None)
    label = plain["machine"]["outputs"][plain["invariant"]["machine"][place]]
    path = ("invariant", "logits", place, label)
    low, high = plain["invariant"]["logits"][place][label]
    for wrong in ([low, low], [math.nextafter(high, math.inf), high + 1], [low - 1e6, high]):
        with pytest.raises(CertificateError, match="invariant: the edge"):
            check_certificate(sealed(altered(plain, path, wrong)))
    wider = sealed(altered(plain, path, [low - 1e-3, high + 1]))
    assert check_certificate(wider).plain() == plain


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_the_statement_can_be_altered(certificates, kind):
    plain = certificates[kind].plain()
    for path, value in leaves(plain):
        if isinstance(value, str) and path[0] not in ("sha256", "series", *COMPARED):
            with pytest.raises(CertificateError):
                check_certificate(sealed(altered(plain, path, value + "x")))


def test_another_verdict_is_not_believed(certificates):
    """The tensors are complete and every digest is right; the conclusion is not."""
    plain = certificates["refuted"].plain()
    claimed = sealed(plain | {"verdict": "proved", "outcome": "proved", "holds_up_to": None, "word": None})
    with pytest.raises(CertificateError, match="does not hold: verdict is 'proved'"):
        check_certificate(claimed)
    longer = sealed(plain | {"holds_up_to": plain["holds_up_to"] + 5})
    with pytest.raises(CertificateError, match="holds_up_to"):
        check_certificate(longer)
    exact = certificates["proved"].plain()
    tensor = exact["subject"]["tensors"]["table"] | {"data": base64.b64encode(bytes(32)).decode()}
    tensor = sealed(tensor)  # another head, with its digest
    with pytest.raises(CertificateError, match="does not hold"):
        check_certificate(sealed(altered(exact, ("subject", "tensors", "table"), tensor)))


def test_damage_is_named(certificates, tmp_path):
    path = certificates["bounded"].write(tmp_path / "certificate.json")
    text = path.read_text()
    for end in (0, 1, len(text) // 2, len(text) - 3):
        path.write_text(text[:end])
        with pytest.raises(CertificateError, match="is not JSON"):
            check_certificate(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CertificateError, match="is not JSON"):
        check_certificate(path)
    with pytest.raises(CertificateError, match="cannot be read"):
        check_certificate(tmp_path / "nowhere.json")
    plain = json.loads(text)
    for wrong in ([], 3, None, "text", {}, {"format": "something else"}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(CertificateError, match="format"):
            check_certificate(path)
    for version in (0, 3, "1", "2", None, True):
        with pytest.raises(CertificateError, match="this release reads 1 and 2"):
            check_certificate(sealed(plain | {"version": version}))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_misshapen_parts_are_refused(certificates, kind):
    plain = certificates[kind].plain()
    for name in plain:
        if name in ("format", "version", "sha256"):
            continue
        without = {key: value for key, value in plain.items() if key != name}
        with pytest.raises(CertificateError):
            check_certificate(sealed(without))
        for wrong in ([], {}, "text", 1.5, [[1, [2]]]):
            if wrong != plain[name]:
                with pytest.raises(CertificateError):
                    check_certificate(sealed(plain | {name: wrong}))
    with pytest.raises(CertificateError, match="more"):
        check_certificate(sealed(plain | {"more": 1}))


def test_a_word_too_long_to_be_meant_is_refused(certificates):
    plain = certificates["refuted"].plain()
    with pytest.raises(CertificateError, match="letters"):
        check_certificate(sealed(plain | {"word": [[[1], 10**15]]}))


def test_the_model_must_be_the_certified_one(certificates):
    model = exact_model()
    check_certificate(certificates["proved"], model)
    with torch.no_grad():
        model.readout.bias[0] += 1e-6
    with pytest.raises(CertificateError, match="not about this model: bias differs"):
        check_certificate(certificates["proved"], model)
    with pytest.raises(CertificateError, match="differs"):
        check_certificate(certificates["proved"], exact_model().double())
    check_certificate(certificates["model"], stream_model())
    with pytest.raises(CertificateError, match="only one of the two has"):
        check_certificate(certificates["model"], exact_model())
    head = head_with([np.eye(2), [[1, 0], [1, 1]]], [1.0, 0])
    check_certificate(certificates["series"], (head, torch.tensor([[0.0, 1.0]], dtype=torch.float64)))


def test_a_certificate_of_a_named_machine_is_exact_in_its_weights():
    automaton = machine("base_value:2").automaton
    head = head_with(
        [[[float(x) for x in row] for row in letter] for letter in automaton.matrices],
        [float(x) for x in automaton.initial],
    )
    certificate = certify(
        head, torch.tensor([[float(x) for x in automaton.final]], dtype=torch.float64), against=automaton
    )
    assert certificate.verdict == "holds up to 53"
    plain = certificate.plain()
    assert plain["series"]["matrices"][1][0][0] in ("0", "1", "2")
    with pytest.raises(CertificateError):
        check_certificate(sealed(altered(plain, ("series", "matrices", 1, 0, 0), "1/3")))
