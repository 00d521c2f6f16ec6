"""Thousands of altered proof objects, all with fresh digests: the checker accepts none that is false.

An accepted one is judged by the model itself: `is_true` loads the checkpoint with torch, runs every short word and some
long ones, and compares labels, states and logits with all that the proof object says about them.
"""

from __future__ import annotations

import base64
import copy
import itertools
import json
import random
import shutil
from collections import Counter

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.certification.proofs import all_cases, prove, signed_again
from tests.fuzzing.mutations import altered_container, altered_leaf, part_of, places_in
from transductor.automata import DFA, MooreMachine, labels_of_series
from transductor.automata.formats import read
from transductor.automata.moore import IGNORED
from transductor.certification import checker
from transductor.certification.checker import CheckError
from transductor.certification.encoding import encoded_array
from transductor.certification.subjects import subject_of
from transductor.model import CheckpointError
from transductor.model.storage import load

CASES = all_cases()
LONGEST = 5


def is_true(proof, plain, letters=2):
    """Decide by running the model whether all that a proof object says about words is so."""
    model = load(proof.model)
    subject, about = subject_of(model)
    automaton = read(proof.specification)
    specification, names = labels_of_series(automaton), [str(name) for name in automaton.alphabet]
    if isinstance(specification, DFA):
        specification = MooreMachine.from_dfa(specification)
    same = [plain["about"] == about, plain["subject"]["precision"] == subject.precision]
    same += [plain["subject"]["lookback"] == subject.lookback, plain["outcome"] == plain["verdict"] == "proved"]
    for name, values in subject.tensors().items():
        stated = plain["subject"]["tensors"][name]
        data = np.frombuffer(base64.b64decode(stated["data"]), stated["dtype"]).reshape(stated["shape"])
        same.append(data.shape == values.shape and bool((data == values).all()))
    every = torch.tensor(list(itertools.product(range(letters), repeat=LONGEST)))  # with all their beginnings
    long = torch.randint(letters, (8, 60), generator=torch.Generator().manual_seed(0))
    order = torch.tensor([names.index(str(name)) for name in plain["letters"]])
    for tokens in (every, long):
        with torch.no_grad():
            states = model.rational_head(tokens)[..., : model.rational_head.state_dim].double().tolist()
            logits = model(tokens).double().tolist()
        wanted = specification.labels(order[tokens]).tolist()
        said = zip(tokens.tolist(), states, logits, wanted, strict=True)
        same += [says_the_truth(plain, *each) for each in said]
    return all(same)


def states_along(machine, word):
    state = machine["start"]
    for letter in word:
        state = machine["transitions"][state][letter]
        yield machine["outputs"][state]


def says_the_truth(plain, word, states, logits, wanted):
    """Follow a word through the proof object, and compare with the model and the specification at every position."""
    invariant = plain["invariant"]
    edges = [(n, v) for n, row in enumerate(invariant["targets"]) for v, target in enumerate(row) if target >= 0]
    places = {edge: place for place, edge in enumerate(edges)}
    labels = list(states_along(plain["machine"], word))
    inside = [1] * len(word) if plain["domain"] is None else list(states_along(plain["domain"], word))
    node = 0
    for time, letter in enumerate(word):
        if inside[time] != 1:
            return 1 not in inside[time:]  # nothing is said about words outside, and none of them comes back
        place = places.get((node, letter))
        if place is None:
            return False  # the graph ends inside the domain
        node, shown = invariant["targets"][node][letter], logits[time]
        stated = invariant["logits"][node if invariant["of"] == "node" else place]
        true = [invariant["states"][node] == states[time], wanted[time] in (IGNORED, labels[time])]
        true += [low <= logit <= high for (low, high), logit in zip(stated, shown, strict=True)]
        label = int(shown[0] > 0) if len(shown) == 1 else int(np.argmax(shown))
        true.append(labels[time] in (IGNORED, label))
        if not all(true):
            return False
    return True


# The parts of a certificate that the checker reads; all others are its words about itself.
READ = ("format", "version", "verdict", "outcome", "holds_up_to", "about", "series", "letters", "model", "subject")
READ += ("machine", "domain", "invariant")


def alter_anything(proof, plain, rng):
    """Alter any part of the certificate; parts of the graph more often than their share."""
    top = rng.choice([*plain] if rng.random() < 0.1 else [*["invariant"] * 6, *READ])
    paths = [(top, *path) for path in places_in(plain.get(top))] if top in plain else [(top,)]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(paths)
        try:
            parent, value = part_of(plain, path[:-1]), part_of(plain, path)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier alteration took it away
        if not isinstance(parent, (dict, list)):
            continue
        container = isinstance(value, (dict, list)) and value
        parent[path[-1]] = altered_container(value, rng) if container else altered_leaf(value, rng)


def alter_interval(proof, plain, rng):
    """Move the ends of an interval, so that a label may look better or worse."""
    logits = [each for each in plain["invariant"]["logits"] if each is not None]
    interval = rng.choice(rng.choice(logits))
    width = (interval[1] - interval[0]) or 1e-9
    end, by = rng.randrange(2), rng.choice([-1, 1]) * width * 10 ** rng.uniform(-6, 3)
    interval[end] += by
    if rng.random() < 0.3:
        interval[1 - end] += by


def alter_edge(proof, plain, rng):
    """Let an edge lead elsewhere, perhaps to a node that does not exist or out of the domain."""
    row = rng.choice(plain["invariant"]["targets"])
    row[rng.randrange(len(row))] = rng.randrange(-1, len(plain["invariant"]["targets"]) + 1)


def alter_machine_everywhere(proof, plain, rng):
    """Alter machine and specification alike, so that only the model contradicts them."""
    machine = plain["machine"]
    if rng.random() < 0.6:
        place = rng.randrange(len(machine["outputs"]))
        machine["outputs"][place] = rng.choice([IGNORED, *machine["outputs"], 0, 1])
    else:
        rng.choice(machine["transitions"])[rng.randrange(2)] = rng.randrange(len(machine["transitions"]))
    if rng.random() < 0.3:
        plain["invariant"]["machine"] = walked(plain["invariant"]["targets"], machine)
    tables = {name: machine[name] for name in ("transitions", "outputs", "start")}
    write_automaton(proof.specification, tables, plain["letters"])


def walked(targets, machine):
    """The machine's states at the nodes of a graph, as far as they are reached."""
    out, queue = {0: machine["start"]}, [0]
    for node in queue:
        for letter, target in enumerate(targets[node]):
            if 0 <= target < len(targets) and target not in out:
                out[target] = machine["transitions"][out[node]][letter]
                queue.append(target)
    return [out.get(node, 0) for node in range(len(targets))]


def write_automaton(path, tables, letters):
    """Write tables as an automaton whose values are the labels."""
    count = len(tables["outputs"])
    steps = [[[row[v], q, "1"] for q, row in enumerate(tables["transitions"])] for v in range(len(letters))]
    document = {
        "format": "transductor.automaton",
        "version": 1,
        "weights": "rational",
        "states": count,
        "alphabet": letters,
        "initial": {"sparse": [[tables["start"], "1"]]},
        "final": {"dense": [str(label) for label in tables["outputs"]]},
        "matrices": [{"sparse": step} for step in steps],
    }
    path.write_text(json.dumps(document))


def alter_names(proof, plain, rng):
    """Call the letters by other names, in the certificate alone or also in the specification."""
    letters = rng.choice([["b", "a"], ["a", "a"], ["a", "c"], ["a"], ["a", "b", "c"], [0, 1]])
    plain["letters"] = letters
    if rng.random() < 0.3 and len(letters) == 2:
        tables = {name: plain["machine"][name] for name in ("transitions", "outputs", "start")}
        write_automaton(proof.specification, tables, sorted(map(str, letters)))


def alter_domain(proof, plain, rng):
    """Forge a domain, closed under prefixes or not, with or without nodes that fit it."""
    count = rng.randrange(1, 4)
    rows = [[rng.randrange(count) for _ in range(2)] for _ in range(count)]
    plain["domain"] = {"transitions": rows, "outputs": [1, *rng.choices([0, 1, 1], k=count - 1)], "start": 0}
    plain["invariant"]["domain"] = walked(plain["invariant"]["targets"], plain["domain"])
    if rng.random() < 0.5:
        cut_at_the_domain(plain)


def cut_at_the_domain(plain):
    """Let edges that leave the domain end, and drop the logits of edges that are gone."""
    invariant, domain, kept, place = plain["invariant"], plain["domain"], [], 0
    for node, row in enumerate(invariant["targets"]):
        for letter, target in enumerate(row):
            if target < 0:
                continue
            after = domain["transitions"][invariant["domain"][node]][letter]
            if domain["outputs"][after] != 1:
                row[letter] = -1
            elif invariant["of"] == "edge":
                kept.append(invariant["logits"][place])
            place += 1
    if invariant["of"] == "edge":
        invariant["logits"] = kept
    else:
        arrived = {target for row in invariant["targets"] for target in row}
        invariant["logits"] = [each if n in arrived else None for n, each in enumerate(invariant["logits"])]


def alter_model(proof, plain, rng):
    """Alter a number of the checkpoint, in a certificate that agrees with it in everything but the graph."""
    manifest = json.loads((proof.model / "config.json").read_text())
    file = proof.model / manifest["weights"]
    tensors = safetensors.torch.load_file(file)
    name = rng.choice([name for name, value in tensors.items() if value.is_floating_point()])
    flat = tensors[name].reshape(-1)
    place = rng.randrange(len(flat))
    old = float(flat[place])
    flat[place] = rng.choice([-old, old * 2, old + 1, old / 2, 0.0, old + 2.0**-18, old * (1 + 2.0**-20), 1e30])
    if not bool(torch.isfinite(flat).all()):
        flat[place] = 0.0
    safetensors.torch.save_file(tensors, file)
    manifest["sha256"] = checker.hashlib.sha256(file.read_bytes()).hexdigest()
    if rng.random() < 0.15:
        alter_configuration(manifest["config"], rng)
    del manifest["seal"]  # a forger makes a new one; the checker does not look at it
    (proof.model / "config.json").write_text(json.dumps(manifest))
    plain["model"] = {"sha256": manifest["sha256"], "config": manifest["config"]}
    try:
        subject, _ = subject_of(load(proof.model))
    except ValueError:
        return
    plain["subject"]["tensors"] = {name: encoded_array(values) for name, values in subject.tensors().items()}


def alter_configuration(config, rng):
    """Make a configuration that describes another model, or none."""
    match rng.randrange(4):
        case 0:
            config["head"]["head"] = rng.choice(["lookback", "rational", "universal"])
        case 1:
            config["head"]["transitions"]["family"] = rng.choice(["cayley", "dense", "permutation", "stochastic"])
        case 2:
            config["kind"] = rng.choice(["ReadoutConfig", "TransductorConfig", "HeadConfig"])
        case _:
            path = rng.choice([path for path in places_in(config) if path])
            part_of(config, path[:-1])[path[-1]] = altered_leaf(part_of(config, path), rng)


KINDS = {
    alter_anything: 6,
    alter_interval: 3,
    alter_edge: 2,
    alter_machine_everywhere: 3,
    alter_names: 1,
    alter_domain: 2,
    alter_model: 3,
}


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    return {name: prove(tmp_path_factory.mktemp("proof"), *case) for name, case in CASES.items()}


def accepted(proof):
    try:
        proof.check()
    except CheckError:
        return False
    return True


def outcomes(proofs, seed, count):
    """Count what becomes of altered proof objects; fail at the first that is accepted and false."""
    rng, tally = random.Random(seed), Counter()
    names = list(proofs)
    while sum(tally.values()) < count:
        name = names[sum(tally.values()) % len(names)]
        proof = proofs[name]
        kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
        plain = copy.deepcopy(proof.plain)
        kept = {path: path.read_bytes() for path in (*proof.model.iterdir(), proof.specification)}
        try:
            kind(proof, plain, rng)
            if plain == proof.plain and all(path.read_bytes() == data for path, data in kept.items()):
                continue  # the same as before by chance
            plain = signed_again(plain)
            proof.certificate.write_text(json.dumps(plain))
            tally[kind.__name__, judged(proof, plain)] += 1
            assert not tally[kind.__name__, "accepted and false"], (tally, kind.__name__, name)
        finally:
            for path, data in kept.items():
                path.write_bytes(data)
    return tally


def judged(proof, plain):
    if not accepted(proof):
        return "refused"
    try:
        return "accepted and true" if is_true(proof, plain) else "accepted and false"
    except CheckpointError:
        return "accepted, and there is no model of which anything is said"


def test_no_false_proof_object_is_accepted(proofs):
    tally = outcomes(proofs, 0, 500)
    for kind in KINDS:
        assert tally[kind.__name__, "refused"] > 0, kind
    assert sum(count for (_, outcome), count in tally.items() if outcome == "accepted and true") > 10


@pytest.mark.slow
def test_of_ten_thousand_no_false_one_is_accepted(proofs):
    tally = outcomes(proofs, 1, 10_000)
    for (kind, outcome), count in sorted(tally.items()):
        print(f"{kind}: {count} {outcome}")
    assert sum(tally.values()) == 10_000


def test_the_judge_of_this_file_notices_what_is_false(proofs):
    """The judge must be able to say no: on a wrong label, state, interval and name."""
    proof = proofs["expression"]
    assert is_true(proof, proof.plain)
    for alter in (
        lambda plain: plain["machine"]["outputs"].reverse(),
        lambda plain: plain["invariant"]["states"].reverse(),
        lambda plain: plain["invariant"]["logits"][1][0].__setitem__(0, 2.0),
        lambda plain: plain["letters"].reverse(),
        lambda plain: plain["invariant"]["targets"].reverse(),
    ):
        plain = copy.deepcopy(proof.plain)
        alter(plain)
        assert not is_true(proof, plain)


def test_unaltered_copies_are_accepted(proofs, tmp_path):
    for proof in proofs.values():
        proof.certificate.write_text(json.dumps(signed_again(copy.deepcopy(proof.plain))))
        assert accepted(proof)
        shutil.copytree(proof.model, tmp_path / "copy", dirs_exist_ok=True)
        checker.check(proof.certificate, tmp_path / "copy", proof.specification)
        shutil.rmtree(tmp_path / "copy")
