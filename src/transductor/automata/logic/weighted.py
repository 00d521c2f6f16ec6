"""Restricted weighted logic over words, compiled to weighted automata (Droste and Gastin).

Automata read marked words, as in :mod:`.second_order`.  Sums and products of values are the direct sum and
the Hadamard product; ``sum`` adds the matrices of letters that differ only in the mark it forgets.  ``prod x. φ`` has
finitely many factors to choose from: an unambiguous automaton guesses one at every position and multiplies the guesses,
and a finite automaton, compiled like a Boolean formula, lets only the right ones pass.  Everything is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import add, mul

from transductor.automata.algebra import all_words, hadamard_product, renamed, scaled, sum_of
from transductor.automata.finite_algebra import inverse_image, is_empty, minimised
from transductor.automata.finite_automata import DFA, weights01
from transductor.automata.logic import second_order, weighted_syntax
from transductor.automata.logic.formula_tree import Truth, free_variables, is_set_variable
from transductor.automata.logic.second_order import Tracks, marked
from transductor.automata.logic.weighted_syntax import Aggregated, Combined, Iverson, Weight, WeightedFormula
from transductor.automata.reduction import minimised as reduced
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.words import Symbol

OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {"+": add, "*": mul}


def weighted_mso(
    formula: str | WeightedFormula, alphabet: Iterable[Symbol], *, limit: int = 20_000, dim_limit: int = 1_000
) -> WeightedAutomaton:
    """Return the minimal automaton, over exact rationals, of the values a weighted sentence gives to words.

    Args:
        formula: Text, in the syntax of :mod:`.weighted_syntax`, or its value.
        alphabet: The letters of words; a formula names them as ``str`` does.
        limit: The most states a finite automaton may have on the way.
        dim_limit: The most states a weighted automaton may have on the way.
    """
    symbols = tuple(alphabet)
    text = formula if isinstance(formula, str) else None
    sentence = weighted_syntax.weighted_formula(formula) if isinstance(formula, str) else formula
    second_order.check_sentence(sentence, symbols, text)
    weighted_syntax.check_fragment(sentence)
    automaton = _Compiler(limit, dim_limit).series(sentence, Tracks(symbols))
    return WeightedAutomaton(automaton.initial, automaton.matrices, automaton.final, symbols)


class _Compiler:
    """Compiles formulas to automata over marked words, each minimised before it is used."""

    def __init__(self, limit: int, dim_limit: int) -> None:
        self.limit, self.dim_limit = limit, dim_limit

    def series(self, formula: WeightedFormula, tracks: Tracks) -> WeightedAutomaton:
        """Return the automaton over ``tracks``, which has all variables that are free in ``formula``."""
        own = Tracks(tracks.symbols, tuple(sorted(free_variables(formula))))
        automaton = reduced(self._compiled(formula, own))
        narrowed = tracks.onto(own)
        letters = [automaton.letter_index(narrowed[letter]) for letter in tracks.alphabet]
        return WeightedAutomaton(automaton.initial, automaton.matrices[letters], automaton.final, tracks.alphabet)

    def _compiled(self, formula: WeightedFormula, tracks: Tracks) -> WeightedAutomaton:
        match formula:
            case Weight(value):
                return scaled(all_words(tracks.alphabet), value)
            case Iverson(condition):
                return self._weighted(marked(condition, tracks, limit=self.limit), formula)
            case Combined("+", operands):
                terms = [self.series(operand, tracks) for operand in operands]
                return reduce(lambda a, b: reduced(sum_of(a, b)), terms)
            case Combined(_, operands):
                factors = [self.series(operand, tracks) for operand in operands]
                return reduce(lambda a, b: self._product(a, b, formula), factors)
            case Aggregated("sum", variable, body):
                return self._sum(formula, self.series(body, tracks.having([variable])), tracks)
            case Aggregated(_, variable, body):
                return self._prod(formula, self._pieces(body, tracks.having([variable])), tracks)

    def _sum(self, formula: Aggregated, body: WeightedAutomaton, tracks: Tracks) -> WeightedAutomaton:
        variable = formula.variable
        inner = tracks.having([variable])
        if not is_set_variable(variable):
            body = self._product(body, self._weighted(second_order.marked_once(variable, inner), formula), formula)
        return renamed(body, inner.onto(tracks))

    def _prod(self, formula: Aggregated, pieces: dict[Fraction, DFA], tracks: Tracks) -> WeightedAutomaton:
        """Return the automaton that guesses the value at every position, rejects wrong guesses, and multiplies them."""
        variable = formula.variable
        pairs = tuple(product(tracks.symbols, pieces))
        guessing = Tracks(pairs, tracks.having([variable]).variables)
        spoken: dict[Symbol, Symbol] = {
            ((symbol, value), bits): (symbol, bits) for (symbol, value), bits in product(pairs, guessing.markings)
        }
        wrong = marked(Truth(False), guessing, limit=self.limit)
        for value, piece in pieces.items():
            others = frozenset(pair for pair in pairs if pair[1] != value)
            here = inverse_image(piece, guessing.alphabet, spoken)
            missed = minimised(here & _reading(others, variable, guessing))
            second_order.check_pair(wrong, missed, formula, self.limit)
            wrong = minimised(wrong | missed)
        wrong = minimised(wrong & second_order.marked_once(variable, guessing))
        some_wrong = second_order.forgetting(variable, guessing, wrong, limit=self.limit, within=formula)
        right = minimised(~some_wrong)
        return self._multiplied(right, pairs, tracks, formula)

    def _multiplied(
        self, right: DFA, pairs: tuple[tuple[Symbol, Fraction], ...], tracks: Tracks, formula: WeightedFormula
    ) -> WeightedAutomaton:
        """Return each word weighed by the product of its guesses, summed over the guesses that ``right`` accepts."""
        accepting = self._weighted(right, formula)
        letters = list(product(pairs, tracks.markings))
        values = [value for (_, value), _ in letters]
        matrices = [matrix * value for matrix, value in zip(accepting.matrices, values, strict=True)]
        weighed = WeightedAutomaton(accepting.initial, matrices, accepting.final, letters)
        return renamed(weighed, {((symbol, value), bits): (symbol, bits) for (symbol, value), bits in letters})

    def _pieces(self, formula: WeightedFormula, tracks: Tracks) -> dict[Fraction, DFA]:
        """Return a step function as a partition: for each of its values, the marked words that have it."""
        match formula:
            case Weight(value):
                return {value: marked(Truth(True), tracks, limit=self.limit)}
            case Iverson(condition):
                true = marked(condition, tracks, limit=self.limit)
                return _without_empty({Fraction(1): true, Fraction(0): ~true})
            case Combined(operator, operands):
                parts = [self._pieces(operand, tracks) for operand in operands]
                return reduce(lambda a, b: self._refined(operator, a, b, formula), parts)
            case _:
                raise weighted_syntax.OutsideFragment("not a step function", str(formula))

    def _refined(
        self, operator: str, left: dict[Fraction, DFA], right: dict[Fraction, DFA], formula: WeightedFormula
    ) -> dict[Fraction, DFA]:
        refined: dict[Fraction, DFA] = {}
        for (first, here), (second, there) in product(left.items(), right.items()):
            value = OPERATIONS[operator](first, second)
            second_order.check_pair(here, there, formula, self.limit)
            both = minimised(here & there)
            refined[value] = minimised(refined[value] | both) if value in refined else both
        return _without_empty(refined)

    def _weighted(self, dfa: DFA, formula: WeightedFormula) -> WeightedAutomaton:
        if dfa.states > self.dim_limit:
            raise second_order.too_large(formula, self.dim_limit, "dim_limit")
        return WeightedAutomaton(*weights01(dfa), dfa.alphabet)

    def _product(self, a: WeightedAutomaton, b: WeightedAutomaton, formula: WeightedFormula) -> WeightedAutomaton:
        if a.dim * b.dim > self.dim_limit:
            raise second_order.too_large(formula, self.dim_limit, "dim_limit")
        return reduced(hadamard_product(a, b))


def _reading(symbols: frozenset[Symbol], variable: str, tracks: Tracks) -> DFA:
    """Return the marked words that have one of these symbols where ``variable`` stands."""
    return second_order.tabulated(
        tracks, 2, lambda state, symbol, on: state | (on[variable] and symbol in symbols), {1}
    )


def _without_empty(pieces: dict[Fraction, DFA]) -> dict[Fraction, DFA]:
    return {value: piece for value, piece in pieces.items() if not is_empty(piece)}
