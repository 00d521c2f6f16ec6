"""Traces of a Python prompt: assignments, swaps of which some names are hidden, and prints that reveal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.hidden_process import MARGIN
from transductor.tasks.sampling import check_probability

MOST_VARIABLES = 6  # the belief is over all orders of the values, 720 of them
LINE = 3  # tokens


@final
@configuration
@dataclass(frozen=True)
class ReplTraces(Task):
    """A Python prompt: ``a = 3``, ``a, b = b, a``, ``print(a)``; the label is the value that must be printed next.

    First every variable, in order, is assigned another value, all orders being equally likely.  The line after that is
    a print; each later one is a print with probability ``prints``, of any variable, else it swaps two variables.  Of a
    swap each name is hidden with probability ``hidden``, independently, so what is printed later may be uncertain, and
    a print makes it more certain.  This is the setting of "Learning state-tracking from code" (arXiv 2602.14814).

    Every line is three tokens: ``set a 3``, ``swap a b``, ``print a 3``.  Tokens are the variables ``0 … K − 1``, the
    values ``K … 2K − 1``, the hidden name ``2K``, then ``set``, ``swap`` and ``print``; :meth:`decoded` writes them
    as a prompt does.

    A label stands where a value is to be printed next, that is at the variable after ``print``, and is the token of the
    likeliest value; of equally likely ones the first.  From the first token on that could not have been drawn, a wrong
    value say, there are none.  Models are trained on the next token, whatever it is: :meth:`drawn` gives it, and
    :meth:`next_tokens` the exact distribution it was drawn from, so that nothing has a smaller loss than
    :meth:`least_loss`.

    Args:
        variables: Number of variables and of values K, 2 to 6.
        prints: Probability that a line is a print, above 0 and below 1.
        hidden: Probability that a name in a swap is hidden, below 1.
    """

    variables: int = 5
    prints: float = 0.2
    hidden: float = 0.1
    title: ClassVar[str] = "traces of a prompt, {variables} variables, prints {prints:g}, hidden {hidden:g}"

    def __post_init__(self) -> None:
        if not isinstance(self.variables, int) or not 2 <= self.variables <= MOST_VARIABLES:
            raise ValueError(f"variables must be an integer from 2 to {MOST_VARIABLES}; got {self.variables!r}")
        check_probability("prints", self.prints)
        check_probability("hidden", self.hidden)
        if self.prints in (0, 1):
            raise ValueError(f"prints must be above 0 and below 1, or nothing is tracked; got {self.prints!r}")
        if self.hidden == 1:
            raise ValueError("hidden must be below 1, or all swaps look alike")

    @property
    def vocab_size(self) -> int:
        """Variables, values, a hidden name, and three statements."""
        return 2 * self.variables + 4

    @property
    def output_size(self) -> int:
        """As many as tokens: a label is a token."""
        return self.vocab_size

    @property
    def shortest(self) -> int:
        """All assignments, and a print without its value."""
        return LINE * self.variables + 2

    @property
    def _statements(self) -> tuple[int, int, int]:
        """The tokens of ``set``, ``swap`` and ``print``."""
        hidden = 2 * self.variables
        return hidden + 1, hidden + 2, hidden + 3

    def drawn(self, batch_size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens ``(B, T)`` and the token after each ``(B, T)``, to be trained on as a language model is."""
        self._check_length(length)
        count, lines = self.variables, length // LINE + 1
        shape = (batch_size, lines)
        assign, swap, reveal = self._statements

        def happens(probability: float) -> Tensor:
            return torch.rand(shape, generator=generator, dtype=torch.float64) < probability

        values = torch.rand(batch_size, count, generator=generator, dtype=torch.float64).argsort(1)
        printed = happens(self.prints)
        printed[:, : count + 1] = True  # no swap among the assignments, nor in the line after them
        first = torch.randint(0, count, shape, generator=generator)
        first[:, :count] = torch.arange(count)
        second = (first + torch.randint(1, count, shape, generator=generator)) % count
        pairs = torch.stack((first, torch.where(printed, first, second)), 2)
        shown = torch.empty(shape, dtype=torch.long)
        for line in range(lines):
            pair = pairs[:, line]
            values = values.scatter(1, pair, values.gather(1, pair.flip(1)))
            shown[:, line] = values.gather(1, first[:, line, None])[:, 0]
        hide_first, hide_second = happens(self.hidden) & ~printed, happens(self.hidden)
        statement = torch.where(printed, reveal, swap)
        statement[:, :count] = assign
        last = torch.where(printed, count + shown, torch.where(hide_second, 2 * count, second))
        trace = torch.stack((statement, torch.where(hide_first, 2 * count, first), last), 2).flatten(1)
        return trace[:, :length], trace[:, 1 : length + 1]

    def next_tokens(self, tokens: Tensor) -> Tensor:
        """Return how likely each token is to come next, after each position of ``tokens`` ``(B, T)``.

        The result is ``(B, T, V)`` in float64.  It is the exact distribution, given the tokens so far; where they could
        not have been drawn, it is zero.
        """
        self._check_tokens(tokens)
        tokens = tokens.long()
        batch_size, length = tokens.shape
        if length == 0:
            return torch.zeros(batch_size, 0, self.vocab_size, dtype=torch.float64)
        count, lines = self.variables, length // LINE + 1
        padded = torch.cat((tokens, tokens.new_zeros(batch_size, LINE * lines - length)), 1)
        statement, first, second = padded.unflatten(1, (lines, LINE)).unbind(2)
        _, swap, _ = self._statements
        likely = torch.zeros(batch_size, LINE * lines, self.vocab_size, dtype=torch.float64)
        orders, _ = _orders(count)
        # Whether an order of values gives a variable a value, (variable · K + value, orders).
        has_value = torch.nn.functional.one_hot(orders, count).double().flatten(1).mT.contiguous()
        belief = likely.new_full((batch_size, len(orders)), 1 / len(orders))
        names, hides = self._names()
        rows = torch.arange(batch_size)
        for line in range(lines):
            at, swaps = LINE * line, statement[:, line] == swap
            if line:
                likely[:, at - 1] = self._next_statement(line)
            likely[:, at] = self._next_name(line)[statement[:, line].clamp(min=2 * count) - 2 * count]
            name = first[:, line].clamp(max=count)
            variable = name.clamp(max=count - 1)
            value = (belief @ has_value.mT).unflatten(1, (count, count))[rows, variable]
            likely[:, at + 1, count : 2 * count] = torch.where(swaps[:, None], 0.0, value)
            likely[:, at + 1] += swaps[:, None] * names[name]
            told = variable * count + (second[:, line] - count).clamp(0, count - 1)
            after = belief * has_value[told]
            if bool(swaps.any()):
                after[swaps] = self._swapped(belief[swaps], name[swaps], hides[second[swaps, line]])
            # A row of zeros, which could not have been drawn, stays one.
            belief = after / after.sum(1, keepdim=True).clamp_min(1e-300)
        likely = likely[:, :length]
        came = likely[:, :-1].gather(2, tokens[:, 1:, None])[..., 0] > 0
        possible = torch.cat((tokens[:, :1] == self._statements[0], came), 1).long().cumprod(1)
        return likely * possible[..., None]

    def least_loss(self, tokens: Tensor) -> float:
        """Return the mean entropy of the next token in nats: no prediction's expected loss is smaller."""
        right = self.next_tokens(tokens)
        return float(-right.xlogy(right).sum() / right.sum())

    def excess(self, logits: Tensor, tokens: Tensor) -> float:
        """Return by what share of the least loss predictions ``(B, T, V)`` are worse: KL over the entropy."""
        right = self.next_tokens(tokens)
        least = -right.xlogy(right).sum()
        # Where a probability is zero, so is its part of the loss, even if the prediction's logarithm is −∞.
        said = torch.log_softmax(logits.double(), -1)
        loss = -torch.where(right > 0, right * said, 0.0).sum()
        return float((loss - least) / least)

    def decoded(self, tokens: Tensor) -> str:
        """Return one row of tokens ``(T,)`` as a prompt shows it; ``?`` is a hidden name, ``…`` is still to come."""
        count = self.variables
        assign, swap, reveal = self._statements
        words = [*"abcdef"[:count], *map(str, range(count)), "?", "set", "swap", "print"]
        said = [words[token] for token in tokens.tolist()]
        rows = []
        for start in range(0, len(said), LINE):
            statement, (name, last) = tokens[start], [*said[start + 1 : start + LINE], "…", "…"][:2]
            if statement == assign:
                rows.append(f">>> {name} = {last}")
            elif statement == swap:
                rows.append(f">>> {name}, {last} = {last}, {name}")
            else:
                rows += [f">>> print({name})", last] if statement == reveal else [" ".join(said[start : start + LINE])]
        return "\n".join(rows)

    def _next_statement(self, line: int) -> Tensor:
        """Return the distribution of the first token of a line, ``(V)``."""
        assign, swap, reveal = self._statements
        likely = torch.zeros(self.vocab_size, dtype=torch.float64)
        if line < self.variables:
            likely[assign] = 1
        elif line == self.variables:
            likely[reveal] = 1
        else:
            likely[swap], likely[reveal] = 1 - self.prints, self.prints
        return likely

    def _next_name(self, line: int) -> Tensor:
        """Return the distribution of a line's second token, ``(4, V)``: after ``?``, ``set``, ``swap``, ``print``.

        A line does not begin with ``?``; the first row is zero.
        """
        count = self.variables
        likely = torch.zeros(4, self.vocab_size, dtype=torch.float64)
        likely[1, min(line, count - 1)] = 1
        likely[2, :count], likely[2, 2 * count] = (1 - self.hidden) / count, self.hidden
        likely[3, :count] = 1 / count
        return likely

    def _names(self) -> tuple[Tensor, Tensor]:
        """Return the distribution of a swap's second name after each first, ``(K + 1, V)``, and tokens as names.

        Name K is the hidden one; a token that is no name counts as hidden, in a row that is impossible anyway.
        """
        count = self.variables
        likely = torch.zeros(count + 1, self.vocab_size, dtype=torch.float64)
        likely[:count, :count] = (1 - self.hidden) / (count - 1) * (1 - torch.eye(count, dtype=torch.float64))
        likely[count, :count] = (1 - self.hidden) / count
        likely[:, 2 * count] = self.hidden
        return likely, torch.arange(self.vocab_size).clamp(max=count)

    def _swapped(self, belief: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return the belief ``(B, orders)`` after a swap of two names ``(B,)``, of which K is a hidden one."""
        count = self.variables
        _, exchanged = _orders(count)
        pairs = torch.tensor(list(combinations(range(count), 2))).T
        weights = torch.zeros(len(first), pairs.shape[1], dtype=torch.float64)
        for x, y in (pairs, pairs.flip(0)):  # a pair can be meant both ways round; a name that is shown is its own
            fits = (first[:, None] == x) | (first[:, None] == count)
            weights += fits & ((second[:, None] == y) | (second[:, None] == count))
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1)
        known = (weights == 1).any(1)
        after = belief.gather(1, exchanged[weights.argmax(1)])
        if not bool(known.all()):
            rows = (~known).nonzero()[:, 0]
            after[rows] = torch.einsum("bp,bpo->bo", weights[rows], belief[rows][:, exchanged])
        return after

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return self.drawn(batch_size, length, generator)[0]

    def _labels(self, tokens: Tensor) -> Tensor:
        count, (_, _, reveal) = self.variables, self._statements
        likely = self.next_tokens(tokens)[..., count : 2 * count]
        best = count + (likely >= likely.amax(-1, keepdim=True) - MARGIN).int().argmax(-1)
        asked = torch.zeros_like(tokens, dtype=torch.bool)
        asked[:, 1::LINE] = (tokens[:, :-1] == reveal)[:, ::LINE]
        return torch.where(asked & (likely.sum(-1) > 0), best, IGNORED)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        """Return traces on which one wrong swap shows at the end, or in which nothing is ever certain again."""
        count = self.variables
        ring = [(place, (place + 1) % count) for place in range(count)]
        kinds: dict[str, Sequence[int]] = {
            "no print until the end": self._trace(ring, length),
            "two variables swapped over and over": self._trace([(0, 1)], length),
            "a swap and a print by turns": self._trace([(0, 1), 0, (count - 2, count - 1), 1], length),
            "only prints": self._trace(list(range(count)), length),
            "always the same print": self._trace([*ring, 0], length),
        }
        if self.hidden:
            kinds["every swap half hidden"] = self._trace([*ring, *range(count)], length, hide=(1,))
            kinds["every swap hidden, one variable printed"] = self._trace([*ring, 0], length, hide=(0, 1))
            kinds["one swap hidden, then all in sight"] = self._trace(ring, length, hide=(0, 1), once=True)
        return kinds

    def _trace(
        self, body: Sequence[int | tuple[int, int]], length: int, hide: Sequence[int] = (), once: bool = False
    ) -> list[int]:
        """Write a trace whose lines repeat ``body``: a variable to be printed, or a pair to be swapped.

        The values are in order at first, and the last line whose variable has room is a print.

        Args:
            body: What the lines do, over and over.
            length: Number of tokens.
            hide: Which names of a swap are hidden: 0 for the first, 1 for the second.
            once: Whether only the first swap is hidden.
        """
        count, hidden_name = self.variables, 2 * self.variables
        assign, swap, reveal = self._statements
        values = list(range(count))
        lines = [[assign, place, count + place] for place in range(count)]
        lines.append([reveal, 0, count])
        last = (length - 2) // LINE
        while len(lines) <= length // LINE:
            act = body[(len(lines) - count - 1) % len(body)]
            if len(lines) == last:
                act = 0 if isinstance(act, tuple) else act
            if isinstance(act, int):
                lines.append([reveal, act, count + values[act]])
                continue
            x, y = act
            values[x], values[y] = values[y], values[x]
            covered = hide if not once or len(lines) == count + 1 else ()
            lines.append([swap, *(hidden_name if place in covered else name for place, name in enumerate(act))])
        return [token for line in lines for token in line][:length]


@cache
def _orders(count: int) -> tuple[Tensor, Tensor]:
    """Return all orders of the values, ``(orders, K)``, and the order that each pair's swap makes of each."""
    orders = list(permutations(range(count)))
    number = {order: place for place, order in enumerate(orders)}
    exchanged = []
    for x, y in combinations(range(count), 2):
        swap = {x: y, y: x}
        exchanged.append([number[tuple(order[swap.get(name, name)] for name in range(count))] for order in orders])
    return torch.tensor(orders), torch.tensor(exchanged)
