"""Kept files of networks: checkpoints of every class, Hugging Face folders, runs that were stopped in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transductor.experiments.running as running
from torch import Tensor, nn
from transductor.experiments import Arm, Probe, Study, reproduce, run_arm
from transformers import AutoConfig, AutoModelForCausalLM
from typer.testing import CliRunner

from tests.kept.files import HERE, stored, written
from transductor import load, save
from transductor.cli import app
from transductor.configuration import to_json
from transductor.heads import HeadConfig, LookbackHead, RandomFeatureHead, RationalHead, UniversalHead
from transductor.integrations.huggingface import (
    RationalTransductorConfig,
    RationalTransductorForCausalLM,
    RationalTransductorForSequenceClassification,
    attach,
    from_transductor,
    head_for,
    save_sidecar,
)
from transductor.model import (
    LSTM,
    BackboneConfig,
    LearnedPositions,
    LinearRNN,
    NoAttention,
    NoPositions,
    RationalReadout,
    RationalTransductor,
    ReadoutConfig,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SlidingWindow,
    StackedTransductor,
    Transformer,
)
from transductor.tasks import FlipFlop, ModularCounting, Parity
from transductor.training import Annealing, Curriculum, Trainer, TrainingSettings
from transductor.transitions import (
    FAMILIES,
    AffineTransitions,
    Cascade,
    CayleyTransitions,
    DenseTransitions,
    DirectSum,
    DPLRTransitions,
    ExponentialTransitions,
    FamilySpec,
    OrthogonalTransitions,
    PermutationTransitions,
    SpectralCap,
    SquaredCayleyTransitions,
    StochasticTransitions,
    TensorProduct,
)

VOCABULARY, TIME = 5, 11
PIECES = [1, 1, 6, 3]  # of a stream: single steps and longer stretches


def stirred(model: nn.Module, scale: float = 0.3) -> Any:
    """No parameter at a start that is zero or one."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(scale * torch.randn_like(parameter))
    return model.eval()


def in_pieces(model: Any, drive: Tensor) -> Tensor:
    parts, state = [], model.start(len(drive))
    with torch.no_grad():
        for piece in drive.split(PIECES, 1):
            part, state = model.advance(piece, state)
            parts.append(part)
    return torch.cat(parts, 1)


def gradient(model: Any, drive: Tensor) -> Tensor:
    """Of a sum with fixed weights, all parameters in a row; empty where nothing trains."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        return torch.zeros(0)
    shown = model(drive)
    weights = torch.linspace(-1, 1, shown.numel(), dtype=shown.dtype).view(shown.shape)
    found = torch.autograd.grad((shown * weights).sum(), trained, allow_unused=True)
    return torch.cat([
        torch.zeros(parameter.numel(), dtype=parameter.dtype) if part is None else part.flatten()
        for part, parameter in zip(found, trained, strict=True)
    ])  # fmt: skip


def meaning(model: Any, drive: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        seen = {
            "drive": drive,
            "parallel": model(drive),
            "padded": model(drive, lengths=torch.tensor([TIME, TIME - 4])),
            "packed": model(drive[:1], cu_seqlens=torch.tensor([0, 4, TIME])),
        }
    return {**seen, "streamed": in_pieces(model, drive), "gradient": gradient(model, drive)}


def kept_models(group: str, models: dict[str, tuple[Any, Tensor]]) -> None:
    """A checkpoint each, and one file with what they all compute."""
    expected = {}
    for name, (model, drive) in models.items():
        folder = save(model, HERE / group / name)
        expected |= {f"{name}/{part}": value for part, value in meaning(load(folder), drive).items()}
    stored(HERE / group / "expected.safetensors", expected)


def tokens(size: int = VOCABULARY) -> Tensor:
    return torch.randint(size, (2, TIME))


def make_models() -> None:
    torch.manual_seed(1)
    sizes: Any = {"vocab_size": VOCABULARY, "width": 8, "layers": 2, "attention_heads": 2, "feedforward": 12}

    def head(**drive: int) -> RationalHead:
        return RationalHead(OrthogonalTransitions(state_dim=3, **(drive or {"vocab_size": VOCABULARY})))

    schemes = {
        "no_positions": NoPositions(),
        "learned_positions": LearnedPositions(16),
        "sinusoidal_positions": SinusoidalPositions(1000.0),
        "rotary_positions": RotaryPositions(100.0),
        "relative_positions": RelativePositions(6, 9),
    }
    models: dict[str, Any] = {
        f"transductor_{name}": RationalTransductor(head(), BackboneConfig(**sizes, positions=scheme))
        for name, scheme in schemes.items()
    }
    window = BackboneConfig(**sizes, output_size=3, attention=SlidingWindow(3), positions=RotaryPositions())
    models |= {
        "transductor_sliding_window": RationalTransductor(head(), window),
        "transductor_no_attention": RationalTransductor(head(), BackboneConfig(**sizes, attention=NoAttention())),
        "transductor_input_injection": RationalTransductor(head(), BackboneConfig(**sizes), injection="input"),
        "transductor_no_injection": RationalTransductor(head(), BackboneConfig(**sizes), injection="none"),
        "transductor_frozen_head": RationalTransductor(
            RandomFeatureHead(vocab_size=VOCABULARY, state_dim=3), BackboneConfig(**sizes, dropout=0.1)
        ),
        "transductor_bfloat16": RationalTransductor(head(), BackboneConfig(**sizes)).bfloat16(),
        "readout": RationalReadout(head(), 3),
        "readout_float64": RationalReadout(head(), 3).double(),
        "readout_lookback": RationalReadout(LookbackHead(StochasticTransitions(state_dim=3, vocab_size=VOCABULARY)), 2),
        "stacked_linear": StackedTransductor([head(), head()], BackboneConfig(**sizes)),
        "stacked_nonlinear": StackedTransductor(
            [head(feature_dim=8), head()], BackboneConfig(**sizes, positions=RotaryPositions())
        ),
        "transformer": Transformer(BackboneConfig(**sizes, positions=SinusoidalPositions())),
        "lstm": LSTM(vocab_size=VOCABULARY, output_size=3, width=6, layers=2),
        "linear_rnn": LinearRNN(vocab_size=VOCABULARY, output_size=3, width=6),
    }
    kept_models("models", {name: (stirred(model), tokens()) for name, model in models.items()})


OPTIONS: dict[str, dict[str, Any]] = {
    "diagonal": {"spectral_cap": 0.9},
    "signed_diagonal": {"spectral_cap": 2.0},
    "dplr": {"rank": 2, "spectral_cap": 0.5},
    "orthogonal": {"negatives": 0},
    "signed_cayley": {"negatives": 2},
    "householder": {"reflections": 3},
    "stochastic": {"temperature": 0.5},
    "sinkhorn": {"temperature": 0.5, "iterations": 3},
    "shared_basis": {"basis_size": 2},
    "butterfly": {"spectral_cap": 0.5},
    "toeplitz": {"spectral_cap": 3.0},
    "hankel": {"spectral_cap": 0.5},
    "block_sparse": {"block_size": 2, "bandwidth": 0},
    "random": {"spectral_cap": 0.5},
}


def composites(**drive: int) -> dict[str, Any]:
    def of(family: Any, dim: int) -> Any:
        return family(state_dim=dim, **drive)

    return {
        "direct_sum": DirectSum(of(CayleyTransitions, 3), of(StochasticTransitions, 2)),
        "tensor_product": TensorProduct(of(SquaredCayleyTransitions, 2), of(ExponentialTransitions, 3)),
        "cascade": Cascade(of(ExponentialTransitions, 3), of(DPLRTransitions, 2), of(StochasticTransitions, 2)),
        "spectral_cap": SpectralCap(of(DenseTransitions, 4), spectral_cap=0.9),
        "nested": DirectSum(
            Cascade(TensorProduct(of(CayleyTransitions, 2), of(StochasticTransitions, 2)), of(AffineTransitions, 2)),
            SpectralCap(DirectSum(of(DenseTransitions, 2), of(DPLRTransitions, 3))),
        ),
    }


def make_families() -> None:
    torch.manual_seed(2)
    symbols = {"vocab_size": VOCABULARY}
    by_tokens: dict[str, Any] = {"permutation": PermutationTransitions(state_dim=4, **symbols), **composites(**symbols)}
    by_features: dict[str, Any] = composites(feature_dim=3)
    for name, family in FAMILIES.items():
        if name == "permutation":
            continue
        options: Any = {"state_dim": 4, **OPTIONS.get(name, {})}
        by_tokens[name] = family(vocab_size=VOCABULARY, **options)
        by_features[name] = family(feature_dim=3, **options)
    readouts = {name: RationalReadout(RationalHead(family), 2) for name, family in by_tokens.items()}
    heads = {name: RationalHead(family) for name, family in by_features.items()}
    kept_models("families_by_tokens", {name: (stirred(model), tokens()) for name, model in readouts.items()})
    kept_models(
        "families_by_features", {name: (stirred(head), torch.randn(2, TIME, 3)) for name, head in heads.items()}
    )


def make_heads() -> None:
    torch.manual_seed(3)
    heads: dict[str, Any] = {}
    for drive, given in (("tokens", {"vocab_size": VOCABULARY}), ("features", {"feature_dim": 3})):
        options: Any = given
        heads[f"rational_{drive}"] = RationalHead(CayleyTransitions(state_dim=3, **options), backend="chunked")
        heads[f"lookback_{drive}"] = LookbackHead(DenseTransitions(state_dim=3, **options))
        heads[f"universal_{drive}"] = UniversalHead(orthogonal_dim=3, stochastic_dim=2, **options)
        heads[f"random_features_{drive}"] = RandomFeatureHead(state_dim=3, **options)
    drives = {name: tokens() if name.endswith("tokens") else torch.randn(2, TIME, 3) for name in heads}
    kept_models("heads", {name: (stirred(head), drives[name]) for name, head in heads.items()})


HOST: dict[str, Any] = {
    "vocab_size": 24,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def answers(model: Any, prompt: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        logits = model(prompt, use_cache=False).logits
        options: Any = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    return {"prompt": prompt, "logits": logits, "generated": text}


def make_sidecars() -> None:
    torch.manual_seed(4)
    expected = {}
    for name, family in (("gpt2_tokens", "gpt2"), ("llama_embeddings", "llama"), ("gpt2_classes", "gpt2")):
        more = {"intermediate_size": 24, "num_key_value_heads": 1, "head_dim": 8} if family == "llama" else {}
        host = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **HOST, **more)).eval()
        host.save_pretrained(HERE / "sidecars" / name / "host")
        if name == "gpt2_tokens":
            sidecar = attach(host, RationalHead(CayleyTransitions(state_dim=3, vocab_size=24, init_scale=1.0)), [1])
        elif name == "llama_embeddings":
            sidecar = attach(host, head_for(host, state_dim=4))
        else:
            head = RationalHead(PermutationTransitions(permutations=[[0, 1, 2], [1, 2, 0]])).requires_grad_(False)
            sidecar = attach(host, head, token_classes=torch.arange(24) % 2)
        nn.init.normal_(sidecar.injection.projections.weight, std=0.3)
        save_sidecar(host, HERE / "sidecars" / name / "sidecar")
        found = answers(host, torch.randint(3, 24, (2, 7)))
        expected |= {f"{name}/{part}": value for part, value in found.items()}
    stored(HERE / "sidecars" / "expected.safetensors", expected)


def make_native() -> None:
    torch.manual_seed(5)
    sizes = {key: value for key, value in HOST.items() if key != "max_position_embeddings"}
    lookback = LookbackHead(OrthogonalTransitions(state_dim=3, vocab_size=24))
    plain = RationalTransductor(
        UniversalHead(vocab_size=24, orthogonal_dim=3, stochastic_dim=2),
        BackboneConfig(24, 4, width=16, layers=1, attention_heads=2, positions=LearnedPositions(16)),
    )
    models = {
        "causal": RationalTransductorForCausalLM(RationalTransductorConfig(**sizes, state_dim=4)),
        "causal_tied": RationalTransductorForCausalLM(
            RationalTransductorConfig(
                **sizes, head=lookback, positions="relative", sliding_window=4, tie_word_embeddings=True
            )
        ),
        "sequence_classifier": RationalTransductorForSequenceClassification(
            RationalTransductorConfig(**sizes, state_dim=3, num_labels=3, attention="none")
        ),
        "token_classifier": from_transductor(plain, task="token-classification", pad_token_id=0),
    }
    expected = {}
    for name, model in models.items():
        stirred(model, 0.1).save_pretrained(HERE / "native" / name)
        prompt = torch.randint(3, 24, (2, 7))
        if name.startswith("causal"):
            found = answers(model, prompt)
        else:
            with torch.no_grad():
                found = {"prompt": prompt, "logits": model(prompt).logits}
        expected |= {f"{name}/{part}": value for part, value in found.items()}
    stored(HERE / "native" / "expected.safetensors", expected)


def make_training() -> None:
    """Runs stopped in the middle, and the weights that the uninterrupted ones ended with."""
    base = TrainingSettings(steps=9, length=7, batch_size=4)

    def model() -> RationalTransductor:
        torch.manual_seed(6)
        head = UniversalHead(vocab_size=2, orthogonal_dim=3, stochastic_dim=2)
        return RationalTransductor(
            head, BackboneConfig(2, 3, width=8, layers=1, attention_heads=2, feedforward=8, dropout=0.1)
        )

    variants = {
        "plain": base,
        "all_options": replace(
            base, optimiser="adam", schedule="linear", warmup=2, clipping="per_tensor", double=True, shortest=1,
            head_learning_rate=1e-3, labels="last", annealing=Annealing(1.0, 0.1),
            curriculum=Curriculum(2, threshold=0.01),
        ),
    }  # fmt: skip
    expected = {}
    for name, settings in variants.items():
        whole = Trainer(model(), ModularCounting(3), settings)
        whole.run()
        part = Trainer(model(), ModularCounting(3), settings)
        for _ in range(4):
            part.advance()
        part.save(HERE / "training" / name)
        expected |= {f"{name}/{key}": value for key, value in whole.model.state_dict().items()}
        expected[f"{name}/losses"] = torch.tensor([point.loss for point in whole.points], dtype=torch.float64)
    make_command(expected)
    stored(HERE / "training" / "expected.safetensors", expected)


COMMAND = [
    "train", "run", "--data", "words.txt", "--labels", "labels.txt", "--held-out", "0.2", "--seed", "7",
    "--width", "8", "--layers", "1", "--state-dim", "3", "--attention-heads", "2",
    "--steps", "8", "--batch-size", "4", "--checkpoint-every", "3",
]  # fmt: skip


def make_command(expected: dict[str, Tensor]) -> None:
    """``transductor train`` on files, stopped at its fourth step; and the model of the uninterrupted run."""
    folder = HERE / "training_command"
    folder.mkdir(parents=True)
    os.chdir(folder)
    words = [f"{number:b}".replace("0", "a ").replace("1", "b ").strip() for number in range(3, 23)]
    Path("words.txt").write_text("\n".join(words) + "\n")
    Path("labels.txt").write_text("\n".join("odd" if word.count("a") % 2 else "even" for word in words) + "\n")
    written(Path("command.json"), COMMAND)
    assert CliRunner().invoke(app, COMMAND).exit_code == 0
    expected |= {f"command/{name}": value for name, value in load("run/model").state_dict().items()}
    shutil.rmtree("run")
    advance = Trainer.advance

    def stopped(self: Trainer) -> Any:
        if self.step == 4:
            raise KeyboardInterrupt
        return advance(self)

    Trainer.advance = stopped  # type: ignore[method-assign]
    assert CliRunner().invoke(app, COMMAND).exit_code == 130
    Trainer.advance = advance  # type: ignore[method-assign]
    os.chdir(HERE)


def timeless(value: Any) -> Any:
    """Measurements without times, and without what tells an interrupted run from another."""
    if isinstance(value, dict):
        left_out = {"seconds", "judging_seconds", "resumed_at"}
        return {key: timeless(each) for key, each in value.items() if key not in left_out}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def a_study() -> Study:
    def readout(task: Any, family: str, dim: int) -> ReadoutConfig:
        spec = FamilySpec(family, {"vocab_size": task.vocab_size, "state_dim": dim})
        return ReadoutConfig(HeadConfig("rational", spec), task.output_size)

    training = TrainingSettings(steps=12, length=6, batch_size=4)
    probes = (Probe(6, 8), Probe(12, 8, bias=0.9), Probe(12, 1, family="every"))
    annealed = replace(training, annealing=Annealing(), curriculum=Curriculum(2, threshold=0.1))
    arms = (
        Arm("plain", "ours", Parity(), readout(Parity(), "orthogonal", 2), training, probes),
        Arm("annealed", "ours", FlipFlop(0.5), readout(FlipFlop(0.5), "stochastic", 3), annealed, (Probe(6, 8),)),
    )
    return Study("miniature", "Does it run?", arms, (0,))


def make_study() -> None:
    """One arm done, the other stopped after a written state; and what the records of the uninterrupted study say."""
    study, folder, whole = a_study(), HERE / "study" / "half_done", HERE / "study" / "whole"
    running._CHECKPOINT_EVERY = 5  # type: ignore[misc]
    reproduce([study], whole)
    expected = {}
    for arm in study.arms:
        record = json.loads((whole / study.name / arm.name / "seed0.json").read_text())
        expected[arm.name] = timeless(record["measurements"])
    shutil.rmtree(whole)

    def stop(step: int, total: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    run_arm(study, study.arms[0], (0,), folder)
    with contextlib.suppress(KeyboardInterrupt):
        run_arm(study, study.arms[1], (0,), folder, on_step=stop)
    (HERE / "study" / "study.json").write_text(to_json(study) + "\n")
    written(HERE / "study" / "expected.json", expected)
