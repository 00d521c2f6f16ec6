"""The report of every study in a folder of records: tables and a figure as files, and tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from transductor.portraits.values import read_portrait
from transductor.report.portrait import portrait_figure
from transductor.report.study_cells import Sheet
from transductor.report.study_claims import NOT_SPECIFIED
from transductor.report.study_figures import study_figure
from transductor.report.study_records import StudyRecords, read_studies
from transductor.report.study_sheets import CLAIMS_TITLE, study_sheets
from transductor.report.style import QUICK, mark_quick, save_figure
from transductor.results import write_atomically
from transductor.study_names import CODE_STUDIES

_READING = (
    "The paper's text leaves open what follows; behind the colon is what was done. Every number of our reading of its "
    "recipe depends on these choices, and so does whatever is concluded from it:"
)
_CELLS = "A cell is the mean over seeds (least–largest) × how many; a seed that is not among them is named."


def study_report(folder: str | Path, output: str | Path | None = None) -> list[Path]:
    """Write ``<study>.md`` and ``<study>.png`` for every study with records in ``folder``, and the portraits there.

    Of a quick run the files are called ``<study>_quick``, and say in themselves that they are no result.

    Only records are read.  A record that cannot be read is named in the report of its study, and the rest is reported.

    Args:
        folder: Folder that holds ``<study>/<arm>/seed<k>.json``.
        output: Folder to write to; ``folder`` if it is not given.

    Raises:
        FileNotFoundError: If there is no record at all.
    """
    output = Path(folder if output is None else output)
    written: list[Path] = []
    for study in read_studies(folder):
        name, figure = study.name, study_figure(study)
        if study.quick:
            name = f"{name}_quick"
            mark_quick(figure)
        written.append(write_atomically(output / f"{name}.md", _markdown(study, f"{name}.png").encode()))
        written.append(save_figure(figure, output / f"{name}.png"))
    for path in sorted(Path(folder).glob("portraits/*/*.json")):
        picture = output / "portraits" / f"{path.parent.name}_{path.stem}.png"
        written.append(portrait_figure(read_portrait(path), picture))
    return written


def study_tables(study: StudyRecords) -> Group:
    """Return the tables of one study of :func:`read_studies` for the terminal, as :func:`study_report` writes them."""
    views: list[Table | Text] = [Text(f"{study.name}: {study.question}", style="bold")]
    for sheet in study_sheets(study):
        table = Table(title=sheet.title, title_justify="left", show_lines=False)
        for place, column in enumerate(sheet.columns):
            table.add_column(column, justify="left" if place == 0 else "right")
        for row in sheet.rows:
            table.add_row(*(Text(words) for words in row))
        views.append(table)
    return Group(*views, *(Text(line) for line in _remarks(study)))


def _markdown(study: StudyRecords, figure: str) -> str:
    parts = [f"# {study.name}", study.question, f"![{study.name}]({figure})", *_remarks(study)]
    for sheet in study_sheets(study):
        parts += [f"## {sheet.title}", _table(sheet)]
        if sheet.title == CLAIMS_TITLE and study.name in NOT_SPECIFIED:
            parts += [_READING, "\n".join(f"* {line}" for line in NOT_SPECIFIED[study.name])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(sheet: Sheet) -> str:
    rows: Sequence[Sequence[str]] = (sheet.columns, ["---"] * len(sheet.columns), *sheet.rows)
    return "\n".join("| " + " | ".join(map(_escaped, row)) + " |" for row in rows)


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _remarks(study: StudyRecords) -> list[str]:
    """Return remarks on how to read the tables, where the numbers were measured, and what could not be read."""
    chances = sorted({arm.chance for arm in study.arms if arm.name.split("_")[0] in ("transductor", "transformer")})
    machines = {
        f"{run.record.environment.get('device')} ({run.record.environment.get('processor')})"
        for arm in study.arms
        for run in arm.runs
    }
    remarks = [_CELLS]
    if study.quick:
        remarks.insert(0, f"**{QUICK}**")
    if len(chances) == 1:
        remarks[-1] += f" Chance is {chances[0]:.3g}."
    if study.name in ("tracking", "tracking_wide", "tracking_more"):
        remarks.append("The paper has no such study.")
    if study.name in CODE_STUDIES:
        remarks.append("The paper has no such study. What was planned and predicted: docs/language_models.md.")
    if study.name in ("state_tracking", "ablations", "deep_injection"):
        remarks.append("The paper has no such study: every column is ours, and a heading says where it is hardened.")
    if machines:
        remarks.append(f"Made on {', '.join(sorted(machines))}.")
    return [*remarks, *(f"Damaged, and left out: {sentence}." for sentence in study.damaged)]
