"""Train a Rational Transductor on your own file, one sequence per line, and judge it on longer ones.

    python examples/train_from_your_file.py                       # generated brackets, at most four open
    python examples/train_from_your_file.py words.txt labels.txt  # yours: blanks between tokens, a label per line

The same from the command line: transductor train RUN --data words.txt --labels labels.txt
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from transductor import BackboneConfig, RationalHead, RationalTransductor, load, save
from transductor.training import FileData, Trainer, TrainingSettings, score
from transductor.transitions import OrthogonalTransitions


def write_brackets(folder: Path, name: str, lines: int, lengths: range, seed: int) -> tuple[Path, Path]:
    """Write walks of opening and closing brackets over heights 0 to 4; the label is the final height."""
    draw = random.Random(seed)
    words, labels = folder / f"{name}.txt", folder / f"{name}_labels.txt"
    with words.open("w") as sequences, labels.open("w") as heights:
        for _ in range(lines):
            height, tokens = 0, []
            for _ in range(draw.choice(lengths)):
                step = 1 if height == 0 else -1 if height == 4 else draw.choice((1, -1))
                height += step
                tokens.append("(" if step > 0 else ")")
            print(*tokens, file=sequences)
            print(height, file=heights)
    return words, labels


def main() -> None:
    """Read, train, judge and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="?", help="one sequence per line")
    parser.add_argument("labels", nargs="?", help="one label per line")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()) / "brackets_model")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as made:
        words, labels = arguments.words, arguments.labels
        if words is None:
            words, labels = write_brackets(Path(made), "short", 2000, range(1, 40), seed=0)
        data = FileData("recognition", str(words), None if labels is None else str(labels), held_out=0.1)
        training, examples = data.read()
        print(f"{len(examples):,} sequences, {training.vocab_size} tokens, {training.output_size} classes")

        torch.manual_seed(0)
        model = RationalTransductor(
            RationalHead(OrthogonalTransitions(vocab_size=training.vocab_size, state_dim=8)),
            BackboneConfig(vocab_size=training.vocab_size, output_size=training.output_size, width=32),
        )
        settings = TrainingSettings(steps=arguments.steps, learning_rate=5e-3)
        for point in Trainer(model, training, settings).run()[:: max(1, arguments.steps // 6)]:
            print(f"step {point.step:5,}  loss {point.loss:.3f}  right {point.accuracy:.1%}")

        judged = score(model, *replace(training, part="validation", sha256="").read())
        print(f"set aside: {judged.sequences:.1%} right")
        if arguments.words is None:
            far = write_brackets(Path(made), "long", 200, range(200, 400), seed=1)
            longer = FileData("recognition", *map(str, far), vocabulary=training.vocabulary)
            print(f"five to ten times longer: {score(model, *longer.read()).sequences:.1%} right")

    save(model, arguments.output)
    assert torch.equal(load(arguments.output)(examples.tokens[0][None]), model.eval()(examples.tokens[0][None]))
    print(f"written: {arguments.output}")


if __name__ == "__main__":
    main()
