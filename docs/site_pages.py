"""How the pages of the documentation site are arranged: parts, guides by purpose, and what stands in them.

A page is named by its path in the repository without ending: ``docs/fit`` is ``docs/fit.md``.  Pages that
``make_site.py`` makes itself are named by where they stand on the site, with a ``+``: ``+reference/commands``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Guide:
    """One purpose of a reader: a page of its own that names the pages to read, in order.

    Attributes:
        name: The file of the page on the site, below ``guides``.
        title: What the reader wants to do.
        text: A paragraph in Markdown; links are relative to ``docs``.
        pages: The pages that belong to it.
    """

    name: str
    title: str
    text: str
    pages: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A caption of the site's table of contents and what stands below it."""

    title: str
    entries: tuple[str | Guide, ...]


GUIDES: Final = (
    Guide(
        "track_state",
        "Track state in my data",
        "You have sequences and labels, and the label depends on what happened *so far*: a door that is open or not, a "
        "connection, an editor's mode. `transductor fit` takes the file and ends with the machine behind the labels "
        "and a model that is proved to be it; `transductor train` trains one model that you choose.",
        (
            "docs/fit",
            "docs/examples/doors",
            "docs/examples/vending",
            "docs/examples/tcp",
            "docs/examples/editor",
            "docs/training",
            "docs/own_words",
            "docs/induction",
        ),
    ),
    Guide(
        "prove",
        "Prove a model",
        "You have a trained model and want to know whether it is right on *every* word, not on the test set. Extract "
        "the machine it is near to, harden the model to it, certify the result; a certificate can be checked without "
        "this library, and part of it by Rocq.",
        ("docs/certify", "docs/attention", "docs/checker", "docs/proofs"),
    ),
    Guide(
        "build",
        "Build a model of my own",
        "A family of matrices makes a head, a head and a backbone make a model. Every choice is an object; every "
        "family states its laws and is tested on them.",
        ("docs/families", "docs/transitions", "docs/heads", "docs/filter", "docs/models", "docs/export"),
    ),
    Guide(
        "decoder",
        "Add state to my decoder",
        "You have a pretrained decoder (GPT-2, Llama, Qwen, Mistral, Gemma, Phi and others) and want it to know the "
        "state of an automaton. A sidecar adds it, changes nothing until it is trained, and can be taken away again; a "
        "model of our own works with `generate`, `Trainer` and `pipeline`.",
        ("docs/sidecar", "docs/huggingface"),
    ),
    Guide(
        "constrain",
        "Constrained decoding",
        "Text must match a pattern, and the model should know where in the pattern it is.",
        ("docs/constrained",),
    ),
    Guide(
        "shell",
        "Automata on a shell",
        "Regular expressions, logic, OpenFst and JFLAP files, minimisation, equivalence with separating words, "
        "learning: from the command line and from Python, exact over the rationals, without torch.",
        ("docs/shell", "docs/automata"),
    ),
    Guide(
        "distributed",
        "Several processes, several machines",
        "Train on several processes, split one sequence across them, or spread the runs of a study over a cluster.",
        ("docs/distributed", "docs/studies"),
    ),
    Guide(
        "speed",
        "Speed",
        "What the scan costs, which backend is chosen and why, and what a head adds to a Transformer.",
        ("docs/scan", "docs/kernels"),
    ),
)

TUTORIALS: Final = (
    "docs/tutorials/file_to_proof",
    "docs/tutorials/compile_break_certify",
    "docs/tutorials/sidecar",
    "docs/tutorials/workbench",
)

SITE: Final = (
    Part("Start", ("docs/start", "docs/install", "docs/choosing", "docs/demo", "docs/explorer", "+gallery")),
    Part("Tutorials", TUTORIALS),
    Part("Guides", GUIDES),
    Part("Theory", ("docs/theory", "docs/beyond")),
    Part("Results", ("docs/paper", "docs/results", "docs/peers", "docs/language_models", "+results/index")),
    Part(
        "Reference",
        ("+reference/api/index", "+reference/commands", "docs/commands", "docs/formats", "+reference/errors"),
    ),
    Part("How it works", ("docs/architecture", "docs/files", "docs/doctor")),
    Part("More", ("docs/glossary", "+examples/index", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
)


def listed_pages() -> list[str]:
    """Return every page of the repository in the order of the table of contents."""
    pages: list[str] = []
    for part in SITE:
        for entry in part.entries:
            pages += entry.pages if isinstance(entry, Guide) else [entry]
    return [page for page in pages if not page.startswith("+")]


def pages_of_the_repository() -> list[str]:
    """Return what must be on the site: every page of ``docs`` but its index, which is the first page of the site."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    names = [str(page.relative_to(ROOT).with_suffix("")) for page in pages]
    return [name for name in names if name != "docs/index"]
