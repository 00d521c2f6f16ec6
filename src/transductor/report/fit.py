"""The table and the report of a fit, from its record."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from transductor.automata import read, svg
from transductor.automata.drawing import MAX_STATES
from transductor.fit_facts import check_fit, walked_steps
from transductor.report.fit_figures import accuracy_svg, machine_svg
from transductor.report.pages import Block, Commands, Heading, Items, Paragraph, Picture, Rows, html, markdown
from transductor.results import Record, read_record, write_atomically

_MOST_CELLS: Final = 600  # a larger table of transitions is left to machine.json


def fit_table(record: Record) -> Table:
    """Return one row for each model: how right it is at each multiple of the trained length, its size and its time."""
    rows = _model_rows(record.measurements)
    table = Table(title=None)
    for place, name in enumerate(rows.header):
        table.add_column(name, justify="left" if place < 2 else "right")
    for number, row in enumerate(rows.rows):
        table.add_row(*row, style="bold" if number in rows.emphasised else None)
    return table


def fit_report(folder: str | Path) -> list[Path]:
    """Write the report of the fit in this folder: ``report.md`` with its pictures, and ``report.html`` alone."""
    folder = Path(folder)
    record = read_fit(folder)
    blocks = _blocks(record, folder)
    written = [
        write_atomically(folder / block.file, block.svg.encode()) for block in blocks if isinstance(block, Picture)
    ]
    written.append(write_atomically(folder / "report.md", markdown(blocks).encode()))
    written.append(write_atomically(folder / "report.html", html(_title(record), blocks).encode()))
    return written


def read_fit(folder: str | Path) -> Record:
    """Return the record of the fit in this folder.

    Raises:
        ValueError: If there is none, or it is not that of a fit; the message names the file and the part.
    """
    file = Path(folder) / "record.json"
    record = read_record(file)
    try:
        check_fit(record.measurements)
    except ValueError as error:
        raise ValueError(f"{file} is not the record of a fit: {error}") from None
    return record


def _title(record: Record) -> str:
    return f"What {Path(record.measurements['data']['path']).name} says"


def _blocks(record: Record, folder: Path) -> list[Block]:
    facts = record.measurements
    answer, machine = facts["answer"], facts["machine"]
    blocks: list[Block] = [Heading(_title(record), 1), Paragraph(answer["sentence"])]
    if answer["sureness"]:
        blocks += [Heading("How sure, and on what"), Items(tuple(answer["sureness"]))]
    if machine is not None:
        blocks += [Heading("The machine"), *_machine_blocks(facts)]
    if facts["contradicted"]:
        blocks += [Heading("Labels that it contradicts"), *_contradicted_blocks(facts)]
    if facts["automaton"] is not None:
        blocks += [Heading("The weighted automaton"), *_automaton_blocks(facts, folder)]
    if answer["advice"]:
        blocks += [Heading("What to do"), Items(tuple(answer["advice"]))]
    blocks += [Heading("The models"), *_model_blocks(facts)]
    if facts["certificate"] is not None:
        blocks += _certificate_blocks(facts)
    blocks += [Heading("The data"), Items(tuple(_data_sentences(facts)))]
    blocks += [Heading("What else was tried"), Items(tuple(_other_candidates(facts)))]
    blocks += [Heading("What next"), Commands(tuple(_commands(folder, facts)))]
    return blocks


def _machine_blocks(facts: Mapping[str, Any]) -> list[Block]:
    machine, letters = facts["machine"], facts["data"]["letters"]
    picture = machine_svg(facts)
    blocks: list[Block] = []
    if picture is not None:
        description = f"The machine: {machine['states']} states over {len(letters)} words"
        blocks.append(Picture(picture, "machine.svg", description))
    if machine["states"] * len(letters) <= _MOST_CELLS:
        classes, walked = facts["data"]["classes"], walked_steps(machine)
        rows = tuple(
            (
                f"{state}{' (start)' * (state == machine['start'])}",
                classes[label] if label >= 0 else "–",
                *(f"{to}" if (state, letter) in walked else f"({to})" for letter, to in enumerate(row)),
            )
            for state, (label, row) in enumerate(zip(machine["outputs"], machine["transitions"], strict=True))
        )
        explained = "The next state after each word, and the label of a sequence that ends in a state"
        guessed = len(walked) < machine["states"] * len(letters)
        blocks.append(Paragraph(explained + " (in brackets: guessed, as no sequence takes that step)" * guessed + ":"))
        blocks.append(Rows(("state", "label", *letters), rows))
    blocks.append(Paragraph("The same as a file: machine.json."))
    return blocks


def _contradicted_blocks(facts: Mapping[str, Any]) -> list[Block]:
    explained = (
        "The shortest of them.  Either these labels are wrong, or the machine is: where one of them is right, give "
        "more sequences that are like it."
    )
    rows = tuple((words or "(empty)", given, said) for words, given, said in facts["contradicted"])
    return [Paragraph(explained), Rows(("sequence", "label in the data", "label of the machine"), rows)]


def _automaton_blocks(facts: Mapping[str, Any], folder: Path) -> list[Block]:
    states = facts["automaton"]["states"]
    blocks: list[Block] = []
    if states <= MAX_STATES:
        picture = svg(read(folder / "machine.json"))
        blocks.append(Picture(picture, "machine.svg", f"The weighted automaton: {states} states"))
    return [*blocks, Paragraph("All weights, exactly: machine.json.")]


def _model_blocks(facts: Mapping[str, Any]) -> list[Block]:
    division = facts["division"]
    explained = (
        f"Trained on {division['training']:,} sequences of at most {division['trained_length']} tokens; 1× are "
        f"{division['validation']:,} others of these lengths"
    )
    if division["longer"]:
        explained += f", and the {division['longer']:,} longest sequences were kept back to choose by"
    blocks: list[Block] = [Paragraph(f"{explained}. {facts['chosen']['sentence']}"), _model_rows(facts)]
    if division["note"]:
        blocks.append(Paragraph(f"Note: {division['note']}."))
    for name, reason in facts["left_out"].items():
        blocks.append(Paragraph(f"{name} was left out: {reason}."))
    picture = accuracy_svg(facts)
    if picture is not None:
        blocks.append(
            Picture(picture, "accuracy.svg", "How right each model is at each multiple of the trained length")
        )
    return blocks


def _model_rows(facts: Mapping[str, Any]) -> Rows:
    real = facts["data"]["goal"] == "regression"
    counts = [each["count"] for each in facts["baseline"]["bands"]]
    names = [f"{name} (n = {count:,})" for name, count in zip(facts["bands"], counts, strict=True)]
    header = ("model", "what it is", *names, "parameters", "seconds")
    baseline = (facts["baseline"]["name"], "baseline", *_shares(facts["baseline"]["bands"], real), "", "")
    rows, emphasised = [baseline], []
    for each in facts["recipes"]:
        kind = f"{each['summary']}{' (for comparison)' * each['peer']}"
        shown = _shares(each["bands"], real) if each["failed"] is None else ["failed"] * len(names)
        if each["name"] == facts["chosen"]["name"]:
            emphasised.append(len(rows))
        rows.append((each["name"], kind, *shown, f"{each['parameters']:,}", f"{each['seconds']:.1f}"))
    return Rows(header, tuple(rows), tuple(emphasised))


def _shares(bands: Sequence[Mapping[str, Any]], real: bool) -> list[str]:
    """Return shares with their intervals, or errors."""
    if real:
        return [f"{each['error']:.4g}" for each in bands]
    return [
        f"{each['right'] / max(1, each['count']):.1%} ({100 * each['low']:.0f}–{100 * each['high']:.0f})"
        for each in bands
    ]


def _certificate_blocks(facts: Mapping[str, Any]) -> list[Block]:
    certificate = facts["certificate"]
    made = {
        "compiled": "The model was compiled from the machine; nothing in it is trained.",
        "hardened": "The model is the trained one, hardened to the machine.",
        "trained": "The model is the trained one.",
    }[facts["answer"]["made_by"]]
    return [
        Heading("The certificate"),
        Paragraph(f"{certificate['verdict']}: {certificate['claim']}. {made}"),
        Items(
            (
                f"How: {certificate['method']}.",
                f"It covers: {'; '.join(certificate['covers'])}.",
                *(f"It assumes: {each}." for each in certificate["assumptions"]),
            )
        ),
    ]


def _data_sentences(facts: Mapping[str, Any]) -> list[str]:
    data = facts["data"]
    labels = {"recognition": "a label for each sequence", "tagging": "a label for each token"}
    sentences = [
        f"{data['sequences']:,} sequences of {data['shortest']} to {data['longest']} tokens, "
        f"{labels.get(data['goal'], 'a number for each sequence')}.",
        f"{len(data['letters'])} words: {_listed(data['letters'])}.",
    ]
    if data["counts"]:
        sentences.append("Labels: " + ", ".join(f"{name} ({count:,})" for name, count in data["counts"].items()) + ".")
    if data["conflicts"]:
        sentences.append(
            f"{data['conflicts']:,} sequences occur with more than one label: some of these labels must be wrong."
        )
    return sentences


def _other_candidates(facts: Mapping[str, Any]) -> list[str]:
    sentences = []
    for each in facts["candidates"]:
        from_model = f" ({each['recipe']})" if each["recipe"] else ""
        verdict = "; ".join(each["refusals"]) or "believed"
        machine = f"A machine of {each['states']} state{'s' * (each['states'] != 1)}"
        sentences.append(f"{machine}, {each['how']}{from_model}: {verdict}.".replace("..", "."))
    return [*sentences, *facts["notes"]] or ["No machine was looked for."]


def _commands(folder: Path, facts: Mapping[str, Any]) -> list[str]:
    run = shlex.quote(str(folder))
    lines = [f"transductor predict {run} < new_sequences.txt", f"transductor evaluate {run} --data … --labels …"]
    if facts["machine"] is not None:
        lines.append(f"transductor look {run}")
    if facts["certificate"] is not None:
        lines += [
            f"transductor certify {run} --against {run}/machine.json",
            f"transductor certify --check {run}/certificate.json.gz --model {run}/model",
        ]
    return lines


def _listed(names: Sequence[str], most: int = 40) -> str:
    return ", ".join(names[:most]) + (f", … ({len(names) - most} more)" if len(names) > most else "")
