"""``transductor theory``: every statement of the paper, run and answered."""

from __future__ import annotations

import inspect
import textwrap
import time
import types
import typing
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.terminal import console, interruptions, print_written, progress, refusals

if TYPE_CHECKING:
    from rich.table import Table

    from transductor.theory import Statement, StatementCertificate

OPTIONS_OF_STATEMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of the command: options that it does not know are arguments of the statement."""


def theory(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A statement: its name, an unambiguous part of it, or its number.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only statements that take a few seconds.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the record here.")] = None,
) -> None:
    """Run the statements of the paper and print what was confirmed; status 1 if one is not.

    With a name, that one alone, and its own arguments as options: `transductor theory cascade_reduction --dims 3,2`.
    """
    from transductor.theory import STATEMENTS, theory_record

    with refusals():
        words = [*([] if name is None else [name]), *context.args]
        chosen, options = _parsed(words)
        statements = [entry for entry in STATEMENTS.values() if entry.quick or not quick]
        if chosen is not None:
            statements = [_named(chosen)]
        elif options:
            raise ValueError(f"--{next(iter(options))} is an argument of one statement: give its name as well")
        arguments = _arguments(statements[0], options) if options else {}
        terminal, on_errors = console(200), console(stderr=True)
        answers: dict[str, tuple[StatementCertificate, float]] = {}
        columns = "bar", "count", "elapsed", "remaining", "{task.description}"
        with interruptions(lambda: "interrupted"), progress(*columns, console=on_errors, transient=True) as bars:
            bar = bars.add_task("", total=len(statements))
            for entry in statements:
                bars.update(bar, description=entry.title)
                begin = time.perf_counter()
                answers[entry.name] = entry.run(**arguments), time.perf_counter() - begin
                bars.advance(bar)
        terminal.print(_table(answers))
        if chosen is not None:
            terminal.print(_explained(answers[statements[0].name][0]), highlight=False)
        refuted = [certificate for certificate, _ in answers.values() if not certificate.holds]
        for certificate in refuted:
            terminal.print(f"NOT CONFIRMED: {certificate}: {certificate.witness}", soft_wrap=True, highlight=False)
        if json is not None:
            print_written(theory_record(answers, arguments).write(json))
    if refuted:
        raise typer.Exit(1)


def _parsed(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Return the name and the options ``--option value`` or ``--option=value`` among words in any order."""
    names, options, rest = list[str](), dict[str, str](), list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            names.append(word)
            continue
        option, given, value = word[2:].partition("=")
        if not given:
            if not rest:
                raise ValueError(f"--{option} needs a value")
            value = rest.pop(0)
        if option in options:
            raise ValueError(f"--{option} is there twice")
        options[option] = value
    if len(names) > 1:
        raise ValueError(f"one statement or all: got {', '.join(map(repr, names))}")
    return (names[0] if names else None), options


def _named(name: str) -> Statement:
    """Return the statement of a name, of a part of one name or title, or of a number."""
    from transductor.theory import STATEMENTS

    if name in STATEMENTS:
        return STATEMENTS[name]
    if name.isdecimal():
        matches = [entry for entry in STATEMENTS.values() if int(name) in entry.numbers]
    else:
        part = _folded(name)
        matches = [
            entry for entry in STATEMENTS.values() if part in _folded(entry.name) or part in _folded(entry.title)
        ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ValueError(f"{name!r} is part of several names: {', '.join(entry.name for entry in matches)}")
    raise ValueError(f"NAME must be one of {', '.join(STATEMENTS)}; got {name!r}")


def _folded(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _arguments(entry: Statement, options: dict[str, str]) -> dict[str, Any]:
    """Return the arguments of a statement's function, read by the types of its signature."""
    allowed = {
        name: reader
        for name, hint in typing.get_type_hints(entry.run).items()
        if name in inspect.signature(entry.run).parameters and (reader := _reader(hint)) is not None
    }
    arguments = {}
    for option, value in options.items():
        name = option.replace("-", "_")
        if name not in allowed:
            known = ", ".join(f"--{each.replace('_', '-')}" for each in allowed) or "none on a command line"
            raise ValueError(f"{entry.name} has no argument --{option}; it has {known}")
        try:
            arguments[name] = allowed[name](value)
        except (ValueError, ZeroDivisionError):
            wanted = _wanted(typing.get_type_hints(entry.run)[name])
            raise ValueError(f"--{option} must be {wanted}; got {value!r}") from None
    return arguments


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    bool: (lambda text: {"true": True, "false": False, "yes": True, "no": False}[text.lower()], "true or false"),
    int: (int, "an integer"),
    float: (float, "a number"),
    str: (str, "text"),
    Fraction: (Fraction, "a fraction such as 1/2"),
}


def _reader(hint: Any) -> Callable[[str], Any] | None:
    """Return what reads text as a type; None for types that have no short text."""
    if hint in _READERS:
        read = _READERS[hint][0]
        return lambda text: _read(read, text)
    parts = [part for part in typing.get_args(hint) if part not in (type(None), Ellipsis)]
    if len(parts) != 1 or parts[0] not in _READERS:
        return None
    read = _READERS[parts[0]][0]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return lambda text: None if text.lower() == "none" else _read(read, text)
    return lambda text: tuple(_read(read, part.strip()) for part in text.split(","))


def _read(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except KeyError:
        raise ValueError(text) from None


def _wanted(hint: Any) -> str:
    """Say in words what a type allows."""
    if hint in _READERS:
        return _READERS[hint][1]
    (part,) = (part for part in typing.get_args(hint) if part not in (type(None), Ellipsis))
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return f"{_READERS[part][1]} or none"
    return f"values with commas between them, each {_READERS[part][1]}"


def _table(answers: dict[str, tuple[StatementCertificate, float]]) -> Table:
    from rich.table import Table

    table = Table(title="Statements of the paper", title_justify="left")
    for heading, options in (
        ("", {"justify": "right"}),
        ("statement", {"max_width": 34}),
        ("finding", {"no_wrap": True}),
        ("claim", {"ratio": 1}),
        ("measured", {"justify": "right", "no_wrap": True}),
        ("s", {"justify": "right", "no_wrap": True}),
    ):
        table.add_column(heading, **options)
    for certificate, seconds in answers.values():
        finding = certificate.finding if certificate.holds else "NOT CONFIRMED"
        table.add_row(
            ", ".join(map(str, certificate.numbers)),
            certificate.title,
            finding,
            textwrap.shorten(certificate.claim, 110, placeholder=" …"),
            f"{_short(certificate.measured)} {certificate.relation} {_short(certificate.bound)}",
            f"{seconds:.1f}",
        )
    return table


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _explained(certificate: StatementCertificate) -> str:
    """Write a certificate in full, a line for each part."""
    relation = (
        f"{certificate.measured} violations, at most {certificate.bound} allowed"
        if certificate.relation in ("⇒", "∄")
        else f"{certificate.measured} {certificate.relation} {certificate.bound}"
    )
    if certificate.tolerance:
        relation += f" (tolerance {certificate.tolerance:.1e}: {certificate.tolerance_reason})"
    lines = [f"claim     {certificate.claim}", f"measured  {relation}", f"witness   {certificate.witness}"]
    if certificate.care:
        lines.append(f"care      {certificate.care}")
    return "\n".join([*lines, *(f"{name}: {value}" for name, value in certificate.measurements.items())])
