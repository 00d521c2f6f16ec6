"""Make the documentation site: ``make docs``, which runs ``python docs/make_site.py``; it lies in ``build/site``.

The pages of the repository are put together in ``build/site-source`` as ``site_pages.py`` arranges them: links that
leave ``docs`` are led to where their file stands on the site, pages about the code are made from it
(``site_reference.py``), machines are drawn.  Sphinx builds that folder, and its warnings are errors.  Then every link
of what it wrote is followed, and nothing may be loaded from another host.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag, urlsplit

from site_pages import ROOT, SITE, Guide, listed_pages
from site_reference import reference_pages

from transductor.automata import machine, regex, svg
from transductor.report.explorer import example_models, write_explorer
from transductor.theory import STATEMENTS

SOURCE, SITE_FOLDER = ROOT / "build" / "site-source", ROOT / "build" / "site"
INDEX: Final = "docs/index.md"
LIVE: Final = "explorer_live.html"  # what `transductor explore` writes of the models that come with the package
SHOWN_AS_CODE: Final = {".py": "python", ".sh": "sh", ".toml": "toml", ".txt": "text", ".v": "coq", "": "text"}
# A link outside of a code span; the text may hold code and one level of brackets.
LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE: Final = re.compile(r"^ *(```|~~~|:::)")

# Words of the glossary that a reader may not know; where one first stands on a page it leads there.
LINKED_WORDS: Final = (
    "anchor", "arm", "backend", "certificate", "domain", "harden", "hardened", "horizon", "host model", "injection",
    "input kind", "kept back", "margin", "portrait", "probe", "readout", "recipe", "series", "shard", "sidecar",
)  # fmt: skip
ENTRY_OF: Final = {"hardened": "harden"}

# What the gallery draws: a caption and an automaton.
DRAWN: Final = (
    ("counter", "Counting modulo five: `machine('counter:5')`", lambda: machine("counter:5").automaton),
    (
        "occurrences",
        "The number of a's, exactly: `machine('occurrences:a')`",
        lambda: machine("occurrences:a").automaton,
    ),
    ("abb", "Words that end in abb: `regex('(a|b)*abb')`", lambda: regex("(a|b)*abb")),
    (
        "no_repeat",
        "No letter twice in a row: `regex('(a|b|c)*') - regex('(a|b|c)*(aa|bb|cc)(a|b|c)*')`",
        lambda: regex("(a|b|c)*") - regex("(a|b|c)*(aa|bb|cc)(a|b|c)*"),
    ),
    ("value", "The value of a binary numeral: `machine('base_value:2')`", lambda: machine("base_value:2").automaton),
)


class Staging:
    """Puts the pages together in a folder that Sphinx builds."""

    def __init__(self, folder: Path = SOURCE) -> None:
        self.folder = folder
        self.pages = {f"{name}.md" for name in listed_pages()} | {INDEX}
        self.pages |= {str(page.relative_to(ROOT)) for page in (ROOT / "results").glob("*.md")}
        self.waiting: list[Path] = []

    def place(self, target: Path) -> str:
        """Return where a file or folder of the repository stands on the site, and note that it is wanted there."""
        name = str(target.relative_to(ROOT))
        if name in (INDEX, "README.md", "."):
            return "index.md"
        if name in self.pages:
            return name.removeprefix("docs/")
        if target.is_dir():
            known = {"results": "results/index.md", "examples": "examples/index.md", "results/portraits": "gallery.md"}
            if name not in known:
                self.waiting.append(target)
            return known.get(name, f"files/{name}/index.md")
        self.waiting.append(target)
        return f"files/{name}.md" if target.suffix in SHOWN_AS_CODE else name.removeprefix("docs/")

    def rewritten(self, text: str, page: Path, place: str) -> str:
        """Return a page's text with its links led to where their files stand on the site.

        Args:
            text: The Markdown.
            page: Where it stands in the repository.
            place: Where it stands on the site.
        """

        def led(match: re.Match[str]) -> str:
            target, _, section = match[2].partition("#")
            path = Path(os.path.normpath(page.parent / unquote(target)))
            if not target or urlsplit(target).scheme or not path.exists() or not path.is_relative_to(ROOT):
                return match[0]
            link = os.path.relpath(self.place(path), Path(place).parent)
            return f"{match[1]}{link}{'#' + section if section else ''}{match[3]}"

        return outside_of_code(text, lambda line: LINK.sub(led, line))

    def write(self, place: str, text: str) -> None:
        """Write a page."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def stage(self) -> None:
        """Write everything that the site is made of."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in sorted(self.pages):
            page, place = ROOT / name, self.place(ROOT / name)
            text = self.rewritten(page.read_text(), page, place)
            if name == INDEX:
                text = first_page(text)
            elif name == "docs/explorer.md":
                text = with_live_page(text)
            elif name == "docs/theory.md":
                text = linked_statements(text)
            elif name == "docs/glossary.md":
                text = with_anchors(text)
            if name.startswith("docs/") and name != "docs/glossary.md" and "```{code-cell}" not in text:
                text = linked_words(text, os.path.relpath("glossary.md", Path(place).parent))
            self.write(place, text)
        for part in SITE:
            for entry in part.entries:
                if isinstance(entry, Guide):
                    self.write(f"guides/{entry.name}.md", self._guide(entry))
        for place, text in reference_pages().items():
            self.write(f"{place}.md", text)
        self._results()
        self._examples()
        self._gallery()
        self._files()

    def _guide(self, guide: Guide) -> str:
        place = f"guides/{guide.name}.md"
        text = self.rewritten(guide.text, ROOT / INDEX, place)
        parts = [f"# {guide.title}", text]
        lines = []
        for name in guide.pages:
            page = ROOT / f"{name}.md"
            link = os.path.relpath(self.place(page), "guides")
            lines.append(f"* [{title_of(page)}]({link})")
        tree = "\n".join("/" + self.place(ROOT / f"{name}.md").removesuffix(".md") for name in guide.pages)
        parts += ["\n".join(lines), f"```{{toctree}}\n:hidden:\n\n{tree}\n```"]
        return "\n\n".join(parts) + "\n"

    def _results(self) -> None:
        studies = sorted((ROOT / "results").glob("*.md"))
        lines = "\n".join(f"* [{page.stem}]({page.name})" for page in studies)
        tree = "\n".join(page.stem for page in studies)
        self.write(
            "results/index.md",
            "# Study by study\n\nTables and figures that `transductor report` made from the records of the runs; what "
            f"they mean together is on [a page of its own](../results.md).\n\n{lines}\n\n"
            f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n",
        )

    def _examples(self) -> None:
        parts, trees = [], []
        for script in sorted((ROOT / "examples").rglob("*.py")):
            name = str(script.relative_to(ROOT))
            parts.append(f"* [`{name}`](../files/{name}.md)")
            trees.append(f"/files/{name}")
            self.waiting.append(script)
        tree = "\n".join(trees)
        self.write(
            "examples/index.md",
            "# Scripts\n\nComplete programs to begin with; each runs as it stands.\n\n"
            + "\n".join(parts)
            + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n",
        )

    def _gallery(self) -> None:
        parts = [
            "# Gallery",
            "## Machines\n\n`transductor automaton draw` draws an automaton, a notebook shows one; each of these was "
            "drawn when this page was built.",
        ]
        for name, caption, make in DRAWN:
            self.write(f"gallery/{name}.svg", svg(make()))
            parts.append(f"### {caption.split(':')[0]}\n\n![{caption.split(':')[0]}](gallery/{name}.svg)\n\n{caption}.")
        parts.append(
            "## Portraits\n\nWhat the heads of the studies do, measured: the states along one input, the eigenvalues "
            "of the matrices, how far a learned head drifts with the length, and the machine it is near to beside the "
            "task's. `transductor look` draws the same of any model. The pictures are made by `transductor report` "
            "from the [records](results/index.md)."
        )
        for picture in sorted((ROOT / "results" / "portraits").glob("*.png")):
            words = picture.stem.replace("_transductor_ours", "").removeprefix("state_tracking_").replace("_", " ")
            place = self.place(picture)
            parts.append(f"### {words}\n\n![Portrait of the head that learned {words}]({place})")
        self.write("gallery.md", "\n\n".join(parts) + "\n")

    def _files(self) -> None:
        done: set[Path] = set()
        while self.waiting:
            path = self.waiting.pop()
            if path in done:
                continue
            done.add(path)
            name = str(path.relative_to(ROOT))
            if path.is_dir():
                inside = "\n".join(f"* `{one.name}`" for one in sorted(path.iterdir()) if one.name != "__pycache__")
                self.write(
                    f"files/{name}/index.md",
                    f"---\norphan: true\n---\n\n# {name}\n\nA folder of the repository.\n\n{inside}\n",
                )
            elif path.suffix in SHOWN_AS_CODE:
                orphan = "" if name.startswith("examples/") else "---\norphan: true\n---\n\n"
                language = SHOWN_AS_CODE[path.suffix]
                self.write(f"files/{name}.md", f"{orphan}# {name}\n\n`````{language}\n{path.read_text()}\n`````\n")
            else:
                place = self.folder / name.removeprefix("docs/")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)


def outside_of_code(text: str, change) -> str:
    """Return the text with ``change`` applied to what is neither in a fenced block nor in a code span."""
    lines, fence = [], ""
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1] == fence else fence
        elif mark:
            fence = mark[1]
        else:
            # A link's text may be code, its target never is.
            line = change(line)
        lines.append(line)
    return "\n".join(lines)


def title_of(page: Path) -> str:
    """Return the first heading of a page."""
    match = re.search(r"^# (.+)$", page.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{page} has no title")
    return match[1]


def first_page(table: str) -> str:
    """Return the first page of the site: what the library is, the table of purposes, and the table of contents."""
    parts = [
        "---\nhide-toc: true\n---\n\n# Transductor",
        "A Transformer with a weighted automaton as its second stream: attention recalls; the automaton counts, tracks "
        "and switches, at lengths never seen in training. The reference implementation of *Rational Transductors* "
        "(Mohri), in PyTorch. New here? [From nothing to a proof in ten minutes](start.md).",
        "![Accuracy by position on mod-5 counting: the Rational Transductor stays right, the Transformer falls to "
        "chance beyond the trained length](figures/demo.png)",
        table.replace("# What do you want to do?", "## What do you want to do?", 1),
    ]
    for part in SITE:
        lines = []
        for entry in part.entries:
            if isinstance(entry, Guide):
                lines.append(f"guides/{entry.name}")
            else:
                lines.append(entry.removeprefix("+").removeprefix("docs/"))
        listed = "\n".join(lines)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {part.title}\n\n{listed}\n```")
    return "\n\n".join(parts) + "\n"


def with_live_page(text: str) -> str:
    """Return the page of the explorer with a link to the one that the site carries, above its first picture."""
    here = f'<p><a class="reference internal" href="{LIVE}">Open it here</a>, with models of the studies.</p>'
    before, picture, after = text.partition("\n![")
    return f"{before}\n{here}\n{picture}{after}"


def linked_statements(text: str) -> str:
    """Return the page of the statements with each function leading to its description."""
    for entry in STATEMENTS.values():
        target = f"{entry.run.__module__}.{entry.name}"
        text = re.sub(rf"`({entry.name})(\(\))?`", rf"[`\1\2`](#{target})", text)
    return text


def with_anchors(text: str) -> str:
    """Return the glossary with an anchor at every word that stands in its first column."""

    seen = set[str]()

    def anchored(match: re.Match[str]) -> str:
        word = match[1].split(",")[0]
        if word in seen:
            return match[0]
        seen.add(word)
        return f"| [{match[1]}]{{#{anchor_of(word)}}} |"

    return re.sub(r"^\| ((?!word \||not \|)[a-zA-Z ,]+) \|", anchored, text, flags=re.MULTILINE)


def anchor_of(word: str) -> str:
    """Return the anchor of a word of the glossary."""
    return "word-" + word.replace(" ", "-").lower()


def linked_words(text: str, glossary: str) -> str:
    """Return a page on which each word of ``LINKED_WORDS`` leads to the glossary where a sentence first has it."""
    left = dict.fromkeys(LINKED_WORDS)

    def linked(line: str) -> str:
        if re.match(r"\s*([#|!<>`]|---)", line) or not line.strip():
            return line
        pieces = re.split(r"(`[^`]*`|!?\[[^\]]*\]\([^)]*\)|\*\*[^*]*\*\*|<[^>]*>)", line)
        for word in list(left):
            for number in range(0, len(pieces), 2):
                changed, count = re.subn(
                    rf"(?<![\w-]){word}(?![\w-])",
                    f"[{word}]({glossary}#{anchor_of(ENTRY_OF.get(word, word))})",
                    pieces[number],
                    count=1,
                )
                if count:
                    pieces[number : number + 1] = re.split(r"(!?\[[^\]]*\]\([^)]*\))", changed)
                    left.pop(word)
                    left.pop("harden" if word == "hardened" else "hardened" if word == "harden" else word, None)
                    break
        return "".join(pieces)

    return outside_of_code(text, linked)


# What was built.


class _Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        for key in ("id", "name"):
            if given.get(key):
                self.anchors.add(str(given[key]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        loaded = given.get("href") if tag == "link" else given.get("src") or given.get("data")
        if tag != "a" and loaded:
            self.loaded.append(str(loaded))


def problems(folder: Path = SITE_FOLDER) -> list[str]:
    """Return what is wrong with a built site: links that lead nowhere, and files of other hosts that pages load."""
    pages: dict[Path, _Page] = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = _Page()
        pages[path].feed(path.read_text())
    wrong = []
    for path, page in pages.items():
        where = path.relative_to(folder)
        for link in [*page.links, *page.loaded]:
            scheme, host, name = urlsplit(link)[:3]
            if scheme == "data":
                continue
            if scheme or host:
                if link in page.loaded:
                    wrong.append(f"{where} loads {link}")
                continue
            _, section = urldefrag(link)
            target = (path.parent / unquote(name)).resolve() if name else path
            if not target.exists():
                wrong.append(f"{where}: there is no {link}")
            elif section and target in pages and unquote(section) not in pages[target].anchors:
                wrong.append(f"{where}: there is no section {link}")
    for path in folder.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", path.read_text()):
            wrong.append(f"{path.relative_to(folder)} loads {address}")
    return wrong


def main() -> None:
    """Make the site and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-notebooks", action="store_true", help="Show the tutorials without running them.")
    parser.add_argument("--external", action="store_true", help="Only ask whether the links to other hosts answer.")
    options = parser.parse_args()
    Staging().stage()
    builder = "linkcheck" if options.external else "html"
    target = SITE_FOLDER.with_name("site-links") if options.external else SITE_FOLDER
    if not options.external:
        shutil.rmtree(target, ignore_errors=True)
    if options.without_notebooks or options.external:
        os.environ["TUTORIALS"] = "shown"
    settings = ["-D", "nb_execution_mode=off"] if options.without_notebooks or options.external else []
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-c", str(ROOT / "docs"), "-W", "--keep-going", "-q"]
    command += ["-d", str(ROOT / "build" / "site-trees"), *settings, str(SOURCE), str(target)]
    if subprocess.run(command, check=False).returncode:
        sys.exit(1)
    if options.external:
        return
    write_explorer(example_models(), SITE_FOLDER / LIVE)
    wrong = problems()
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        sys.exit(f"{len(wrong)} links or files of the site are wrong")
    print(
        f"{len(list(SITE_FOLDER.rglob('*.html')))} pages, 0 warnings: {(SITE_FOLDER / 'index.html').relative_to(ROOT)}"
    )


if __name__ == "__main__":
    main()
