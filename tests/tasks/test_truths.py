"""Each task's truth against plain Python that reads the whole prefix and keeps no state."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import combinations, pairwise, permutations

import pytest
import torch

from tests.tasks.cases import NAMES, all_words, generator, values_to_print
from transductor.automata.library import machine
from transductor.tasks import IGNORED, TASKS, task_named

SHORT_WORDS = 2500


def counting(task, word):
    return sum(word) % task.modulus


def parity(task, word):
    return word.count(1) % 2


def even_pairs(task, word):
    return int(sum(a != b for a, b in pairwise(word)) % 2 == 0)


def cycle(task, word):
    return sum(letter - 1 for letter in word) % task.places


def _expression(task, word):
    """Digits and operators as Python writes them, or nothing."""
    takes_turns = all((letter < task.modulus) == (place % 2 == 0) for place, letter in enumerate(word))
    if not takes_turns or len(word) % 2 == 0:
        return None
    return [str(letter) if letter < task.modulus else "+-*"[letter - task.modulus] for letter in word]


def arithmetic(task, word):
    expression = _expression(task, word)
    return IGNORED if expression is None else eval("".join(expression)) % task.modulus


def arithmetic_left_to_right(task, word):
    expression = _expression(task, word)
    if expression is None:
        return IGNORED
    text = expression[0]
    for operator, digit in zip(expression[1::2], expression[2::2], strict=True):
        text = f"({text}{operator}{digit})"
    return eval(text) % task.modulus


def addition(task, word):
    base, carry = task.base, task.carry_in if task.carry_in in (0, 1) else 0
    letters = [place for place, letter in enumerate(word) if letter >= base**2]
    if letters:
        carry, word = word[letters[-1]] - base**2, word[letters[-1] + 1 :]
    if not word:
        return IGNORED
    left = sum((letter // base) * base**place for place, letter in enumerate(word))
    right = sum((letter % base) * base**place for place, letter in enumerate(word))
    return (left + right + carry) // base ** (len(word) - 1) % base


def text_addition(task, word):
    text = task.decoded(torch.tensor(word))
    question, equals, said = text.partition("=")
    if not equals or not re.fullmatch(r"\d+\+\d+", question):
        return IGNORED
    operands = [each[::-1] if task.reversed_digits else each for each in question.split("+")]
    answer = str(sum(map(int, operands))).zfill(max(map(len, operands)))
    answer = (answer[::-1] if task.reversed_digits else answer) + "$"
    return "0123456789$".index(answer[len(said)]) if len(said) < len(answer) else IGNORED


def value(task, word):
    digits = word if task.most_significant_first else word[::-1]
    whole = sum(digit * task.base**place for place, digit in enumerate(reversed(digits)))
    return float(Fraction(whole, task.base ** len(word)))


def flip_flop(task, word):
    if word[-1] != 4:
        return IGNORED
    return next((letter for letter in reversed(word) if letter < 2), 0)


def _bit(word):
    """The bit in memory, by looking back."""
    if not word:
        return 0
    if word[-1] < 2:
        return word[-1]
    if word[-1] == 5:
        writes = [place for place, letter in enumerate(word) if letter < 2]
        return _bit(word[: writes[-1]]) if writes else 0
    return _bit(word[:-1])


def flip_flop_undo(task, word):
    return _bit(word) if word[-1] == 4 else IGNORED


def held_count(task, word):
    marks = [place for place, letter in enumerate(word) if letter == 2]
    return word[: marks[-1]].count(1) % task.modulus if marks else 0


def group(task, word):
    points = tuple(range(len(task.elements[0])))
    for letter in word:
        points = tuple(task.letters[letter][point] for point in points)
    return task.elements.index(points)


def tomita(task, word):
    return machine(f"tomita:{task.number}").law([str(letter) for letter in word])


def _values(word):
    """The values of formulas side by side."""
    values = []
    while word:
        size, level = 1, int(word[0] in (2, 3, 4))
        while level:
            level += {2: 1, 3: 1, 4: 1, 5: -1}.get(word[size], 0)
            size += 1
        if size == 1:
            values.append(word[0])
        else:
            arguments = _values(word[1 : size - 1])
            values.append(int({2: all(arguments), 3: any(arguments), 4: sum(arguments) % 2}[word[0]]))
        word = word[size:]
    return values


def boolean(task, word):
    levels = [sum({2: 1, 3: 1, 4: 1, 5: -1}.get(letter, 0) for letter in word[: n + 1]) for n in range(len(word))]
    if min(levels) < 0 or max(levels) > task.depth:
        return IGNORED
    if word[-1] == 5:
        opened = max(n for n in range(len(word)) if levels[n] == levels[-1] + 1 and word[n] in (2, 3, 4))
        return _values(word[opened:])[0]
    return word[-1] if levels[-1] == 0 else IGNORED


def copying(task, word):
    if task.alphabet_size not in word:
        return IGNORED
    said = word[: word.index(task.alphabet_size)]
    place = len(word) - len(said) - 2
    return said[place] if 0 <= place < len(said) and said[place] < task.alphabet_size else IGNORED


def recall(task, word):
    marker = task.keys + task.values
    if marker not in word[:-1] or word[-1] >= task.keys:
        return IGNORED
    known = {a: b - task.keys for a, b in pairwise(word[: word.index(marker)]) if a < task.keys <= b}
    return known.get(word[-1], IGNORED)


def partly_observed(task, word):
    """The probability of every state together with the word, summed over what slipped and what was hidden."""
    count, images = task.states, task.permutations().tolist()
    joint = [1.0] + [0.0] * (count - 1)
    for token in word:
        letter, seen = divmod(token, 1 + 2 * count)
        possible = range(task.letters) if letter == task.letters else [letter]
        shown = task.hidden if letter == task.letters else 1 - task.hidden
        after = [0.0] * count
        for acting in possible:
            for place, weight in enumerate(joint):
                for to in range(count):
                    goes = (1 - task.slip) * (images[acting][place] == to) + task.slip / count
                    after[to] += weight * goes * shown / task.letters
        for to in range(count):
            if seen == 0:
                after[to] *= 1 - task.read - task.reveal
            elif seen <= count:
                after[to] *= task.read * ((1 - task.noise) * (seen - 1 == to) + task.noise / count)
            else:
                after[to] *= task.reveal * (seen - 1 - count == to)
        joint = [weight / sum(after) for weight in after]
    return next(place for place, weight in enumerate(joint) if weight >= max(joint) - 1e-6)


def hidden_swaps(task, word):
    """The weight of every order together with the word, over all swaps that its tokens may stand for."""
    things, pairs = range(task.things), list(combinations(range(task.things), 2))
    orders = list(permutations(things))
    weights = {order: float(order == tuple(things)) for order in orders}
    for token in word:
        after = dict.fromkeys(orders, 0.0)
        place, thing = divmod(token - len(pairs) - task.things - 1, task.things)
        for order, weight in weights.items():
            if place >= 0:
                after[order] += weight * ((1 - task.noise) * (order[place] == thing) + task.noise / task.things)
                continue
            named = token - len(pairs)
            for number, (x, y) in enumerate(pairs):
                if token == number or named in (x, y) or named == task.things:
                    swapped = list(order)
                    swapped[x], swapped[y] = order[y], order[x]
                    after[tuple(swapped)] += weight
        weights = {order: weight / sum(after.values()) for order, weight in after.items()}
    best = max(weights.values()) - 1e-6
    return next(number for number, order in enumerate(orders) if weights[order] >= best)


def repl_traces(task, word):
    told = values_to_print(task, word)
    return IGNORED if told is None else task.variables + max(told, key=lambda value: (told[value], -value))


def chess(task, word):
    """The board as letters by square, such as ``{"e1": "K"}``."""
    if word[-1] < 193:
        return IGNORED
    ranks = {"1": "RNBQKBNR", "2": "P" * 8, "7": "p" * 8, "8": "rnbqkbnr"}
    start = {file + rank: row[place] for rank, row in ranks.items() for place, file in enumerate("abcdefgh")}
    rooks = {"h1": "K", "a1": "Q", "h8": "k", "a8": "q"}
    names = [file + rank for rank in "12345678" for file in "abcdefgh"]
    board, turn, rights, passed, touched = dict(start), 0, set("KQkq"), None, None
    for token in word[:-1]:
        if token == 192:
            board, turn, rights, passed, touched = dict(start), 0, set("KQkq"), None, None
        elif token < 64:
            touched = names[token]
        elif token < 192 and touched is not None:
            origin, touched = touched, None
            becomes = None if token < 128 else "nbrq"[(token - 128) // 8 % 4]
            target = names[token - 64] if token < 128 else "abcdefgh"[token % 8] + ("8" if token < 160 else "1")
            if origin == target or origin not in board:
                continue
            piece = board.pop(origin)
            black, pawn = piece.islower(), piece in "Pp"
            if pawn and target == passed and origin[0] != target[0]:
                del board[target[0] + {"3": "4", "6": "5"}[target[1]]]
            board[target] = piece
            if pawn and becomes:
                board[target] = becomes if black else becomes.upper()
            home = {"K": "e1", "k": "e8"}.get(piece)
            if origin == home and target[1] == home[1] and target[0] in "gc":
                side = ("K" if target[0] == "g" else "Q") if not black else ("k" if target[0] == "g" else "q")
                if side in rights:
                    corner = next(square for square, right in rooks.items() if right == side)
                    board[{"g": "f", "c": "d"}[target[0]] + target[1]] = board.pop(corner)
            for square in (origin, target):
                rights -= {"e1": set("KQ"), "e8": set("kq")}.get(square, {rooks.get(square)})
            double = (origin[1], target[1]) == (("7", "5") if black else ("2", "4")) and origin[0] == target[0]
            passed = origin[0] + ("6" if black else "3") if pawn and double else None
            turn = 0 if black else 1
    asked = word[-1] - 193
    if asked < 64:
        return ".PNBRQKpnbrqk".index(board.get(names[asked], "."))
    if asked == 64:
        return turn
    if asked < 69:
        return int("KQkq"[asked - 65] in rights)
    return 0 if passed is None else 1 + "abcdefgh".index(passed[0])


JUDGES = {
    **{judge.__name__: judge for judge in (counting, parity, even_pairs, cycle, arithmetic, arithmetic_left_to_right)},
    **{judge.__name__: judge for judge in (addition, text_addition, value, flip_flop, flip_flop_undo, group, tomita)},
    **{judge.__name__: judge for judge in (boolean, copying, recall, held_count, partly_observed)},
    **{judge.__name__: judge for judge in (hidden_swaps, repl_traces, chess)},
    "repl_traces_observed": repl_traces,
    "flip_flop_sparse": flip_flop,
    "flip_flop_dense": flip_flop,
    "addition_carry_in": addition,
    "addition_carry_letter": addition,
    "text_addition_reversed": text_addition,
    "value_last_digit_first": value,
}


def _words(task):
    """All short words, up to a number; samples, also with one letter wrong; and every input kind."""
    length = max(n for n in range(1, 9) if n == 1 or task.vocab_size**n <= SHORT_WORDS)
    yield all_words(task.vocab_size, length)
    for each in (1, 2, 3, 8, 9, 24):
        each = max(each, task.shortest)
        sampled = task.sample(4, each, generator(each))
        yield sampled
        spoilt, chance = sampled.repeat(16, 1), generator(each)
        places = torch.randint(0, each, (len(spoilt), 1), generator=chance)
        yield spoilt.scatter(1, places, torch.randint(0, task.vocab_size, places.shape, generator=chance))
        yield torch.cat(list(task.adversarial(each).values()))


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_is_what_plain_python_says(name):
    task = task_named(name)
    judge = JUDGES[name.partition(":")[0]]
    for tokens in _words(task):
        words = tokens.tolist()
        rows = [[judge(task, word[: n + 1]) for n in range(len(word))] for word in words]
        expected = torch.tensor(rows, dtype=torch.float64 if task.output_kind == "real" else torch.int64)
        if task.output_kind == "real":
            torch.testing.assert_close(task.truth(tokens), expected, rtol=1e-14, atol=0)
        else:
            assert torch.equal(task.truth(tokens), expected)


def test_every_registered_task_has_a_judge():
    assert set(TASKS) <= set(JUDGES)
