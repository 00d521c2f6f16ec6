"""The readers of strangers' files, each with small valid files and a judge of what it read."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import random
import shutil
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import transductor.bench.model_cost  # noqa: F401  configurations of every room are read
from tests.automata.samples import JFLAP_TEXT, RATIONAL_LOOPS, SEMIRINGS, random_machine
from tests.automata.test_samples import READERS as SAMPLES
from tests.certification.perturbed import counter, one_hot, readout_model
from tests.certification.proofs import Proof, abb, of_machine, permuting, prove, signed_again
from tests.certification.test_certificates import exact_model, head_with, ones, parity, stream_model
from tests.certification.test_checker_mutations import is_true
from tests.fuzzing.meaning import bits_of, document, means, same, sealed, sign_bundle, tensors_in
from tests.fuzzing.running import Reader
from tests.report.explored_models import explored
from tests.report.made_records import write_study
from transductor.automata import formats, regex
from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification import CertificateError, certify, check_certificate, checker
from transductor.cli.models import trained_model
from transductor.cli.training_options import flat_toml
from transductor.configuration import ConfigurationError, from_json, to_plain
from transductor.fit_facts import read_learned, read_outcome
from transductor.heads import RationalHead, UniversalHead
from transductor.learning.running import FitPlan
from transductor.model import (
    LSTM,
    BackboneConfig,
    CheckpointError,
    RationalReadout,
    RationalTransductor,
    SlidingWindow,
    letters_of,
    load,
    save,
)
from transductor.one_writer import _holder
from transductor.portraits import read_explored, read_portrait, write_explored
from transductor.report.fit import _blocks, fit_table, read_fit
from transductor.report.portrait import _figure, _rendered
from transductor.report.study_figures import study_figure
from transductor.report.study_records import read_studies
from transductor.report.study_sheets import study_sheets
from transductor.results import Record, read_record
from transductor.tasks import Parity
from transductor.training import DataError, FileData, Trainer, TrainingSettings, Vocabulary
from transductor.training.files import TEXT_COLUMNS, UnreadableFileError, read_rows
from transductor.transitions import DirectSum, OrthogonalTransitions, PermutationTransitions, StochasticTransitions

STUDY_ARMS = {
    "regular_gap": "transductor_ours", "base_two_value": "transductor_ours", "long_addition": "transformer_rotary",
    "state_tracking": "parity",
}  # fmt: skip
KEPT = Path(__file__).parents[1] / "kept" / "0.1.0"
TOKENS = torch.tensor([[0, 1, 1, 0, 1, 0, 0]])


def copied(*sources: Path) -> Any:
    """Write copies of kept files or folders."""

    def write(folder: Path) -> None:
        for source in sources:
            for path in [source] if source.is_file() else source.iterdir():
                if path.is_file():
                    shutil.copy(path, folder / path.name)

    return write


def texts(**contents: str | bytes) -> Any:
    """Write files of these names, in which an underscore before the suffix stands for a dot."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            path = folder / ".".join(name.rsplit("_", 1))
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


# Checkpoints and runs.


def tiny_models() -> dict[str, Any]:
    torch.manual_seed(0)
    config = BackboneConfig(2, 2, width=4, layers=1, attention_heads=1, attention=SlidingWindow(2))
    parts = [OrthogonalTransitions(vocab_size=2, state_dim=2), StochasticTransitions(vocab_size=2, state_dim=2)]
    exact = RationalReadout(RationalHead(PermutationTransitions(permutations=[[0, 1], [1, 0]])), 2)
    exact.rational_head.raw_initial_state.requires_grad_(False)
    return {
        "transductor": RationalTransductor(RationalHead(DirectSum(*parts)), config),
        "readout": exact,
        "lstm": LSTM(vocab_size=2, output_size=2, width=3),
        "head": UniversalHead(vocab_size=2, orthogonal_dim=2, stochastic_dim=2).double(),
    }


def saved(name: str, folder: Path) -> None:
    save(tiny_models()[name].eval(), folder, letters=("a", "b") if name == "readout" else None)


def read_checkpoint(folder: Path) -> Any:
    return load(folder), letters_of(folder)


def check_tensors(module: torch.nn.Module, tensors: dict[str, Any], front: str = "") -> None:
    """The module has these bits, and no others."""
    stated = {name.removeprefix(front): each for name, each in tensors.items() if name.startswith(front)}
    held = {name: bits_of(value) for name, value in module.state_dict().items()}
    assert held == stated, "its tensors are others than those in the file"


def check_checkpoint(folder: Path, read: Any) -> None:
    """Configuration, letters, frozen parameters and every bit; a seal is there only if it is right."""
    model, letters = read
    plain = document(folder / "config.json")
    assert means(plain["config"], to_plain(model.config)), "its configuration is another than the file's"
    check_tensors(model, tensors_in(folder / plain["weights"]))
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == set(plain["frozen"]), "other parameters are frozen"
    assert (None if letters is None else [*letters]) == plain.get("letters"), "its letters are others"
    assert plain.get("seal") in (None, sealed(plain)["seal"]), "a manifest with a wrong seal was accepted"


def forge_bundle(manifest: str) -> Any:
    return lambda folder, rng: sign_bundle(folder, rng, manifest)


def write_run(folder: Path, *, data: bool) -> None:
    torch.manual_seed(0)
    source: Any = Parity()
    if data:
        (folder / "words.txt").write_text("a b a\nb b\na\nb a\n")
        (folder / "labels.txt").write_text("0\n1\n1\n0\n")
        source = FileData("recognition", str(folder / "words.txt"), str(folder / "labels.txt")).read()[0]
    size = source.vocab_size
    model = RationalReadout(RationalHead(OrthogonalTransitions(vocab_size=size, state_dim=2)), 2)
    trainer = Trainer(model, source, TrainingSettings(steps=6, length=3, batch_size=2))
    trainer.advance()
    trainer.advance()
    trainer.save(folder)


def check_run(folder: Path, trainer: Trainer) -> None:
    plain = document(folder / "training.json")
    tensors = tensors_in(folder / plain["weights"])
    for name, value in {"model": trainer.model.config, "settings": trainer.settings, "source": trainer.source}.items():
        assert means(plain[name], to_plain(value)), f"its {name} is another than the file's"
    assert (trainer.step, trainer.length) == (plain["step"], plain["length"])
    check_tensors(trainer.model, tensors, "model.")
    for name, value in trainer._tensors().items():
        # Of its random numbers torch keeps what it uses of a state.
        if not name.startswith(("optimiser.", "random.")) or (name in tensors and not name.startswith("random.")):
            assert bits_of(value)[1:] == tensors[name][1:], f"{name} is another than the file's"
    assert all(name in trainer._tensors() for name in tensors), "something in the file was left out"
    trainer.advance()  # what is resumed can go on


# Configurations.


def kept_configurations() -> dict[str, Any]:
    names = sorted((KEPT / "configurations").glob("*.json"))
    return {path.stem: partial(lambda path, folder: shutil.copy(path, folder / "configuration.json"), path)
            for path in names}  # fmt: skip


def read_configuration(folder: Path) -> Any:
    return from_json(text_in(folder / "configuration.json", ConfigurationError))


def text_in(path: Path, error: type[Exception]) -> str:
    """What a caller of a reader of texts hands over; what is no text is the caller's to refuse."""
    if not path.is_file() or path.stat().st_size > 2**25:
        raise error("not a text")
    try:
        return path.read_text(encoding="utf-8")
    except ValueError:
        raise error("not a text") from None


def check_configuration(folder: Path, value: Any) -> None:
    said = json.loads((folder / "configuration.json").read_text(encoding="utf-8"))
    assert means(said, to_plain(value)), "it is another configuration than the file's"


# Certificates.


def certificates() -> dict[str, Any]:
    table, initial, weight = one_hot(parity())
    change = np.array([[1.0, 0.5], [0, 1]])
    noisy = change @ (table + 1e-3 * np.arange(8).reshape(2, 2, 2)) @ np.linalg.inv(change)
    atoms = readout_model(noisy, change @ initial, weight @ np.linalg.inv(change))
    drifting = head_with(
        [np.eye(2), -np.array([[np.cos(0.01), -np.sin(0.01)], [np.sin(0.01), np.cos(0.01)]])], [1.0, 0]
    )
    made = {
        "proved": lambda: certify(exact_model(), against=parity()),
        "domain": lambda: certify(exact_model(), against=counter(2), domain=regex("0*(10+)*1?", "01")),
        "model": lambda: certify(stream_model(), against=parity()),
        "bounded": lambda: certify(atoms, against=parity(), horizon=50),
        "series": lambda: ones(50),
        "head": lambda: certify(drifting, against=parity(), horizon=50),
    }
    return {name: partial(lambda make, folder: make().write(folder / "certificate.json"), make) for name, make in
            made.items()} | {
        "packed": lambda folder: made["proved"]().write(folder / "certificate.json.gz"),
        "version_1": copied(KEPT / "certificates" / "proved_moore" / "certificate.json"),
    }  # fmt: skip


def certificate_in(folder: Path) -> Path:
    packed = folder / "certificate.json.gz"
    return packed if packed.is_symlink() or packed.exists() else folder / "certificate.json"


def check_certified(folder: Path, certificate: Any) -> None:
    said = document(certificate_in(folder))
    assert said["sha256"] == signed_again(said)["sha256"], "an altered certificate was accepted"
    if said["version"] == 1:
        return
    computed = json.loads(json.dumps(certificate.content()))
    for name in computed.keys() - {"invariant"}:  # of which wider intervals are as good
        assert same(said[name], computed[name]), f"{name} is another than what the file says"


def forge_certificate(folder: Path, rng: random.Random) -> None:
    path = certificate_in(folder)
    text = json.dumps(signed_again(document(path))).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)


def write_proof(model: Any, machine: Any, folder: Path) -> None:
    prove(folder, model, machine)


def read_proof(folder: Path) -> str:
    return checker.check(folder / "certificate.json", folder / "model", folder / "specification.json")


def check_proof(folder: Path, said: str) -> None:
    assert said.startswith("proved")
    plain = document(folder / "certificate.json")
    try:
        true = is_true(Proof(folder, plain), plain)
    except (CheckpointError, AutomatonFormatError):  # the checker alone reads it: it looks at no seal
        true = _loose_is_true(folder, plain)
    assert true, "it says proved of what is not so"


def _loose_is_true(folder: Path, plain: Any) -> bool:
    """The same question where only a seal or a name that the checker does not look at is wrong."""
    manifest = document(folder / "model" / "config.json")
    known = {"format", "version", "weights", "sha256", "frozen", "config", "letters"}
    manifest = sealed({name: each for name, each in manifest.items() if name in known} | {"frozen": []})
    manifest.pop("letters", None)
    other = folder.parent / "judged"
    shutil.copytree(folder, other, dirs_exist_ok=True)
    (other / "model" / "config.json").write_text(json.dumps(sealed(manifest)))
    try:
        return is_true(Proof(other, plain), plain)
    except (AutomatonFormatError, CheckpointError):
        return True  # the library, which is stricter, has no such machine or model, so that nothing false is said


def forge_proof(folder: Path, rng: random.Random) -> None:
    path = folder / "certificate.json"
    plain = document(path)
    if rng.random() < 0.5:  # an altered model, and a certificate that is about it
        manifest = document(folder / "model" / "config.json")
        weights = folder / "model" / manifest["weights"]
        if weights.is_file() and weights.stat().st_size < 2**20:
            manifest["sha256"] = checker.hashlib.sha256(weights.read_bytes()).hexdigest()
        (folder / "model" / "config.json").write_text(json.dumps(sealed(manifest)))
        plain["model"] = {"sha256": manifest["sha256"], "config": manifest["config"]}
    path.write_text(json.dumps(signed_again(plain)))


# Records, reports and portraits.


def write_record(folder: Path) -> None:
    Record("a run", {"size": 3, "name": "x"}, {"curve": [[1, 0.5], [2, 0.25]], "best": None}, {"python": "3"}).write(
        folder / "record.json"
    )


def check_record(folder: Path, record: Record) -> None:
    said = document(folder / "record.json")
    assert same(said, vars(record)), "it is another record than the file's"


def write_portrait(name: str, folder: Path) -> None:
    """A kept portrait with fewer points."""
    plain = document(KEPT / "portraits" / f"{name}.json")
    path, drift = plain["trajectory"], plain["drift"]
    for part in ("word", "points", "states"):
        path[part] = path[part] and path[part][:6]
    if drift is not None:
        drift |= {part: drift[part][:4] for part in ("lengths", "median", "worst")}
        drift["powers"] = {letter: values[:4] for letter, values in drift["powers"].items()}
    (folder / "portrait.json").write_text(json.dumps(plain))


def check_portrait(folder: Path, portrait: Any) -> None:
    said = document(folder / "portrait.json")
    for machine in (said["learned"], said["target"]):
        if machine is not None:
            machine.setdefault("sink", None)
            machine.setdefault("start", 0)
    said.setdefault("summary", "")
    said.setdefault("words_like_given", False)
    read = json.loads(json.dumps(vars(portrait), default=vars))
    assert same(said, read), "it is another portrait than the file's"


def write_models(name: str, folder: Path) -> None:
    write_explored([explored(name)], folder / "models.json")


def check_models(folder: Path, models: Any) -> None:
    said = document(folder / "models.json")["models"]
    read = [dataclasses.asdict(model) for model in models]
    assert len(said) == len(read)
    for stated, kept in zip(said, read, strict=True):  # fields with defaults may be left out
        for machine in (stated["twin"], stated["target"]):
            if machine is not None:
                machine.setdefault("sink", None)
        assert same({**kept, **stated}, kept), "they are other models than the file's"


def fit_facts() -> dict[str, Any]:
    """A record of a fit as one is written, with something in every part."""
    band = {"count": 4, "right": 3, "sequences": 4, "low": 0.3, "high": 0.95, "error": 0.0}
    candidate = {
        "way": "labels", "how": "from the labels alone", "recipe": "", "states": 2, "shorter": band, "kept_back": band,
        "noise": 0.01, "bits": 20.5, "bits_alone": 40.0, "refusals": [], "reasons": ["it is small"], "agreement": None,
    }  # fmt: skip
    table = {"transitions": [[0, 1], [1, 0]], "outputs": [0, -100], "start": 0}
    outcome = {
        "name": "dense", "summary": "a dense head", "peer": False, "parameters": 12, "steps": 20, "seconds": 0.5,
        "failed": None, "bands": [band], "curve": [[10, 0.5], [20, 0.25]],
    }  # fmt: skip
    return {
        "data": {
            "path": "/somewhere/words.txt", "goal": "recognition", "sequences": 12, "letters": ["a", "b"],
            "classes": ["no", "yes"], "counts": {"no": 6, "yes": 6}, "shortest": 0, "longest": 5, "conflicts": 1,
        },
        "division": {"training": 8, "validation": 2, "longer": 2, "trained_length": 4, "note": ""},
        "bands": ["1×: 0–4"],
        "baseline": {"name": "always no", "bands": [band]},
        "recipes": [outcome],
        "left_out": {"attention": "too long"},
        "chosen": {"name": "dense", "sentence": "dense was chosen."},
        "candidates": [candidate],
        "notes": ["nothing else"],
        "machine": table | candidate,
        "contradicted": [["a b", "no", "yes"]],
        "automaton": None,
        "certificate": {"verdict": "proved", "claim": "c", "method": "m", "covers": ["x"], "assumptions": ["y"]},
        "answer": {"proved": True, "made_by": "compiled", "sentence": "A machine.", "sureness": ["s"], "advice": ["a"]},
    }  # fmt: skip


def write_fit(folder: Path) -> None:
    """What a fit leaves: its record, its plan, the outcome of a recipe and the machine that labels gave."""
    facts = fit_facts()
    Record("fit", {"budget": 1.0, "seed": 0, "recipes": ["dense"], "data": "x"}, facts, {"seconds": 1.0}).write(
        folder / "record.json"
    )
    (folder / "outcome.json").write_text(json.dumps(facts["recipes"][0]))
    table = {name: facts["machine"][name] for name in ("transitions", "outputs", "start")}
    plain = {"machine": table, "errors": 0, "labels": 12, "noise": 0.0, "bits": 1.5, "bits_alone": 20.0}
    (folder / "machine_from_labels.json").write_text(json.dumps(plain | {"supported": True, "reasons": ["r"]}))
    vocabulary = Vocabulary(("<start>", "<end>", "<unknown>", "a"), ("no", "yes"))
    source = FileData("recognition", "words.txt", vocabulary=vocabulary, sha256="0" * 64)
    FitPlan(source, 1.0, 0, {"dense": 20}, {"attention": "too long"}).write(folder)


def read_fit_folder(folder: Path) -> Any:
    plan = FitPlan.read(folder)
    if plan is None:
        raise ValueError(f"{folder} has no plan")
    return (
        plan,
        read_outcome(folder / "outcome.json"),
        read_learned(folder / "machine_from_labels.json", 2, 2),
        read_fit(folder),
    )


def check_fit_folder(folder: Path, read: Any) -> None:
    plan, outcome, learned, record = read
    assert means(document(folder / "plan.json"), to_plain(plan)), "the plan is another than the file's"
    assert same(document(folder / "outcome.json"), outcome), "the outcome is another than the file's"
    assert same(document(folder / "machine_from_labels.json"), learned), "the machine is another than the file's"
    check_record(folder, record)
    fit_table(record)


def write_tables(study: str, arm: str, folder: Path) -> None:
    write_study(folder, study, seeds=(0,), arms=(arm,))
    path = folder / study / arm / "seed0.json"
    plain = document(path)
    for form in ("learned", "hardened"):
        entries = plain["measurements"].get(form)
        plain["measurements"][form] = entries and [
            entry | {"curve": entry.get("curve", [])[:2]} for entry in entries[:3]
        ]
    path.write_text(json.dumps(plain))


def read_tables(folder: Path) -> Any:
    """The studies of a folder and their tables; where no record can be used, the sentence about it."""
    (study,) = read_studies(folder)
    if not study.arms:
        raise ValueError(f"{folder}: {study.damaged[0]}"[:900])
    return study, study_sheets(study)


def check_tables(folder: Path, read: Any) -> None:
    study, _ = read
    (path,) = folder.rglob("seed0.json")
    assert same(document(path), vars(study.arms[0].runs[0].record)), "it is another record than the file's"


# Data.


def read_data(name: str, folder: Path, **options: Any) -> Any:
    return read_rows(str(folder / name), **options)


def check_lines(folder: Path, rows: Any) -> None:
    words, labels = ((folder / name).read_bytes().decode("utf-8-sig") for name in ("words.txt", "labels.txt"))
    ended = [text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n") for text in (words, labels)]
    lines = [text.split("\n") if raw else [] for text, raw in zip(ended, (words, labels), strict=True)]
    assert [row.names for row in rows] == [line.split() for line in lines[0]]
    assert [row.label for row in rows] == [line.strip() for line in lines[1]]


def check_json_lines(folder: Path, rows: Any) -> None:
    text = (folder / "data.jsonl").read_bytes().decode("utf-8-sig")
    lines = [json.loads(line) for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()]
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines, strict=True):
        names = {name.lower(): name for name in reversed(line)}
        tokens = next(line[names[name]] for name in TEXT_COLUMNS if name in names)
        assert row.names == (tokens.split() if isinstance(tokens, str) else [str(each) for each in tokens])


def check_table(name: str, folder: Path, rows: Any) -> None:
    """Another reading by the same grammar: cells are as many, and what is read is what stands in their columns."""
    text = (folder / name).read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    table = [cells for cells in csv.reader(io.StringIO(text), delimiter="\t" if name.endswith("tsv") else ",") if cells]
    if not table:
        assert rows == []
        return
    header = [cell.strip().lower() for cell in table[0]]
    place = next(header.index(each) for each in TEXT_COLUMNS if each in header)
    assert [row.names for row in rows] == [cells[place].split() for cells in table[1:]]


def check_toml(folder: Path, flat: dict[str, Any]) -> None:
    plain = tomllib.loads((folder / "settings.toml").read_bytes().decode("utf-8-sig"))

    def flattened(value: Any, front: str) -> Any:
        for name, each in value.items():
            key = front + name.replace("-", "_")
            yield from flattened(each, f"{key}_") if isinstance(each, dict) else [(key, each)]

    assert repr([*flat.items()]) == repr([*flattened(plain, "")])  # NaN is a number of TOML, and equal to nothing


def check_holder(folder: Path, words: str) -> None:
    assert words == "another process" or words.startswith("process ")
    assert len(words) < 400


DESCRIBED = "data.json"


def write_described(folder: Path) -> None:
    write_run(folder, data=True)
    data = Trainer.resumed(folder).source
    for path in folder.iterdir():
        path.unlink()
    torch.manual_seed(0)
    model = RationalReadout(RationalHead(OrthogonalTransitions(vocab_size=data.vocab_size, state_dim=2)), 2)
    save(model, folder, letters=data.vocabulary.tokens, classes=data.vocabulary.classes)
    (folder / DESCRIBED).write_text(json.dumps(to_plain(data)))


def read_described(folder: Path) -> Any:
    return trained_model(folder)


def check_described(folder: Path, read: Any) -> None:
    model, data = read
    check_checkpoint(folder, (model, letters_of(folder)))
    sealed_names = document(folder / "config.json")
    assert sealed_names.get("classes") in (None, [*data.vocabulary.classes]), "its classes are not the sealed ones"
    assert means(document(folder / DESCRIBED), to_plain(data)), "the description is another than the file's"
    tokens, _ = data.encoded(["a", "unheard of", "b"], None)
    model(tokens[None])


# Automata.


def suffix_of(name: str) -> str:
    return next(suffix for suffix, kind in formats.SUFFIXES.items() if kind == name)


def automaton_files(name: str) -> dict[str, Any]:
    """Machines over every semiring that the format has, and what else it may hold."""
    module, suffix = formats.FORMATS[name], suffix_of(name)
    made: dict[str, bytes] = {ring: module.render(random_machine(ring)) for ring in SEMIRINGS[name]}
    if name == "jflap":
        made["jflap_own"] = JFLAP_TEXT.encode()
    if name == "att":
        made = {ring: data for ring, data in made.items() if ring in ("rational", "log", "boolean")}
        made["loops_rational"] = RATIONAL_LOOPS
    return {ring: partial(lambda data, folder: (folder / f"machine{suffix}").write_bytes(data), data)
            for ring, data in made.items()}  # fmt: skip


def read_automaton(suffix: str, folder: Path) -> Any:
    path = folder / f"machine{suffix}"
    if path.suffix == ".att":
        weights = folder.parent.name.split("_")[-1]
        return formats.read(path, weights=weights), formats.read_dfa(
            path, weights=weights
        ) if weights == "boolean" else None
    return formats.read(path), None


def check_automaton(folder: Path, read: Any) -> None:
    """What is written again and read again has the same weights of all short words."""
    machine, dfa = read
    assert isinstance(machine, WeightedAutomaton)
    name = formats.SUFFIXES[next(folder.iterdir()).suffix]
    try:
        data = formats.FORMATS["native"].render(machine)
    except ValueError:
        return  # weights that are too long to write
    again = formats.native.parse(data)
    assert machine.alphabet == again.alphabet
    for one, other in (
        (machine.initial, again.initial),
        (machine.final, again.final),
        (machine.matrices, again.matrices),
    ):
        assert np.array_equal(one, other), f"{name}: written and read again, it is another machine"
    if name == "native":
        check_native(document(next(folder.iterdir())), machine)
    if dfa is not None and len(machine.alphabet) < 10:
        for word in machine.words(3):
            assert dfa(word) == bool(machine(word)), "the two readers differ"


def check_native(said: Any, machine: WeightedAutomaton) -> None:
    """The letters, the number of states and every entry that a document gives."""
    assert [*machine.alphabet] == said["alphabet"]
    assert machine.dim == said["states"]
    entries = [(machine.initial, said["initial"]), (machine.final, said["final"])]
    for array, stated in [*entries, *zip(machine.matrices, said["matrices"], strict=True)]:
        filled = machine.weights.zeros(*array.shape)
        for *place, weight in stated.get("sparse", []):
            filled[tuple(place)] = _weight(machine.weights, weight)
        if "dense" in stated and array.size:
            filled[...] = np.array(
                [
                    _weight(machine.weights, each)
                    for row in stated["dense"]
                    for each in (row if array.ndim > 1 else [row])
                ],
                dtype=filled.dtype,
            ).reshape(array.shape)
        assert np.array_equal(array, filled), "an entry is another than the file's"


def _weight(ring: Any, weight: Any) -> Any:
    return ring.zero if weight is None else ring.parse(weight) if isinstance(weight, str) else ring.number(weight)


def check_sample(name: str, folder: Path, read: Any) -> None:
    lines = [line.split() for line in (folder / "sample.txt").read_bytes().decode("utf-8-sig").split("\n")]
    lines = [line for line in lines if line]
    match name:
        case "pautomac":
            assert read[0] == [tuple(map(int, line[1:])) for line in lines[1:]]
        case "abbadingo":
            assert read.strings == [tuple(line[2:]) for line in lines[1:]]
            assert read.labels == [int(line[0]) for line in lines[1:]]
        case "solution":
            assert read == [float(line[0]) for line in lines[1:]]
        case _:
            assert isinstance(read, WeightedAutomaton)


def all_readers() -> list[Reader]:
    """Every reader but those of optional packages."""
    bundle = partial(Reader, errors=(CheckpointError,))
    automata = [
        Reader(f"automata in {name}", automaton_files(name), partial(read_automaton, suffix_of(name)),
               (AutomatonFormatError, FileNotFoundError),
               check_automaton, share=1.5)
        for name in formats.FORMATS
    ]  # fmt: skip
    samples = [
        Reader(f"samples, {name}", {"sample": texts(sample_txt=text)},
               partial(lambda reader, folder: reader(folder / "sample.txt"), reader),
               (AutomatonFormatError, FileNotFoundError), partial(check_sample, name), share=1.0)
        for name, (reader, text) in SAMPLES.items()
    ]  # fmt: skip
    return [
        bundle(
            "checkpoints", {name: partial(saved, name) for name in tiny_models()}, read_checkpoint,
            check=check_checkpoint, sign=forge_bundle("config.json"), share=3.0,
        ),
        Reader(
            "resumed runs",
            {"task": partial(write_run, data=False), "data": partial(write_run, data=True)},
            Trainer.resumed, (CheckpointError, DataError, UnreadableFileError), check_run,
            forge_bundle("training.json"), share=1.0, data_anywhere=True,
        ),
        Reader(
            "configurations", kept_configurations(), read_configuration, (ConfigurationError,), check_configuration,
            share=6.0, names_file=False,
        ),
        Reader(
            "certificates", certificates(), lambda folder: check_certificate(certificate_in(folder)),
            (CertificateError,), check_certified, forge_certificate, share=1.5,
        ),
        Reader(
            "the independent checker",
            {"dense": partial(write_proof, of_machine(abb()), abb()),
             "permuting": partial(write_proof, permuting(2), counter(2))},
            read_proof, (checker.CheckError,), check_proof, forge_proof, share=1.0, names_file=False,
        ),
        Reader(
            "records", {"record": write_record}, lambda folder: read_record(folder / "record.json"), (ValueError,),
            check_record, share=3.0,
        ),
        Reader(
            "portraits",
            {name: partial(write_portrait, name) for name in ("clock", "nothing_near")},
            lambda folder: read_portrait(folder / "portrait.json"), (ValueError,), check_portrait, share=1.0,
            used=lambda folder, portrait: _rendered(_figure(portrait), "png"),
        ),
        Reader(
            "models of the explorer", {name: partial(write_models, name) for name in ("noisy", "wordy")},
            lambda folder: read_explored(folder / "models.json"), (ValueError,), check_models, share=1.0,
        ),
        Reader(
            "records of studies",
            {study: partial(write_tables, study, arm) for study, arm in STUDY_ARMS.items()},
            read_tables, (ValueError, FileNotFoundError), check_tables, share=0.7,
            used=lambda folder, read: study_figure(read[0]),
        ),
        Reader(
            "folders of fits", {"fit": write_fit}, read_fit_folder, (ValueError,), check_fit_folder, share=1.5,
            used=lambda folder, read: _blocks(read[3], folder),
        ),
        Reader(
            "settings in TOML",
            {"settings": texts(settings_toml='steps = 20\ntask = "parity"\n[curriculum]\nstart = 2\nfactor = 1.5\n')},
            lambda folder: flat_toml(folder / "settings.toml"), (ValueError,), check_toml, share=0.5,
        ),
        Reader(
            "lock files", {"lock": texts(_writer='{"process": 5, "host": "here", "since": "today"}')},
            lambda folder: _holder(folder / ".writer"), (), check_holder, share=0.5,
        ),
        Reader(
            "data descriptions", {"data": write_described}, read_described, (CheckpointError, ValueError),
            check_described, forge_bundle("config.json"), lambda path: path.name == DESCRIBED, share=1.0,
        ),
        Reader(
            "lines of text", {"text": texts(words_txt="a b a\nb b\n\na\n", labels_txt="0\n1\n1\n0\n")},
            lambda folder: read_data("words.txt", folder, labels=str(folder / "labels.txt")),
            (DataError, UnreadableFileError), check_lines, share=2.0,
        ),
        Reader(
            "data in JSONL",
            {"rows": texts(data_jsonl='{"tokens": ["a", "b"], "label": "x"}\n{"text": "b b", "label": 1}\n\n')},
            partial(read_data, "data.jsonl"), (DataError, UnreadableFileError), check_json_lines, share=2.0,
        ),
        Reader(
            "data in CSV", {"table": texts(data_csv='text,label\n"a b",x\n"b ""b""",y\n')},
            partial(read_data, "data.csv"), (DataError, UnreadableFileError), partial(check_table, "data.csv"),
        ),
        Reader(
            "data in TSV", {"table": texts(data_tsv="label\ttokens\nx\ta b\ny\tb\n")},
            partial(read_data, "data.tsv"), (DataError, UnreadableFileError), partial(check_table, "data.tsv"),
        ),
        *automata,
        *samples,
    ]  # fmt: skip
