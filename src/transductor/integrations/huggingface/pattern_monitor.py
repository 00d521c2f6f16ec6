"""Watches streams of text or tokens: can each still fit its pattern, and if not, since which character?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transductor.checks import check_positive
from transductor.integrations.huggingface.token_patterns import ENDED, LEFT, TokenPattern


@dataclass(frozen=True)
class Verdict:
    """What a monitor says of a stream.

    Attributes:
        status: ``"open"``: it is not complete, and can be completed; ``"complete"``: it matches as it is; or
            ``"violated"``: nothing can complete it any more.
        characters: How many complete characters fit.
        violated_at: The place of the first character that does not fit, counted from 0; where a text ended too early,
            its length.  None if nothing is violated.
    """

    status: str
    characters: int
    violated_at: int | None = None


@dataclass
class _Stream:
    state: int
    characters: int = 0
    begun: bool = False


class PatternMonitor:
    """Follows streams piece by piece through the pattern that a :class:`~.pattern_mask.PatternMask` would force.

    Args:
        pattern: What the streams have to fit.
        streams: How many streams there are.
    """

    def __init__(self, pattern: TokenPattern, streams: int = 1) -> None:
        check_positive("streams", streams)
        self.pattern = pattern
        self._streams = [_Stream(pattern.start) for _ in range(streams)]

    @property
    def states(self) -> list[int]:
        """The pattern's state after each stream, as :meth:`PatternMask.states` gives it."""
        return [stream.state for stream in self._streams]

    def feed(self, *pieces: str | bytes | int | Sequence[int]) -> list[Verdict]:
        """Read a piece of each stream, and say how each stands.

        Args:
            pieces: One for each stream: text, bytes of UTF-8 (a piece may end within a character), or a token or
                several, also as a tensor.  A stream is of text or of tokens, not of both.
        """
        if len(pieces) != len(self._streams):
            raise ValueError(f"pieces must be one for each of the {len(self._streams)} streams; got {len(pieces)}")
        for stream, piece in zip(self._streams, pieces, strict=True):
            if isinstance(piece, str | bytes):
                if not stream.begun:
                    stream.state = self.pattern.text_start
                self._read(stream, piece.encode() if isinstance(piece, str) else piece)
            else:
                self._read_tokens(stream, piece)
        return [self._verdict(stream) for stream in self._streams]

    def _read(self, stream: _Stream, spelled: bytes) -> None:
        if stream.state >= 0:
            unread = stream.state != self.pattern.text_start and not stream.begun and spelled.startswith(b" ")
            stream.state, characters = self.pattern.after_bytes(stream.state, spelled)
            stream.characters += characters - unread
            stream.begun = True

    def _read_tokens(self, stream: _Stream, piece: Any) -> None:
        for token in [piece] if isinstance(piece, int) else map(int, piece):
            state = self.pattern.after(stream.state, token)
            self._read(stream, self.pattern.vocabulary.bytes_of(token))
            stream.state = state

    def _verdict(self, stream: _Stream) -> Verdict:
        if stream.state == LEFT:
            return Verdict("violated", stream.characters, stream.characters)
        complete = stream.state == ENDED or bool(self.pattern.accepting[stream.state])
        return Verdict("complete" if complete else "open", stream.characters)
