"""The answer of a fit: the machine that is believed, the model that is proved to be it, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from transductor.automata import MachineFromLabels, TokenAlphabet, WeightedAutomaton
from transductor.certification import AgreementCertificate, certify
from transductor.learning.beginnings import begun
from transductor.learning.divided_data import DividedData
from transductor.learning.machines import (
    WAYS,
    Candidate,
    compiled,
    from_labels,
    from_model,
    right_labels,
    sizes,
    walked,
)
from transductor.learning.machines import machine_labels as labels_of_machine
from transductor.learning.prediction import labels_of
from transductor.learning.recipes import RECIPES, SMALL
from transductor.learning.running import OnProgress, read_model
from transductor.learning.selection import Choice, ranked
from transductor.model import SequenceModel

_MODELS_ASKED: Final = 3  # machines are looked for in so many models, from the best on
_RARE: Final = 0.1
_CONTRADICTORY: Final = 0.02
_GENERAL_ADVICE: Final = (
    "Give more sequences: above all short ones, which say most about single steps, and some long ones to judge by.",
    "If the labels need counting without bound or comparing distant parts, no finite machine exists: keep the model.",
)


@dataclass(frozen=True)
class Answer:
    """What a fit ends with.

    Attributes:
        candidate: The machine that is believed, if there is one.
        model: The model that is this machine, if it could be made; the best trained one otherwise.
        made_by: ``"compiled"`` or ``"hardened"`` for a model that is a machine, else ``"trained"``.
        certificate: What is proved about the model, if there is a machine.
        sentence: The answer in words.
        sureness: How sure it is, and on what.
        advice: What to do where there is no machine.
        candidates: All machines that were looked at.
        notes: Ways that led to no machine, and why.
        series: The weighted automaton that is believed, where labels are numbers.
    """

    candidate: Candidate | None
    model: SequenceModel[Any] | None
    made_by: str
    certificate: AgreementCertificate | None
    sentence: str
    sureness: tuple[str, ...]
    advice: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]
    series: WeightedAutomaton | None = None

    @property
    def proved(self) -> bool:
        """Whether the model is proved to be the machine, at every length."""
        return self.certificate is not None and _is_proof(self.certificate)


def answered(
    learned: MachineFromLabels,
    data: DividedData,
    choice: Choice,
    outcomes: Sequence[Mapping[str, Any]],
    folder: Path,
    on_progress: OnProgress,
    *,
    seed: int,
    seconds: float,
) -> Answer:
    """Find the machine, from the surest way on, and prove that a model is it.

    Args:
        learned: What the labels alone gave.
        data: The data.
        choice: The recipe that was chosen.
        outcomes: What was measured of all recipes.
        folder: The folder with one folder for each recipe.
        on_progress: Called with what is being done.
        seed: Seed of the small models that the search begins with where nothing else gives a machine.
        seconds: How long these may take.
    """
    assert data.source.vocabulary is not None
    alphabet = TokenAlphabet.of_names(data.source.vocabulary.tokens, empty_word=data.source.goal == "recognition")
    first, notes = from_labels(learned, data), []
    candidates = [first]
    # A machine that contradicts labels may be right about labels that are wrong, or be the wrong one: then a machine
    # that gives all of them, and takes fewer bits, is the better answer.
    errors = first.shorter.count - first.shorter.right
    if not first.believed or errors > data.shorter.unavoidable_errors():
        names = ranked(outcomes, data)[:_MODELS_ASKED]
        for place, name in enumerate(names):
            on_progress("questions", place, len(names), f"to {name}")
            result = from_model(name, read_model(folder / name), data, alphabet)
            if isinstance(result, str):
                notes.append(result)
                continue
            candidates.append(result)
            if result.believed:
                break
        on_progress("questions", len(names), len(names), "")
    small = next((each for each in outcomes if each["name"] == SMALL and each["failed"] is None), None)
    if small is not None and not any(each.believed for each in candidates):
        cost = small["seconds"] / max(1, small["steps"])
        candidate = begun(
            RECIPES[SMALL],
            read_model(folder / SMALL),
            data,
            seconds=seconds,
            seconds_of_a_step=cost,
            seed=seed,
            on_progress=on_progress,
        )
        candidates.append(replace(candidate, recipe=SMALL))
    chosen = None if choice.name is None else read_model(folder / choice.name)
    believed = min((each for each in candidates if each.believed), key=lambda each: each.bits, default=None)
    if believed is None:
        advice = (*_data_advice(data), *_recipe_advice(outcomes), *_GENERAL_ADVICE)
        return Answer(
            None, chosen, "trained", None, _no_machine(candidates), (), advice, tuple(candidates), tuple(notes)
        )
    on_progress("certificate", 0, 1, f"{believed.machine.states} states")
    believed = replace(believed, agreement=_agreement(believed, chosen, data))
    model, made_by, certificate, failure = _proved_model(believed, data, alphabet)
    on_progress("certificate", 1, 1, "" if certificate is None else certificate.verdict)
    if failure:
        notes.append(failure)
    return Answer(
        believed,
        chosen if model is None else model,
        made_by,
        certificate,
        _found(believed, certificate, data),
        _sureness(believed, choice, data),
        (),
        tuple(candidates),
        tuple(notes),
    )


def _proved_model(
    believed: Candidate, data: DividedData, alphabet: TokenAlphabet
) -> tuple[SequenceModel[Any] | None, str, AgreementCertificate | None, str]:
    """Return a model that is the machine, how it was made, its certificate, and what went wrong on the way."""
    failure = ""
    if believed.model is not None:
        certificate = _certified(believed.model, believed, data, alphabet)
        if _is_proof(certificate):
            return believed.model, "hardened", certificate, failure
        failure = f"the hardened model is not proved ({certificate.verdict}): the machine was compiled instead"
    model = compiled(believed.machine, alphabet, sizes(data)[1])
    if isinstance(model, str):
        return None, "trained", None, f"the machine cannot be compiled: {model}"
    return model, "compiled", _certified(model, believed, data, alphabet), failure


def _certified(
    model: SequenceModel[Any], believed: Candidate, data: DividedData, alphabet: TokenAlphabet
) -> AgreementCertificate:
    assert data.source.vocabulary is not None
    return certify(
        model,
        against=alphabet.lifted(believed.machine),
        domain=alphabet.domain(),
        letters=alphabet.names,
        classes=data.source.vocabulary.classes,
    )


def _is_proof(certificate: AgreementCertificate) -> bool:
    return certificate.outcome == "proved" and certificate.about != "head"


def _agreement(believed: Candidate, chosen: SequenceModel[Any] | None, data: DividedData) -> Any:
    """Return on how many labels of what was kept back the chosen model and the machine agree."""
    if chosen is None:
        return None
    tags = data.source.goal == "tagging"
    part = data.held_out
    said = labels_of(chosen, part.examples.tokens, tags=tags)
    return right_labels(labels_of_machine(believed.machine, part.words.words, tags=tags), said)


def _found(believed: Candidate, certificate: AgreementCertificate | None, data: DividedData) -> str:
    states, shorter, kept_back = believed.machine.states, believed.shorter, believed.kept_back
    # Without longer sequences, what choices are made by is among the others, and not to be counted twice.
    right, count, among = shorter.right, shorter.count, ""
    if data.longer is not None:
        right, count = right + kept_back.right, count + kept_back.count
        among = f", among them {kept_back.right:,} of {kept_back.count:,} of the longer sequences that were kept back"
    sentence = f"A machine with {states} state{'s' * (states != 1)} gives {right:,} of {count:,} labels{among}"
    if certificate is None or not _is_proof(certificate):
        return f"{sentence}; no model is proved to be it."
    return f"{sentence}; the model is proved to give its labels on every sequence of these words, at every length."


def _sureness(believed: Candidate, choice: Choice, data: DividedData) -> tuple[str, ...]:
    shorter, kept_back = believed.shorter, believed.kept_back
    sentences = [
        f"It was found {WAYS[believed.way]}"
        + (f" ({believed.recipe})." if believed.recipe else ": no network was needed."),
        f"On sequences that played no part in finding it, it is right on {kept_back.right:,} of {kept_back.count:,} "
        f"labels: with 95 % confidence on at least {kept_back.plain()['low']:.1%}."
        if data.longer is not None
        else "All sequences played a part in finding it: none were left to judge it by.",
    ]
    if not believed.reasons:
        bits, alone = believed.bits, believed.bits_alone
        sentences.append(f"Machine and errors take {bits:,.0f} bits to write; the labels alone take {alone:,.0f}.")
    errors = shorter.count - shorter.right
    if errors:
        sentences.append(
            f"It contradicts {errors:,} of {shorter.count:,} labels of the other sequences; about {believed.noise:.1%} "
            "of all labels are taken to be wrong.  The report lists the shortest: if one of these labels is right, the "
            "machine is not."
        )
    sentences += believed.reasons
    everything = data.shorter if data.longer is None else data.shorter + data.longer.words
    steps, taken = believed.machine.transitions.size, len(walked(believed.machine, everything))
    if taken < steps:
        sentences.append(
            f"The sequences take {taken:,} of the {steps:,} steps that the machine has (a word read in a state).  "
            f"Where the other {steps - taken:,} lead is a guess, and so are the labels of sequences that take them; "
            "the report shows which they are."
        )
    if data.note:
        sentences.append(f"Caution: {data.note}.")
    if believed.agreement is not None:
        sentences.append(_what_a_network_adds(believed, choice))
    sentences.append(
        "The proof says that the model is the machine.  That the machine made the data rests on the numbers above."
    )
    return tuple(sentences)


def _what_a_network_adds(believed: Candidate, choice: Choice) -> str:
    agreement = believed.agreement
    assert agreement is not None
    both = f"The network {choice.name} gives {agreement.share:.1%} of the machine's labels on the sequences kept back"
    if believed.recipe:
        return f"{both}; without a network this machine was not found."
    if agreement.right == agreement.count:
        return f"{both}: a second way to the same answer."
    return f"{both}: it adds nothing that the machine does not have."


def _no_machine(candidates: Sequence[Candidate]) -> str:
    best = min(candidates, key=lambda each: each.bits)
    states = best.machine.states
    reasons = " ".join(f"{each[0].upper()}{each[1:].rstrip('.')}." for each in best.refusals)
    return "No machine is claimed. " + (f"The best candidate has {states} states. " if states > 1 else "") + reasons


def _data_advice(data: DividedData) -> list[str]:
    """Return what the labels themselves suggest: few of one class, or several for the same sequence."""
    assert data.source.vocabulary is not None
    counts, advice = Counter(data.shorter.classes()), []
    rarest = min(counts, key=lambda each: (counts[each], each))
    if counts[rarest] < _RARE * counts.total():
        name, share = data.source.vocabulary.classes[rarest], counts[rarest] / counts.total()
        advice.append(
            f"Only {share:.1%} of the labels are {name}: sequences of that class, and others that nearly are, say most."
        )
    unavoidable = data.shorter.unavoidable_errors()
    if unavoidable > _CONTRADICTORY * counts.total():
        advice.append(
            f"Equal sequences have different labels, so that nothing can give {unavoidable:,} of {counts.total():,}: "
            "where these labels are no mistakes, they depend on something that the sequences do not say: add it."
        )
    return advice


def _recipe_advice(outcomes: Sequence[Mapping[str, Any]]) -> list[str]:
    if not outcomes:
        return ["Train networks too (--recipes all): where there is no machine, a model is kept."]
    return ["Give more time (--budget 10m): the search for a machine and the networks both use it."]
