"""A user's file, with every name that ``transductor`` offers at the top: ``mypy --strict`` accepts it, and it runs.

``make lint`` checks it beside the sources, ``make release`` against the installed wheel.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import assert_type

import torch
from torch import Tensor

import transductor
from transductor import (
    LSTM,
    BackboneConfig,
    LinearRNN,
    RandomFeatureHead,
    RationalHead,
    RationalReadout,
    RationalTransductor,
    StackedTransductor,
    TransductorClassifier,
    TransductorRegressor,
    Transformer,
    UniversalHead,
    automata,
    certify,
    compile_head,
    compile_model,
    extract,
    harden,
    load,
    save,
    scan,
)
from transductor.automata import DFA
from transductor.certification import AgreementCertificate
from transductor.extraction import Extraction, Hardened
from transductor.model import LinearRNNConfig, LSTMConfig
from transductor.training import TrainingPoint, TrainingSettings, train
from transductor.transitions import OrthogonalTransitions

TOKENS = torch.tensor([[0, 1, 1, 0, 1]])


def heads() -> tuple[RationalHead, UniversalHead, RandomFeatureHead]:
    return (
        RationalHead(OrthogonalTransitions(vocab_size=2, state_dim=4)),
        UniversalHead(vocab_size=2, orthogonal_dim=2, stochastic_dim=3),
        RandomFeatureHead(vocab_size=2, state_dim=4),
    )


def states() -> None:
    head, universal, _ = heads()
    assert_type(head(TOKENS), Tensor)
    assert_type(universal(TOKENS, return_final=True), tuple[Tensor, Tensor])
    stream = head.start(1)
    for piece in (TOKENS[:, :2], TOKENS[:, 2:]):
        shown, stream = head.advance(piece, stream)
        assert_type(shown, Tensor)
    assert_type(scan(head.transitions.table(), TOKENS, initial_state=head.initial_state()), Tensor)


def models() -> None:
    sizes = BackboneConfig(vocab_size=2, output_size=3, width=16)
    one = RationalTransductor(heads()[0], sizes)
    stacked = StackedTransductor([heads()[0] for _ in range(sizes.layers)], sizes)
    peers = Transformer(sizes), LSTM(vocab_size=2), LinearRNN(vocab_size=2)
    for model in (one, stacked, *peers, RationalReadout(heads()[0], output_size=3)):
        logits = model(TOKENS, lengths=torch.tensor([5]))
        assert_type(logits, Tensor)
        torch.autograd.grad(logits.sum(), tuple(model.parameters()), allow_unused=True)
    assert_type(peers[1].config, LSTMConfig)
    assert_type(peers[2].config, LinearRNNConfig)
    answer, following = one.advance(TOKENS, one.start(1))
    assert_type(answer, Tensor)
    one.advance(TOKENS, following)
    with tempfile.TemporaryDirectory() as folder:
        where: Path = save(one, Path(folder) / "model", letters=["a", "b"])
        again: RationalTransductor = load(where)
        assert torch.equal(again(TOKENS), one.eval()(TOKENS))


def proof() -> None:
    even = automata.regex("(b*ab*a)*b*", "ab")
    assert_type(even, DFA)
    assert even("aa")
    readout = compile_model(even)
    assert_type(readout, RationalTransductor | RationalReadout)
    certificate = certify(readout, against=even)
    assert_type(certificate, AgreementCertificate)
    verdict: str = certificate.verdict
    assert verdict == "proved"

    model = RationalReadout(compile_head(even, trainable=True), output_size=2)
    points: list[TrainingPoint] = train(model, transductor.tasks.Parity(), TrainingSettings(steps=2, length=4))
    assert len(points) == 2

    assert isinstance(readout, RationalTransductor)
    found = extract(readout)
    assert_type(found, Extraction)
    hardened = harden(readout)
    assert_type(hardened, Hardened[RationalTransductor])
    assert_type(hardened.model, RationalTransductor)


def estimators() -> None:
    classes: TransductorClassifier = TransductorClassifier(budget=5.0, recipes=["merging"], seed=1)
    numbers = TransductorRegressor(budget=5.0)
    print(classes.get_params(), numbers.get_params())
    words = ["a b a", "b b", "a"] * 10
    right: float = classes.fit(words, [0, 1, 0] * 10).score(words, [0, 1, 0] * 10)
    print(right, classes.machine_)


if __name__ == "__main__":
    states()
    models()
    proof()
