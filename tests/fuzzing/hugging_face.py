"""The readers that need transformers: configurations, tokenizers and sidecars."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from tests.fuzzing.meaning import document, means, same, tensors_in
from tests.fuzzing.readers import check_tensors, forge_bundle
from tests.fuzzing.running import Reader
from tests.integrations.test_token_automata import byte_level, sentencepiece
from tests.integrations.tiny_hosts import tiny_host, with_sidecar
from transductor.configuration import ConfigurationError, to_plain
from transductor.heads import RationalHead
from transductor.integrations.huggingface import RationalTransductorConfig
from transductor.integrations.huggingface.sidecar import detach
from transductor.integrations.huggingface.sidecar_storage import load_sidecar, save_sidecar
from transductor.integrations.huggingface.token_spelling import CannotSpell, spelled_tokens
from transductor.model import CheckpointError
from transductor.transitions import CayleyTransitions

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "small": {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "state_dim": 2},
    "sliding": {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                "sliding_window": 4, "head": RationalHead(CayleyTransitions(state_dim=2, vocab_size=8)),
                "frozen_parameters": ["rational_head.raw_initial_state"], "pad_token_id": 0},
}  # fmt: skip
SPELLED = {"bytes": byte_level, "sentencepiece": sentencepiece}
OURS = {
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_dropout_prob",
    "classifier_dropout", "attention", "sliding_window", "injection", "state_dim", "use_cache", "tie_word_embeddings",
}  # fmt: skip


def write_configuration(settings: dict[str, Any], folder: Path) -> None:
    RationalTransductorConfig(**settings).save_pretrained(folder)


def check_configuration(folder: Path, config: RationalTransductorConfig) -> None:
    said = document(folder / "config.json")
    for name in OURS & said.keys():
        if said[name] is not None or getattr(config, name) is None:
            assert same(said[name], getattr(config, name)), f"{name} is another than the file's"
    for name in {"head", "positions"} & said.keys():
        if isinstance(said[name], dict):
            assert means(said[name], getattr(config, name)), f"{name} is another than the file's"
    assert [*config.frozen_parameters] == sorted(said.get("frozen_parameters", []))


def read_tokens(folder: Path) -> Any:
    """What the tokenizers' own reader refuses is refused there; what it takes is spelled."""
    path = folder / "tokenizer.json"
    try:
        if not path.is_file() or path.stat().st_size > 2**24:
            raise ValueError("not a file")
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(path.read_text(encoding="utf-8")))
        tokenizer.convert_ids_to_tokens([0])
    except BaseException as error:  # tokenizers panics in a class of its own
        if isinstance(error, KeyboardInterrupt | SystemExit | TimeoutError | MemoryError):
            raise
        raise CannotSpell("the library of tokenizers does not read it") from None
    return tokenizer, spelled_tokens(tokenizer)


def check_tokens(folder: Path, read: Any) -> None:
    tokenizer, spelled = read
    assert len(spelled) == len(tokenizer)
    assert all(each is None or isinstance(each, bytes) for each in spelled)


def write_tokenizer(name: str, folder: Path) -> None:
    (folder / "tokenizer.json").write_text(SPELLED[name]().backend_tokenizer.to_str())


def hugging_face_readers() -> list[Reader]:
    """The readers that need transformers."""
    host = tiny_host("gpt2")

    def read_sidecar(folder: Path) -> Any:
        try:
            return load_sidecar(host, folder)
        finally:
            if hasattr(host.base_model, "rational_sidecar"):
                detach(host)

    def check_sidecar(folder: Path, sidecar: Any) -> None:
        plain = document(folder / "sidecar.json")
        assert means(plain["head"], to_plain(sidecar.rational_head.config)), "its head is another than the file's"
        assert [*sidecar.layers] == sorted(plain["layers"])
        check_tensors(sidecar, tensors_in(folder / plain["weights"]))
        assert {name for name, each in sidecar.named_parameters() if each.requires_grad} == set(plain["trainable"])

    return [
        Reader(
            "Hugging Face configurations",
            {name: partial(write_configuration, settings) for name, settings in CONFIGURATIONS.items()},
            lambda folder: RationalTransductorConfig.from_pretrained(folder, local_files_only=True),
            (ConfigurationError,), check_configuration, share=2.0,
        ),
        Reader(
            "Hugging Face tokenizers", {name: partial(write_tokenizer, name) for name in SPELLED}, read_tokens,
            (CannotSpell,), check_tokens, share=0.5, names_file=False,
        ),
        Reader(
            "sidecars", {"sidecar": lambda folder: save_sidecar(with_sidecar("gpt2"), folder)}, read_sidecar,
            (CheckpointError,), check_sidecar, forge_bundle("sidecar.json"), share=1.0,
        ),
    ]  # fmt: skip
