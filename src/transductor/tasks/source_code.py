"""Source code, byte by byte: the label at a position is the byte that comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.configuration import configuration
from transductor.corpora import Corpus, built_from_standard_library, corpora_folder, opened
from transductor.tasks.base import Task

SMALL: Final = "standard_library"
"""The corpus that is made where it is asked for, of this Python's own library."""


@final
@configuration
@dataclass(frozen=True)
class SourceCode(Task):
    """Windows of a corpus of source code, of which each byte is to be predicted from those before it.

    Windows begin where a file does, or a statement outside of strings and brackets, each such place being equally
    likely; so what begins there does not depend on what came before.  Training reads the training part alone.

    The corpus is that of the name in :func:`transductor.corpora.corpora_folder`; ``transductor corpus`` makes it.

    Args:
        corpus: The name of a corpus; ``"standard_library"`` is made of this Python's own library when it is missing.
        sha256: The hash of its parts; a corpus with another one is refused.  Empty: any.
    """

    corpus: str = SMALL
    sha256: str = ""
    title: ClassVar[str] = "the next byte of source code, corpus {corpus}"
    vocab_size: ClassVar[int] = 256
    output_size: ClassVar[int] = 256

    @property
    def shortest(self) -> int:
        """Two bytes: the first one's label is the second."""
        return 2

    def opened(self) -> Corpus:
        """Return the corpus.

        Raises:
            ValueError: If it is missing, or another one.
        """
        return _opened(self.corpus, self.sha256)

    def drawn(self, batch_size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return windows ``(B, T)`` of the training part, and the byte after each position ``(B, T)``."""
        windows = self._windows(batch_size, length + 1, generator)
        return windows[:, :-1], windows[:, 1:]

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return self._windows(batch_size, length, generator)

    def _windows(self, batch_size: int, length: int, generator: torch.Generator) -> Tensor:
        data, begins = _training(self.corpus, self.sha256)
        usable = int(np.searchsorted(begins, len(data) - length, side="right"))
        if not usable:
            raise ValueError(f"length must be at most {len(data)} in {self.name}; got {length}")
        chosen = begins[torch.randint(usable, (batch_size,), generator=generator).numpy()]
        return torch.from_numpy(data[chosen[:, None] + np.arange(length)].astype(np.int64))

    def _labels(self, tokens: Tensor) -> Tensor:
        return torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=IGNORED)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        longest = max(self.opened().files("test"), key=len)
        repeated = longest * -(-length // len(longest))
        return {"the longest file": list(repeated[:length])}


@cache
def _opened(name: str, sha256: str) -> Corpus:
    folder = corpora_folder() / name
    if name == SMALL and not (folder / "manifest.json").is_file():
        built_from_standard_library(folder)
    corpus = opened(folder)
    if sha256 and corpus.sha256 != sha256:
        raise ValueError(f"{folder} holds another corpus: its sha256 is {corpus.sha256}, not {sha256}")
    return corpus


@cache
def _training(name: str, sha256: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    corpus = _opened(name, sha256)
    return corpus.part("training"), corpus.begins("training")
