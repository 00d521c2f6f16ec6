"""How many ones so far, modulo k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from transductor.configuration import configuration
from transductor.notation import check_positive, check_token_ids
from transductor.tasks.base import Task

__all__ = ["ModularCounting"]


@final
@configuration
@dataclass(frozen=True)
class ModularCounting(Task):
    """Binary tokens; the label at t is the number of ones up to and including t, modulo ``modulus``."""

    modulus: int = 5

    def __post_init__(self) -> None:
        check_positive("modulus", self.modulus)

    @property
    def name(self) -> str:
        """``mod-k counting``."""
        return f"mod-{self.modulus} counting"

    @property
    def vocab_size(self) -> int:
        """Zero and one."""
        return 2

    @property
    def output_size(self) -> int:
        """The residues."""
        return self.modulus

    def sample(self, batch_size: int, length: int, generator: torch.Generator) -> Tensor:
        """Fair coins."""
        return torch.randint(0, 2, (batch_size, length), generator=generator)

    def truth(self, tokens: Tensor) -> Tensor:
        """Exact in integers."""
        check_token_ids("tokens", tokens, 2)
        return tokens.long().cumsum(-1) % self.modulus

    def adversarial(self, length: int) -> dict[str, Tensor]:
        """On fair coins a wrong angle partly cancels; all ones and all zeros add it up, each for its letter."""
        ones = torch.ones(1, length, dtype=torch.long)
        return {"all ones": ones, "all zeros": 1 - ones, "alternating": torch.arange(length)[None] % 2}
