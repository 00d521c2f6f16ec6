"""Spectral learning: exact machines come back, samples give their distribution, doubt is said aloud."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest

from transductor.automata.probabilistic import perplexity, random_probabilistic, sampled, smoothed, unigram
from transductor.automata.reduction import RankWarning
from transductor.automata.spectral.estimator import NotFittedError, SpectralLearner
from transductor.automata.spectral.hankel_block import HankelBlock, basis_words, counted, frequent_words, hankel
from transductor.automata.spectral.learning import LearnedAutomaton, _of_strings, learned, learned_from_sample
from transductor.automata.spectral.queries import learned_from_callable
from transductor.automata.weighted import WeightedAutomaton


def parity() -> WeightedAutomaton:
    return WeightedAutomaton([1, 0], {"a": [[0, 1], [1, 0]], "b": [[1, 0], [0, 1]]}, [0, 1])


def mod_counter(k: int) -> WeightedAutomaton:
    return WeightedAutomaton(
        np.eye(k, dtype=int)[0], {"a": np.roll(np.eye(k, dtype=int), 1, axis=0), "b": np.eye(k, dtype=int)},
        np.eye(k, dtype=int)[k - 1],
    )  # fmt: skip


def count_of_a() -> WeightedAutomaton:
    return WeightedAutomaton([1, 0], {"a": [[1, 0], [1, 1]], "b": [[1, 0], [0, 1]]}, [0, 1])


def base_two() -> WeightedAutomaton:
    return WeightedAutomaton([1, 0], {"0": [[1, 0], [0, 2]], "1": [[1, 0], [1, 2]]}, [0, 1])


def flip_flop() -> WeightedAutomaton:
    return WeightedAutomaton(
        [1, 0], {"set": [[0, 0], [1, 1]], "reset": [[1, 1], [0, 0]], "wait": [[1, 0], [0, 1]]}, [0, 1]
    )


def random_rational(dim: int, seed: int) -> WeightedAutomaton:
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return np.vectorize(lambda n: Fraction(int(n), 5), otypes=[object])(random.integers(-4, 5, size=shape))

    return WeightedAutomaton(draw(dim), {"a": draw(dim, dim), "b": draw(dim, dim)}, draw(dim))


def random_dfa(states: int, seed: int) -> WeightedAutomaton:
    random = np.random.default_rng(seed)
    tables = {letter: np.eye(states, dtype=int)[random.integers(states, size=states)].T for letter in "ab"}
    return WeightedAutomaton(np.eye(states, dtype=int)[0], tables, random.integers(0, 2, size=states))


MACHINES = {
    "parity": parity(),
    **{f"mod {k}": mod_counter(k) for k in (3, 5)},
    "count of a": count_of_a(),
    "base two": base_two(),
    "flip-flop": flip_flop(),
    **{f"random rational {seed}": random_rational(6, seed) for seed in range(3)},
    **{f"random dfa {seed}": random_dfa(5, seed) for seed in range(5)},
}


def worst_error(automaton: WeightedAutomaton, truth: WeightedAutomaton, max_length: int = 8) -> float:
    """The largest error over all words, relative to the largest value at that length (1 where all are zero)."""
    worst = 0.0
    for length in range(max_length + 1):
        words = list(itertools.product(truth.alphabet, repeat=length))
        wanted = truth.batch(words).astype(np.float64)
        scale = float(np.abs(wanted).max()) or 1.0
        worst = max(worst, float(np.abs(automaton.batch(words) - wanted).max()) / scale)
    return worst


@pytest.mark.parametrize("name", MACHINES)
def test_exact_machines_come_back(name: str) -> None:
    machine = MACHINES[name]
    words = basis_words(machine.alphabet, 4 if len(machine.alphabet) == 2 else 2)
    result = learned(HankelBlock.of(machine, machine.alphabet, words, words))
    assert result.warning == ""
    assert result.residual < 1e-10
    assert result.gap > 1e3
    assert result.automaton.dim == result.rank <= machine.dim
    assert worst_error(result.automaton, machine) < 1e-8


@pytest.mark.parametrize("name", MACHINES)
def test_a_callable_is_learned_from_its_values(name: str) -> None:
    machine = MACHINES[name]
    result = learned_from_callable(machine, machine.alphabet)
    assert result.warning == ""
    assert 0 < result.queries <= 100_000
    assert worst_error(result.automaton, machine) < 1e-8


def test_values_that_grow_are_right_relative_to_themselves() -> None:
    truth = base_two()
    words = basis_words("01", 3)
    automaton = learned(HankelBlock.of(truth, "01", words, words)).automaton
    for word in basis_words("01", 8):
        assert automaton(word) == pytest.approx(float(truth(word)), rel=1e-8, abs=1e-9)


def test_hankel_of_an_automaton_is_that_of_its_values() -> None:
    machine, words = random_rational(3, 0), basis_words("ab", 2)
    exact = hankel(machine, words, words[::-1])
    assert exact.dtype == object
    assert isinstance(exact[0, 0], Fraction)
    assert all(exact[i, j] == machine(p + s) for i, p in enumerate(words) for j, s in enumerate(words[::-1]))
    floats = machine.over("float")
    assert hankel(floats, words, words).dtype == np.float64
    np.testing.assert_allclose(hankel(floats, words, words), hankel(lambda word: floats(word), words, words))
    assert hankel(machine, [], words).shape == (0, 7)
    truth = WeightedAutomaton([1, 0], {"a": [[0, 1], [1, 0]]}, [0, 1], weights="boolean")
    np.testing.assert_array_equal(hankel(truth, ["", "a"], ["", "a"]), [[0.0, 1.0], [1.0, 0.0]])


def test_a_block_holds_rows_columns_and_shifts() -> None:
    machine, words = count_of_a(), basis_words("ab", 1)
    from_automaton = HankelBlock.of(machine, "ab", words, words)
    from_values = HankelBlock.of(lambda word: word.count("a"), "ab", words, words)
    np.testing.assert_array_equal(from_automaton.shifted.astype(float), from_values.shifted)
    np.testing.assert_array_equal(from_values.prefix_values, [0, 1, 0])
    np.testing.assert_array_equal(from_values.suffix_values, [0, 1, 0])
    assert from_values.shifted.shape == (2, 3, 3)
    with pytest.raises(ValueError, match="read-only"):
        from_values.block[0, 0] = 1


@pytest.mark.parametrize(
    ("prefixes", "suffixes", "message"),
    [
        (["a"], [""], "prefixes must contain the empty word"),
        ([""], [], "suffixes must contain the empty word"),
        (["", "a", "a"], [""], "prefixes must be distinct words"),
        ([""], ["", "c"], "suffixes must be made of the letters"),
    ],
)
def test_a_block_refuses_words(prefixes: list[str], suffixes: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HankelBlock.of(parity(), "ab", prefixes, suffixes)


def test_a_value_that_is_no_number_names_its_word() -> None:
    with pytest.raises(ValueError, match=r"finite number at every word; got nan at \('a',\)"):
        learned_from_callable(lambda word: float("nan") if word == ("a",) else 1.0, "ab")
    with pytest.raises(ValueError, match="finite number"):
        hankel(lambda word: "many", [()], [()])


def test_rank_zero_is_the_zero_series() -> None:
    for result in (
        learned(HankelBlock.of(lambda word: 0, "ab", ["", "a"], ["", "b"])),
        learned(HankelBlock.of(parity(), "ab", ["", "a"], ["", "a"]), rank=0),
        learned_from_callable(lambda word: 0, "ab"),
    ):
        assert result.rank == result.automaton.dim == 0
        assert result.automaton("abba") == 0


def test_ranks_that_a_block_cannot_have() -> None:
    block = HankelBlock.of(count_of_a(), "ab", basis_words("ab", 2), ["", "a", "b"])
    with pytest.raises(ValueError, match="rank must lie between 0 and 3, the smaller side of the block; got 4"):
        learned(block, 4)
    with pytest.warns(RankWarning, match="only 2 singular values are not zero"):
        assert learned(block, 3).rank == 2
    single = HankelBlock.of(lambda word: 2.0 ** -len(word), "a", [""], [""])
    with pytest.warns(RankWarning, match="larger block"):
        result = learned(single)
    assert result.rank == 1
    assert result.automaton("aaa") == pytest.approx(1 / 8)


def test_noise_leaves_the_rank_clear_or_says_that_it_does_not() -> None:
    words = basis_words("ab", 3)
    machine = mod_counter(3)
    random = np.random.default_rng(0)

    def noisy(size: float) -> HankelBlock:
        exact = HankelBlock.of(machine, "ab", words, words)
        noise = size * random.standard_normal((3, len(words), len(words)))
        return HankelBlock(
            exact.alphabet, words, words, exact.block.astype(float) + noise[0], exact.shifted + noise[1:]
        )

    assert learned(noisy(1e-4), tolerance=1e-2).rank == 3
    with pytest.warns(RankWarning, match="larger block"):
        assert learned(noisy(1e-4)).rank == 3
    with pytest.warns(RankWarning):
        result = learned(noisy(1.0), tolerance=0.1)
    assert result.warning


def test_weights_of_rows_and_columns_do_not_change_an_exact_machine() -> None:
    machine, words = random_rational(4, 1), basis_words("ab", 3)
    block = HankelBlock.of(machine, "ab", words, words)
    random = np.random.default_rng(0)
    rows, columns = random.uniform(0.1, 1, size=(2, len(words)))
    assert worst_error(learned(block, row_weights=rows, column_weights=columns).automaton, machine) < 1e-8
    with pytest.raises(ValueError, match="column_weights must be 15 positive numbers"):
        learned(block, column_weights=np.zeros(15))


def test_a_callable_whose_short_words_say_nothing() -> None:
    result = learned_from_callable(lambda word: float("aaaaa" in "".join(word)), "ab")
    assert result.warning == ""
    assert result.rank == 6
    assert result.automaton("abaaaaab") == pytest.approx(1)
    assert result.automaton("abaaaab") == pytest.approx(0, abs=1e-8)


def test_searches_end_where_they_are_told() -> None:
    def not_rational(word: tuple[str, ...]) -> float:
        return float(word == word[::-1])

    with pytest.warns(RankWarning, match="max_queries = 3000"):
        assert learned_from_callable(not_rational, "ab", max_queries=3000).queries == 3000
    with pytest.warns(RankWarning, match="max_rank = 8"):
        assert learned_from_callable(not_rational, "ab", max_rank=8).rank == 8
    with pytest.raises(ValueError, match="max_queries must be enough"):
        learned_from_callable(not_rational, "ab", max_queries=10)


def test_counts_of_strings_prefixes_and_factors() -> None:
    strings = ["aab", "ab", "", "ab"]
    assert counted(strings, "strings") == {tuple("aab"): 1, tuple("ab"): 2, (): 1}
    assert counted(strings, "prefixes", 1) == {(): 4, ("a",): 3}
    factors = counted(strings, "factors")
    assert factors[("a",)] == 4
    assert factors[("a", "b")] == 3
    assert factors[()] == 4 + 3 + 1 + 3
    assert frequent_words(strings, "prefixes", 2, ["", "b"]) == ([(), ("a",)], [(), ("b",)])
    with pytest.raises(ValueError, match="statistics must be one of 'strings', 'prefixes', 'factors'; got 'words'"):
        counted(strings, "words")  # type: ignore[arg-type]


@pytest.mark.parametrize("statistics", ["strings", "prefixes", "factors"])
def test_what_is_counted_leads_back_to_the_same_strings(statistics: str) -> None:
    """The formulas, without noise: the sums over all strings that the counts estimate, learned and converted."""
    machine = random_probabilistic(3, "ab", seed=4)
    total = np.linalg.inv(np.eye(3) - machine.matrices.sum(axis=0))
    initial = total @ machine.initial if statistics == "factors" else machine.initial
    final = machine.final if statistics == "strings" else machine.final @ total
    series = WeightedAutomaton(initial, machine.matrices, final, "ab", weights="float")
    words = basis_words("ab", 3)
    counted_machine = learned(HankelBlock.of(series, "ab", words, words), 3).automaton
    assert worst_error(_of_strings(counted_machine, statistics), machine) < 1e-8  # type: ignore[arg-type]


def learned_perplexity(seed: int, statistics: str = "prefixes", count: int = 20_000) -> tuple[float, float, float]:
    """Perplexities on a fresh sample: of the truth, of what is learned from a sample, and of the letters alone."""
    states, letters = 3 + seed % 3, "abcd"[: 2 + seed % 3]
    truth = random_probabilistic(states, letters, seed)
    train, test = sampled(truth, count, seed=1000 + seed), sampled(truth, 5000, seed=2000 + seed)
    result = learned_from_sample(train, letters, statistics=statistics)  # type: ignore[arg-type]
    background = unigram(letters, train)
    model = smoothed(result.automaton, background=background)
    letters_only = smoothed(truth, weight=1.0, background=background)
    return perplexity(truth, test), model.perplexity(test), letters_only.perplexity(test)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_sample_gives_its_distribution(seed: int) -> None:
    truth, achieved, letters_only = learned_perplexity(seed)
    assert achieved <= 1.01 * truth
    assert achieved < letters_only


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_a_sample_gives_its_distribution_at_more_seeds(seed: int) -> None:
    truth, achieved, letters_only = learned_perplexity(seed)
    assert achieved <= 1.01 * truth
    assert achieved < letters_only


@pytest.mark.parametrize("statistics", ["strings", "factors"])
def test_other_statistics_learn_too(statistics: str) -> None:
    truth, achieved, letters_only = learned_perplexity(1, statistics, count=10_000)
    assert achieved <= 1.01 * truth
    assert achieved < letters_only


def test_samples_at_the_edge() -> None:
    with pytest.raises(ValueError, match="strings must hold at least one string"):
        learned_from_sample([])
    with pytest.raises(ValueError, match="alphabet must hold every letter"):
        learned_from_sample(["ab"], "a")
    with pytest.raises(ValueError, match="prefixes must be at least one word"):
        learned_from_sample(["ab"], basis=0)
    with pytest.raises(ValueError, match="rank must lie between 0 and"):
        learned_from_sample(["ab"], rank=50)
    empty = learned_from_sample(["", "", ""])
    assert empty.automaton("") == pytest.approx(1)
    always = learned_from_sample(["ab"] * 10)
    assert always.automaton("ab") == pytest.approx(1)
    assert always.automaton("a") == pytest.approx(0, abs=1e-9)
    with pytest.warns(RankWarning, match="all counts of the block are zero"):
        assert learned_from_sample(["ab" * 20], statistics="strings").rank == 0


def test_learning_is_deterministic() -> None:
    strings = sampled(random_probabilistic(3, "ab", seed=2), 2000, seed=0)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again = learned_from_sample(strings), learned_from_sample(strings)
    assert isinstance(first, LearnedAutomaton)
    assert first.automaton.identical(again.automaton)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_an_estimator_of_strings() -> None:
    truth = random_probabilistic(3, "ab", seed=3)
    train, test = sampled(truth, 5000, seed=0), sampled(truth, 1000, seed=1)
    learner = SpectralLearner(rank=3)
    for use in (learner.predict, learner.perplexity, learner.score):
        with pytest.raises(NotFittedError, match="call fit first"):
            use(test)
    assert learner.fit(train) is learner
    assert learner.rank_ == learner.automaton_.dim == 3
    assert learner.perplexity(test) <= 1.02 * perplexity(truth, test)
    assert learner.score(test) == -learner.perplexity(test)
    assert learner.predict([()])[0] == pytest.approx(truth(()), abs=0.02)
    with pytest.raises(ValueError, match="got 'z' in string 1"):
        learner.predict(["ab", "az"])
    with pytest.raises(ValueError, match="X must hold at least one string"):
        learner.fit([])
    assert repr(SpectralLearner(rank=2)) == "SpectralLearner(rank=2)"


def test_an_estimator_of_values() -> None:
    machine = base_two()
    words = basis_words("01", 6)
    values = machine.batch(words).astype(float)
    learner = SpectralLearner().fit(words, values)
    longer = basis_words("01", 9)
    np.testing.assert_allclose(learner.predict(longer), machine.batch(longer).astype(float), rtol=1e-8, atol=1e-8)
    assert learner.score(longer, machine.batch(longer)) == pytest.approx(1)
    with pytest.raises(ValueError, match="fitted to values"):
        learner.perplexity(words)
    with pytest.raises(ValueError, match=r"has no value"):
        SpectralLearner(prefixes=["", "0000"], suffixes=["", "000"]).fit(words, values)
    with pytest.raises(ValueError, match=r"\(\) has no value"):
        SpectralLearner().fit(["0", "1"], [0, 1])
    with pytest.raises(ValueError, match="y must be 2 finite numbers"):
        SpectralLearner().fit(["0", "1"], [0, float("nan")])
    twice = SpectralLearner(rank=2).fit([*words, *words], [*(values + 0.25), *(values - 0.25)])
    assert twice.predict(["111"])[0] == pytest.approx(7)


def test_parameters_of_an_estimator() -> None:
    learner = SpectralLearner(rank=4, statistics="factors")
    assert learner.get_params()["statistics"] == "factors"
    assert learner.set_params(rank=5).rank == 5
    with pytest.raises(ValueError, match=r"params must be among 'rank', .*; got 'depth'"):
        learner.set_params(depth=1)


def test_scikit_learn_takes_the_estimator() -> None:
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    strings = ["".join(map(str, word)) for word in sampled(random_probabilistic(3, "ab", seed=3), 900, seed=0)]
    assert base.clone(SpectralLearner(rank=2, alphabet="ab")).get_params()["alphabet"] == "ab"
    search = selection.GridSearchCV(SpectralLearner(alphabet="ab"), {"rank": [1, 2, 3]}, cv=2).fit(strings)
    assert search.best_params_["rank"] in (1, 2, 3)
    assert search.best_score_ < 0
    words = basis_words("01", 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = selection.GridSearchCV(SpectralLearner(), {"rank": [1, 2]}, cv=[(range(63), range(63))], refit=False)
        scores.fit(words, base_two().batch(words).astype(float))
    assert scores.cv_results_["rank_test_score"].tolist() == [2, 1]
