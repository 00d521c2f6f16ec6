"""What a task owns: its alphabet, its sampler, its truth, and the inputs an enemy would choose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Task"]


@dataclass(frozen=True)
class Task(ABC):
    """Tokens in, a label at every position out.  Subclasses are final, frozen and name no network."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the task everywhere: command, file, figure."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Tokens are in ``[0, vocab_size)``."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Labels are in ``[0, output_size)``."""

    @abstractmethod
    def sample(self, batch_size: int, length: int, generator: torch.Generator) -> Tensor:
        """Random tokens ``(B, T)``."""

    @abstractmethod
    def truth(self, tokens: Tensor) -> Tensor:
        """The right label at every position, ``(B, T)``."""

    @abstractmethod
    def adversarial(self, length: int) -> dict[str, Tensor]:
        """Named inputs ``(B, T)`` that random ones hide."""

    @property
    def chance(self) -> float:
        """Accuracy of a guess."""
        return 1 / self.output_size
