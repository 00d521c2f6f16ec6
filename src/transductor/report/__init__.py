"""Results to tables and figures.  Never imports torch."""

from transductor.report.card import card_view
from transductor.report.demo import demo_figure, demo_table

__all__ = ["card_view", "demo_figure", "demo_table"]
