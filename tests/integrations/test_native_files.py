"""What is saved is what is loaded, in every precision; missing weights start as our constructors start them."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("transformers")

import safetensors.torch
from safetensors import SafetensorError
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForTokenClassification

import transductor
from tests.integrations.native_models import VOCABULARY, some_tokens, tiny_config, tiny_native
from transductor import BackboneConfig, RandomFeatureHead, RationalHead, RationalTransductor, UniversalHead
from transductor.heads import LookbackHead
from transductor.integrations.huggingface import (
    RationalTransductorForCausalLM,
    RationalTransductorForSequenceClassification,
    RationalTransductorForTokenClassification,
    RationalTransductorModel,
    from_transductor,
    to_transductor,
)
from transductor.model import LearnedPositions, RelativePositions, SlidingWindow
from transductor.transitions import (
    FAMILIES,
    OrthogonalTransitions,
    PermutationTransitions,
    SharedBasisTransitions,
    StochasticTransitions,
)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == right[name].dtype, name
        assert torch.equal(value, right[name]), name


def every_head():
    for name, family in FAMILIES.items():
        if family is PermutationTransitions:
            images = [tuple(torch.randperm(4).tolist()) for _ in range(VOCABULARY)]
            yield pytest.param(lambda images=images: RationalHead(PermutationTransitions(permutations=images)), id=name)
        else:
            make = lambda family=family: RationalHead(family(state_dim=4, vocab_size=VOCABULARY))  # noqa: E731
            yield pytest.param(make, id=name)
    yield pytest.param(lambda: UniversalHead(vocab_size=VOCABULARY, orthogonal_dim=4, stochastic_dim=3), id="universal")
    yield pytest.param(lambda: RandomFeatureHead(vocab_size=VOCABULARY, state_dim=4), id="random_features")
    yield pytest.param(lambda: LookbackHead(StochasticTransitions(vocab_size=VOCABULARY, state_dim=4)), id="lookback")


@pytest.mark.parametrize("make", list(every_head()))
def test_every_head_comes_back_bit_for_bit(make, tmp_path):
    """This includes buffers that no file holds, because a model is first built without numbers and then filled."""
    model, tokens = tiny_native(head=make()), some_tokens(2, 9)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_same(weights(loaded), weights(model))
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)
    assert not loaded.training


@pytest.mark.parametrize(
    "settings",
    [{"positions": "learned"}, {"positions": "relative", "sliding_window": 4}, {"tie_word_embeddings": True}],
)
def test_shards_come_back_bit_for_bit(settings, tmp_path):
    model, tokens = tiny_native(**settings), some_tokens(2, 9)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    loaded = RationalTransductorForCausalLM.from_pretrained(tmp_path)
    assert_same(weights(loaded), weights(model))
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


def test_tied_weights_are_one():
    model = tiny_native(tie_word_embeddings=True)
    assert model.lm_head.weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_the_head_stays_in_float32(dtype, tmp_path):
    model, tokens = tiny_native(), some_tokens(2, 9)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert loaded.dtype == dtype
    for name, parameter in loaded.named_parameters():
        assert parameter.dtype == (torch.float32 if "rational_head" in name else dtype), name
    assert_same(weights(loaded.model.core.rational_head), weights(model.model.core.rational_head))
    assert loaded(tokens).logits.dtype == dtype
    loaded.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again", dtype="auto")
    assert_same(weights(again), weights(loaded))


def test_a_model_built_in_half_precision_keeps_its_head():
    model = AutoModelForCausalLM.from_config(tiny_config(), dtype=torch.bfloat16)
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert {value.dtype for value in model.model.core.rational_head.parameters()} == {torch.float32}


def test_base_weights_load_into_every_task(tmp_path):
    base = RationalTransductorModel(tiny_config(num_labels=4)).eval()
    base.save_pretrained(tmp_path)
    for kind in (
        RationalTransductorForCausalLM,
        RationalTransductorForTokenClassification,
        RationalTransductorForSequenceClassification,
    ):
        loaded, report = kind.from_pretrained(tmp_path, output_loading_info=True)
        assert_same(weights(loaded.model), weights(base))
        assert all(name.startswith(("lm_head", "score")) for name in report["missing_keys"])
        assert all(value.isfinite().all() for value in loaded.state_dict().values())
    task = AutoModelForTokenClassification.from_pretrained(tmp_path)
    task.save_pretrained(tmp_path / "task")
    assert_same(weights(AutoModel.from_pretrained(tmp_path / "task")), weights(base))


FRESH = {
    "orthogonal": lambda: RationalHead(OrthogonalTransitions(state_dim=4, vocab_size=VOCABULARY)),
    "shared_basis": lambda: RationalHead(SharedBasisTransitions(state_dim=4, vocab_size=VOCABULARY)),
}


@pytest.mark.parametrize("name", FRESH)
def test_what_a_file_lacks_starts_as_our_constructors_start_it(name, tmp_path):
    """Normal noise of deviation 0.02 would start a rotation at the identity and a basis near zero."""
    settings = {"head": FRESH[name](), "positions": "learned"}
    model = tiny_native(**settings)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    kept = {
        key: value
        for key, value in safetensors.torch.load_file(file).items()
        if not any(part in key for part in ("rational_head", "injection", "positions", "final_norm", "blocks.1"))
    }
    safetensors.torch.save_file(kept, file, metadata={"format": "pt"})
    loaded = RationalTransductorForCausalLM.from_pretrained(tmp_path)
    for key, value in kept.items():
        assert torch.equal(loaded.state_dict()[key], value), key
    many = [weights(tiny_native(**settings)) for _ in range(20)]
    for key, value in loaded.state_dict().items():
        if key in kept or not value.is_floating_point():
            continue
        # The deviations and means of twenty new heads bound those of another one, with some margin.
        deviations = torch.stack([fresh[key].std(correction=0) for fresh in many])
        means = torch.stack([fresh[key].mean() for fresh in many])
        room = 3 * (deviations.max() - deviations.min()) + 1e-6
        assert deviations.min() - room <= value.std(correction=0) <= deviations.max() + room, key
        room = 3 * (means.max() - means.min()) + 1e-6
        assert means.min() - room <= value.mean() <= means.max() + room, key


def test_a_parameter_that_did_not_train_does_not_train_again(tmp_path):
    head = RandomFeatureHead(vocab_size=VOCABULARY, state_dim=4)
    backbone = BackboneConfig(vocab_size=VOCABULARY)
    model = RationalTransductor(head, backbone)
    model.backbone.embedding.requires_grad_(False)
    native = from_transductor(model)
    native.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    still = {name for name, parameter in loaded.named_parameters() if not parameter.requires_grad}
    assert still == {
        "model.core.rational_head.raw_initial_state",
        "model.core.rational_head.transitions.source.raw",
        "model.core.backbone.embedding.weight",
    }
    back = to_transductor(loaded)
    frozen = {name for name, parameter in back.named_parameters() if not parameter.requires_grad}
    assert frozen == {name.removeprefix("model.core.") for name in still}


@pytest.mark.parametrize(
    ("head", "backbone", "injection"),
    [
        (FRESH["orthogonal"], {"positions": LearnedPositions(20)}, "deep"),
        (
            lambda: LookbackHead(OrthogonalTransitions(state_dim=4, vocab_size=VOCABULARY)),
            {"positions": RelativePositions(8, 16), "attention": SlidingWindow(6)},
            "input",
        ),
        (
            lambda: UniversalHead(vocab_size=VOCABULARY, orthogonal_dim=4, stochastic_dim=3),
            {"output_size": 5, "feedforward": 40, "dropout": 0.1},
            "none",
        ),
    ],
)
def test_a_plain_checkpoint_goes_there_and_back_bit_for_bit(head, backbone, injection, tmp_path):
    model = RationalTransductor(head(), BackboneConfig(vocab_size=VOCABULARY, **backbone), injection=injection).eval()
    transductor.save(model, tmp_path / "plain")
    task = "token-classification" if "output_size" in backbone else "causal-lm"
    native = from_transductor(transductor.load(tmp_path / "plain"), task=task, pad_token_id=0)
    native.save_pretrained(tmp_path / "native")
    auto = AutoModelForTokenClassification if task == "token-classification" else AutoModelForCausalLM
    back = to_transductor(auto.from_pretrained(tmp_path / "native"))
    assert back.config == model.config
    assert_same(weights(back), weights(model))
    transductor.save(back, tmp_path / "back")
    files = [sorted(folder.glob("*.safetensors")) for folder in (tmp_path / "plain", tmp_path / "back")]
    assert [file.name for file in files[0]] == [file.name for file in files[1]]  # named by their content
    tokens = some_tokens(2, 12)
    with torch.no_grad():
        assert torch.equal(back(tokens), model(tokens))
        tolerance = {"atol": 5e-6 if "attention" in backbone else 0, "rtol": 0}  # another kernel for the window
        torch.testing.assert_close(native(tokens).logits, model(tokens), **tolerance)


def test_conversion_copies():
    model = RationalTransductor(FRESH["orthogonal"](), BackboneConfig(vocab_size=VOCABULARY))
    native = from_transductor(model)
    assert native.training
    with torch.no_grad():
        native.lm_head.weight.zero_()
    assert model.backbone.readout.weight.any()


def test_what_cannot_be_converted_is_named():
    other = RationalTransductor(FRESH["orthogonal"](), BackboneConfig(vocab_size=VOCABULARY, output_size=3))
    with pytest.raises(ValueError, match="task must be 'token-classification' for a model with 3 outputs"):
        from_transductor(other)
    with pytest.raises(ValueError, match="task must be one of 'causal-lm', 'token-classification'"):
        from_transductor(other, task="poetry")
    with pytest.raises(ValueError, match="tie_word_embeddings must be False"):
        from_transductor(other, task="token-classification", tie_word_embeddings=True)
    with pytest.raises(TypeError, match="model must be a RationalTransductor; got Transformer"):
        from_transductor(transductor.Transformer(BackboneConfig(vocab_size=3)))
    with pytest.raises(TypeError, match="logits at every position; got RationalTransductorModel"):
        to_transductor(RationalTransductorModel(tiny_config()))


def test_a_damaged_file_is_not_loaded(tmp_path):
    tiny_native().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(SafetensorError, match="incomplete metadata"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_configuration_of_another_family_is_not_loaded(tmp_path):
    tiny_native().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["head"]["transitions"]["family"] = "perpetual"
    file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"family must be one of 'dense'.*got 'perpetual'"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_projections_that_start_at_zero_start_there_again(tmp_path):
    model = tiny_native(projections="zero")
    tokens = some_tokens(2, 9)
    with torch.no_grad():
        before = model(tokens).logits
        model.model.core.rational_head.raw_initial_state += 1
        assert torch.equal(model(tokens).logits, before)  # the state is not read yet
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    stored = {name: value for name, value in safetensors.torch.load_file(file).items() if "projections" not in name}
    safetensors.torch.save_file(stored, file, metadata={"format": "pt"})
    again = RationalTransductorForCausalLM.from_pretrained(tmp_path)
    assert not again.model.core.injection.projections.weight.any()
    assert again.config.projections == to_transductor(again).config.projections == "zero"


def test_an_older_file_says_nothing_of_projections_and_loads_as_it_was(tmp_path):
    model = tiny_native()
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["projections"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    again = RationalTransductorForCausalLM.from_pretrained(tmp_path)
    assert_same(weights(again), weights(model))
