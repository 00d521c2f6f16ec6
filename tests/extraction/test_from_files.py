"""Dense readouts with many spare dimensions, trained on labelled strings: their exact machines come back, proved."""

from __future__ import annotations

import random

import pytest
import torch

from transductor.automata import MooreMachine, TokenAlphabet, machine
from transductor.automata.sources import language_of
from transductor.certification import certify
from transductor.extraction import harden
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.training import FileData, Trainer, TrainingSettings
from transductor.transitions import DenseTransitions


def label_of(target, word):
    state = target.start
    for letter in word:
        state = int(target.transitions[state, letter])
    return int(target.outputs[state])


def lines_of(target, count, longest=40):
    """As many words of either label, half of the others near misses of one letter."""
    draw, words = random.Random(1), {0: [], 1: []}
    while min(map(len, words.values())) < count // 2:
        word = draw.choices((0, 1), k=draw.randrange(longest + 1))
        if draw.random() < 0.7 and words[1]:
            word = list(draw.choice(words[1]))[: draw.randrange(longest + 1)]
            if word and draw.random() < 0.5:
                word[draw.randrange(len(word))] ^= 1
            word += draw.choices(((), (0,), (1,), (1, 0), (0, 0), (1, 1)))[0]
        words[label_of(target, word[:longest])].append(word[:longest])
    return [(word, label) for label, rows in words.items() for word in rows[: count // 2]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tomita:2", "tomita:3", "tomita:4", "tomita:5", "tomita:7"])
def test_the_exact_machine_is_proved(name, tmp_path):
    target = MooreMachine.from_dfa(language_of(machine(name).automaton))
    lines = lines_of(target, 10_000)
    (tmp_path / "words.txt").write_text("".join(" ".join("ab"[letter] for letter in word) + "\n" for word, _ in lines))
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for _, label in lines))
    data, examples = FileData("recognition", str(tmp_path / "words.txt"), str(tmp_path / "labels.txt")).read()
    torch.manual_seed(0)
    model = RationalReadout(RationalHead(DenseTransitions(vocab_size=data.vocab_size, state_dim=32)), 2)
    Trainer(model, data, TrainingSettings(steps=1500, batch_size=64, learning_rate=5e-3)).run()
    alphabet = TokenAlphabet.of_names(data.vocabulary.tokens)
    hardened = harden(model.eval(), examples=examples.tokens, alphabet=alphabet)
    order = [("a", "b").index(letter) for letter in alphabet.letter_names]
    wanted = MooreMachine(target.transitions[:, order], target.outputs, target.start)
    assert hardened.extraction.machine.states == wanted.states
    certificate = certify(
        hardened.model, against=alphabet.lifted(wanted), domain=alphabet.domain(), letters=alphabet.names
    )
    assert certificate.outcome == "proved"
