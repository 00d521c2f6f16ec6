"""Chess under random play: moves as squares, and questions about the position that they lead to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.chess_rules import KNIGHT, PIECES, START, Positions
from transductor.tasks.sampling import repeated

SQUARES: Final = tuple(file + rank for rank in "12345678" for file in "abcdefgh")
QUESTIONS: Final = (*SQUARES, "side", "K", "Q", "k", "q", "passed")
FROM, TO, PROMOTED, NEW, ASK = 0, 64, 128, 192, 193  # where each kind of token begins

_WORD: Final = re.compile(
    r"(?P<new>new)|\?(?P<question>\w+)|(?P<origin>[a-h][1-8])(?P<target>[a-h][1-8])(?P<piece>[nbrq]?)"
)
_KNIGHTS: Final = "g1f3 g8f6 f3g1 f6g8"
_OTHER_KNIGHTS: Final = "b1c3 b8c6 c3b1 c6b8"
# Legal games in which something rare happens; what both sides may do from then on; what is asked at the end.
_GAMES: Final = {
    "castling on the king's side": (
        "e2e4 e7e5 g1f3 g8f6 f1e2 f8e7 e1g1 e8g8",
        _OTHER_KNIGHTS,
        "?e1 ?f1 ?g1 ?h1 ?K ?Q ?e8 ?f8 ?g8 ?h8 ?k ?q",
    ),
    "castling on the queen's side": (
        "d2d4 d7d5 b1c3 b8c6 c1f4 c8f5 d1d2 d8d7 e1c1 e8c8",
        _KNIGHTS,
        "?e1 ?d1 ?c1 ?a1 ?K ?Q ?e8 ?d8 ?c8 ?a8 ?k ?q",
    ),
    "a king and a rook that came back": (
        "e2e4 h7h5 e1e2 h8h7 e2e1 h7h8",
        _KNIGHTS,
        "?K ?Q ?k ?q ?e1 ?h8",
    ),
    "pawns taken in passing": (
        "e2e4 a7a5 e4e5 d7d5 e5d6 a5a4 b2b4 a4b3",
        _KNIGHTS,
        "?d5 ?d6 ?e5 ?b4 ?b3 ?a4 ?passed",
    ),
    "a chance to take in passing that has passed": (
        "e2e4 a7a6 e4e5 d7d5 g1f3 a6a5 e5e6 d5d4",
        _OTHER_KNIGHTS,
        "?passed ?d5 ?d4 ?e6 ?e5",
    ),
    "promotions": (
        "a2a4 b7b5 a4b5 a7a6 b5a6 h7h5 a6a7 h5h4 a7b8n h4h3 g1f3 h3g2 f3g5 g2h1q",
        "b1c3 g8f6 c3b1 f6g8",
        "?b8 ?a7 ?h1 ?g2 ?Q ?K ?q",
    ),
    "a rook taken at home": (
        "b2b3 g7g6 c1b2 f8g7 b2g7 a7a6 g7h8 a6a5",
        _KNIGHTS,
        "?K ?Q ?k ?q ?h8 ?g7",
    ),
    "a step remembered": ("e2e4 d7d5", _KNIGHTS, "?e4 ?e2 ?d5 ?d7 ?passed ?side"),
    "knights out and back": ("", "g1f3 ?g1 ?f3 g8f6 ?g8 ?f6 f3g1 ?g1 ?f3 f6g8 ?g8 ?f6", "?g1"),
    "mate and a new game, over and over": (
        "",
        "f2f3 ?f2 e7e5 ?e5 g2g4 ?passed d8h4 ?h4 new new ?h4",
        "?d8",
    ),
    "only questions": ("", " ".join("?" + question for question in QUESTIONS), "?e1"),
}  # fmt: skip


@final
@configuration
@dataclass(frozen=True)
class Chess(Task):
    """Moves of chess, and after each ``questions`` about the position; the label at a question is its answer.

    A game begins with the usual position, and each legal move is as likely as the others.  A move is two tokens: the
    square it comes from, and the one it goes to.  A model has one output at a position and a ply has 64 squares, so
    squares are asked for one by one: which, luck decides.  A question is a token too, and changes nothing; to have all
    answers, ask all questions, or take them from :meth:`answers`.

    Tokens: ``0 … 63`` from a square (a1, b1, … h8); ``64 … 127`` to one; ``128 … 191`` to a square of the last rank
    where a pawn becomes another piece, ``128 + 8·p + file`` for White and ``160 + 8·p + file`` for Black, p from 0 for
    a knight, bishop, rook, queen; ``192`` a new game; from ``193`` the 70 ``QUESTIONS``: each square, the side to move,
    four rights to castle, the file of the pawn that may be taken in passing.  These are the labels that
    Chess-World-Model (arXiv 2605.30100) has for a ply, less its counters of moves.

    Answers: 0 for nothing and 1 to 12 for ``PNBRQKpnbrqk`` on a square; 0 or 1 for a side and a right; for the file
    1 to 8, or 0.  Only the last ply's double step counts, whether or not another pawn stands beside it.

    The board does as it is told, so every row of tokens has labels: whatever piece was touched last goes to the square
    that comes next, legally or not, and nothing happens where none was touched, or it is put back.  Samples are legal.
    A game that is over (mate, stalemate, 75 quiet moves of each side, kings alone or with one bishop or knight) is
    followed by ``new`` twice in place of a move, so that questions keep their places.

    Args:
        questions: Questions after every move, at least one.
    """

    questions: int = 1
    title: ClassVar[str] = "chess under random play, {questions} questions a ply"
    vocab_size: ClassVar[int] = ASK + len(QUESTIONS)
    output_size: ClassVar[int] = len(PIECES)
    shortest: ClassVar[int] = 3  # a move and a question

    def __post_init__(self) -> None:
        check_positive("questions", self.questions)

    def encoded(self, text: str) -> Tensor:
        """Return the tokens ``(1, T)`` of words such as ``e2e4``, ``e7e8q``, ``new``, ``?e4``, ``?side``."""
        tokens: list[int] = []
        for word in text.split():
            match = _WORD.fullmatch(word)
            if match is None or (match["question"] or "side") not in QUESTIONS:
                raise ValueError(
                    f"text must be made of moves such as e2e4 or e7e8q, new, and ?e4, ?side or ?K; got {word!r}"
                )
            if match["new"]:
                tokens.append(NEW)
            elif match["question"]:
                tokens.append(ASK + QUESTIONS.index(match["question"]))
            else:
                origin, target = (SQUARES.index(match[end]) for end in ("origin", "target"))
                if match["piece"] and 8 <= target < 56:
                    raise ValueError(f"text must have promotions on the first and last rank only; got {word!r}")
                promotion = KNIGHT + "nbrq".index(match["piece"]) if match["piece"] else 0
                tokens += [origin, int(_target_tokens(np.array(target), np.array(promotion)))]
        return torch.tensor([tokens], dtype=torch.long)

    def decoded(self, tokens: Tensor) -> str:
        """Return one row of tokens ``(T,)`` in words that :meth:`encoded` reads, if a target follows each origin."""
        said = ""
        for token in tokens.tolist():
            if token < TO:
                said += " " + SQUARES[token]
            elif token < NEW:
                target, promotion = _targets(np.array([token]))
                said += SQUARES[target[0]] + PIECES[6 + promotion[0]] * bool(promotion[0])
            else:
                said += " new" if token == NEW else " ?" + QUESTIONS[token - ASK]
        return said.strip()

    def answers(self, tokens: Tensor) -> Tensor:
        """Return the answers to all ``QUESTIONS`` after each position of ``tokens`` ``(B, T)``: ``(B, T, 70)``."""
        self._check_tokens(tokens)
        after = [torch.from_numpy(_facts(positions)) for positions in _played(tokens.long().numpy())]
        return torch.stack(after, 1) if after else torch.zeros(len(tokens), 0, len(QUESTIONS), dtype=torch.long)

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        stride = 2 + self.questions
        plies = -(-length // stride)
        luck = torch.rand(batch_size, plies, generator=generator, dtype=torch.float64).numpy()
        asked = torch.randint(0, len(QUESTIONS), (batch_size, plies, self.questions), generator=generator)
        moved = np.empty((batch_size, plies, 2), dtype=np.int64)
        positions, start = Positions.of(START, batch_size), Positions.of(START)
        for ply in range(plies):
            moves = positions.legal_moves()
            over = positions.ended(moves)
            counts = np.bincount(moves.game, minlength=batch_size)
            places = counts.cumsum() - counts + (luck[:, ply] * counts).astype(np.int64)
            goes = (~over).nonzero()[0]
            chosen = moves.chosen(places[goes])
            positions.move(goes, chosen.origin, chosen.target, chosen.promotion)
            positions.place(over, start)
            moved[:, ply] = NEW
            moved[goes, ply, 0] = chosen.origin
            moved[goes, ply, 1] = _target_tokens(chosen.target, chosen.promotion)
        return torch.cat((torch.from_numpy(moved), ASK + asked), 2).flatten(1)[:, :length]

    def _labels(self, tokens: Tensor) -> Tensor:
        said = tokens.numpy()
        labels = np.full(said.shape, IGNORED)
        for time, positions in enumerate(_played(said)):
            rows = (said[:, time] >= ASK).nonzero()[0]
            labels[rows, time] = _facts(positions, rows, said[rows, time] - ASK)
        return torch.from_numpy(labels)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        """Return games of rare moves, and a pawn's step that must be remembered while knights go out and back."""

        def written(game: str, filler: str, asked: str) -> list[int]:
            begins, between, ends = (self.encoded(text)[0].tolist() for text in (game, filler, asked))
            room = max(length - len(ends), 0)
            row = (begins + repeated(between, max(room - len(begins), 0)))[:room]
            # Where room is short the last questions stay: a label is at the end of every row.
            return [*row, *ends][-length:] if room else ends[-length:]

        return {kind: written(*parts) for kind, parts in _GAMES.items()}


def _target_tokens(target: NDArray[np.int64], promotion: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the tokens that put a piece on squares, as a knight, bishop, … or, where that is 0, as it is."""
    promoted = PROMOTED + 32 * (target < 8) + 8 * (promotion - KNIGHT) + target % 8
    return np.where(promotion > 0, promoted, TO + target)


def _targets(tokens: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the squares and promotions of tokens that put a piece down."""
    promoted, number = tokens >= PROMOTED, tokens - PROMOTED
    square = np.where(number < 32, 56, 0) + number % 8
    return np.where(promoted, square, tokens - TO), np.where(promoted, KNIGHT + number // 8 % 4, 0)


def _facts(
    positions: Positions, rows: NDArray[np.int64] | None = None, asked: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return all answers ``(B, 70)``, or those of some rows to a question each."""
    if rows is None or asked is None:
        rows, asked = np.arange(len(positions))[:, None], np.arange(len(QUESTIONS))[None]
    right = positions.castling[rows, np.clip(asked - 65, 0, 3)]
    passed = positions.passed[rows]
    file = np.where(passed < 0, 0, passed % 8 + 1)
    others = np.select([asked == 64, asked < 69], [positions.side[rows], right], file)
    return np.where(asked < 64, positions.boards[rows, np.minimum(asked, 63)], others).astype(np.int64)


def _played(tokens: NDArray[np.int64]) -> Iterator[Positions]:
    """Give the positions after each token of ``(B, T)``: the same object, which goes on to change."""
    positions, start = Positions.of(START, len(tokens)), Positions.of(START)
    touched = np.full(len(tokens), -1)  # the square of the piece that is to go next; −1 for none
    for said in tokens.T:
        touched = np.where(said < TO, said, touched)
        put = (said >= TO) & (said < NEW) & (touched >= 0)
        target, promotion = _targets(said)
        moves = put & (touched != target)
        moves[moves] = positions.boards[moves.nonzero()[0], touched[moves]] > 0
        games = moves.nonzero()[0]
        positions.move(games, touched[games], target[games], promotion[games])
        positions.place(said == NEW, start)
        touched[put | (said == NEW)] = -1
        yield positions
