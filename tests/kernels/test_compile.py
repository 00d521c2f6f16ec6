"""Every kernel compiles for a GPU, on a machine without one: the interpreter accepts what the compiler refuses.

Compiling all of them takes minutes, and gives the same result every time for the same source, options and compiler.  So
``compiled_kernels.json`` lists, by Triton's own cache key, the kernels that have compiled; only others are compiled.
The test marked slow compiles all of them.  After a change of kernels, or of Triton, write the list again:

    python -m tests.kernels.test_compile
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("triton")

RECORD = Path(__file__).with_name("compiled_kernels.json")

# Prints the keys of all kernels, and how many were not known and had to be compiled.
COMPILE = '''
import gc
gc.disable()  # little of what the compiler makes is garbage, and much is looked through for it
import hashlib, json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from transductor.kernels.gpu import cuts, launch, matrix_gradients, normalised, passes, walking, word_tables
from transductor.kernels.gpu import scan as gpu

target = GPUTarget("cuda", 90, 32)
backend = triton.compiler.make_backend(target)
known, seen, keys, compiled = set(json.load(open(sys.argv[1]))), set(), [], 0

def compile_only(kernel, grid, *args, warps, stages=1, registers=None, **constants):
    """Compile what a launch would compile, for compute capability 9.0, unless it is known to compile."""
    global compiled
    names = kernel.arg_names
    given = dict(zip(names, args)) | constants
    types = {"float32": "*fp32", "float64": "*fp64", "bfloat16": "*bf16", "int64": "*i64", "int32": "*i32",
             "int16": "*i16", "uint8": "*u8"}
    signature, constexprs = {}, {}
    for name in names:
        value = given[name]
        if isinstance(value, torch.Tensor):
            signature[name] = types[str(value.dtype).removeprefix("torch.")]
        elif name in constants or value is None:
            signature[name], constexprs[name] = "constexpr", value
        else:
            signature[name] = "i32"
    key = kernel.fn.__name__, tuple(signature.items()), str(constexprs), warps
    if key not in seen:
        seen.add(key)
        source = ASTSource(kernel, signature=signature, constexprs=constexprs)
        options = {"num_warps": warps, "num_stages": stages, "maxnreg": registers}
        parts = triton.__version__, backend.hash(), source.hash(), backend.parse_options(dict(options)).hash()
        keys.append(hashlib.sha256("-".join(parts).encode()).hexdigest())
        if keys[-1] not in known:
            triton.compile(source, target=target, options=options)
            compiled += 1

launch.launch = passes.launch = matrix_gradients.launch = normalised.launch = compile_only
walking.launch = word_tables.launch = compile_only

def everything(dim, symbols, dtype=torch.float32, dense=False, bias=False, mask=False, packed=False, batch=2):
    batch, time = (1 if packed else batch), 8400
    work = torch.float64 if dtype == torch.float64 else torch.float32
    matrices = torch.zeros(*((batch, time) if dense else (symbols,)), dim, dim, dtype=dtype)
    tokens = None if dense else torch.zeros(batch, time, dtype=torch.long)
    additive = torch.zeros(batch, time, dim, dtype=dtype) if bias else None
    initial = torch.zeros(batch, dim, dtype=work)
    masked = torch.ones(batch, time, dtype=torch.bool) if mask else None
    starts = torch.zeros(time, dtype=torch.int32) if packed else None
    states, *products = gpu.forward(matrices, tokens, additive, initial, masked, starts)
    grad = torch.zeros_like(states)
    gpu.backward(matrices, tokens, initial, masked, starts, states, *products, grad,
                 wants_matrices=True, wants_bias=bias)

everything(16, 8)
everything(16, 700, bias=True)
everything(16, 50_000)
everything(64, 20, torch.float64)
everything(5, 3, torch.bfloat16, mask=True, packed=True, bias=True)
everything(16, 3, torch.float64)
everything(5, 40, torch.float64)
everything(32, 8)
everything(64, 8)
everything(16, 1, dense=True, bias=True)
everything(16, 1, torch.bfloat16, dense=True)
everything(33, 1, torch.bfloat16, dense=True)
everything(120, 8)
chosen = cuts.walk_letters
for letters in (1, 2, 3):
    cuts.walk_letters = lambda *_, **__: letters
    everything(64, 8)
    everything(32, 8, torch.bfloat16, mask=True, bias=True)
everything(16, 3, torch.float64)
everything(64, 3, torch.float64)
cuts.walk_letters = chosen
from transductor.kernels import rotation
for dim in (1, 5, 16, 32, 64):
    for squared in (False, True):
        rotation._eliminated(torch.zeros(3, rotation.skew_dim(dim)), dim, squared=squared)
        rotation._cayley_backward(torch.zeros(3, dim, dim), torch.zeros(3, dim, dim), squared)
from transductor.kernels.gpu import decoding
for dim, dtype in ((1, torch.float32), (6, torch.float64), (32, torch.bfloat16), (64, torch.float32)):
    work = torch.float64 if dtype == torch.float64 else torch.float32
    table, state = torch.zeros(5, dim, dim, dtype=work), torch.zeros(2, dim, dtype=work)
    tokens, weight = torch.zeros(2, 1, dtype=torch.long), torch.zeros(300, dim, dtype=dtype)
    for classes in (None, torch.zeros(7, dtype=torch.int32)):
        decoding.TokenDecoder(table, classes, weight, 100, 2)(tokens, state)
for dim, dtype, kind, dense in (
    (5, torch.float32, 3, False), (8, torch.float64, 2, False), (16, torch.float32, 1, True),
    (32, torch.float32, 1, False), (64, torch.float32, 1, False), (64, torch.float64, 2, False),
    (120, torch.float32, 1, False),
):
    batch, time = 2, 600
    matrices = torch.ones(*((batch, time) if dense else (3,)), dim, dim, dtype=dtype)
    tokens = None if dense else torch.zeros(batch, time, dtype=torch.long)
    states, logs = normalised.forward(matrices, tokens, torch.ones(batch, dim, dtype=dtype), kind)
    sides = states, logs.to(dtype), logs.to(dtype)
    normalised.backward(matrices, tokens, states, sides, kind, 2.0**96)
print(json.dumps({"keys": sorted(keys), "compiled": compiled}))
'''


def compiled(known):
    """In a process of its own: here the kernels may have been loaded for the interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": folder}
        script, list_of_keys = Path(folder, "compile_all.py"), Path(folder, "known.json")
        script.write_text(COMPILE)
        list_of_keys.write_text(json.dumps(known))
        run = subprocess.run([sys.executable, script, list_of_keys], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    outcome = json.loads(run.stdout.splitlines()[-1])
    assert len(set(outcome["keys"])) > 40
    return outcome


@pytest.fixture(scope="module")
def known():
    return json.loads(RECORD.read_text())


@pytest.fixture(scope="module")
def outcome(known):
    return compiled(known)


def test_every_kernel_compiles_for_a_gpu(known, outcome):
    assert outcome["compiled"] == len(set(outcome["keys"]) - set(known))


def test_a_kernel_that_is_not_known_is_compiled(outcome):
    """The first kernel of this compiler is struck off the list; where the list is another compiler's, all are new."""
    if outcome["compiled"]:
        pytest.skip("the list is of another release of Triton, so all kernels were compiled")
    assert compiled(outcome["keys"][1:])["compiled"] == 1


@pytest.mark.slow
def test_every_known_kernel_compiles_again():
    outcome = compiled([])
    assert outcome["compiled"] == len(outcome["keys"])


if __name__ == "__main__":
    RECORD.write_text(json.dumps(compiled([])["keys"], indent=0) + "\n")
