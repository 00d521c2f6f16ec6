"""Run on every rank: Accelerate and Hugging Face's Trainer with our models, with DDP and FSDP2."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from transformers import Trainer, TrainingArguments

from tests.integrations.native_models import VOCABULARY, tiny_native
from tests.integrations.tiny_hosts import enlivened, tiny_head, tiny_host
from tests.ranks import leave
from transductor.heads import RationalHead
from transductor.integrations.huggingface import attach, detach, save_sidecar
from transductor.model import BackboneConfig, RationalTransductor
from transductor.training.distributed import shard_heads
from transductor.transitions import OrthogonalTransitions

STEPS, ROWS = 6, 8


def plain_model():
    torch.manual_seed(0)
    head = RationalHead(OrthogonalTransitions(vocab_size=VOCABULARY, state_dim=8))
    return RationalTransductor(head, BackboneConfig(vocab_size=VOCABULARY, width=32, layers=2, attention_heads=2))


def host_with_sidecar():
    """A pretrained decoder with a head beside it, its projections not zero."""
    torch.manual_seed(0)
    host = tiny_host("llama")
    enlivened(attach(host, tiny_head()).injection.projections)
    return host


# Where a model has its head and its first layer.
PLAIN = {"states": "rational_head", "stream": "backbone.blocks.0"}
HOST = {"states": "model.rational_sidecar.rational_head", "stream": "model.layers.0"}


def rows():
    return torch.randint(3, VOCABULARY, (64, 16), generator=torch.Generator().manual_seed(3))


def next_token_loss(out, tokens):
    logits = getattr(out, "logits", out)
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def plugin(*units):
    return FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=list(units),
        cpu_ram_efficient_loading=False,  # Accelerate's loader takes every tensor of a state for a parameter
    )


def allow_fsdp_on_cpu(accelerator, fsdp_plugin, mixed_precision="no"):
    """Accelerate drops the plugin without a word where ranks are CPUs; torch's FSDP2 runs there, so it is told so."""
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = fsdp_plugin
    if mixed_precision != "no":
        accelerator.state._mixed_precision = mixed_precision
        fsdp_plugin.set_mixed_precision(mixed_precision)


def accelerated(model, fsdp_plugin=None, mixed_precision="no", watched=PLAIN, folder=None):
    """Losses of some steps, and what the head and the model computed in; the sidecar saved at the end to ``folder``."""
    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True, fsdp_plugin=fsdp_plugin)
    ignored = fsdp_plugin is not None and accelerator.distributed_type == DistributedType.MULTI_CPU
    if fsdp_plugin is not None:
        allow_fsdp_on_cpu(accelerator, fsdp_plugin, mixed_precision)
    if mixed_precision != "no":
        shard_heads(model, accelerator.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimiser = accelerator.prepare(model, optimiser)
    seen = {}
    inner = getattr(model, "module", model)
    for name, place in watched.items():
        inner.get_submodule(place).register_forward_hook(
            lambda _, __, out, name=name: seen.update({name: str((out[0] if isinstance(out, tuple) else out).dtype)})
        )
    tokens, losses = rows(), []
    share = ROWS // accelerator.num_processes
    for step in range(STEPS):
        begin = step * ROWS + accelerator.process_index * share
        part = tokens[begin : begin + share]
        loss = next_token_loss(model(part), part)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    split = all(hasattr(parameter, "full_tensor") for parameter in model.parameters())
    if folder is not None:
        with torch.no_grad():
            begun = inner(tokens[:2, :6], use_cache=True)
            then = inner(tokens[:2, 6:7], past_key_values=begun.past_key_values).logits
            seen["stepping_off_by"] = (then - inner(tokens[:2, :7]).logits[:, -1:]).abs().max().item()
        save_sidecar(inner, folder)
        try:
            detach(inner)
        except ValueError as refusal:
            seen["refusal"] = str(refusal)
    return {"losses": losses, "split": split, "ignored": ignored, **seen}


class Sentences(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = rows()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def trained(folder, ranks, trainer=Trainer, **more):
    """Losses of Hugging Face's Trainer, with batches of ``ROWS`` rows over all ranks."""
    AcceleratorState._reset_state()
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=ROWS // ranks,
        max_steps=STEPS,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **more,
    )
    found = trainer(model=tiny_native(hidden_dropout_prob=0.0), args=arguments, train_dataset=Sentences())
    found.train()
    split = all(hasattr(parameter, "full_tensor") for parameter in found.model.parameters())
    losses = [entry["loss"] for entry in found.state.log_history if "loss" in entry]
    return {"losses": losses, "split": split}


class ShardingTrainer(Trainer):
    """Hugging Face's Trainer on CPU ranks that may shard."""

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        allow_fsdp_on_cpu(self.accelerator, plugin("Block", "RationalHead"))
        self.is_fsdp_enabled = True


def main(file):
    found = {
        "ddp": accelerated(plain_model()),
        "fsdp2": accelerated(plain_model(), plugin("Block", "RationalHead")),
        "bfloat16": accelerated(plain_model(), plugin("Block"), "bf16"),
    }
    layer = "LlamaDecoderLayer"
    found["host-ddp"] = accelerated(host_with_sidecar(), watched=HOST)
    saved = Path(file).parent / "saved_by_ranks"
    found["host-fsdp2"] = accelerated(host_with_sidecar(), plugin(layer, "RationalHead"), watched=HOST, folder=saved)
    found["saved"] = str(saved)
    found["host-bfloat16"] = accelerated(host_with_sidecar(), plugin(layer), "bf16", watched=HOST)
    ranks = torch.distributed.get_world_size()
    with tempfile.TemporaryDirectory() as folder:
        found["trainer-ddp"] = trained(folder, ranks)
        found["trainer-fsdp2"] = trained(folder, ranks, ShardingTrainer)
    leave(file, found)
