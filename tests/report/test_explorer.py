"""The explorer: its modules compute what the library computes, and its page holds strangers' names safely.

The modules run in node where it is installed; tests/report/test_explorer_in_a_browser.py opens the page.
"""

from __future__ import annotations

import base64
import json
import math
import random
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.report import explored_models as made
from transductor.automata import IGNORED, MooreMachine, read, regex
from transductor.automata.decomposition.monoid import is_aperiodic, syntactic_monoid
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.extraction import extract
from transductor.portraits import explored_model, read_explored, write_explored
from transductor.portraits.explored import Numbers
from transductor.portraits.measurement import compared_words
from transductor.report.explorer import example_models, explorer_page, write_explorer
from transductor.report.explorer.page import bundled, json_in_html
from transductor.tasks import task_named

FOLDER = Path(explorer_page.__code__.co_filename).parent
NAMES = ("drifting", "noisy", "wordy", "complete", "hostile")
ERROR = 1e-3  # in radians, at every turn of the clock
REGEXES = [
    ("(aa|b)*", ""), ("a*", ""), ("(a|b)*abb", ""), ("(ab)*", ""), ("a{2,4}b?", ""), ("(a|b){3}", ""), ("[a-c]+x", ""),
    (".*a.", "ab"), ("[^a]*", "abc"), ("(?:a|(b))+?", ""), ("a|", ""), (r"\d+", "019"), (r"\.\*", ""), ("(((a)))", ""),
    ("((a*)*)*b", ""), ("(aaaaa)*", ""), ("(?P<n>ab)+", ""), ("a{,2}", ""), ("x[]a]y", ""), ("[a\\-c]", ""),
    ("a{0}b", ""),
]  # fmt: skip
REFUSED = {
    "(a": "not closed", "a)": "not opened", "*a": "nothing to repeat", "a**": "repeat of a repeat", "[a": "not closed",
    "(?=a)b": "look-around", "a.b": "needs the letters", "[b-a]": "backwards", r"(a)\1": "back-reference",
    "a{3,2}": "larger", "(a{99}){99}": "more than 5000", "^a$": "anchors", "a\\": "backslash at the end",
    r"\bq": "refused",
    "(" * 300 + ")" * 300: "nested too deeply", "(a|b)*a" + "(a|b)" * 15: "more than 2000",
}  # fmt: skip
ATT = ["0 1 a a\n1 0 b b\n0\n", "3\t4\t1\n4\t3\t2\n4 3 0\n3\n", "0 1 a a 0.5\n1 1 a a 0\n1 2\n"]
ATT_REFUSED = {
    "0 1 a b 1\n": "only acceptors", "0 x a\n": "line 1: a state", "0 1 a\n1 2 a a 0\n": "some arcs", "\n\n": "no line",
    "0 1 a a\n1 zwei\n": "line 2: a weight", "0 1 2 3 4 5\n": "at most 5 fields", "0 1 1 1\n": "may be a second label",
}  # fmt: skip

KEPT_JFLAP = Path(__file__).parents[1] / "kept" / "0.1.0" / "automata" / "boolean.jff"
FA = "<structure><type>fa</type><automaton>{}</automaton></structure>"
JFLAP_REFUSED = {
    "": "one root is needed; there are 0", "<a><b></a>": "</a> closes nothing", "<a": "is no tag",
    "<a/><b/>": "one root", "\n<!DOCTYPE a><a/>": "line 2: document types", "<x/>": "must be <structure>",
    "<structure><type>pda</type></structure>": 'got "pda"',
    "\n<structure>\n&x;</structure>": "line 2: not XML: the entity &x;", "<a>" * 60: "nested too deeply",
    FA.format("<state id='0'/>"): "one state must be initial; 0 are",
    FA.format("<state id='0'/><state id='00'/>"): "state 00 is there twice",
    FA.format("<state id='0'><initial/></state><transition><from>0</from><to>1</to></transition>"): 'is to "1"',
}  # fmt: skip


def random_words(letters, count=100, seed=0):
    generator = random.Random(seed)
    return [[generator.randrange(letters) for _ in range(generator.randint(1, 60))] for _ in range(count)]


def questions():
    asked = []
    for name in NAMES:
        plain = made.explored(name)
        count = len(plain.letters)
        long = random.Random(1).choices(range(count), k=10_000)
        drifts = name == "drifting"
        asked.append(
            {
                "plain": asdict(plain),
                "words": random_words(count),
                "long": long,
                "periods": [[1]] if drifts else [],
                "errors": [[1e-2, [1]], [0.0, [0, 1]]] if drifts else [[1e-3, [0]]] if name == "noisy" else [],
                "search": name in ("drifting", "noisy", "complete"),
            }
        )
    return {
        "models": asked,
        "regexes": [*((pattern, list(letters)) for pattern, letters in REGEXES), *((each, []) for each in REFUSED)],
        "att": [*ATT, *ATT_REFUSED],
        "jflap": [KEPT_JFLAP.read_text(), *JFLAP_REFUSED],
    }


@pytest.fixture(scope="module")
def answers():
    """What the modules of the page answer, from one process of node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the page's modules are not run here")
    script = Path(__file__).with_name("explorer_in_node.mjs")
    done = subprocess.run(
        [node, script, FOLDER], input=json.dumps(questions()), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def of(answers, name):
    return answers["models"][NAMES.index(name)]


def tokens(word, begin=None, offset=0):
    return torch.tensor([([] if begin is None else [begin]) + [letter + offset for letter in word]])


@pytest.mark.parametrize("name", ["drifting", "noisy", "wordy", "complete"])
@torch.no_grad()
def test_states_and_labels_are_those_of_the_model(name, answers):
    model = getattr(made, f"{name}_model")()
    begin, offset = (0, 3) if name == "wordy" else (None, 0)
    answer = of(answers, name)
    for word, each in zip(random_words(len(made.explored(name).letters)), answer["states"], strict=True):
        states = model.rational_head(tokens(word, begin, offset))[0, -1]
        expected = states[: model.rational_head.state_dim]
        size = 1e-5 * max(1.0, float(expected.abs().max()))  # float32 rounds in proportion to the largest number
        assert torch.allclose(torch.tensor(each["state"], dtype=expected.dtype), expected, rtol=0, atol=size)
        if answer["reads"] == "labels":
            logits = model(tokens(word, begin, offset))[0, -1]
            assert torch.allclose(torch.tensor(each["logits"], dtype=logits.dtype), logits, rtol=1e-4, atol=10 * size)
            assert each["says"] == int(logits.argmax())


def test_hardened_labels_are_the_machines_on_ten_thousand_letters(answers):
    for name in ("drifting", "noisy"):
        plain = made.explored(name)
        long = random.Random(1).choices(range(len(plain.letters)), k=10_000)
        machine = extract(getattr(made, f"{name}_model")()).machine
        assert of(answers, name)["hardened"] == machine.labels(torch.tensor([long]))[0].tolist()


def test_a_clock_fails_when_its_error_adds_up_to_half_an_hour(answers):
    """The angle error is known, so the length at which the label turns wrong is known too."""
    (run,) = of(answers, "drifting")["runs"]
    assert abs(run["firstWrong"] - math.pi / 5 / ERROR) <= 2
    # Distances are chords: half the chord of an hour is passed a little before half the hour is.
    beyond = 2 * math.asin(math.sin(math.pi / 5) / 2) / ERROR
    assert abs(run["firstBeyond"] - beyond) <= 0.02 * beyond
    assert run["firstTwinWrong"] == 0
    assert run["twin"] == 777 % 5
    assert 0.7 < run["mistakes"] / 100_000 < 0.9  # the label comes round: right for a fifth of the time


def test_a_turned_twin_lasts_for_half_a_place(answers):
    """With relative error ε a cycle has moved half a place too far after 1/(2ε) letters."""
    turned, exact = of(answers, "drifting")["horizons"]
    assert turned in (50, 51)
    assert exact == 0
    assert of(answers, "drifting")["turns"]
    assert of(answers, "noisy")["turns"]
    assert not of(answers, "wordy")["turns"]


@torch.no_grad()
def test_a_word_that_breaks_it_is_wrong_in_python_too(answers):
    for name in ("drifting", "noisy"):
        broken, model, plain = of(answers, name)["broken"], getattr(made, f"{name}_model")(), made.explored(name)
        assert broken["word"], broken
        said = int(model(tokens(broken["word"]))[0, -1].argmax())
        machine = made.counting() if name == "drifting" else task_named("group:S3:all").automaton()
        assert said != int(machine.labels(tokens(broken["word"]))[0, -1])
        assert broken["triedTo"] >= 3
        for word in product(range(len(plain.letters)), repeat=3):
            right = machine.labels(tokens(word))
            assert model(tokens(word)).argmax(-1).equal(right)
    assert abs(len(of(answers, "drifting")["broken"]["word"]) - math.pi / 5 / ERROR) <= 2
    unbroken = of(answers, "complete")
    assert unbroken["reads"] == "states"
    assert unbroken["broken"]["word"] is None
    assert unbroken["broken"]["triedTo"] is None  # infinite: nothing else is ever reached


def test_what_no_machine_is_near_says_nothing_of_right_and_wrong(answers):
    wordy = made.explored("wordy")
    assert wordy.twin is None
    assert "no finite machine" in wordy.refusal
    assert not of(answers, "wordy")["judges"]
    assert wordy.letters == ["open", "close", "wait"]


@pytest.mark.parametrize("number", range(len(REGEXES)), ids=[pattern for pattern, _ in REGEXES])
def test_expressions_are_pythons(number, answers):
    pattern, letters = REGEXES[number]
    answer, expected = answers["regexes"][number], regex(pattern, letters or None)
    assert answer["letters"] == list(expected.alphabet)
    assert len(answer["transitions"]) == expected.states
    for length in range(5):
        for word in product(range(len(answer["letters"])), repeat=length):
            state = answer["start"]
            for letter in word:
                state = answer["transitions"][state][letter]
            spelled = "".join(answer["letters"][letter] for letter in word)
            assert answer["accepting"][state] == (re.fullmatch(pattern, spelled) is not None), spelled
    monoid = syntactic_monoid(expected)
    assert answer["algebra"]["size"] == len(monoid)
    table = monoid.table
    assert answer["algebra"]["commutative"] == bool((table == table.T).all())
    assert answer["algebra"]["aperiodic"] == bool(is_aperiodic(expected))
    assert answer["algebra"]["group"] == (len(monoid.idempotents) == 1)


def test_what_is_no_expression_is_refused_with_its_place(answers):
    for answer, reason in zip(answers["regexes"][len(REGEXES) :], REFUSED.values(), strict=True):
        assert reason in answer["error"], answer


def test_groups_have_their_names(answers):
    names = {
        pattern: answer.get("algebra", {}) for (pattern, _), answer in zip(REGEXES, answers["regexes"], strict=False)
    }
    assert names["(aaaaa)*"]["name"] == "cyclic, Z5"
    assert names["a*"]["name"] == "trivial"


def test_att_text_is_read_as_the_library_reads_it(answers, tmp_path):
    for number, text in enumerate(ATT):
        (tmp_path / "a.att").write_text(text)
        weighted = read(tmp_path / "a.att", weights="min_plus")
        answer = answers["att"][number]
        assert answer["letters"] == [str(letter) for letter in weighted.alphabet]
        for length in range(5):
            for word in product(range(len(answer["letters"])), repeat=length):
                state = answer["start"]
                for letter in word:
                    state = answer["transitions"][state][letter]
                value = weighted([weighted.alphabet[letter] for letter in word])
                assert answer["accepting"][state] == math.isfinite(value)
    assert answers["att"][2]["notes"]
    for answer, reason in zip(answers["att"][len(ATT) :], ATT_REFUSED.values(), strict=True):
        assert reason in answer["error"], answer


def test_jflaps_files_are_read_as_the_library_reads_them(answers):
    answer, expected = answers["jflap"][0], read(KEPT_JFLAP)
    assert answer["letters"] == list(expected.alphabet)
    for length in range(6):
        for word in product(range(len(answer["letters"])), repeat=length):
            state = answer["start"]
            for letter in word:
                state = answer["transitions"][state][letter]
            assert answer["accepting"][state] == bool(expected([expected.alphabet[letter] for letter in word]))
    for answer, reason in zip(answers["jflap"][1:], JFLAP_REFUSED.values(), strict=True):
        assert reason in answer.get("error", ""), (reason, answer)


class Elements(HTMLParser):
    """The elements of a page, and what stands in its scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.inside, self.policy = [], [], False, ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)


def parsed(page):
    elements = Elements()
    elements.feed(page)
    return elements


def test_hostile_names_stay_text():
    title = "</title><script>window.broken=1</script>{{script}}"
    page = explorer_page([made.explored("hostile"), made.explored("drifting")], title)
    elements, plain = parsed(page), parsed(explorer_page([made.explored("drifting")], "x"))
    assert [tag for tag, _ in elements.tags] == [tag for tag, _ in plain.tags]
    data, script = elements.scripts[0], elements.scripts[-1]
    assert script == plain.scripts[-1]
    first = json.loads(data)["models"][0]
    assert first["letters"] == list(made.HOSTILE)
    assert first["name"] == made.HOSTILE[0]
    assert "\u2028" not in data


def test_the_page_may_load_and_send_nothing():
    page = explorer_page([made.explored("drifting")])
    elements = parsed(page)
    assert elements.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in elements.policy
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", page)
    for _, attributes in elements.tags:
        assert not {"src", "href", "srcset", "data", "action"} & {
            name for name, value in attributes.items() if not (name == "href" and value.startswith("#"))
        }
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    for script in FOLDER.glob("*.js"):
        text = script.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|eval|innerHTML|outerHTML)\b|https?:", text), (
            script.name
        )


def test_every_module_is_in_the_page_and_can_be_read_in_one_sitting():
    script = bundled("page")
    for module in FOLDER.glob("*.js"):
        assert f"const module_{module.stem} = " in script, module.name
        assert len(module.read_text().splitlines()) <= 400, module.name
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)


def test_a_page_is_refused_if_it_is_empty_ambiguous_or_too_large(tmp_path):
    model = made.explored("drifting")
    with pytest.raises(ValueError, match="at least one model"):
        explorer_page([])
    with pytest.raises(ValueError, match="different names"):
        explorer_page([model, model])
    with pytest.raises(ValueError, match=r"2\.\d MB.*smaller models; drifting takes"):
        explorer_page([replace(model, notes=["x" * 2_100_000])])
    assert write_explorer([model], tmp_path / "deep" / "page.html").stat().st_size < 200_000


def test_models_are_written_and_read_again(tmp_path):
    models = [made.explored(name) for name in NAMES]
    assert read_explored(write_explored(models, tmp_path / "models.json")) == models
    (tmp_path / "bad.json").write_text('{"models": [{"name": 5}]}')
    with pytest.raises(ValueError, match=r"bad\.json does not hold models for a page: models\[0\]\.name"):
        read_explored(tmp_path / "bad.json")
    values = torch.randn(3, 2, dtype=torch.float64).T.numpy()  # not in the order in which it is written
    numbers = Numbers.of(values)
    assert numbers.shape == [2, 3]
    assert (np.frombuffer(base64.b64decode(numbers.data), dtype="<f8").reshape(2, 3) == values).all()


def test_json_in_a_page_is_the_same_json():
    value = {"<!--": "]]></script>&amp;\u2028\u2029", "é": ["\ud800", 1.5, None]}
    text = json_in_html(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)
    text.encode()


def test_models_that_a_page_cannot_run_are_refused():
    with pytest.raises(TypeError, match="model must be a RationalReadout"):
        explored_model(torch.nn.Linear(1, 1), "x")
    with pytest.raises(ValueError, match="against must have one letter for each of the 2; got 3"):
        explored_model(made.drifting_model(), "x", against=task_named("cycle").automaton())
    with pytest.raises(ValueError, match="alphabet must name the model's 2 tokens; it names 6"):
        explored_model(made.drifting_model(), "x", alphabet=made.WORDS)


def test_no_example_contradicts_its_certificate():
    """Twin and target differ, if at all, on words that do not occur; what is said of them is what the machines say."""
    for model in example_models():
        if model.twin is None:
            continue
        twin, target = (
            MooreMachine(np.array(each.transitions), np.array([IGNORED if one is None else one for one in each.labels]))
            for each in (model.twin, model.target)
        )
        letters = len(model.letters)
        anything = torch.ones(letters + 1, letters, dtype=torch.bool)
        follows = anything if model.follows is None else torch.tensor(model.follows).bool()
        contexts = SimpleNamespace(follows=follows)
        assert (model.twin.start, model.target.start) == (0, 0)
        word, _ = compared_words(twin, target, TokenAlphabet.all_tokens(letters), contexts)
        assert model.separating_word == word, model.name
        assert [proof.verdict for proof in model.certificates] == ["proved"]
        assert word is None


def test_the_examples_are_small_and_complete():
    models = example_models()
    assert len(explorer_page(models)) < 600_000
    assert len(models) >= 4
    assert any(model.twin is None for model in models)
    assert sum(bool(model.certificates) for model in models) >= 2
