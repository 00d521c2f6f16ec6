"""A language, its sampler, its judge.  Names no network."""

from transductor.tasks.base import Task
from transductor.tasks.modular_counting import ModularCounting

__all__ = ["ModularCounting", "Task"]
