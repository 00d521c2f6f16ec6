"""How parameters move, and how right they become."""

from transductor.training.evaluation import Accuracy, evaluate, evaluate_on
from transductor.training.loop import TrainingError, TrainingPoint, TrainingSettings, train

__all__ = [
    "Accuracy",
    "TrainingError",
    "TrainingPoint",
    "TrainingSettings",
    "evaluate",
    "evaluate_on",
    "train",
]
