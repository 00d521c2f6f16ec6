"""Train on several processes: the losses equal those of one process, and any number of processes can resume a run.

    torchrun --nproc-per-node 2 examples/train_with_torchrun.py
    torchrun --nproc-per-node 4 examples/train_with_torchrun.py --strategy fsdp2 --device cuda

The same from the command line: torchrun --nproc-per-node 2 -m transductor train RUN --task counting:5 --distributed ddp
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from transductor import BackboneConfig, RationalHead, RationalTransductor, save
from transductor.tasks import ModularCounting
from transductor.training import TrainingPoint, TrainingSettings, evaluate
from transductor.training.distributed import STRATEGIES, DistributedTrainer, joined_ranks
from transductor.transitions import OrthogonalTransitions


def main() -> None:
    """Join the other processes, train, judge and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp", help="copied models, or split parameters")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()) / "counting_run")
    arguments = parser.parse_args()

    task = ModularCounting(5)
    with joined_ranks(arguments.device) as device:
        state = arguments.output / "state"
        if (state / "training.json").exists():  # an earlier run was interrupted: continue it
            trainer = DistributedTrainer.resumed(state, device=device, strategy=arguments.strategy)
        else:
            torch.manual_seed(0)
            head = RationalHead(OrthogonalTransitions(vocab_size=2, state_dim=8))
            model = RationalTransductor(head, BackboneConfig(vocab_size=2, output_size=5, width=32)).to(device)
            settings = TrainingSettings(steps=arguments.steps, length=50)
            trainer = DistributedTrainer(model, task, settings, strategy=arguments.strategy)

        def report(point: TrainingPoint) -> None:
            if trainer.leads and (point.step % 100 == 0 or trainer.finished):
                print(f"step {point.step:5,}  loss {point.loss:.3f}  right {point.accuracy:.1%}", flush=True)

        trainer.run(report, folder=state)
        trained = trainer.whole_model()
        if trainer.leads:
            scores = evaluate(trained, task, length=500, trained_length=50)
            print(f"{trainer.world} processes, ten times longer: {scores.every_position:.1%} of all positions right")
            print(f"written: {save(trained, arguments.output / 'model')}")


if __name__ == "__main__":
    main()
