"""Make docs/architecture.md's picture and its list of rooms from the source: ``python docs/make_architecture.py``.

Rooms are the folders and modules directly below ``src/transductor``.  The picture shows which room imports which, as
grimp reads it from the real imports; an arrow that follows from two others is left out.  The list is made of the
docstrings of the folders.  A test makes both again and compares, so that neither grows old.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

import grimp
import networkx

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "transductor"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "figures" / "architecture.svg"
# Entry points of the package itself, not rooms.
NOT_ROOMS = {"__init__", "__main__"}

Routes = dict[tuple[str, str], list[str]]

BOX_HEIGHT, ROW_HEIGHT, MARGIN, GAP, PAGE_WIDTH = 34, 78, 24, 24, 900


@dataclass(frozen=True)
class Room:
    """A folder or module directly below the package, with the docstring that says what it holds."""

    name: str
    path: Path

    @property
    def docstring(self) -> str:
        """The docstring of the folder's ``__init__`` or of the module."""
        file = self.path / "__init__.py" if self.path.is_dir() else self.path
        return ast.get_docstring(ast.parse(file.read_text())) or ""

    @property
    def label(self) -> str:
        """How the room is written on the page."""
        return f"{self.name}/" if self.path.is_dir() else f"{self.name}.py"


def rooms() -> dict[str, Room]:
    """Every room by name."""
    paths = sorted(path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return {path.stem: Room(path.stem, path) for path in paths if path.stem not in NOT_ROOMS}


def room_graph() -> networkx.DiGraph:
    """Rooms as nodes, with an edge from each room to every room that one of its modules imports."""
    names = set(rooms())
    imports = grimp.build_graph("transductor", exclude_type_checking_imports=True)
    graph = networkx.DiGraph()
    graph.add_nodes_from(sorted(names))
    for importer in imports.modules:
        for imported in imports.find_modules_directly_imported_by(importer):
            pair = [module.split(".")[1] if "." in module else "" for module in (importer, imported)]
            if pair[0] != pair[1] and set(pair) <= names:
                graph.add_edge(*pair)
    return graph


def levels(graph: networkx.DiGraph) -> list[list[str]]:
    """Rooms by height: a room stands one level above the highest room that it imports."""
    height: dict[str, int] = {}
    for name in reversed(list(networkx.lexicographical_topological_sort(graph))):
        height[name] = max((height[below] + 1 for below in graph.successors(name)), default=0)
    rows: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for name in sorted(height):
        rows[height[name]].append(name)
    return rows


def with_bends(rows: list[list[str]], graph: networkx.DiGraph) -> tuple[list[list[str]], Routes]:
    """The rows with a bend wherever an arrow passes a row, and the stations of every arrow from top to bottom."""
    level = {name: number for number, row in enumerate(rows) for name in row}
    rows = [list(row) for row in rows]
    routes: Routes = {}
    for upper, lower in sorted(graph.edges):
        bends = [f"{upper}>{lower}>{number}" for number in range(level[upper] - 1, level[lower], -1)]
        for bend in bends:
            rows[int(bend.split(">")[2])].append(bend)
        routes[upper, lower] = [upper, *bends, lower]
    return rows, routes


def ordered(rows: list[list[str]], routes: Routes) -> list[list[str]]:
    """The rows with rooms and bends moved near what they are joined to, so that few arrows cross."""
    below: dict[str, list[str]] = {name: [] for row in rows for name in row}
    above: dict[str, list[str]] = {name: [] for row in rows for name in row}
    for route in routes.values():
        for upper, lower in pairwise(route):
            below[upper].append(lower)
            above[lower].append(upper)
    place = {name: (column + 1) / (len(row) + 1) for row in rows for column, name in enumerate(row)}
    for sweep in range(24):
        upwards = sweep % 2 == 0
        for row in rows if upwards else reversed(rows):
            joined = below if upwards else above
            wanted = {}
            for name in row:
                near = [place[other] for other in joined[name]]
                wanted[name] = sum(near) / len(near) if near else place[name]
            row.sort(key=lambda name: (wanted[name], name))
            place |= {name: (column + 1) / (len(row) + 1) for column, name in enumerate(row)}
    return rows


def picture(graph: networkx.DiGraph) -> str:
    """The house as SVG: one box per room, the lowest rooms at the bottom, arrows to what a room imports."""
    labels = {name: room.label for name, room in rooms().items()}
    rows, routes = with_bends(levels(graph), networkx.transitive_reduction(graph))
    rows = ordered(rows, routes)
    widths = {name: 9 * len(labels[name]) + 26 if name in labels else 4 for row in rows for name in row}
    height = 2 * MARGIN + ROW_HEIGHT * (len(rows) - 1) + BOX_HEIGHT
    middles: dict[str, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        x = (PAGE_WIDTH - sum(widths[name] for name in row) - GAP * (len(row) - 1)) / 2
        for name in row:
            middles[name] = x + widths[name] / 2, height - MARGIN - BOX_HEIGHT / 2 - ROW_HEIGHT * level
            x += widths[name] + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE_WIDTH} {height}" font-family="monospace" '
        'font-size="15" role="img" aria-label="Rooms of the package and what each imports">',
        '<defs><marker id="tip" markerWidth="9" markerHeight="7" refX="8" refY="3.5" orient="auto">'
        '<path d="M0,0 L9,3.5 L0,7 z" fill="#6b7f95"/></marker></defs>',
        f'<rect width="{PAGE_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    half = BOX_HEIGHT / 2
    for route in routes.values():
        x, y = middles[route[0]]
        path, y = f"M{x:.0f},{y + half:.0f}", y + half
        for station in route[1:]:
            across, centre = middles[station]
            top = centre - half
            path += f" C{x:.0f},{(y + top) / 2:.0f} {across:.0f},{(y + top) / 2:.0f} {across:.0f},{top:.0f}"
            x, y = across, top
            if station not in labels:
                y = centre + half
                path += f" L{x:.0f},{y:.0f}"
        parts.append(f'<path d="{path}" fill="none" stroke="#6b7f95" stroke-width="1.3" marker-end="url(#tip)"/>')
    for name, label in labels.items():
        x, y = middles[name]
        parts.append(
            f'<rect x="{x - widths[name] / 2:.0f}" y="{y - half:.0f}" width="{widths[name]}" height="{BOX_HEIGHT}" '
            f'rx="6" fill="#eaf1f8" stroke="#35618f"/>\n<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" '
            f'fill="#14304d">{escape(label)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def room_list(graph: networkx.DiGraph) -> str:
    """One paragraph per room, from the top of the house to the bottom, and one line per folder inside it."""
    parts = []
    for row in reversed(levels(graph)):
        for name in row:
            room = rooms()[name]
            text = " ".join(room.docstring.split())
            below = ", ".join(f"`{other}`" for other in sorted(graph.successors(name)))
            parts.append(f"**`{room.label}`** {text}" + (f" *Imports {below}.*" if below else " *Imports no room.*"))
            inner = sorted(path.parent for path in room.path.rglob("__init__.py")) if room.path.is_dir() else []
            folders = [Room(str(path.relative_to(SOURCE)), path) for path in inner if path != room.path]
            parts += ["\n".join(f"- `{folder.label}` {folder.docstring.splitlines()[0]}" for folder in folders)]
    return "\n\n".join(part for part in parts if part)


def page(text: str, graph: networkx.DiGraph) -> str:
    """The page with the part between its two marks made again."""
    pattern = r"(<!-- rooms: made by docs/make_architecture.py -->\n).*?(<!-- end of rooms -->)"
    if len(re.findall(pattern, text, re.DOTALL)) != 1:
        raise ValueError(f"{PAGE} must have the two marks of the list of rooms once")
    return re.sub(pattern, lambda marks: f"{marks[1]}\n{room_list(graph)}\n\n{marks[2]}", text, flags=re.DOTALL)


def main() -> None:
    """Write the picture and the list; with ``--check``, say whether they are old and write nothing."""
    graph = room_graph()
    made = {PICTURE: picture(graph), PAGE: page(PAGE.read_text(), graph)}
    old = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"old: {', '.join(map(str, old))}; run python docs/make_architecture.py" if old else 0)
    for path in old:
        path.write_text(made[path])
    print("written:", ", ".join(str(path.relative_to(ROOT)) for path in old) or "nothing, both are up to date")


if __name__ == "__main__":
    main()
