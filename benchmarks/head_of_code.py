"""What a head that was trained on source code counts: python benchmarks/head_of_code.py --arm forgetting TENSORS...

Each TENSORS is a file of safetensors with the weights of a model of the study ``stream_defaults``, or with those of its
head and injection alone; ``--arm`` says of which arm, once for each.  For every byte: how far it moves the state, what
it keeps, its order.  Then how much of the lexical machine's knowledge a linear map reads from the head's states on test
files, beside the same head untrained, and from the machine's own permuted copy.  Writes
``benchmarks/results/head_of_code.json`` and a figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file

from transductor.automata.python_lexing import CONTEXTS, DEEPEST, LEVELS, lexed, lexical_features
from transductor.extraction import directions_read, letter_facts, readable_from
from transductor.model import RationalTransductor
from transductor.report.style import save_figure
from transductor.results import Record
from transductor.studies import OF_CODE
from transductor.studies.code_choices import test_files
from transductor.studies.code_models import PYTHON
from transductor.studies.running import seeded_model

RESULTS = Path(__file__).parent / "results"
FILES, LENGTH = 24, 4096
BLOCKS = {"context": len(CONTEXTS), "depth": DEEPEST + 1, "level": len(LEVELS), "column": len(LEVELS)}
SHOWN = b"()[]{}'\"#\n \\:abz09"


def model_of(arm_name: str, tensors: Path | None) -> RationalTransductor:
    """Return the model of an arm, with the head and injection of a file; without one, as it begins."""
    arm = next(arm for arm in OF_CODE["stream_defaults"].arms if arm.name == arm_name)
    model = seeded_model(arm, 0, "cpu").eval()
    if not isinstance(model, RationalTransductor):
        raise ValueError(f"--arm must have a learned head; {arm_name} has none")
    if tensors is not None:
        kept = {name: value for name, value in load_file(tensors).items() if name.startswith(("rational", "injection"))}
        missing, unknown = model.load_state_dict(kept, strict=False)
        if unknown or any(name.startswith(("rational", "injection")) for name in missing):
            raise ValueError(f"{tensors} does not hold the head of {arm_name}")
    return model


def texts() -> list[bytes]:
    """Return the beginnings of test files."""
    long = [file for file in test_files(PYTHON) if len(file) >= LENGTH]
    return [long[place * len(long) // FILES][:LENGTH] for place in range(FILES)]


@torch.no_grad()
def read_shares(model: RationalTransductor, read: list[bytes]) -> dict[str, float]:
    """Return how much of each kind of knowledge is read from the states, as the mean R² of what varies."""
    tokens = torch.tensor([list(text) for text in read])
    states = model.rational_head(tokens).flatten(0, 1)
    known = np.concatenate([lexed(text) for text in read])
    sizes = list(BLOCKS.values())
    facts = np.concatenate([known[:, [place]] == np.arange(size) for place, size in enumerate(sizes)], 1)
    assert facts.shape[1] == lexical_features().shape[1]
    shares = readable_from(states, torch.tensor(facts, dtype=torch.float64))
    parts = shares.split(sizes)
    return {name: float(part[~part.isnan()].mean()) for name, part in zip(BLOCKS, parts, strict=True)}


def described(model: RationalTransductor, read: list[bytes]) -> dict[str, Any]:
    """Return letters, directions and what can be read of one model."""
    facts = letter_facts(model.rational_head)
    letters = [[f.letter, f.moves, f.keeps, f.order, f.residue] for f in facts]
    used = set(np.unique(np.frombuffer(b"".join(read), np.uint8)).tolist())
    ordered = [f for f in facts if f.letter in used and f.order is not None and f.order > 1]
    return {
        "letters": [[value if value is None else round(value, 5) for value in row] for row in letters],
        "used": sorted(used),
        "with_an_order": len(ordered),
        "that_do_nothing": sum(f.order == 1 for f in facts if f.letter in used),
        "directions_read": directions_read(model),
        "state_dim": model.rational_head.state_dim,
        "readable": read_shares(model, read),
    }


def figure_of(arms: dict[str, Any]) -> Figure:
    """Draw, for each arm, how far bytes move the state against what they keep, and what can be read."""
    figure = Figure(figsize=(5.2 * len(arms), 8), layout="constrained")
    axes = figure.subplots(2, len(arms), squeeze=False)
    for column, (name, arm) in enumerate(arms.items()):
        axis = axes[0, column]
        rows = {row[0]: row for row in arm["trained"]["letters"] if row[0] in arm["trained"]["used"]}
        axis.scatter([row[1] for row in rows.values()], [row[2] for row in rows.values()], s=12, color="#8fa3c7")
        for letter in SHOWN:
            if letter in rows:
                axis.annotate(repr(chr(letter))[1:-1], rows[letter][1:3], fontsize=11, color="#12224f")
        axis.set(title=name, xlabel="how far it moves the state", ylabel="what it keeps")
        below = axes[1, column]
        places = np.arange(len(BLOCKS))
        for shift, kind, colour in ((-0.2, "untrained", "#c9ced8"), (0.2, "trained", "#1f5fbf")):
            heights = [arm[kind]["readable"][block] for block in BLOCKS]
            below.bar(places + shift, heights, 0.38, color=colour, label=kind)
        below.set_xticks(places, list(BLOCKS))
        below.axhline(0, color="0.4", lw=1)
        below.set(ylim=(-0.3, 1), ylabel="read by a linear map, R² on other files")
        below.legend(frameon=False)
    return figure


def main() -> None:
    """Read the files, write the record and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tensors", nargs="+", type=Path)
    parser.add_argument("--arm", action="append", required=True)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    read = texts()
    arms = {
        name: {"trained": described(model_of(name, path), read), "untrained": described(model_of(name, None), read)}
        for name, path in zip(arguments.arm, arguments.tensors, strict=True)
    }
    settings = {"study": "stream_defaults", "seed": 0, "files": FILES, "length": LENGTH}
    Record("head_of_code", settings, {"arms": arms}).write(arguments.output / "head_of_code.json")
    save_figure(figure_of(arms), arguments.output / "head_of_code.png")
    for name, arm in arms.items():
        print(name, arm["trained"]["readable"], "untrained", arm["untrained"]["readable"])


if __name__ == "__main__":
    main()
