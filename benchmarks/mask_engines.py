"""One interface to the libraries that make masks for constrained decoding; each is imported when it is asked for."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from transductor.integrations.huggingface import PatternMask, TokenPattern, TokenVocabulary

OURS, AS_PROCESSOR = "Transductor", "Transductor, PatternMask"
LIBRARIES = ("outlines-core", "xgrammar", "llguidance")


class Engine:
    """One library: it builds patterns, and follows one text through a pattern."""

    def __init__(self, tokenizer: Any, vocabulary: TokenVocabulary) -> None:
        raise NotImplementedError

    def build(self, pattern: str) -> None:
        """Compile a pattern."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin a text."""
        raise NotImplementedError

    def make(self, token: int | None) -> None:
        """Follow a token, if there is one, and make the mask for the next."""
        raise NotImplementedError

    def apply(self, scores: Tensor) -> Tensor:
        """Return the scores ``(1, V)`` under the mask; they may be changed in place."""
        raise NotImplementedError


class Ours(Engine):
    def __init__(self, tokenizer: Any, vocabulary: TokenVocabulary) -> None:
        self.vocabulary = TokenVocabulary(tokenizer)

    def build(self, pattern: str) -> None:
        self.pattern = TokenPattern(pattern, self.vocabulary)

    def begin(self) -> None:
        self.state = self.pattern.start

    def make(self, token: int | None) -> None:
        if token is not None:
            self.state = self.pattern.after(self.state, token)
        self.row = self.pattern.ceilings(self.state)

    def apply(self, scores: Tensor) -> Tensor:
        return torch.minimum(scores, self.row, out=scores)


class OursAsProcessor(Engine):
    """What ``generate`` calls: the state is found from all tokens of the row."""

    def __init__(self, tokenizer: Any, vocabulary: TokenVocabulary) -> None:
        self.vocabulary = TokenVocabulary(tokenizer)

    def build(self, pattern: str) -> None:
        self.pattern = TokenPattern(pattern, self.vocabulary)

    def begin(self) -> None:
        self.tokens: list[int] = []
        self.mask = PatternMask(self.pattern, 0)

    def make(self, token: int | None) -> None:
        if token is not None:
            self.tokens.append(token)
        self.ids = torch.tensor([self.tokens], dtype=torch.int64)

    def apply(self, scores: Tensor) -> Tensor:
        return self.mask(self.ids, scores)


class OutlinesCore(Engine):
    def __init__(self, tokenizer: Any, vocabulary: TokenVocabulary) -> None:
        import outlines_core
        from outlines_core.kernels.torch import allocate_token_bitmask, apply_token_bitmask_inplace

        spelled: dict[bytes, list[int]] = defaultdict(list)
        for token, each in enumerate(vocabulary.spelled):
            if each:
                spelled[each].append(token)
        self.package, self.kernel = outlines_core, apply_token_bitmask_inplace
        self.vocabulary = outlines_core.Vocabulary(tokenizer.eos_token_id, dict(spelled))
        self.bits = allocate_token_bitmask(vocabulary.size)

    def build(self, pattern: str) -> None:
        self.index = self.package.Index(pattern, self.vocabulary)

    def begin(self) -> None:
        self.guide = self.package.Guide(self.index)

    def make(self, token: int | None) -> None:
        if token is not None:
            self.guide.advance(token, return_tokens=False)
        self.guide.write_mask_into(self.bits.data_ptr(), self.bits.numel(), self.bits.element_size())

    def apply(self, scores: Tensor) -> Tensor:
        self.kernel(scores, self.bits)
        return scores


class XGrammar(Engine):
    def __init__(self, tokenizer: Any, vocabulary: TokenVocabulary) -> None:
        import xgrammar

        self.package = xgrammar
        end = tokenizer.eos_token_id
        words = [each or tokenizer.eos_token.encode() for each in vocabulary.spelled]
        information = xgrammar.TokenizerInfo(
            words, xgrammar.VocabType.RAW, vocab_size=vocabulary.size, stop_token_ids=[end]
        )
        self.compiler = xgrammar.GrammarCompiler(information, max_threads=1, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, vocabulary.size)

    def build(self, pattern: str) -> None:
        self.compiled = self.compiler.compile_regex(pattern)

    def begin(self) -> None:
        self.matcher = self.package.GrammarMatcher(self.compiled)

    def make(self, token: int | None) -> None:
        if token is not None and not self.matcher.accept_token(token):
            raise RuntimeError(f"does not accept token {token}, which it allowed")
        if not self.matcher.fill_next_token_bitmask(self.bits):
            self.bits.fill_(-1)  # everything is allowed

    def apply(self, scores: Tensor) -> Tensor:
        self.package.apply_token_bitmask_inplace(scores, self.bits)
        return scores


class LLGuidance(Engine):
    def __init__(self, tokenizer: Any, vocabulary: TokenVocabulary) -> None:
        import llguidance.hf
        import llguidance.torch

        self.package, self.kernels = llguidance, llguidance.torch
        self.tokenizer = llguidance.hf.from_tokenizer(tokenizer)
        self.bits = llguidance.torch.allocate_token_bitmask(1, vocabulary.size)

    def build(self, pattern: str) -> None:
        self.matcher = self.package.LLMatcher(self.tokenizer, self.package.LLMatcher.grammar_from_regex(pattern))
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())

    def begin(self) -> None:
        self.matcher.reset()

    def make(self, token: int | None) -> None:
        if token is not None and not self.matcher.consume_token(token):
            raise RuntimeError(self.matcher.get_error() or f"does not accept token {token}, which it allowed")
        self.kernels.fill_next_token_bitmask(self.matcher, self.bits)

    def apply(self, scores: Tensor) -> Tensor:
        self.kernels.apply_token_bitmask_inplace(scores, self.bits)
        return scores


ENGINES: dict[str, type[Engine]] = {
    OURS: Ours,
    AS_PROCESSOR: OursAsProcessor,
    "outlines-core": OutlinesCore,
    "xgrammar": XGrammar,
    "llguidance": LLGuidance,
}
