"""The explorer: one page in which models run, made of modules in plain JavaScript and of the models' numbers."""

from transductor.report.explorer.examples import example_models
from transductor.report.explorer.page import MOST_BYTES, explorer_page, write_explorer

__all__ = ["MOST_BYTES", "example_models", "explorer_page", "write_explorer"]
