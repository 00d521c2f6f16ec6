"""How parameters move, and how right they become."""

from transductor.training.evaluation import Accuracy, evaluate, evaluate_on
from transductor.training.loop import train
from transductor.training.settings import Annealing, Curriculum, TrainingSettings
from transductor.training.trainer import Trainer, TrainingError, TrainingPoint

__all__ = [
    "Accuracy",
    "Annealing",
    "Curriculum",
    "Trainer",
    "TrainingError",
    "TrainingPoint",
    "TrainingSettings",
    "evaluate",
    "evaluate_on",
    "train",
]
