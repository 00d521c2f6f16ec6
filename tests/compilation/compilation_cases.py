"""Machines, words and comparisons that the tests of compilation share."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from transductor.automata import DFA, IGNORED, MooreMachine
from transductor.model import StackedTransductor

PATTERNS = [
    "a", "a*", "a+b?", "(ab)*", "(a|b)*abb", "a*b*", "(a|b)*a(a|b)", "(aa)*", "(aaa)*b", "a?b?a?", "[ab]{3}", "a{2,4}b",
    "(a*b)*", "(ab|ba)*", "a(ba)*b?", "(a|ab)(b|ba)", "b*ab*ab*", "(b|ab*a)*", "((a|b)(a|b))*", "(a|b)*aa(a|b)*",
    "(a|b)*aba(a|b)*", "a.*b", ".*a.", "(.)(.)?", "[ab]*c", "c[ab]*c", "(abc)*", "(a|b|c)*ca", "a*b*c*", "(ab*c)+",
    "(a|bc)*", "[^a]*", "[^a]*a[^a]*", "(aab|b)*", "(a{3})*", "(a{2}|b{3})*", "ab|cd", "(ab|cd)*", "a[bcd]*d", ".{2}d",
    "d*(ad*ad*)*", "(a|b|c|d){2}", "(ba*d)*c?", "|a", "(a|)b", "a*?b", "(aa|bb)*", "(a|b)*b(a|b)(a|b)", "a(a|b)*a|b",
    "(0|1(01*0)*1)*",
]  # fmt: skip


def random_dfa(seed: int, *, states: int = 12, letters: int = 4) -> DFA:
    """Of 1 to ``states`` states over 1 to ``letters`` letters."""
    rng = np.random.default_rng(seed)
    count, alphabet = int(rng.integers(1, states + 1)), "abcd"[: int(rng.integers(1, letters + 1))]
    accepting = frozenset(np.flatnonzero(rng.random(count) < 0.5).tolist())
    return DFA(tuple(alphabet), rng.integers(0, count, (count, len(alphabet))), int(rng.integers(count)), accepting)


def all_words(letters: int, most: int = 1 << 16, longest: int = 8) -> torch.Tensor:
    """All words of one length, ``(letters ** length, length)``: their prefixes are all shorter words."""
    length = max(n for n in range(1, longest + 1) if letters**n <= most or n == 1)
    return torch.tensor(list(itertools.product(range(letters), repeat=length)))


def random_words(letters: int, count: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(letters, (count, length), generator=torch.Generator().manual_seed(seed))


def states_of(machine: MooreMachine, tokens: torch.Tensor) -> torch.Tensor:
    """The machine's state after every letter."""
    return MooreMachine(machine.transitions, np.arange(machine.states), machine.start).labels(tokens)


def smallest_margin(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The right logit less the best other, where there is a label."""
    logits, labels = logits.flatten(0, -2), labels.flatten()
    logits, right = logits[labels != IGNORED], labels[labels != IGNORED, None]
    margins = logits.gather(1, right).squeeze(1) - logits.scatter(1, right, -torch.inf).amax(1)
    return min(margins.tolist(), default=torch.inf)


@torch.no_grad()
def margin_on_all_words(model, machine: MooreMachine) -> float:
    """The least margin on words of *every* length: all pairs of machine state and model state that words reach.

    The model takes one step at a time; its heads must be exact, for there to be finitely many such pairs.
    """
    letters = machine.letters
    tokens = torch.arange(letters)[:, None]
    pending, seen, margin = [(machine.start, model.start(letters))], set(), torch.inf
    for state, stream in pending:
        logits, after = model.advance(tokens, stream)
        successors = machine.transitions[state]
        margin = min(margin, smallest_margin(logits, torch.from_numpy(machine.outputs[successors])))
        for letter, successor in enumerate(successors.tolist()):
            heads = after.heads if isinstance(model, StackedTransductor) else (after.head,)
            pair = successor, *(tuple(head.state[letter].tolist()) for head in heads)
            if pair not in seen:
                seen.add(pair)
                pending.append((successor, after.reordered(torch.full((letters,), letter))))
        assert len(seen) < 20_000, "the heads do not stay on finitely many states"
    return margin
