"""Train on several processes; the losses are those of one process, and a run goes on with any number of them.

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
    """Join the others, train, judge, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp", help="whole models, or split parameters")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()) / "counting_run")
    given = parser.parse_args()

    task = ModularCounting(5)
    with joined_ranks(given.device) as device:
        state = given.output / "state"
        if (state / "training.json").exists():  # killed before the end: whoever is here now goes on
            trainer = DistributedTrainer.resumed(state, device=device, strategy=given.strategy)
        else:
            torch.manual_seed(0)
            head = RationalHead(OrthogonalTransitions(vocab_size=2, state_dim=8))
            model = RationalTransductor(head, BackboneConfig(vocab_size=2, output_size=5, width=32)).to(device)
            settings = TrainingSettings(steps=given.steps, length=50)
            trainer = DistributedTrainer(model, task, settings, strategy=given.strategy)

        def tell(point: TrainingPoint) -> None:
            if trainer.leads and (point.step % 100 == 0 or trainer.finished):
                print(f"step {point.step:5,}  loss {point.loss:.3f}  right {point.accuracy:.1%}", flush=True)

        trainer.run(tell, folder=state)
        whole = trainer.whole_model()
        if trainer.leads:
            found = evaluate(whole, task, length=500, trained_length=50)
            print(f"{trainer.world} processes, ten times longer: {found.every_position:.1%} of all positions right")
            print(f"written: {save(whole, given.output / 'model')}")


if __name__ == "__main__":
    main()
