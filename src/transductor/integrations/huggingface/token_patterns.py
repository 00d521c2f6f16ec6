"""A pattern read through a tokenizer: where a text stands in it, and which tokens can come next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata import DFA, NFA
from transductor.checks import check_positive
from transductor.integrations.huggingface.byte_automata import completable, over_characters, valid_byte_table
from transductor.integrations.huggingface.token_automata import TokenAutomaton, compile_for_tokens
from transductor.integrations.huggingface.token_vocabulary import TokenVocabulary

MOST_STATES: Final = 1 << 16
"""States over bytes past which a pattern is refused: their table has 64 MiB."""
LEFT: Final = -1
"""The state of a text that no longer fits the pattern, whatever comes."""
ENDED: Final = -2
"""The state of a text after its end-of-sequence token; what comes then is padding."""


class TokenPattern:
    """A pattern over the tokens of a tokenizer: the state after a text, and the tokens that can come in a state.

    A token can come if some further tokens complete the pattern after it; the end of the text where the pattern is
    complete.  Special tokens, and tokens that spell nothing, can never come.  What is read must be UTF-8.

    Args:
        automaton: A regular expression with the meaning of Python's ``re.fullmatch`` for all of Unicode
            (:func:`~transductor.automata.json_schema.regex_of_json_schema` writes one for a JSON schema); or an
            automaton over characters, whose alphabet holds all characters that can come.
        tokenizer: A tokenizer, or a :class:`TokenVocabulary`, which is built once for many patterns.
        vocab_size: Columns of the model's scores, if they are more than the tokenizer's tokens.
        eos_token_id: The token or tokens that end a text; the tokenizer's own if not given.
        flags: Flags of the regular expression.
        most_bytes: How much memory the masks of states may take, 4·V bytes each.  They are made when a state is first
            met; those that have not been used for longest are made again when they are needed.

    Attributes:
        vocabulary: What the tokens spell.
        start: The state before the first token.
        text_start: The state before the first character; another one if the tokenizer writes a space before a text.
        accepting: ``(S,)`` bool: the states in which the pattern is complete.  The first states are those of the
            automaton over characters, as in :meth:`sidecar`; in the others a character is not yet complete.
    """

    def __init__(
        self,
        automaton: str | DFA | NFA,
        tokenizer: Any,
        *,
        vocab_size: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        flags: int = 0,
        most_bytes: int = 1 << 28,
    ) -> None:
        check_positive("most_bytes", most_bytes)
        if not isinstance(tokenizer, TokenVocabulary):
            tokenizer = TokenVocabulary(tokenizer, vocab_size=vocab_size, eos_token_id=eos_token_id)
        elif vocab_size is not None or eos_token_id is not None:
            raise ValueError("vocab_size and eos_token_id must be given to the TokenVocabulary")
        self.vocabulary: TokenVocabulary = tokenizer
        self._source, self._flags = automaton, flags
        dfa, letters = over_characters(automaton, "dead", flags)
        table = valid_byte_table(dfa, letters, MOST_STATES)
        accepting = np.zeros(len(table), dtype=np.bool_)
        accepting[: dfa.states] = dfa.accepting_mask()
        if not accepting[dfa.start] and (table[dfa.start] < 0).all():
            raise ValueError(f"pattern must match some text; {_shown(automaton)} matches none")
        self.start = self.text_start = dfa.start
        self._between = dfa.states  # states from here on stand within a character
        if self.vocabulary.leading_space:  # a state that also reads this space
            self.start = len(table)
            table = np.concatenate((table, table[dfa.start :][:1]))
            table[-1, ord(" ")] = dfa.start
            accepting = np.append(accepting, accepting[dfa.start])
        self._table, self._accepting = table, accepting
        self._alive = self._completable_by_tokens()
        if not self._alive[self.start]:
            raise ValueError(f"the tokenizer must be able to spell a text of {_shown(automaton)}; it cannot spell any")
        self.accepting = torch.from_numpy(accepting)
        self._rows: OrderedDict[int, Tensor] = OrderedDict()
        self._most_rows = max(1, most_bytes // (4 * self.vocabulary.size))

    def after_bytes(self, state: int, spelled: bytes) -> tuple[int, int]:
        """Return the state after some bytes, LEFT if not all of them could come, and how many characters they end."""
        step, characters = self._table.item, 0
        for byte in spelled:
            state = step(state, byte) if state >= 0 else state
            if state < 0:
                break
            characters += state < self._between
        return state, characters

    def after(self, state: int, token: int) -> int:
        """Return the state after a token: LEFT if it could not come, ENDED after an end or padding."""
        if state < 0:
            return state
        if token in self.vocabulary.ends:
            return ENDED if self._accepting[state] else LEFT
        spelled = self.vocabulary.bytes_of(token)
        if not spelled:
            return ENDED if token == self.vocabulary.padding else LEFT
        state, _ = self.after_bytes(state, spelled)
        return state if state >= 0 and self._alive[state] else LEFT

    def allowed(self, state: int) -> Tensor:
        """Return ``(V,)`` bool: the tokens that can come.  After the end, and beyond the pattern, only an end can."""
        return self.ceilings(state) > 0

    def ceilings(self, state: int) -> Tensor:
        """Return ``(V,)`` what scores are cut to: +∞ for tokens that can come, −∞ for all others.

        On a CPU the minimum of two rows is many times faster than filling one under a mask of mixed bits.  The tensor
        is kept for the next time; it must not be changed.
        """
        row = self._rows.get(state)
        if row is not None:
            self._rows.move_to_end(state)
            return row
        ceilings = np.full(self.vocabulary.size, -np.inf, dtype=np.float32)
        if state >= 0:
            targets = self.vocabulary.targets(self._table, state)
            ceilings[(targets >= 0) & self._alive[targets]] = np.inf
        if state < 0 or self._accepting[state]:
            ceilings[list(self.vocabulary.ends)] = np.inf
        self._rows[state] = torch.from_numpy(ceilings)
        if len(self._rows) > self._most_rows:
            self._rows.popitem(last=False)
        return self._rows[state]

    def sidecar(self, **options: Any) -> TokenAutomaton:
        """Return the same automaton as a frozen head: after complete characters its state is this pattern's.

        Args:
            options: ``special_tokens`` of :func:`compile_for_tokens`, and options of :func:`~transductor.compile_head`.
        """
        others: dict[str, Any] = {"others": "dead", "flags": self._flags, "vocab_size": self.vocabulary.size}
        return compile_for_tokens(self._source, self.vocabulary.tokenizer, **others, **options)

    def _completable_by_tokens(self) -> NDArray[np.bool_]:
        """Return the states from which tokens, not only bytes, complete the pattern.

        If single bytes are tokens, as in byte-level vocabularies, this is what bytes complete, and no tree is walked.
        """
        can_come = self._table >= 0
        by_bytes = can_come.any(1) | self._accepting  # the table leads only to states that bytes complete
        single = np.zeros(256, dtype=np.bool_)
        single[[each[0] for each in self.vocabulary.spelled if each is not None and len(each) == 1]] = True
        if single[can_come.any(0)].all():
            return by_bytes
        alive = completable(np.where(single, self._table, -1), self._accepting)
        unclear = np.flatnonzero(by_bytes & ~alive)
        edges = {state: np.unique(self.vocabulary.targets(self._table, state)) for state in unclear.tolist()}
        while True:
            new = [state for state, targets in edges.items() if alive[targets[targets >= 0]].any()]
            if not new:
                return alive
            for state in new:
                alive[state] = True
                del edges[state]


def _shown(automaton: Any) -> str:
    return f"{automaton!r:.60}" if isinstance(automaton, str) else "the automaton"
