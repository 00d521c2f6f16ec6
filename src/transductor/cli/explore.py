"""``transductor explore``: one page in which models run beside their hardened twins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.models import model_folder
from transductor.cli.options import SOURCE_OR_TASK, Alphabet, Length, TaskName, Weights, Words
from transductor.cli.own_words import Accept, OwnWords, own_automaton, own_words, words_of, words_of_data
from transductor.cli.terminal import print_written, refusals, working

if TYPE_CHECKING:
    from transductor.automata import MooreMachine
    from transductor.portraits.explored import Accuracy, Explored, Proof


def explore(
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of models, of runs, or of fits; without any, examples that come with the package.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page: one HTML file.")] = Path("explorer.html"),
    against: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What a model should be, once for each MODEL in its order, or once for all. {SOURCE_OR_TASK}"
        ),
    ] = None,
    certificate: Annotated[
        list[Path] | None,
        typer.Option(help="A certificate file to show, of the model whose checkpoint it names; may be repeated."),
    ] = None,
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    title: Annotated[str, typer.Option(help="The title of the page.")] = "Transductor explorer",
    accept: Accept = None,
    alphabet: Alphabet = None,
    weights: Weights = None,
) -> None:
    """Write a page in which learned heads and their hardened twins run live: no server, no network.

    The folder of a fit brings its machine, its certificate and the accuracy of every model with it.  With --against,
    the hardened twin of a model is certified for the page.
    """
    from transductor.report.explorer import example_models, write_explorer

    with refusals(TypeError, IndexError):
        if output.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--output must end in .html; got {str(output)!r}")
        folders = models or []
        targets = _one_for_each("--against", against, len(folders))
        if not folders:
            if any(each is not None for each in (against, certificate, words, task)):
                raise ValueError("--against, --certificate, --words and --task are about a MODEL; give its folder")
            explored = example_models()
        else:
            explored = []
            proofs = _proofs(certificate or [])
            for name, folder, target in zip(_names(folders), folders, targets, strict=True):
                chosen = _Options(words, task, length, target, accept, alphabet, weights)
                with working(f"looking at {name}"), _named(folder):
                    explored.append(_explored(folder, name, chosen, proofs))
            if unused := [str(path) for path, used in proofs.used.items() if not used]:
                raise ValueError(f"--certificate must be about one of the models; {', '.join(unused)} is about none")
        write_explorer(explored, output, title)
    for model in explored:
        typer.echo(f"{model.name}: {_said(model)}")
    print_written(output)


class _Options:
    """What the options say about one model."""

    def __init__(
        self,
        words: Path | None,
        task: str | None,
        length: int,
        against: str | None,
        accept: str | None,
        alphabet: str | None,
        weights: str | None,
    ) -> None:
        self.words, self.task, self.length = words, task, length
        self.against, self.accept, self.alphabet, self.weights = against, accept, alphabet, weights

    def target(self, own: OwnWords) -> Any:
        """Return the machine that the model should be."""
        if self.against is None:
            return None
        return own_automaton(self.against, own, self.alphabet, self.weights, "labels", self.accept)

    def known_words(self, own: OwnWords) -> dict[str, Any]:
        """Return the words that a machine is looked for with."""
        given = words_of(self.words, self.task, self.length, own)
        return {"words": given, "examples": words_of_data(own) if given is None else None}


class _Certificates:
    """The certificates given, by the digest of the weights that they are about."""

    def __init__(self) -> None:
        self.contents: list[tuple[Path, Mapping[str, Any]]] = []
        self.used: dict[Path, bool] = {}

    def about(self, models: Mapping[str, Any]) -> list[Proof]:
        """Return what is said of these models, which have names."""
        from transductor.model.storage import checkpoint_identity
        from transductor.portraits import proof_of

        digests = {checkpoint_identity(model)["sha256"]: name for name, model in models.items()}
        proofs = []
        for path, content in self.contents:
            name = digests.get((content["model"] or {}).get("sha256"))
            if name is not None:
                self.used[path] = True
                proofs.append(proof_of(content, name, path.name))
        return proofs


def _proofs(paths: list[Path]) -> _Certificates:
    """Read certificates; every one is computed again from its numbers before it is shown."""
    from transductor.certification import check_certificate
    from transductor.certification.certificates import read_content

    read = _Certificates()
    for path in paths:
        check_certificate(path)
        read.contents.append((path, read_content(path)))
        read.used[path] = False
    return read


def _explored(folder: Path, name: str, options: _Options, proofs: _Certificates) -> Explored:
    """Return what a page needs of one model or fit."""
    if (folder / "record.json").exists() and (folder / "recipes").is_dir():
        return _explored_fit(folder, name, options, proofs)
    from transductor.certification import certify
    from transductor.extraction import NoMachineNearby, harden
    from transductor.heads import RationalHead
    from transductor.model import load
    from transductor.portraits import explored_model, proof_of

    inside = model_folder(folder)
    model = load(inside)
    own = own_words(inside, model)
    target, known = options.target(own), options.known_words(own)
    shown = {"the learned model": model}
    certificates = []
    if not isinstance(model, RationalHead) and target is not None and getattr(model, "output_size", 0) > 1:
        try:
            hardened = harden(model, **known, alphabet=own.alphabet).model
        except (NoMachineNearby, TypeError):  # which the page says itself, or the model is refused there
            pass
        else:
            shown["the hardened twin"] = hardened
            proof = certify(
                hardened,
                against=own.alphabet.lifted(target),
                domain=own.alphabet.domain(),
                letters=own.alphabet.names,
                classes=own.classes,
            )
            certificates.append(proof_of(proof, "the hardened twin"))
    return explored_model(
        model,
        name,
        against=target,
        against_name=options.against or "",
        **known,
        alphabet=own.alphabet,
        classes=own.classes,
        certificates=[*certificates, *proofs.about(shown)],
    )


def _explored_fit(folder: Path, name: str, options: _Options, proofs: _Certificates) -> Explored:
    """Return what a page needs of a fit: its trained model beside the machine it found, proof and measurements."""
    from transductor.certification.certificates import read_content
    from transductor.model import RationalReadout, load
    from transductor.portraits import explored_model, proof_of
    from transductor.report.fit import read_fit

    facts = read_fit(folder).measurements
    if facts["data"]["goal"] == "regression":
        raise ValueError(f"{folder} is a fit of numbers; the page shows machines with labels")
    final = load(folder / "model")
    trained = _trained_recipe(folder, facts)
    model = final if trained is None else load(folder / "recipes" / trained / "model")
    if trained is not None and not isinstance(model, RationalReadout):
        own = own_words(folder / "recipes" / trained / "model", model)
    else:
        own = own_words(folder / "model", final)
    twin = _fit_machine(facts)
    certificates = []
    if (file := folder / "certificate.json.gz").exists():
        certificates.append(proof_of(read_content(file), f"the model of the fit, {name}", file.name))
    notes = [facts["answer"]["sentence"]]
    if trained is not None:
        notes.append(f"The learned head is that of the recipe {trained}, trained on the same file.")
    return explored_model(
        model,
        name,
        against=options.target(own),
        against_name=options.against or "",
        twin=twin,
        **({} if twin is not None else options.known_words(own)),
        alphabet=own.alphabet,
        classes=own.classes,
        trained_length=facts["division"]["trained_length"],
        certificates=[*certificates, *proofs.about({name: final})],
        accuracy=_accuracy(facts),
        notes=notes,
    )


def _trained_recipe(folder: Path, facts: Mapping[str, Any]) -> str | None:
    """Return the recipe whose head is shown: the chosen one if it is read linearly, else the best that is; or none."""
    linear = ("dense", "orthogonal", "stochastic", "universal")
    ours = [each for each in facts["recipes"] if not each["peer"] and each["failed"] is None]
    ours = [each for each in ours if (folder / "recipes" / each["name"] / "model" / "config.json").exists()]
    readable = [each for each in ours if each["name"] in linear] or ours
    if not readable:
        return None
    best = max(readable, key=lambda each: [band["right"] / max(1, band["count"]) for band in reversed(each["bands"])])
    chosen = facts["chosen"]["name"]
    name: str = chosen if chosen in [each["name"] for each in readable] else best["name"]
    return name


def _fit_machine(facts: Mapping[str, Any]) -> MooreMachine | None:
    import numpy as np

    from transductor.automata import MooreMachine

    machine = facts["machine"]
    if machine is None:
        return None
    return MooreMachine(np.array(machine["transitions"]), np.array(machine["outputs"]), machine["start"])


def _accuracy(facts: Mapping[str, Any]) -> Accuracy | None:
    """Return how right the models of a fit are in each band of lengths; None where none was trained."""
    from transductor.portraits.explored import Accuracy, Shares

    rows = [{**facts["baseline"], "summary": "baseline", "peer": False, "failed": None}, *facts["recipes"]]
    rows = [each for each in rows if each["failed"] is None]
    if len(rows) == 1:
        return None
    counts = [band["count"] for band in facts["baseline"]["bands"]]
    shares = [
        Shares(
            each["name"],
            f"{each['summary']}{' (for comparison)' * each['peer']}",
            [band["right"] / max(1, band["count"]) for band in each["bands"]],
            [band["low"] for band in each["bands"]],
            [band["high"] for band in each["bands"]],
        )
        for each in rows
    ]
    return Accuracy(list(facts["bands"]), counts, shares)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Say in a refusal which model it is about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        said = str(error)
        raise ValueError(said if str(folder) in said else f"{folder}: {said}") from error


def _one_for_each(option: str, given: list[str] | None, count: int) -> list[str | None]:
    """Return a value for each model: one for all, or as many as there are."""
    if not given:
        return [None] * count
    if len(given) not in (1, count):
        raise ValueError(f"{option} must be given once, or once for each of the {count} models; got {len(given)}")
    return [*given] * (count if len(given) == 1 else 1)


def _names(folders: list[Path]) -> list[str]:
    """Return a name for each folder, as short as tells them apart."""
    parts = [folder.resolve().parts for folder in folders]
    parts = [each[:-1] if each[-1] == "model" and len(each) > 1 else each for each in parts]
    if len(set(parts)) < len(parts):
        raise ValueError(f"MODEL must be different folders; got {', '.join(map(str, folders))}")
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _said(model: Explored) -> str:
    """Return in one line what the page has of a model."""
    if model.twin is None:
        return f"the learned head alone; {model.refusal or 'no machine is known'}"
    proved = "".join(f"; {proof.of}: {proof.verdict}" for proof in model.certificates)
    return f"the learned head beside a machine of {len(model.twin.transitions)} states{proved}"
