"""Letters and weights as short labels of a picture."""

from __future__ import annotations

from typing import Any

from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Weights
from transductor.automata.words import Symbol

MAX_LINES = 6
MAX_LETTERS = 8
MAX_CHARACTERS = 16


def arc_label(automaton: WeightedAutomaton, read: list[tuple[int, Any]]) -> str:
    """Write the letters of parallel arcs, given by number, those of one weight in one line: ``a, b : 1/2``."""
    groups: dict[str, list[Symbol]] = {}
    for letter, weight in read:
        groups.setdefault(weight_label(automaton.weights, weight), []).append(automaton.alphabet[letter])
    lines = []
    for weight_text, letters in groups.items():
        shown = [letter_label(letter) for letter in letters[:MAX_LETTERS]]
        if len(letters) > MAX_LETTERS:
            shown.append(f"… ({len(letters)})")
        rows = _rows(shown)
        lines += [*rows[:-1], f"{rows[-1]} : {weight_text}" if weight_text else rows[-1]]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 1 :] = [f"… ({len(read)} letters)"]
    return "\n".join(lines)


def _rows(shown: list[str]) -> list[str]:
    """Return letters with commas between them, in lines that are not too long."""
    rows = [shown[0]]
    for text in shown[1:]:
        if len(rows[-1]) + len(text) < MAX_CHARACTERS:
            rows[-1] += f", {text}"
        else:
            rows[-1] += ","
            rows.append(text)
    return rows


def letter_label(letter: Symbol) -> str:
    """Return a letter as it is read; one that the eye would miss or mistake is quoted."""
    text = str(letter)
    if not text or text != text.strip() or "," in text or " : " in text or not text.isprintable():
        text = repr(letter)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def weight_label(weights: Weights, weight: Any) -> str:
    """Return a weight in at most some twelve characters; nothing for the weight one."""
    if weight == weights.one:
        return ""
    if weights.name == "rational":
        text = str(weight) if weight.denominator.bit_length() + weight.numerator.bit_length() < 40 else ""
        return text.replace("-", "−") or f"≈{_decimal(weight)}"
    return _decimal(weight)


def _decimal(weight: Any) -> str:
    try:
        return f"{float(weight):.4g}".replace("-", "−")
    except OverflowError:
        return "huge"
