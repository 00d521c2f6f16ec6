"""How states enter a stream: ``z̃^(l) = z^(l) + W^(l) h_t`` before layer l.  Receives tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeGuard, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from transductor.checks import one_of

# Up to this many tokens without gradient are decoding: launches cost more than arithmetic and room.
_FEW = 4

Inject: TypeAlias = Callable[[int, Tensor], Tensor]


class Injection(nn.Module, ABC):
    """Adds projected states to the stream before a layer.  Subclasses are final.

    The projections of all layers are the rows of one linear map, so that they cost one product, and their gradients
    two, instead of three per layer.
    """

    name: str

    def __init__(self, state_dim: int, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.layers = self.projected_layers(layers)
        self.projections = nn.Linear(state_dim, self.layers * width, bias=False) if self.layers else None

    @staticmethod
    @abstractmethod
    def projected_layers(layers: int) -> int:
        """How many layers, from the first, receive the state."""

    def into(self, states: Tensor) -> Inject:
        """``inject(layer, stream)``, which adds ``W^(layer) states`` to the stream ``(B, T, W)``; states ``(B, T, D)``.

        All layers are projected at once, ``(B, T, L·W)``, except over long stretches without gradient: there nothing
        else is as large, so each layer is projected when its turn comes.
        """
        if self.projections is None:
            return lambda layer, stream: stream
        states = states.to(self.projections.weight.dtype)
        if torch.is_grad_enabled() or states.shape[1] <= _FEW or self.layers == 1 or not is_bare(self.projections):
            # A module call, never `.weight @`: adapters such as LoRA wrap modules.
            return self.adding(self.projections(states).chunk(self.layers, -1))

        def inject(layer: int, stream: Tensor) -> Tensor:
            if layer >= self.layers:
                return stream
            return _added(stream, functional.linear(states, cast(Tensor, self.projection(layer))))

        return inject

    def adding(self, terms: Sequence[Tensor]) -> Inject:
        """``inject(layer, stream)``, which adds the term of the layer, computed elsewhere."""

        def inject(layer: int, stream: Tensor) -> Tensor:
            return stream if layer >= len(terms) else _added(stream, terms[layer])

        return inject

    def forward(self, layer: int, stream: Tensor, states: Tensor) -> Tensor:
        """``stream (B, T, W)`` with ``states (B, T, D)`` added before ``layer``."""
        return self.into(states)(layer, stream)

    def projection(self, layer: int) -> Tensor | None:
        """``W^(l) (W, D)``, or None where nothing enters."""
        if self.projections is None or layer >= self.layers:
            return None
        return self.projections.get_parameter("weight")[layer * self.width : (layer + 1) * self.width]


def _added(stream: Tensor, term: Tensor) -> Tensor:
    """The sum on the stream's device, in its dtype; a narrower term is widened by the addition itself."""
    if term.device != stream.device:  # a model spread over several devices
        term = term.to(stream.device)
    if term.dtype != stream.dtype and torch.promote_types(term.dtype, stream.dtype) != stream.dtype:
        term = term.to(stream.dtype)
    return stream + term


def is_bare(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """A linear map that nothing has wrapped, hooked or parametrised."""
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    return "forward" not in module.__dict__  # which Accelerate replaces


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
