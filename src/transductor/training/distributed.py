"""Training on several ranks, each of which computes its rows of every batch.

Every rank draws the complete batch and takes its rows; losses are sums over labels divided by the number of labels of
the complete batch.  So a run on R ranks equals the run on one up to rounding, and its state is the same file: a run may
be interrupted on two ranks and continue on one, or on four.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from transductor.checks import one_of
from transductor.heads import RationalHead
from transductor.model import CheckpointError, SequenceModel, build
from transductor.model.backbone import Block
from transductor.tasks import Task
from transductor.training.examples import FileData
from transductor.training.settings import TrainingSettings
from transductor.training.steps import label_accuracy, label_count, labelled_loss, right_labels
from transductor.training.trainer import Trainer, TrainingError, TrainingPoint

STRATEGIES: Final = ("ddp", "fsdp2")
# Words in the libraries' messages when a rank does not answer; torch raises RuntimeError for everything.
_LOST_RANK_WORDS: Final = ("gloo", "nccl", "connection", "timed out", "timeout", "broken pipe", "socket")
_LIVE: weakref.WeakSet[DistributedTrainer] = weakref.WeakSet()


@contextmanager
def joined_ranks(device: str = "cpu", *, timeout: float = 45.0) -> Iterator[torch.device]:
    """Join the process group of ``torchrun``; yields this rank's device.

    Args:
        device: ``"cpu"`` (gloo), or ``"cuda"`` (NCCL), where every rank takes a GPU of its own.
        timeout: Seconds to wait for a rank that does not answer.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "several ranks are started by torchrun, such as: torchrun --nproc-per-node 2 -m transductor train …"
        )
    own = torch.device(device)
    if own.type == "cuda":
        own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(own)
    backend = "nccl" if own.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    try:
        yield own
        dist.barrier()  # no rank takes the group down while another still reads from it
        # A DDP wrapper that outlives the group ends gloo's thread while it holds Python's lock, which that thread may
        # need to release its last work: a deadlock.  So wrappers are released first, and the thread gets time.
        for trainer in _LIVE:
            trainer._net = trainer.model
        gc.collect()
        time.sleep(0.2)
    finally:
        dist.destroy_process_group()


def rows_of_rank(count: int, rank: int, world: int) -> slice:
    """Return which of ``count`` rows a rank computes: as many as the others, or one more."""
    each, more = divmod(count, world)
    begin = rank * each + min(rank, more)
    return slice(begin, begin + each + (rank < more))


def shard(model: nn.Module, device: torch.device, *, precision: torch.dtype | None = None) -> None:
    """Split the parameters of ``model`` over the ranks, in place, with FSDP2: heads, blocks, the rest.

    Args:
        precision: Precision of the computation outside the rational heads, such as bfloat16.
    """
    # Logits are views, as those of any Linear; nothing here writes into them.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    shard_heads(model, device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=None if precision is None else torch.float32)
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def shard_heads(model: nn.Module, device: torch.device) -> None:
    """Split the rational heads of ``model`` over the ranks, in place, with FSDP2 and a policy of their own.

    They keep their precision whatever the rest is computed in: a product of many matrices in bfloat16 is another
    automaton.  Use it before another library, such as Accelerate, shards the rest: it leaves these units as they are.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in model.modules():
        if isinstance(module, RationalHead) and any(True for _ in module.parameters()):
            fully_shard(module, mesh=mesh, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))


class DistributedTrainer(Trainer):
    """A :class:`Trainer` on the ranks of the default process group, all of which call the same methods.

    Losses equal those of one process up to rounding, as long as the model itself draws no random numbers: dropout draws
    its own on every rank.  Rank 0 writes the state, which is that of a :class:`Trainer`; every rank reads it.

    Args:
        model: The model; its weights on rank 0 are copied to all ranks.
        source: The task or data, as for one process.
        settings: How to train; ``batch_size`` is that of all ranks together and at least their number.
        strategy: ``"ddp"``: every rank has all parameters; ``"fsdp2"``: parameters, gradients and moments are split.
        precision: With ``"fsdp2"``, the precision outside the rational heads, such as ``torch.bfloat16``.
    """

    def __init__(
        self,
        model: SequenceModel[Any],
        source: Task | FileData,
        settings: TrainingSettings,
        *,
        strategy: str = "ddp",
        precision: torch.dtype | None = None,
    ) -> None:
        one_of("strategy", strategy, STRATEGIES)
        if precision is not None and strategy != "fsdp2":
            raise ValueError(f"precision needs strategy='fsdp2'; got strategy={strategy!r}")
        if not dist.is_initialized():
            raise ValueError("there is no process group: start with torchrun and use joined_ranks()")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        if settings.batch_size < self.world:
            raise ValueError(
                f"batch_size must be at least the number of ranks, {self.world}; got {settings.batch_size}"
            )
        if settings.double:
            model.double()
        with torch.no_grad():
            for value in model.state_dict().values():
                dist.broadcast(value, 0)
        self.strategy = strategy
        self._net: nn.Module = model
        device = next(model.parameters()).device
        if strategy == "fsdp2":
            shard(model, device, precision=precision)
        else:
            ignored = getattr(getattr(model, "injection", None), "name", "") == "none"  # its head gets no gradient
            self._net = DistributedDataParallel(
                model,
                device_ids=[device] if device.type == "cuda" else None,
                find_unused_parameters=ignored,
            )
        super().__init__(model, source, settings)
        _LIVE.add(self)
        self.leads = self.rank == 0
        self.alone = False  # ranks are told to stop at different steps, and cannot save together then
        self._written: tuple[int, Path] | None = None
        self._draw_apart()

    def _draw_apart(self) -> None:
        """Give this rank random numbers of its own: ranks must not drop the same units of different rows."""
        if self.rank:
            torch.manual_seed((self.settings.seed * 1_000_003 + self.step) * self.world + self.rank)

    def _measured(self, tokens: Tensor, labels: Tensor, lengths: Tensor | None) -> tuple[Tensor, float, float]:
        count = int(label_count(labels).clamp_min(1))
        rows = rows_of_rank(len(tokens), self.rank, self.world)
        layout = {} if lengths is None else {"lengths": lengths[rows]}
        logits = self._net(tokens[rows], **layout)
        loss = labelled_loss(logits, labels[rows], self.settings.label_smoothing, self._unit(labels), count=count)
        parts = torch.stack((loss.detach().double(), right_labels(logits, labels[rows]).double()))
        dist.all_reduce(parts)
        # Both strategies take the mean of gradients over ranks, and ours is a sum.
        return loss * self.world, parts[0].item(), label_accuracy(parts[1].float(), labels).item()

    def advance(self) -> TrainingPoint:
        """Do one step, on all ranks."""
        with self._lost_ranks_named(f"step {self.step + 1}"):
            return super().advance()

    def save(self, folder: str | Path) -> Path:
        """Save the state, as :meth:`Trainer.save` does; rank 0 writes, and all ranks learn whether it could."""
        folder = Path(folder)
        with self._lost_ranks_named(f"the writing of the state of step {self.step}"):
            tensors = self._tensors()
            failure: list[str | None] = [None]
            if self.leads:
                try:
                    self._write(folder, tensors)
                except (TrainingError, CheckpointError) as error:
                    failure = [str(error)]
            dist.broadcast_object_list(failure)
        if failure[0] is not None:
            raise TrainingError(failure[0])
        self._written = self.step, folder
        return folder

    def run(
        self,
        on_step: Callable[[TrainingPoint], None] | None = None,
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
    ) -> list[TrainingPoint]:
        """Do all steps that are left; when it is told to stop, say where it was and how to continue."""
        stopped = "it was told to stop, as torchrun does when another rank has died"
        with _message_on_termination(lambda: self._stop_message(f"step {self.step + 1}", stopped)):
            return super().run(on_step, folder=folder, checkpoint_every=checkpoint_every)

    @classmethod
    def resumed(cls, folder: str | Path, *, device: str | torch.device = "cpu", **options: Any) -> Self:
        """Return the run whose state is in ``folder``, however many ranks began it; see :meth:`Trainer.resumed`."""
        trainer = super().resumed(folder, device=device, **options)
        trainer._written = trainer.step, Path(folder)
        return trainer

    def whole_model(self) -> SequenceModel[Any]:
        """Return the model with all its weights in this process; every rank must call this."""
        if self.strategy == "ddp":
            return self.model
        weights = {name: _full(value) for name, value in self.model.state_dict().items()}
        model = build(self.model.config)
        model.load_state_dict(weights, assign=True)
        assert isinstance(model, SequenceModel)
        return model.eval()

    def _gathered(self, value: Tensor) -> Tensor:
        full = _full(value)
        return full if self.leads else full.new_empty(0)

    def _placed(self, value: Tensor, parameter: Tensor) -> Tensor:
        if not isinstance(parameter, DTensor):
            return value
        local = value.to(parameter.device)
        return distribute_tensor(local, parameter.device_mesh, parameter.placements, src_data_rank=None)

    def _restore(self, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(manifest, tensors)
        self._draw_apart()

    @contextmanager
    def _lost_ranks_named(self, where: str) -> Iterator[None]:
        try:
            yield
        except TrainingError:
            raise
        except RuntimeError as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            if not isinstance(error, dist.DistError) and not any(word in first.lower() for word in _LOST_RANK_WORDS):
                raise
            raise TrainingError(self._stop_message(where, f"another rank does not answer ({first[:120]})")) from error

    def _stop_message(self, where: str, why: str) -> str:
        last = "no state was written by this run"
        if self._written is not None:
            last = f"the last state written is that of step {self._written[0]}, in {self._written[1]}"
        return (
            f"rank {self.rank} of {self.world} stopped at {where}: {why}. Most likely a rank was killed, often because "
            f"memory ran out, or a machine or the network failed; {last}: the same torchrun command continues from "
            "there, with any number of ranks"
        )


def _full(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


@contextmanager
def _message_on_termination(message: Callable[[], str]) -> Iterator[None]:
    """On SIGTERM print ``message`` and exit, even while the main thread waits for other ranks inside a library.

    Python runs signal handlers between two instructions of the main thread, which executes none while it waits; the
    wake-up descriptor is written at once, and another thread reads it.

    Once a rank has noticed that another is lost, torchrun ends it within milliseconds, often before it has printed its
    error.  So an error that leaves the block is the message from then on, until another block begins.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    lost: list[str] = []

    def watch() -> None:
        while (number := os.read(reading, 1)) not in (b"", b"\0"):
            if number[0] == signal.SIGTERM:
                sys.stderr.write(f"error: {lost[0] if lost else message()}\n")
                sys.stderr.flush()
                os._exit(128 + signal.SIGTERM)

    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except TrainingError as error:
        lost.append(str(error))
        raise
    finally:
        if not lost:
            signal.set_wakeup_fd(descriptor)
            signal.signal(signal.SIGTERM, handler)
            os.write(writing, b"\0")
            watcher.join()
            os.close(reading)
            os.close(writing)
