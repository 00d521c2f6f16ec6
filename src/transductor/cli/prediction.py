"""``transductor predict``: answers for sequences that arrive on standard input, as they arrive."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from transductor.cli.models import trained_model
from transductor.cli.options import TorchDevice
from transductor.cli.terminal import console, interruptions, progress, refusals

if TYPE_CHECKING:
    from torch import Tensor

    from transductor.model import SequenceModel
    from transductor.training import FileData

_CHUNK: Final = 1 << 16  # bytes read at once, if so many are there
_MOST_NAMED: Final = 20  # unknown words that are named one by one
_SHOWN_FROM: Final = 1 << 14  # tokens of a line whose progress is shown


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a run, or its folder model/.")],
    device: TorchDevice = "cpu",
    batch_size: Annotated[int, typer.Option(min=1, help="Lines answered together, if so many are waiting.")] = 64,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse words that did not occur in training.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the answers; else printed.")] = None,
) -> None:
    """Read sequences from standard input, one per line; print a label, the labels, a number or the next token.

    Every line is answered as soon as it is complete.  Words that did not occur in training are named on standard error.
    """
    from transductor.training.evaluation import longest_at_once

    with refusals(), interruptions(lambda: "interrupted"):
        net, data = trained_model(model, device)
        words = _Words(data, strict)
        with nullcontext(sys.stdout) if output is None else open(output, "w", encoding="utf-8") as answers:
            for lines in _lines_as_they_come(sys.stdin.buffer):
                for batch in _batches(words, lines, batch_size, longest_at_once(net)):
                    _answer(net, data, batch, answers)
                    answers.flush()
        words.summarise()


def _lines_as_they_come(stream: Any) -> Iterator[list[bytes]]:
    """Yield the lines that are complete, whenever more has arrived; the last line needs no end."""
    parts: list[bytes] = []
    while chunk := stream.read1(_CHUNK):
        parts.append(chunk)
        if b"\n" in chunk:
            *complete, rest = b"".join(parts).split(b"\n")
            parts = [rest] if rest else []
            yield complete
    if parts:
        yield [b"".join(parts)]


@dataclass
class _Words:
    """Reads lines as tokens, and keeps account of the words that did not occur in training."""

    data: FileData
    strict: bool
    line: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    unknown_words: set[str] = field(default_factory=set)

    def read(self, raw: bytes) -> tuple[int, Tensor]:
        """Return the number of a line and its tokens."""
        self.line += 1
        try:
            text = raw.decode("utf-8-sig" if self.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"line {self.line}: not UTF-8 text: {error.reason}") from None
        names = self.data.form.tokens(text)
        assert self.data.vocabulary is not None
        unknown = self.data.vocabulary.unknown(names)
        if unknown and self.strict:
            known = ", ".join(self.data.vocabulary.letters[:8])
            raise ValueError(f"line {self.line}: {unknown[0]!r:.60} did not occur in training, which had {known}, …")
        self.tokens += len(names)
        self.unknown_tokens += len(unknown)
        for name in unknown:
            if name not in self.unknown_words:
                self.unknown_words.add(name)
                self._warn(name)
        return self.line, self.data.encoded(names, None)[0]

    def _warn(self, name: str) -> None:
        if len(self.unknown_words) <= _MOST_NAMED:
            typer.echo(f"warning: line {self.line}: {name!r:.60} did not occur in training", err=True)
        elif len(self.unknown_words) == _MOST_NAMED + 1:
            typer.echo("warning: further unknown words are counted, not named", err=True)

    def summarise(self) -> None:
        """Print how many tokens were unknown, if any were."""
        if self.unknown_tokens:
            words = f"{len(self.unknown_words):,} different word{'s' if len(self.unknown_words) > 1 else ''}"
            typer.echo(
                f"warning: {self.unknown_tokens:,} of {self.tokens:,} tokens ({words}) did not occur in training; "
                "the model reads them as <unknown>, of which it has learned nothing",
                err=True,
            )


def _batches(
    words: _Words, lines: Sequence[bytes], batch_size: int, longest: int
) -> Iterator[Sequence[tuple[int, Tensor]]]:
    """Cut lines into batches, in their order; a line that is too long for a batch is one of its own."""
    batch: list[tuple[int, Tensor]] = []
    for line in lines:
        try:
            row = words.read(line)
        except ValueError:
            if batch:  # what came before a line that is refused is answered
                yield batch
            raise
        if batch and (len(batch) == batch_size or max(len(row[1]), len(batch[0][1])) > longest):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _answer(net: SequenceModel[Any], data: FileData, batch: Sequence[tuple[int, Tensor]], answers: IO[str]) -> None:
    import torch

    from transductor.training.evaluation import longest_at_once

    device = next(net.parameters()).device
    rows = [row for _, row in batch]
    if len(rows[0]) > longest_at_once(net):
        _answer_long(net, data, *batch[0], answers)
        return
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    with torch.no_grad():
        logits = net(tokens.to(device), lengths=lengths.to(device)).cpu()
    for row, length in zip(logits, lengths.tolist(), strict=True):
        # Only tags have an answer at every token; the start, which comes first, has none.
        answers.write(_names(row[1:length] if data.goal == "tagging" else row[length - 1 : length], data) + "\n")


def _answer_long(net: SequenceModel[Any], data: FileData, line: int, row: Tensor, answers: IO[str]) -> None:
    """Answer one long line in pieces, with the model's state between them."""
    from transductor.training.evaluation import streamed_logits

    columns, shown = ("line {task.fields[line]}", "bar", "count", "remaining"), len(row) >= _SHOWN_FROM
    on_errors = console(stderr=True)
    bars = progress(*columns, console=on_errors, transient=True, disable=not (shown and on_errors.is_terminal))
    with bars:
        bar, read = bars.add_task("", total=len(row), line=line), 0
        try:
            for logits in streamed_logits(net, row):
                if data.goal == "tagging":
                    answers.write(" " * bool(read) + _names(logits if read else logits[1:], data))
                read += len(logits)
                bars.update(bar, completed=read)
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from None
    answers.write(("" if data.goal == "tagging" else _names(logits[-1:], data)) + "\n")


def _names(logits: Tensor, data: FileData) -> str:
    """Return the answers at these positions ``(n, output_size)`` in the spelling of the data."""
    assert data.vocabulary is not None
    if data.real:
        return " ".join(f"{value:.9g}" for value in logits[:, 0].tolist())
    names = data.vocabulary.tokens if data.goal == "next_token" else data.vocabulary.classes
    return " ".join(names[each] for each in logits.argmax(-1).tolist())
