"""``transductor automaton``: work with weighted automata; commands import numpy when they run, and never torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.options import SOURCE, Alphabet, Output, Weights, automaton_of, chosen_output
from transductor.cli.terminal import console, print_written, refusals, working

if TYPE_CHECKING:
    from rich.table import Table

    from transductor.automata.spectral.learning import LearnedAutomaton
    from transductor.automata.weighted import WeightedAutomaton

automaton = typer.Typer(
    help="Weighted automata: show, convert, minimise, compare, learn, decompose, draw.", no_args_is_help=True
)

Source = Annotated[str, typer.Argument(help=SOURCE, show_default=False)]
Result = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write here instead of printing; the suffix is the format.")
]


def _print_or_write(machine: WeightedAutomaton, output: Path | None) -> None:
    from transductor.automata.formats import write

    if output is None:
        console(highlight=False).print(_table(machine))
    else:
        print_written(write(machine, output))


def _table(machine: WeightedAutomaton) -> Table:
    """Return a table of the states and the arcs out of each."""
    from rich.table import Table

    from transductor.automata.formats.labels import letter_label, weight_label

    ring = machine.weights
    table = Table(title=f"{machine.dim} states, {len(machine.alphabet)} letters, {ring.name} weights")
    for column in ("state", "initial", "final", "arcs: letter → state (weight)"):
        table.add_column(column, overflow="fold")
    for state in range(machine.dim):
        arcs = [
            f"{letter_label(letter)} → {to}" + ("" if weight == ring.one else f" ({weight_label(ring, weight)})")
            for letter, matrix in zip(machine.alphabet, machine.matrices, strict=True)
            for to, weight in enumerate(matrix[:, state])
            if weight != ring.zero
        ]
        ends = (
            "" if end == ring.zero else weight_label(ring, end) or ring.written(end)
            for end in (machine.initial[state], machine.final[state])
        )
        table.add_row(str(state), *ends, "  ".join(arcs))
    return table


@automaton.command("list")
def list_machines() -> None:
    """List the named machines."""
    from rich.table import Table

    from transductor.automata.library import machines

    table = Table("name", "states", "letters", "the weight of a word")
    for each in machines():
        letters = " ".join(map(str, each.automaton.alphabet[:6])) + (" …" if len(each.automaton.alphabet) > 6 else "")
        table.add_row(each.name, str(each.automaton.dim), letters, each.summary)
    console(highlight=False).print(table)


@automaton.command()
def show(
    source: Source,
    words: Annotated[list[str] | None, typer.Argument(help="Words to weigh; letters with blanks: 'a b a'.")] = None,
    alphabet: Alphabet = None,
    weights: Weights = None,
) -> None:
    """Print states and arcs, the weights of words, and what is known of the series or language."""
    with refusals():
        machine = automaton_of(source, alphabet, weights)
        terminal = console(highlight=False)
        if machine.dim <= 60:
            terminal.print(_table(machine))
        else:
            terminal.print(f"{machine.dim} states, {len(machine.alphabet)} letters, {machine.weights.name} weights")
        terminal.print(_facts(machine))
        for word in words or ():
            terminal.print(f"{word!r}: {machine(_letters(machine, word))}")


def _letters(machine: WeightedAutomaton, word: str) -> list[Any]:
    """Read a word of the command line: characters, or names between blanks; numbers where the letters are numbers."""
    names = {str(letter): letter for letter in machine.alphabet}
    spelled = word.split() if " " in word or any(len(name) > 1 for name in names) else list(word)
    return [names.get(name, name) for name in spelled]


def _facts(machine: WeightedAutomaton) -> str:
    from transductor.automata.reduction import rank

    name = machine.weights.name
    if name == "boolean":
        from transductor.automata.boolean import as_dfa
        from transductor.automata.decomposition.monoid import is_aperiodic
        from transductor.automata.finite_algebra import shortest_word

        dfa = as_dfa(machine)
        word = shortest_word(dfa)
        if word is None:
            return "the empty language"
        star_free = "star-free" if is_aperiodic(dfa).aperiodic else "not star-free: it counts modulo a number"
        return f"minimal DFA: {dfa.states} states; shortest word: {' '.join(map(str, word)) or 'ε'}; {star_free}"
    if name not in ("rational", "float"):
        return ""
    size = rank(machine)
    if name == "float":
        return f"rank of the Hankel matrix: {size}"
    if size == machine.dim:  # modulo a prime it is never too large, and there are no more states
        return f"rank of the Hankel matrix: {size} (proved: as many as there are states)"
    return f"rank of the Hankel matrix: {size} (modulo three random primes: never too large; minimise proves it)"


@automaton.command()
def convert(source: Source,
            output: Annotated[Path | None, typer.Argument(help="The new file; its suffix is the format.")] = None,
            output_option: Output = None, alphabet: Alphabet = None, weights: Weights = None,
            over: Annotated[str | None, typer.Option(help="Read the numbers as rational, float or boolean.")] = None,
            ) -> None:  # fmt: skip
    """Write an automaton in another format: .json .att .fst .dot .jff; .regex .mso .fo .wmso write an expression."""
    with refusals():
        machine = automaton_of(source, alphabet, weights)
        _print_or_write(machine if over is None else machine.over(over), chosen_output(output, output_option))


@automaton.command()
def minimise(source: Source, output: Result = None, alphabet: Alphabet = None, weights: Weights = None) -> None:
    """Find an automaton of the same series with as few states as possible; exact over the rationals."""
    from transductor.automata.reduction import reduced

    with refusals():
        machine = automaton_of(source, alphabet, weights)
        smallest = reduced(machine)
        _print_or_write(smallest.automaton, output)
        dropped = f"tolerance {smallest.tolerance:.0e}, dropped at most {smallest.residual:.1e}"
        how = "exact" if smallest.exact else dropped
        typer.echo(f"{machine.dim} states before, {smallest.automaton.dim} after ({how})")


@automaton.command()
def equivalent(first: Source, second: Source, alphabet: Alphabet = None, weights: Weights = None) -> None:
    """Decide whether two automata have the same series: exit status 0 if so, 1 with a shortest word if not."""
    from transductor.automata.reduction import equivalent as compared

    with refusals():
        verdict = compared(automaton_of(first, alphabet, weights), automaton_of(second, alphabet, weights))
    if verdict.equal:
        evidence = "proved" if verdict.exact else f"up to tolerance {verdict.tolerance:.0e}"
        typer.echo(f"equal ({evidence}; {verdict.checked} words decide)")
        return
    assert verdict.word is not None
    assert verdict.weights is not None
    word = " ".join(map(str, verdict.word)) or "ε, the empty word"
    typer.echo(f"different; a shortest word: {word}: {verdict.weights[0]} and {verdict.weights[1]}")
    raise typer.Exit(1)


@automaton.command()
def learn(
    sample: Annotated[Path, typer.Argument(help="One string per line; letters between blanks, else characters.")],
    output: Result = None,
    rank: Annotated[int | None, typer.Option(min=1, help="States; left out, chosen on held-out strings.")] = None,
    statistics: Annotated[str, typer.Option(help="strings, prefixes or factors.")] = "prefixes",
) -> None:
    """Learn the distribution that a sample of strings was drawn from, by singular values."""
    from transductor.automata.formats.limits import lines_of, read_bytes, text_of
    from transductor.automata.spectral.learning import learned_from_sample

    with refusals():
        lines = [line for _, line in lines_of(text_of(read_bytes(sample), str(sample)))]
        blanks = any(" " in line.strip() for line in lines)
        strings = [tuple(line.split()) if blanks else tuple(line.strip()) for line in lines]
        with working("learning"):
            learned = learned_from_sample(strings, statistics=statistics, rank=rank)  # type: ignore[arg-type]
            held_out = _held_out_perplexity(strings, learned, statistics)
        _print_or_write(learned.automaton, output)
    kind = f"{learned.rank} states, refined by EM" if learned.refined else f"rank {learned.rank}"
    typer.echo(f"{len(strings):,} strings; {kind}; relative residual on the block {learned.residual:.1e}")
    typer.echo(held_out)


def _held_out_perplexity(strings: Sequence[tuple[str, ...]], learned: LearnedAutomaton, statistics: str) -> str:
    """Say how well such a machine, learned from four fifths of the strings, guesses the other fifth.

    Where several machines competed, it is the perplexity of the one that was chosen; the same fifth chose it.
    """
    import math

    import numpy as np

    from transductor.automata.probabilistic import smoothed, unigram
    from transductor.automata.spectral.learning import learned_from_sample
    from transductor.automata.words import letters_of

    order, count = np.random.default_rng(0).permutation(len(strings)), len(strings) // 5
    if count == 0 or learned.rank == 0:
        return "held-out perplexity: not measured, there are fewer than five strings or no state"
    held, kept = ([strings[place] for place in places] for places in (order[:count], order[count:]))
    letters = letters_of(strings)
    background, with_states = unigram(letters, kept), learned.held_out_perplexity
    if math.isnan(with_states):
        again = learned_from_sample(kept, letters, statistics=statistics, rank=learned.rank)  # type: ignore[arg-type]
        with_states = smoothed(again.automaton, background=background).perplexity(held)
    alone = smoothed(learned.automaton, background=background, weight=1.0).perplexity(held)
    return (
        f"held-out perplexity: {with_states:.4g} on {count:,} strings, learned from the others; "
        f"by the frequencies of letters alone {alone:.4g}"
    )


@automaton.command()
def decompose(
    source: Source,
    alphabet: Alphabet = None,
    weights: Weights = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", "--output", "-o", help="Draw the levels here (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Decompose by Krohn–Rhodes into a cascade of permutations and resets, verified by product reachability."""
    from transductor.automata.decomposition.cascade import verify
    from transductor.automata.decomposition.krohn_rhodes import decomposed, draw, report
    from transductor.automata.sources import language_of

    with refusals():
        dfa = language_of(automaton_of(source, alphabet, weights))
        cascade = decomposed(dfa)
        typer.echo(report(cascade))
        certificate = verify(cascade, dfa)
        typer.echo(str(certificate))
        if picture is not None:
            print_written(draw(cascade, picture))
    if not certificate.holds:
        raise typer.Exit(1)


@automaton.command("draw")
def draw_automaton(
    source: Source,
    output: Annotated[Path | None, typer.Argument(help="A picture: .svg, .png, .pdf or .dot.")] = None,
    output_option: Output = None,
    alphabet: Alphabet = None,
    weights: Weights = None,
    force: Annotated[bool, typer.Option("--force", help="However many states.")] = False,
) -> None:
    """Draw an automaton with its weights."""
    from transductor.automata.drawing import draw

    with refusals():
        picture = chosen_output(output, output_option)
        print_written(draw(automaton_of(source, alphabet, weights), picture, force=force))
