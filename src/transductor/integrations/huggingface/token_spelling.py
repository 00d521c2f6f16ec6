"""Finds out which bytes each token of a tokenizer adds to the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from transformers.convert_slow_tokenizer import bytes_to_unicode

# A tokenizer must not change these texts.
_SAMPLES: Final = ("a b", "Ab,(c)\n", "  x1 = {2}", "é ñ ß", "漢字 かな", "🙂 q")
_BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")


class CannotSpell(ValueError):
    """The error for a tokenizer whose tokens spell different texts in different contexts; the message says why."""


def spelled_tokens(tokenizer: Any) -> list[bytes | None]:
    """Return, for every token, the bytes of UTF-8 that it adds to the text; None for special tokens.

    This knows byte-level BPE (GPT-2, Llama 3, Qwen), SentencePiece's ``▁`` with or without byte fallback (Llama 2,
    Mistral, Gemma), and ByT5.  The result is compared with the tokens of several sample texts.

    Raises:
        CannotSpell: If the text of a token depends on its neighbours, or the tokenizer changes the text it reads.
    """
    spell = _speller(tokenizer)
    special, added = set(tokenizer.all_special_ids), getattr(tokenizer, "added_tokens_decoder", {})
    spelled: list[bytes | None] = []
    for index, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))):
        known = added.get(index)
        if index in special or token is None or (known is not None and known.special):
            spelled.append(None)
        elif known is not None and not _BYTE.fullmatch(token):
            spelled.append(known.content.encode())
        else:
            try:
                spelled.append(spell(token))
            except KeyError as error:  # of bytes that have no such character
                raise CannotSpell(
                    f"tokenizer must write bytes as GPT-2's does; the token {token!r:.40} has {error}"
                ) from None
    leading = b" " if writes_leading_space(tokenizer, spelled) else b""
    for sample in _SAMPLES:
        text = sample.encode()
        # Some tokenizers add a space only if the text does not begin with one.
        allowed = {leading + text, text} if text.startswith(b" ") else {leading + text}
        spelling = _spelling(tokenizer, spelled, sample)
        if spelling is not None and spelling not in allowed:
            raise CannotSpell(f"tokenizer must keep the text as it is; it reads {leading + text!r} as {spelling!r}")
    return spelled


def writes_leading_space(tokenizer: Any, spelled: list[bytes | None]) -> bool:
    """Tell whether the tokenizer writes a space before every text, as most of SentencePiece's do."""
    return _spelling(tokenizer, spelled, "a") == b" a"


def _spelling(tokenizer: Any, spelled: list[bytes | None], text: str) -> bytes | None:
    """Return what the tokens of ``text`` spell; None if one of them is the unknown token, which spells nothing."""
    numbers = tokenizer(text, add_special_tokens=False)["input_ids"]
    if any(not 0 <= index < len(spelled) for index in numbers):
        raise CannotSpell(f"tokenizer must number its tokens from 0 to {len(spelled) - 1}; it reads {max(numbers)}")
    parts = [spelled[index] for index in numbers]
    return None if None in parts else b"".join(part for part in parts if part is not None)


def _speller(tokenizer: Any) -> Callable[[str], bytes]:
    """Return the function from a token, as the vocabulary writes it, to its bytes."""
    if hasattr(tokenizer, "_utf_vocab_size"):  # ByT5
        return lambda token: token.encode("latin-1")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise CannotSpell(f"tokenizer must be a fast one (of the tokenizers library), or ByT5's; got {tokenizer!r}")
    decoder = json.loads(backend.to_str())["decoder"] or {"type": "none"}
    steps = decoder.get("decoders", [decoder])
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "ByteFallback", "Fuse"}:
        bytes_of_characters = {character: byte for byte, character in bytes_to_unicode().items()}
        return lambda token: bytes(bytes_of_characters[character] for character in token)
    marks = {step.get("replacement", "▁") for step in steps if step["type"] == "Metaspace"}
    marks |= {step["pattern"].get("String") for step in steps if step["type"] == "Replace" and step["content"] == " "}
    if len(marks) == 1 and None not in marks and kinds <= {"Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}:
        mark, fallback = marks.pop(), "ByteFallback" in kinds

        def spell(token: str) -> bytes:
            byte = _BYTE.fullmatch(token) if fallback else None
            return bytes([int(byte[1], 16)]) if byte else token.replace(mark, " ").encode()

        return spell
    raise CannotSpell(
        "tokenizer must be byte-level, or mark spaces with '▁', so that a token spells the same wherever it stands; "
        f"got one that decodes by {', '.join(sorted(kinds))}"
    )
