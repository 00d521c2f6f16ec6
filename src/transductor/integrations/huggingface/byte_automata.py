"""Rewrites automata over characters as automata over the bytes of UTF-8, which is what tokens spell.

There are two tables for two uses.  :func:`byte_table` follows any bytes with as few states as possible, for a head that
looks on.  :func:`valid_byte_table` follows valid UTF-8 alone, for a mask that decides what is written.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from transductor.automata import DFA, NFA, regex
from transductor.automata.finite_automata import determinised
from transductor.automata.regular_expression import written_letters

Integers: TypeAlias = NDArray[np.int64]

_CODE_POINTS: Final = 0x110000
# The first byte of a character of several bytes, and how many bytes follow it.
_FOLLOWING_BYTES: Final = {byte: 1 + (byte >= 0xE0) + (byte >= 0xF0) for byte in range(0xC2, 0xF5)}
_STATE_LIMIT: Final = 512
_OTHER: Final = "any other"
_STATES_AT_ONCE: Final = 256


def machine_over(automaton: Any, over: str) -> DFA:
    """Return a DFA or an NFA as a DFA; anything else is refused in the words of what ``over`` says."""
    if isinstance(automaton, NFA):
        automaton = determinised(automaton)
    if not isinstance(automaton, DFA):
        wanted = "a DFA or an NFA over token ids or tokens" if over == "tokens" else "a pattern, a DFA or an NFA"
        raise TypeError(f"automaton must be {wanted}; got {type(automaton).__name__}")
    return automaton


def completed(dfa: DFA, others: str) -> DFA:
    """Add a last letter, which stands for everything outside the alphabet."""
    states, letters = dfa.transitions.shape
    if others == "identity":
        table = np.concatenate((dfa.transitions, np.arange(states)[:, None]), 1)
    else:
        table = np.full((states + 1, letters + 1), states)
        table[:states, :letters] = dfa.transitions
    return DFA((*dfa.alphabet, _OTHER), table, dfa.start, dfa.accepting)


def over_characters(automaton: Any, others: str, flags: int) -> tuple[DFA, Integers]:
    """Return the automaton, and the letter of every code point, ``(0x110000,)``."""
    if isinstance(automaton, str):
        return _regex_of_all_characters(automaton, flags)
    dfa = machine_over(automaton, "characters")
    for letter in dfa.alphabet:
        if not isinstance(letter, str) or len(letter) != 1:
            raise ValueError(f"automaton must have single characters for letters, or over='tokens'; got {letter!r}")
    letters = np.full(_CODE_POINTS, len(dfa.alphabet))
    letters[[ord(str(letter)) for letter in dfa.alphabet]] = np.arange(len(dfa.alphabet))
    return completed(dfa, others), letters


def _regex_of_all_characters(pattern: str, flags: int) -> tuple[DFA, Integers]:
    r"""Return the automaton of ``re.fullmatch`` over all of Unicode, and the letter of every code point.

    Characters that are neither in the pattern nor in its ranges differ only by ``\w``, ``\d`` and ``\s``, or by
    ignoring case: one letter of each kind stands for all of them.
    """
    written = set(written_letters(pattern, flags))
    if flags & re.IGNORECASE or re.search(r"\(\?[a-zA-Z]*i", pattern):
        written |= {character for character, others in _cased_characters() if not written.isdisjoint(others)}
    kinds, members = _kinds_of_characters()
    alphabet = sorted(written)
    letter_of_kind = np.zeros(len(members), dtype=np.int64)
    for kind, characters in enumerate(members):
        unwritten = next((c for c in map(chr, reversed(characters)) if c not in written), None)
        if unwritten is not None:
            letter_of_kind[kind] = len(alphabet)
            alphabet.append(unwritten)
    letters = letter_of_kind[kinds]
    letters[[ord(c) for c in sorted(written)]] = np.arange(len(written))
    return regex(pattern, alphabet, flags), letters


@cache
def _kinds_of_characters() -> tuple[NDArray[np.uint8], list[list[int]]]:
    """Return the combination of ``re``'s categories that every code point belongs to, and the members of each."""
    belongs = [4 * c.isalnum() + 2 * c.isdecimal() + c.isspace() for c in map(chr, range(_CODE_POINTS))]
    _, kinds = np.unique(belongs, return_inverse=True)
    order = np.argsort(kinds, kind="stable")
    ends = np.cumsum(np.bincount(kinds))[:-1]
    return kinds.astype(np.uint8), [part.tolist() for part in np.split(order, ends)]


@cache
def _cased_characters() -> list[tuple[str, tuple[str, str, str]]]:
    """Return the characters that change with their case, and what they change to."""
    forms = ((c, (c.lower(), c.upper(), c.casefold())) for c in map(chr, range(_CODE_POINTS)))
    return [(character, others) for character, others in forms if others != (character,) * 3]


def byte_table(dfa: DFA, letter_of_character: Integers) -> Integers:
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


def valid_byte_table(dfa: DFA, letter_of_character: Integers, limit: int) -> NDArray[np.int32]:
    """Return the transitions ``(states, 256)`` over bytes of valid UTF-8 after which the automaton can still accept.

    All others are −1.  The first states are those of ``dfa``; further ones stand within a character.  Two of these are
    one state if the rest of the character does the same.

    Args:
        dfa: An automaton over letters.
        letter_of_character: ``(0x110000,)``, the letter of every code point.
        limit: How many states there may be.
    """
    hopeful = completable(dfa.transitions, dfa.accepting_mask())
    kept = np.where(hopeful[dfa.transitions], dfa.transitions, -1)
    targets, merged = np.unique(kept, axis=1, return_inverse=True)  # letters that act alike are one
    # The last column is for what is no character: surrogates, and code points that have a shorter spelling.
    targets = np.concatenate((targets, np.full((len(targets), 1), -1)), 1).astype(np.int32)
    letters = merged.reshape(-1).astype(np.int32)[letter_of_character]
    letters[0xD800:0xE000] = -1
    ascii_letters = letters[:128].copy()
    letters[:128] = -1  # no longer needed: within a longer character these would be second spellings
    # A block is what follows a first byte, or a first and a second one, …: 64 possibilities each.
    last, block_of = _interned(letters.reshape(-1, 64))
    three = np.concatenate((block_of[:1024], block_of)).reshape(-1, 64)  # E0, E1, …, then the planes
    three[0, :32] = -1
    three[16:32] = -1
    middle, group_of = _interned(three)
    three_of, plane_of = group_of[:16], group_of[16:]
    four = np.full((5, 64), -1, dtype=np.int32)
    four.reshape(-1)[: len(plane_of)] = plane_of
    first, four_of = _interned(four)

    numbers: dict[bytes, int] = {}
    rows: list[NDArray[np.int32]] = []

    def within(following: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the states ``(Q, blocks)`` in which the next byte leads to ``following`` ``(Q, blocks, 64)``."""
        flat = np.ascontiguousarray(following.reshape(-1, 64))
        places = np.full(len(flat), -1, dtype=np.int32)
        for place in np.flatnonzero((flat >= 0).any(1)).tolist():
            row = flat[place]
            number = numbers.setdefault(row.tobytes(), dfa.states + len(rows))
            if number == dfa.states + len(rows):
                if number >= limit:
                    raise ValueError(
                        f"pattern must need at most {limit} states over bytes; flags=re.ASCII keeps \\w, \\d and \\s "
                        "within ASCII"
                    )
                rows.append(row)
            places[place] = number
        ends = np.full((len(following), 1), -1, dtype=np.int32)
        return np.concatenate((places.reshape(following.shape[:2]), ends), 1)

    table = np.full((dfa.states, 256), -1, dtype=np.int32)
    table[:, :128] = targets[:, ascii_letters]
    for begin in range(0, dfa.states, _STATES_AT_ONCE):
        some = slice(begin, begin + _STATES_AT_ONCE)
        lasts = within(targets[some][:, last])
        middles = within(lasts[:, middle])
        firsts = within(middles[:, first])
        table[some, 0xC2:0xE0] = lasts[:, block_of[2:32]]
        table[some, 0xE0:0xF0] = middles[:, three_of]
        table[some, 0xF0:0xF5] = firsts[:, four_of]
    inner = np.full((len(rows), 256), -1, dtype=np.int32)
    if rows:
        inner[:, 0x80:0xC0] = np.stack(rows)
    return np.concatenate((table, inner))


def completable(table: NDArray[Any], accepting: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the states ``(S,)`` from which ``table`` ``(S, letters)`` leads to an accepting one; −1 leads nowhere."""
    sources, letters = np.nonzero(table >= 0)
    edges = np.unique(table[sources, letters].astype(np.int64) * len(table) + sources)  # sorted by where they lead
    targets, sources = np.divmod(edges, len(table))
    begins = np.searchsorted(targets, np.arange(len(table) + 1))
    alive = accepting.copy()
    newest = np.flatnonzero(alive)
    while len(newest):
        into = [sources[begins[state] : begins[state + 1]] for state in newest.tolist()]
        before = np.unique(np.concatenate(into))
        newest = before[~alive[before]]
        alive[newest] = True
    return alive


def _interned(blocks: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the different rows of ``blocks`` ``(N, 64)``, and which of them each row is, ``(N,)``."""
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in blocks], dtype=np.int32)
    return np.stack([np.frombuffer(key, dtype=np.int32) for key in numbers]), which
