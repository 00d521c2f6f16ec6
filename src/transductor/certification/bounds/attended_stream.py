"""A residual stream with attention, for words of every length: by how much the right label is ahead.

After hardening, what enters the first layer is one of finitely many vectors, one for each pair of a token and a head's
output.  Attention adds a point of the convex hull of values to each; the set of vectors that a pair can then become is
followed through the layers.  In the second layer the values are themselves such sets, and so on.  Nothing depends on
the length, except for the rounding of attention's own sums:

1. *for all lengths*, with the average that attention takes in exact arithmetic and everything else in floating point;
2. *up to a length* that is computed, with everything in floating point.  In a sliding window there are at most twice
   the window's keys, whatever the length of the word, and the second part holds for all lengths too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from transductor.automata.moore import IGNORED
from transductor.certification.ball_arithmetic import UNIT, Array, Ball, upper
from transductor.certification.bounds.attention_hull import Hull, average_error
from transductor.certification.bounds.stream_sets import Arithmetic, Rows, gelu, linear, normed

_NUMBERS_AT_ONCE: Final = 1 << 22  # of the largest array
_FREE_SYMBOLS: Final = 4  # times the width, at the beginning of a layer
_SHARE: Final = 16  # a float length is at most one part in so many below the greatest
# The sets of all pairs in groups, the hulls of every layer, and the least length of a stream in every layer.
_Walk: TypeAlias = tuple[list[tuple[slice, Rows]], list[list[Hull]], list[float]]


@dataclass(frozen=True, eq=False)
class AttendedLogits:
    """By how much the right logit is ahead of every rival, on every word, at least.

    Attributes:
        edge: ``(R)``, the edge of each comparison.
        rival: ``(R)``, the wrong label.
        gap: ``(R)``: the least value of the right logit less the rival's, for all lengths, with the averages of
            attention in exact arithmetic and all else in the model's.
        centre: ``(R)``: the same at the centre of all hulls, where attention is constant.
        by_attention: ``(R)``: what the hulls take away directly; linearisation and rounding take the rest.
        float_length: Up to this length no gap closes when attention rounds as well; 0 where there is none.  None: at
            every length.
        float_gap: The least gap at that length.
        widths: For each layer, how far attention can move a stream from its centre, and how long the shortest stream
            is, both as Euclidean lengths.  Where the first is not small beside the second, the hull is too wide.
    """

    edge: Array
    rival: Array
    gap: Array
    centre: Array
    by_attention: Array
    float_length: int | None
    float_gap: float
    widths: tuple[tuple[float, float], ...]

    @property
    def worst(self) -> float:
        """The least gap of all; infinity where no edge has a label."""
        return float(self.gap.min(initial=np.inf))

    @property
    def holds(self) -> bool:
        """Whether every label is right at every length, with attention's averages in exact arithmetic."""
        return bool((self.gap > 0).all())

    @property
    def proved(self) -> bool:
        """Whether every label is right at every length with all operations rounded."""
        return self.holds and self.float_length is None

    def __str__(self) -> str:
        if not len(self.gap):
            return "no edge has a label"
        at = int(np.argmin(self.gap))
        centre, gap, direct = (float(part[at]) for part in (self.centre, self.gap, self.by_attention))
        taken = centre - gap
        width = f"the least gap is {gap:.3g}"
        if np.isfinite(taken) and taken > 0:
            share = f"{direct / taken:.0%} of it directly by attention"
            width += f": {centre:.3g} where attention is constant, less {taken:.3g}, {share}"
        if not self.holds:
            beside = "; ".join(f"{moved:.3g} beside {size:.3g}" for moved, size in self.widths)
            return (
                f"the hull of attention is too wide: it can move a stream, layer by layer, by {beside}; {width} "
                f"(edge {int(self.edge[at])})"
            )
        if self.float_length is None:
            return f"right at all lengths, rounding included; {width}"
        return f"right at all lengths with exact averages, in floats up to {self.float_length} tokens; {width}"


@dataclass(frozen=True, eq=False)
class AttendedStream:
    """The arrays of a stream with attention, and the pairs of a token and a head's output that can enter it.

    Attributes:
        tensors: By the names of :func:`~transductor.certification.attention_tensors.attention_tensors`.
        attention_heads: Heads of every layer.
        window: How many positions each looks at, or None for all.
        precision: The dtype of everything but the head.
        letters: ``(E)``, the token of each pair.
        outputs: ``(E, D)``, the exact output of the head.
        sees: ``(E, E)``, which pairs may stand at or before a position with a given pair, as far as it looks; None for
            all of them.
    """

    tensors: Mapping[str, Array]
    attention_heads: int
    window: int | None
    precision: str
    letters: Array
    outputs: Array
    sees: Array | None = None

    def __post_init__(self) -> None:
        count = len(self.letters)
        if self.outputs.ndim != 2 or len(self.outputs) != count or not count:
            raise ValueError(f"letters must be (E,) and outputs (E, D); got {self.letters.shape}, {self.outputs.shape}")
        if self.sees is not None and (self.sees.shape != (count, count) or not self.sees.diagonal().all()):
            raise ValueError(f"sees must be {(count, count)} and true on its diagonal; got {self.sees.shape}")
        if self.width % self.attention_heads:
            raise ValueError(f"attention_heads must divide {self.width}; got {self.attention_heads}")
        unfit = [name for name, values in self.tensors.items() if not np.isfinite(values).all()]
        if unfit:
            raise ValueError(f"{unfit[0]} must hold finite numbers; it has NaN or infinity")

    @property
    def width(self) -> int:
        """The width of the stream."""
        return int(self.tensors["embedding"].shape[1])

    @property
    def layers(self) -> int:
        """How many blocks there are."""
        return sum(name.endswith(".into.weight") for name in self.tensors)

    def error_of_averages(self, length: int | None) -> tuple[float, float]:
        """Return how far an average may be from the hull, relative and absolute; None: exact, then rounded once."""
        arithmetic = Arithmetic.of(self.precision)
        if length is None:
            return 4 * arithmetic.unit, arithmetic.tiny
        keys = length if self.window is None else min(length, 2 * self.window)
        return average_error(keys, arithmetic.unit), 4 * (keys + 16) * arithmetic.tiny

    @np.errstate(all="ignore")
    def gaps(self, right: Array, rivals: Array, length: int | None) -> tuple[Array, Array, Array]:
        """Return least gaps, gaps at the centre and what attention takes, ``(E, R)``, for rivals ``(E, R)`` of ``(E)``.

        Args:
            right: The right label of each pair; with one logit, 1 where it must be positive.
            rivals: Its wrong labels.
            length: How long words may be when averages round; None for averages in exact arithmetic.
        """
        weight, bias = self._part("readout.weight"), self._part("readout.bias")
        if len(bias) == 1:
            sign = np.where(right == 1, 1.0, -1.0)[:, None]
            rows, constant = sign[..., None] * weight, sign * bias
            sizes = np.abs(rows), np.abs(constant)
        else:
            rows, constant = weight[right[:, None]] - weight[rivals], bias[right[:, None]] - bias[rivals]
            # The right logit and the rival's round apart.
            of_weight, of_bias = (np.abs(part[right[:, None]]) + np.abs(part[rivals]) for part in (weight, bias))
            sizes = of_weight, of_bias
        out = []
        for pairs, stream in self._final(length):
            of_pairs = sizes[0][pairs], sizes[1][pairs]
            gap = linear(stream, rows[pairs], constant[pairs], self._arithmetic, of_pairs)
            least = gap.centre - gap.deviations()[0]
            out.append((least - 4 * UNIT * (np.abs(gap.centre) + np.abs(least)), gap.centre, gap.from_attention()))
        least, centre, direct = (np.concatenate(parts) for parts in zip(*out, strict=True))
        return np.where(np.isnan(least), -np.inf, least), centre, direct

    @np.errstate(all="ignore")
    def logits(self, length: int | None = None) -> Ball:
        """Return all logits ``(E, K)`` that a pair can have; with ``length``, averages round as well, up to there."""
        balls = []
        for _, stream in self._final(length):
            rows = linear(stream, self._part("readout.weight"), self._part("readout.bias"), self._arithmetic)
            below, above = rows.deviations()
            centre = rows.centre + 0.5 * (above - below)
            balls.append(Ball(centre, np.asarray(upper(0.5 * (above + below) + 8 * UNIT * rows.largest(), 8))))
        centre, radius = (np.concatenate([getattr(ball, part) for ball in balls]) for part in ("centre", "radius"))
        known = np.isfinite(centre) & np.isfinite(radius)
        return Ball(np.where(known, centre, 0.0), np.where(known, radius, np.inf))

    @np.errstate(all="ignore")
    def hulls(self, length: int | None = None) -> list[list[Hull]]:
        """Return the hull of every attention head of every layer."""
        return self._walked(length)[1]

    @np.errstate(all="ignore")
    def widths(self) -> tuple[tuple[float, float], ...]:
        """Return, for each layer, how far attention can move a stream, and how long the shortest stream is."""
        _, hulls, lengths = self._exact_walk
        out = []
        for layer, (of_layer, length) in enumerate(zip(hulls, lengths, strict=True)):
            moved = self._averages(1, [replace(hull, seen=None) for hull in of_layer])
            below, above = self._linear(moved, f"block{layer}.output").deviations()
            far = float(np.linalg.norm(np.maximum(below, above)))
            out.append((np.inf if np.isnan(far) else far, length))
        return tuple(out)

    @property
    def _arithmetic(self) -> Arithmetic:
        return Arithmetic.of(self.precision)

    def _part(self, name: str) -> Array:
        return self.tensors[name].astype(np.float64)

    def _final(self, length: int | None) -> list[tuple[slice, Rows]]:
        return [(pairs, self._normed(rows.absorbed(), "norm")) for pairs, rows in self._walked(length)[0]]

    def _walked(self, length: int | None) -> _Walk:
        return self._exact_walk if length is None else self._walk(length)

    @cached_property
    def _exact_walk(self) -> _Walk:
        return self._walk(None)

    def _walk(self, length: int | None) -> _Walk:
        """Follow all pairs through all layers; return their sets, in groups, the hulls, and the least lengths."""
        columns = self.width * (_FREE_SYMBOLS + 2 * self.layers + 8)
        hidden = len(self._part("block0.into.bias"))
        size = max(1, _NUMBERS_AT_ONCE // (columns * hidden))
        groups = [slice(first, first + size) for first in range(0, len(self.letters), size)]
        streams = [Rows.exactly(self._part("embedding")[self.letters[pairs]]) for pairs in groups]
        relative, absolute = self.error_of_averages(length)
        hulls: list[list[Hull]] = []
        lengths: list[float] = []
        for layer in range(self.layers):
            streams = [self._injected(rows, layer, pairs) for rows, pairs in zip(streams, groups, strict=True)]
            streams = [rows.reduced(_FREE_SYMBOLS * self.width).absorbed() for rows in streams]
            centres = np.concatenate([rows.centre for rows in streams])
            lengths.append(float(np.linalg.norm(centres - centres.mean(1, keepdims=True), axis=1).min()))
            edges = [self._value_boxes(rows, layer) for rows in streams]
            low, high = (np.concatenate(parts) for parts in zip(*edges, strict=True))
            per_head = self.width // self.attention_heads
            hulls.append(
                [
                    Hull.around(
                        low[:, first : first + per_head],
                        high[:, first : first + per_head],
                        relative=relative,
                        absolute=absolute,
                        seen=self.sees,
                    )
                    for first in range(0, self.width, per_head)
                ]
            )
            streams = [
                self._block(rows, layer, [hull.for_pairs(pairs) for hull in hulls[-1]])
                for rows, pairs in zip(streams, groups, strict=True)
            ]
        return list(zip(groups, streams, strict=True)), hulls, lengths

    def _injected(self, rows: Rows, layer: int, pairs: slice) -> Rows:
        """Add the projected output of the head, which may be rounded when it is cast."""
        projections = self.tensors.get("projections")
        first = layer * self.width
        if projections is None or len(projections) < first + self.width:
            return rows
        outputs = self.outputs[pairs].astype(np.float64)
        cast = Rows.exactly(outputs, 2 * self._arithmetic.unit * np.abs(outputs) + self._arithmetic.tiny)
        weight = projections[first : first + self.width].astype(np.float64)
        return rows.joined(linear(cast, weight, np.zeros(self.width), self._arithmetic), self._arithmetic)

    def _value_boxes(self, rows: Rows, layer: int) -> tuple[Array, Array]:
        """Return the least and largest value of every coordinate, ``(E, W)``; infinite where scores may overflow."""
        name, arithmetic = f"block{layer}", self._arithmetic
        normal = self._normed(rows, f"{name}.attention_norm")
        values = self._linear(normal, f"{name}.value")
        sizes = [self._linear(normal, f"{name}.{part}").largest().max(1) for part in ("query", "key")]
        # Rotations may double a coordinate; hidden keys lie far below what any score can reach.
        biases = np.abs(self.tensors.get("position_biases", np.zeros(1))).max()
        scores = upper(4 * self.width * sizes[0].max() * sizes[1].max() + biases, 4)
        below, above = values.deviations()
        outward = 4 * UNIT * values.largest() + arithmetic.checked(np.zeros(below.shape), np.full(below.shape, scores))
        return values.centre - below - outward, values.centre + above + outward

    def _averages(self, pairs: int, hulls: list[Hull]) -> Rows:
        """Return what the attention heads return, side by side: any point of their hulls."""
        offset = np.tile(np.concatenate([hull.offset for hull in hulls]), (pairs, 1))
        own = np.broadcast_to(np.eye(self.width), (pairs, self.width, self.width))
        return Rows(offset, own, np.zeros(offset.shape), tuple((hull, len(hull.offset)) for hull in hulls))

    def _block(self, rows: Rows, layer: int, hulls: list[Hull]) -> Rows:
        name, arithmetic = f"block{layer}", self._arithmetic
        mixed = self._linear(self._averages(len(rows.centre), hulls), f"{name}.output")
        rows = rows.joined(mixed, arithmetic).absorbed()
        hidden = gelu(self._linear(self._normed(rows, f"{name}.norm"), f"{name}.into"), arithmetic)
        return rows.followed_by(self._linear(hidden, f"{name}.back"), arithmetic)

    def _linear(self, rows: Rows, name: str) -> Rows:
        return linear(rows, self._part(f"{name}.weight"), self._part(f"{name}.bias"), self._arithmetic)

    def _normed(self, rows: Rows, name: str) -> Rows:
        weight, bias, eps = (self._part(f"{name}.{part}") for part in ("weight", "bias", "eps"))
        return normed(rows, weight, bias, float(eps[0]), self._arithmetic)


def attended_logits(
    stream: AttendedStream, labels: Array, *, longest: int = 10**6, stated: int | None = None
) -> AttendedLogits:
    """Bound how far the right label of every edge is ahead, for all lengths, and up to which length in floats.

    Args:
        stream: One pair for each edge.
        labels: ``(E)``, what must be shown; ``IGNORED`` where anything goes.
        longest: The longest words that are asked for where a length must be named.
        stated: A float length, which is looked at and no other searched for; 0 is returned where it does not hold.
    """
    classes = max(2, len(stream.tensors["readout.bias"]))
    if labels.shape != stream.letters.shape or ((labels != IGNORED) & ((labels < 0) | (labels >= classes))).any():
        raise ValueError(f"labels must be ({len(stream.letters)},), each IGNORED or below {classes}")
    right = np.where(labels == IGNORED, 0, labels)
    rivals = (right[:, None] + np.arange(1, classes)) % classes
    counted = np.flatnonzero(labels != IGNORED)
    gap, centre, direct = (part[counted] for part in stream.gaps(right, rivals, None))
    edge = np.repeat(counted, classes - 1)

    def least(length: int) -> float:
        return float(stream.gaps(right, rivals, length)[0][counted].min(initial=np.inf))

    exact = float(gap.min(initial=np.inf))
    length: int | None
    if not exact > 0:
        length, float_gap = 0, exact
    elif stated is None:
        length, float_gap = _float_length(least, longest, stream.window)
    else:
        float_gap = least(stated)
        length = stated if float_gap > 0 and stated <= longest else 0
    return AttendedLogits(
        edge,
        rivals[counted].reshape(-1),
        gap.reshape(-1),
        centre.reshape(-1),
        direct.reshape(-1),
        length,
        float_gap,
        stream.widths(),
    )


def _float_length(least: Callable[[int], float], longest: int, window: int | None) -> tuple[int | None, float]:
    """Return about the greatest length at which the least gap is positive, and that gap; None for every length.

    Args:
        least: The least gap at a length, which falls as the length grows.
        longest: The longest words that are asked for.
        window: How many positions each looks at, or None for all.
    """
    high = longest if window is None else 2 * window
    gaps = {high: least(high)}
    if gaps[high] > 0:
        return (high if window is None else None), gaps[high]

    def holds(length: int) -> bool:
        """Look at the gap, unless a longer word is known to be right or a shorter one is not."""
        known = [gap > 0 for other, gap in gaps.items() if (other >= length if gap > 0 else other <= length)]
        if not known:
            gaps[length] = least(length)
        return known[0] if known else gaps[length] > 0

    holds(max(1, high // 4))  # in float32 the rounding of so many values begins to count about there
    low = 0
    while high - low > max(1, low // _SHARE):
        between = max(low + 1, round((max(low, 1) * high) ** 0.5))
        if holds(between):
            low = between
        else:
            high = between
    if low and low not in gaps:
        gaps[low] = least(low)
    return low, gaps.get(low, -np.inf)
