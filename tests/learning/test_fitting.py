from __future__ import annotations

import gzip
import json
import random

import pytest

from tests.learning.data_files import example_module, parity_rows, source, written
from transductor.automata import MooreMachine, WeightedAutomaton, labels_of_series, read
from transductor.certification import check_certificate
from transductor.learning import fit
from transductor.model import load
from transductor.report.fit import fit_report
from transductor.training import FileData


def truth(machine, letters, classes):
    """A machine that is written in words, over these letters and classes."""
    return MooreMachine.explored(
        machine.start,
        len(letters),
        lambda state, letter: machine.after(state, letters[letter]),
        lambda state: classes.index(machine.labels[state]),
    )


def test_an_editor_from_file_to_certificate(tmp_path):
    example_module().make(tmp_path, ["editor"], count=500)
    data = FileData.guessed(str(tmp_path / "editor.jsonl"))
    assert data.goal == "recognition"
    result = fit(data, tmp_path / "run", budget=40, recipes=[])
    names = result.source.vocabulary
    assert result.proved, result.record.measurements["answer"]
    assert result.machine.states == 4
    assert result.machine.separating_word(truth(example_module().EDITOR, names.letters, list(names.classes))) is None
    assert check_certificate(tmp_path / "run" / "certificate.json.gz", load(tmp_path / "run" / "model")).holds
    kept = labels_of_series(read(tmp_path / "run" / "machine.json"))
    assert kept.separating_word(result.machine) is None
    again = fit(data, tmp_path / "run", budget=40, recipes=[])
    assert again.machine.separating_word(result.machine) is None


def test_labels_of_tokens_from_file_to_certificate(tmp_path):
    example_module().make(tmp_path, ["vending"], count=150)
    data = FileData.guessed(str(tmp_path / "vending.jsonl"))
    assert data.goal == "tagging"
    result = fit(data, tmp_path / "run", budget=20, recipes=[])
    names = result.source.vocabulary
    assert result.proved, result.record.measurements["answer"]
    assert result.machine.separating_word(truth(example_module().VENDING, names.letters, list(names.classes))) is None


def test_a_table_as_a_spreadsheet_writes_it(tmp_path):
    """A byte order mark, Windows line ends, quotes, cells of several lines, letters of the world, one doubt."""
    named = {"a": 'drücken🚀,"', "b": "待つ", "odd": " an", "even": "aus "}
    lines = ["\ufefftext,label"]
    for place, row in enumerate(parity_rows(300)):
        text = ("\n" if place % 2 else " ").join(named[token].replace('"', '""') for token in row["tokens"])
        lines.append(f'"{text}",{named[row["label"]]}')
    lines.append(f'"{named["a"].replace(chr(34), chr(34) * 2)}",aus')  # one that is wrong
    (tmp_path / "data.csv").write_bytes("\r\n".join(lines).encode())
    result = fit(FileData.guessed(str(tmp_path / "data.csv")), tmp_path / "run", budget=20, recipes=[])
    assert result.proved, result.record.measurements["answer"]
    assert result.machine.states == 2
    assert result.source.vocabulary.classes == ("an", "aus")
    assert set(result.source.vocabulary.letters) == {'drücken🚀,"', "待つ"}


def test_noise_alone_gives_no_machine_and_keeps_the_best_model(tmp_path):
    generator = random.Random(0)
    rows = [{**row, "label": generator.choice(["yes", "no"])} for row in parity_rows(200)]
    result = fit(source(tmp_path, rows), tmp_path / "run", budget=1, recipes=["dense", "lstm"])
    assert not result.proved
    assert result.machine is None
    facts = result.record.measurements
    assert facts["answer"]["sentence"].startswith("No machine is claimed")
    assert facts["answer"]["advice"]
    assert facts["chosen"]["name"] == "dense"
    assert not (tmp_path / "run" / "machine.json").exists()
    assert load(tmp_path / "run" / "model").output_size == 2


def test_a_folder_with_another_fit_or_other_files_is_refused(tmp_path):
    data = source(tmp_path, parity_rows(60))
    fit(data, tmp_path / "run", budget=5, recipes=[])
    with pytest.raises(ValueError, match="holds another fit: its budget and seed differ"):
        fit(data, tmp_path / "run", budget=6, seed=1, recipes=[])
    other = FileData("recognition", str(written(tmp_path, parity_rows(61), "other.jsonl")))
    with pytest.raises(ValueError, match="holds another fit: its data differ"):
        fit(other, tmp_path / "run", budget=5, recipes=[])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match=r"must be empty or hold a fit; it holds thesis\.tex"):
        fit(data, tmp_path / "full", budget=5, recipes=[])
    (tmp_path / "a file").write_text("")
    with pytest.raises(OSError, match="a file"):
        fit(data, tmp_path / "a file", budget=5, recipes=[])


@pytest.mark.parametrize("budget", [0, -1, float("inf")])
def test_a_budget_is_a_positive_time(tmp_path, budget):
    with pytest.raises(ValueError, match="budget must be a positive number"):
        fit(source(tmp_path, parity_rows(60)), tmp_path / "run", budget=budget)


def test_fifty_letters_and_conflicting_labels(tmp_path):
    generator = random.Random(1)
    words = [f"w{number}" for number in range(50)]
    rows = []
    for _ in range(2000):
        tokens = generator.choices(words, k=generator.randint(1, 6))
        rows.append({"tokens": tokens, "label": "yes" if tokens[-1] in words[:25] else "no"})
    rows += [{"tokens": ["w0"], "label": "yes"}, {"tokens": ["w0"], "label": "no"}]
    # A quarter of the budget is the machine's; on a fresh checkout its loops are compiled in that time.
    result = fit(source(tmp_path, rows), tmp_path / "run", budget=90, recipes=[])
    facts = result.record.measurements
    assert facts["data"]["conflicts"] >= 1
    assert [given for words, given, _ in facts["contradicted"] if words == "w0"] == ["no"]
    assert len(facts["data"]["letters"]) == 50
    with gzip.open(tmp_path / "run" / "certificate.json.gz") as file:
        assert json.load(file)["outcome"] == "proved"
    assert result.machine.states == 2


def test_numbers_as_labels_become_an_exact_weighted_automaton(tmp_path):
    rows = [{**row, "label": row["tokens"].count("a") / 2 + 1} for row in parity_rows(150)]
    result = fit(source(tmp_path, rows, goal="regression"), tmp_path / "run", budget=4, recipes=[])
    assert isinstance(result.machine, WeightedAutomaton)
    assert result.machine.dim == 2
    assert result.machine(["a"] * 100 + ["b"]) == 51
    assert result.certificate.about == "series"
    assert result.certificate.holds
    assert "exactly the number of every sequence" in result.record.measurements["answer"]["sentence"]
    assert read(tmp_path / "run" / "machine.json") == result.machine
    tokens, _ = result.source.encoded(["b", "a", "a"], None)
    assert float(load(tmp_path / "run" / "model")(tokens[None])[0, -1, 0]) == pytest.approx(2)


def test_numbers_without_an_automaton_keep_the_best_model(tmp_path):
    rows = [{**row, "label": max(map(len, "".join(row["tokens"]).split("b"))) + 0.5} for row in parity_rows(80)]
    result = fit(source(tmp_path, rows, goal="regression"), tmp_path / "run", budget=1, recipes=["dense"])
    assert result.machine is None
    assert result.model is not None
    facts = result.record.measurements
    assert facts["answer"]["sentence"].startswith("No weighted automaton is claimed")
    assert all(each["error"] > 0 for each in facts["recipes"][0]["bands"])


def test_steps_that_no_sequence_takes_are_said_and_shown_to_be_guesses(tmp_path):
    rows = [{**row, "tokens": ["begin", *row["tokens"]]} for row in parity_rows(200)]
    result = fit(source(tmp_path, rows), tmp_path / "run", budget=20, recipes=[])
    facts = result.record.measurements
    steps, taken = result.machine.transitions.size, len(facts["machine"]["walked"])
    assert (steps, taken) == (6, 5)  # no sequence begins a second time, after an odd number of a's
    (sentence,) = (each for each in facts["answer"]["sureness"] if "is a guess" in each)
    assert sentence.startswith(f"The sequences take {taken} of the {steps} steps")
    fit_report(tmp_path / "run")
    report = (tmp_path / "run" / "report.md").read_text()
    assert "(in brackets: guessed, as no sequence takes that step)" in report
    rows = [line for line in report.splitlines() if line.startswith("| ") and line.split()[1].isdigit()]
    assert sum(row.count("(") - row.count("(start)") for row in rows) == steps - taken
    assert "or no sequence takes that step." in (tmp_path / "run" / "machine.svg").read_text()


def test_a_machine_whose_every_step_is_taken_is_no_guess(tmp_path):
    result = fit(source(tmp_path, parity_rows(200)), tmp_path / "run", budget=20, recipes=[])
    assert not any("is a guess" in each for each in result.record.measurements["answer"]["sureness"])
    fit_report(tmp_path / "run")
    assert "guessed" not in (tmp_path / "run" / "report.md").read_text()


def test_words_that_the_font_of_figures_lacks(tmp_path):
    rows = [
        {**row, "tokens": ["\N{DOOR}" if each == "a" else "日本" for each in row["tokens"]]} for row in parity_rows(200)
    ]
    fit(source(tmp_path, rows), tmp_path / "run", budget=20, recipes=[])
    fit_report(tmp_path / "run")
    assert "\N{DOOR}" in (tmp_path / "run" / "report.html").read_text()


def test_the_advice_says_what_is_wrong_with_the_labels(tmp_path):
    (tmp_path / "both").mkdir()
    rows = parity_rows(200)
    other = {"odd": "even", "even": "odd"}
    both = fit(
        source(tmp_path / "both", [*rows, *({**row, "label": other[row["label"]]} for row in rows)]),
        tmp_path / "both" / "run",
        budget=5,
        recipes=[],
    )
    assert both.machine is None
    assert any("Equal sequences have different labels" in each for each in both.record.measurements["answer"]["advice"])
    rare = [{**row, "label": "rare" if place % 40 == 0 else "usual"} for place, row in enumerate(rows)]
    few = fit(source(tmp_path, rare), tmp_path / "run", budget=5, recipes=[])
    assert few.machine is None
    advice = few.record.measurements["answer"]["advice"]
    assert any("of the labels are rare: sequences of that class" in each for each in advice)
    assert not any("Equal sequences" in each for each in advice) or few.record.measurements["data"]["conflicts"]


def test_equally_long_sequences_are_not_said_to_have_been_kept_back(tmp_path):
    draw, rows = random.Random(0), []
    for _ in range(200):
        tokens = draw.choices("ab", k=8)
        rows.append({"tokens": tokens, "label": "odd" if tokens.count("a") % 2 else "even"})
    answer = fit(source(tmp_path, rows), tmp_path / "run", budget=20, recipes=[]).record.measurements["answer"]
    assert answer["sentence"].startswith("A machine with 2 states gives 200 of 200 labels; the model is proved")
    assert "All sequences played a part in finding it: none were left to judge it by." in answer["sureness"]
    assert not any("no part in finding it" in each for each in answer["sureness"])


def test_a_search_that_began_with_a_small_model_claims_nothing_of_noise(tmp_path):
    generator = random.Random(1)
    rows = [{**row, "label": generator.choice(["yes", "no"])} for row in parity_rows(200)]
    facts = fit(source(tmp_path, rows), tmp_path / "run", budget=1, recipes=["small"]).record.measurements
    assert facts["machine"] is None
    assert [(each["way"], each["recipe"]) for each in facts["candidates"]][-1] == ("begun", "small")
    assert all(each["refusals"] for each in facts["candidates"])
