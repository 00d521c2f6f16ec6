"""Forces what ``generate`` writes into a pattern."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LogitsProcessor

from transductor.integrations.huggingface.token_patterns import LEFT, TokenPattern


class PatternMask(LogitsProcessor):  # type: ignore[misc]  # transformers is optional and untyped
    """Sets the scores of tokens that cannot come to −∞: ``generate(…, logits_processor=[PatternMask(…)])``.

    A row's state is found by what the row holds, so rows may change places (beams) and become shorter again (assisted
    and prompt-lookup decoding); only its last token is read if what comes before it is known.

    Beam search fills up with rows of score −∞ where fewer tokens can come than there are beams.  So a row may have left
    the pattern if another row of the same prompt has not; otherwise it is an error.

    Args:
        pattern: What can be written.
        prompt_length: Columns of the prompt, padding included: what comes after them has to fit the pattern.
    """

    supports_continuous_batching = False

    def __init__(self, pattern: TokenPattern, prompt_length: int) -> None:
        if isinstance(prompt_length, bool) or not isinstance(prompt_length, int) or prompt_length < 0:
            raise ValueError(f"prompt_length must be at least 0, the columns of the prompt; got {prompt_length!r}")
        self.pattern, self.prompt_length = pattern, prompt_length
        self._known: dict[bytes, int] = {}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores ``(B, V)``, −∞ for tokens that cannot come after the rows of ``input_ids`` ``(B, T)``."""
        size = self.pattern.vocabulary.size
        if scores.shape[-1] != size:
            raise ValueError(
                f"scores must have {size} columns, one for each token of the pattern's vocabulary; got "
                f"{scores.shape[-1]}: build the pattern with vocab_size={scores.shape[-1]}"
            )
        states = self.states(input_ids)
        if LEFT in states:
            self._refuse(input_ids, states)
        rows = [self.pattern.ceilings(state) for state in states]
        ceilings = rows[0][None] if len(rows) == 1 else torch.stack(rows)
        return torch.minimum(scores, ceilings.to(scores))

    def states(self, input_ids: Tensor) -> list[int]:
        """Return the pattern's state after each row of ``input_ids`` ``(B, T)``."""
        if input_ids.shape[1] < self.prompt_length:
            raise ValueError(
                f"rows must have at least the prompt's {self.prompt_length} tokens; got {input_ids.shape[1]}"
            )
        written = input_ids[:, self.prompt_length :].to("cpu", torch.int64).contiguous().numpy()
        known, after = self._known, self.pattern.after
        states = []
        for row in written:
            key = row.tobytes()
            state = known.pop(key, None)
            if state is None:
                before = known.get(row[:-1].tobytes()) if len(row) > 1 else None
                state = self.pattern.start
                if before is not None:
                    state = after(before, int(row[-1]))
                else:
                    for token in row.tolist():
                        state = after(state, token)
            known[key] = state  # the newest comes last
            states.append(state)
        while len(known) > 64 + 8 * len(states):
            del known[next(iter(known))]
        return states

    def _refuse(self, input_ids: Tensor, states: list[int]) -> None:
        """Raise an error if no row of some prompt is within the pattern."""
        prompts = [tuple(row) for row in input_ids[:, : self.prompt_length].tolist()]
        within = {prompt for prompt, state in zip(prompts, states, strict=True) if state != LEFT}
        for number, (prompt, state) in enumerate(zip(prompts, states, strict=True)):
            if state == LEFT and prompt not in within:
                written = input_ids[number, self.prompt_length :].tolist()
                state, place = self.pattern.start, 0
                while (state := self.pattern.after(state, written[place])) != LEFT:
                    place += 1
                raise ValueError(
                    f"row {number} must fit the pattern after its prompt of {self.prompt_length} tokens; it has left "
                    f"it with token {written[place]} at place {place}: another processor or a wrong prompt_length put "
                    "it there"
                )
