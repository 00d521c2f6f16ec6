"""A browser opens the explorer: what it shows is what Python computes, every control does what it says.

Skipped where Chromium, its driver or selenium is missing: ``apt-get install chromium chromium-driver`` and
``pip install transductor[browser]``.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import time

import pytest
import torch

from tests.report import explored_models as made
from transductor.extraction import extract
from transductor.report.explorer import write_explorer

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (the extra `browser`)")
BROWSER, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason="Chromium or chromedriver is not installed")

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
NAMES = ("drifting", "noisy", "wordy", "complete", "hostile")
PATIENCE = 60.0  # seconds, on a machine that has other work


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One browser for all tests, with the page open."""
    folder = tmp_path_factory.mktemp("explorer")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS.split(), f"--user-data-dir={folder / 'empty'}", "--window-size=1100,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(PATIENCE)
    page = write_explorer([made.explored(name) for name in NAMES], folder / "page.html", made.HOSTILE[0])
    driver.get(page.as_uri())
    yield driver
    driver.quit()


def text(browser, name):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def waited(browser, name, pattern):
    """Return what an element says as soon as it matches."""
    end = time.monotonic() + PATIENCE
    while (match := re.search(pattern, text(browser, name))) is None:
        assert time.monotonic() < end, f"#{name} says {text(browser, name)!r}, and not {pattern}"
        time.sleep(0.05)
    return match


def put(browser, name, value, event="input"):
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(arguments[2], {bubbles: true}));",
        name, value, event,
    )  # fmt: skip


def choose(browser, name):
    put(browser, "model", str(NAMES.index(name)), "change")


def shown(browser, words):
    """Return the numbers of the state that the page shows after each word."""
    return browser.execute_script(
        """
        const field = document.getElementById("word"), shown = [];
        for (const word of arguments[0]) {
          field.value = word;
          field.dispatchEvent(new Event("input"));
          shown.push(document.getElementById("numbers").textContent);
        }
        return shown;
        """,
        words,
    )


@torch.no_grad()
def test_states_shown_are_pythons_on_a_hundred_words(browser):
    generator = random.Random(5)
    for name, letters, begin, glue in (("drifting", "01", [], ""), ("wordy", ["open", "close", "wait"], [0], " ")):
        choose(browser, name)
        words = [[generator.randrange(len(letters)) for _ in range(generator.randint(1, 40))] for _ in range(50)]
        model = getattr(made, f"{name}_model")()
        states = shown(browser, [glue.join(letters[letter] for letter in word) for word in words])
        for word, numbers in zip(words, states, strict=True):
            tokens = torch.tensor([begin + [letter + 3 * len(begin) for letter in word]])
            expected = model.rational_head(tokens)[0, -1, : model.rational_head.state_dim]
            actual = torch.tensor([float(number) for number in numbers.split()])
            assert torch.allclose(actual, expected, rtol=0, atol=1e-5)


def test_hardened_labels_are_equal_on_ten_thousand_letters(browser):
    choose(browser, "noisy")
    word = random.Random(1).choices(range(6), k=10_000)
    browser.execute_script("document.getElementById('all-labels').open = true")
    put(browser, "word", "".join(map(str, word)))
    waited(browser, "said", "After 10\u202f000 letters")
    lines = browser.execute_script("return document.getElementById('labels').value").split("\n")
    machine = extract(made.noisy_model()).machine
    assert [line.split("\t")[0] for line in lines] == [str(letter) for letter in word]
    assert [int(line.split("\t")[2]) for line in lines] == machine.labels(torch.tensor([word]))[0].tolist()
    browser.execute_script("document.getElementById('all-labels').open = false")


def test_typing_moves_the_state_and_lights_the_machine(browser):
    choose(browser, "drifting")
    lit = "return [...document.querySelectorAll('#machine .node')].findIndex((e) => e.classList.contains('current'))"
    before = browser.execute_script(lit)
    button = browser.find_element("css selector", "#letters button:nth-child(2)")
    places = [browser.execute_script("return document.querySelector('#plane .learned').getAttribute('cx')")]
    for count in range(1, 6):
        button.send_keys("\n")  # by keyboard
        waited(
            browser, "said", f"After {count} letter.*learned head says {count % 5}, the hardened one {count % 5}, right"
        )
        places.append(browser.execute_script("return document.querySelector('#plane .learned').getAttribute('cx')"))
    assert browser.execute_script(lit) == before
    assert len(set(places)) >= 5
    assert "11111" in text(browser, "said")
    browser.find_element("css selector", "#letters button:last-child").click()
    waited(browser, "said", "After 4 letters")
    put(browser, "word", "102")
    assert "“2” is no letter; there are 0, 1." in text(browser, "word-error")


def test_the_learned_head_fails_with_length_and_the_hardened_one_stays(browser):
    choose(browser, "drifting")
    put(browser, "kind", "power 1", "change")
    waited(browser, "length-said", "wrong at .* of 100\u202f000")
    put(browser, "length", "500")
    assert browser.execute_script("return document.getElementById('length-number').value") == "316"
    assert re.search("head says 1, the hardened one 1, right is 1.*half-way is", text(browser, "length-said"))
    put(browser, "length-number", "1000")
    said = text(browser, "length-said")
    assert "the hardened one 0, right is 0. The learned head is wrong. The learned state has drifted" in said
    assert "past half-way to another state" in said
    assert 620 <= int(re.search(r"First wrong after (\d+) letters", said)[1]) <= 635
    assert "The hardened one is exact" in said
    assert browser.execute_script("return document.querySelectorAll('#drift .wrong').length") > 10


def test_break_it_finds_a_word_and_shows_it(browser):
    choose(browser, "drifting")
    browser.find_element("id", "break").click()
    length = int(waited(browser, "break-said", r"Broken after (\d+) letters")[1])
    assert 620 <= length <= 635
    # Letter 0 changes nothing, so few words differ: all shorter ones could be tried.
    assert "the shortest of all wrong words" in text(browser, "break-said")
    assert "Checked again from the first letter." in text(browser, "break-said")
    browser.find_element("id", "break-show").click()
    waited(browser, "said", f"After {length} letters.*The learned head is wrong")


def test_an_error_in_the_angles_shortens_the_horizon(browser):
    choose(browser, "drifting")
    put(browser, "kind", "power 1", "change")
    waited(browser, "error-said", "No error: right at all 100\u202f000 letters.")
    put(browser, "error", "49")
    assert abs(int(waited(browser, "error-said", r"Error 0\.01: first wrong after (\d+) letters")[1]) - 50) <= 1
    put(browser, "error", "37")
    assert abs(int(waited(browser, "error-said", r"Error 0\.001: first wrong after (\d+) letters")[1]) - 500) <= 1


def test_a_proof_opens_its_premises(browser):
    choose(browser, "drifting")
    assert "the hardened twinproved: after every word" in text(browser, "proofs")
    details = browser.find_element("css selector", "#proofs details.premises")
    details.find_element("css selector", "summary").click()
    premises = details.find_elements("css selector", "li")
    certificate = made.explored("drifting").certificates[0]
    assert [each.text for each in premises] == certificate.assumptions
    choose(browser, "noisy")
    assert "Nothing is proved here" in text(browser, "proofs")


def test_an_expression_becomes_a_machine(browser):
    put(browser, "regex", "(aa|b)*")
    browser.find_element("css selector", "#regex-form button").click()
    said = waited(browser, "own-said", "monoid of")[0] and text(browser, "own-said")
    assert "3 states over 2 letters. Its shortest word is the empty one." in said
    assert "a monoid of 7 elements, no group; not commutative; not aperiodic" in said
    put(browser, "own-word", "aab")
    assert text(browser, "own-word-said") == "After 3 letters: state 0, accepted."
    put(browser, "own-word", "aac")
    assert "“c” is none of its letters" in text(browser, "own-word-said")
    assert browser.execute_script("return document.querySelectorAll('#own-matrices table').length") == 2
    put(browser, "regex", "(ab")
    browser.find_element("css selector", "#regex-form button").click()
    assert text(browser, "own-error") == "position 3: a bracket ( that is not closed"
    assert text(browser, "own-said") == ""


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("even.att", "0 1 a a\n1 0 a a\n0\n", "2 states over 1 letters. .* a group of order 2 \\(cyclic, Z2\\)"),
        ("even.jff", "<structure><type>fa</type><automaton><state id='0'><initial/><final/></state><state id='7'/>"
         "<transition><from>0</from><to>7</to><read>a</read></transition><transition><from>7</from><to>0</to>"
         "<read>a</read></transition></automaton></structure>", "even.jff: 2 states over 1 letters"),
        ("pda.jff", "<structure><type>pda</type></structure>", "ERROR pda.jff: only finite automata.*got \"pda\""),
        ("two.jff", "<structure><type>fa</type><state id='0'><initial/></state><state id='1'><initial/></state>"
         "</structure>", "ERROR two.jff: one state must be initial; 2 are"),
        ("bad.jff", "<structure><type>fa</type><state></structure>", "ERROR bad.jff: line 1: not XML: </structure> cl"),
        ("old.jff", "<!DOCTYPE x [<!ENTITY a 'b'>]><structure/>", "ERROR old.jff: line 1: document types are refused"),
        ("<b>.att", "0 1 a b\n", "ERROR <b>.att: line 1: a transducer"),
    ],
)  # fmt: skip
def test_a_file_that_is_dropped_becomes_a_machine_or_a_refusal(browser, name, content, said):
    browser.execute_script(
        """
        const transfer = new DataTransfer();
        transfer.items.add(new File([arguments[1]], arguments[0]));
        document.getElementById("own-error").textContent = document.getElementById("own-said").textContent = "";
        const event = new DragEvent("drop", {dataTransfer: transfer, bubbles: true});
        document.getElementById("own-section").dispatchEvent(event);
        """,
        name, content,
    )  # fmt: skip
    error = said.startswith("ERROR ")
    waited(browser, "own-error" if error else "own-said", said.removeprefix("ERROR "))


def test_names_of_strangers_are_text_and_nothing_runs(browser):
    choose(browser, "hostile")
    put(browser, "word", " ".join(made.HOSTILE[:1]))
    browser.execute_script("document.querySelectorAll('#letters button')[2].click()")
    assert browser.execute_script("return window.broken") is None
    assert browser.find_element("css selector", "#letters button").text.startswith("</script><script>")
    assert browser.execute_script("return document.querySelectorAll('img, script').length") == 2
    assert browser.title == made.HOSTILE[0]


def test_a_complete_model_is_followed_by_its_states(browser):
    choose(browser, "complete")
    put(browser, "word", "110")
    waited(browser, "said", "learned head says state 0, the hardened one state 0")
    browser.find_element("id", "break").click()
    waited(browser, "break-said", "Not broken. No word is wrong: all")


def test_nothing_overflows_on_a_phone_in_dark_and_light(browser):
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        papers = set()
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            papers.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
            for name in NAMES:
                choose(browser, name)
                over = browser.execute_script(
                    """
                    const width = document.documentElement.clientWidth;
                    const inside = (e) => e.closest(".scroll, svg, .skip, select") !== null;
                    return [...document.querySelectorAll("body *")]
                      .filter((e) => !inside(e) && e.getBoundingClientRect().right > width + 0.5)
                      .map((e) => `${e.tagName}#${e.id}`)
                      .concat(document.documentElement.scrollWidth > width ? ["page"] : []);
                    """
                )
                assert over == [], f"{name}, {scheme}"
        assert len(papers) == 2
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_every_control_has_a_name_and_keyboard_reaches_it(browser):
    nameless = browser.execute_script(
        """
        return [...document.querySelectorAll("input, select, textarea, button, svg, [role=region]")]
          .filter((e) => !(e.labels?.length || e.getAttribute("aria-label") || e.textContent.trim()
                           || document.getElementById(e.getAttribute("aria-labelledby"))))
          .map((e) => e.id);
        """
    )
    assert nameless == []
    assert browser.execute_script("return document.querySelectorAll('[tabindex]:not([tabindex=\"0\"])').length") == 0
    live = browser.execute_script("return [...document.querySelectorAll('[aria-live=polite]')].map((e) => e.id)")
    assert {"said", "length-said", "break-said", "error-said", "own-said"} <= set(live)


def test_the_console_has_no_error(browser):
    """The last test: everything above was done on this page."""
    assert [json.dumps(entry) for entry in browser.get_log("browser")] == []
