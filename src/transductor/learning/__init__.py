"""From a stranger's file of labelled sequences to a machine and a model that is proved to be it."""

from transductor.learning.estimators import NotFittedError, TransductorClassifier, TransductorRegressor
from transductor.learning.fitting import Fitted, fit
from transductor.learning.recipes import RECIPES, Recipe

__all__ = ["RECIPES", "Fitted", "NotFittedError", "Recipe", "TransductorClassifier", "TransductorRegressor", "fit"]
