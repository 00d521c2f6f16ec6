"""Regular expressions: the automaton and ``re.fullmatch`` agree on words from both sides of every language."""

from __future__ import annotations

import random
import re
import string
from itertools import islice

import numpy as np
import pytest

from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA
from transductor.automata.regular_expression import RegexNotRegular, regex

# Both cases, digits, blanks, newlines, and letters whose cases are odd: ß, long s, Kelvin, dotted and dotless i.
RICH = "abcABCxyz019_ -.\n\t\réßſsSkK\u212a\u0130\u0131iI\u0663"
SMALL = "abA1\n_"
WORDS_PER_PATTERN = 220
LONGEST = 9

WITHOUT_BLANKS = r"""
a abc \. a\-b \x61b \u0061 \141 \n \t|\r - [\b] a{ a{x} a{, {a} a\tb (?#note)a \# \\ \[a\]
[abc] [^abc] [a-c] [^a-c] [a-cA-C0-9] []a] [^]a] [\]\-a] [a-] [-a] [\n] [^\n] [.] [^^] [$] [|] [a-c\d] [^\d] [\D]
[^\D] [\d\D] [^\d\D] [\s\w] [^\s\w] . .. .* .+ .? .*a.* a.c a.*?b \d \D \w \W \s \S \d+ \w+\s\w+ \D\d\D
\d{1,3}(\.\d{1,3}){0,2} -?(0|1|9)\d*(\.\d+)? [a-c_]\w* (\w+\s)*\w+ \s*\S+\s* \d\d
a|b a| |a | ab|ac|b (a|b)c a(b|c)* (a)(b) (?:a|b)+ (?P<name>a)b ((a)|(b)|(c))* () (a|ab)(c|bc) (a|ab|abc)* (|a)+ (a||b)
(?:) (a|b|c|A|B)*abc (ab|ba)*(a|b)? (a|b(a|b(a|b)*c)*c)* ((a|b)(a|c))+|cc
a* a+ a? a*? a+? a?? a{2} a{2,} a{,2} a{2,4} a{2,4}? a{0} a{0,0}b a{1} a{0,1} (ab)* (ab)+? (ab){2,3} (a*)* (a*)+ (a+)+
(a?)* (a*b*)* (a|b*)* (a*|b)+ (a{2}){2} (a{1,2}){2,3} ((a|b){2})* (a{2}|a{3})* (aa|aaa)?a x{1,2}?y (?:a{,3}b){,2}
(a??)*? (?:a*?b??)+? (a|b)*?c (a?){3} (a?){3,} (a*){2} (?:(?:a?b?)*c?)* .{2,3} [ab]{3} (.a)* (?:a++){0} (a+b?){2,}
^a$ ^ $ ^$ ^^a a$$ \Aa\Z a^ $a a^b a$b ^a|b$ (^a|b)c (a$|b) (^|a)b (^a)* (a$)* (?:^a|b)* (?:a|^)b (a|^)*b ^a*$
a$\n a$\n$ a$.? a\Z\n (?s)a$. (?s)a$.. (?s)^.$ (?:$\n)* (?m)^a$ (?m)^a$\n^b$ (?m)(^a$\n?)* (?m)a^ (?m)\n^
(?m)a$\nb (?ms)(^.$.?)* (?ms).^. (?ms)a$. (?m)$^ (?m:$)\n$ $(?m:$)\n (?m:$)$\n (?m:^)a (?m:a$)(?s:.)b
(?m)\Aa\Z (?m)a\n\Ab (?m:^a$|\n)* (\A|a)*b\Z (?s)(?:a$|.)* (?m)(?:a$|^b|\n)* (?:^|a)(?:$|b) (?:^a|^b)$
(?:)^(?:)a (?:a|$)\n? (?:a|$)+\n? (?:^$)* (?:^$)+a?
(?i)abc (?i)[a-c]+ (?i)[^a] (?i:a)b (?i:a(?-i:b)c) (?i)k (?i)[k] (?i)ß (?i)s+ (?i)[^s] (?i)[r-t] (?i)i (?i)\u0131
(?i)\u0130 (?i)é (?i)É (?ia)k (?ia)[k-l]s (?a)\w+ (?a)\d (?a:\w)\w (?i)\w (?u)\w (?s). (?s:.). (?s).*\n.* (?-s:.)
(?s)a.b (?si)a.B (?!) a(?!)|b (?i)(?:a|B)* (?i)[A-C]x (?i)[^A-C] (?i:[ab])[ab] (?s-i:.)a (?i)[\u017f] (?i)\u212a
"""
WITH_BLANKS = ["", "a b", r"\N{DIGIT ONE}", "(?x) a b # c", "(?x: a [ ] b )c", "(?x)a\\ b", "a\nb", "[^\n]"]
WRITTEN = [*WITHOUT_BLANKS.split(), *WITH_BLANKS]

REFUSED = {
    "a(?=b)": "a look-ahead at position 1",
    "(?!a)b": "a look-ahead at position 0",
    "[(?=](?<=a)": "a look-behind at position 5",
    "b(?<!a)": "a look-behind at position 1",
    r"(a)\1": "a back-reference at position 3",
    r"\\(?P<x>a)(?P=x)": "a back-reference at position 10",
    "(a)?(?(1)b|c)": "a conditional at position 4",
    r"\ba": "a word boundary at position 0",
    r"[\b]\b": "a word boundary at position 4",
    r"a\B": "a non-boundary at position 1",
    "a*+": "a possessive quantifier at position 1",
    "a++b": "a possessive quantifier at position 1",
    r"\++?a?+": "a possessive quantifier at position 5",
    "a{1,2}+": "a possessive quantifier at position 5",
    "(?#(?>)(?>a|ab)c": "an atomic group at position 7",
    "(a|(b(?=c)))*": "a look-ahead at position 5",
}

COMMON_ATOMS = r"a b A 1 _ \n ab . [ab] [^a] [^\n1] [^\d_] [a-c] \d \w \s"
RARE_ATOMS = r" \W \D \S ^ $ \A \Z [\w\n] [^\W]"  # the first is empty


class PatternWriter:
    """Random pattern trees of everything that is regular."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.groups = 0

    def written(self, depth: int) -> str:
        if depth == 0:
            return self.atom()
        kinds = {self.concatenation: 4, self.alternation: 3, self.repeated: 4, self.grouped: 2}
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        return kind(depth - 1)

    def atom(self) -> str:
        atoms = COMMON_ATOMS if self.random.random() < 0.8 else RARE_ATOMS
        return self.random.choice(atoms.split(" "))

    def concatenation(self, depth: int) -> str:
        return "".join(f"(?:{self.written(depth)})" for _ in range(self.random.randint(2, 3)))

    def alternation(self, depth: int) -> str:
        return "|".join(self.written(depth) for _ in range(self.random.randint(2, 3)))

    def repeated(self, depth: int) -> str:
        quantifier = self.random.choice(["*", "+", "?", "{2}", "{1,}", "{,2}", "{1,3}", "{0}", "{2,3}"])
        return f"({self.written(depth)}){quantifier}{self.random.choice(['', '', '?'])}"

    def grouped(self, depth: int) -> str:
        self.groups += 1
        opening = self.random.choice(["(", "(?:", f"(?P<g{self.groups}>", "(?i:", "(?s:", "(?m:", "(?ms:", "(?a:"])
        return f"{opening}{self.written(depth)})"


RANDOM = [PatternWriter(seed).written(2 + seed % 2) for seed in range(160)]


def accepted_word(dfa: DFA, length: int, source: random.Random) -> str | None:
    """A random accepted word of that length, if there is one."""
    hopeful = [np.isin(np.arange(dfa.states), list(dfa.accepting))]
    for _ in range(length):
        hopeful.append(np.any(hopeful[-1][dfa.transitions], axis=1))
    if not hopeful[length][dfa.start]:
        return None
    state, word = dfa.start, ""
    for left in range(length - 1, -1, -1):
        letter = source.choice(np.flatnonzero(hopeful[left][dfa.transitions[state]]).tolist())
        state, word = int(dfa.transitions[state, letter]), word + str(dfa.alphabet[letter])
    return word


def sample(dfa: DFA, source: random.Random) -> list[str]:
    """Short accepted words, random accepted words, these with one mistake, and random words."""
    letters = [str(symbol) for symbol in dfa.alphabet]
    words = ["".join(map(str, word)) for word in islice(dfa.words(4), 40)]
    drawn = (accepted_word(dfa, source.randint(0, LONGEST), source) for _ in range(80))
    words += [word for word in drawn if word is not None]
    for word in list(words):
        at = source.randrange(len(word) + 1)
        words.append(word[:at] + source.choice(["", *letters]) + word[at + source.randint(0, 1) :])
    missing = range(WORDS_PER_PATTERN - len(words))
    words += ["".join(source.choices(letters, k=source.randint(0, LONGEST))) if letters else "" for _ in missing]
    return words


@pytest.mark.parametrize("alphabet", [None, RICH], ids=["own alphabet", "rich alphabet"])
@pytest.mark.parametrize("pattern", WRITTEN)
def test_written_patterns_agree_with_fullmatch(pattern: str, alphabet: str | None) -> None:
    dfa, compiled = regex(pattern, alphabet), re.compile(pattern)
    words = sample(dfa, random.Random(pattern))
    assert [word for word in words if dfa(word) != bool(compiled.fullmatch(word))] == []


@pytest.mark.parametrize("pattern", RANDOM)
def test_random_patterns_agree_with_fullmatch(pattern: str) -> None:
    dfa, compiled = regex(pattern, SMALL), re.compile(pattern)
    words = sample(dfa, random.Random(pattern))
    assert [word for word in words if dfa(word) != bool(compiled.fullmatch(word))] == []


def test_there_are_patterns_and_words_enough() -> None:
    assert len(set(WRITTEN)) + len(set(RANDOM)) >= 200
    assert len(sample(regex("(a|b)*"), random.Random(0))) >= 200


@pytest.mark.parametrize("flags", [re.IGNORECASE, re.DOTALL, re.MULTILINE, re.ASCII, re.VERBOSE, re.I | re.S | re.M])
@pytest.mark.parametrize("pattern", ["a.b", "^a$|b", r"\w [a-c]", "(?-i:k)s", "(?m:^a$)."])
def test_given_flags(pattern: str, flags: int) -> None:
    dfa, compiled = regex(pattern, RICH, flags), re.compile(pattern, flags)
    assert all(dfa(word) == bool(compiled.fullmatch(word)) for word in sample(dfa, random.Random(7)))


def test_exactly_the_irregular_is_refused() -> None:
    refused = []
    for pattern in [*WRITTEN, *RANDOM, *REFUSED]:
        try:
            regex(pattern)
        except RegexNotRegular:
            refused.append(pattern)
    assert refused == list(REFUSED)


@pytest.mark.parametrize("pattern", REFUSED)
def test_refusals_say_what_and_where(pattern: str) -> None:
    with pytest.raises(RegexNotRegular) as refusal:
        regex(pattern)
    assert str(refusal.value) == f"pattern has {REFUSED[pattern]}, which is refused"
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(b", "not valid at position 1"),
        ("a)", "not valid at position 1"),
        ("*a", "not valid at position 0: nothing to repeat"),
        ("[b-a]", "not valid at position 1: bad character range"),
        ("a{99999999999}", "repetition number is too large"),
        ("(" * 5000 + ")" * 5000, "nested so deeply"),
        ("a{30000}", "at most 20000 positions"),
        ("(a{300}){300}", "at most 20000 positions"),
        ("[ab]*a[ab]{20}", "at most limit = 50000 deterministic states"),
        (r"[\0-\U0010ffff]", "alphabet must be given where a range spans"),
    ],
)
def test_what_cannot_be_built_is_a_value_error(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        regex(pattern)
    assert not isinstance(refusal.value, RegexNotRegular)


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="pattern must be a str; got bytes"):
        regex(b"a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="alphabet must hold single characters; got 'bc' at position 1"):
        regex("a", ["a", "bc"])
    with pytest.raises(ValueError, match="alphabet must hold distinct letters"):
        regex("a", "aa")


@pytest.mark.parametrize(
    ("pattern", "alphabet"),
    [
        ("", ""),
        ("cab", "abc"),
        ("[a-d]", "abcd"),
        ("a.", "".join(sorted(string.printable))),
        ("[^ä]", "".join(sorted(string.printable)) + "ä"),
        (r"\d", "0123456789"),
        ("(?i)ab", "ABab"),
        ("(?i:1)b", "1Bb"),
    ],
)
def test_default_alphabet(pattern: str, alphabet: str) -> None:
    assert "".join(map(str, regex(pattern).alphabet)) == alphabet


def test_a_dot_without_an_alphabet_reads_printable_characters() -> None:
    dfa = regex("a.*")
    assert dfa("a")
    assert dfa("abc, d!")
    assert not dfa("ba")
    assert not dfa("a\n")
    assert dfa & regex(".*b") == regex("a.*b")  # the letters are the same
    assert regex("[^a]") <= regex(".|\n")


def test_the_limit_of_states_is_the_callers() -> None:
    pattern = "(a|b)*a(a|b){9}"
    assert regex(pattern, limit=2048).states == 1024
    with pytest.raises(ValueError, match="at most limit = 1000 deterministic states"):
        regex(pattern, limit=1000)
    with pytest.raises(ValueError, match="limit must be at least 1; got 0"):
        regex("a", limit=0)


def test_given_alphabet_keeps_its_order_and_bounds_the_words() -> None:
    dfa = regex("[^b]|q", "cba")
    assert dfa.alphabet == ("c", "b", "a")
    assert list(dfa.words(2)) == [("c",), ("a",)]


def test_result_is_minimal() -> None:
    for pattern in ("(a|b)*abb", "(a|aa)*", "a{2}|a{2}b", "^a$"):
        dfa = regex(pattern)
        assert dfa.states == minimised(dfa).states
    assert regex("(a|b)*abb") == regex("(b|a)*?abb")
    assert regex("a{0,900}").states == 902
