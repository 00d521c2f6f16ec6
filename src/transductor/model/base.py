"""The interface of every model: what it is called with, what it returns, and how it streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from transductor.checks import check_token_ids
from transductor.injection import Inject
from transductor.model.backbone import Backbone
from transductor.model.token_positions import TokenPositions
from transductor.recurrence import Layout, Shards

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

StateT = TypeVar("StateT")


class SequenceModel(nn.Module, ABC, Generic[StateT]):
    """A model that turns tokens into logits: ``logits = model(tokens)``, or a stream, token by token.

    A stream begins with :meth:`start` and goes on with :meth:`advance`; ``StateT`` is what it remembers, a small frozen
    dataclass.  A subclass has ``config``, ``start``, and either ``_logits`` and ``_advanced``, which receive checked
    tokens and a layout, or ``forward`` and ``advance`` of its own.
    """

    takes_time_group: ClassVar[bool] = False  # whether the time axis may lie in shards on a process group

    readout: nn.Linear  # from the last features of a position to its logits

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads: they are ``0 … vocab_size − 1``."""
        size: int = self.config.vocab_size
        return size

    @property
    def output_size(self) -> int:
        """How many logits a position has."""
        return self.readout.out_features

    @property
    @abstractmethod
    def config(self) -> Any:
        """A configuration that builds this model again, without its weights."""

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        time_group: ProcessGroup | None = None,
    ) -> Tensor:
        """Return the logits ``(B, T, output_size)`` of tokens ``(B, T)``.

        Args:
            tokens: Integers in ``[0, vocab_size)``.
            mask: ``(B, T)`` bool, true where a token is real; left and right padding both work.
            lengths: ``(B)``: the same as a mask that is true below the length.
            cu_seqlens: Boundaries of documents packed into one row; nothing crosses them.
            time_group: Ranks that hold a shard of the time axis each.  Every rank has all parameters and calls this
                with the tokens (and the mask) of its shard, in the order of ranks, and gets the logits of its shard;
                ``lengths`` and ``cu_seqlens`` are those of the complete axis.  States come from a scan across ranks,
                and attention borrows the keys and values of earlier ranks.
        """
        return self._logits(
            *self.checked_call(tokens, mask=mask, lengths=lengths, cu_seqlens=cu_seqlens, time_group=time_group)
        )

    if TYPE_CHECKING:
        __call__ = forward  # what nn.Module calls: a user's type checker then knows what a model returns

    def checked_call(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        time_group: ProcessGroup | None = None,
    ) -> tuple[Tensor, Layout]:
        """Return the tokens ``(B, T)`` of a call as int64, and their layout; refuse what the model cannot read."""
        tokens = self.checked_tokens(tokens)
        if sum(given is not None for given in (mask, lengths, cu_seqlens)) > 1:
            raise ValueError("give at most one of mask, lengths and cu_seqlens")
        shards = None
        if time_group is not None:
            if not self.takes_time_group:
                raise TypeError(f"time_group must be None: {type(self).__name__} cannot work on shards of a sequence")
            shards = Shards.of(time_group, tokens.shape[1], tokens.device)
        layout = Layout.of(
            tokens.shape, tokens.device, mask=mask, lengths=lengths, cu_seqlens=cu_seqlens, shards=shards
        )
        return tokens, layout

    def checked_tokens(self, tokens: Tensor) -> Tensor:
        """Return tokens ``(B, T)`` as int64; refuse what the model cannot read."""
        if not isinstance(tokens, Tensor) or tokens.ndim != 2:
            shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ValueError(f"tokens must be a tensor of shape (B, T); got {shape}")
        check_token_ids("tokens", tokens, self.vocab_size)
        return tokens.long()

    def _logits(self, tokens: Tensor, layout: Layout) -> Tensor:
        """Return the logits of checked tokens ``(B, T)``."""
        raise NotImplementedError(f"{type(self).__name__} must have _logits, or a forward of its own")

    @abstractmethod
    def start(self, batch_size: int) -> StateT:
        """Return a stream before its first token; keep the parameters fixed while it lasts."""

    def advance(self, tokens: Tensor, state: StateT, *, mask: Tensor | None = None) -> tuple[Tensor, StateT]:
        """Return the logits ``(B, n, output_size)`` of the next n tokens of a stream, and where it then stands.

        Equal to the parallel pass to rounding, however the input is split.
        """
        tokens = self.checked_tokens(tokens)
        return self._advanced(tokens, state, Layout.of(tokens.shape, tokens.device, mask=mask))

    def _advanced(self, tokens: Tensor, state: StateT, layout: Layout) -> tuple[Tensor, StateT]:
        """Return the logits of checked tokens ``(B, n)`` that go on from a state, and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} must have _advanced, or an advance of its own")

    def parameter_count(self) -> int:
        """Count the trainable numbers."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


class BackboneModel(SequenceModel[StateT]):
    """A model around a :class:`~transductor.model.backbone.Backbone`, which holds the vocabulary and the readout."""

    takes_time_group = True
    backbone: Backbone

    def injecting(self, tokens: Tensor, layout: Layout) -> Inject | None:
        """Return what changes the stream before each layer, for checked tokens ``(B, T)``; None where nothing does."""
        return None

    def _logits(self, tokens: Tensor, layout: Layout) -> Tensor:
        inject = self.injecting(tokens, layout)
        logits: Tensor = self.backbone(tokens, TokenPositions.of(tokens, layout), inject)[0]
        return logits

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads."""
        return self.backbone.config.vocab_size

    @property
    def readout(self) -> nn.Linear:  # type: ignore[override]
        """The backbone's readout."""
        return self.backbone.readout
