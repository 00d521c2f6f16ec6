"""Draw the pictures of docs/automata.md: ``python benchmarks/automata_pictures.py``."""

from __future__ import annotations

from pathlib import Path

from transductor.automata import machine
from transductor.automata.drawing import draw

FIGURES = Path(__file__).parents[1] / "docs" / "figures"

if __name__ == "__main__":
    print(draw(machine("bigram").automaton, FIGURES / "bigram.png"))
