"""Automata over characters, read through a tokenizer: a token acts as the product of what it spells.

A token may spell half a character, so the automaton is first brought to bytes of UTF-8.  The products of a finite
automaton are finitely many, and few: tokens that act alike share a letter of the compiled head, and what is kept of the
vocabulary is one small integer per token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata import DFA, NFA, regex
from transductor.automata.finite_automata import determinised
from transductor.checks import check_positive, one_of
from transductor.compilation import compile_head
from transductor.heads import RationalHead
from transductor.integrations.huggingface.token_spelling import spelled_tokens, writes_leading_space

Integers: TypeAlias = NDArray[np.int64]

_CODE_POINTS: Final = 0x110000
# A character of more than one byte: its first byte, and how many bytes continue it.
_LEADING: Final = {byte: 1 + (byte >= 0xE0) + (byte >= 0xF0) for byte in range(0xC2, 0xF5)}
STATE_LIMIT: Final = 512
_OTHER: Final = "any other"


@dataclass(frozen=True)
class TokenAutomaton:
    """An automaton as a head over classes of tokens: ``attach(model, head, token_classes=token_classes)``.

    Attributes:
        head: Its state is one-hot and exact at every length.  The first coordinates are the states of ``automaton``;
            others, where there are any, are a character that has begun and is not yet known, and, last, the place
            before a space that the tokenizer writes in front of every text and nobody wrote.
        token_classes: ``(V,)``, the letter of the head that each token is.
        accepting: ``(D,)`` bool: which states accept.
        automaton: Over characters, or over tokens.
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
    """A frozen head that follows ``automaton`` through the tokens of ``tokenizer``, exactly, at every length.

    A tokenizer that writes a space before every text (most of SentencePiece's) is read without it.

    Args:
        automaton: A regular expression, understood as Python's ``re.fullmatch`` does, for every character there is; or
            an automaton over characters, or over tokens.
        tokenizer: A fast tokenizer (byte-level or SentencePiece's), or ByT5's.
        over: ``"characters"``, or ``"tokens"``: symbols are then token ids, or tokens as the vocabulary writes them.
        special_tokens: ``"identity"``: they leave the state as it is; ``"restart"``: they begin a new text.
        others: What characters (or tokens) do that the automaton's alphabet does not have: ``"identity"``, or
            ``"dead"``: lead to a state that rejects for ever.  A regular expression knows all characters.
        vocab_size: Rows of the host's input embeddings, where they are more than the tokenizer's tokens; those beyond
            leave the state as it is.
        flags: Of the regular expression.
        options: Of :func:`~transductor.compile_head`: ``trainable``, ``family``, ``head``, ``dtype``.
    """
    one_of("over", over, ("characters", "tokens"))
    one_of("special_tokens", special_tokens, ("identity", "restart"))
    one_of("others", others, ("identity", "dead"))
    rows = _checked_rows(vocab_size, tokenizer)
    if over == "tokens":
        dfa = _completed(_machine(automaton, over), others)
        start, accepting = dfa.start, set(dfa.accepting)
        actions = _token_actions(dfa, tokenizer, special_tokens)
    else:
        dfa, class_of_point = _over_characters(automaton, others, flags)
        start, accepting = dfa.start, set(dfa.accepting)
        table = _byte_table(dfa, class_of_point)
        spelled = spelled_tokens(tokenizer)
        if writes_leading_space(tokenizer, spelled):
            table = np.concatenate((table, table[start : start + 1]))
            table[-1, ord(" ")] = start
            accepting |= {len(table) - 1} if start in accepting else set()
            start = len(table) - 1
        nothing = _special(len(table), start, special_tokens)
        actions = [nothing if each is None else _product(table, each) for each in spelled]
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
    """Token classes ``(V,)`` for a head that is to be trained: tokens that spell the same of ``characters`` share one.

    Brackets, quotes and line ends decide where a text stands, and hundreds of classes hold all ways in which tens of
    thousands of tokens spell them.  Class 0 is for tokens that spell none of them, and for rows beyond the tokenizer;
    special tokens have one class of their own.

    Args:
        tokenizer: As for :func:`compile_for_tokens`.
        characters: ASCII characters.
        vocab_size: Rows of the host's input embeddings, where they are more than the tokenizer's tokens.
    """
    if not characters or not characters.isascii():
        raise ValueError(f"characters must be at least one ASCII character; got {characters!r}")
    rows = _checked_rows(vocab_size, tokenizer)
    kept = set(characters.encode())
    numbers: dict[bytes | None, int] = {b"": 0}
    classes = [
        numbers.setdefault(None if spelled is None else bytes(b for b in spelled if b in kept), len(numbers))
        for spelled in spelled_tokens(tokenizer)
    ]
    return torch.tensor(classes + [0] * (rows - len(classes)), dtype=torch.int32)


def _checked_rows(vocab_size: int | None, tokenizer: Any) -> int:
    rows = len(tokenizer) if vocab_size is None else vocab_size
    check_positive("vocab_size", rows)
    if rows < len(tokenizer):
        raise ValueError(f"vocab_size must be at least {len(tokenizer)}, the tokens of the tokenizer; got {rows}")
    return rows


def _machine(automaton: Any, over: str) -> DFA:
    if isinstance(automaton, NFA):
        automaton = determinised(automaton)
    if not isinstance(automaton, DFA):
        wanted = "a DFA or an NFA over token ids or tokens" if over == "tokens" else "a pattern, a DFA or an NFA"
        raise TypeError(f"automaton must be {wanted}; got {type(automaton).__name__}")
    return automaton


def _completed(dfa: DFA, others: str) -> DFA:
    """With one letter more, the last, for all symbols that the alphabet does not have."""
    states, letters = dfa.transitions.shape
    if others == "identity":
        table = np.concatenate((dfa.transitions, np.arange(states)[:, None]), 1)
    else:
        table = np.full((states + 1, letters + 1), states)
        table[:states, :letters] = dfa.transitions
    return DFA((*dfa.alphabet, _OTHER), table, dfa.start, dfa.accepting)


def _over_characters(automaton: Any, others: str, flags: int) -> tuple[DFA, Integers]:
    """The automaton, and the letter of every code point, ``(0x110000,)``."""
    if isinstance(automaton, str):
        return _regex_of_all_characters(automaton, flags)
    dfa = _machine(automaton, "characters")
    for symbol in dfa.alphabet:
        if not isinstance(symbol, str) or len(symbol) != 1:
            raise ValueError(f"automaton must have single characters for symbols, or over='tokens'; got {symbol!r}")
    completed = _completed(dfa, others)
    letters = np.full(_CODE_POINTS, len(dfa.alphabet))
    letters[[ord(str(symbol)) for symbol in dfa.alphabet]] = np.arange(len(dfa.alphabet))
    return completed, letters


def _regex_of_all_characters(pattern: str, flags: int) -> tuple[DFA, Integers]:
    r"""The automaton of ``re.fullmatch`` over all of Unicode.

    A character that the pattern neither writes nor spans can only be told from others by ``\w``, ``\d`` and ``\s``, or
    by ignoring case: one of each kind stands for all of them.
    """
    written = {str(symbol) for symbol in regex(pattern, flags=flags).alphabet}
    if flags & re.IGNORECASE or re.search(r"\(\?[a-zA-Z]*i", pattern):
        written |= {
            c
            for c in map(chr, range(_CODE_POINTS))
            if c.lower() in written or c.upper() in written or c.casefold() in written
        }
    kinds = _kinds_of_characters()
    unwritten = np.ones(_CODE_POINTS, dtype=bool)
    unwritten[[ord(c) for c in written]] = False
    alphabet = sorted(written)
    letters = np.empty(_CODE_POINTS, dtype=np.int64)
    letters[[ord(c) for c in alphabet]] = np.arange(len(alphabet))
    for kind in np.unique(kinds):
        of_kind = np.flatnonzero(unwritten & (kinds == kind))
        if len(of_kind):
            letters[of_kind] = len(alphabet)
            alphabet.append(chr(of_kind[-1]))
    return regex(pattern, alphabet, flags), letters


@cache
def _kinds_of_characters() -> Integers:
    """For every code point, what ``re``'s categories ask of it."""
    return np.array([4 * c.isalnum() + 2 * c.isdecimal() + c.isspace() for c in map(chr, range(_CODE_POINTS))])


def _byte_table(dfa: DFA, class_of_point: Integers) -> Integers:
    """``(states, 256)``: the automaton over bytes of UTF-8; the first states are those of ``dfa``.

    As soon as the bytes of a character leave only one letter possible, the automaton takes it, and what is left of the
    character does nothing; a state of its own waits for the next byte only where that decides.
    """
    plain, action_of_letter = np.unique(dfa.transitions, axis=1, return_inverse=True)  # letters that act alike are one
    class_of_point = action_of_letter.reshape(-1)[class_of_point]
    class_of_point[0xD800:0xE000] = -1  # surrogates are no characters
    rows = [np.repeat(np.arange(len(plain))[:, None], 256, 1)]
    rows[0][:, :128] = plain[:, class_of_point[:128]]
    waiting: dict[tuple[int, int], int] = {}  # the code points still possible, and the place of their states
    pending: list[tuple[int, int, int]] = []

    def after(first: int, length: int, least: int) -> Integers:
        """Where the states of ``dfa`` go once the character is one of ``length`` code points from ``first``.

        Those below ``least`` have shorter spellings, and only these are valid.
        """
        possible = np.unique(class_of_point[max(first, least) : first + length])
        possible = possible[possible >= 0]
        if len(possible) < 2:
            return plain[:, possible[0]] if len(possible) else np.arange(len(plain))
        if (first, length) not in waiting:
            if (len(waiting) + 2) * len(plain) > STATE_LIMIT:
                raise ValueError(
                    "automaton must not tell so many characters beyond ASCII apart: over bytes it has more than "
                    f"{STATE_LIMIT} states; for a pattern, flags=re.ASCII keeps \\w, \\d and \\s within ASCII"
                )
            waiting[first, length] = len(waiting) + 1
            pending.append((first, length, least))
        return waiting[first, length] * len(plain) + np.arange(len(plain))

    for byte, following in _LEADING.items():
        length = 64**following
        rows[0][:, byte] = after((byte & (0x3F >> following)) * length, length, (0x80, 0x800, 0x10000)[following - 1])
    for first, length, least in pending:  # grows while it is read
        row = rows[0].copy()  # any byte but a continuation begins anew: what was begun is no character
        for part in range(64):
            row[:, 0x80 + part] = after(first + part * (length // 64), length // 64, least)
        rows.append(row)
    return np.concatenate(rows)


def _product(table: Integers, spelled: Iterable[int]) -> Integers:
    """Where each state goes by the bytes of one token."""
    states = np.arange(len(table))
    for byte in spelled:
        states = table[states, byte]
    return states


def _special(states: int, start: int, treatment: str) -> Integers:
    return np.arange(states) if treatment == "identity" else np.full(states, start)


def _token_actions(dfa: DFA, tokenizer: Any, treatment: str) -> list[Integers]:
    """For an automaton over tokens: what each token does; one named by the automaton is never special."""
    letters = {symbol: letter for letter, symbol in enumerate(dfa.alphabet[:-1])}
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    unknown = [symbol for symbol in letters if symbol not in tokens and symbol not in range(len(tokens))]
    if unknown:
        raise ValueError(f"automaton must be over token ids or tokens of the tokenizer; it has {unknown[0]!r}")
    special = set(tokenizer.all_special_ids)
    actions = []
    for index, token in enumerate(tokens):
        letter = letters.get(index, letters.get(token))
        if letter is None and index in special:
            actions.append(_special(dfa.states, dfa.start, treatment))
        else:
            actions.append(dfa.transitions[:, len(letters) if letter is None else letter])
    return actions
