"""One decoded token of a head, and what its state adds to a model, by a single launch.

Eager decoding spends most of its time on launches.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.kernels.gpu.cuts import LARGEST_STATE, TRITON_FOUND
from transductor.kernels.gpu.launch import launch

_OUTPUTS = 128  # numbers that one program computes


def decodes_at_once(table: Tensor, classes: Tensor | None, tokens: Tensor, state: Tensor, weight: Tensor) -> bool:
    """Tell whether a :class:`TokenDecoder` can read them: plain tensors on one GPU, of shapes that fit together."""
    dim = table.shape[-1]
    if not runs_on(table.device) or dim > LARGEST_STATE or state.shape != (tokens.shape[0], dim):
        return False
    others = (tokens, state, weight) if classes is None else (tokens, state, weight, classes)
    return (
        weight.shape[1] == dim
        and weight.is_contiguous()
        and all(type(each) in (Tensor, torch.nn.Parameter) and each.device == table.device for each in others)
    )


def runs_on(device: torch.device) -> bool:
    """Tell whether Triton's kernels run on a device."""
    return TRITON_FOUND and device.type == "cuda"


@final
class TokenDecoder:
    """Decodes one token after the other, each by one launch; what does not change is checked once.

    A token without a letter of the table makes its state and its projections NaN.

    Args:
        table: ``M[v, to, from]``, ``(V, D, D)``, contiguous.
        classes: Letters of the table by token; None where tokens are letters.
        weight: ``(L · width, D)``, contiguous.
        width: The width of one projection.
        rows: The batch size B.

    ``terms (L, B, 1, width)`` are the projections of the last state, in the precision of ``weight``: the next call
    writes over them.  ``by_layer`` are the same one by one.
    """

    def __init__(self, table: Tensor, classes: Tensor | None, weight: Tensor, width: int, rows: int) -> None:
        self.table, self.classes, self.weight = table, classes, weight
        outputs, dim = weight.shape
        self.terms = weight.new_empty(outputs // width, rows, 1, width)
        self.by_layer = self.terms.unbind(0)
        self._made_for = (weight.data_ptr(), table.device, (rows, 1), (rows, dim))
        self._operand = weight.detach()  # also keeps the memory at that address alive
        self._sizes = (table.shape[0], 0 if classes is None else classes.shape[0])
        self._grid = (-(-outputs // _OUTPUTS), rows)
        self._constants = {
            "D": dim,
            "OUTPUTS": outputs,
            "WIDTH": width,
            "BLOCK_D": 1 << (dim - 1).bit_length(),
            "BLOCK": _OUTPUTS,
        }

    def reads(self, classes: Tensor | None, tokens: Tensor, state: Tensor, weight: Tensor) -> bool:
        """Tell whether it was made for these: same addresses, same shapes."""
        address, device, shape_of_tokens, shape_of_state = self._made_for
        return (
            weight is self.weight
            and classes is self.classes
            and weight.data_ptr() == address
            and type(tokens) is Tensor
            and tokens.shape == shape_of_tokens
            and state.shape == shape_of_state
            and tokens.device == device
            and state.device == device
        )

    def __call__(self, tokens: Tensor, state: Tensor) -> Tensor:
        """Return the next state ``(B, D)`` from tokens ``(B, 1)`` and the state before; also update the terms."""
        from transductor.kernels.gpu.decode_step import decode_step  # Triton is optional

        after = torch.empty_like(state, memory_format=torch.contiguous_format)
        launch(
            decode_step,
            self._grid,
            self.table,
            self.classes,
            tokens.contiguous(),
            state.contiguous(),
            self._operand,
            after,
            self.terms,
            *self._sizes,
            warps=4,
            **self._constants,
        )
        return after
