"""Compiles automata over characters to heads over the tokens of a tokenizer.

A token moves the automaton as the characters it spells do, one after the other.  A token may spell half a character, so
the automaton is first rewritten over bytes of UTF-8.  Few tokens move it differently: those that move it alike share a
letter of the compiled head, and the vocabulary is reduced to one small integer per token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, reduce
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
# The first byte of a character of several bytes, and how many bytes follow it.
_FOLLOWING_BYTES: Final = {byte: 1 + (byte >= 0xE0) + (byte >= 0xF0) for byte in range(0xC2, 0xF5)}
_STATE_LIMIT: Final = 512
_OTHER: Final = "any other"


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
    rows = _checked_rows(vocab_size, tokenizer)
    if over == "tokens":
        dfa = _completed(_machine(automaton, over), others)
        start, accepting = dfa.start, set(dfa.accepting)
        actions = _token_actions(dfa, tokenizer, special_tokens)
    else:
        dfa, letter_of_character = _over_characters(automaton, others, flags)
        start, accepting = dfa.start, set(dfa.accepting)
        table = _byte_table(dfa, letter_of_character)
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
    """Add a last letter, which stands for everything outside the alphabet."""
    states, letters = dfa.transitions.shape
    if others == "identity":
        table = np.concatenate((dfa.transitions, np.arange(states)[:, None]), 1)
    else:
        table = np.full((states + 1, letters + 1), states)
        table[:states, :letters] = dfa.transitions
    return DFA((*dfa.alphabet, _OTHER), table, dfa.start, dfa.accepting)


def _over_characters(automaton: Any, others: str, flags: int) -> tuple[DFA, Integers]:
    """Return the automaton, and the letter of every code point, ``(0x110000,)``."""
    if isinstance(automaton, str):
        return _regex_of_all_characters(automaton, flags)
    dfa = _machine(automaton, "characters")
    for letter in dfa.alphabet:
        if not isinstance(letter, str) or len(letter) != 1:
            raise ValueError(f"automaton must have single characters for letters, or over='tokens'; got {letter!r}")
    letters = np.full(_CODE_POINTS, len(dfa.alphabet))
    letters[[ord(str(letter)) for letter in dfa.alphabet]] = np.arange(len(dfa.alphabet))
    return _completed(dfa, others), letters


def _regex_of_all_characters(pattern: str, flags: int) -> tuple[DFA, Integers]:
    r"""Return the automaton of ``re.fullmatch`` over all of Unicode, and the letter of every code point.

    Characters that are neither in the pattern nor in its ranges differ only by ``\w``, ``\d`` and ``\s``, or by
    ignoring case: one letter of each kind stands for all of them.
    """
    written = {str(letter) for letter in regex(pattern, flags=flags).alphabet}
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
    """Return, for every code point, the combination of ``re``'s categories that it belongs to."""
    return np.array([4 * c.isalnum() + 2 * c.isdecimal() + c.isspace() for c in map(chr, range(_CODE_POINTS))])


def _byte_table(dfa: DFA, letter_of_character: Integers) -> Integers:
    """Return the transitions ``(states, 256)`` over bytes of UTF-8; the first states are those of ``dfa``.

    As soon as the bytes of a character leave only one letter possible, the automaton reads that letter, and the rest of
    the character does nothing.  There are additional states only where the next byte decides about the letter.
    """
    plain, action_of_letter = np.unique(dfa.transitions, axis=1, return_inverse=True)  # merges letters that act alike
    letter_of_character = action_of_letter.reshape(-1)[letter_of_character]
    letter_of_character[0xD800:0xE000] = -1  # surrogates are not characters
    rows = [np.repeat(np.arange(len(plain))[:, None], 256, 1)]
    rows[0][:, :128] = plain[:, letter_of_character[:128]]
    waiting: dict[tuple[int, int], int] = {}  # a range of possible code points, and which block of states waits in it
    pending: list[tuple[int, int, int]] = []

    def after(first: int, length: int, least: int) -> Integers:
        """Return the next states once the character is known to be one of ``length`` code points from ``first``.

        Code points below ``least`` are left out: they have shorter spellings, and only these are valid.
        """
        possible = np.unique(letter_of_character[max(first, least) : first + length])
        possible = possible[possible >= 0]
        if len(possible) < 2:
            return plain[:, possible[0]] if len(possible) else np.arange(len(plain))
        if (first, length) not in waiting:
            if (len(waiting) + 2) * len(plain) > _STATE_LIMIT:
                raise ValueError(
                    "automaton must not tell so many characters beyond ASCII apart: over bytes it has more than "
                    f"{_STATE_LIMIT} states; for a pattern, flags=re.ASCII keeps \\w, \\d and \\s within ASCII"
                )
            waiting[first, length] = len(waiting) + 1
            pending.append((first, length, least))
        return waiting[first, length] * len(plain) + np.arange(len(plain))

    for byte, following in _FOLLOWING_BYTES.items():
        length = 64**following
        rows[0][:, byte] = after((byte & (0x3F >> following)) * length, length, (0x80, 0x800, 0x10000)[following - 1])
    for first, length, least in pending:  # grows while it is read
        row = rows[0].copy()  # any byte that does not continue the character begins a new one
        for part in range(64):
            row[:, 0x80 + part] = after(first + part * (length // 64), length // 64, least)
        rows.append(row)
    return np.concatenate(rows)


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
