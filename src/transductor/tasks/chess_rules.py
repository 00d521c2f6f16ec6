"""The rules of chess for many games at once: what a move does, which moves are legal, when a game is over.

Squares are numbered 0 to 63, a1, b1, … h8.  On a square is 0 for nothing, 1 to 6 for a white pawn, knight, bishop,
rook, queen or king, and 7 to 12 for a black one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from transductor.tasks.chess_tables import (
    CASTLES,
    DIRECTIONS_OF,
    DOUBLE_STEPS,
    HOME,
    KEEPS,
    KING_STEPS,
    KNIGHT_STEPS,
    PAWN_STEPS,
    PAWN_TAKES,
    RAYS,
)

Integers = NDArray[Any]
Flags = NDArray[np.bool_]

PIECES: Final = ".PNBRQKpnbrqk"
PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING = range(1, 7)
WALL: Final = 13  # beyond the board
_EMPTY, _OUTSIDE = 2, 3
COLOUR: Final = np.array([_EMPTY, *[0] * 6, *[1] * 6, _OUTSIDE], dtype=np.int8)
KIND: Final = np.array([0, *range(1, 7), *range(1, 7), 0], dtype=np.int8)
START: Final = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -"
QUIET_PLIES: Final = 150  # seventy-five moves of each side without a capture or a pawn's move end a game


@dataclass
class Moves:
    """Moves of several games, in the order of games, origins, targets and pieces.

    Attributes:
        game: Which game each belongs to, ``(M)``.
        origin: Where the piece stands, ``(M)``.
        target: Where it goes, ``(M)``.
        promotion: What a pawn becomes: a knight, bishop, rook or queen, or 0, ``(M)``.
    """

    game: Integers
    origin: Integers
    target: Integers
    promotion: Integers

    def __len__(self) -> int:
        return len(self.game)

    def chosen(self, which: Any) -> Moves:
        """Return the moves at some places, or where a mask says so."""
        return Moves(self.game[which], self.origin[which], self.target[which], self.promotion[which])


@dataclass
class Positions:
    """Positions of N games, which :meth:`move` changes in place.

    Attributes:
        boards: What stands where, ``(N, 65)``; the last place is the wall around the board.
        side: Whose turn it is, ``(N)``: 0 for White.
        castling: Who may still castle where, ``(N, 4)``: White on the king's and the queen's side, then Black.
        passed: The square that a pawn has just passed over in a double step, ``(N)``; −1 for none.
        quiet: Plies since the last capture or move of a pawn, ``(N)``.
    """

    boards: Integers
    side: Integers
    castling: Flags
    passed: Integers
    quiet: Integers

    @classmethod
    def of(cls, text: str, count: int = 1) -> Self:
        """Return ``count`` games in the position that ``text`` describes in Forsyth–Edwards notation."""
        placed, side, castling, passed, *counters = text.split()
        board = np.full((8, 8), WALL)
        for rank, row in zip(range(7, -1, -1), placed.split("/"), strict=True):
            board[rank] = [PIECES.index(each) for mark in row for each in (mark if mark.isalpha() else "." * int(mark))]
        square = -1 if passed == "-" else "abcdefgh".index(passed[0]) + 8 * (int(passed[1]) - 1)
        return cls(
            np.tile(np.append(board.ravel(), WALL).astype(np.int8), (count, 1)),
            np.full(count, "wb".index(side)),
            np.tile([right in castling for right in "KQkq"], (count, 1)),
            np.full(count, square),
            np.full(count, int(counters[0]) if counters else 0),
        )

    def __len__(self) -> int:
        return len(self.boards)

    def taken(self, games: Any) -> Positions:
        """Return copies of some of the games, in that order."""
        return Positions(*(getattr(self, each.name)[games] for each in fields(self)))

    def place(self, games: Any, position: Positions) -> None:
        """Put one position in place of those of some games."""
        for each in fields(self):
            getattr(self, each.name)[games] = getattr(position, each.name)[0]

    def move(self, games: Integers, origin: Integers, target: Integers, promotion: Integers) -> None:
        """Move a piece in each of some games, each of which occurs once; whether it is legal is not asked.

        A king that goes two squares from home while it may castle takes the rook along.  A pawn that changes its file
        on the way to the square that was passed over takes the pawn that did so.  ``promotion`` is for pawns alone.
        """
        piece, captured = self.boards[games, origin], self.boards[games, target]
        colour, kind = COLOUR[piece], KIND[piece]
        pawn = kind == PAWN
        passed = self.passed[games]
        passing = pawn & (target == passed) & (origin % 8 != target % 8)
        self.boards[games, origin] = 0
        self.boards[games[passing], (passed + np.where(passed < 32, 8, -8))[passing]] = 0
        self.boards[games, target] = np.where(pawn & (promotion > 0), promotion + 6 * colour, piece)
        right = 2 * (colour % 2) + (target < origin)
        castles = (kind == KING) & (origin == HOME[colour % 2]) & (abs(target - origin) == 2)
        castles &= self.castling[games, right]
        corner, beside = CASTLES[right[castles]].T[:2]
        self.boards[games[castles], corner] = 0
        self.boards[games[castles], beside] = ROOK + 6 * colour[castles]
        self.castling[games] &= KEEPS[origin] & KEEPS[target]
        self.passed[games] = np.where(pawn & (DOUBLE_STEPS[colour % 2, origin] == target), (origin + target) // 2, -1)
        self.side[games] = 1 - colour
        self.quiet[games] = np.where(pawn | (captured > 0), 0, self.quiet[games] + 1)

    def attacked(self, squares: Integers, by: Integers) -> Flags:
        """Return whether the side ``by`` attacks a square, for each game ``(N)``."""
        begin = 65 * np.arange(len(self))[:, None]  # flat places are found faster than rows and columns
        own = 6 * by[:, None]
        hit = (self.boards.take(begin + KNIGHT_STEPS[squares]) == KNIGHT + own).any(1)
        hit |= (self.boards.take(begin + KING_STEPS[squares]) == KING + own).any(1)
        # A pawn attacks a square from where a pawn of the other colour on that square would attack.
        hit |= (self.boards.take(begin + PAWN_TAKES[1 - by, squares]) == PAWN + own).any(1)
        seen = self.boards.take(begin[..., None] + RAYS[squares])  # (N, direction, distance)
        first = np.take_along_axis(seen, (seen > 0).argmax(2)[..., None], 2)[..., 0]
        slides = DIRECTIONS_OF[KIND[first], np.arange(8)] & (COLOUR[first] == by[:, None])
        return hit | slides.any(1)  # type: ignore[no-any-return]

    def in_check(self) -> Flags:
        """Return whether the king of the side to move is attacked, ``(N)``."""
        return self.attacked(self._kings(self.side), 1 - self.side)

    def legal_moves(self) -> Moves:
        """Return every legal move of every game."""
        moves = self._pseudo_legal()
        check, king = self.in_check(), self._kings(self.side)[moves.game]
        # Only these can leave the own king attacked; a piece that is not in line with its king shields it from nothing.
        rank, file = abs(moves.origin // 8 - king // 8), abs(moves.origin % 8 - king % 8)
        doubtful = check[moves.game] | (rank == file) | (rank == 0) | (file == 0) | (moves.origin == king)
        doubtful |= moves.target == self.passed[moves.game]
        tried = moves.chosen(doubtful)
        after = self.taken(tried.game)
        after.move(np.arange(len(tried)), tried.origin, tried.target, tried.promotion)
        legal = ~doubtful
        legal[doubtful] = ~after.attacked(after._kings(1 - after.side), after.side)
        return moves.chosen(legal)

    def ended(self, moves: Moves) -> Flags:
        """Return which games are over, ``(N)``; ``moves`` are their legal moves.

        They are over by mate or stalemate, after 75 quiet moves of each side, and where only kings and at most one
        bishop or knight are left.  Repeated positions are not counted.
        """
        left = self.boards[:, :64]
        kinds = KIND[left]
        bare = ((left > 0).sum(1) <= 3) & ~np.isin(kinds, (PAWN, ROOK, QUEEN)).any(1)
        stuck = np.bincount(moves.game, minlength=len(self)) == 0
        return stuck | bare | (self.quiet >= QUIET_PLIES)  # type: ignore[no-any-return]

    def _kings(self, side: Integers) -> Integers:
        return (self.boards == KING + 6 * side[:, None]).argmax(1)  # type: ignore[no-any-return]

    def _pseudo_legal(self) -> Moves:
        """Return the moves of every piece, even where they leave the own king attacked."""
        colours = COLOUR[self.boards]
        games, origins = (colours[:, :64] == self.side[:, None]).nonzero()
        kinds = KIND[self.boards[games, origins]]
        collected: list[tuple[Integers, Integers, Integers]] = []

        def add(pieces: Any, targets: Integers, allowed: Any) -> None:
            """Collect moves of ``pieces``, numbers among all, to those of ``targets`` ``(P, …)`` that are allowed."""
            at = allowed.nonzero()
            moving = pieces[at[0]]
            collected.append((games[moving], origins[moving], targets[at]))

        def met(pieces: Any, targets: Integers) -> tuple[Flags, Flags]:
            """Return whether squares ``(P, …)`` are empty, and whether the other side stands there."""
            game = games[pieces].reshape(-1, *[1] * (targets.ndim - 1))
            on = colours.take(65 * game + targets)
            return on == _EMPTY, on == 1 - self.side[game]

        sliders = ((kinds == BISHOP) | (kinds == ROOK) | (kinds == QUEEN)).nonzero()[0]
        rays = RAYS[origins[sliders]]
        empty, enemy = met(sliders, rays)
        free = np.logical_and.accumulate(empty, 2)
        reached = (empty | enemy) & np.concatenate((np.ones_like(free[..., :1]), free[..., :-1]), 2)
        add(sliders, rays, reached & DIRECTIONS_OF[kinds[sliders]][..., None])

        for kind, steps in ((KNIGHT, KNIGHT_STEPS), (KING, KING_STEPS)):
            leapers = (kinds == kind).nonzero()[0]
            empty, enemy = met(leapers, steps[origins[leapers]])
            add(leapers, steps[origins[leapers]], empty | enemy)

        pawns = (kinds == PAWN).nonzero()[0]
        side, square = self.side[games[pawns]], origins[pawns]
        ahead, twice = PAWN_STEPS[side, square], DOUBLE_STEPS[side, square]
        free_ahead = met(pawns, ahead)[0]
        add(pawns, ahead, free_ahead)
        add(pawns, twice, free_ahead & met(pawns, twice)[0])
        takes = PAWN_TAKES[side, square]
        add(pawns, takes, met(pawns, takes)[1] | (takes == self.passed[games[pawns], None]))

        for right, (_, beside, king_to, rook_beside) in enumerate(CASTLES):
            colour = right // 2
            may = (self.castling[:, right] & (self.side == colour)).nonzero()[0]
            empty_between = (self.boards[may][:, [beside, king_to, rook_beside]] == 0).all(1)
            may = may[empty_between]
            held = self.taken(may)
            other = 1 - held.side
            safe = ~held.attacked(np.full(len(may), HOME[colour]), other)
            safe &= ~held.attacked(np.full(len(may), beside), other)
            may = may[safe]
            collected.append((may, np.full(len(may), HOME[colour]), np.full(len(may), king_to)))
        return self._in_order(*map(np.concatenate, zip(*collected, strict=True)))

    def _in_order(self, game: Integers, origin: Integers, target: Integers) -> Moves:
        """Sort moves, each promotion four times over."""
        promotes = (self.boards[game, origin] % 6 == PAWN) & ((target < 8) | (target >= 56))
        order = ((game * 64 + origin) * 64 + target).argsort()
        order = np.repeat(order, np.where(promotes, 4, 1)[order])
        game, origin, target, promotes = game[order], origin[order], target[order], promotes[order]
        promotion = np.zeros_like(game)
        promotion[promotes] = np.tile(np.arange(KNIGHT, KING), promotes.sum() // 4)
        return Moves(game, origin, target, promotion)
