from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.learning.data_files import parity_rows
from transductor import TransductorClassifier, TransductorRegressor
from transductor.learning import NotFittedError

ROWS = parity_rows(150)
WORDS = [row["tokens"] for row in ROWS]
ODD = [row["tokens"].count("a") % 2 for row in ROWS]
QUICK = {"budget": 10.0, "recipes": ()}


@pytest.fixture(scope="module")
def classifier():
    return TransductorClassifier(**QUICK).fit(WORDS, ODD)


def test_a_classifier_finds_the_machine_and_predicts_at_any_length(classifier):
    assert classifier.classes_.tolist() == [0, 1]
    assert classifier.machine_.states == 2
    assert classifier.certificate_.holds
    assert classifier.predict([["a"] * 501, ["a", "b"] * 100, []]).tolist() == [1, 0, 0]
    assert classifier.score(WORDS, ODD) == 1.0
    shares = classifier.predict_proba(WORDS[:5])
    assert shares.shape == (5, 2)
    assert np.allclose(shares.sum(1), 1)
    assert (shares.argmax(1) == ODD[:5]).all()


def test_texts_are_split_as_asked():
    texts = ["".join(word) for word in WORDS]
    fitted = TransductorClassifier(split="characters", **QUICK).fit(texts, ODD)
    assert fitted.predict(["aab", "abaa"]).tolist() == [0, 1]
    assert TransductorClassifier(**QUICK)._tokens(["a b", ["c", 1]]) == [["a", "b"], ["c", "1"]]


def test_classes_are_sorted_as_they_are_not_as_they_are_written():
    labels = [10 if odd else 2 for odd in ODD]
    fitted = TransductorClassifier(**QUICK).fit(WORDS, labels)
    assert fitted.classes_.tolist() == [2, 10]
    assert fitted.predict([["a"], []]).tolist() == [10, 2]
    assert fitted.predict_proba([["a"]]).argmax() == 1
    state = fitted.machine_.transitions[fitted.machine_.start, fitted.letters_.index("a")]
    assert fitted.machine_.outputs[state] == 1


def test_labels_of_tokens():
    tags = [[word[: place + 1].count("a") % 2 == 1 for place in range(len(word))] for word in WORDS]
    fitted = TransductorClassifier(**QUICK).fit(WORDS, tags)
    assert [each.tolist() for each in fitted.predict([["a", "b", "a"], []])] == [[True, True, False], []]
    assert fitted.score(WORDS, tags) == 1.0
    assert fitted.predict_proba([["a", "b"]])[0].shape == (2, 2)


def test_parameters_are_read_set_and_shown(classifier):
    assert classifier.get_params() == {"budget": 10.0, "folder": None, "recipes": (), "seed": 0, "split": "blanks"}
    other = TransductorClassifier(**classifier.get_params()).set_params(seed=3)
    assert repr(other) == "TransductorClassifier(budget=10.0, recipes=(), seed=3)"
    with pytest.raises(ValueError, match="has no parameter 'sede'; it has budget, folder"):
        other.set_params(sede=1)
    with pytest.raises(NotFittedError, match="call fit"):
        other.predict(WORDS)
    with pytest.raises(ValueError, match="equally long; got 150 and 1"):
        other.fit(WORDS, [1])
    with pytest.raises(TypeError, match="got one text"):
        classifier.predict("a b")


def test_a_fitted_classifier_can_be_pickled(classifier):
    again = pickle.loads(pickle.dumps(classifier))
    assert again.predict(WORDS).tolist() == classifier.predict(WORDS).tolist()


def test_a_folder_is_kept(tmp_path):
    TransductorClassifier(folder=tmp_path / "run", **QUICK).fit(WORDS, ODD)
    assert (tmp_path / "run" / "certificate.json.gz").exists()


def test_a_regressor_predicts_numbers():
    numbers = [float(len(word)) / 4 for word in WORDS]
    fitted = TransductorRegressor(**QUICK).fit(WORDS, numbers)
    assert fitted.predict([["a"] * 400]) == pytest.approx([100])
    assert fitted.score(WORDS, numbers) == pytest.approx(1)
    assert fitted.machine_.dim == 2


def test_scikit_learn_clones_searches_and_validates():
    pytest.importorskip("sklearn")
    from sklearn.base import clone, is_classifier, is_regressor
    from sklearn.model_selection import GridSearchCV, cross_val_score

    estimator = TransductorClassifier(**QUICK)
    assert is_classifier(estimator)
    assert is_regressor(TransductorRegressor())
    assert clone(estimator).get_params() == estimator.get_params()
    assert cross_val_score(estimator, WORDS, ODD, cv=2).min() > 0.9
    search = GridSearchCV(estimator, {"seed": [0, 1]}, cv=2).fit(WORDS, ODD)
    assert search.best_estimator_.machine_.states == 2
    assert search.best_score_ > 0.9
