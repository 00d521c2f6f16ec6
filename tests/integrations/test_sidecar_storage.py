"""A sidecar is saved in files of its own, or inside a PEFT adapter."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from tests.comparison import assert_same
from tests.integrations.tiny_hosts import logits, some_tokens, tiny_host, with_sidecar
from transductor.integrations.huggingface.sidecar import detach, sidecar_of
from transductor.integrations.huggingface.sidecar_storage import load_sidecar, save_sidecar
from transductor.model.bundle import CheckpointError


class TestStorage:
    def test_what_was_frozen_stays_frozen(self, tmp_path):
        model = with_sidecar("llama")
        head = sidecar_of(model).rational_head
        head.raw_initial_state.requires_grad_(False)
        save_sidecar(model, tmp_path)
        detach(model)
        loaded = load_sidecar(model, tmp_path)
        trainable = {name for name, value in loaded.named_parameters() if value.requires_grad}
        assert trainable == {"injection.projections.weight", "rational_head.transitions.source.raw"}
        assert torch.equal(loaded.rational_head.raw_initial_state, head.raw_initial_state)

    def test_it_is_small_and_holds_nothing_of_the_host(self, tmp_path):
        model = with_sidecar("llama")
        save_sidecar(model, tmp_path)
        files = {path.suffix: path for path in tmp_path.iterdir()}
        assert files.keys() == {".json", ".safetensors"}
        numbers = sum(value.numel() for value in sidecar_of(model).state_dict().values())
        assert files[".safetensors"].stat().st_size < 4 * numbers + 1000

    @pytest.mark.parametrize(
        ("model_type", "options", "message"),
        [
            ("llama", {"vocab_size": 65}, "vocab_size 64; this one has .*vocab_size 65"),
            ("llama", {"hidden_size": 64}, "width 32.*; this one has .*width 64"),
            ("llama", {"num_hidden_layers": 3}, "layers 2.*; this one has .*layers 3"),
            ("qwen2", {}, "model_type llama.*; this one has model_type qwen2"),
        ],
    )
    def test_another_host_is_refused(self, tmp_path, model_type, options, message):
        save_sidecar(with_sidecar("llama"), tmp_path)
        other = tiny_host(model_type, **options)
        with pytest.raises(CheckpointError, match=message):
            load_sidecar(other, tmp_path)
        with pytest.raises(ValueError, match="no sidecar"):
            sidecar_of(other)

    def test_damage_is_refused(self, tmp_path):
        model = with_sidecar("llama")
        save_sidecar(model, tmp_path)
        detach(model)
        manifest, weights = tmp_path / "sidecar.json", next(tmp_path.glob("*.safetensors"))
        whole, described = weights.read_bytes(), json.loads(manifest.read_text())
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(CheckpointError, match="truncated or altered"):
            load_sidecar(model, tmp_path)
        weights.write_bytes(whole)
        manifest.write_text(json.dumps(described | {"layers": [0]}))
        with pytest.raises(CheckpointError, match="its seal is not"):
            load_sidecar(model, tmp_path)
        del described["seal"]
        for change, message in (
            ({"layers": [0]}, "does not fit"),
            ({"layers": [0, 7]}, "does not describe"),
            ({"head": {"kind": "HeadConfig"}}, "does not describe a sidecar"),
            ({"format": "something"}, "must say"),
        ):
            manifest.write_text(json.dumps({**described, **change}))
            with pytest.raises(CheckpointError, match=message):
                load_sidecar(model, tmp_path)
        manifest.unlink()
        with pytest.raises(CheckpointError, match="cannot be read"):
            load_sidecar(model, tmp_path)
        with pytest.raises(ValueError, match="no sidecar"):
            sidecar_of(model)

    def test_nothing_broken_is_written(self, tmp_path):
        model = with_sidecar("llama")
        with torch.no_grad():
            sidecar_of(model).injection.projections.weight[0, 0] = torch.nan
        with pytest.raises(ValueError, match="finite numbers"):
            save_sidecar(model, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_a_model_can_be_pickled_whole(self):
        model, tokens = with_sidecar("llama"), some_tokens(2, 9)
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(logits(again, tokens), logits(model, tokens))


class TestPeft:
    def adapted(self):
        config = peft.LoraConfig(
            r=2, target_modules=["q_proj"], modules_to_save=["rational_sidecar"], task_type="CAUSAL_LM"
        )
        return peft.get_peft_model(with_sidecar("llama"), config).eval()

    def test_the_adapter_carries_the_sidecar(self, tmp_path):
        torch.manual_seed(3)
        adapted, tokens = self.adapted(), some_tokens(2, 9)
        with torch.no_grad():
            for value in adapted.parameters():
                if value.requires_grad:
                    value.add_(0.1 * torch.randn_like(value))
        expected = logits(adapted, tokens)
        adapted.save_pretrained(tmp_path)
        torch.manual_seed(3)
        fresh = with_sidecar("llama")
        assert_same(logits(peft.PeftModel.from_pretrained(fresh, tmp_path).eval(), tokens), expected)

    def test_the_sidecar_of_an_adapter_is_the_one_it_trains(self, tmp_path):
        adapted, tokens = self.adapted(), some_tokens(2, 9)
        with torch.no_grad():
            sidecar_of(adapted).injection.projections.weight.mul_(2)
        save_sidecar(adapted, tmp_path)
        with pytest.raises(ValueError, match="belongs to a PEFT adapter"):
            detach(adapted)
        merged = adapted.merge_and_unload()
        kept = detach(merged)
        loaded = load_sidecar(merged, tmp_path)
        assert torch.equal(loaded.injection.projections.weight, kept.injection.projections.weight)
        assert_same(logits(merged, tokens), logits(adapted, tokens))

    def test_an_adapter_switched_off_leaves_the_first_sidecar(self):
        adapted, tokens = self.adapted(), some_tokens(2, 9)
        before = logits(adapted, tokens)
        with torch.no_grad():
            sidecar_of(adapted).injection.projections.weight.zero_()
        with adapted.disable_adapter():
            assert torch.equal(logits(adapted, tokens), before)
        assert not torch.equal(logits(adapted, tokens), before)
