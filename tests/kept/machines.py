"""Kept files of machines: certificates, automata, portraits, configurations, what was extracted and compiled."""

from __future__ import annotations

import importlib
import math
from dataclasses import MISSING, fields, replace
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import torch
from transductor.bridge import (
    certify,
    compile_cascade,
    compile_head,
    compile_model,
    compile_program,
    extract_from_labels,
    generated_group,
    labelled,
    portrait,
    program_tokens,
    series_of_labels,
)
from transductor.experiments import Arm, DemoStudy, LatencyStudy, ModelCostStudy, Probe, Study
from transductor.experiments.cases import Case
from transductor.experiments.study import LeastSquaresFit

from tests.kept.files import HERE, stored, written
from tests.kept.networks import TIME
from transductor import configuration, extract, harden, load, save
from transductor.automata import DFA, NFA, WEIGHTS, MooreMachine, WeightedAutomaton, read, regex, write
from transductor.automata.barrington import permutation_program
from transductor.automata.formats import write_symbols
from transductor.configuration import to_plain
from transductor.heads import HeadConfig, RationalHead
from transductor.model import (
    BackboneConfig,
    FullAttention,
    LearnedPositions,
    LinearRNNConfig,
    LSTMConfig,
    NoAttention,
    NoPositions,
    RationalReadout,
    RationalTransductor,
    ReadoutConfig,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SlidingWindow,
    StackedConfig,
    TransductorConfig,
)
from transductor.results import Record
from transductor.tasks import ModularCounting, Parity, task_named
from transductor.training import Annealing, Curriculum, FileData, Trainer, TrainingSettings, Vocabulary
from transductor.transitions import (
    DenseTransitions,
    FamilySpec,
    OrthogonalTransitions,
    PermutationTransitions,
)


def readout(table: Any, initial: Any, weight: Any, dtype: torch.dtype = torch.float64) -> Any:
    """``W h`` over dense transitions with exactly these numbers."""
    table, initial, weight = (torch.as_tensor(np.asarray(part, dtype=np.float64)) for part in (table, initial, weight))
    family = DenseTransitions(state_dim=len(initial), vocab_size=len(table))
    model = RationalReadout(RationalHead(family), len(weight)).to(dtype)
    with torch.no_grad():
        model.rational_head.transitions.get_parameter("source.raw").copy_(table.flatten(1))
        model.rational_head.raw_initial_state.copy_(initial)
        model.readout.weight.copy_(weight)
        model.readout.bias.zero_()
    return model.eval()


def counter(modulus: int) -> MooreMachine:
    rows = [[state, (state + 1) % modulus] for state in range(modulus)]
    return MooreMachine(np.array(rows), np.arange(modulus))


def turn(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def clock(modulus: int, error: float, **options: Any) -> RationalReadout:
    corners = np.stack([turn(2 * math.pi * k / modulus)[:, 0] for k in range(modulus)])
    return readout([np.eye(2), turn(2 * math.pi / modulus + error)], corners[0], corners, **options)


def one_hot(moore: MooreMachine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.zeros((moore.letters, moore.states, moore.states))
    for letter in range(moore.letters):
        table[letter, moore.transitions[:, letter], np.arange(moore.states)] = 1
    weight = np.eye(int(moore.outputs.max()) + 1)[:, np.maximum(moore.outputs, 0)]
    return table, np.eye(moore.states)[moore.start], weight


def noisy(moore: MooreMachine, noise: float, **options: Any) -> RationalReadout:
    """The machine in another basis, with noise on every number."""
    drawn = np.random.default_rng(0).standard_normal
    table, initial, weight = one_hot(moore)
    basis = np.linalg.qr(drawn((moore.states, moore.states)))[0] + 0.05 * drawn((moore.states, moore.states))
    back = np.linalg.inv(basis)
    parts = basis @ table @ back, basis @ initial, weight @ back
    return readout(*(part + noise * drawn(part.shape) for part in parts), **options)


def make_certificates() -> None:
    torch.manual_seed(8)
    parity, exact = counter(2), readout(*one_hot(counter(2)), dtype=torch.float32)
    odd_ones = regex("0*10*(10*10*)*", "01")
    ones = WeightedAutomaton([1, 0], [[[1, 0], [0, 1]], [[1, 0], [1, 1]]], [0, 1], "01")
    halves = WeightedAutomaton([1, 1], [[["1/2", 0], [0, 1]], [[1, 0], ["1/4", "1/2"]]], [1, "1/3"], "01")
    counting = readout([np.eye(2), [[1, 0], [1, 1]]], [1, 0], [[0, 1]])
    backbone = BackboneConfig(2, 2, width=4, layers=1, feedforward=2, attention=NoAttention())
    attending = replace(backbone, attention=FullAttention())
    still = PermutationTransitions(permutations=[[0, 1], [0, 1]])
    swap = PermutationTransitions(permutations=[[0, 1], [1, 0]])
    cases: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "proved_moore": (exact, parity, {}),
        "proved_dfa": (compile_model(odd_ones), odd_ones, {}),
        "proved_lookback": (compile_model(counter(3), head="lookback"), counter(3), {}),
        "proved_domain": (exact, parity, {"domain": regex("0*(10+)*1?", "01")}),
        "proved_hardened": (harden(noisy(counter(3), 1e-3)).model, counter(3), {}),
        "refuted_moore": (readout([np.eye(2), -turn(0.05)], [1, 0], [[1, 0], [-1, 0]]), parity, {"horizon": 1000}),
        "refuted_dfa": (exact, regex("(0|1)*1", "01"), {}),
        "refuted_model": (RationalTransductor(RationalHead(swap), backbone).eval(), parity, {}),
        "bounded_moore": (clock(3, 1e-2), counter(3), {"horizon": 20}),
        "bounded_noisy": (noisy(parity, 1e-3), parity, {"horizon": 5000}),
        "series_exact": (counting, ones, {"horizon": 1000}),
        "series_tolerance": (compile_model(halves), halves, {"horizon": 1000, "tolerance": 1e-4}),
        "series_refuted": (counting, 2 * ones, {"horizon": 1000}),
        "head_bounded": (readout([np.eye(2), -turn(0.01)], [1, 0], [[1, 0]]).rational_head, parity, {"horizon": 1000}),
        "head_refuted": (RationalTransductor(RationalHead(still), attending).eval(), parity, {}),
        "head_proved": (RationalTransductor(RationalHead(swap), attending).eval(), parity, {}),
    }
    for name, (model, against, options) in cases.items():
        folder = HERE / "certificates" / name
        save(model, folder / "model")
        certificate = certify(load(folder / "model"), against=against, **options)
        certificate.write(folder / "certificate.json")
        if isinstance(against, DFA):
            write(against, folder / "against.json")
    head, weight = counting.rational_head, torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    save(head, HERE / "certificates" / "series_head" / "model")
    stored(HERE / "certificates" / "series_head" / "readout.safetensors", {"weight": weight})
    certify(head, weight, against=ones, horizon=500).write(HERE / "certificates" / "series_head" / "certificate.json")


def random_machine(ring_name: str, seed: int = 0) -> WeightedAutomaton:
    """Not symmetric, several initial states, some zeros; weights that float32 holds."""
    rng, ring = np.random.default_rng(seed), WEIGHTS[ring_name]

    def weights(*shape: int) -> np.ndarray:
        array = ring.zeros(*shape)
        for place in np.ndindex(*shape):
            number = int(rng.integers(-6, 7))
            if number % 3:
                exact = {"boolean": number > 0, "rational": Fraction(number, int(rng.integers(1, 9)))}
                array[place] = exact.get(ring_name, number / 4)
        return array

    return WeightedAutomaton(weights(3), weights(2, 3, 3), weights(3), ("a", "b"), weights=ring)


def make_automata() -> None:
    """Every format over every semiring it holds; ``files.json`` has the options and the values of a dozen words."""
    folder, files = HERE / "automata", []
    folder.mkdir(parents=True)
    write_symbols(("a", "b"), folder / "letters.syms")
    automata: dict[str, Any] = {name: random_machine(name) for name in WEIGHTS}
    automata["dfa"] = regex("(a|b)*ab(a|b)?", "ab")
    edges = {(0, "a", 0), (0, "b", 0), (0, "a", 1), (1, "b", 2)}
    automata["nfa"] = NFA(("a", "b"), 3, frozenset(edges), frozenset({0}), frozenset({2}))
    every = list(WEIGHTS)
    suffixes = {".json": every, ".att": every, ".dot": every, ".fst": ["min_plus", "log"], ".jff": ["boolean"]}
    options: dict[str, list[tuple[str, dict[str, Any]]]] = {
        ".att": [("", {}), ("_symbols", {"symbols": "letters.syms", "labels": "numbers"})],
        ".fst": [("", {}), ("_log64", {"arc_type": "log64"}), ("_symbols", {"symbols": "letters.syms"})],
    }
    for suffix, rings in suffixes.items():
        for name in [*rings, "dfa", "nfa"]:
            for ending, chosen in options.get(suffix, [("", {})]):
                automaton = automata[name]
                if suffix == ".fst" and name in ("dfa", "nfa"):
                    continue
                if ending == "_log64" and name != "log":
                    continue
                given = {key: str(folder / value) if key == "symbols" else value for key, value in chosen.items()}
                path = write(automaton, folder / f"{name}{ending}{suffix}", **given)
                reading = {key: value for key, value in chosen.items() if key != "arc_type"}
                if suffix == ".att":
                    reading["weights"] = getattr(automaton, "weights", WEIGHTS["boolean"]).name
                series = read(folder / f"{name}.json")
                words = list(islice(series.words(3), 13))
                files.append({
                    "file": path.name, "of": f"{name}.json", "writing": chosen, "reading": reading,
                    "weights": series.weights.name,
                    "values": {"".join(word): series.weights.written(series(word)) for word in words},
                })  # fmt: skip
    written(folder / "files.json", files)


def make_portraits_and_records() -> None:
    save(clock(5, 1e-3), HERE / "portraits" / "clock")
    save(noisy(counter(3), 0.4), HERE / "portraits" / "nothing_near")
    for name, against in (("clock", counter(5)), ("nothing_near", None)):
        seen = portrait(load(HERE / "portraits" / name), against=against, length=100, letters=["stay", "count"])
        seen.write(HERE / "portraits" / f"{name}.json")
    write(series_of_labels(counter(5)), HERE / "portraits" / "clock_target.json")
    settings = {"name": "ä", "sizes": [1, 2, 3], "nested": {"rate": 1e-3, "none": None}}
    curve = [[step, 1 / step, None] for step in range(1, 40)]
    record = Record("kept/record", settings, {"curve": curve, "seconds": 0.25, "right": True}, {"python": "3.11"})
    record.write(HERE / "records" / "record.json")


def make_configurations() -> None:
    """Every kind that can be registered: a value with all fields, and its required fields alone."""
    spec = FamilySpec("direct_sum", {}, (FamilySpec("dense", {"state_dim": 2, "vocab_size": 3}),) * 2)
    head = HeadConfig("lookback", spec, "chunked")
    backbone = BackboneConfig(3, 2, 8, 1, 2, 12, RelativePositions(6, 9), SlidingWindow(3), 0.1)
    task = ModularCounting(3)
    training = TrainingSettings(steps=3, curriculum=Curriculum(2, 3.0, 0.5, 0.1), annealing=Annealing(2.0, 0.5))
    arm = Arm("arm", "ours", task, backbone, training, (Probe(5, 6, 0.5), Probe(7, 1, family="every", task=Parity())))
    values = [
        spec, head, backbone, task, training, arm, Curriculum(2, 3.0, 0.5, 0.1), Annealing(2.0, 0.5), Probe(5, 6, 0.5),
        FullAttention(), SlidingWindow(7), NoAttention(), NoPositions(), LearnedPositions(9), SinusoidalPositions(50.0),
        RotaryPositions(70.0), RelativePositions(6, 9), LSTMConfig(3, 2, 5, 2), LinearRNNConfig(3, 2, 5),
        ReadoutConfig(head, 2), StackedConfig((head,), backbone), TransductorConfig(head, backbone, "input"),
        Vocabulary(("a", "b"), ("no", "yes")), LeastSquaresFit(5, 6, 7), Study("study", "Why?", (arm,), (0, 3)),
        FileData("tagging", "x.txt", "y.txt", Vocabulary(("a",), ("b",)), "00", 0.25, 3, "validation"),
        DemoStudy(task=task, lengths=(5, 6)), LatencyStudy.small(), ModelCostStudy.small(),
        Case(1, 8, 4, 0, "float64", True, 2, True),
    ]  # fmt: skip
    tasks = {
        "AssociativeRecall": {"keys": 3, "values": 4},
        "BaseValue": {"base": 3, "normalised": False},
        "BooleanFormula": {"depth": 2},
        "Copying": {"alphabet_size": 3},
        "CycleNavigation": {"places": 4},
        "FlipFlop": {"ignore_probability": 0.25},
        "FlipFlopWithUndo": {"ignore_probability": 0.25},
        "GroupWordProblem": {"group": "S3", "generators": 2, "seed": 3},
        "LongAddition": {"base": 3, "carry_in": 1},
        "Tomita": {"number": 3},
    }
    room = importlib.import_module("transductor.tasks")
    values += [getattr(room, name)(**options) for name, options in tasks.items()]
    by_kind = {type(value).__name__: value for value in values}
    for kind, cls in configuration._KINDS.items():
        if kind not in by_kind:
            by_kind[kind] = cls()
    for kind, value in by_kind.items():
        full = to_plain(value)
        needed = {f.name for f in fields(value) if f.default is MISSING and f.default_factory is MISSING}
        short = {key: part for key, part in full.items() if key == "kind" or key in needed}
        read = to_plain(configuration.from_plain(short))
        written(HERE / "configurations" / f"{kind}.json", {"full": full, "short": short, "short_is_read_as": read})


def moore_plain(moore: MooreMachine) -> dict[str, Any]:
    return {"transitions": moore.transitions.tolist(), "outputs": moore.outputs.tolist(), "start": moore.start}


def trained_transductor() -> RationalTransductor:
    torch.manual_seed(9)
    head = RationalHead(OrthogonalTransitions(state_dim=2, vocab_size=2))
    model = RationalTransductor(head, BackboneConfig(2, 2, width=8, layers=1, attention_heads=2, feedforward=8))
    settings = TrainingSettings(steps=400, length=12, batch_size=32, learning_rate=2e-2, optimiser="adam")
    Trainer(model, Parity(), settings).run()
    return model.eval()


NUMBERS = ("spread", "separation", "tolerance", "labelled", "up_to_scale", "sink", "agreement", "words_seen")


def make_extractions() -> None:
    tensors = {}
    models = {
        "noisy_counter": noisy(counter(5), 1e-3),
        "noisy_s3": noisy(task_named("group:S3:2").automaton(), 1e-3, dtype=torch.float32),
        "compiled_lookback": compile_model(counter(3), head="lookback"),
        "trained_transductor": trained_transductor(),
    }
    for name, model in models.items():
        folder = HERE / "extractions" / name
        save(model, folder / "model")
        model = load(folder / "model")
        extraction, hardened = extract(model), harden(model)
        numbers = {key: getattr(extraction, key) for key in NUMBERS}
        drive = torch.randint(2, (2, TIME), generator=torch.Generator().manual_seed(1))
        named = labelled(model, extraction)
        asked = extract_from_labels(model, 2, checks=50, check_length=12)
        with torch.no_grad():
            tensors |= {f"{name}/drive": drive, f"{name}/hardened": hardened.model(drive)}
        tensors[f"{name}/representatives"] = extraction.representatives
        written(folder / "expected.json", {
            "machine": moore_plain(extraction.machine), "numbers": numbers, "hardened_agreement": hardened.agreement,
            "labelled": {"machine": moore_plain(named.machine), "fit": named.fit},
            "asked": {"machine": moore_plain(asked.machine), "queries": asked.queries, "fit": asked.fit},
        })  # fmt: skip
    group = generated_group(load(HERE / "extractions" / "noisy_s3" / "model").rational_head)
    found = {"generators": group.generators, "order": group.order, "name": group.name}
    written(HERE / "extractions" / "noisy_s3" / "group.json", found)
    stored(HERE / "extractions" / "expected.safetensors", tensors)


def make_compilations() -> None:
    """What compiling gave, from machines that are kept beside it."""
    language, weighted, folder = regex("(a|b)*ab", "ab"), random_machine("rational"), HERE / "compilations"
    program = permutation_program("x & !y")
    models = {
        "head_of_dfa": compile_head(language),
        "head_of_both": compile_head([language, language], family=["dense", "stochastic"]),
        "head_of_series": compile_head(weighted, realisation="smallest", dtype=torch.float64),
        "model_of_dfa": compile_model(language),
        "model_of_series": compile_model(weighted),
        "cascade_of_dfa": compile_cascade(language),
        "program": compile_program(program),
    }
    write(language, folder / "language.json")
    write(weighted, folder / "weighted.json")
    for name, model in models.items():
        save(model, folder / name)
    drive = program_tokens(program, *({"x": x, "y": y} for x in (False, True) for y in (False, True)))
    with torch.no_grad():
        stored(folder / "expected.safetensors", {"program/drive": drive, "program/logits": models["program"](drive)})
