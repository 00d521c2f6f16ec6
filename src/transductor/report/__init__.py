"""Tables, figures, portraits and cards, made from results without importing torch."""

from transductor.report.card import card_view
from transductor.report.demo import demo_certificate, demo_figure, demo_table
from transductor.report.latency import latency_figure, latency_tables
from transductor.report.model_cost import model_cost_tables
from transductor.report.portrait import portrait_figure
from transductor.report.studies import study_report, study_tables
from transductor.report.study_records import read_studies

__all__ = [
    "card_view",
    "demo_certificate",
    "demo_figure",
    "demo_table",
    "latency_figure",
    "latency_tables",
    "model_cost_tables",
    "portrait_figure",
    "read_studies",
    "study_report",
    "study_tables",
]
