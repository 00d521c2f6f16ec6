"""How states enter a stream: ``z̃^(l) = z^(l) + W^(l) h_t`` before layer l.  Receives tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from transductor.notation import one_of

__all__ = ["INJECTIONS", "DeepInjection", "Injection", "InputInjection", "NoInjection", "build_injection"]


class Injection(nn.Module, ABC):
    """Adds projected states to the stream before a layer.  Subclasses are final."""

    name: str

    def __init__(self, state_dim: int, width: int, layers: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(
            nn.Linear(state_dim, width, bias=False) for _ in range(self.projected_layers(layers))
        )

    @staticmethod
    @abstractmethod
    def projected_layers(layers: int) -> int:
        """How many layers, from the first, receive the state."""

    def forward(self, layer: int, stream: Tensor, states: Tensor) -> Tensor:
        """``stream (B, T, W)`` with ``states (B, T, D)`` added before ``layer``."""
        if layer >= len(self.projections):
            return stream
        projection = self.projections[layer]
        # A module call, never `.weight @`: adapters such as LoRA wrap modules.
        projected: Tensor = projection(states.to(next(projection.parameters()).dtype))
        return stream + projected.to(stream.dtype)

    def at_once(self, states: Tensor) -> Tensor | None:
        """``W^(l) h`` of all layers side by side, ``(B, T, L·W)``, by one product; None when it must not be.

        For the few tokens of a decoding step: one launch instead of one per layer.  A projection that something else
        has wrapped keeps its own call.
        """
        if len(self.projections) < 2 or not all(map(_is_bare, self.projections)):
            return None
        weights = torch.cat([projection.get_parameter("weight") for projection in self.projections])
        return functional.linear(states.to(weights.dtype), weights)

    def projection(self, layer: int) -> Tensor | None:
        """``W^(l) (W, D)``, or None where nothing enters."""
        return self.projections[layer].get_parameter("weight") if layer < len(self.projections) else None


def _is_bare(module: nn.Module) -> bool:
    """A linear map that nothing has wrapped, hooked or parametrised."""
    return type(module) is nn.Linear and not (module._forward_hooks or module._forward_pre_hooks)


@final
class DeepInjection(Injection):
    """Every layer has its own projection: the paper's scheme."""

    name = "deep"

    @staticmethod
    def projected_layers(layers: int) -> int:
        """All."""
        return layers


@final
class InputInjection(Injection):
    """Only the first layer sees the state; deeper ones must carry it along.  An ablation."""

    name = "input"

    @staticmethod
    def projected_layers(layers: int) -> int:
        """The first."""
        return min(1, layers)


@final
class NoInjection(Injection):
    """The states are computed and ignored.  An ablation."""

    name = "none"

    @staticmethod
    def projected_layers(layers: int) -> int:
        """None."""
        return 0


INJECTIONS: Final[dict[str, type[Injection]]] = {
    injection.name: injection for injection in (DeepInjection, InputInjection, NoInjection)
}


def build_injection(name: str, state_dim: int, width: int, layers: int) -> Injection:
    """The injection of that name."""
    one_of("injection", name, INJECTIONS)
    return INJECTIONS[name](state_dim, width, layers)
