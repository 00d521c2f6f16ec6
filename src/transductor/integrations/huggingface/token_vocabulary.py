"""The tokens of a tokenizer as a tree of the bytes that they spell, which every pattern walks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transductor.automata.compiled import compiled_when_large
from transductor.integrations.huggingface.token_automata import checked_rows
from transductor.integrations.huggingface.token_spelling import spelled_tokens, writes_leading_space


class TokenVocabulary:
    """What the tokens of a tokenizer spell.  Build it once, and give it to every :class:`TokenPattern`.

    Args:
        tokenizer: A fast tokenizer (byte-level or SentencePiece's), or ByT5's.
        vocab_size: Columns of the model's scores, if they are more than the tokenizer's tokens; the additional ones are
            never allowed.
        eos_token_id: The token or tokens that end a text; the tokenizer's own if not given.

    Attributes:
        size: V, the columns of scores.
        spelled: The bytes that each token adds to the text; None or nothing for those that a mask never allows.
        ends: The tokens that end a text.
        padding: The token that fills up rows that have ended, if there is one.
        leading_space: Whether the tokenizer writes a space before every text, which no pattern reads.
    """

    def __init__(
        self, tokenizer: Any, *, vocab_size: int | None = None, eos_token_id: int | Iterable[int] | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.size = checked_rows(vocab_size, tokenizer)
        given = tokenizer.eos_token_id if eos_token_id is None else eos_token_id
        if given is None:
            raise ValueError("tokenizer must have an end-of-sequence token, or eos_token_id must name one")
        self.ends = frozenset([int(given)] if isinstance(given, int) else map(int, given))
        if not self.ends or not all(0 <= end < self.size for end in self.ends):
            raise ValueError(f"eos_token_id must be tokens from 0 to {self.size - 1}; got {given}")
        self.padding: int | None = tokenizer.pad_token_id
        spelled = spelled_tokens(tokenizer)
        self.leading_space = writes_leading_space(tokenizer, spelled)
        self.spelled = [*spelled, *[None] * (self.size - len(spelled))]
        for end in self.ends:
            self.spelled[end] = None
        self._tree = _tree(self.spelled)

    def bytes_of(self, token: int) -> bytes:
        """Return what a token spells; nothing if a mask never allows it."""
        return (self.spelled[token] or b"") if 0 <= token < self.size else b""

    def targets(self, table: NDArray[np.int32], state: int) -> NDArray[np.int32]:
        """Return the state ``(V,)`` that each token leads to from ``state``; −1 where it cannot come.

        Args:
            table: ``(states, 256)`` over bytes, −1 where a byte cannot come.
            state: Where all tokens begin.
        """
        walked: NDArray[np.int32] = _walked(len(self._tree[0]), table, state, *self._tree, self.size)
        return walked


def _tree(spelled: list[bytes | None]) -> tuple[NDArray[Any], ...]:
    """Return the tree of all beginnings of spellings, parents before children.

    For each node: its byte, its depth, the first node after its descendants, and where its tokens begin in the last
    array, which holds the tokens.
    """
    tokens = sorted((token for token, each in enumerate(spelled) if each), key=lambda token: spelled[token] or b"")
    values = bytearray()
    depths: list[int] = []
    begins: list[int] = []
    last = b""
    for place, token in enumerate(tokens):
        word = spelled[token] or b""
        shared = 0
        for shared, (one, other) in enumerate(zip(word, last, strict=False)):  # noqa: B007
            if one != other:
                break
        else:
            shared = min(len(word), len(last))
        values += word[shared:]
        depths += range(shared, len(word))
        begins += [place] * (len(word) - shared)
        last = word
    # A node's tokens stand before those of its first child: only the last node of a spelling holds them.
    after, at_depth = [0] * len(depths), [len(depths)] * (max(depths, default=0) + 2)
    for node in range(len(depths) - 1, -1, -1):
        depth = depths[node]
        after[node] = min(at_depth[: depth + 1])
        at_depth[depth] = node
    return (
        np.frombuffer(bytes(values), dtype=np.uint8),
        np.array(depths, dtype=np.int32),
        np.array(after, dtype=np.int32),
        np.array([*begins, len(tokens)], dtype=np.int32),
        np.array(tokens, dtype=np.int32),
    )


@compiled_when_large
def _walked(table: Any, state: int, values: Any, depths: Any, after: Any, begins: Any, tokens: Any, size: int) -> Any:
    """Walk the tree depth first and leave out the descendants of a byte that cannot come."""
    targets = np.full(size, -1, dtype=np.int32)
    path = np.empty(depths.max() + 2 if len(depths) else 1, dtype=np.int32)
    path[0] = state
    node = 0
    while node < len(values):
        depth = depths[node]
        target = table[path[depth], values[node]]
        if target < 0:
            node = after[node]
            continue
        path[depth + 1] = target
        for place in range(begins[node], begins[node + 1]):
            targets[tokens[place]] = target
        node += 1
    return targets
