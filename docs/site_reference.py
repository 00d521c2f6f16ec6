"""The reference pages of the site, made from the code: public names and rooms, commands with options, errors."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

import transductor
from transductor.cli import app
from transductor.theory import STATEMENTS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "transductor"

# The rooms that a user meets, in the order of the reference.
ROOMS: Final = (
    "learning",
    "model",
    "heads",
    "injection",
    "transitions",
    "recurrence",
    "compilation",
    "extraction",
    "certification",
    "automata",
    "automata.decomposition.krohn_rhodes",
    "automata.decomposition.monoid",
    "automata.barrington",
    "automata.ben_or_cleve",
    "integrations.huggingface",
    "integrations.export",
    "training",
    "tasks",
    "portraits",
    "studies",
    "theory",
    "report",
    "bench",
    "results",
    "configuration",
)


@dataclass(frozen=True)
class Name:
    """A name of a room: what it is, and the room that explains it."""

    name: str
    value: Any
    room: str
    home: str

    @property
    def kind(self) -> str:
        """The directive that documents it."""
        if inspect.isclass(self.value):
            return "autoclass"
        return "autofunction" if inspect.isroutine(self.value) else "autodata"

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        if self.kind == "autodata":
            return ""
        return first_sentence(inspect.getdoc(self.value) or "")


def first_sentence(text: str) -> str:
    """Return the first paragraph of a docstring as Markdown, without roles."""
    text = " ".join(text.split("\n\n")[0].split())
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def exported(room: str) -> list[str]:
    """Return the names that a room offers: those of ``__all__``, or what it defines without an underscore."""
    module = importlib.import_module(f"transductor.{room}")
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    here = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [
        name
        for name, value in here.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
    ]


def names() -> list[Name]:
    """Return every exported name once for each room that has it; ``home`` is the first room that explains it."""
    homes: dict[int, str] = {}
    every = []
    for room in ROOMS:
        module = importlib.import_module(f"transductor.{room}")
        for name in exported(room):
            value = getattr(module, name)
            kept = homes.setdefault(id(value), room) if callable(value) else room
            every.append(Name(name, value, room, kept))
    return every


def reference_pages() -> dict[str, str]:
    """Return the pages of the reference that are made from the code, by their path on the site."""
    return {
        "reference/api/index": _api_index(),
        **{f"reference/api/{room}": _room_page(room) for room in ROOMS},
        "reference/commands": commands_page(),
        "reference/errors": errors_page(),
    }


def _api_index() -> str:
    rows = []
    homes = {id(one.value): one.home for one in names()}
    for name in sorted(transductor.__all__, key=str.lower):
        value = getattr(transductor, name)
        home = homes[id(value)]
        summary = first_sentence(inspect.getdoc(value) or "")
        rows.append(f"| [`{name}`](#transductor.{home}.{name}) | {_cell(summary)} | [`{home}`]({home}.md) |")
    rooms = "\n".join(f"| [`transductor.{room}`]({room}.md) | {_cell(_says(room))} |" for room in ROOMS)
    tree = "\n".join(ROOMS)
    return (
        "# Python\n\n"
        f"`import transductor` gives these {len(transductor.__all__)} names; "
        "everything else is imported from its room.\n\n"
        "| name | what it is | explained in |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n\n## Rooms\n\n"
        "| room | what it holds |\n| --- | --- |\n"
        f"{rooms}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )


def _says(room: str) -> str:
    module = importlib.import_module(f"transductor.{room}")
    return first_sentence(inspect.getdoc(module) or "")


def _room_page(room: str) -> str:
    module = f"transductor.{room}"
    parts = [f"# {module}", _says(room)]
    here = [one for one in names() if one.room == room]
    elsewhere = [one for one in here if one.home != room]
    for one in sorted(
        (one for one in here if one.home == room), key=lambda one: (one.kind != "autofunction", one.name)
    ):
        parts.append(_directive(module, one))
    if room == "theory":
        parts.append(
            "## The statements of the paper\n\nWhat came out of each is on [a page of its own](../../theory.md)."
        )
        for entry in STATEMENTS.values():
            home = inspect.unwrap(entry.run).__module__
            parts.append(f"```{{eval-rst}}\n.. autofunction:: {home}.{entry.name}\n```")
    if elsewhere:
        links = ", ".join(f"[`{one.name}`](#transductor.{one.home}.{one.name})" for one in elsewhere)
        parts.append(f"Also here, and explained elsewhere: {links}.")
    return "\n\n".join(parts) + "\n"


def _directive(module: str, one: Name) -> str:
    lines = [f".. {one.kind}:: {module}.{one.name}"]
    if one.kind == "autoclass":
        lines += ["   :members:", "   :show-inheritance:"]
    if one.kind == "autodata":
        lines = [f".. py:data:: {module}.{one.name}", "", f"   {_shown(one.value)}"]
    body = "\n".join(lines)
    return f"```{{eval-rst}}\n{body}\n```"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "By name: " + ", ".join(f"``{key}``" for key in value) + "."
    text = repr(value)
    return f"``{text}``" if len(text) < 80 else f"A ``{type(value).__name__}``."


# Commands.


@dataclass(frozen=True)
class Command:
    """A command of ``transductor`` with its parameters, as typer holds them."""

    path: tuple[str, ...]
    value: Any

    @property
    def name(self) -> str:
        """How it is written on a shell."""
        return " ".join(("transductor", *self.path))


def commands() -> Iterator[Command]:
    """Yield every command and every command of a group, in the order of ``--help``."""

    def below(path: tuple[str, ...], group: Any) -> Iterator[Command]:
        for name, value in group.commands.items():
            if hasattr(value, "commands"):
                yield from below((*path, name), value)
            else:
                yield Command((*path, name), value)

    yield from below((), typer.main.get_command(app))


def commands_page() -> str:
    """Return the page with every command, its arguments and its options."""
    parts = [
        "# Commands and options",
        "Made from the command line itself. What all commands share (exit statuses, outputs, devices) is on "
        "[a page of its own](../commands.md); `transductor COMMAND --help` says the same on a terminal.",
    ]
    every = list(commands())
    parts.append("\n".join(f"* [`{one.name}`](#{_anchor(one.name)}): {_first_line(one.value.help)}" for one in every))
    parts += [_command_section(one) for one in every]
    return "\n\n".join(parts) + "\n"


def _command_section(command: Command) -> str:
    arguments = [one for one in command.value.params if one.param_type_name == "argument"]
    options = [one for one in command.value.params if one.param_type_name != "argument" and one.name != "help"]
    usage = " ".join([command.name, "[OPTIONS]" if options else "", *(_placeholder(one) for one in arguments)]).split()
    parts = [f"## {command.name}", f"```text\n{' '.join(usage)}\n```", _markdown(command.value.help or "")]
    rows = [[f"`{_placeholder(one)}`", _cell(_markdown(_help(one)))] for one in arguments]
    rows += [[_option(one), _cell(_markdown(_help(one)))] for one in options]
    if rows:
        parts.append("| | |\n| --- | --- |\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def _placeholder(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name += "…" if parameter.nargs == -1 else ""
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    spelled = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{one}`" for one in sorted(spelled, key=len, reverse=True))


def _help(parameter: Any) -> str:
    text = (parameter.help or "").strip()
    default = parameter.default
    is_plain = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    if is_plain and str(default) and getattr(parameter, "show_default", True) and not parameter.required:
        text += f" Default: {default}."
    if parameter.required:
        text += " Required."
    return text.strip()


def _first_line(text: str | None) -> str:
    return _markdown((text or "").split("\n\n")[0])


def _markdown(text: str) -> str:
    """Return help text as Markdown that shows it as it stands; paragraphs stay, code between backticks too."""
    pieces = re.split(r"(`+[^`]*`+)", inspect.cleandoc(text))
    return "".join(one if one.startswith("`") else re.sub(r"([*_<>\[\]\\])", r"\\\1", one) for one in pieces)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# Errors.


def errors() -> list[tuple[str, str, str]]:
    """Return name, module and first sentence of every exception and warning that the package defines for a caller."""
    every = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
            if any(re.search(r"(Error|Exception|Warning|Interrupt)$", base) for base in bases):
                module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
                every.append(
                    (node.name, f"{module} ({', '.join(bases)})", first_sentence(ast.get_docstring(node) or ""))
                )
    return sorted(every)


def errors_page() -> str:
    """Return the page of errors: what is raised, and what a command makes of it."""
    rows = "\n".join(f"| `{name}` | `{where}` | {_cell(text)} |" for name, where, text in errors())
    return (
        "# Errors\n\n"
        "An error says which argument or file it is about, and what is allowed. A command turns it into one line on "
        "standard error and [an exit status](../commands.md#exit-statuses); nothing is written.\n\n"
        "* `TypeError`: an argument of the wrong kind.\n"
        "* `ValueError`: a value that is not allowed, or values that do not go together.\n"
        "* `OSError`: a file or folder that cannot be read or written.\n"
        "* `ImportError`: an extra that is not installed; the message names it.\n\n"
        "The errors and warnings of the library's own, with the class that each is:\n\n"
        f"| name | where (its class) | when |\n| --- | --- | --- |\n{rows}\n"
    )
