"""Compile a regular expression into a frozen sidecar that is exact at every length, for a decoder's own tokens.

    python examples/frozen_regex_sidecar.py

The expression describes the texts that do *not* end inside a quotation.  A small GPT-2 learns from short texts to mark
every token inside one; only the projections and the last layer are trained.  It is then judged on texts a hundred times
as long.
"""

from __future__ import annotations

import argparse
import random
import re
from itertools import accumulate

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2ForTokenClassification, PreTrainedTokenizerFast

from transductor.integrations.huggingface import attach, compile_for_tokens

OUTSIDE = r'(?s:[^"]|"[^"]*")*'
WORDS = ["the", "cat", "said", '"', ' "', '",', "so", "be", "it", "naïve", "\n", "and", "then"]


def text(words: int, seed: int) -> str:
    """Return words and quotation marks at random."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def byte_pair_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer like GPT-2's, learned here from a few texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator([text(200, seed) for seed in range(50)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def example(tokenizer: PreTrainedTokenizerFast, words: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens ``(1, T)`` and, by Python's ``re``, whether the text ends inside a quotation after each."""
    written = text(words, seed)
    encoded = tokenizer(written, return_offsets_mapping=True, return_tensors="pt")
    ends = encoded["offset_mapping"][0, :, 1].tolist()
    if words > 100:  # `re` takes quadratic time over all prefixes; an odd number of marks means the same
        marks = list(accumulate((letter == '"' for letter in written), initial=0))
        inside = [marks[end] % 2 for end in ends]
    else:
        inside = [int(re.fullmatch(OUTSIDE, written[:end]) is None) for end in ends]
    return encoded["input_ids"], torch.tensor([inside])


def main() -> None:
    """Compile, attach, train and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    arguments = parser.parse_args()

    tokenizer = byte_pair_tokenizer()
    quotation = compile_for_tokens(OUTSIDE, tokenizer)
    ways = quotation.head.transitions.vocab_size
    print(f"{len(tokenizer)} tokens act on {quotation.head.state_dim} states in {ways} ways")

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=4096, num_labels=2, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    model = GPT2ForTokenClassification(config)
    model.requires_grad_(False)
    model.classifier.requires_grad_(True)
    sidecar = attach(model, quotation.head, token_classes=quotation.token_classes)
    trained = [name for name, each in model.named_parameters() if each.requires_grad]
    print("trained:", ", ".join(trained))

    optimiser = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 2e-2)
    for step in range(arguments.steps):
        tokens, labels = example(tokenizer, 30, step)
        loss = model(tokens, labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if step % max(1, arguments.steps // 5) == 0:
            print(f"step {step:4}  loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        for words in (30, 2500):
            tokens, labels = example(tokenizer, words, 10**6)
            right = (model(tokens).logits.argmax(-1) == labels).double().mean().item()
            print(f"{tokens.shape[1]:5} tokens: {right:.2%} right")
        tokens, labels = example(tokenizer, 100_000, 10**6 + 1)
        states = sidecar.rational_head(sidecar.token_classes[tokens])
        exact = quotation.accepting[states.argmax(-1)] == (labels == 0)
        print(f"the head itself, {tokens.shape[1]:,} tokens: {exact.double().mean().item():.2%} right")


if __name__ == "__main__":
    main()
