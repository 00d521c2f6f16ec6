"""What a token of a tokenizer spells, in bytes: its part of the text, whatever stands around it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

# A tokenizer must give these back as they are.
_SAMPLES: Final = ("a b", "Ab,(c)\n", "  x1 = {2}", "é ñ ß", "漢字 かな", "🙂 q")
_BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")


class CannotSpell(ValueError):
    """A tokenizer whose tokens do not say what they spell without their context; the message says why."""


def spelled_tokens(tokenizer: Any) -> list[bytes | None]:
    """For every token what it adds to the text, in bytes of UTF-8; None for special tokens, which add nothing.

    Known are byte-level BPE (GPT-2, Llama 3, Qwen), SentencePiece's ``▁`` with or without byte fallback (Llama 2,
    Mistral, Gemma), and ByT5.  The answer is compared with what the tokenizer makes of several texts.

    Raises:
        CannotSpell: Where the text of a token depends on its neighbours, or the tokenizer changes the text it reads.
    """
    spell = _byte_of_byt5 if hasattr(tokenizer, "_utf_vocab_size") else _reader_of(tokenizer)
    special, added = set(tokenizer.all_special_ids), getattr(tokenizer, "added_tokens_decoder", {})
    spelled: list[bytes | None] = []
    for index, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))):
        known = added.get(index)
        if index in special or token is None or (known is not None and known.special):
            spelled.append(None)
        elif known is not None and not _BYTE.fullmatch(token):
            spelled.append(known.content.encode())
        else:
            spelled.append(spell(token))
    leading = b" " if writes_leading_space(tokenizer, spelled) else b""
    for sample in _SAMPLES:
        text = sample.encode()
        # Some write the space only where there is none, and cannot tell such texts apart.
        allowed = {leading + text, text} if text.startswith(b" ") else {leading + text}
        found = _spelling(tokenizer, spelled, sample)
        if found is not None and found not in allowed:
            raise CannotSpell(f"tokenizer must keep the text as it is; it reads {leading + text!r} as {found!r}")
    return spelled


def writes_leading_space(tokenizer: Any, spelled: list[bytes | None]) -> bool:
    """Whether the tokenizer writes a space before every text, as most of SentencePiece's do."""
    return _spelling(tokenizer, spelled, "a") == b" a"


def _spelling(tokenizer: Any, spelled: list[bytes | None], text: str) -> bytes | None:
    """What the tokens of ``text`` spell; None if one of them, the unknown token, spells nothing."""
    found = [spelled[index] for index in tokenizer(text, add_special_tokens=False)["input_ids"]]
    return None if None in found else b"".join(part for part in found if part is not None)


def _byte_of_byt5(token: str) -> bytes:
    return token.encode("latin-1")


def _reader_of(tokenizer: Any) -> Any:
    """The function from a token as it is written in the vocabulary to its bytes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise CannotSpell(f"tokenizer must be a fast one (of the tokenizers library), or ByT5's; got {tokenizer!r}")
    decoder = json.loads(backend.to_str())["decoder"] or {"type": "none"}
    steps = decoder.get("decoders", [decoder])
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "ByteFallback", "Fuse"}:
        table = _byte_level_table()
        return lambda token: bytes(table[character] for character in token)
    marks = {step.get("replacement", "▁") for step in steps if step["type"] == "Metaspace"}
    marks |= {step["pattern"].get("String") for step in steps if step["type"] == "Replace" and step["content"] == " "}
    if len(marks) == 1 and None not in marks and kinds <= {"Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}:
        mark, fallback = marks.pop(), "ByteFallback" in kinds

        def read(token: str) -> bytes:
            byte = _BYTE.fullmatch(token) if fallback else None
            return bytes([int(byte[1], 16)]) if byte else token.replace(mark, " ").encode()

        return read
    raise CannotSpell(
        "tokenizer must be byte-level, or mark spaces with '▁', so that a token spells the same wherever it stands; "
        f"got one that decodes by {', '.join(sorted(kinds))}"
    )


def _byte_level_table() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: itself where it can be printed."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
