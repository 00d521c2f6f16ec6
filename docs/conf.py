"""Settings of Sphinx for the documentation site; ``make_site.py`` puts its pages together and runs it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from transductor import __version__

project = "Transductor"
author = "The Transductor authors"
copyright = author
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns: list[str] = []

# Pages are also read as plain Markdown, so nothing that only Sphinx understands is switched on.
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
smartquotes = False
suppress_warnings = ["misc.highlighting_failure"]  # console blocks with an ellipsis
if os.environ.get("TUTORIALS") == "shown":
    suppress_warnings.append("myst-nb.lexer")  # only the kernel knows the language

nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_execution_in_temp = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"Transductor {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_static_path = [str(Path(__file__).parent / "site_static")]
html_css_files = ["site.css"]
html_theme_options = {"footer_icons": []}

# Notebooks are quick on one core, and leave the others alone.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONWARNINGS"] = "ignore"


def _bars(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Let bars mean a norm, as in ``|g| ≤ 1``, and not a substitution."""
    for number, line in enumerate(lines):
        pieces = re.split(r"(``.*?``)", line)
        lines[number] = "".join(one if one.startswith("``") else one.replace("|", r"\|") for one in pieces)


def setup(app: Any) -> None:
    """Connect what Sphinx asks for while it reads docstrings."""
    app.connect("autodoc-process-docstring", _bars)
