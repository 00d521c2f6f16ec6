"""An exported model equals the model at every length and batch size; what cannot be exported is refused."""

from __future__ import annotations

import functools
import io
import json

import pytest
import torch
from typer.testing import CliRunner

from tests.comparison import assert_same
from tests.laws.test_models import MODELS, OUT, WIDTH, V, backbone, features_head, tokens_head
from transductor import RationalHead, RationalTransductor, Transformer, compile_model, save
from transductor.automata import regex
from transductor.cli import app
from transductor.configuration import from_json
from transductor.integrations import export as room
from transductor.integrations.export import LENGTHS, ExportError, export_onnx, export_program, exported
from transductor.model import LSTM, RationalReadout
from transductor.transitions import FAMILIES, DPLRTransitions

# torch warns about its own code: a deprecated check when a program is copied, and in 2.11 read-only bytes.
pytestmark = [
    pytest.mark.usefixtures("translations_read_once"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning"),
]

TEN = (1, 2, 3, 5, 7, 16, 64, 129, 300, 1000)
SLOW = [name for name in MODELS if "lstm" not in name]


def some(*names):
    """Return these names, and all the others marked slow."""
    return [pytest.param(name, marks=() if name in names else pytest.mark.slow) for name in SLOW]


@pytest.fixture(autouse=True)
def repeatable():
    """Fix the random numbers without torch's determinism switch, which would change the traced graphs."""
    torch.manual_seed(0)


def reachable(name, lengths):
    return [time for time in lengths if "learned" not in name or time <= 64]


class TestPrograms:
    @pytest.mark.parametrize("name", some("readout", "filter", "linear-rnn", "transformer-learned-full", "mixed-stack"))
    def test_saved_and_loaded_it_equals_the_model_bit_for_bit(self, name):
        model = MODELS[name]().eval()
        file = io.BytesIO()
        torch.export.save(exported(model), file)
        file.seek(0)
        program = torch.export.load(file).module()
        with torch.no_grad():
            for time in reachable(name, TEN):
                for rows in (1, 4):
                    tokens = torch.randint(0, V, (rows, time))
                    # The baseline uses the plain loop, which cannot be traced: its rounding differs.
                    compare = assert_same if name == "linear-rnn" else torch.testing.assert_close
                    exact = {} if name == "linear-rnn" else {"rtol": 0, "atol": 0}
                    compare(program(tokens), model(tokens), **exact)

    def test_with_a_mask_padding_on_either_side_is_the_models(self):
        model = MODELS["transductor-none-full"]().eval()
        program = exported(model, mask=True).module()
        with torch.no_grad():
            for time in (1, 7, 64):
                tokens, index = torch.randint(0, V, (2, time)), torch.arange(time)
                mask = torch.stack((index >= time // 3, index < time - time // 3))
                assert torch.equal(program(tokens, mask), model(tokens, mask=mask))

    def test_the_scan_is_one_node(self):
        graphs = [module for module in exported(tokens_head()).graph_module.modules() if hasattr(module, "graph")]
        names = [str(node.target) for graph in graphs for node in graph.graph.nodes]
        assert names.count("transductor.scan.default") == 1

    def test_a_portable_program_needs_no_kernel(self, tmp_path):
        model = MODELS["readout"]().eval()
        path = export_program(model, tmp_path / "model.pt2", backend="chunked", lengths=(1, 7))
        program = torch.export.load(path)
        assert "'chunked'" in str(program)
        with pytest.raises(ValueError, match="backend must be one of 'chunked', 'numba', 'triton'; got 'reference'"):
            exported(model, backend="reference")

    def test_the_model_is_left_as_it_was(self):
        model = MODELS["transductor-none-full"]().train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        random = torch.get_rng_state()
        exported(model, backend="chunked")
        assert torch.equal(torch.get_rng_state(), random)
        assert model.training
        assert model.rational_head.backend == "auto"
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    def test_a_program_that_differs_is_not_written(self, tmp_path, monkeypatch):
        wrong = exported(MODELS["readout"]())
        monkeypatch.setattr(room, "exported", lambda *_, **__: wrong)
        with pytest.raises(ExportError, match="differs from the model at length 1; nothing was written"):
            export_program(MODELS["readout"](), tmp_path / "model.pt2")
        assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """Return a function that writes a model with a mask, once; it returns the model and the path of the file."""

    @functools.cache
    def write(name):
        torch.manual_seed(0)
        model = MODELS[name]().eval()
        path = tmp_path_factory.mktemp("masked") / "model.onnx"
        return model, export_onnx(model, path, mask=True, lengths=(2, 5)).path

    return write


class TestOnnx:
    @pytest.fixture(autouse=True)
    def packages(self):
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package)

    @pytest.fixture
    def opened(self):
        """Return a function that opens a file as a function of named tensors."""
        import onnxruntime

        def open_file(path):
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            return lambda **inputs: [
                torch.from_numpy(value)
                for value in session.run(None, {name: value.numpy() for name, value in inputs.items()})
            ]

        return open_file

    @pytest.mark.parametrize(
        "name",
        some(
            "transductor-relative-window",
            "transformer-learned-full",
            "readout-lookback",
            "filter",
            "nonlinear-stack",
            "linear-rnn",
        ),
    )
    def test_one_file_equals_the_model_at_every_length(self, name, tmp_path, opened):
        model = MODELS[name]().eval()
        written = export_onnx(model, tmp_path / "model.onnx", lengths=(2,))
        assert (written.inputs, written.outputs) == (("tokens",), ("logits",))
        assert written.certificate.holds
        run = opened(written.path)
        with torch.no_grad():
            for time in reachable(name, LENGTHS):
                for rows in (1, 3):
                    tokens = torch.randint(0, V, (rows, time))
                    assert_same(run(tokens=tokens)[0], model(tokens), what=f"{name} at {rows}, {time}")

    @pytest.mark.parametrize("name", some("transductor-none-full", "readout"))
    def test_padding_on_either_side_is_the_models(self, name, masked, opened):
        model, path = masked(name)
        run = opened(path)
        with torch.no_grad():
            for time in reachable(name, (1, 7, 64, 129)):
                tokens, index = torch.randint(0, V, (3, time)), torch.arange(time)
                mask = torch.stack((index >= time // 3, index < time - time // 3, index >= 0))
                output, exact = run(tokens=tokens, mask=mask)[0], model(tokens, mask=mask)
                assert_same(output[mask], exact[mask], what=f"{name} at {time}")

    def test_a_compiled_machine_decides_the_same_at_every_length(self, tmp_path, opened):
        model = compile_model(regex("(ab|c)*", "abc"))
        run = opened(export_onnx(model, tmp_path / "model.onnx").path)
        for time in LENGTHS:
            tokens = torch.randint(0, 3, (20, time))
            assert torch.equal(run(tokens=tokens)[0].argmax(-1), model(tokens).argmax(-1))

    def test_float64_keeps_its_digits(self, tmp_path):
        certificate = export_onnx(MODELS["readout"]().double(), tmp_path / "model.onnx", mask=True).certificate
        assert certificate.bound == 1e-11

    @pytest.mark.parametrize("head", [tokens_head, features_head], ids=["tokens", "features"])
    def test_a_bare_head_gives_states(self, head, tmp_path, opened):
        head = head()
        written = export_onnx(head, tmp_path / "head.onnx", lengths=(1, 7))
        assert written.outputs == ("states",)
        drive = torch.randint(0, V, (2, 50)) if written.inputs == ("tokens",) else torch.randn(2, 50, WIDTH)
        output = opened(written.path)(**{written.inputs[0]: drive})[0]
        assert_same(output, head(drive))

    @pytest.mark.parametrize(("family", "dim"), [("orthogonal", 5), ("cayley", 1), ("cayley", 2), ("scaled_cayley", 4)])
    def test_rotations_from_features_need_no_solve(self, family, dim, tmp_path):
        """ONNX cannot solve linear systems: there the Cayley map is an elimination."""
        head = RationalHead(FAMILIES[family](feature_dim=6, state_dim=dim))
        with torch.no_grad():
            head.transitions.source.projection.weight.mul_(100)  # far from the identity
        assert export_onnx(head, tmp_path / "head.onnx", lengths=(1, 7, 64)).certificate.holds

    @pytest.mark.parametrize(
        ("make", "inputs"),
        [
            (MODELS["readout"], ("tokens", "state")),
            (MODELS["readout-lookback"], ("tokens", "state")),
            (tokens_head, ("tokens", "state")),
            (MODELS["filter"], ("tokens", "state")),
            (
                lambda: RationalTransductor(tokens_head(), backbone("sinusoidal", "no_attention")),
                ("tokens", "state", "seen"),
            ),
            (lambda: Transformer(backbone("learned", "no_attention")), ("tokens", "seen")),
        ],
        ids=["readout", "lookback", "head", "filter", "transductor", "transformer"],
    )
    def test_step_by_step_it_equals_the_parallel_pass(self, make, inputs, tmp_path, opened):
        import onnx

        model = make().eval()
        written = export_onnx(model, tmp_path / "step.onnx", streaming=True, lengths=(3,))
        assert written.inputs == inputs
        assert written.outputs[1:] == tuple(f"next_{name}" for name in inputs[1:])
        metadata = {entry.key: entry.value for entry in onnx.load(written.path).metadata_props}
        start = json.loads(metadata["transductor.start"])
        tokens = torch.randint(0, V, (3, 40))
        state = {
            "state": torch.tensor(start.get("state", [])).repeat(3, 1),
            "seen": torch.zeros(3, dtype=torch.long),
        }
        state = {name: state[name] for name in inputs[1:]}
        run, outputs = opened(written.path), []
        for token in tokens.unbind(1):
            out, *after = run(tokens=token, **state)
            state = dict(zip(state, after, strict=True))
            outputs.append(out)
        assert_same(torch.stack(outputs, 1), model(tokens))

    def test_the_file_says_what_it_is(self, masked):
        import onnx

        model, path = masked("transductor-none-full")
        file = onnx.load(path)
        metadata = {entry.key: entry.value for entry in file.metadata_props}
        assert from_json(metadata["transductor.config"]) == model.config
        named = {
            value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*file.graph.input, *file.graph.output)
        }
        assert named == {
            "tokens": ["batch", "time"],
            "mask": ["batch", "time"],
            "logits": ["batch", "time", OUT],
        }
        assert {entry.domain for entry in file.opset_import} == {""}, "nothing of ours is needed to run it"
        assert not file.functions

    def test_a_file_that_differs_is_not_written(self, tmp_path, monkeypatch):
        right = room.tabulated

        def altered(model):
            model = right(model)
            with torch.no_grad():
                model.readout.bias.add_(0.01)
            return model

        monkeypatch.setattr(room, "tabulated", altered)
        with pytest.raises(ExportError, match=r"onnxruntime equals torch: FAILS .* nothing was written"):
            export_onnx(MODELS["readout"](), tmp_path / "model.onnx")
        assert not list(tmp_path.iterdir())

    def test_a_file_that_gives_nan_is_not_written(self, tmp_path, monkeypatch):
        right = room.tabulated

        def altered(model):
            model = right(model)
            with torch.no_grad():
                model.readout.bias[0] = float("nan")
            return model

        monkeypatch.setattr(room, "tabulated", altered)
        with pytest.raises(ExportError, match=r"FAILS \(measured inf"):
            export_onnx(MODELS["readout"](), tmp_path / "model.onnx")
        assert not list(tmp_path.iterdir())

    def test_without_onnxruntime_it_is_written_and_not_compared(self, tmp_path, monkeypatch):
        monkeypatch.setattr(room, "find_spec", lambda name: None)
        assert export_onnx(MODELS["readout"](), tmp_path / "model.onnx").certificate is None

    @pytest.mark.parametrize(
        ("make", "options", "message"),
        [
            (lambda: MODELS["transductor-none-full"]().bfloat16(), {}, "call model.float"),
            (lambda: MODELS["readout"](), {"mask": True, "streaming": True}, "one real token at a time"),
            (MODELS["transductor-none-full"], {"streaming": True}, "got RationalTransductor with attention"),
            (MODELS["nonlinear-stack"], {"streaming": True}, "got StackedTransductor"),
            (MODELS["linear-stack"], {"streaming": True}, "got LinearStack"),
            (features_head, {"streaming": True}, "driven by tokens"),
            (
                lambda: RationalHead(DPLRTransitions(feature_dim=4, state_dim=3)),
                {},
                "no ONNX form: transductor.spectral_norm has none",
            ),
            pytest.param(
                lambda: MODELS["transductor-none-full"]().double(),
                {},
                "onnxruntime refuses the graph",
                marks=pytest.mark.slow,
            ),
        ],
        ids=["bfloat16", "step", "attention", "stack", "linear stack", "features", "no form", "float64 attention"],
    )
    def test_what_cannot_be_written_is_refused(self, make, options, message, tmp_path):
        with pytest.raises(ValueError, match=message):
            export_onnx(make(), tmp_path / "model.onnx", **options)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [export_onnx, export_program])
def test_other_things_are_refused(write, tmp_path):
    with pytest.raises(ExportError, match="an LSTM cannot be exported"):
        write(LSTM(vocab_size=3), tmp_path / "model")
    with pytest.raises(TypeError, match="model must be a transductor model or head; got Linear"):
        write(torch.nn.Linear(2, 2), tmp_path / "model")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(room, "import_module", missing)
    with pytest.raises(ImportError, match=r"ONNX files need onnx: pip install 'transductor\[onnx\]'"):
        export_onnx(MODELS["readout"](), tmp_path / "model.onnx")


class TestCommand:
    @pytest.fixture
    def saved(self, tmp_path):
        model = RationalReadout(tokens_head(), OUT)
        return model.eval(), save(model, tmp_path / "model"), tmp_path

    def invoke(self, *arguments):
        return CliRunner().invoke(app, ["export", *map(str, arguments)])

    def test_a_program_from_a_folder(self, saved):
        model, folder, place = saved
        result = self.invoke(folder, place / "model.pt2", "--backend", "chunked")
        assert result.exit_code == 0, result.output
        assert "import transductor before torch.export.load" in result.output
        tokens = torch.randint(0, V, (2, 70))
        assert_same(torch.export.load(place / "model.pt2").module()(tokens), model(tokens))

    def test_an_onnx_file_from_a_folder(self, saved):
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
        _, folder, place = saved
        result = self.invoke(folder, place / "model.onnx", "--streaming")
        assert result.exit_code == 0, result.output
        for words in ("in:  tokens, state", "out: logits, next_state", "onnxruntime equals torch: holds", "written: "):
            assert words in result.output

    @pytest.mark.parametrize(
        ("output", "options", "message"),
        [
            ("model.bin", (), "OUT must end in .onnx or .pt2"),
            ("model.pt2", ("--streaming",), "--streaming is for .onnx"),
            ("model.onnx", ("--backend", "chunked"), "--backend is for .pt2"),
        ],
    )
    def test_what_does_not_fit_together_is_refused(self, saved, output, options, message):
        _, folder, place = saved
        result = self.invoke(folder, place / output, *options)
        assert result.exit_code == 2
        assert message in result.output
        assert not (place / output).exists()

    def test_a_folder_without_a_model_is_refused(self, tmp_path):
        result = self.invoke(tmp_path, tmp_path / "model.pt2")
        assert result.exit_code == 2
        assert "config.json cannot be read" in result.output
