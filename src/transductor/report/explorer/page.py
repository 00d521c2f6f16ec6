"""Puts page, style, modules and models into one HTML file that needs no other, and may load none.

What a model calls its letters and classes comes from strangers.  It enters the page as JSON in which no character can
end the element that holds it, and the page writes it as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Final

from transductor.portraits.explored import Explored
from transductor.results import write_atomically

MOST_BYTES: Final = 2_000_000
_FOLDER: Final = Path(__file__).parent
_FIRST: Final = "page"  # the module that starts the page
_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:const|class|async function|function\*?) (\w+))", re.MULTILINE)
_MODULE_COMMENT: Final = re.compile(r"\A//[^\n]*\n")


def explorer_page(models: Sequence[Explored], title: str = "Explorer") -> str:
    """Return the page of these models as HTML.

    Raises:
        ValueError: If there are none, two of one name, or more than a page should hold.
    """
    if not models:
        raise ValueError("models must hold at least one model")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise ValueError(f"models must have different names; got {', '.join(names)}")
    style, script = (_FOLDER / "page.css").read_text(encoding="utf-8"), bundled(_FIRST)
    # Nothing but this script and this style runs or applies, and nothing is fetched from anywhere.
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": escape(title),
        "style": style,
        "made": escape(f"Made by transductor explore, of {', '.join(names)}. Nothing in this page is loaded or sent."),
        "models": json_in_html({"models": [asdict(model) for model in models]}),
        "script": script,
    }
    template = (_FOLDER / "page.html").read_text(encoding="utf-8")
    # All at once: what is put in is never looked through for further places.
    page = re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)
    size = len(page.encode())
    if size > MOST_BYTES:
        sizes = {model.name: len(json_in_html(asdict(model)).encode()) for model in models}
        largest = max(sizes, key=sizes.__getitem__)
        raise ValueError(
            f"the page would have {size / 1e6:.1f} MB, and at most {MOST_BYTES / 1e6:.0f} MB are written: give fewer "
            f"or smaller models; {largest} takes {sizes[largest] / 1e6:.1f} MB"
        )
    return page


def write_explorer(models: Sequence[Explored], path: str | Path, title: str = "Explorer") -> Path:
    """Write the page of these models; return the file."""
    return write_atomically(path, explorer_page(models, title).encode())


def json_in_html(value: object) -> str:
    """Return JSON that can stand in an element of a page: no character in it begins a tag, an entity or a comment."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # What is no character of its own, half of a pair, cannot be written as UTF-8.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def bundled(first: str) -> str:
    """Return a module and all that it imports as one script; each keeps its names to itself."""
    done: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules must not import each other in a circle: {' → '.join((*above, name))}")
        if name in done:
            return
        text = (_FOLDER / f"{name}.js").read_text(encoding="utf-8")
        for _, imported in _IMPORT.findall(text):
            add(imported, (*above, name))
        exported = [match[2] for match in _EXPORT.finditer(text)]
        text = _MODULE_COMMENT.sub("", _IMPORT.sub(r"const {\1} = module_\2;\n", text))
        text = _EXPORT.sub(r"\1", text)
        done[name] = f"const module_{name} = (() => {{\n{text}return {{ {', '.join(exported)} }};\n}})();\n"

    add(first, ())
    return "\n" + "".join(done.values())


def _digest(text: str) -> str:
    """Return how a content security policy names a script or a style that stands in the page."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
