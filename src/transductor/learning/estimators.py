"""``fit`` in scikit-learn's style; scikit-learn itself is not needed."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification import AgreementCertificate
from transductor.learning.fitting import Fitted, fit
from transductor.learning.prediction import logits_of
from transductor.model import SequenceModel
from transductor.results import Record
from transductor.training import FileData, FileFormat


class NotFittedError(ValueError, AttributeError):
    """An estimator was asked for something that only :meth:`fit` can give; scikit-learn's has the same bases."""


class _SequenceEstimator:
    """What both estimators share: their parameters, and how sequences become data for ``fit``.

    Attributes:
        model_: The fitted model.
        machine_: The machine over the letters ``letters_``, a weighted automaton where labels are numbers; None where
            none is claimed.
        certificate_: What is proved about the model; None where there is no machine.
        letters_: The words of the training data, in the order of the machine's letters.
        record_: Everything that was measured and said.
    """

    _estimator_type: ClassVar[str]
    model_: SequenceModel[Any]
    machine_: MooreMachine | WeightedAutomaton | None
    certificate_: AgreementCertificate | None
    letters_: tuple[str, ...]
    record_: Record

    def __init__(
        self,
        *,
        budget: float = 60.0,
        recipes: Sequence[str] | None = None,
        split: str = "blanks",
        seed: int = 0,
        folder: str | Path | None = None,
    ) -> None:
        self.budget, self.recipes, self.split, self.seed, self.folder = budget, recipes, split, seed, folder

    @classmethod
    def _names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; unknown names are refused."""
        for name, value in parameters.items():
            if name not in self._names():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(self._names())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        default = inspect.signature(type(self).__init__).parameters
        shown = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not default[name].default and value != default[name].default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn calls this, so it is installed.
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        classifies = self._estimator_type == "classifier"
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classifies else None,
            regressor_tags=None if classifies else RegressorTags(),
            input_tags=InputTags(two_d_array=False, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _tokens(self, sequences: Sequence[str | Sequence[Any]]) -> list[list[str]]:
        """Return the tokens of each sequence: a text is split, everything else is a list of tokens already."""
        if isinstance(sequences, str):
            raise TypeError("X must be a list of sequences; got one text")
        form = FileFormat(self.split)
        return [form.tokens(each) if isinstance(each, str) else [str(token) for token in each] for each in sequences]

    def _fitted(self, rows: Sequence[Mapping[str, Any]], goal: str) -> Fitted:
        """Fit these rows, in a folder that is removed unless one was asked for."""
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder = scratch / "fit" if self.folder is None else Path(self.folder)
            path = (scratch if self.folder is None else folder.parent) / f"{folder.name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            source = FileData(goal, str(path))
            result = fit(source, folder, budget=self.budget, recipes=self.recipes, seed=self.seed)
        if result.model is None:
            raise ValueError(
                f"there is no model to keep: {result.record.measurements['answer']['sentence']} Train networks too: "
                "recipes must not be empty"
            )
        assert result.source.vocabulary is not None
        self.model_, self.machine_, self.certificate_ = result.model, result.machine, result.certificate
        self.letters_, self.record_ = result.source.vocabulary.letters, result.record
        self._source = result.source
        return result

    def _logits(self, sequences: Sequence[str | Sequence[Any]]) -> list[NDArray[np.float64]]:
        """Return the logits ``(T + 1, K)`` of each sequence, before its first token and after each."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(X, y) first")
        rows = [self._source.encoded(names, None)[0] for names in self._tokens(sequences)]
        return [logits.double().numpy() for logits in logits_of(self.model_, rows)]


def _same_length(sequences: Sequence[Any], labels: Sequence[Any]) -> None:
    if len(sequences) != len(labels):
        raise ValueError(f"X and y must be equally long; got {len(sequences)} and {len(labels)}")


class TransductorClassifier(_SequenceEstimator):
    """Classifies sequences by the machine behind them, or by the best model where no machine is claimed.

    Args:
        budget: Seconds that :meth:`fit` may take, about.
        recipes: Names of the networks to train; all if not given, none for an empty list.
        split: Where the tokens of a text end: at ``"blanks"``, or every one of the ``"characters"`` is a token.
        seed: Seed of everything that is drawn.
        folder: Where the run is kept, so that one that was interrupted goes on; a temporary one if not given.

    Attributes:
        classes_: The classes, sorted: the columns of :meth:`predict_proba`.
        machine_: The machine, over the letters ``letters_``; its labels are the places in ``classes_``.
        certificate_: What is proved about the model.
    """

    _estimator_type = "classifier"

    def fit(self, X: Sequence[str | Sequence[Any]], y: Sequence[Any]) -> Self:
        """Fit sequences ``X``, texts or lists of tokens, with a label each, or with a list of labels, one per token."""
        sequences, labels = list(X), list(y)
        _same_length(sequences, labels)
        self._tags = any(isinstance(label, list | tuple | np.ndarray) for label in labels)
        flat = [each for label in labels for each in label] if self._tags else labels
        self.classes_: NDArray[Any] = np.unique(np.asarray(flat))
        name = {value: str(value) for value in self.classes_.tolist()}
        if len(set(name.values())) < len(name):
            raise ValueError("y must hold classes that are written differently; two are written alike")
        shown = [[name[_plain(each)] for each in label] if self._tags else name[_plain(label)] for label in labels]
        key = "labels" if self._tags else "label"
        rows = [{"tokens": names, key: label} for names, label in zip(self._tokens(sequences), shown, strict=True)]
        result = self._fitted(rows, "tagging" if self._tags else "recognition")
        # The names of classes are sorted as texts, where 10 comes before 2.
        assert result.source.vocabulary is not None
        place = {name[value]: number for number, value in enumerate(self.classes_.tolist())}
        self._columns = np.argsort([place[each] for each in result.source.vocabulary.classes])
        if isinstance(machine := result.machine, MooreMachine):
            places = np.array([*(place[each] for each in result.source.vocabulary.classes), IGNORED])
            self.machine_ = MooreMachine(machine.transitions, places[np.maximum(machine.outputs, -1)], machine.start)
        return self

    def _logits(self, sequences: Sequence[str | Sequence[Any]]) -> list[NDArray[np.float64]]:
        return [logits[:, self._columns] for logits in super()._logits(sequences)]

    def predict(self, X: Sequence[str | Sequence[Any]]) -> Any:
        """Return the class of each sequence; where the labels were of tokens, a list of arrays."""
        best = [logits.argmax(-1) for logits in self._logits(X)]
        if self._tags:
            return [self.classes_[each[1:]] for each in best]
        return self.classes_[np.array([each[-1] for each in best], dtype=np.int64)]

    def predict_proba(self, X: Sequence[str | Sequence[Any]]) -> Any:
        """Return the probability of each class, ``(n, classes)``; where the labels were of tokens, a list of arrays.

        These are the softmax of the model's logits.  A compiled model is certain by construction: its numbers say
        nothing about how sure the machine is; ``record_`` does.
        """
        shares = [torch.from_numpy(logits).softmax(-1).numpy() for logits in self._logits(X)]
        return [each[1:] for each in shares] if self._tags else np.array([each[-1] for each in shares])

    def score(self, X: Sequence[str | Sequence[Any]], y: Sequence[Any], sample_weight: Any = None) -> float:
        """Return the share of labels that are right."""
        _same_length(X, y)
        said, given = self.predict(X), y
        if self._tags:
            said, given = np.concatenate(said), [each for label in y for each in label]
        return float(np.average(np.asarray(said) == np.asarray(given), weights=sample_weight))


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


class TransductorRegressor(_SequenceEstimator):
    """Predicts a number for each sequence: by an exact weighted automaton where one is near, else by the best model.

    Args:
        budget, recipes, split, seed, folder: As for :class:`TransductorClassifier`.
    """

    _estimator_type = "regressor"

    def fit(self, X: Sequence[str | Sequence[Any]], y: Sequence[float]) -> Self:
        """Fit sequences ``X``, texts or lists of tokens, with a number each."""
        sequences, numbers = list(X), [float(each) for each in y]
        _same_length(sequences, numbers)
        rows = [{"tokens": names, "label": each} for names, each in zip(self._tokens(sequences), numbers, strict=True)]
        self._fitted(rows, "regression")
        return self

    def predict(self, X: Sequence[str | Sequence[Any]]) -> NDArray[np.float64]:
        """Return the number of each sequence."""
        return np.array([logits[-1, 0] for logits in self._logits(X)])

    def score(self, X: Sequence[str | Sequence[Any]], y: Sequence[float], sample_weight: Any = None) -> float:
        """Return the coefficient of determination R²: 1 where every number is right, 0 for their mean."""
        _same_length(X, y)
        truth = np.asarray(y, dtype=np.float64)
        errors = np.average((truth - self.predict(X)) ** 2, weights=sample_weight)
        spread = np.average((truth - np.average(truth, weights=sample_weight)) ** 2, weights=sample_weight)
        return float(1 - errors / spread) if spread else float(errors == 0)
