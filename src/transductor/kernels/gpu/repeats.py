"""Calls that come again with tensors of the same shapes: only their launches are made again, with other addresses.

A small scan is four to ten launches.  Working out how rows are cut, what is allocated and which kernel is meant takes
Python far longer than the device computes.  So the second call of a kind is followed: what it allocates, and what it
launches.  From the third on, one allocation holds all that it leaves behind, and its launches are made as they were.
Nothing of this reads a number on the device, and a call that does anything but allocate, look at memory in another
shape and launch is never repeated in this way.  Large calls are not either: their memory should be freed as they go,
and no one waits for Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transductor.kernels.gpu.launch import LISTENING, STREAM, Launcher

_LARGEST: Final = 1 << 24  # bytes of operands, and of everything a call allocates
_MOST: Final = 1024  # kinds of calls that are remembered
_ALIGNED: Final = 256  # bytes; kernels are compiled for addresses that divide by 16
_PLAIN: Final = (Tensor, torch.nn.Parameter)
_SEEN: Final = object()

_aten = torch.ops.aten
_EMPTY: Final = {_aten.empty, _aten.new_empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty_strided}
_ZEROS: Final = {_aten.zeros, _aten.new_zeros, _aten.zeros_like}

# Where memory of a call lies: in which operand, result or (0) room for what it leaves behind, and from which byte on.
_Place = tuple[int, int]


class Repeats:
    """A function of tensors (or None) and flags that allocates and launches, made quicker where it comes again.

    Its results must be tensors that it allocates, or None.
    """

    def __init__(self, function: Callable[..., tuple[Tensor | None, ...]]) -> None:
        self._function = function
        self._known: dict[Any, Any] = {}

    def forget(self) -> None:
        """Follow every kind of call again: for whoever changes kernels or how rows are cut."""
        self._known.clear()

    def __call__(self, *operands: Tensor | None, **flags: bool) -> tuple[Tensor | None, ...]:
        """Return the results of the function."""
        key: list[Any] = [*flags.values()]
        size, device, held = 0, None, []
        for operand in operands:
            if operand is None:
                key.append(None)
                held.append(None)
                continue
            size += operand.nbytes
            if type(operand) not in _PLAIN or size > _LARGEST:
                return self._function(*operands, **flags)
            value = operand if operand.is_contiguous() else operand.contiguous()
            if value.data_ptr() % 16:
                return self._function(*operands, **flags)
            device = value.device
            key += value.dtype, value.shape
            held.append(value)
        if device is None or torch._C._len_torch_dispatch_stack():
            return self._function(*operands, **flags)
        return self._repeated((device, *key), device, held, flags)

    def _repeated(
        self, kind: Any, device: torch.device, operands: Sequence[Tensor | None], flags: dict[str, bool]
    ) -> tuple[Tensor | None, ...]:
        """Return the results for contiguous operands of this kind."""
        known = self._known.get(kind)
        if type(known) is _Program and (device.type != "cuda" or torch._C._cuda_getDevice() == device.index):
            return known(operands)
        if known is _SEEN:
            results, self._known[kind] = _followed(self._function, operands, flags)
            return results
        if known is None:
            if len(self._known) >= _MOST:  # lengths that never come back
                self._known.clear()
            self._known[kind] = _SEEN
        return self._function(*operands, **flags)


class _Program:
    """The launches of one kind of call.

    Args:
        device: Where it runs.
        room: Bytes of what it leaves behind.
        results: Shape, dtype and whether zeros of every result; None where there is none.
        launches: Of each, its launcher, the arguments of the kernel, and where those are addresses.
    """

    def __init__(
        self,
        device: torch.device,
        room: int,
        results: Sequence[tuple[torch.Size, torch.dtype, bool] | None],
        launches: Sequence[tuple[Launcher, tuple[Any, ...], dict[int, _Place]]],
    ) -> None:
        self._device, self._room, self._results = device, room, results
        self._launches = [
            (run, [*first, *args], [(len(first) + at, *place) for at, place in places.items()])
            for (run, first), args, places in launches
        ]

    def __call__(self, operands: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        device = self._device
        results = [
            None
            if result is None
            else torch.zeros(result[0], dtype=result[1], device=device)
            if result[2]
            else torch.empty(result[0], dtype=result[1], device=device)
            for result in self._results
        ]
        room = torch.empty(self._room, dtype=torch.uint8, device=device)
        memory = [room, *operands, *results]
        if device.type != "cuda":
            self._interpret(memory)
            return tuple(results)
        addresses = [0 if value is None else value.data_ptr() for value in memory]
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        for run, args, places in self._launches:
            filled = args.copy()  # another thread may be making the same call
            filled[STREAM] = stream
            for at, base, offset in places:
                filled[at] = addresses[base] + offset
            run(*filled)
        return tuple(results)

    def _interpret(self, memory: Sequence[Tensor | None]) -> None:
        """Make the launches in Triton's interpreter, which reads tensors and not addresses."""
        for run, args, places in self._launches:
            filled = args.copy()
            for at, base, offset in places:
                value = memory[base]
                assert value is not None
                filled[at] = value.detach().view(-1).view(torch.uint8)[offset:].view(args[at])
            run(*filled)


class _Followed(TorchDispatchMode):
    """Notes what is allocated and launched; ``repeatable`` turns false where anything else is done."""

    def __init__(self) -> None:
        super().__init__()
        self.repeatable = True
        self.allocated: list[tuple[Tensor, bool]] = []  # kept alive, so that no address is used twice
        self.launches: list[tuple[Launcher, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        packet = function.overloadpacket
        if packet in _EMPTY or packet in _ZEROS:
            self.allocated.append((result, packet in _ZEROS))
        elif not function.is_view:
            self.repeatable = False
        return result

    def heard(self, launcher: Launcher, args: tuple[Any, ...]) -> None:
        """Note a launch."""
        self.launches.append((launcher, args))


def _followed(
    function: Callable[..., tuple[Tensor | None, ...]], operands: Sequence[Tensor | None], flags: dict[str, bool]
) -> tuple[tuple[Tensor | None, ...], _Program | bool]:
    """Return the results of a call, and the program that repeats it; False where it cannot be repeated."""
    followed = _Followed()
    before, LISTENING.heard = LISTENING.heard, followed.heard
    try:
        with followed:
            results = function(*operands, **flags)
    finally:
        LISTENING.heard = before
    return results, followed.repeatable and _program(followed, operands, results)


def _program(
    followed: _Followed, operands: Sequence[Tensor | None], results: Sequence[Tensor | None]
) -> _Program | bool:
    """Return the program of a call that was followed; False where memory is used that it did not allocate."""
    device = next(operand.device for operand in operands if operand is not None)
    spans: list[tuple[int, int, _Place]] = []  # first byte, end, and where that is in a program's memory

    def held(value: Tensor, place: _Place) -> None:
        if value.numel():
            spans.append((value.data_ptr(), value.data_ptr() + value.nbytes, place))

    for number, operand in enumerate(operands, 1):
        if operand is not None:
            held(operand, (number, 0))
    made, room, total = [], 0, 0
    returned = {value.data_ptr(): number for number, value in enumerate(results) if value is not None and value.numel()}
    zeros = set()
    for value, zero in followed.allocated:
        size = value.untyped_storage().nbytes()
        total += size
        if value.device != device or value.storage_offset() or not value.is_contiguous():
            return False
        number = returned.pop(value.data_ptr(), None)
        if number is None:
            if zero:
                return False
            held(value, (0, room))
            room += -(-size // _ALIGNED) * _ALIGNED
            continue
        result = results[number]
        if result is None or result.nbytes != value.nbytes or not result.is_contiguous():
            return False
        if zero:
            zeros.add(number)
        held(value, (1 + len(operands) + number, 0))
    spans.sort()
    overlap = any(end > begin for (_, end, _), (begin, _, _) in zip(spans, spans[1:], strict=False))
    if returned or overlap or total > _LARGEST:
        return False
    for number, value in enumerate(results):
        made.append(None if value is None else (value.shape, value.dtype, number in zeros))

    launches = []
    for launcher, args in followed.launches:
        places: dict[int, _Place] = {}
        kept = list(args)
        for at, arg in enumerate(args):
            if not isinstance(arg, Tensor):
                continue
            address = arg.data_ptr()
            found = [(base, offset + address - begin) for begin, end, (base, offset) in spans if begin <= address < end]
            if len(found) != 1:
                if arg.numel():
                    return False
                found = [(0, 0)]  # nothing is read there
            places[at], kept[at] = found[0], arg.dtype
        launches.append((launcher, tuple(kept), places))
    return _Program(device, room, made, launches)
