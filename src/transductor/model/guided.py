"""A Transformer beside a frozen machine, whose state after each token enters every layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn

from transductor.automata.python_lexing import lexical_features, python_lexing
from transductor.checks import one_of
from transductor.configuration import configuration
from transductor.injection import Inject, build_injection
from transductor.model.backbone import Backbone, BackboneConfig, BackboneState
from transductor.model.base import BackboneModel
from transductor.recurrence import Layout

MACHINES: Final = ("python_lexing",)


@configuration
@dataclass(frozen=True)
class GuidedConfig:
    """What is needed to build a :class:`GuidedTransformer` again."""

    backbone: BackboneConfig
    machine: str = "python_lexing"
    injection: str = "deep"
    permutation: int | None = None


@dataclass(frozen=True)
class GuidedState:
    """Where a stream stands: the node of the machine in each row ``(B)``, and the state of the backbone."""

    nodes: Tensor
    backbone: BackboneState

    def reordered(self, rows: Tensor) -> GuidedState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return GuidedState(self.nodes.index_select(0, rows), self.backbone.reordered(rows))


class FrozenMachine(nn.Module):
    """A deterministic machine over tokens, and what it shows at each of its nodes.

    A machine of thousands of nodes as matrices would fill memory; as a table a step is one look-up.  On an accelerator
    all rows of all chunks take each step side by side.

    Args:
        transitions: ``(nodes, V)``.
        features: What is shown at each node, ``(nodes, F)``.
    """

    def __init__(self, transitions: np.ndarray, features: np.ndarray) -> None:
        super().__init__()
        nodes, self.vocab_size = transitions.shape
        # Then a letter that changes nothing, for padding, and for each letter one that starts again and reads it.
        again = np.broadcast_to(transitions[:1], transitions.shape)
        table = np.concatenate((transitions, np.arange(nodes)[:, None], again), 1)
        self.register_buffer("table", torch.tensor(table, dtype=torch.int32))
        self.register_buffer("features", torch.tensor(features, dtype=torch.float32))

    def letters(self, tokens: Tensor, layout: Layout) -> Tensor:
        """Return what the machine reads for tokens ``(B, T)``, some of which may be padding or begin a document."""
        letters = tokens.long()
        if layout.offsets is not None:
            begins = torch.zeros(tokens.shape[1] + 1, dtype=torch.bool, device=tokens.device)
            begins[layout.offsets] = True
            letters = torch.where(begins[:-1], letters + self.vocab_size + 1, letters)
        return letters if layout.mask is None else letters.where(layout.mask, self.vocab_size)

    def walked(self, letters: Tensor, nodes: Tensor, *, chunk: int | None = None) -> Tensor:
        """Return the node after each letter ``(B, T)``, from nodes ``(B)``.

        Chunks of ``chunk`` letters go side by side; None takes √T of them on an accelerator, else one of them all.
        """
        time = letters.shape[1]
        if time == 0:
            return letters
        table, width = self.get_buffer("table").flatten(), self.get_buffer("table").shape[1]

        def after(at: Tensor, letter: Tensor) -> Tensor:
            return table[at * width + letter].long()

        if chunk is None:
            chunk = time if letters.device.type == "cpu" else max(1, round(time**0.5))
        whole = -(-time // chunk) * chunk
        padded = nn.functional.pad(letters, (0, whole - time), value=self.vocab_size).unflatten(1, (-1, chunk))
        entering = [nodes]
        if padded.shape[1] > 1:  # where every node is led by each chunk, all chunks at once
            led = torch.arange(len(self.get_buffer("table")), device=letters.device).expand(*padded.shape[:2], -1)
            for step in range(chunk):
                led = after(led, padded[:, :, step, None])
            for place in range(padded.shape[1] - 1):
                entering.append(led[:, place].gather(1, entering[-1][:, None])[:, 0])
        at, walked = torch.stack(entering, 1), []
        for step in range(chunk):
            at = after(at, padded[:, :, step])
            walked.append(at)
        return torch.stack(walked, 2).flatten(1)[:, :time]

    def shown(self, nodes: Tensor) -> Tensor:
        """Return the features ``(..., F)`` of nodes."""
        return self.get_buffer("features")[nodes]


@final
class GuidedTransformer(BackboneModel[GuidedState]):
    """A Transformer that is told, before every layer, what a machine known beforehand says of the tokens so far.

    The machine has no parameters; the projections of what it shows start at zero, so that the model starts as its
    Transformer.

    Args:
        backbone: The sizes of the Transformer.
        machine: ``"python_lexing"``: the lexical machine of Python, over bytes; see
            :mod:`transductor.automata.python_lexing`.
        injection: ``"deep"`` (every layer), ``"input"`` (the first) or ``"none"``.
        permutation: The seed of a permutation of the letters, for a placebo: as many states that move as much, and mean
            nothing.
    """

    takes_time_group = False

    def __init__(
        self,
        backbone: BackboneConfig,
        machine: str = "python_lexing",
        *,
        injection: str = "deep",
        permutation: int | None = None,
    ) -> None:
        super().__init__()
        one_of("machine", machine, MACHINES)
        if backbone.vocab_size != 256:
            raise ValueError(
                f"backbone must read the 256 bytes, as {machine} does; it has {backbone.vocab_size} tokens"
            )
        self.machine_name, self.permutation = machine, permutation
        transitions, features = _machine()
        if permutation is not None:
            transitions = transitions[:, np.random.default_rng(permutation).permutation(256)]
        self.machine = FrozenMachine(transitions, features)
        self.injection = build_injection(injection, features.shape[1], backbone.width, backbone.layers)
        self.injection.start_at("zero")
        self.backbone = Backbone(backbone)

    @property
    def config(self) -> GuidedConfig:
        """The configuration of the backbone, the machine and the injection."""
        return GuidedConfig(self.backbone.config, self.machine_name, self.injection.name, self.permutation)

    def states(self, tokens: Tensor, layout: Layout) -> Tensor:
        """Return what the machine shows after each of checked tokens ``(B, T)``."""
        nodes = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        return self.machine.shown(self.machine.walked(self.machine.letters(tokens, layout), nodes))

    def injecting(self, tokens: Tensor, layout: Layout) -> Inject:
        """Return what adds the machine's states to the stream before each layer."""
        return self.injection.into(self.states(tokens, layout))

    def start(self, batch_size: int) -> GuidedState:
        """Return a stream before its first token."""
        backbone = self.backbone.start(batch_size)
        return GuidedState(torch.zeros_like(backbone.seen), backbone)

    def _advanced(self, tokens: Tensor, state: GuidedState, layout: Layout) -> tuple[Tensor, GuidedState]:
        nodes = self.machine.walked(self.machine.letters(tokens, layout), state.nodes)
        inject = self.injection.into(self.machine.shown(nodes))
        positions = state.backbone.next_positions(tokens, layout.mask)
        logits, backbone = self.backbone(tokens, positions, inject, state.backbone)
        return logits, replace(state, nodes=nodes[:, -1] if nodes.shape[1] else state.nodes, backbone=backbone)


@cache
def _machine() -> tuple[np.ndarray, np.ndarray]:
    machine = python_lexing()
    assert machine.start == 0
    return np.asarray(machine.transitions), lexical_features()[machine.outputs]
