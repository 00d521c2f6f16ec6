"""Injection: how the states of a head enter a stream, ``z̃^(l) = z^(l) + W^(l) h_t`` before layer l."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeGuard, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from transductor.checks import one_of

# Up to this many tokens without gradient are decoding, where launches cost more than arithmetic and memory.
_FEW = 4
PROJECTIONS: Final = ("linear", "zero")
"""How projections start: as those of ``nn.Linear``, or at zero."""

# Devices on which a compiled model that is trained adds the terms of its layers within other products: none, until it
# was measured on a GPU that this is quicker.
JOINED_ON: tuple[str, ...] = ()

# Called before each layer with its number and the stream (B, T, W); returns the stream.
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
        """Return how many layers, from the first on, receive the state."""

    def into(self, states: Tensor) -> Inject:
        """Return a function that adds ``W^(layer) states`` to the stream ``(B, T, W)``, for states ``(B, T, D)``.

        All layers are projected at once, ``(B, T, L·W)``, except for long inputs without gradient: there this would be
        the largest tensor, so each layer is projected when it is reached.  Where a model is compiled to be trained on a
        GPU, the function is a :class:`JoinedInjection`.
        """
        if self.projections is None:
            return lambda layer, stream: stream
        states = states.to(self.projections.weight.dtype)
        if joins_products(states) and is_bare(self.projections):
            return JoinedInjection(self, states)
        if torch.is_grad_enabled() or states.shape[1] <= _FEW or self.layers == 1 or not is_bare(self.projections):
            # A module call, never `.weight @`: adapters such as LoRA wrap modules.
            return self.adding(self.projections(states).chunk(self.layers, -1))

        def inject(layer: int, stream: Tensor) -> Tensor:
            if layer >= self.layers:
                return stream
            return _added(stream, functional.linear(states, cast(Tensor, self.projection(layer))))

        return inject

    def adding(self, terms: Sequence[Tensor]) -> Inject:
        """Return a function that adds the term of each layer, computed elsewhere, to the stream."""

        def inject(layer: int, stream: Tensor) -> Tensor:
            return stream if layer >= len(terms) else _added(stream, terms[layer])

        return inject

    def forward(self, layer: int, stream: Tensor, states: Tensor) -> Tensor:
        """Add ``states (B, T, D)`` to ``stream (B, T, W)`` before ``layer``."""
        return self.into(states)(layer, stream)

    def start_at(self, projections: str) -> None:
        """Set the projections to their start: ``"linear"`` as ``nn.Linear`` draws them, or ``"zero"``."""
        one_of("projections", projections, PROJECTIONS)
        if projections == "zero" and self.projections is not None:
            nn.init.zeros_(self.projections.get_parameter("weight"))

    def projection(self, layer: int) -> Tensor | None:
        """Return ``W^(l) (W, D)``, or None where nothing enters."""
        if self.projections is None or layer >= self.layers:
            return None
        return self.projections.get_parameter("weight")[layer * self.width : (layer + 1) * self.width]


@final
class JoinedInjection:
    """Adds ``W^(layer) states``, and hands states and ``W^(layer)`` to a layer that adds them in a product of its own.

    The last product of a layer, with d more columns, adds what the next layer receives: forward and backward then read
    and write nothing as wide as the stream.
    """

    def __init__(self, injection: Injection, states: Tensor) -> None:
        self._injection, self._states = injection, states

    def __call__(self, layer: int, stream: Tensor) -> Tensor:
        """Add the term of this layer to the stream."""
        weight = self._injection.projection(layer)
        return stream if weight is None else _added(stream, functional.linear(self._states, weight))

    def factors(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Return ``states (B, T, D)`` and ``W^(layer) (W, D)``; None where nothing enters."""
        weight = self._injection.projection(layer)
        return None if weight is None else (self._states, weight)


def joins_products(states: Tensor) -> bool:
    """Tell whether longer products cost less than added terms: where the compiler writes their factors as one."""
    return torch.compiler.is_compiling() and states.device.type in JOINED_ON and torch.is_grad_enabled()


def _added(stream: Tensor, term: Tensor) -> Tensor:
    """Add on the device of the stream and in its dtype; the addition itself widens a narrower term."""
    if term.device != stream.device:  # a model spread over several devices
        term = term.to(stream.device)
    if term.dtype != stream.dtype and torch.promote_types(term.dtype, stream.dtype) != stream.dtype:
        term = term.to(stream.dtype)
    return stream + term


def is_bare(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Tell whether a module is a linear map that nothing has wrapped, hooked or parametrised."""
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    return "forward" not in module.__dict__  # which Accelerate replaces


@final
class DeepInjection(Injection):
    """Every layer has its own projection: the paper's scheme."""

    name = "deep"

    @staticmethod
    def projected_layers(layers: int) -> int:
        """Return the number of all layers."""
        return layers


@final
class InputInjection(Injection):
    """Only the first layer receives the state; deeper ones see what it passes on.  An ablation."""

    name = "input"

    @staticmethod
    def projected_layers(layers: int) -> int:
        """Return one, for the first layer."""
        return min(1, layers)


@final
class NoInjection(Injection):
    """The states are computed and ignored.  An ablation."""

    name = "none"

    @staticmethod
    def projected_layers(layers: int) -> int:
        """Return zero: no layer."""
        return 0


INJECTIONS: Final[dict[str, type[Injection]]] = {
    injection.name: injection for injection in (DeepInjection, InputInjection, NoInjection)
}


def build_injection(name: str, state_dim: int, width: int, layers: int) -> Injection:
    """Build the injection of that name."""
    one_of("injection", name, INJECTIONS)
    return INJECTIONS[name](state_dim, width, layers)
