"""Walks the four example data sets from file to certificate, and puts on their pages what a reader will see.

``python docs/make_fit_examples.py [NAME …]`` writes the data, runs the commands of each page, asks whether the machine
that was found is the one that drew the data, and fills in ``docs/examples/NAME.md`` and ``docs/figures/fit_NAME.svg``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from make_theory import ROOT, filled

PAGES = ROOT / "docs" / "examples"
FIGURES = ROOT / "docs" / "figures"
DATA = ROOT / "examples" / "data"
NAMES = ("doors", "vending", "tcp", "editor")
WIDTH = 110


def commands(text: str) -> list[str]:
    """What a page has the reader type, one command a line."""
    return re.findall(r"^\$ (.+)$", text, re.MULTILINE)


def answered(command: str, folder: Path) -> str:
    """What a command prints, progress bars left out; exit status 1 is an answer too."""
    here = re.sub(r"\b(?:transductor|python)\b", lambda word: _PROGRAMS[word[0]], command.replace("examples/data/", ""))
    setting = os.environ | {"COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb"}
    done = subprocess.run(here, shell=True, cwd=folder, env=setting, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    printed = "\n".join(line for line in done.stdout.splitlines() if "━" not in line)
    return re.sub(
        r"^covers: .*", "…", printed, flags=re.MULTILINE | re.DOTALL
    )  # what a proof rests on has its own page


_PROGRAMS = {"transductor": f"{sys.executable} -m transductor", "python": sys.executable}


def is_the_truth(found: Path, truth: Any, classes: list[str]) -> bool:
    """Whether two machines label every sequence alike: every pair of states that one sequence reaches is looked at."""
    machine = json.loads(found.read_text())
    step = [{state: following for following, state, _ in each["sparse"]} for each in machine["matrices"]]
    labels = [classes[int(label)] for label in machine["final"]["dense"]]
    ((start, _),) = machine["initial"]["sparse"]
    seen, waiting = set(), [(start, truth.start)]
    while waiting:
        pair = waiting.pop()
        if pair in seen:
            continue
        seen.add(pair)
        if labels[pair[0]] != truth.labels[pair[1]]:
            return False
        waiting += [
            (step[place][pair[0]], truth.after(pair[1], event)) for place, event in enumerate(machine["alphabet"])
        ]
    return True


def walked(name: str, text: str, folder: Path) -> str:
    """The page with everything that its commands print, and what came out."""
    shutil.copy(DATA / "make_examples.py", folder)
    began = time.perf_counter()
    shown = [f"$ {command}\n{answered(command, folder)}".rstrip() for command in commands(text)]
    seconds = time.perf_counter() - began
    run = folder / "runs" / name
    measured = json.loads((run / "record.json").read_text())["measurements"]
    if not is_the_truth(
        run / "machine.json", getattr(import_module("make_examples"), name.upper()), measured["data"]["classes"]
    ):
        raise RuntimeError(f"{name}: the machine that was found is not the one that drew the data")
    shutil.copy(run / "machine.svg", FIGURES / f"fit_{name}.svg")
    shown = [block.replace(str(folder) + "/", "") for block in shown]
    closing = (
        f"All of it took {seconds:.0f} seconds on one core of a shared machine. The machine gives the label of the one "
        "that drew the data on *every* sequence: the script that made this page went through all pairs of states."
    )
    return "```console\n" + "\n\n".join(shown) + "\n```\n\n" + closing


def main() -> None:
    """Fill in the pages that are named, or all."""
    sys.path.append(str(DATA))
    for name in sys.argv[1:] or NAMES:
        page = PAGES / f"{name}.md"
        with tempfile.TemporaryDirectory() as folder:
            text = page.read_text()
            page.write_text(filled(text, "walk", walked(name, text, Path(folder)), "make_fit_examples"))
        print("written:", page.relative_to(ROOT))


if __name__ == "__main__":
    main()
