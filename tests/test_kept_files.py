"""Files that earlier releases wrote mean today what they meant then.

``tests/kept/<release>`` holds them, with what they computed; ``tests/kept/make_kept.py`` wrote them with that release.
They are never made again: where one of these tests fails, the code has changed its meaning, or needs a way to read the
old format.

Bits of floats are compared on a machine like the one that wrote them (processor, instructions, torch, numpy, numba
present or not): others sum in another order.  There they must agree to the project's tolerance table.  Verdicts,
machines, tokens and what is parsed from files are compared exactly everywhere.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.comparison import assert_same
from transductor import certify, compile_head, compile_model, extract, harden, load
from transductor.automata import as_dfa, labels_of_series, read, write
from transductor.automata.formats import read_symbols
from transductor.certification import check_certificate, read_certificate
from transductor.compilation import compile_cascade
from transductor.configuration import from_json, from_plain, to_json, to_plain
from transductor.extraction import extract_from_labels, generated_group, labelled
from transductor.portraits import portrait, read_portrait
from transductor.results import read_record
from transductor.studies import reproduce, run_arm
from transductor.training import Trainer

KEPT = Path(__file__).parent / "kept" / "0.1.0"
TIME, PIECES = 11, [1, 1, 6, 3]

# Where the public names of a room of 0.1.0 may be found now; of a room that is not here, where they were.
MOVED = {
    "transductor.bridge": (
        "transductor.compilation",
        "transductor.extraction",
        "transductor.certification",
        "transductor.portraits",
        "transductor.automata",
    ),
    "transductor.experiments": ("transductor.studies", "transductor.bench", "transductor.doctor"),
}


def kept_json(name):
    return json.loads((KEPT / name).read_text())


@cache
def kept_tensors(group):
    """``{fixture: {part: tensor}}``."""
    out = {}
    for name, value in safetensors.torch.load_file(KEPT / group / "expected.safetensors").items():
        fixture, part = name.split("/", 1)
        out.setdefault(fixture, {})[part] = value
    return out


def fixtures(group):
    return pytest.mark.parametrize("name", sorted(kept_tensors(group)))


def folders(group):
    return pytest.mark.parametrize("name", sorted(path.name for path in (KEPT / group).iterdir() if path.is_dir()))


def fingerprint():
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        first = information.read_text().split("\n\n")[0]
        pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
        parts = {name.strip(): value.strip() for name, value in pairs}
        model = " ".join(parts.get(name, "") for name in ("model name", "cpu family", "model", "stepping"))
    return {
        "cpu": model,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": find_spec("numba") is not None,
    }


MACHINE = kept_json("machine.json")
LIKE_THEN = all(MACHINE[name] == value for name, value in fingerprint().items())


@pytest.fixture(autouse=True)
def one_thread():
    """As when the files were made; more threads would sum in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def assert_kept(found, expected, what, *, dtype=None, like_then=LIKE_THEN):
    assert found.dtype == expected.dtype, what
    if like_then or not expected.is_floating_point():
        assert found.shape == expected.shape, what
        assert torch.equal(found, expected), f"{what}: other bits"
    else:
        assert_same(found, expected, what=what, dtype=dtype)


def assert_kept_value(found, expected, what):
    """The same for numbers in JSON."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), what
        for name, value in expected.items():
            assert_kept_value(found[name], value, f"{what}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), what
        for place, value in enumerate(expected):
            assert_kept_value(found[place], value, f"{what}[{place}]")
    elif isinstance(expected, float) and not LIKE_THEN:
        assert_same(torch.tensor(found), torch.tensor(expected), what=what)
    else:
        assert found == expected, what


def test_nothing_is_missing():
    counts = {
        "models": 19,
        "families_by_tokens": 26,
        "families_by_features": 25,
        "heads": 8,
        "sidecars": 3,
        "native": 4,
        "training": 3,
        "extractions": 4,
    }
    assert {group: len(kept_tensors(group)) for group in counts} == counts
    assert len(list(KEPT.glob("certificates/*/certificate.json"))) == 17
    assert len(list(KEPT.glob("configurations/*.json"))) == 45
    assert len(kept_json("automata/files.json")) == 40


def streamed(model, drive):
    parts, state = [], model.start(len(drive))
    for piece in drive.split(PIECES, 1):
        part, state = model.advance(piece, state)
        parts.append(part)
    return torch.cat(parts, 1)


def gradient(model, drive):
    """Of a sum with fixed weights, for all parameters that train, in a row."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        return torch.zeros(0)
    shown = model(drive)
    weights = torch.linspace(-1, 1, shown.numel(), dtype=shown.dtype).view(shown.shape)
    found = torch.autograd.grad((shown * weights).sum(), trained, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(parameter) if part is None else part).flatten()
            for part, parameter in zip(found, trained, strict=True)
        ]
    )


def check_checkpoint(group, name):
    model, expected = load(KEPT / group / name), kept_tensors(group)[name]
    drive = expected["drive"]
    with torch.no_grad():
        assert_kept(model(drive), expected["parallel"], "parallel")
        assert_kept(streamed(model, drive), expected["streamed"], "streamed")
        padded = model(drive, lengths=torch.tensor([TIME, TIME - 4]))
        assert_kept(padded[0], expected["padded"][0], "padded")
        assert_kept(padded[1, :-4], expected["padded"][1, :-4], "padded")
        packed = model(drive[:1], cu_seqlens=torch.tensor([0, 4, TIME]))
        assert_kept(packed, expected["packed"], "packed")
    # In one row, gradients of a head in float32 stand beside those of a stream in bfloat16.
    assert_kept(gradient(model, drive), expected["gradient"], "gradient", dtype=expected["parallel"].dtype)


@fixtures("models")
def test_models(name):
    check_checkpoint("models", name)


@fixtures("families_by_tokens")
def test_families_driven_by_tokens(name):
    check_checkpoint("families_by_tokens", name)


@fixtures("families_by_features")
def test_families_driven_by_features(name):
    check_checkpoint("families_by_features", name)


@fixtures("heads")
def test_heads(name):
    check_checkpoint("heads", name)


def check_answers(model, expected):
    import transformers

    like_then = LIKE_THEN and transformers.__version__ == MACHINE["transformers"]
    prompt = expected["prompt"]
    with torch.no_grad():
        assert_kept(model(prompt, use_cache=False).logits, expected["logits"], "logits", like_then=like_then)
        if "generated" in expected:
            attended = torch.ones_like(prompt)
            options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
            assert torch.equal(model.generate(prompt, attention_mask=attended, **options), expected["generated"])


@fixtures("sidecars")
def test_sidecars(name):
    transformers = pytest.importorskip("transformers")
    from transductor.integrations.huggingface import load_sidecar

    host = transformers.AutoModelForCausalLM.from_pretrained(KEPT / "sidecars" / name / "host").eval()
    sidecar = load_sidecar(host, KEPT / "sidecars" / name / "sidecar")
    trained = [name for name, parameter in sidecar.named_parameters() if parameter.requires_grad]
    assert trained == kept_json(f"sidecars/{name}/sidecar/sidecar.json")["trainable"]
    check_answers(host, kept_tensors("sidecars")[name])


@fixtures("native")
def test_native_models(name):
    transformers = pytest.importorskip("transformers")
    import transductor.integrations.huggingface  # noqa: F401  # makes the Auto classes know them

    kinds = {"sequence_classifier": "SequenceClassification", "token_classifier": "TokenClassification"}
    auto = getattr(transformers, f"AutoModelFor{kinds.get(name, 'CausalLM')}")
    check_answers(auto.from_pretrained(KEPT / "native" / name), kept_tensors("native")[name])


def check_weights(model, expected):
    weights = model.state_dict()
    assert weights.keys() == expected.keys()
    for key, value in expected.items():
        assert_kept(weights[key], value, key)


@pytest.mark.parametrize("name", ["plain", "all_options"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(name, tmp_path):
    folder = shutil.copytree(KEPT / "training" / name, tmp_path / "run")
    expected = dict(kept_tensors("training")[name])
    losses = expected.pop("losses")
    trainer = Trainer.resumed(folder)
    assert trainer.step == 4
    trainer.run()
    assert_kept(torch.tensor([point.loss for point in trainer.points], dtype=torch.float64), losses, "losses")
    check_weights(trainer.model, expected)


def test_an_interrupted_command_goes_on(tmp_path, monkeypatch, capsys):
    from transductor.cli import main

    shutil.copytree(KEPT / "training_command", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["transductor", *kept_json("training_command/command.json")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "going on from step 3" in capsys.readouterr().out
    check_weights(load(tmp_path / "run" / "model"), kept_tensors("training")["command"])


def timeless(value):
    """Measurements without times, and without what tells an interrupted run from another."""
    if isinstance(value, dict):
        left_out = {"seconds", "judging_seconds", "resumed_at"}
        return {key: timeless(each) for key, each in value.items() if key not in left_out}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def test_a_half_done_study_goes_on(tmp_path):
    folder = shutil.copytree(KEPT / "study" / "half_done", tmp_path / "half_done")
    study = from_json((KEPT / "study" / "study.json").read_text())
    assert reproduce([study], folder) == 1  # the arm that is done is not done again
    for arm in study.arms:
        record = read_record(folder / study.name / arm.name / "seed0.json")
        assert record.settings["arm"] == to_plain(arm)
        assert_kept_value(timeless(record.measurements), kept_json("study/expected.json")[arm.name], arm.name)
    assert record.measurements["training"]["resumed_at"] == 5
    assert not [path for path in folder.glob(".state/**/*") if path.is_file()]


def test_a_kept_model_of_a_study_is_judged_without_training(tmp_path):
    folder = shutil.copytree(KEPT / "study" / "half_done", tmp_path / "half_done")
    study = from_json((KEPT / "study" / "study.json").read_text())
    (folder / "miniature" / "plain" / "seed0.json").unlink()
    steps = []
    run_arm(study, study.arms[0], (0,), folder, on_step=lambda *step: steps.append(step))
    assert steps == []
    record = read_record(folder / "miniature" / "plain" / "seed0.json")
    assert_kept_value(timeless(record.measurements), kept_json("study/expected.json")["plain"], "plain")


def certified(name):
    """The model of a certificate, as ``certify`` takes it: with the readout where there is one beside it."""
    folder = KEPT / "certificates" / name
    model, beside = load(folder / "model"), folder / "readout.safetensors"
    return (model, safetensors.torch.load_file(beside)["weight"]) if beside.exists() else (model, None)


def assert_same_certificate(found, expected):
    """All but digests, checkpoint and proof object, which old files lack; on another machine, numbers to rounding."""
    found, expected = ({**each.plain(), "model": None, "invariant": None, "sha256": None} for each in (found, expected))
    if not LIKE_THEN:
        for each in (found, expected):
            each["placement"] = None
    assert_kept_value(found, expected, "certificate")


@folders("certificates")
def test_certificates(name):
    file, pair = KEPT / "certificates" / name / "certificate.json", certified(name)
    plain = json.loads(file.read_text())
    kept = read_certificate(file)
    # What is said of a head alone has words of its own since; rounding bounds are others, so margins are.
    words = {"proved": "separated", "refuted": "confused"} if plain["about"] == "head" else {}
    assert kept.outcome == words.get(plain["outcome"], plain["outcome"])
    assert (kept.claim, kept.method, kept.holds_up_to) == tuple(
        plain[key] for key in ("claim", "method", "holds_up_to")
    )
    if plain["margin"] is not None:
        assert kept.margin == pytest.approx(plain["margin"], rel=1e-4)
    assert_same_certificate(check_certificate(file, pair if pair[1] is not None else pair[0]), kept)
    question = kept.question
    given = {"domain": question.domain, "horizon": question.horizon, "tolerance": question.tolerance}
    against = question.series if question.machine is None else question.machine
    fresh = certify(*pair, against=against, **given)
    if kept.about == "head":  # the model around it is looked at as well since, and its numbers are held too
        assert (fresh.verdict, fresh.claim, fresh.word) == (kept.verdict, kept.claim, kept.word)
    else:
        assert_same_certificate(fresh, kept)
    if (language := file.with_name("against.json")).exists():
        again = certify(*pair, against=as_dfa(read(language)), **given)
        assert (again.verdict, again.method, again.word) == (kept.verdict, kept.method, kept.word)


@pytest.mark.parametrize("kept", kept_json("automata/files.json"), ids=lambda kept: kept["file"])
def test_automata(kept, tmp_path):
    def options(given):
        return {key: KEPT / "automata" / value if key == "symbols" else value for key, value in given.items()}

    automaton = read(KEPT / "automata" / kept["file"], **options(kept["reading"]))
    assert automaton.weights.name == kept["weights"]
    for word, value in kept["values"].items():
        found, expected = automaton(word), automaton.weights.parse(value)
        if LIKE_THEN or automaton.weights.exact:
            assert found == expected, word
        else:
            assert found == pytest.approx(expected, rel=1e-12), word
    same = write(read(KEPT / "automata" / kept["of"]), tmp_path / kept["file"], **options(kept["writing"]))
    assert same.read_bytes() == (KEPT / "automata" / kept["file"]).read_bytes()


def test_a_symbol_table():
    assert read_symbols(KEPT / "automata" / "letters.syms").alphabet == ("a", "b")


@folders("portraits")
def test_portraits(name, tmp_path):
    file = KEPT / "portraits" / f"{name}.json"
    kept = read_portrait(file)
    assert kept.write(tmp_path / "portrait.json").read_bytes() == file.read_bytes()
    target = KEPT / "portraits" / f"{name}_target.json"
    against = labels_of_series(read(target)) if target.exists() else None
    seen = portrait(load(KEPT / "portraits" / name), against=against, length=100, letters=["stay", "count"])
    assert (seen.learned, seen.target, seen.separating_word) == (kept.learned, kept.target, kept.separating_word)
    now, then = (json.loads(path.read_text()) for path in (seen.write(tmp_path / "again.json"), file))
    if not LIKE_THEN:
        # The plane of the picture is spanned by singular vectors; where two values are equal it may lie anywhere.
        for points in ("points", "centres"):
            assert len(now["trajectory"].pop(points)) == len(then["trajectory"].pop(points))
    assert now.pop("refusal").startswith(then.pop("refusal"))  # followed by what to try
    assert_kept_value(now, then, name)


def test_records(tmp_path):
    file = KEPT / "records" / "record.json"
    record = read_record(file)
    assert record.name == "kept/record"
    assert record.settings == {"name": "ä", "sizes": [1, 2, 3], "nested": {"rate": 1e-3, "none": None}}
    assert record.measurements["curve"] == [[step, 1 / step, None] for step in range(1, 40)]
    assert record.write(tmp_path / "record.json").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("file", sorted(KEPT.glob("configurations/*.json")), ids=lambda file: file.stem)
def test_configurations(file):
    for room in ("bench", "model", "studies", "tasks", "training"):  # a kind is known once its room is imported
        import_module(f"transductor.{room}")
    kept = json.loads(file.read_text())
    value = from_plain(kept["full"])
    assert type(value).__name__ == file.stem
    assert to_plain(value) == kept["full"]
    assert from_json(to_json(value)) == value
    assert to_plain(from_plain(kept["short"])) == kept["short_is_read_as"]


def moore_plain(machine):
    return {"transitions": machine.transitions.tolist(), "outputs": machine.outputs.tolist(), "start": machine.start}


@fixtures("extractions")
def test_extractions(name):
    folder, tensors = KEPT / "extractions" / name, kept_tensors("extractions")[name]
    model, expected = load(folder / "model"), json.loads((folder / "expected.json").read_text())
    extraction, hardened = extract(model), harden(model)
    assert moore_plain(extraction.machine) == expected["machine"]
    assert_kept_value({key: getattr(extraction, key) for key in expected["numbers"]}, expected["numbers"], name)
    assert_kept(extraction.representatives, tensors["representatives"], "representatives")
    assert hardened.agreement == expected["hardened_agreement"]
    with torch.no_grad():
        assert_kept(hardened.model(tensors["drive"]), tensors["hardened"], "hardened")
    found = labelled(model, extraction)
    assert {"machine": moore_plain(found.machine), "fit": found.fit} == expected["labelled"]


@fixtures("extractions")
def test_machines_from_labels(name):
    folder = KEPT / "extractions" / name
    learned = extract_from_labels(load(folder / "model"), 2, checks=50, check_length=12)
    # How many words are asked for is no promise: another L* asks for others.
    expected = json.loads((folder / "expected.json").read_text())["asked"] | {"queries": learned.queries}
    assert {"machine": moore_plain(learned.machine), "queries": learned.queries, "fit": learned.fit} == expected


def test_a_generated_group():
    group = generated_group(load(KEPT / "extractions" / "noisy_s3" / "model").rational_head)
    expected = kept_json("extractions/noisy_s3/group.json")
    assert (group.order, group.name) == (expected["order"], expected["name"])
    assert [list(each) for each in group.generators] == expected["generators"]


def test_compilations():
    language, weighted = (read(KEPT / "compilations" / f"{name}.json") for name in ("language", "weighted"))
    language = as_dfa(language)
    models = {
        "head_of_dfa": compile_head(language),
        "head_of_both": compile_head([language, language], family=["dense", "stochastic"]),
        "head_of_series": compile_head(weighted, realisation="smallest", dtype=torch.float64),
        "model_of_dfa": compile_model(language),
        "model_of_series": compile_model(weighted),
        "cascade_of_dfa": compile_cascade(language),
    }
    for name, model in models.items():
        kept = load(KEPT / "compilations" / name)
        assert model.config == kept.config, name
        if name == "head_of_series":
            # A smallest realisation is unique up to a change of basis, and minimising chooses a shorter one now: what
            # it must keep is that its states are the old ones in another basis.
            words = torch.randint(0, weighted.matrices.shape[0], (64, 12))
            old, new = (each(words).flatten(0, 1) for each in (kept, model))
            change = torch.linalg.lstsq(new, old).solution
            torch.testing.assert_close(new @ change, old, rtol=1e-9, atol=1e-9 * old.abs().max().item())
            assert torch.linalg.matrix_rank(change) == old.shape[1] == new.shape[1]
        else:
            check_weights(model, kept.state_dict())
    expected = kept_tensors("compilations")["program"]
    with torch.no_grad():
        assert_kept(load(KEPT / "compilations" / "program")(expected["drive"]), expected["logits"], "program")


PUBLIC = [line.split() for line in (KEPT / "public_names.txt").read_text().splitlines()]


@pytest.mark.parametrize("room", sorted({room for room, _ in PUBLIC}))
def test_every_public_name_is_still_there(room):
    if room.endswith("huggingface"):
        pytest.importorskip("transformers")
    rooms = [import_module(now) for now in MOVED.get(room, (room,))]
    names = [name for of, name in PUBLIC if of == room]
    assert [name for name in names if not any(hasattr(now, name) for now in rooms)] == []
