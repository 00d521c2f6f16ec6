"""Machines, files and comparisons that the tests of formats share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from transductor.automata import formats
from transductor.automata.formats import AutomatonFormatError
from transductor.automata.formats.graph import as_weighted
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import WEIGHTS

SEMIRINGS = {
    "att": list(WEIGHTS),
    "openfst": ["min_plus", "log"],
    "dot": list(WEIGHTS),
    "jflap": ["boolean"],
    "native": list(WEIGHTS),
}
CASES = [(name, ring) for name, rings in SEMIRINGS.items() for ring in rings]

RATIONAL_LOOPS = b"0 1 a a 1/2\n1 1 <eps> <eps> 1/3\n1 2 <eps> <eps> 2\n2 1 <eps> <eps> 1/12\n2 1\n"
JFLAP_TEXT = (
    "<?xml version='1.0'?><structure><type>fa</type><automaton>\n"
    "<state id='3' name='x'><x>1.0</x><y>2.0</y><initial/></state>\n<state id='9'><final/></state>\n"
    "<transition><from>3</from><to>9</to><read>a</read></transition>\n"
    "<transition><from>9</from><to>3</to><read/></transition>\n</automaton></structure>"
)


def random_machine(ring_name: str, *, dim: int = 3, letters: tuple = ("a", "b"), seed: int = 0) -> WeightedAutomaton:
    """Not symmetric, several initial states, some zeros; weights that float32 holds."""
    rng, ring = np.random.default_rng(seed), WEIGHTS[ring_name]

    def weights(*shape: int) -> np.ndarray:
        array = ring.zeros(*shape)
        for place in np.ndindex(*shape):
            number = int(rng.integers(-6, 7))
            if number % 3:
                exact = {"boolean": number > 0, "rational": Fraction(number, int(rng.integers(1, 9)))}
                array[place] = exact.get(ring_name, number / 4)
        return array

    return WeightedAutomaton(weights(dim), weights(len(letters), dim, dim), weights(dim), letters, weights=ring)


def one_way(ring_name: str) -> WeightedAutomaton:
    """Reads a word of ab* and weighs it; the transposed machine reads none."""
    ring = WEIGHTS[ring_name]
    initial, final, matrices = ring.zeros(2), ring.zeros(2), ring.zeros(2, 2, 2)
    initial[0] = final[1] = matrices[0, 1, 0] = matrices[1, 1, 1] = ring.one
    return WeightedAutomaton(initial, matrices, final, ("a", "b"), weights=ring)


def there_and_back(machine, name: str, **options) -> WeightedAutomaton:
    reading = dict(options)
    if name == "att":
        reading["weights"] = as_weighted(machine).weights
    return formats.FORMATS[name].parse(formats.FORMATS[name].render(machine, **options), "file", **reading)


def assert_same_series(one: WeightedAutomaton, other: WeightedAutomaton, length: int = 5) -> None:
    assert set(one.alphabet) == set(other.alphabet)
    assert one.weights is other.weights
    words = list(one.words(length))
    if one.weights.exact:
        assert [one(word) for word in words] == [other(word) for word in words]
    else:
        np.testing.assert_allclose([one(word) for word in words], [other(word) for word in words], 1e-12, 1e-12)


def refusal(module, data, **options) -> AutomatonFormatError:
    with pytest.raises(AutomatonFormatError) as caught:
        module.parse(data if isinstance(data, bytes) else data.encode(), "machine.txt", **options)
    assert str(caught.value).startswith("machine.txt")
    assert caught.value.path == "machine.txt"
    return caught.value
