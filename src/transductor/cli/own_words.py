"""The user's own names: what a saved model calls its letters and classes, and words and machines in that spelling."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.models import described_data
from transductor.cli.options import abridged, automaton_or_machine, split_letters

if TYPE_CHECKING:
    from transductor.automata import DFA, MooreMachine, TokenAlphabet, WeightedAutomaton
    from transductor.training import FileData

Accept = Annotated[
    str | None,
    typer.Option("--accept", help="The class that stands for acceptance, where its name does not say so."),
]
_SEQUENCES_OF_A_TASK = 4096
# Names of classes that say which one means acceptance, the rejecting one first.
_PAIRS = (
    ("0", "1"), ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("reject", "accept"),
    ("rejected", "accepted"), ("negative", "positive"), ("neg", "pos"), ("-", "+"), ("invalid", "valid"),
    ("out", "in"), ("bad", "good"), ("fail", "pass"),
)  # fmt: skip


@dataclass(frozen=True)
class OwnWords:
    """What a model calls its letters and its classes.

    Attributes:
        alphabet: Which tokens are letters, their names, and what comes before a word.
        classes: The names of the labels 0, 1, …; None where they have none.
        data: What the model was trained on, if that was a file.
    """

    alphabet: TokenAlphabet
    classes: tuple[str, ...] | None = None
    data: FileData | None = None

    def class_named(self, option: str, name: str) -> int:
        """Return the number of a class, which may be given by its name or, where it has none, its number."""
        if self.classes is not None:
            if name in self.classes:
                return self.classes.index(name)
            raise ValueError(f"{option} must be one of the classes {', '.join(self.classes)}; got {name!r}")
        if not name.isdigit():
            raise ValueError(f"{option} must be the number of a class, since classes have no names; got {name!r}")
        return int(name)

    def described(self) -> str:
        """Return what a word is, in one line."""
        letters = abridged([*self.alphabet.letter_names], ", ")
        if self.alphabet.begin is None:
            return f"words are sequences of {letters}"
        return (
            f"words are {self.alphabet.names[self.alphabet.begin]} and then any of {letters}; "
            "other sequences are outside of the domain"
        )


def own_words(folder: Path | None, model: Any, letters: str | None = None) -> OwnWords:
    """Return the names that the checkpoint, the training data or ``--letters`` give to tokens; else their numbers."""
    from transductor.automata import TokenAlphabet
    from transductor.model import letters_of

    head = getattr(model, "rational_head", model)
    count = getattr(getattr(head, "transitions", model), "vocab_size", None) or 0
    data = None if folder is None else described_data(folder)
    names: Sequence[str] | None = None if folder is None else letters_of(folder)
    origin = None if folder is None else folder / "config.json"
    if names is None and data is not None and folder is not None:
        assert data.vocabulary is not None
        names, origin = data.vocabulary.tokens, folder / "data.json"
    if letters is not None:
        if names is not None:
            raise ValueError(f"--letters is for models without names; this one has {abridged([*names], ', ')}")
        names, origin = split_letters(letters), Path("--letters")
    if names is not None and len(names) != count:
        raise ValueError(f"{origin} does not describe data of {count} tokens; it names {len(names)}")
    classes = None
    if data is not None and data.vocabulary is not None and data.goal in ("recognition", "tagging"):
        classes = data.vocabulary.classes
    if data is not None and data.vocabulary is not None and data.goal == "next_token":
        classes = data.vocabulary.tokens
    # Only a label per sequence, or the next token, is taught after <start> alone.
    taught = data is None or data.goal in ("recognition", "next_token")
    alphabet = TokenAlphabet.of_names(names or [str(token) for token in range(count)], empty_word=taught)
    return OwnWords(alphabet, classes, data)


def words_of(path: Path | None, task: str | None, length: int, own: OwnWords) -> Sequence[Sequence[int]] | None:
    """Return the words of a file or of a task as tokens, what comes before a word included; None without either.

    A file has a sequence per line, or is JSONL or CSV, in the spelling of the model's data; lengths may differ.
    """
    import torch

    from transductor.tasks import task_named

    if path is not None and task is not None:
        raise ValueError("one of --words and --task is enough")
    if task is not None:
        sample = task_named(task).sample(_SEQUENCES_OF_A_TASK, length, torch.Generator().manual_seed(0))
        rows: list[list[int]] = sample.tolist()
        return rows
    return None if path is None else _words_in(path, own)


def words_of_data(own: OwnWords) -> Sequence[Sequence[int]] | None:
    """Return the words that a model was trained on; None where the file is not there any more."""
    if own.data is None or not Path(own.data.path).exists():
        return None
    return _words_in(Path(own.data.path), own)


def _words_in(path: Path, own: OwnWords) -> Sequence[Sequence[int]]:
    from transductor.training.files import FileFormat, read_rows

    data = own.data
    form = FileFormat() if data is None else data.form
    if path.suffix.lower() not in (".csv", ".tsv", ".jsonl"):
        form = FileFormat(form.split)
    numbers = {own.alphabet.names[token]: token for token in own.alphabet.letters}
    first = [] if own.alphabet.begin is None else [own.alphabet.begin]
    rows = []
    for row in read_rows(str(path), form=form, goal="next_token"):
        for name in row.names:
            if name not in numbers:
                raise ValueError(
                    f"{row.where}: {name!r} is no letter of the model, which has {abridged([*numbers], ', ')}"
                )
        rows.append([*first, *(numbers[name] for name in row.names)])
    if not rows:
        raise ValueError(f"{path} has no sequences")
    return rows


def own_automaton(
    source: str, own: OwnWords, alphabet: str | None, weights: str | None, kind: str, accept: str | None = None
) -> MooreMachine | WeightedAutomaton:
    """Return the automaton or machine that a source or task names, over the model's letters and with its classes.

    Of an expression or a language, the words accepted have the class that stands for acceptance.  A machine with
    labels has the numbers of the classes, as ``transductor extract`` writes them.
    """
    from transductor.automata import DFA
    from transductor.certification import in_token_order

    names = own.alphabet.letter_names
    # An expression is about the model's letters, so that a dot means any of them.
    expression = source.partition(":")[0] in ("regex", "mso", "wmso")
    spelled: str | Sequence[str] | None = (
        names if expression and alphabet is None and own.data is not None else alphabet
    )
    automaton, letters = automaton_or_machine(source, spelled, weights, kind)
    by_class = _by_class(automaton, own, accept) if isinstance(automaton, DFA) else automaton
    if accept is not None and not isinstance(automaton, DFA):
        raise ValueError("--accept is for languages, which accept or reject; this automaton has labels or values")
    called = [*map(str, letters)]
    if set(called) != set(names) and called == [*map(str, range(len(names)))]:
        called = [*names]  # letters without names of their own: letter v is the model's letter v
    return in_token_order(by_class, called, [*names])


def _by_class(language: DFA, own: OwnWords, accept: str | None) -> MooreMachine:
    """Return the machine whose labels are the classes of the words that a language accepts and rejects."""
    import numpy as np

    from transductor.automata import MooreMachine

    machine = MooreMachine.from_dfa(language)
    if accept is None and own.classes is None:
        return machine
    if own.classes is not None and len(own.classes) != 2:
        raise ValueError(
            f"a language tells two classes apart, and the model has {len(own.classes)}: {', '.join(own.classes)}; "
            "give an automaton whose values are the numbers of the classes, as `transductor extract` writes it"
        )
    accepting = _accepting(own.classes) if accept is None and own.classes is not None else None
    if accept is not None:
        accepting = own.class_named("--accept", accept)
    if accepting not in (0, 1):
        allowed = "0, 1" if own.classes is None else ", ".join(own.classes)
        raise ValueError(f"--accept must say which class means acceptance: one of {allowed}")
    outputs = np.where(machine.outputs == 1, accepting, 1 - accepting)
    return MooreMachine(machine.transitions, outputs, machine.start)


def _accepting(classes: tuple[str, ...]) -> int | None:
    """Return which of two classes means acceptance, where their names say so."""
    lower = [name.lower() for name in classes]
    for rejecting, accepting in _PAIRS:
        if set(lower) == {rejecting, accepting}:
            return lower.index(accepting)
    return None


def token_tables(machine: MooreMachine, names: Sequence[str]) -> bytes:
    """Return a machine over tokens as the plain tables that ``checker.py`` reads."""
    tables = {
        "letters": [*names],
        "transitions": machine.transitions.tolist(),
        "outputs": machine.outputs.tolist(),
        "start": machine.start,
    }
    return (json.dumps(tables) + "\n").encode()
