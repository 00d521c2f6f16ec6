"""A model card is printed on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from transductor.model.card import ModelCard


def card_view(card: ModelCard) -> Group:
    """Show parameters, families, laws as measured, and the cost of one step."""
    frozen = f", {card.frozen:,} frozen" if card.frozen else ""
    parts = Table("part", Column("parameters", justify="right"))
    for name, count in card.parts.items():
        parts.add_row(name, f"{count:,}")
    title = Text(f"{card.kind}: {card.parameters:,} parameters{frozen}, {card.dtype}", style="bold")
    views: list[Table | Text] = [title, parts]
    for head in card.heads:
        table = Table("law", Column("measured", justify="right"), Column("bound", justify="right"), "holds")
        for law in head.laws:
            verdict = Text("yes", style="green") if law.holds else Text(f"NO, {law.witness}", style="bold red")
            table.add_row(law.claim, f"{law.measured:.1e}", f"{law.bound:.0e}", verdict)
        if not head.laws:
            table.add_row("none: the family is unconstrained", "", "", "")
        details = (
            f"state of dimension {head.state_dim}, driven by {head.drive}, {head.parameters:,} parameters, "
            f"{head.step_cost:,} multiply–adds a step"
        )
        views += [Text(f"\n{head.place}: {head.family}", style="bold"), Text(details), table]
    if not card.heads:
        views.append(Text("no rational head"))
    return Group(*views)
