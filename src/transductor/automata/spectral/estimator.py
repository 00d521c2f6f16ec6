"""Spectral learning behind ``fit``, ``predict`` and ``score``: works with scikit-learn's tools, and without them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from transductor.automata.probabilistic import SmoothedModel, smoothed, unigram
from transductor.automata.spectral.hankel_block import HankelBlock, Statistics
from transductor.automata.spectral.learning import learned, learned_from_sample
from transductor.automata.weights import Array
from transductor.automata.words import Symbol, Word, letters_of


class NotFittedError(ValueError, AttributeError):
    """The estimator was used before ``fit``."""


class SpectralLearner:
    """Learns a weighted automaton from strings, or from strings and the values a series takes at them.

    Args:
        rank: Number of states; by default chosen on held-out strings or, for values, by the singular values.
        statistics: What is counted in strings: ``"strings"``, ``"prefixes"`` or ``"factors"``.
        prefixes: How many words name the rows of the Hankel block, or which; by default chosen on held-out strings.
        suffixes: The same for its columns.
        smoothing: Weight of the letters' own frequencies in each prediction that perplexity is measured on; by default
            chosen on held-out strings.
        alphabet: The letters; by default those of ``X``.
        seed: Seed of the split that chooses the rank.

    After ``fit`` it has ``automaton_`` (:class:`WeightedAutomaton`), ``rank_``, ``singular_values_``, ``alphabet_``,
    ``learned_`` (:class:`LearnedAutomaton`) and ``model_`` (:class:`SmoothedModel`; ``None`` after values).
    """

    def __init__(
        self,
        rank: int | None = None,
        statistics: Statistics = "prefixes",
        prefixes: int | Sequence[Word] | None = None,
        suffixes: int | Sequence[Word] | None = None,
        smoothing: float | None = None,
        alphabet: Sequence[Symbol] | None = None,
        seed: int = 0,
    ) -> None:
        self.rank = rank
        self.statistics = statistics
        self.prefixes = prefixes
        self.suffixes = suffixes
        self.smoothing = smoothing
        self.alphabet = alphabet
        self.seed = seed

    def fit(self, X: Sequence[Word], y: Sequence[float] | Array | None = None) -> SpectralLearner:
        """Learn from a sample ``X`` of a distribution or, with ``y``, from the values of a series at the words ``X``.

        With values, the Hankel block is made of words whose values are all known: of the given prefixes and suffixes,
        or of as many short ones as fit, up to the numbers given.  The empty word and every letter must be in ``X``.  A
        word that is there several times has the mean of its values.
        """
        words = [tuple(word) for word in X]
        if not words:
            raise ValueError("X must hold at least one string")
        self.model_: SmoothedModel | None = None
        if y is None:
            given = self.prefixes is not None or self.suffixes is not None
            basis = (_or_usual(self.prefixes), _or_usual(self.suffixes)) if given else None
            result = learned_from_sample(
                words, self.alphabet, statistics=self.statistics, rank=self.rank, basis=basis, seed=self.seed
            )
            letters = result.automaton.alphabet
            weight = result.smoothing if self.smoothing is None else self.smoothing
            self.model_ = smoothed(result.automaton, weight=weight, background=unigram(letters, words))
        else:
            result = learned(self._block(words, _numbers(y, len(words))), self.rank)
        self.learned_ = result
        self.automaton_ = result.automaton
        self.rank_ = result.rank
        self.singular_values_ = result.singular_values
        self.alphabet_ = result.automaton.alphabet
        return self

    def predict(self, X: Sequence[Word]) -> Array:
        """Return the values ``(N)`` of the learned series: estimates of probabilities when fitted to a sample."""
        self._fitted()
        return self.automaton_.batch(self._known(X))

    def perplexity(self, X: Sequence[Word]) -> float:
        """Return the perplexity per symbol, ends of strings included, of the smoothed model; see :func:`smoothed`."""
        self._fitted()
        if self.model_ is None:
            raise ValueError("perplexity needs a learner fitted to strings; this one was fitted to values y")
        return self.model_.perplexity(self._known(X))

    def score(self, X: Sequence[Word], y: Sequence[float] | Array | None = None) -> float:
        """Return minus the perplexity of ``X`` or, with ``y``, R² of the predictions: larger is better.

        R² is ``1 − Σ (y − predicted)² / Σ (y − mean y)²``; for a constant y, 1 when it is met exactly and 0 otherwise.
        """
        if y is None:
            return -self.perplexity(X)
        predicted = self.predict(X)
        wanted = _numbers(y, len(predicted))
        error, spread = float(((wanted - predicted) ** 2).sum()), float(((wanted - wanted.mean()) ** 2).sum())
        if spread > 0:
            return 1 - error / spread
        return 1.0 if error == 0 else 0.0

    @classmethod
    def _parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor as they are now."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> SpectralLearner:
        """Change arguments of the constructor, which takes effect at the next ``fit``."""
        for name, value in params.items():
            if name not in self._parameters():
                raise ValueError(f"params must be among {', '.join(map(repr, self._parameters()))}; got {name!r}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {name: value for name, value in self.get_params().items() if value is not defaults[name].default}
        return f"SpectralLearner({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator; only scikit-learn calls this."""
        utils = importlib.import_module("sklearn.utils")
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=None,
            classifier_tags=None,
            regressor_tags=None,
            input_tags=utils.InputTags(one_d_array=True, two_d_array=False, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "automaton_")

    def _fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this SpectralLearner has learned nothing yet: call fit first")

    def _known(self, X: Sequence[Word]) -> list[tuple[Symbol, ...]]:
        words = [tuple(word) for word in X]
        letters = set(self.alphabet_)
        for number, word in enumerate(words):
            for letter in word:
                if letter not in letters:
                    raise ValueError(
                        f"X must be made of letters known at fit, {self.alphabet_!r}; got {letter!r} in string "
                        f"{number}. Letters that a sample may lack can be named with alphabet="
                    )
        return words

    def _block(self, words: list[tuple[Symbol, ...]], values: Array) -> HankelBlock:
        """Return the block of words with known values."""
        sums: dict[tuple[Symbol, ...], list[float]] = {}
        for word, value in zip(words, values.tolist(), strict=True):
            sums.setdefault(word, []).append(value)
        known = {word: sum(seen) / len(seen) for word, seen in sums.items()}
        letters = letters_of(words) if self.alphabet is None else tuple(self.alphabet)
        rows, columns = _complete(known, letters, _or_usual(self.prefixes), _or_usual(self.suffixes))

        def series(word: tuple[Symbol, ...]) -> float:
            if word not in known:
                raise ValueError(f"X must hold every word that the prefixes and suffixes need; {word!r} has no value")
            return known[word]

        return HankelBlock.of(series, letters, rows, columns)


def _complete(
    known: dict[tuple[Symbol, ...], float],
    letters: tuple[Symbol, ...],
    prefixes: int | Sequence[Word],
    suffixes: int | Sequence[Word],
) -> tuple[list[tuple[Symbol, ...]], list[tuple[Symbol, ...]]]:
    """Return prefixes and suffixes, shortest first and in turn, for as long as every value of their block is known."""
    middles = [(), *((letter,) for letter in letters)]
    (most_rows, rows), (most_columns, columns) = map(_wanted_words, (prefixes, suffixes))
    for word in sorted(filter(None, known), key=len):
        if len(rows) < most_rows:
            needed = ((*word, *middle, *column) for column in columns for middle in middles)
            if all(entry in known for entry in needed):
                rows.append(word)
        if len(columns) < most_columns:
            needed = ((*row, *middle, *word) for row in rows for middle in middles)
            if all(entry in known for entry in needed):
                columns.append(word)
    return rows, columns


def _or_usual(words: int | Sequence[Word] | None) -> int | Sequence[Word]:
    return 300 if words is None else words


def _wanted_words(words: int | Sequence[Word]) -> tuple[int, list[tuple[Symbol, ...]]]:
    """Return how many words to choose at most, and the words to begin with."""
    return (int(words), [()]) if isinstance(words, (int, np.integer)) else (0, [tuple(word) for word in words])


def _numbers(y: Sequence[float] | Array, count: int) -> Array:
    values = np.asarray(y, dtype=np.float64)
    if values.shape != (count,) or not np.isfinite(values).all():
        raise ValueError(f"y must be {count} finite numbers, one for each string of X; got shape {values.shape}")
    return values
