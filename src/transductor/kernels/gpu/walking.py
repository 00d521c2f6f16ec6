"""The scan by walks over words, for many rows: which passes run, over what, in which order.

Forward: the table of all words; one walk per row, which leaves the state after every word; one pass per letter for
the states inside words.  Backward: what every word adds to the adjoint, one pass per letter; one walk; one pass per
letter, which also sums the gradient of the table.  No matrix is multiplied with another but for the table of words.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from transductor.kernels.gpu import cuts, matrix_gradients
from transductor.kernels.gpu.launch import launch
from transductor.kernels.gpu.letters import letter_steps
from transductor.kernels.gpu.passes import Passes
from transductor.kernels.gpu.walk import walk
from transductor.kernels.gpu.word_tables import word_table
from transductor.kernels.gpu.words import spelled


def _compiles(device: torch.device) -> bool:
    """Tell whether kernels are compiled, and not run by Triton's interpreter, which knows no machine instructions."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET", "0") != "1"


class Walk:
    """The launches of one scan by words of ``letters`` tokens."""

    def __init__(self, passes: Passes, letters: int) -> None:
        assert passes.tokens is not None
        self.passes, self.letters = passes, letters
        self.base = passes.symbols + (passes.mask is not None)
        self.count = self.base**letters
        self.block = max(16, passes.block)
        self.words = cuts.ceiling(passes.time, letters)
        self.chosen = torch.empty(
            passes.batch * (self.words + 1), dtype=torch.int32, device=passes.initial.device
        )  # fmt: skip

    def spelled(self, words: int, shift: int) -> Tensor:
        """Return the words ``(B, words)`` that begin ``shift`` positions after the multiples of their length."""
        passes, tile = self.passes, 256
        words = max(words, 1)
        out = torch.empty(passes.batch, words, dtype=torch.int32, device=passes.initial.device)
        launch(
            spelled, (cuts.ceiling(out.numel(), tile),),
            passes.tokens, passes.mask, out, words, out.numel(), passes.time, shift, passes.symbols,
            self.base, self.count,
            LETTERS=self.letters, TILE=tile, MASKED=passes.mask is not None, warps=4,
        )  # fmt: skip
        return out

    def forward(self, additive: Tensor | None) -> Tensor:
        """Compute all states ``(B, T, D)``."""
        passes, letters, time = self.passes, self.letters, self.passes.time
        states = passes.empty(passes.batch, time, passes.dim)
        if additive is not None and passes.mask is not None:
            additive = additive.where(passes.mask.view(torch.bool).unsqueeze(-1), 0.0)
        responses = None if additive is None else self._responses(additive, reverse=False)
        full = time // letters
        self._walk(self.spelled(full, 0), full, responses, additive, states, None, reverse=False)
        for letter in range(letters - 1):
            self._letter(
                letter, self.words, states, (time, letters, letter - 1), states, (time, letters, letter), additive,
                reverse=False, from_initial=letter == 0,
            )  # fmt: skip
        return states

    def backward(
        self, states: Tensor, grad: Tensor, to_initial: Tensor, *, wants_matrices: bool, wants_bias: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Compute the gradients of the table and of the additive term, and write that of the initial states."""
        passes, letters, words = self.passes, self.letters, self.words
        responses = self._responses(grad, reverse=True)
        adjoints = responses if letters > 1 else torch.empty_like(grad)
        self._walk(self.spelled(words - 1, 1), words - 1, responses, grad, adjoints, to_initial, reverse=True)
        if not (wants_matrices or wants_bias):
            return None, None
        if letters == 1:
            to_matrices = None
            if wants_matrices:
                to_matrices = matrix_gradients.by_token(passes, states, adjoints.view(-1, passes.dim), 0)
            if wants_bias and passes.mask is not None:
                adjoints.mul_(passes.mask.unsqueeze(-1))
            return to_matrices, adjoints if wants_bias else None
        every = torch.empty_like(grad) if wants_bias else None
        sums = None
        if wants_matrices:
            room = matrix_gradients.room_for_sums(states) // (passes.symbols * passes.dim**2)
            spans = cuts.ceiling(passes.batch * (words + 1), cuts.letter_tiles(self.block, passes.symbols)[0])
            sums = passes.empty(max(1, min(room, spans)), passes.symbols, passes.dim, passes.dim)
        inside = torch.empty_like(adjoints)
        rows = words, 1, 0
        for letter in (0, *range(letters - 1, 0, -1)):
            first = letter == 0
            self._letter(
                letter, words + first, adjoints if first else inside, rows, inside, (words, 1, -1 if first else 0),
                grad, reverse=True, steps=letter != 1 or wants_bias, every=every, states=states, sums=sums,
                more=not first,
            )  # fmt: skip
        return None if sums is None else matrix_gradients.over_parts(passes, sums), every

    def _responses(self, additive: Tensor, *, reverse: bool) -> Tensor:
        """Compute the state after every word that begins from zero (reversed: the adjoint before it): ``(B, W, D)``."""
        passes, letters, words = self.passes, self.letters, self.words
        if letters == 1:
            return additive
        out = passes.empty(passes.batch, words, passes.dim)
        order = range(letters - 1, 0, -1) if reverse else range(1, letters)
        for turn, letter in enumerate(order):
            source, rows = out, (words, 1, 0)
            if turn == 0:
                source, rows = additive, (passes.time, letters, letters - 1 if reverse else 0)
            self._letter(letter, words, source, rows, out, (words, 1, 0), additive, reverse=reverse)
        return out

    def _walk(
        self,
        spelled_words: Tensor,
        steps: int,
        responses: Tensor | None,
        terms: Tensor | None,
        out: Tensor,
        to_initial: Tensor | None,
        *,
        reverse: bool,
    ) -> None:
        passes = self.passes
        table = word_table(
            passes.matrices, self.letters, "columns" if reverse else "rows", identity=passes.mask is not None,
            block=self.block, work=passes.work,
        )  # fmt: skip
        warps, ahead = cuts.walk_shape(self.block)
        launch(
            walk, (passes.batch,),
            table, spelled_words, passes.matrices, passes.tokens, passes.mask, passes.initial, responses, terms,
            out, to_initial, steps, self.words, passes.time, passes.symbols,
            D=passes.dim, BLOCK=self.block, AHEAD=ahead, LETTERS=self.letters, ADDITIVE=terms is not None,
            MASKED=passes.mask is not None, REVERSED=reverse, DIRECT=_compiles(out.device), ACC=passes.acc,
            warps=warps,
        )  # fmt: skip

    def _letter(
        self,
        letter: int,
        words: int,
        source: Tensor,
        source_rows: tuple[int, int, int],
        out: Tensor,
        out_rows: tuple[int, int, int],
        additive: Tensor | None,
        *,
        reverse: bool,
        from_initial: bool = False,
        steps: bool = True,
        every: Tensor | None = None,
        states: Tensor | None = None,
        sums: Tensor | None = None,
        more: bool = False,
    ) -> None:
        """Take the step of one letter of all words; the places are those of :func:`letter_steps`."""
        passes = self.passes
        items = passes.batch * words
        span, tile, warps = cuts.letter_tiles(self.block, passes.symbols)
        spans = cuts.ceiling(items, span) if sums is None else len(sums)
        launch(
            letter_steps, (passes.symbols + 1, spans),
            passes.matrices, passes.tokens, passes.mask, source, passes.initial, additive, out, every, states, sums,
            self.chosen, items, cuts.ceiling(items, spans), words, passes.time, passes.symbols, letter,
            *source_rows, *out_rows,
            D=passes.dim, BLOCK=self.block, TILE=tile, LETTERS=self.letters, SHIFT=-1 if reverse else 0,
            FROM_INITIAL=from_initial, ADDITIVE=additive is not None, MASKED=passes.mask is not None, REVERSED=reverse,
            STEPS=steps, EVERY=every is not None, SUMS="" if sums is None else "more" if more else "new",
            PRECISION=passes.precision, ACC=passes.acc, warps=warps,
        )  # fmt: skip
