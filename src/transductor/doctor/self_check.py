"""The self-check compares everything that can run here with the loop in float64, forward and backward.

Sizes are awkward on purpose: one step, lengths that no chunk divides, the widest state a kernel takes, masks, packed
documents, additive terms, half precision.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from transductor.bench.correctness import WrongResult, bounds_of, one_line, outcome, relative_error
from transductor.bench.peers import Contender, library, untimed_backends
from transductor.bench.workloads import DTYPES, Case, Operands, draw
from transductor.checks import VALUE_TOLERANCE
from transductor.doctor.installation import why_unusable
from transductor.heads import RationalHead
from transductor.kernels.gpu.decoding import TokenDecoder
from transductor.kernels.rotation import cayley_rotation, skew, skew_dim
from transductor.model import BackboneConfig, RationalTransductor, RotaryPositions, load, save
from transductor.recurrence import BACKENDS
from transductor.transitions import OrthogonalTransitions

CASES: Final = (
    Case(2, 1, dim=2),
    Case(2, 1, dim=64, symbols=0, bias=True),
    Case(3, 7, dim=5, bias=True, padded=True),
    Case(3, 7, dim=32, symbols=0),
    Case(3, 129, dim=2, symbols=0, bias=True, padded=True),
    Case(1, 129, dim=5, documents=3, bias=True, padded=True),
    Case(2, 129, dim=64, bias=True, padded=True),
    Case(1, 1000, dim=5, symbols=0, documents=8),
    Case(1, 1000, dim=32),
    Case(2, 129, dim=16, symbols=700, bias=True),
    Case(2, 129, dim=32, dtype="bfloat16", bias=True, padded=True),
    Case(1, 129, dim=5, symbols=0, dtype="bfloat16", documents=3),
    Case(2, 129, dim=5, dtype="float64", bias=True, padded=True),
)
# More for the kernels of a GPU, so that each runs: walks over words, words of wide matrices, runs of tokens, blocks.
KERNEL_CASES: Final = (
    Case(32, 300, dim=64, bias=True, padded=True),
    Case(2, 129, dim=120),
    Case(5, 1000, dim=20),
    Case(2, 1000, dim=5, symbols=9000),
    Case(8, 3200, dim=5, symbols=800),
    Case(32, 1100, dim=32, blocks=2),
)
# Small enough for Triton's interpreter to finish in seconds.
TINY_CASES: Final = (
    Case(2, 1, dim=2),
    Case(2, 7, dim=5, bias=True, padded=True),
    Case(1, 9, dim=3, symbols=0, documents=3, bias=True),
    Case(2, 7, dim=5, dtype="bfloat16"),
    Case(2, 5, dim=66, bias=True, padded=True),
)
_DIMENSIONS: Final = (1, 2, 5, 32, 64)
OnCheck = Callable[[str, int, int], None]


@dataclass
class Check:
    """One thing that was checked, and the part with the largest error relative to what is allowed for it.

    ``fault`` is empty when it is right; otherwise it says what is wrong, by how much, at which size.
    """

    subject: str
    device: str
    precision: str
    case: str
    part: str = ""
    error: float = 0.0
    allowed: float = 0.0
    seconds: float = 0.0
    fault: str = ""

    def compare(self, part: str, result: Tensor, exact: Tensor, allowed: float, *, scale: float | None = None) -> None:
        """Measure the relative error by norm; keep the worst part, and the first fault."""
        result, exact = result.detach(), exact.detach()
        if scale is None:
            error = relative_error(result, exact)["norm"]
        else:
            error = float((result - exact).double().norm()) / scale
        if self.fault:
            return
        if not error <= allowed:  # NaN does not pass
            self.fault = f"{part} off by {error:.1e}, allowed {allowed:.1e}"
        elif self.part and error * self.allowed < self.error * allowed:
            return
        self.part, self.error, self.allowed = part, error, allowed


def run_self_check(
    devices: tuple[str, ...], *, compiled: bool = False, seed: int | None = None, on_check: OnCheck | None = None
) -> list[Check]:
    """Check every usable backend on every device, the rotations, a stream and a checkpoint.

    Args:
        devices: Devices to check, such as ``("cpu", "cuda:0")``.
        compiled: Whether to ``torch.compile`` a model too, which takes a while.
        seed: Seed of the numbers drawn; None draws fresh ones.
        on_check: Called with what comes next, how many are done, how many there are.
    """
    seed = time.time_ns() % (1 << 31) if seed is None else seed
    planned: list[tuple[str, Callable[[list[Check]], None]]] = []
    exact: dict[Case, tuple[Operands, tuple[Tensor, ...]]] = {}
    for device in devices:
        for name in BACKENDS:
            if why_unusable(name, device) is None:
                cases: tuple[Case, ...] = CASES
                if name == "triton":
                    cases = TINY_CASES if device == "cpu" else (*CASES, *KERNEL_CASES)
                planned.append((name, partial(_check_backend, name, device, cases, exact, seed)))
        planned.append(("Cayley map", partial(_check_rotations, device, seed)))
        if why_unusable("triton", device) is None:
            planned.append(("decoded token", partial(_check_decoded_token, device, seed)))
        planned.append(("decoding", partial(_check_stream, device, seed)))
        planned.append(("checkpoint", partial(_check_checkpoint, device, seed)))
        if compiled:
            planned.append(("torch.compile", partial(_check_compiled, device, seed)))
    checks: list[Check] = []
    for done, (name, check) in enumerate(planned):
        if on_check is not None:
            on_check(name, done, len(planned))
        with warnings.catch_warnings():  # compilers and libraries address theirs to their own developers
            warnings.simplefilter("ignore")
            check(checks)
    return checks


def _check_backend(
    name: str,
    device: str,
    cases: tuple[Case, ...],
    exact: dict[Case, tuple[Operands, tuple[Tensor, ...]]],
    seed: int,
    checks: list[Check],
) -> None:
    named = (contender for contender in untimed_backends() if contender.name.startswith(name))
    contender = next(named, Contender(name, library(name), ours=True))
    for case in cases:
        if case not in exact:
            operands = draw(case, "cpu", seed + len(exact))
            exact[case] = operands, outcome(operands, "reference", torch.float64)
        operands, right = exact[case]
        states, gradients = bounds_of(contender, case, device)
        with _check(checks, name, device, str(case), case.dtype) as checked:
            call = contender.bind(operands.to(device, DTYPES[case.dtype]))
            both = call.forward_backward()
            checked.compare("states", both[0], right[0], states)
            checked.compare("states without gradient", call.forward(), right[0], states)
            for part, value, wanted in zip(("matrices", "initial_state", "bias"), both[1:], right[1:], strict=False):
                checked.compare(f"gradient of {part}", value, wanted, gradients)


def _check_rotations(device: str, seed: int, checks: list[Check]) -> None:
    """Compare the Cayley map, and its square, with a solve in float64; three matrices of each size."""
    source = torch.Generator().manual_seed(seed)
    for dim in _DIMENSIONS:
        for squared in (False, True):
            raw = torch.randn(3, skew_dim(dim), generator=source) / dim**0.5
            grad = torch.randn(3, dim, dim, generator=source)
            with _check(checks, "Cayley map", device, f"d={dim}{', squared' if squared else ''}") as checked:
                leaf = raw.double().requires_grad_()
                skews, eye = skew(leaf, dim), torch.eye(dim, dtype=torch.float64)
                right = torch.linalg.solve(eye - skews, eye + skews)
                right = right @ right if squared else right
                (wanted,) = torch.autograd.grad(right, leaf, grad.double())
                leaf = raw.to(device).requires_grad_()
                rotations = cayley_rotation(leaf, dim, squared=squared)
                (gradient,) = torch.autograd.grad(rotations, leaf, grad.to(device))
                checked.compare("matrices", rotations, right, VALUE_TOLERANCE[torch.float32])
                if dim > 1:  # in one dimension there is one rotation and no parameter
                    checked.compare("gradient", gradient, wanted, VALUE_TOLERANCE[torch.float32])


def _check_decoded_token(device: str, seed: int, checks: list[Check]) -> None:
    """Compare the kernel of a decoded token, a step and the projections of its state, with float64."""
    source = torch.Generator().manual_seed(seed)
    for dim in _DIMENSIONS:
        table, state = torch.randn(7, dim, dim, generator=source), torch.randn(3, dim, generator=source)
        weight, tokens = torch.randn(300, dim, generator=source), torch.randint(0, 7, (3, 1), generator=source)
        with _check(checks, "decoded token", device, f"d={dim}") as checked:
            decoder = TokenDecoder(table.to(device), None, weight.to(device), 100, rows=3)
            after = decoder(tokens.to(device), state.to(device))
            right = (table[tokens[:, 0]].double() @ state.double().unsqueeze(-1)).squeeze(-1)
            checked.compare("state", after, right, VALUE_TOLERANCE[torch.float32])
            projected = (right @ weight.double().mT).unflatten(-1, (3, 1, 100)).transpose(0, 1)
            checked.compare("terms", decoder.terms, projected, VALUE_TOLERANCE[torch.float32])


def _model(device: str, seed: int) -> tuple[RationalTransductor, Tensor]:
    """Return a small model and tokens ``(2, 33)`` for it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = RationalHead(OrthogonalTransitions(vocab_size=7, state_dim=8))
        backbone = BackboneConfig(vocab_size=7, width=32, layers=2, attention_heads=4, positions=RotaryPositions())
        model = RationalTransductor(head, backbone)
        tokens = torch.randint(0, 7, (2, 33))
    return model.to(device).eval(), tokens.to(device)


def _check_stream(device: str, seed: int, checks: list[Check]) -> None:
    """Compare tokens read one by one, and ten at a time, with all read at once."""
    model, tokens = _model(device, seed)
    for size in (1, 10):
        with _check(checks, "decoding", device, f"33 tokens, {size} at a time") as checked, torch.no_grad():
            stream, pieces = model.start(2), []
            for piece in tokens.split(size, 1):
                logits, stream = model.advance(piece, stream)
                pieces.append(logits)
            checked.compare("logits", torch.cat(pieces, 1), model(tokens), VALUE_TOLERANCE[torch.float32])


def _check_checkpoint(device: str, seed: int, checks: list[Check]) -> None:
    """Check that a model answers the same, bit for bit, after it was saved and loaded."""
    model, tokens = _model(device, seed)
    with (
        _check(checks, "checkpoint", device, "saved and loaded") as checked,
        torch.no_grad(),
        tempfile.TemporaryDirectory() as folder,
    ):
        again = load(save(model, folder), device=device)
        checked.compare("logits", again(tokens), model(tokens), 0.0)


def _check_compiled(device: str, seed: int, checks: list[Check]) -> None:
    """Check that a compiled model is one graph and gives the same logits and gradients."""
    model, tokens = _model(device, seed)
    with _check(checks, "torch.compile", device, "one graph, forward and backward") as checked:
        compiled = torch.compile(model, fullgraph=True)
        right, logits = model(tokens), compiled(tokens)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        bound = VALUE_TOLERANCE[torch.float32]
        checked.compare("logits", logits, right, bound)
        wanted = torch.autograd.grad(right.square().mean(), weights)
        gradients = torch.autograd.grad(logits.square().mean(), weights)
        for name, value, expected in zip(dict(model.named_parameters()), gradients, wanted, strict=False):
            # Relative to all gradients together, because one that is nearly zero consists of rounding errors.
            scale = torch.cat([each.flatten() for each in wanted]).norm()
            checked.compare(f"gradient of {name}", value, expected, bound, scale=float(scale))


@contextmanager
def _check(checks: list[Check], subject: str, device: str, case: str, precision: str = "float32") -> Iterator[Check]:
    """Append a check to ``checks`` and time the body that fills it in; an error raised in the body is a fault."""
    check = Check(subject, device, precision, case)
    checks.append(check)
    begin = time.perf_counter()
    try:
        yield check
    except Exception as error:  # a kernel may fail in any way
        check.fault = check.fault or (str(error) if isinstance(error, WrongResult) else one_line(error))
    check.seconds = time.perf_counter() - begin
