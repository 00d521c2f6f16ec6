"""``transductor doctor``: right here; names what is wrong; what is missing is no fault."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from transductor.bench.workloads import Case, draw
from transductor.cli import app
from transductor.doctor import installation, self_check
from transductor.doctor.installation import Package
from transductor.kernels.cpu import scan as cpu
from transductor.recurrence import BACKENDS
from transductor.results import read_record

HERE = ["reference", "kogge_stone", "chunked", *(["numba"] if cpu.available() else [])]
FEW = (Case(2, 7, dim=5, bias=True, padded=True), Case(1, 9, dim=3, symbols=0, documents=3))


def invoke(*arguments):
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def few(monkeypatch):
    """Small sizes: what is wrong is wrong at any."""
    monkeypatch.setattr(self_check, "CASES", FEW)
    monkeypatch.setattr(self_check, "TINY_CASES", FEW[:1])
    monkeypatch.setattr(self_check, "_DIMENSIONS", (2,))
    monkeypatch.setenv("TRITON_INTERPRET", "0")


def test_everything_is_right_here(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    result = invoke("--json", tmp_path / "doctor.json")
    assert result.exit_code == 0, result.output
    assert "✓ everything that can run here is right" in result.output
    assert re.search(rf"✓ torch +│ {re.escape(torch.__version__.split('+')[0])}", result.output)
    record = read_record(tmp_path / "doctor.json")
    checks = record.measurements["checks"]
    subjects = {check["subject"] for check in checks if check["device"] == "cpu"}
    assert subjects == {*HERE, "Cayley map", "decoding", "checkpoint"}
    assert all(check["fault"] == "" and check["error"] <= check["allowed"] for check in checks)
    usable = {each["backend"] for each in record.measurements["scans"] if each["usable"] and each["device"] == "cpu"}
    assert usable == set(HERE)
    for name in HERE:
        sizes = {check["case"] for check in checks if check["subject"] == name and check["device"] == "cpu"}
        assert sizes == {str(case) for case in self_check.CASES}


def test_the_sizes_are_awkward():
    for what, wanted in (("time", {1, 7, 129, 1000}), ("dim", {2, 5, 32, 64}), ("dtype", {"float32", "bfloat16"})):
        assert wanted <= {getattr(case, what) for case in self_check.CASES}
    for what in ("bias", "padded", "documents"):
        for symbols in (True, False):
            assert any(getattr(case, what) and bool(case.symbols) == symbols for case in self_check.CASES), what


@pytest.mark.parametrize("case", [case for case in self_check.CASES if case.padded], ids=str)
def test_a_mask_hides_some_steps_and_leaves_some(case):
    mask = draw(case, "cpu", 1).mask
    assert mask.shape == (case.batch, case.time)
    assert mask.any(1).all()
    assert not mask.all()


def forward_wrong(states):
    return states * 1.01


def gradient_wrong(states):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values.clone()

        @staticmethod
        def backward(ctx, grad):
            return 1.01 * grad

    return Wrong.apply(states)


def nan(states):
    return states + float("nan")


def raising(states):
    raise RuntimeError("launch failed")


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (forward_wrong, "states off by 1.0e-02, allowed "),
        (gradient_wrong, "gradient of matrices off by 1.0e-02, allowed "),
        (nan, "states off by nan, allowed "),
        (raising, "RuntimeError: launch failed"),
    ],
)
def test_a_wrong_backend_is_named(few, backend, change, named, monkeypatch, tmp_path):
    right = BACKENDS[backend]
    exact = self_check.outcome

    def outcome(operands, name, dtype):
        """The judge is not touched, even where the loop is the one that is wrong."""
        with monkeypatch.context() as untouched:
            untouched.setitem(BACKENDS, backend, right)
            return exact(operands, name, dtype)

    monkeypatch.setattr(self_check, "outcome", outcome)

    def states(problem):
        return change(right.states(problem)) if problem.time else right.states(problem)

    monkeypatch.setitem(BACKENDS, backend, replace(right, states=states))
    result = invoke("--json", tmp_path / "doctor.json")
    assert result.exit_code == 1, result.output
    lines = [line for line in result.output.splitlines() if line.startswith("✗")]
    assert [line for line in lines if line.startswith(f"✗ {backend} on cpu is wrong at {FEW[0]}: {named}")], lines
    others = set(HERE) - {backend}
    assert not [line for line in lines if line.split()[1] in others], lines
    faulty = {
        check["subject"] for check in read_record(tmp_path / "doctor.json").measurements["checks"] if check["fault"]
    }
    assert backend in faulty
    assert not faulty & others


def test_a_wrong_gradient_of_one_operand_is_named(few, monkeypatch):
    """Inside the kernels' own entry, beneath the registered operation."""
    if not cpu.available():
        pytest.skip("needs numba")
    right = cpu.backward

    def wrong(*operands, **options):
        to_matrices, to_bias, to_initial = right(*operands, **options)
        return to_matrices, to_bias, 1.01 * to_initial

    monkeypatch.setattr(cpu, "backward", wrong)
    result = invoke()
    assert result.exit_code == 1
    assert f"✗ numba on cpu is wrong at {FEW[0]}: gradient of initial_state off by 1.0e-02" in result.output
    assert "report it with the file of --json" in result.output


@pytest.mark.parametrize(
    ("place", "name", "subject"),
    [("cayley_rotation", "matrices", "Cayley map"), ("load", "logits", "checkpoint")],
)
def test_what_is_not_a_scan_is_named_too(few, place, name, subject, monkeypatch):
    right = getattr(self_check, place)

    def wrong(*arguments, **options):
        value = right(*arguments, **options)
        if place == "cayley_rotation":
            return value * 1.01
        with torch.no_grad():
            value.backbone.readout.bias.add_(1e-3)
        return value

    monkeypatch.setattr(self_check, place, wrong)
    result = invoke()
    assert result.exit_code == 1
    assert f"✗ {subject} on cpu is wrong at " in result.output
    assert f"{name} off by" in result.output


@pytest.mark.parametrize("part", ["state", "terms"])
def test_a_wrong_decoded_token_is_named(few, part, monkeypatch):
    pytest.importorskip("triton")
    right = self_check.TokenDecoder.__call__

    def wrong(decoder, *operands):
        state = right(decoder, *operands)
        (state if part == "state" else decoder.terms).mul_(1.01)
        return state

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(self_check.TokenDecoder, "__call__", wrong)
    result = invoke()
    assert result.exit_code == 1
    # On a machine with a GPU the kernel runs there.
    assert re.search(rf"✗ decoded token on (cpu|cuda\S*) is wrong at d=2: {part} off by 1.0e-02", result.output)


def test_a_stream_that_is_not_the_parallel_pass_is_named(few, monkeypatch):
    right = self_check.RationalTransductor.advance
    monkeypatch.setattr(
        self_check.RationalTransductor,
        "advance",
        lambda *arguments, **options: (right(*arguments, **options)[0] + 0.01, right(*arguments, **options)[1]),
    )
    result = invoke()
    assert result.exit_code == 1
    assert "✗ decoding on cpu is wrong at 33 tokens, 1 at a time: logits off by" in result.output


def test_a_known_cause_comes_with_its_remedy(few, monkeypatch):
    def broken(problem):
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")

    states = {"states": lambda problem: broken(problem) if problem.time else problem.initial}
    monkeypatch.setitem(BACKENDS, "chunked", replace(BACKENDS["chunked"], **states))
    result = invoke()
    assert result.exit_code == 1
    assert "install gcc" in result.output
    assert "report it" not in result.output


def test_missing_packages_are_no_fault(few, monkeypatch):
    right = installation.metadata.version

    def version(name):
        if name in ("numba", "python-flint", "aalpy"):
            raise installation.metadata.PackageNotFoundError(name)
        return right(name)

    monkeypatch.setattr(installation.metadata, "version", version)
    monkeypatch.setattr(cpu, "_FOUND", False)
    result = invoke()
    assert result.exit_code == 0, result.output
    assert "– numba" in result.output
    assert "pip install 'transductor[cpu]'" in result.output
    assert "! numba is missing: pip install 'transductor[cpu]'. On a CPU the scan runs in plain torch" in result.output
    assert "pip install 'transductor[exact]'" in result.output


def test_what_is_too_old_is_said(few, monkeypatch):
    old = [
        Package("torch", "2.9.1+cpu", "", "2.11"),
        Package("rich", None, "", "13.9"),
        Package("triton", "3.10", "gpu", "3.6"),
    ]
    monkeypatch.setattr(installation, "packages", lambda: old)
    result = invoke()
    assert result.exit_code == 0
    assert "! torch 2.9.1+cpu is older than 2.11: pip install -U torch" in result.output
    assert "! rich is missing: pip install rich" in result.output
    assert "✓ triton" in result.output


def test_run_from_a_folder_of_sources_it_reads_the_project_file(monkeypatch):
    def absent(name):
        raise installation.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation.metadata, "requires", absent)
    required = {package.name: package for package in installation.packages()}
    assert required["torch"].extra == ""
    assert required["numba"].extra == "cpu"
    assert required["onnxruntime"].extra == "onnx"
    assert "pytest" not in required


def test_torch_that_cannot_be_imported_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = invoke()
    assert result.exit_code == 1
    assert "error: torch cannot be imported" in result.output


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_too(few):
    result = invoke("--compile")
    assert result.exit_code == 0, result.output
    assert "✓ torch.compile" in result.output


def test_an_extra_is_named_with_its_brackets(few, monkeypatch):
    """Rich takes square brackets for colours, and `pip install 'transductor'` installs nothing new."""
    reason = "numba is not installed: pip install 'transductor[cpu]'"
    refused = [{"device": "cpu", "backend": "numba", "usable": False, "reason": reason}]
    monkeypatch.setattr(installation, "scans", lambda: refused)
    monkeypatch.setattr(installation, "packages", lambda: [Package("numba", None, "cpu", "0.60")])
    lines = [line for line in invoke().output.splitlines() if "pip install 'transductor[cpu]'" in line]
    assert any(reason in line for line in lines)  # the row of the backend
    assert any("not installed" in line and reason not in line for line in lines)  # the row of the package
