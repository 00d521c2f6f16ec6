"""The lexical machine of Python beside ``tokenize``, on texts written for it and on the standard library."""

from __future__ import annotations

import io
import random
import sysconfig
import tokenize
from pathlib import Path

import numpy as np
import pytest

from transductor.automata.python_lexing import (
    CONTEXTS,
    DEEPEST,
    level_of,
    lexed,
    lexical_features,
    lexings,
    python_lexing,
)

_CODE, _COMMENT, _STRING = range(3)


def judged(source: bytes) -> np.ndarray:
    """Return kind of the byte, depth and level after it, ``(T, 3)``, as ``tokenize`` says; −1 where it does not."""
    lines = source.decode().splitlines(keepends=True)
    widths = [[len(c.encode()) for c in line] for line in lines]
    begins = np.cumsum([0, *map(sum, widths)])

    def place(row: int, column: int) -> int:
        return int(begins[row - 1]) + sum(widths[row - 1][:column]) if row <= len(lines) else int(begins[-1])

    truth = np.zeros((len(source), 3), dtype=int)
    depth, levels, changes = 0, [0], [(0, 0, 0)]
    for token in tokenize.generate_tokens(io.StringIO(source.decode()).readline):
        begin, end = place(*token.start), place(*token.end)
        if token.type == tokenize.COMMENT:
            truth[begin:end, 0] = _COMMENT
        elif token.type == tokenize.STRING:
            quote = begin + min(token.string.index(mark) for mark in "'\"" if mark in token.string)
            truth[quote:end, 0] = _STRING
        elif token.type == tokenize.OP and token.string in "()[]{}":
            depth += 1 if token.string in "([{" else -1
            changes.append((begin, depth, levels[-1]))
        elif token.type == tokenize.INDENT:
            levels.append(len(token.string.replace("\t", " " * 8)))
            changes.append((end, depth, levels[-1]))
        elif token.type == tokenize.DEDENT:
            levels.pop()
            changes.append((begin, depth, levels[-1]))
    for (begin, deep, level), following in zip(changes, [*changes[1:], (len(source), 0, 0)], strict=True):
        truth[begin : following[0], 1:] = deep, level_of(level)
    return truth


def followed(source: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of the machine, and where a line begins, so that its level is not known yet."""
    known = lexed(source)
    after = known[:, 0]
    before = np.concatenate(([0], after[:-1]))
    kind = np.where((after == 1) | ((before == 1) & (np.frombuffer(source, np.uint8) != 10)), _COMMENT, _CODE)
    # The byte that closes a string belongs to it, unless two marks turn out to have been an empty one.
    empty = np.zeros(len(source), dtype=bool)
    for place in range(2, len(source)):
        mark = source[place - 1]
        opened = after[place - 1] in (2, 3) and source[place - 2] == mark and after[place - 3] not in (2, 3)
        empty[place] = bool(opened and mark in b"'\"" and source[place] != mark and after[place - 2] in (2, 3))
    kind[((after >= 2) | (before >= 2)) & ~empty] = _STRING
    return np.stack((kind, known[:, 1], known[:, 2]), 1), known[:, 3] >= 0


def mistakes(source: bytes) -> int:
    """Return how many bytes the machine takes for something else than ``tokenize`` does."""
    truth, (ours, begins) = judged(source), followed(source)
    wrong = truth != ours
    blank = np.isin(np.frombuffer(source, np.uint8), list(b" \t\n\f")) | (ours[:, 0] == _COMMENT)
    wrong[:, 2] &= ~(begins | blank)  # tokenize says where a block ends only when the next line begins
    return int(wrong.any(1).sum())


TEXTS = {
    "empty strings": "a = ''\nb = \"\"\nc = f('', \"\")\nd = ''''''\n",
    "quotes in quotes": "a = \"it's\" + 'say \"x\"'\nb = '''it's \"\"\" here'''\n",
    "escapes": "a = 'it\\'s' + \"\\\\\"\nb = '''\\''''\nc = r'\\''\n",
    "comments": "# one ' (\nif x:  # two \"\n    # three\n  # four\n    y = 1\n",
    "brackets in strings": "a = ('(', \"[\", # {\n  '''\n}''')\nb = 1\n",
    "nested": "f(a[b, {1: (2, [3])}]\n   , 4)\nif x:\n    y\n",
    "continued": "if a and \\\n        b:\n    c = 'one\\\n  two'\nd\n",
    "blank lines": "if a:\n    b\n\n\n        # deep\n    c\n\nd\n",
    "tabs": "if a:\n\tb\n\tif c:\n\t\td\ne\n",
    "deep": "a = " + "(" * DEEPEST + "1" + ")" * DEEPEST + "\nb\n",
    "triple with marks": 'a = """one "two" three""" + """x"" y"""\n',
    "bytes and prefixes": "a = b'x' + Rb\"y\" + f'{z}' + u'w'\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_agrees_with_tokenize(name: str) -> None:
    source = TEXTS[name].encode()
    assert mistakes(source) == 0


def library() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    hidden = {"lib2to3", "test", "tests", "site-packages", "idlelib", "turtledemo"}
    return sorted(path for path in root.rglob("*.py") if hidden.isdisjoint(path.relative_to(root).parts))


def readable(path: Path) -> bytes | None:
    source = path.read_bytes()
    try:
        source.decode()
        list(tokenize.generate_tokens(io.StringIO(source.decode()).readline))
    except (UnicodeDecodeError, tokenize.TokenError, SyntaxError):
        return None
    return None if b"\r" in source or b"\0" in source or not source else source


@pytest.mark.skipif(not hasattr(tokenize, "COMMENT"), reason="no tokenizer")
def test_agrees_with_tokenize_on_the_standard_library() -> None:
    paths = library()
    for path in random.Random(0).sample(paths, 12):
        source = readable(path)
        if source is not None and len(source) < 60_000 and deepest(source) <= DEEPEST:
            assert mistakes(source) == 0, path


@pytest.mark.slow
def test_agrees_with_tokenize_on_all_of_the_standard_library() -> None:
    compared = [(path, source) for path in library() if (source := readable(path)) is not None]
    wrong = {path.name: count for path, source in compared if (count := mistakes(source))}
    deep = {path.name for path, source in compared if deepest(source) > DEEPEST}
    assert len(compared) > 500
    assert set(wrong) <= deep


def deepest(source: bytes) -> int:
    """Return the largest number of brackets that are open at once."""
    return int(judged(source)[:, 1].max())


def test_a_deeper_nest_is_left_behind() -> None:
    source = b"a = " + b"(" * 11 + b"1" + b")" * 11 + b"\nb = [1]\n"
    assert lexed(source)[-1].tolist() == [0, 0, 0, 0]


def test_a_new_file_begins_at_a_nul() -> None:
    assert lexed(b"a = ('''\0")[-1].tolist() == [0, 0, 0, 0]


def test_features_are_one_hot_blocks() -> None:
    machine, features = python_lexing(), lexical_features()
    assert len(features) == len(lexings())
    assert features.shape[1] == len(CONTEXTS) + DEEPEST + 1 + 12
    blocks = np.split(features, [6, 15, 21], 1)
    assert all((block.sum(1) == 1).all() for block in blocks[:3])
    assert machine.letters == 256
    assert machine.states < 1200
