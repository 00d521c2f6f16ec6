"""Attach a state that can count to a decoder of Hugging Face, and compare the decoder with and without it.

    python examples/attach_to_a_decoder.py                          # a small Llama, built here
    python examples/attach_to_a_decoder.py --model gpt2 --frozen    # a pretrained one; train the sidecar alone

The task: after every bit, the number of ones so far modulo 3.  Both models see 24 bits in training.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from transductor.integrations.huggingface import attach, detach, head_for, save_sidecar

MODULUS, TRAINED, LONGER = 3, 24, 48


def host(name: str | None) -> Any:
    """Return a pretrained decoder, or a small one with random weights."""
    if name is not None:
        return AutoModelForCausalLM.from_pretrained(name)
    torch.manual_seed(0)
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, **small))


def examples(count: int, length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bits ``(B, T)`` and, at every position, the number of ones so far modulo 3."""
    bits = torch.randint(0, 2, (count, length), generator=torch.Generator().manual_seed(seed))
    return bits, bits.cumsum(1) % MODULUS


def train(model: Any, steps: int) -> None:
    """Train in a plain loop; Hugging Face's Trainer works as well."""
    optimiser = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 3e-3)
    model.train()
    for step in range(steps):
        bits, counts = examples(32, min(TRAINED, 3 + 40 * step // steps), step)  # short sequences first
        logits = model(bits, use_cache=False).logits
        loss = F.cross_entropy(logits.transpose(1, 2), counts, label_smoothing=0.1)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if step % max(1, steps // 4) == 0:
            print(f"  step {step:4}  loss {loss.item():.3f}")
    model.eval()


@torch.no_grad()
def accuracy(model: Any, length: int) -> float:
    """Return the fraction of right answers over all positions."""
    bits, counts = examples(64, length, 10**6)
    return (model(bits).logits.argmax(-1) == counts).double().mean().item()


def main() -> None:
    """Train both, compare them, and detach the sidecar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of the Hub or a folder; a small random Llama otherwise")
    parser.add_argument("--frozen", action="store_true", help="train the sidecar alone")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save", help="folder for the sidecar")
    arguments = parser.parse_args()

    accuracies = {}
    for name in ("bare", "with a sidecar"):
        print(name)
        model = host(arguments.model)
        model.requires_grad_(not arguments.frozen)
        if name != "bare":
            attach(model, head_for(model, state_dim=8))
        if any(each.requires_grad for each in model.parameters()):
            train(model, arguments.steps)
        accuracies[name] = accuracy(model, TRAINED), accuracy(model, LONGER)
    print(f"{'right, at length':16} {TRAINED:>8} {LONGER:>8}")
    for name, (short, longer) in accuracies.items():
        print(f"{name:16} {short:8.1%} {longer:8.1%}")
    if arguments.save:
        print(f"written: {save_sidecar(model, arguments.save)}")
    detach(model)


if __name__ == "__main__":
    main()
