"""XML without its dangerous parts: no document types, entities or other encodings, and bounded depth and size."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from transductor.automata.formats.errors import AutomatonFormatError

MAX_DEPTH = 32
MAX_ELEMENTS = 1_000_000


@dataclass(slots=True)
class Element:
    """An element, its direct text, its children, and the line where it begins."""

    tag: str
    attributes: dict[str, str]
    line: int
    parts: list[str] = field(default_factory=list)
    children: list[Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The characters between the children."""
        return "".join(self.parts)

    def all(self, tag: str) -> list[Element]:
        """Return the children of that name."""
        return [child for child in self.children if child.tag == tag]


def parsed_xml(text: str, source: str) -> Element:
    """Return the root of a document, or an AutomatonFormatError that names the line."""
    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    document = Element("", {}, 0)
    open_elements = [document]
    count = 0

    def refused(reason: str) -> AutomatonFormatError:
        return AutomatonFormatError(source, parser.CurrentLineNumber, reason)

    def declared(_version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
            raise refused(f"the encoding must be UTF-8; got {encoding[:40]!r}")

    def doctype(*_: object) -> None:
        raise refused("a DOCTYPE or ENTITY declaration is not allowed")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(open_elements) > MAX_DEPTH:
            raise refused(f"elements are nested more than {MAX_DEPTH} deep")
        if count > MAX_ELEMENTS:
            raise refused(f"there are more than {MAX_ELEMENTS} elements")
        element = Element(tag, attributes, parser.CurrentLineNumber)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements.pop()

    def characters(content: str) -> None:
        open_elements[-1].parts.append(content)

    parser.XmlDeclHandler = declared
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = doctype
    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        reason = f"not well-formed XML: {expat.errors.messages.get(error.code, 'unknown error')}"
        raise AutomatonFormatError(source, error.lineno, reason) from None
    return document.children[0]
