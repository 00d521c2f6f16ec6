"""The models of the page that is written without any: trained once, kept in ``examples.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from transductor.portraits.explored import Explored, read_explored

EXAMPLES: Final = Path(__file__).parent / "examples.json"


def example_models() -> list[Explored]:
    """Return the models that come with the package; docs/make_explorer.py trains them and says how."""
    return read_explored(EXAMPLES)
