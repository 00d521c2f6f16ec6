"""Krohn–Rhodes by holonomy: a finite machine as a cascade of permutations and resets.

A coordinate picks a tile (see :mod:`.holonomy`), so the coordinates of the upper levels narrow all states down to one
image set, the *view* of the level below; the last view is a single state.  One level stands for the
classes of one height, the highest on top.

A letter moves views too: the view ``before`` it is read is mapped into the view ``after``.  If it is mapped *onto* it,
both are of one class, and the coordinate is permuted by an element of the holonomy group.  Otherwise one tile of the
view after holds all that can arrive, and the coordinate is reset to it.  Either depends on the levels above only.

Classes of one height are parallel components on a common coordinate set, the disjoint union of their tiles: an element
of one group leaves the tiles of the others alone, a reset is constant on all.  A coordinate that picks a tile of a
class not in view stands for no state, and is never reached.  A level whose height the view has already passed says
nothing; it is reset to 0.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from transductor.automata.decomposition.cascade import Action, Cascade, Component, Level, machine_parts, walk
from transductor.automata.decomposition.holonomy import Skeleton, members
from transductor.automata.finite_automata import DFA

INK = "#34495e"


def decomposed(transitions: ArrayLike | DFA, *, limit: int = 20_000) -> Cascade:
    """Return the holonomy cascade of a machine.

    ``transitions`` is a table ``(states, letters)`` of next states, or an automaton that has one.  ``limit`` bounds the
    image sets explored, and likewise the moves tabulated; beyond it a ``ValueError`` says so.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ValueError(f"limit must be a positive integer; got {limit!r}")
    table, alphabet, initial = machine_parts(transitions)
    skeleton = Skeleton(table, limit)
    top = skeleton.heights[0]
    levels: list[Level] = []
    contexts = {(0, 0, letter) for letter in range(len(alphabet))}
    tabulated = 0
    for height in range(top, 0, -1):
        tabulated += len(contexts)
        if tabulated > limit:
            raise ValueError(
                f"limit allows {limit} moves and the first {len(levels) + 1} of {top} levels need {tabulated}; "
                "raise limit or decompose a smaller machine"
            )
        level, contexts = _level(skeleton, height, contexts)
        levels.append(level)
    return Cascade(tuple(levels), tuple(map(members, skeleton.sets)), alphabet, initial)


def _level(
    skeleton: Skeleton, height: int, contexts: set[tuple[int, int, int]]
) -> tuple[Level, set[tuple[int, int, int]]]:
    """Return the level of one height, and the contexts (view before, view after, letter) that the next one meets."""
    components: list[Component] = []
    first: dict[int, int] = {}  # of the points of each class
    points = 0
    for which, equals in enumerate(skeleton.classes):
        if skeleton.heights[equals[0]] == height:
            tiles = skeleton.tiles[equals[0]]
            shown = tuple(members(skeleton.sets[tile]) for tile in tiles)
            components.append(Component(members(skeleton.sets[equals[0]]), shown, skeleton.group(which)))
            first[which] = points
            points += len(tiles)

    def narrowed_from(view: int) -> tuple[int, ...]:
        if skeleton.heights[view] < height:
            return (view,) * points
        tiles, begin = skeleton.tiles[view], first[skeleton.class_of[view]]
        return (-1,) * begin + tiles + (-1,) * (points - begin - len(tiles))

    def action(before: int, after: int, letter: int) -> Action:
        if skeleton.heights[after] < height:
            return (0,) * points
        begin, arriving = first[skeleton.class_of[after]], skeleton.moves[before][letter]
        if arriving != after:
            outside = [skeleton.sets[arriving] & ~skeleton.sets[tile] for tile in skeleton.tiles[after]]
            return (begin + outside.index(0),) * points
        permuted = tuple(begin + place for place in skeleton.carried(before, letter))
        return (*range(begin), *permuted, *range(begin + len(permuted), points))

    views = {view for before, after, _ in contexts for view in (before, after)}
    narrowed = {view: narrowed_from(view) for view in sorted(views)}
    moves = {context: action(*context) for context in sorted(contexts)}
    met = {
        (below, narrowed[after][moved[point]], letter)
        for (before, after, letter), moved in moves.items()
        for point, below in enumerate(narrowed[before])
        if below >= 0
    }
    return Level(tuple(components), narrowed, moves), met


def report(cascade: Cascade, *, limit: int = 100_000) -> str:
    """Describe the levels from top to bottom; coordinate tuples that are reached are counted up to ``limit``."""
    states, letters, depth = cascade.states, len(cascade.alphabet), len(cascade.levels)
    lines = [f"Krohn–Rhodes cascade of {_counted(states, 'state')} over {_counted(letters, 'letter')}: depth {depth}"]
    for number, level in enumerate(cascade.levels, 1):
        lines.append(f"  level {number}: {level.points} points, {' + '.join(_groups_shown(level))}")
    possible = prod(level.points for level in cascade.levels)
    reached = sum(1 for _ in islice(walk(cascade), limit + 1))
    shown = str(reached) if reached <= limit else f"more than {limit}"
    lines.append(f"coordinate tuples: {possible} possible, {shown} reached")
    return "\n".join(lines)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _groups_shown(level: Level) -> list[str]:
    """Return the groups of a level in words, equal ones counted; where no letter permutes, there are only resets."""
    kinds = Counter((group.name, group.order, group.degree) for group in level.groups)
    shown = []
    for (name, order, degree), number in kinds.items():
        if order == 1:
            shown.append(f"resets on {degree} points" if number == 1 else f"{number} × resets on {degree} points")
            continue
        words = name if name.startswith("order") else f"{name} (order {order}) on {degree} points"
        shown.append(words if number == 1 else f"{number} × {words}")
    return shown


def draw(cascade: Cascade, path: str | Path) -> Path:
    """Draw the levels, top to bottom, with a dot for every point and the names of the groups.

    The suffix of ``path`` chooses the format.
    """
    from matplotlib.figure import Figure  # only drawing needs it
    from matplotlib.patches import FancyBboxPatch

    depth = len(cascade.levels)
    height = 0.7 + 1.5 * max(depth, 1)
    figure = Figure(figsize=(5.2, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 5.2), ylim=(-1.5 * max(depth, 1), 0.7))
    axes.axis("off")
    title = f"{_counted(cascade.states, 'state')}, {_counted(len(cascade.alphabet), 'letter')}"
    axes.text(2.6, 0.32, f"{title}: depth {depth}", ha="center", va="center", weight="bold")
    if depth == 0:
        axes.text(2.6, -0.5, "one state: nothing to decompose", ha="center", va="center")
    for number, level in enumerate(cascade.levels, 1):
        top = -1.5 * (number - 1)
        axes.add_patch(FancyBboxPatch((0.5, top - 0.9), 4.2, 0.9, boxstyle="round,pad=0.06", fc="#eef2f7", ec=INK))
        axes.text(0.6, top - 0.2, f"level {number}: {_counted(level.points, 'point')}", va="center")
        groups = _groups_shown(level)
        shown = " + ".join(groups[:2]) + (f" + {len(groups) - 2} more" if len(groups) > 2 else "")
        axes.text(0.6, top - 0.7, shown, va="center", color="#7b241c", fontsize=9)
        _draw_points(axes, level, top - 0.2)
        if number < depth:
            arrow = {"arrowstyle": "-|>", "color": INK}
            axes.annotate("", (2.6, top - 1.44), (2.6, top - 0.96), arrowprops=arrow)
            axes.text(2.7, top - 1.2, "sees the levels above", va="center", fontsize=8, color=INK)
    figure.savefig(path, dpi=min(150, 60_000 / height))  # no side may pass 2^16 pixels
    return Path(path)


def _draw_points(axes: Any, level: Level, height: float) -> None:
    """Draw one dot for every point, with gaps between components, unless there are too many."""
    if level.points > 30:
        return
    gap = 1.5
    width = level.points - 1 + gap * (len(level.components) - 1)
    left, spacing = 2.3, min(0.25, 2.3 / width)
    for component in level.components:
        places = [left + spacing * i for i in range(len(component.tiles))]
        axes.plot(places, [height] * len(places), "o", color=INK, markersize=min(6, 30 * spacing))
        left = places[-1] + spacing * (1 + gap)
