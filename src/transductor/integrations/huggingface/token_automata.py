"""Compiles automata over characters to heads over the tokens of a tokenizer.

A token moves the automaton as the characters it spells do, one after the other.  A token may spell half a character, so
the automaton is first rewritten over bytes of UTF-8.  Few tokens move it differently: those that move it alike share a
letter of the compiled head, and the vocabulary is reduced to one small integer per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transductor.automata import DFA, NFA
from transductor.checks import check_positive, one_of
from transductor.compilation import compile_head
from transductor.heads import RationalHead
from transductor.integrations.huggingface.byte_automata import (
    Integers,
    byte_table,
    completed,
    machine_over,
    over_characters,
)
from transductor.integrations.huggingface.token_spelling import spelled_tokens, writes_leading_space


@dataclass(frozen=True)
class TokenAutomaton:
    """An automaton as a head over classes of tokens: ``attach(model, head, token_classes=token_classes)``.

    Attributes:
        head: A head whose state is one-hot and exact at every length.  The first coordinates are the states of
            ``automaton``; further ones, if there are any, stand for a character whose bytes are not yet complete, and
            the last one for the start of a text to which the tokenizer adds a space.
        token_classes: ``(V,)``, the letter of the head that each token is.
        accepting: ``(D,)`` bool: which states accept.
        automaton: The automaton over characters, or over tokens.
    """

    head: RationalHead
    token_classes: Tensor
    accepting: Tensor
    automaton: DFA


def compile_for_tokens(
    automaton: str | DFA | NFA,
    tokenizer: Any,
    *,
    over: str = "characters",
    special_tokens: str = "identity",
    others: str = "identity",
    vocab_size: int | None = None,
    flags: int = 0,
    **options: Any,
) -> TokenAutomaton:
    """Return a frozen head that follows ``automaton`` through the tokens of ``tokenizer``, exactly, at every length.

    If the tokenizer writes a space before every text (as most of SentencePiece's do), the automaton does not read it.

    Args:
        automaton: A regular expression with the meaning of Python's ``re.fullmatch`` for all of Unicode; or an
            automaton over characters, or over tokens.
        tokenizer: A fast tokenizer (byte-level or SentencePiece's), or ByT5's.
        over: ``"characters"``, or ``"tokens"``: letters are then token ids, or tokens as the vocabulary writes them.
        special_tokens: ``"identity"``: they leave the state as it is; ``"restart"``: they begin a new text.
        others: What characters (or tokens) outside the automaton's alphabet do: ``"identity"``, or ``"dead"``: they
            lead to a state that rejects forever.  The alphabet of a regular expression is all of Unicode.
        vocab_size: Rows of the host model's input embeddings, if they are more than the tokenizer's tokens; the
            additional ones leave the state as it is.
        flags: Flags of the regular expression.
        options: Options of :func:`~transductor.compile_head`: ``trainable``, ``family``, ``head``, ``dtype``.
    """
    one_of("over", over, ("characters", "tokens"))
    one_of("special_tokens", special_tokens, ("identity", "restart"))
    one_of("others", others, ("identity", "dead"))
    rows = checked_rows(vocab_size, tokenizer)
    if over == "tokens":
        dfa = completed(machine_over(automaton, over), others)
        start, accepting = dfa.start, set(dfa.accepting)
        actions = _token_actions(dfa, tokenizer, special_tokens)
    else:
        dfa, letter_of_character = over_characters(automaton, others, flags)
        start, accepting = dfa.start, set(dfa.accepting)
        table = byte_table(dfa, letter_of_character)
        spelled = spelled_tokens(tokenizer)
        if writes_leading_space(tokenizer, spelled):
            table = np.concatenate((table, table[start : start + 1]))
            table[-1, ord(" ")] = start
            accepting |= {len(table) - 1} if start in accepting else set()
            start = len(table) - 1
        special = _special_action(len(table), start, special_tokens)
        actions = [special if each is None else _action(table, each) for each in spelled]
    states = len(actions[0])
    actions += [np.arange(states)] * (rows - len(actions))
    numbers: dict[bytes, int] = {}
    classes = [numbers.setdefault(action.tobytes(), len(numbers)) for action in actions]
    letters = np.stack([np.frombuffer(key, dtype=np.int64) for key in numbers], 1)
    compiled = DFA(tuple(range(len(numbers))), letters, start, frozenset(accepting))
    return TokenAutomaton(
        compile_head(compiled, **options),
        torch.tensor(classes, dtype=torch.int32),
        torch.tensor([state in accepting for state in range(states)]),
        dfa,
    )


def spelling_classes(tokenizer: Any, characters: str, *, vocab_size: int | None = None) -> Tensor:
    """Return token classes ``(V,)`` for a trainable head: tokens with the same ``characters`` in order share a class.

    Brackets, quotes and line ends often decide the state of a text, and tens of thousands of tokens fall into hundreds
    of classes.  Class 0 is for tokens without any of the characters and for rows beyond the tokenizer; special tokens
    have one class of their own.

    Args:
        tokenizer: As for :func:`compile_for_tokens`.
        characters: ASCII characters.
        vocab_size: Rows of the host model's input embeddings, if they are more than the tokenizer's tokens.
    """
    if not characters or not characters.isascii():
        raise ValueError(f"characters must be at least one ASCII character; got {characters!r}")
    rows = checked_rows(vocab_size, tokenizer)
    kept = set(characters.encode())
    numbers: dict[bytes | None, int] = {b"": 0}
    classes = [
        numbers.setdefault(None if spelled is None else bytes(b for b in spelled if b in kept), len(numbers))
        for spelled in spelled_tokens(tokenizer)
    ]
    return torch.tensor(classes + [0] * (rows - len(classes)), dtype=torch.int32)


def checked_rows(vocab_size: int | None, tokenizer: Any) -> int:
    """Return how many rows the host model's embeddings have, at least one for each token."""
    rows = len(tokenizer) if vocab_size is None else vocab_size
    check_positive("vocab_size", rows)
    if rows < len(tokenizer):
        raise ValueError(f"vocab_size must be at least {len(tokenizer)}, the tokens of the tokenizer; got {rows}")
    return rows


def _action(table: Integers, spelled: bytes) -> Integers:
    """Return the state that each state goes to by the bytes of one token."""
    return reduce(lambda states, byte: table[states, byte], spelled, np.arange(len(table)))


def _special_action(states: int, start: int, treatment: str) -> Integers:
    return np.arange(states) if treatment == "identity" else np.full(states, start)


def _token_actions(dfa: DFA, tokenizer: Any, treatment: str) -> list[Integers]:
    """Return the action of each token for an automaton over tokens; a token in its alphabet is never special."""
    letters = {name: letter for letter, name in enumerate(dfa.alphabet[:-1])}
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    unknown = [name for name in letters if name not in tokens and name not in range(len(tokens))]
    if unknown:
        raise ValueError(f"automaton must be over token ids or tokens of the tokenizer; it has {unknown[0]!r}")
    special = set(tokenizer.all_special_ids)
    actions = []
    for index, token in enumerate(tokens):
        letter = letters.get(index, letters.get(token))
        if letter is None and index in special:
            actions.append(_special_action(dfa.states, dfa.start, treatment))
        else:
            actions.append(dfa.transitions[:, len(letters) if letter is None else letter])
    return actions
