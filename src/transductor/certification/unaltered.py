"""What was analysed is what runs: models whose code somebody changed are refused by name."""

from __future__ import annotations

import inspect
import sys
from typing import Final

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

_OF_TORCH: Final = (
    nn.Linear,
    nn.LayerNorm,
    nn.Embedding,
    nn.GELU,
    nn.Dropout,
    nn.Identity,
    nn.Sequential,
    nn.ModuleList,
    nn.ParameterList,
)


def check_unaltered(model: nn.Module) -> None:
    """Refuse a model of which any part is of another class, hooked, replaced or parametrised, naming the part.

    A certificate is about numbers, and about the code that computes with them.  Hooks, forwards put on a module,
    subclasses and tensors with their own arithmetic would compute something else.
    """
    for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
        if getattr(torch_module, name):
            raise ValueError("model_or_head must run as it is; a forward hook for all modules is registered with torch")
    for path, part in model.named_modules():
        where = f"{type(model).__name__}{'.' if path else ''}{path}"
        if not _is_known(type(part)):
            raise ValueError(
                f"model_or_head must be made of the classes of transductor and torch that were analysed; {where} is a "
                f"{type(part).__module__}.{type(part).__qualname__}"
            )
        if part._forward_hooks or part._forward_pre_hooks:
            raise ValueError(f"model_or_head must run as it is; {where} has a forward hook")
        replaced = [name for name in vars(part) if _is_method(type(part), name)]
        if replaced:
            raise ValueError(f"model_or_head must run as it is; {where} has another {replaced[0]} than its class")
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None and type(tensor) not in (Tensor, nn.Parameter):
                raise ValueError(f"model_or_head must hold plain tensors; {where}.{name} is a {type(tensor).__name__}")


def _is_known(kind: type[nn.Module]) -> bool:
    """Tell whether a class is one of torch's that were analysed, or is really the one of transductor that it says."""
    if kind in _OF_TORCH:
        return True
    module = sys.modules.get(kind.__module__)
    return kind.__module__.split(".")[0] == "transductor" and getattr(module, kind.__qualname__, None) is kind


def _is_method(kind: type[nn.Module], name: str) -> bool:
    """Tell whether a class has a function, or a property, of this name."""
    member = inspect.getattr_static(kind, name, None)
    return inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod)
