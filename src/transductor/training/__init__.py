"""Training models on tasks or on data in files, and measuring how right they are."""

from transductor.training.evaluation import Accuracy, Score, evaluate, evaluate_on, score
from transductor.training.examples import Examples, FileData, Vocabulary
from transductor.training.files import DataError, FileFormat, Row, guessed_goal, read_rows
from transductor.training.least_squares import LeastSquares, fit_least_squares
from transductor.training.narrowing import Narrowed, narrow_attention
from transductor.training.settings import Annealing, Curriculum, TrainingSettings
from transductor.training.together import train_together
from transductor.training.trainer import Trainer, TrainingError, TrainingPoint, train

__all__ = [
    "Accuracy",
    "Annealing",
    "Curriculum",
    "DataError",
    "Examples",
    "FileData",
    "FileFormat",
    "LeastSquares",
    "Narrowed",
    "Row",
    "Score",
    "Trainer",
    "TrainingError",
    "TrainingPoint",
    "TrainingSettings",
    "Vocabulary",
    "evaluate",
    "evaluate_on",
    "fit_least_squares",
    "guessed_goal",
    "narrow_attention",
    "read_rows",
    "score",
    "train",
    "train_together",
]
