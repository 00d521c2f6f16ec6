"""Make the generated parts and the figures of docs/theory.md and docs/beyond.md: ``python docs/make_theory.py``.

Every number on both pages comes from a record: ``results/theory.json``, which ``transductor theory --json`` writes,
and the records of three studies in ``benchmarks/results``.  A test makes the pages again and compares; figures are
written only without ``--check``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from theory_statements import ROOT, entries, number, statements, table
from theory_studies import cover_numbers, groups_parts, smoothing_minima, smoothing_outcome, smoothing_table

from transductor.report.style import save_figure
from transductor.report.theory_figures import statement_figure, statement_figure_name, study_figure_of_theory
from transductor.results import read_record

__all__ = ["RECORD", "ROOT", "filled", "number", "table", "written"]

PAGE, BEYOND, FIGURES = ROOT / "docs" / "theory.md", ROOT / "docs" / "beyond.md", ROOT / "docs" / "figures"
RECORD = ROOT / "results" / "theory.json"
RESULTS = ROOT / "benchmarks" / "results"
STUDIES = {name: RESULTS / f"{name}.json" for name in ("cover_transition", "label_smoothing", "groups_map")}
DRAWN = {"cover_transition": "theory_cover_transition", "label_smoothing": "theory_label_smoothing",
         "groups_map": "theory_groups"}  # fmt: skip


def filled(text: str, mark: str, content: str, maker: str = "make_theory") -> str:
    """Return a page with the part between two marks made again."""
    pattern = rf"(<!-- {mark}: made by docs/{maker}.py -->\n).*?(<!-- end of {mark} -->)"
    if len(re.findall(pattern, text, re.DOTALL)) != 1:
        raise ValueError(f"the page must have the two marks of {mark} once")
    return re.sub(pattern, lambda marks: f"{marks[1]}\n{content}\n\n{marks[2]}", text, flags=re.DOTALL)


def pages() -> dict[Path, str]:
    """Both pages as the records say they are."""
    cover, smoothing, groups = (read_record(STUDIES[name]) for name in STUDIES)
    theory = filled(PAGE.read_text(), "statements", statements(entries(read_record(RECORD).measurements)))
    beyond = filled(BEYOND.read_text(), "cover", cover_numbers(cover.measurements["points"]))
    runs = smoothing.measurements["runs"]
    horizons = f"{smoothing_outcome(runs)}\n\n{smoothing_table(runs, smoothing.settings['cap'])}"
    beyond = filled(beyond, "minima", smoothing_minima(smoothing.measurements["minima"]))
    beyond = filled(beyond, "smoothing", horizons)
    for mark, content in groups_parts(groups.measurements, groups.settings).items():
        beyond = filled(beyond, mark, content)
    return {PAGE: theory, BEYOND: beyond}


def written(made: Mapping[Path, str], maker: str) -> list[str]:
    """Write the pages that are old, and name them; with ``--check``, write nothing and end, with an error if one is."""
    old = [path for path, text in made.items() if path.read_text() != text]
    names = [str(path.relative_to(ROOT)) for path in old]
    if "--check" in sys.argv[1:]:
        sys.exit(f"old: {', '.join(names)}; run python docs/{maker}.py" if old else 0)
    for path in old:
        path.write_text(made[path])
    return names


def main() -> None:
    """Write pages and figures; with ``--check``, say whether a page is old and write nothing."""
    old = written(pages(), "make_theory")
    for entry in entries(read_record(RECORD).measurements):
        for each in entry["numbers"]:
            name = statement_figure_name(each, entry["measurements"])
            if name is not None:
                save_figure(statement_figure(each, entry["measurements"]), FIGURES / f"{name}.png")
    for name, path in STUDIES.items():
        record = read_record(path)
        plain = {"measurements": record.measurements, "settings": record.settings}
        save_figure(study_figure_of_theory(name, plain), FIGURES / f"{DRAWN[name]}.png")
    print("written:", ", ".join(old) or "figures only, both pages are up to date")


if __name__ == "__main__":
    main()
