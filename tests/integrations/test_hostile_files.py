"""Altered Hugging Face configurations, tokenizers and sidecars are refused, or read as what they say."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from tests.fuzzing.hugging_face import hugging_face_readers
from tests.fuzzing.running import Fuzzer, shared_out
from transductor.configuration import ConfigurationError
from transductor.integrations.huggingface import RationalTransductorConfig

IN_ALL = 500


@pytest.fixture(scope="module")
def readers():
    return {reader.name: reader for reader in hugging_face_readers()}


@pytest.mark.parametrize("name", ["Hugging Face configurations", "Hugging Face tokenizers", "sidecars"])
def test_what_is_altered_is_refused_or_means_what_it_says(readers, name, tmp_path):
    count = shared_out([*readers.values()], IN_ALL)[name]
    tally = Fuzzer(readers[name], tmp_path).run(count)
    assert tally.failures == []
    assert tally.outcomes.total() == count
    assert tally.outcomes["refused"] > count / 4


def test_a_folder_without_a_configuration_is_not_the_default_one(tmp_path):
    """transformers would take the defaults, without a word."""
    with pytest.raises(ConfigurationError, match=r"config\.json cannot be read"):
        RationalTransductorConfig.from_pretrained(tmp_path, local_files_only=True)
