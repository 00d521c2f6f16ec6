"""Where the pieces of chess can go from each square of an empty board; 64 stands for beyond the board."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

BEYOND: Final = 64
_STRAIGHT: Final = ((1, 0), (-1, 0), (0, 1), (0, -1))
_DIAGONAL: Final = ((1, 1), (1, -1), (-1, 1), (-1, -1))
_LEAPS: Final = ((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1))


def _away(square: int, files: int, ranks: int) -> int:
    file, rank = square % 8 + files, square // 8 + ranks
    return file + 8 * rank if 0 <= file < 8 and 0 <= rank < 8 else BEYOND


def _steps(ways: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    ways = tuple(ways)
    return np.array([[_away(square, *way) for way in ways] for square in range(64)])


KNIGHT_STEPS: Final = _steps(_LEAPS)  # (64, 8)
KING_STEPS: Final = _steps(_STRAIGHT + _DIAGONAL)  # (64, 8)
RAYS: Final = np.stack(  # (64, direction, distance): the four straight directions, then the four diagonal ones
    [_steps((files * far, ranks * far) for far in range(1, 8)) for files, ranks in _STRAIGHT + _DIAGONAL], 1
)
DIRECTIONS_OF: Final = np.zeros((7, 8), dtype=bool)  # which pieces slide in which directions
DIRECTIONS_OF[[4, 5], :4] = True  # rook and queen
DIRECTIONS_OF[[3, 5], 4:] = True  # bishop and queen
# Of White's pawns and of Black's, (2, 64) and (2, 64, 2).
PAWN_STEPS: Final = np.stack([_steps([(0, up)])[:, 0] for up in (1, -1)])
PAWN_TAKES: Final = np.stack([_steps([(-1, up), (1, up)]) for up in (1, -1)])
DOUBLE_STEPS: Final = np.array(
    [[square + step if square // 8 == rank else BEYOND for square in range(64)] for rank, step in ((1, 16), (6, -16))]
)
HOME: Final = np.array([4, 60])  # where the kings begin
# White on the king's and the queen's side, then Black: the rook's corner, where it and the king go, what must be empty.
CASTLES: Final = np.array([(7, 5, 6, 6), (0, 3, 2, 1), (63, 61, 62, 62), (56, 59, 58, 57)])
KEEPS: Final = np.ones((64, 4), dtype=bool)  # which rights to castle outlast a move from or to a square
for _right, _corner in enumerate(CASTLES[:, 0]):
    KEEPS[[_corner, HOME[_right // 2]], _right] = False
