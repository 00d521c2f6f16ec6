from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from transductor.automata.decomposition.cascade import verify, walk
from transductor.automata.decomposition.krohn_rhodes import decomposed, draw, report
from transductor.automata.decomposition.permutation_groups import PermutationGroup, composed, element_order, inverse

FULL_ON_3 = [[1, 1, 0], [2, 0, 0], [0, 2, 2]]  # a 3-cycle, a transposition, a map that collapses two points
FLIP_FLOP = [[0, 1], [0, 1]]
FIVE_CYCLE, TRANSPOSITION, THREE_CYCLE = (1, 2, 3, 4, 0), (1, 0, 2, 3, 4), (1, 2, 0, 3, 4)


def points_and_groups(cascade):
    return [(level.points, [group.name for group in level.groups]) for level in cascade.levels]


def on_points(*letters):
    return np.array(letters).T


def on_itself(*generators):
    """The group as a machine: its elements are the states, a letter multiplies by a generator."""
    group = sorted(PermutationGroup(len(generators[0]), generators).elements())
    number = {element: i for i, element in enumerate(group)}
    return [[number[composed(element, generator)] for generator in generators] for element in group]


def random_machines(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        states = int(rng.integers(1, 7))
        yield rng.integers(0, states, (states, 2))


def full_on(states):
    return [[(i + 1) % states, {0: 1, 1: 0}.get(i, i), 0 if i == 1 else i] for i in range(states)]


@pytest.mark.parametrize(
    ("transitions", "expected"),
    [
        pytest.param(FULL_ON_3, [(3, ["S3"]), (2, ["Z2"])], id="all maps on 3 points"),
        pytest.param(full_on(5), [(5, ["S5"]), (4, ["S4"]), (3, ["S3"]), (2, ["Z2"])], id="all maps on 5 points"),
        pytest.param([[(i + 1) % 5] for i in range(5)], [(5, ["Z5"])], id="mod-5 counter"),
        pytest.param([[0, 1], [1, 0]], [(2, ["Z2"])], id="parity"),
        pytest.param(FLIP_FLOP, [(2, ["Z1"])], id="flip-flop"),
        pytest.param([[0, 1, 1], [0, 1, 0]], [(2, ["Z2"])], id="flip-flop with toggle"),
        pytest.param([[0, 1, 0], [0, 1, 1], [0, 1, 2]], [(3, ["Z1"])], id="resets that miss a state"),
        pytest.param([[0]], [], id="single state"),
        pytest.param([[0, 0], [1, 1], [2, 2]], [(3, ["Z1"])], id="identity letters"),
        pytest.param([[0, 1, 2]] * 3, [(3, ["Z1"])], id="all-constant letters"),
        pytest.param([[0], [0], [1], [2]], [(2, ["Z1"])] * 3, id="chain of ranks"),
        pytest.param(on_points(FIVE_CYCLE, TRANSPOSITION), [(5, ["S5"])], id="S5 on 5 points"),
        pytest.param(on_points(FIVE_CYCLE, THREE_CYCLE), [(5, ["A5"])], id="A5 on 5 points"),
        pytest.param(on_itself(FIVE_CYCLE, TRANSPOSITION), [(120, ["S5"])], id="S5 on itself"),
        pytest.param(on_itself(FIVE_CYCLE, THREE_CYCLE), [(60, ["A5"])], id="A5 on itself"),
    ],
)
def test_known_machines(transitions, expected):
    cascade = decomposed(transitions)
    assert points_and_groups(cascade) == expected
    certificate = verify(cascade, transitions)
    assert certificate.holds, str(certificate)
    assert certificate.checked == len(list(walk(cascade))) * np.shape(transitions)[1]


def test_random_machines_are_covered():
    for transitions in random_machines(60, seed=1):
        certificate = verify(decomposed(transitions), transitions)
        assert certificate.holds, f"{transitions.tolist()}: {certificate}"


@pytest.mark.slow
def test_many_random_machines_are_covered():
    for transitions in random_machines(200, seed=2):
        certificate = verify(decomposed(transitions), transitions)
        assert certificate.holds, f"{transitions.tolist()}: {certificate}"


def semigroup(transitions):
    """Every map that a word makes, the empty word included."""
    letters = [tuple(column) for column in np.transpose(transitions).tolist()]
    maps = [tuple(range(len(transitions)))]
    for known in maps:
        maps += [new for letter in letters if (new := composed(known, letter)) not in maps]
    return maps


@pytest.mark.parametrize("transitions", [FULL_ON_3, *random_machines(12, seed=3)], ids=range(13))
def test_levels_agree_with_their_definitions(transitions):
    """Heights, tiles and groups again, from all maps and by the letter of the definitions."""
    maps = semigroup(transitions)
    states = range(len(transitions))
    sets = {frozenset(map_[state] for state in states) for map_ in maps} | {frozenset({state}) for state in states}
    images = {whole: {frozenset(map_[state] for state in whole) for map_ in maps} for whole in sets}
    subdued = {(p, q) for p in sets for q in sets if any(p <= image for image in images[q])}

    def height(p):
        if len(p) == 1:
            return 0
        return 1 + max(height(q) for q in sets if (q, p) in subdued and (p, q) not in subdued)

    cascade = decomposed(transitions)
    depth = len(cascade.levels)
    assert height(frozenset(states)) == depth
    seen = set()
    for number, level in enumerate(cascade.levels):
        for component in level.components:
            whole = frozenset(component.representative)
            assert height(whole) == depth - number
            inside = {p for p in sets if p < whole}
            tiles = list(map(frozenset, component.tiles))
            assert sorted(map(sorted, tiles)) == sorted(sorted(p) for p in inside if not any(p < q for q in inside))
            returns = [m for m in maps if frozenset(m[state] for state in whole) == whole]
            actions = {tuple(tiles.index(frozenset(m[state] for state in tile)) for tile in tiles) for m in returns}
            assert set(component.group.elements()) == actions
            seen |= {p for p in sets if (p, whole) in subdued and (whole, p) in subdued}
    assert seen == {p for p in sets if len(p) > 1}


def test_parallel_classes_share_a_coordinate():
    # States 0, 1 and 2, 3 are swapped by letter 0; letters 1 and 2 keep one pair and collapse everything else into it.
    transitions = [[1, 0, 2], [0, 1, 2], [3, 0, 2], [2, 0, 3]]
    cascade = decomposed(transitions)
    assert points_and_groups(cascade) == [(2, ["Z1"]), (4, ["Z2", "Z2"])]
    assert verify(cascade, transitions).holds
    assert len(list(walk(cascade))) == 4
    wrong = next(c for c in itertools.product(range(2), range(4)) if c not in list(walk(cascade)))
    with pytest.raises(ValueError, match=r"coordinates must pick a tile of .* at level 2"):
        cascade.state(wrong)


def test_coordinates_stand_for_states():
    cascade = decomposed(FULL_ON_3)
    assert [cascade.state(cascade.start(state)) for state in range(3)] == [0, 1, 2]
    word = [0, 2, 1, 0, 0, 2]
    state = 1
    for letter in word:
        state = FULL_ON_3[state][letter]
    assert cascade.state(cascade.run(word, state=1)) == state
    assert cascade.run([]) == cascade.start(0)
    assert cascade.step(cascade.start(0), 0) == cascade.run([0])


def test_a_level_sees_only_the_levels_above():
    cascade = decomposed(full_on(4))
    for letter in range(3):
        for upper in range(4):
            lower = itertools.product(range(3), range(2))
            assert len({cascade.actions((upper, *rest), letter)[:2] for rest in lower}) == 1


def test_an_automaton_is_accepted():
    automaton = SimpleNamespace(transitions=np.array(FULL_ON_3), alphabet=("cycle", "swap", "collapse"), start=2)
    cascade = decomposed(automaton)
    assert cascade.alphabet == ("cycle", "swap", "collapse")
    assert cascade.state(cascade.run([])) == 2
    assert verify(cascade, automaton).holds


def corrupted(cascade, depth, action_of):
    """The cascade with every action of one level replaced."""
    level = cascade.levels[depth]
    moves = {context: action_of(action) for context, action in level.moves.items()}
    levels = [*cascade.levels[:depth], replace(level, moves=moves), *cascade.levels[depth + 1 :]]
    return replace(cascade, levels=tuple(levels))


def test_one_wrong_move_is_found():
    cascade = decomposed(FULL_ON_3)
    faults = 0
    for depth, level in enumerate(cascade.levels):
        for context, action in level.moves.items():
            moves = {**level.moves, context: (*action[1:], action[0])}
            if moves == level.moves:
                continue  # a reset, which looks the same from every point
            levels = [*cascade.levels[:depth], replace(level, moves=moves), *cascade.levels[depth + 1 :]]
            certificate = verify(replace(cascade, levels=tuple(levels)), FULL_ON_3)
            assert not certificate.holds
            assert "FAILS" in str(certificate)
            assert certificate.witness
            faults += 1
    assert faults >= 4


def test_the_witness_leads_to_the_fault():
    wrong = corrupted(decomposed([[0, 1], [1, 0]]), 0, lambda action: (0, 1))
    certificate = verify(wrong, [[0, 1], [1, 0]])
    assert (certificate.holds, certificate.state, certificate.witness) == (False, 0, (1,))
    assert "decodes to state 0, the machine is in 1" in certificate.reason


def test_an_action_must_be_a_permutation_or_a_reset():
    transitions = [[(i + 1) % 3] for i in range(3)]
    wrong = corrupted(decomposed(transitions), 0, lambda action: (1, 2, 2))
    certificate = verify(wrong, transitions)
    assert certificate.witness == (0,)
    assert "neither in its groups nor a reset" in certificate.reason


def test_a_permutation_must_be_of_the_group():
    level = decomposed([[(i + 1) % 3] for i in range(3)]).levels[0]
    assert level.permits((2, 0, 1))
    assert level.permits((1, 1, 1))
    assert not level.permits((1, 0, 2))
    assert not level.permits((3, 3, 3))


def test_missing_moves_are_a_fault():
    cascade = decomposed(FLIP_FLOP)
    certificate = verify(replace(cascade, levels=(replace(cascade.levels[0], moves={}),)), FLIP_FLOP)
    assert not certificate.holds
    assert "undefined" in certificate.reason


def test_views_that_decode_wrongly_are_a_fault():
    cascade = decomposed(FLIP_FLOP)
    level = replace(cascade.levels[0], narrowed={0: (0, 0)})
    certificate = verify(replace(cascade, levels=(level,)), FLIP_FLOP)
    assert (certificate.holds, certificate.state, certificate.witness) == (False, 0, ())
    assert "has no coordinates" in certificate.reason


def test_another_machine_is_refused():
    with pytest.raises(ValueError, match=r"transitions must be \(2, 2\)"):
        verify(decomposed(FLIP_FLOP), FULL_ON_3)


@pytest.mark.parametrize(
    ("transitions", "error", "message"),
    [
        ([[0, -1], [1, 0]], ValueError, r"transitions must lie in \[0, 2\); got -1 at state 0, letter 1"),
        ([[0, 1], [2, 0]], ValueError, r"transitions must lie in \[0, 2\); got 2 at state 1, letter 0"),
        ([[0.0, 1.0], [1.0, 0.0]], TypeError, "transitions must be integers; got float64"),
        ([[True, False], [False, True]], TypeError, "transitions must be integers; got bool"),
        ([["a"]], TypeError, "transitions must be integers"),
        ([[], [], []], ValueError, r"both ≥ 1; got \(3, 0\)"),
        ([], ValueError, r"shape \(states, letters\)"),
        ([0, 1], ValueError, r"shape \(states, letters\)"),
        ([[0, 1], [0]], ValueError, "rectangular"),
        (SimpleNamespace(transitions=[[0, 0]], alphabet="a"), ValueError, "alphabet must name the 2 letters"),
    ],
)
def test_bad_machines_are_refused(transitions, error, message):
    with pytest.raises(error, match=message):
        decomposed(transitions)


@pytest.mark.parametrize("limit", [0, -3, 2.5, True, None])
def test_bad_limits_are_refused(limit):
    with pytest.raises(ValueError, match="limit must be a positive integer"):
        decomposed(FLIP_FLOP, limit=limit)


def test_limits_are_named_with_what_was_reached():
    with pytest.raises(ValueError, match="limit allows 20 image sets and this machine has more"):
        decomposed(full_on(6), limit=20)
    with pytest.raises(ValueError, match=r"limit allows 65 moves and the first \d of 5 levels need \d+"):
        decomposed(full_on(6), limit=65)
    with pytest.raises(ValueError, match="limit allows 10 coordinate tuples and"):
        verify(decomposed(full_on(4)), full_on(4), limit=10)


def test_bad_coordinates_letters_and_states_are_refused():
    cascade = decomposed(FULL_ON_3)
    for coordinates in [(0,), (0, 0, 0), (3, 0), (0, -1)]:
        with pytest.raises(ValueError, match=r"coordinates must be 2 integers below \(3, 2\)"):
            cascade.state(coordinates)
    with pytest.raises(ValueError, match=r"letter must be an index in \[0, 3\); got 3"):
        cascade.step((0, 0), 3)
    with pytest.raises(ValueError, match=r"state must lie in \[0, 3\); got -1"):
        cascade.start(-1)


def test_the_report_reads_from_top_to_bottom():
    assert report(decomposed(FULL_ON_3)).splitlines() == [
        "Krohn–Rhodes cascade of 3 states over 3 letters: depth 2",
        "  level 1: 3 points, S3 (order 6) on 3 points",
        "  level 2: 2 points, Z2 (order 2) on 2 points",
        "coordinate tuples: 6 possible, 6 reached",
    ]
    assert "more than 5 reached" in report(decomposed(FULL_ON_3), limit=5)
    assert "2 × Z2 (order 2) on 2 points" in report(decomposed([[1, 0, 2], [0, 1, 2], [3, 0, 2], [2, 0, 3]]))
    assert "1 state over 1 letter: depth 0" in report(decomposed([[0]]))


@pytest.mark.parametrize("transitions", [[[0]], full_on(4), on_itself(FIVE_CYCLE, THREE_CYCLE)], ids=["0", "3", "1"])
def test_a_picture_is_drawn(tmp_path, transitions):
    path = draw(decomposed(transitions), tmp_path / "cascade.png")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 3000


def cycles(degree, *all_cycles):
    values = list(range(degree))
    for cycle in all_cycles:
        for point, following in itertools.pairwise((*cycle, cycle[0])):
            values[point] = following
    return tuple(values)


def modulo(modulus, factor):
    return tuple(factor * i % modulus for i in range(modulus))


QUATERNION_I = cycles(8, (0, 1, 2, 3), (4, 5, 6, 7))
QUATERNION_J = cycles(8, (0, 4, 2, 6), (1, 7, 3, 5))


@pytest.mark.parametrize(
    ("degree", "generators", "name", "order"),
    [
        (1, [], "Z1", 1),
        (6, [cycles(6, (0, 1, 2), (3, 4))], "Z6", 6),
        (4, [cycles(4, (0, 1)), cycles(4, (2, 3))], "V4", 4),
        (6, [cycles(6, (0, 1, 2, 3)), cycles(6, (4, 5))], "Z2×Z4", 8),
        (10, [cycles(10, (0, 1, 2, 3)), cycles(10, (4, 5, 6), (7, 8)), cycles(10, (7, 8))], "Z2×Z12", 24),
        (4, [cycles(4, (0, 1, 2, 3)), cycles(4, (0, 2))], "D4", 8),
        (6, [cycles(6, (0, 1, 2, 3, 4, 5)), cycles(6, (0, 5), (1, 4), (2, 3))], "D6", 12),
        (8, [QUATERNION_I, QUATERNION_J], "Q8", 8),
        (4, [cycles(4, (0, 1, 2)), cycles(4, (0, 1), (2, 3))], "A4", 12),
        (6, [cycles(6, (0, 1, 2)), cycles(6, (0, 1))], "S3", 6),
        (5, [FIVE_CYCLE, modulo(5, 2)], "F20", 20),
        (7, [cycles(7, range(7)), modulo(7, 2)], "F21", 21),
        (7, [cycles(7, range(7)), modulo(7, 3)], "order 42 on 7 points", 42),
        (7, [cycles(7, range(7)), cycles(7, (1, 2), (3, 6))], "PSL(2,7)", 168),
        (12, [cycles(12, range(12)), cycles(12, (0, 1))], "S12", 479001600),
        (9, [cycles(9, range(9)), cycles(9, (0, 1, 2))], "A9", 181440),
    ],
)
def test_groups_are_named(degree, generators, name, order):
    group = PermutationGroup(degree, tuple(generators))
    assert (group.name, group.order) == (name, order)


def test_group_members_are_exactly_its_elements():
    group = PermutationGroup(5, (FIVE_CYCLE, modulo(5, 4)))
    elements = set(group.elements())
    assert len(elements) == group.order == 10
    assert {p for p in itertools.permutations(range(5)) if p in group} == elements
    assert (0, 1) not in group
    assert all(composed(element, inverse(element)) == (0, 1, 2, 3, 4) for element in elements)
    assert sorted(map(element_order, elements)) == [1, *[2] * 5, *[5] * 4]


def test_generators_must_be_permutations():
    with pytest.raises(ValueError, match=r"generators must be permutations of the points 0 … 2; got \(0, 0, 1\)"):
        PermutationGroup(3, ((0, 0, 1),))


def test_a_certificate_that_failed_is_false():
    table = np.array([[1, 0], [0, 2], [2, 2]])
    cascade = decomposed(table)
    assert verify(cascade, table)
    certificate = verify(cascade, np.roll(table, 1, axis=0))
    assert not certificate.holds
    assert not certificate
