"""The default learner of strings: trees, blocks counted on them, EM, and what is chosen on held-out strings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from transductor.automata import RankWarning, SpectralLearner, learned_from_sample
from transductor.automata.probabilistic import (
    is_probabilistic,
    log_likelihood,
    perplexity,
    random_probabilistic,
    sampled,
    smoothed,
    unigram,
)
from transductor.automata.spectral.expectation import Forward, PrefixTree, em_step, random_start
from transductor.automata.spectral.hankel_block import HankelBlock, counted
from transductor.automata.spectral.refinement import judged
from transductor.automata.spectral.tree_block import frequent_factors, frequent_prefixes, prefix_block

LETTERS = "abc"
MACHINE = random_probabilistic(5, LETTERS, seed=1)
STRINGS = [*sampled(MACHINE, 400, seed=2), (), ("c",) * 300]


def test_a_tree_holds_every_prefix_once():
    tree = PrefixTree.of(STRINGS, LETTERS)
    prefixes = counted(STRINGS, "prefixes")
    assert len(tree.parents) == len(prefixes)
    assert tree.symbols == sum(len(string) + 1 for string in STRINGS)
    for node in range(len(tree.parents)):
        word, at = [], node
        while at:
            word.append(LETTERS[tree.letters[at]])
            at = tree.parents[at]
        assert tree.passes[node] == prefixes[tuple(reversed(word))]
        assert tree.ends[node] == STRINGS.count(tuple(reversed(word)))


def test_log_likelihoods_are_those_of_the_strings_one_by_one():
    tree = PrefixTree.of(STRINGS, LETTERS)
    assert Forward.of(MACHINE, tree).log_likelihood(MACHINE, tree) == pytest.approx(log_likelihood(MACHINE, STRINGS))


def test_one_step_of_em_is_the_definition():
    """Expected counts by brute force: every path of every short string."""
    strings = ["ab", "a", "", "ba", "ab"]
    machine = random_start("ab", 2, 0, 2.0)
    counts, final, initial = np.zeros((2, 2, 2)), np.zeros(2), np.zeros(2)
    for string in strings:
        paths = {}
        for path in np.ndindex(*(2,) * (len(string) + 1)):
            weight = machine.initial[path[0]] * machine.final[path[-1]]
            for place, letter in enumerate(string):
                weight *= machine.matrices["ab".index(letter), path[place + 1], path[place]]
            paths[path] = weight
        total = sum(paths.values())
        for path, weight in paths.items():
            initial[path[0]] += weight / total
            final[path[-1]] += weight / total
            for place, letter in enumerate(string):
                counts["ab".index(letter), path[place + 1], path[place]] += weight / total
    outgoing = counts.sum(axis=(0, 1)) + final
    stepped, likelihood = em_step(machine, PrefixTree.of(strings, "ab"))
    np.testing.assert_allclose(stepped.matrices, counts / outgoing, rtol=1e-12)
    np.testing.assert_allclose(stepped.final, final / outgoing, rtol=1e-12)
    np.testing.assert_allclose(stepped.initial, initial / len(strings), rtol=1e-12)
    assert likelihood == pytest.approx(log_likelihood(machine, strings))


@pytest.mark.parametrize("relaxation", [1.0, 1.8])
def test_em_raises_the_likelihood_and_stays_probabilistic(relaxation):
    tree, machine = PrefixTree.of(STRINGS, LETTERS), random_start(LETTERS, 4, 0, 6.0)
    likelihoods = []
    for _ in range(15):
        machine, likelihood = em_step(machine, tree, relaxation=relaxation)
        likelihoods.append(likelihood)
    assert is_probabilistic(machine)
    assert likelihoods[-1] > likelihoods[0] + 10
    if relaxation == 1.0:
        assert all(np.diff(likelihoods) > -1e-9)


def test_a_block_counted_on_a_tree_is_the_block_of_the_counts():
    tree = PrefixTree.of(STRINGS, LETTERS)
    rows, columns = frequent_prefixes(tree, 25), frequent_factors(tree, 25)
    block, reference = (
        prefix_block(tree, rows, columns),
        HankelBlock.counted(STRINGS, LETTERS, "prefixes", rows, columns),
    )
    np.testing.assert_allclose(block.block, reference.block)
    np.testing.assert_allclose(block.shifted, reference.shifted)
    factors = counted(STRINGS, "factors", 25)
    del factors[()]
    least = sorted(factors.values(), reverse=True)[23]
    assert columns[0] == ()
    assert all(factors[word] >= least for word in columns[1:])


def test_the_weight_of_the_background_is_the_best_one():
    tree, background = PrefixTree.of(STRINGS, LETTERS), unigram(LETTERS, STRINGS)
    best = judged(MACHINE, tree, background)
    model = smoothed(MACHINE, weight=best.smoothing, background=background)
    assert best.perplexity == pytest.approx(model.perplexity(STRINGS))
    for weight in (1e-5, 1e-3, 0.1):
        other = smoothed(MACHINE, weight=weight, background=background)
        assert best.perplexity <= other.perplexity(STRINGS) + 1e-12


def test_defaults_learn_a_machine_of_sixteen_states():
    """Twelve states and words of six letters were the limits before: 40 % above the true perplexity on this one."""
    truth = random_probabilistic(16, range(12), 0, concentration=0.02)
    train, test = sampled(truth, 6000, seed=1), sampled(truth, 2000, seed=2)
    said: list[str] = []
    result = learned_from_sample(train, range(12), on_progress=lambda share, text: said.append(f"{share:.2f} {text}"))
    assert result.refined
    assert is_probabilistic(result.automaton, tolerance=1e-6)
    model = smoothed(result.automaton, weight=result.smoothing, background=unigram(range(12), train))
    assert model.perplexity(test) < 1.06 * perplexity(truth, test)
    assert result.held_out_perplexity == pytest.approx(perplexity(truth, test), rel=0.1)
    assert any("states: held-out perplexity" in text for text in said)


def test_a_limit_that_is_reached_is_told():
    truth = random_probabilistic(16, range(12), 0, concentration=0.02)
    with pytest.warns(RankWarning, match="the most that max_rank = 4 allows"):
        learned_from_sample(sampled(truth, 1500, seed=1), range(12), max_rank=4)
    with pytest.raises(ValueError, match="max_rank must be at least 1; got 0"):
        learned_from_sample(["a"], max_rank=0)
    with pytest.raises(ValueError, match="refine needs statistics='prefixes'"):
        learned_from_sample(["a"], statistics="factors", refine=True)


def test_the_estimator_takes_the_weight_that_was_chosen():
    learner = SpectralLearner().fit(STRINGS)
    assert learner.model_ is not None
    assert learner.model_.weight == learner.learned_.smoothing
    assert math.isfinite(learner.learned_.held_out_perplexity)
    assert SpectralLearner(smoothing=0.2).fit(STRINGS).model_.weight == 0.2
