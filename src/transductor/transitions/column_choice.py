"""Column-choice transitions have one entry in every column: where a state goes is a choice, and has a gain."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from transductor.checks import check_positive, one_of
from transductor.transitions.base import ChartedFamily, Sizes, Stepper
from transductor.transitions.laws import Law, OneEntryPerColumn
from transductor.transitions.stochastic import softmax_or_argmax, staying_logits

# Up to this size the kernels for full matrices are as quick as those that know the structure.
_WIDE = 64


@final
class ColumnChoiceTransitions(ChartedFamily):
    """A 0/1 matrix with one 1 in each column, times a diagonal ``γ cos θ``: PD-SSM's permutation × diagonal.

    Each column chooses its row by the largest of D logits.  The choice has no gradient; training uses that of the
    softmax in its place (straight through).  Every deterministic automaton is in the family exactly, permutations
    and resets alike, and the head never leaks: with gains ±1 it is right at every length.  O(d) a step.

    Args:
        gains: ``"signed"``, a learned gain ``γ cos θ`` for each column; or ``"fixed"`` at γ.  A gain that reaches 0
            takes the gradient of its column's choice with it, so that machines of 0 and 1 train better with ``"fixed"``
            (keep, flip and reset at d = 4, 300 steps of Adam at 0.1: five of five seeds right at 200, against two).
        gain_cap: Bound γ of the gains, which start near it.  With 1 the l1 norm of a state never grows.
        surrogate_temperature: Of the softmax whose gradient stands in for that of the choice. Annealing leaves it
            alone: at a low one the gradient of a column that is far from another choice vanishes.
    """

    name = "column_choice"
    options: ClassVar[tuple[str, ...]] = ("gains", "gain_cap", "surrogate_temperature")

    def __init__(
        self,
        *,
        gains: str = "signed",
        gain_cap: float = 1.0,
        surrogate_temperature: float = 1.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        one_of("gains", gains, ("signed", "fixed"))
        for name, value in (("gain_cap", gain_cap), ("surrogate_temperature", surrogate_temperature)):
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise ValueError(f"{name} must be a positive number; got {value!r}")
        self.gains, self.gain_cap, self.surrogate_temperature = gains, gain_cap, surrogate_temperature
        check_positive("state_dim", sizes["state_dim"])
        super().__init__(**sizes)

    def origin(self) -> Tensor:
        """Start at the identity, with θ near 0, but not at it, because the gradient vanishes there."""
        logits = staying_logits(self.state_dim, 0.9)
        return torch.cat((logits, torch.full((self.state_dim,), 0.3))) if self.gains == "signed" else logits

    def default_scale(self) -> float:
        """Return the scale of a logit or an angle, which does not depend on d."""
        return 0.1

    def start_matrix(self) -> Tensor:
        """Return γ I."""
        return self.gain_cap * torch.eye(self.state_dim)

    def scan_backend(self) -> str:
        """Ask for the scan that knows the structure, where it is quicker."""
        return "columns" if self.state_dim > _WIDE else "auto"

    def _logits_and_gains(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        size = self.state_dim
        logits = raw[..., : size**2].unflatten(-1, (size, size))
        if self.gains == "fixed":
            return logits, self.gain_cap * torch.ones_like(logits[..., 0, :])
        return logits, self.gain_cap * torch.cos(raw[..., size**2 :])

    def chart(self, raw: Tensor) -> Tensor:
        """Choose by argmax; the gradient is that of the softmax."""
        logits, gains = self._logits_and_gains(raw)
        choice = softmax_or_argmax(logits, 0.0, -2)
        # Always there: inside vmap and in forward mode the numbers do not say that a derivative is wanted of them.
        soft = torch.softmax(logits / self.surrogate_temperature, -2)
        choice = choice.detach() + (soft - soft.detach())  # the bracket is exactly 0
        return choice * gains.unsqueeze(-2)

    def stepper(self) -> Stepper:
        """Move numbers to their rows in O(d); while gradients are taken, by matrices, through which they flow."""
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters()):
            if self.vocab_size is None:
                return Stepper(lambda state, features: ChartedFamily.act(self, state, self.matrices(features)))
            return Stepper.by_matrices(self.table())
        return super().stepper()

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Return the chosen rows and the gains, ``(..., D)`` each."""
        logits, gains = self._logits_and_gains(raw)
        return logits.argmax(-2), gains

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Add up what is sent to each row."""
        images, gains = factors
        return torch.zeros_like(state).scatter_add(-1, images, gains * state)

    def step_cost(self) -> int:
        """Count one product for each coordinate."""
        return self.state_dim

    def laws(self) -> tuple[Law, ...]:
        """One entry in a column, at most the cap in size."""
        return (OneEntryPerColumn(self.gain_cap),)
