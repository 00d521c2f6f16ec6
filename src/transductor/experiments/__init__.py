"""Studies as frozen values, and their runner."""

from transductor.experiments.demo import DemoStudy, run_demo

__all__ = ["DemoStudy", "run_demo"]
