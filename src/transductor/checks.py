"""Validators that every room uses, and the tolerances within which numbers count as equal.

Shapes are written as suffixes where they are used: ``B`` batch, ``T`` time, ``V`` vocabulary, ``D`` state,
``F`` features, ``W`` width of a stream.  ``M[..., to, from]``: states are columns, ``h_t = M h_{t-1}``.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.autograd import forward_ad

# How far values may differ, relative to the largest entry compared, for sums over T <= 1000 steps; one table for the
# complete project.  float16 and bfloat16 are accumulated in float32, so only the last rounding shows.
VALUE_TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-11,
    torch.float32: 2e-4,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}

# How far a matrix may miss a law of its family (orthogonality, sums of one, spectral caps): tighter, as it is no sum.
LAW_TOLERANCE: dict[torch.dtype, float] = {torch.float64: 1e-12, torch.float32: 1e-5}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which states are accumulated: at least float32.

    Products of 10^4 rotations drift in bfloat16 (relative error 0.38 at T = 1000).
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def one_of(argument: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value that is not allowed; the message names the argument and what is allowed."""
    names = list(allowed)
    if value not in names:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, names))}; got {value!r}")


def readable(values: Tensor) -> bool:
    """Tell whether values may be read to refuse bad ones.

    Not inside a compiled graph or a vmapped function, which cannot branch on them, and not on an accelerator, where
    every call would have to wait for it.
    """
    return values.is_cpu and not torch.compiler.is_compiling() and not _batched(values)


def vmapped(*values: Tensor | None) -> bool:
    """Tell whether any of these is a batch of tensors inside ``torch.func.vmap``, under whatever other transforms."""
    return any(value is not None and _batched(value) for value in values)


def _batched(value: Tensor) -> bool:
    functorch = torch._C._functorch
    if torch.compiler.is_compiling():  # which follows this question alone
        return functorch.is_batchedtensor(value)
    while functorch.is_functorch_wrapped_tensor(value):
        if functorch.is_batchedtensor(value):
            return True
        value = functorch.get_unwrapped(value)
    return False


def transformed(*values: Tensor | None) -> bool:
    """Tell whether a transform of ``torch.func`` is under way, or any of these carries a tangent of forward mode."""
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return differentiated(*values)


def differentiated(*values: Tensor | None) -> bool:
    """Tell whether these are differentiated by ``torch.func`` or in forward mode, and not by plain autograd.

    Registered operations have no tangents: torch takes them for zero, without a word.  A compiler shows only that
    forward mode is under way somewhere; ``torch.func.grad`` of a registered operation is then refused by torch.
    """
    if torch.compiler.is_compiling():
        return forward_ad._current_level >= 0
    stack = torch._C._functorch.get_interpreter_stack() or []
    if any(level.key() != torch._C._functorch.TransformType.Vmap for level in stack):
        return True
    return forward_ad._current_level >= 0 and any(
        value is not None and forward_ad.unpack_dual(value).tangent is not None for value in values
    )


def unseen(*operands: Tensor | None) -> bool:
    """Tell whether neither compiler, mode nor transform of torch looks at operations on these, all plain tensors.

    Then an operation of Python may be called directly: torch takes a tenth of a millisecond to dispatch it.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return {type(operand) for operand in operands} <= _PLAIN


_PLAIN = {Tensor, torch.nn.Parameter, type(None)}


def nested_forward_mode() -> bool:
    """Tell whether ``torch.func`` takes tangents of tangents here, which torch forgets in functions with a ``jvp``."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    return sum(level.key() == torch._C._functorch.TransformType.Jvp for level in stack) > 1


def described(value: object) -> str:
    """Say what a refused value is: dtype and shape of a tensor, the type of anything else."""
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def check_tensor(argument: str, value: object) -> None:
    """Refuse anything but a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{argument} must be a torch.Tensor; got {type(value).__name__}")


def check_positive(argument: str, value: object) -> None:
    """Refuse anything but an integer of at least one."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{argument} must be a positive integer; got {value!r}")


def check_token_ids(argument: str, tokens: Tensor, vocab_size: int) -> None:
    """Refuse tokens that are not integers in ``[0, vocab_size)``; the message names the first one."""
    if tokens.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8):
        raise TypeError(f"{argument} must be an integer tensor (int64, int32, int16, int8, uint8); got {tokens.dtype}")
    if tokens.numel() == 0 or not readable(tokens):
        return  # the states of an unknown token are NaN, and an embedding refuses it
    low, high = torch.aminmax(tokens)
    if int(low) < 0 or int(high) >= vocab_size:
        wrong = (tokens < 0) | (tokens >= vocab_size)
        where = tuple(int(i) for i in torch.nonzero(wrong)[0])
        raise IndexError(
            f"{argument} must lie in [0, {vocab_size}); got {int(tokens[where])} at position {list(where)}"
        )
