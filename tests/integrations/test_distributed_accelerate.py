"""Accelerate and Hugging Face's Trainer on several ranks: the losses of one process."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from tests.integrations.distributed_accelerate import (
    ROWS,
    STEPS,
    host_with_sidecar,
    next_token_loss,
    plain_model,
    rows,
    trained,
)
from tests.integrations.tiny_hosts import tiny_host
from tests.ranks import answers, once
from transductor.integrations.huggingface import load_sidecar, sidecar_of

# float32, six steps: the same sums in another order; Trainer adds rounding of its own to what it logs.
EXACT = 1e-6


@pytest.fixture(scope="module", params=["2", "4"])
def found(request, tmp_path_factory):
    def ask(folder):
        return answers("tests.integrations.distributed_accelerate", folder)

    return once(tmp_path_factory, "accelerate_ranks", ask)[request.param]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Losses of one process: a plain loop, and Hugging Face's Trainer."""
    loop, _ = looped(plain_model())
    host, attached = looped(host_with_sidecar())
    whole = {name: value.tolist() for name, value in sidecar_of(attached).state_dict().items()}
    return {
        "loop": loop,
        "host": host,
        "sidecar": whole,
        "trainer": trained(tmp_path_factory.mktemp("single"), 1)["losses"],
    }


def looped(model):
    """Losses of a plain loop, and the model after it."""
    tokens, losses = rows(), []
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        batch = tokens[step * ROWS : (step + 1) * ROWS]
        loss = next_token_loss(model(batch), batch)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses, model


def assert_same(found, expected):
    assert len(found) == len(expected) == STEPS
    assert found == pytest.approx(expected, abs=EXACT, rel=EXACT)


def test_accelerate_with_ddp(found, single):
    assert_same(found["ddp"]["losses"], single["loop"])
    assert not found["ddp"]["split"]


def test_accelerate_with_fsdp2(found, single):
    assert_same(found["fsdp2"]["losses"], single["loop"])
    assert found["fsdp2"]["split"]


def test_a_head_sharded_first_stays_float32_in_bfloat16(found, single):
    given = found["bfloat16"]
    assert given["split"]
    assert (given["states"], given["stream"]) == ("torch.float32", "torch.bfloat16")
    assert given["losses"] == pytest.approx(single["loop"], abs=2e-2)  # bfloat16 has eight bits


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_host_and_its_sidecar(found, single, strategy):
    """Layers are sharded by the name of their class, which the sidecar leaves as it is."""
    given = found[f"host-{strategy}"]
    assert_same(given["losses"], single["host"])
    assert given["split"] == (strategy == "fsdp2")


def test_a_sharded_sidecar_is_saved_whole_and_not_detached(found, single):
    assert "as fully_shard does" in found["host-fsdp2"]["refusal"]
    host = tiny_host("llama")
    load_sidecar(host, found["saved"])
    for name, value in sidecar_of(host).state_dict().items():
        wanted = torch.tensor(single["sidecar"][name])
        torch.testing.assert_close(value, wanted, atol=1e-5, rtol=1e-4, msg=name)  # six steps of AdamW


def test_a_sharded_host_decodes(found):
    assert found["host-fsdp2"]["stepping_off_by"] < 1e-5


def test_a_host_in_bfloat16_has_a_head_in_float32(found, single):
    given = found["host-bfloat16"]
    assert (given["states"], given["stream"]) == ("torch.float32", "torch.bfloat16")
    assert given["losses"] == pytest.approx(single["host"], abs=2e-2)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_hugging_face_trainer(found, single, strategy):
    assert_same(found[f"trainer-{strategy}"]["losses"], single["trainer"])
    assert found[f"trainer-{strategy}"]["split"] == (strategy == "fsdp2")
