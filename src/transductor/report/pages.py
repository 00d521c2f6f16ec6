"""Pages as a list of blocks, written once and rendered twice: as Markdown, and as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}"
    "table{border-collapse:collapse;margin:1rem 0}th{border-bottom:2px solid #888}"
    "th,td{padding:.3rem .7rem;text-align:left}td{border-bottom:1px solid #ddd}"
    "pre{background:#f4f4f4;padding:.8rem;overflow-x:auto}"
    "svg{max-width:100%;height:auto}.scroll{overflow-x:auto}"
)


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title of the page."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of plain sentences."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """A table of plain cells; rows of these numbers are emphasised."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    emphasised: tuple[int, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A picture as SVG text, and the file beside the Markdown page that holds it too."""

    svg: str
    file: str
    description: str


@dataclass(frozen=True)
class Commands:
    """Lines for a shell."""

    lines: tuple[str, ...]


Block = Heading | Paragraph | Items | Rows | Picture | Commands


def markdown(blocks: Sequence[Block]) -> str:
    """Return a page as Markdown; pictures are links to files beside it."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_plain(block.text)}"
        case Paragraph():
            return _plain(block.text)
        case Items():
            return "\n".join(f"- {_plain(text)}" for text in block.texts)
        case Rows():
            rows = [
                tuple(f"**{cell}**" if number in block.emphasised and cell else cell for cell in map(_cell, row))
                for number, row in enumerate(block.rows)
            ]
            lines = [tuple(map(_cell, block.header)), ("---",) * len(block.header), *rows]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)
        case Picture():
            return f"![{_plain(block.description)}]({block.file})"
        case Commands():
            return "\n".join(["```sh", *block.lines, "```"])


def _plain(text: str) -> str:
    """Return text in which what Markdown would take for a mark, such as the name of a token, stays as it is."""
    return "".join(f"\\{character}" if character in "\\`*_<[#" else character for character in text)


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").replace("\n", " ")


def html(title: str, blocks: Sequence[Block]) -> str:
    """Return a page as one HTML file that needs no other."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
        case Paragraph():
            return f"<p>{escape(block.text)}</p>"
        case Items():
            return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in block.texts) + "</ul>"
        case Rows():
            header = "".join(f"<th>{escape(cell)}</th>" for cell in block.header)
            rows = "".join(_row(row, number in block.emphasised) for number, row in enumerate(block.rows))
            return f'<div class="scroll"><table><tr>{header}</tr>{rows}</table></div>'
        case Picture():
            # Everything before the element, an XML declaration or a document type, is not allowed inside a page.
            element = block.svg[block.svg.index("<svg") :]
            return f'<figure role="img" aria-label="{escape(block.description)}">{element}</figure>'
        case Commands():
            return f"<pre>{escape(chr(10).join(block.lines))}</pre>"


def _row(cells: Sequence[str], emphasised: bool) -> str:
    shown = (f"<b>{escape(cell)}</b>" if emphasised else escape(cell) for cell in cells)
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in shown) + "</tr>"
