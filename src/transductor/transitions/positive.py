"""Positive transitions weigh every way from state to state: transition times emission of a hidden Markov model."""

from __future__ import annotations

from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from transductor.transitions.base import ChartedFamily, Sizes
from transductor.transitions.laws import Law, Positive


@final
class PositiveTransitions(ChartedFamily):
    """``exp(θ) + leak · mean(exp(θ))``, for a :class:`~transductor.heads.FilterHead`, which divides by the sum.

    With ``M_x[to, from]`` the probability of going from one state to another and showing x, products of these matrices
    are the forward algorithm.  The scale of a matrix is free: it enters the likelihood, not the belief.

    Training starts at θ = I + 0.5·N(0, 1), which breaks the symmetry of the states; learn it with Adam at 0.1, betas
    (0.9, 0.99), and take twice as many states as you expect.

    Args:
        leak: Share of the mean entry that every entry has.  Without it a filter may come to a reading that it holds
            impossible, and no belief is left; and where beliefs mix, the leak bounds how long a mistake lasts.
    """

    name = "positive"
    options: ClassVar[tuple[str, ...]] = ("leak",)

    def __init__(self, *, leak: float = 1e-6, **sizes: Unpack[Sizes]) -> None:
        if not (isinstance(leak, (int, float)) and 0 <= leak < 1):
            raise ValueError(f"leak must lie in [0, 1); got {leak!r}")
        self.leak = leak
        super().__init__(**sizes)

    def origin(self) -> Tensor:
        """Start at θ = I."""
        return torch.eye(self.state_dim).flatten()

    def default_scale(self) -> float:
        """Return the scale of a logarithm, which does not depend on d."""
        return 0.5

    def start_matrix(self) -> None:
        """Promise nothing: states that began alike would stay alike."""

    def chart(self, raw: Tensor) -> Tensor:
        """Take exponentials, and add the leak."""
        weights: Tensor = raw.unflatten(-1, (self.state_dim, self.state_dim)).exp()
        mean: Tensor = weights.mean((-2, -1), keepdim=True)
        return weights + self.leak * mean

    def start_from(self, raw: Tensor) -> Tensor:
        """Return a distribution."""
        return torch.softmax(raw, -1)

    def laws(self) -> tuple[Law, ...]:
        """Entries are positive, and none is far below the mean."""
        return (Positive(self.leak / (1 + self.leak)),)
