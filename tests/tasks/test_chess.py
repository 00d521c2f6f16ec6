"""Chess: known counts of moves, games that end as they must, and the words of the published format."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.tasks.cases import generator
from transductor.tasks import IGNORED, Chess
from transductor.tasks.chess import NEW, QUESTIONS, _targets
from transductor.tasks.chess_rules import START, Moves, Positions

KIWIPETE = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq -"
# The starting position and five more that programs are tested with: chessprogramming.org/Perft_Results.
PERFT = {
    START: (20, 400, 8_902, 197_281, 4_865_609),
    KIWIPETE: (48, 2_039, 97_862, 4_085_603),
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - -": (14, 191, 2_812, 43_238, 674_624, 11_030_083),
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1": (6, 264, 9_467, 422_333, 15_833_292),
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8": (44, 1_486, 62_379, 2_103_487),
    "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10": (46, 2_079, 89_890, 3_894_594),
}
QUICK, PART = 100_000, 4096


def after(positions: Positions, moves: Moves) -> Positions:
    reached = positions.taken(moves.game)
    reached.move(np.arange(len(moves)), moves.origin, moves.target, moves.promotion)
    return reached


def paths(positions: Positions, plies: int) -> int:
    """How many ways there are to play on for some plies."""
    moves = positions.legal_moves()
    if plies == 1:
        return len(moves)
    parts = (moves.chosen(slice(first, first + PART)) for first in range(0, len(moves), PART))
    return sum(paths(after(positions, part), plies - 1) for part in parts)


@pytest.mark.parametrize("position", PERFT)
def test_there_are_as_many_ways_to_play_on_as_are_known(position):
    for plies, count in enumerate(PERFT[position], 1):
        if count < QUICK:
            assert paths(Positions.of(position), plies) == count


@pytest.mark.slow
@pytest.mark.parametrize("position", PERFT)
def test_there_are_as_many_ways_to_play_on_for_long_as_are_known(position):
    plies = len(PERFT[position])
    assert paths(Positions.of(position), plies) == PERFT[position][-1]


@pytest.mark.parametrize(
    ("position", "over"),
    [
        ("rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq -", True),  # mate
        ("7k/5Q2/6K1/8/8/8/8/8 b - -", True),  # stalemate
        ("7k/8/6K1/8/8/8/8/8 b - -", True),
        ("7k/8/6K1/8/8/8/8/2b5 b - -", True),
        ("7k/8/6K1/8/8/8/8/1Nb5 b - -", False),
        ("7k/8/6K1/8/8/8/8/2R5 b - -", False),
        ("7k/8/6K1/8/8/8/8/2R5 b - - 149", False),
        ("7k/8/6K1/8/8/8/8/2R5 b - - 150", True),
    ],
)
def test_games_end_as_they_must(position, over):
    positions = Positions.of(position)
    assert positions.ended(positions.legal_moves()).tolist() == [over]


def replayed(tokens: torch.Tensor, stride: int) -> int:
    """Play the rows of tokens ``(B, T)``, refuse a move that is not legal, and return how many games ended."""
    positions, ended = Positions.of(START, len(tokens)), 0
    for first in range(0, tokens.shape[1] - 1, stride):
        origin, put = tokens[:, first : first + 2].numpy().T
        target, promotion = _targets(put)
        moves = positions.legal_moves()
        over = positions.ended(moves)
        assert ((origin == NEW) == over).all()
        assert ((put == NEW) == over).all()
        legal = set(zip(moves.game, moves.origin, moves.target, moves.promotion, strict=True))
        goes = (~over).nonzero()[0]
        assert set(zip(goes, origin[goes], target[goes], promotion[goes], strict=True)) <= legal
        positions.move(goes, origin[goes], target[goes], promotion[goes])
        positions.place(over, Positions.of(START))
        ended += int(over.sum())
    return ended


def test_samples_are_legal_games_one_after_the_other():
    assert replayed(Chess().sample(24, 3 * 160, generator()), 3) > 2
    assert replayed(Chess(3).sample(4, 5 * 20, generator()), 5) == 0


def test_every_legal_move_is_as_likely_as_the_others():
    tokens = Chess().sample(8000, 3, generator())
    _, counts = tokens[:, :2].unique(dim=0, return_counts=True)
    assert len(counts) == 20
    assert float((counts - 400).abs().max()) < 5 * (8000 * 0.05 * 0.95) ** 0.5


def test_input_kinds_are_legal_and_end_with_an_answer():
    task = Chess()
    for kind, tokens in task.adversarial(60).items():
        row = tokens[0, tokens[0] < NEW + 1]  # questions change nothing
        new = (row == NEW).nonzero()[:, 0]
        cut = min([*new.tolist(), len(row)])
        replayed(row[None, : cut // 2 * 2], 2)
        assert task.truth(tokens)[0, -1] != IGNORED, kind


def test_answers_are_those_to_every_question():
    task = Chess()
    tokens = task.sample(4, 60, generator(1))
    answers = task.answers(tokens)
    assert answers.shape == (4, 60, 70)
    number = torch.arange(len(QUESTIONS))
    asked = torch.cat((tokens[:, None, :58].expand(-1, 70, -1), 193 + number.expand(4, 70)[..., None]), 2)
    assert torch.equal(task.truth(asked.flatten(0, 1))[:, -1].unflatten(0, (4, 70)), answers[:, 57])
    assert task.answers(tokens[:, :0]).shape == (4, 0, 70)
    with pytest.raises(ValueError, match="tokens must have two axes"):
        task.answers(tokens[0])


@pytest.mark.parametrize(
    ("game", "position"),
    [
        ("", START),
        ("e2e4", "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3"),
        ("e2e4 c7c5 g1f3", "rnbqkbnr/pp1ppppp/8/2p5/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq -"),
        ("e2e4 e7e5 g1f3 b8c6 f1b5 g8f6 e1g1", "r1bqkb1r/pppp1ppp/2n2n2/1B2p3/4P3/5N2/PPPP1PPP/RNBQ1RK1 b kq -"),
        ("e2e4 a7a6 e4e5 d7d5 e5d6", "rnbqkbnr/1pp1pppp/p2P4/8/8/8/PPPP1PPP/RNBQKBNR b KQkq -"),
        ("a2a4 b7b5 a4b5 a7a6 b5a6 h7h5 a6a7 h5h4 a7b8q", "rQbqkbnr/2ppppp1/8/8/7p/8/1PPPPPPP/RNBQKBNR b KQkq -"),
        ("e2e4 c7c5 new", START),
        ("e3e4 e2e2 a1a8", "Rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/1NBQKBNR b Kk -"),  # what is told is done
    ],
)
def test_games_lead_to_known_positions(game, position):
    task = Chess()
    tokens = task.encoded("?side " + game)
    expected = Positions.of(position)
    answers = task.answers(tokens)[0, -1]
    assert answers[:64].tolist() == expected.boards[0, :64].tolist()
    file = 0 if expected.passed[0] < 0 else int(expected.passed[0]) % 8 + 1
    assert answers[64:].tolist() == [int(expected.side[0]), *map(int, expected.castling[0]), file]


def test_words_and_tokens_are_one_thing():
    task = Chess(2)
    for row in task.sample(5, 4 * 90, generator(2)):
        assert torch.equal(task.encoded(task.decoded(row))[0], row)
    words = "e7e8q a2a1n ?e8 new ?passed"
    assert task.decoded(task.encoded(words)[0]) == words
    assert task.encoded("").shape == (1, 0)
    for word in ("e9e8", "e7e8k", "?i1", "Nf3"):
        with pytest.raises(ValueError, match="text must be made of moves"):
            task.encoded(word)
    with pytest.raises(ValueError, match="text must have promotions"):
        task.encoded("e3e4q")
    with pytest.raises(ValueError, match="questions must be"):
        Chess(0)


def test_questions_change_nothing():
    task = Chess()
    tokens = task.sample(3, 90, generator(3))
    answers = task.answers(tokens)
    for before, asked in pairwise(range(1, 90)):
        if asked % 3 == 2:
            assert torch.equal(answers[:, before], answers[:, asked])


def test_the_published_samples_stay_what_they_are():
    """Seed 0, 16 rows of 384 tokens: whoever draws them has these."""
    rows = Chess().sample(16, 384, generator(0))
    assert hashlib.sha256(rows.to(torch.int16).numpy().tobytes()).hexdigest()[:16] == "8dcc0bd34887c2cc"
