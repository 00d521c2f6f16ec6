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
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transductor.kernels.gpu.launch import LISTENING, STREAM, Launcher

_LARGEST: Final = 1 << 24  # bytes of operands, and of everything a call allocates
_MOST: Final = 1024  # kinds of calls that are remembered
_ALIGNED: Final = 256  # bytes; kernels are compiled for addresses that divide by 16
_PLAIN: Final = (Tensor, torch.nn.Parameter)
_SEEN: Final = object()

_aten = torch.ops.aten
_EMPTY: Final = {_aten.empty, _aten.new_empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty_strided}
_ZEROS: Final = {_aten.zeros, _aten.new_zeros, _aten.zeros_like}

_Result = tuple[Callable[..., Tensor] | None, torch.Size, torch.dtype]

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
        held: list[Tensor | None] = []
        given = None
        for operand in operands:
            if operand is None:
                key.append(None)
                held.append(None)
                continue
            if type(operand) not in _PLAIN:
                return self._function(*operands, **flags)
            given = operand if operand.is_contiguous() or operand.nbytes > _LARGEST else operand.contiguous()
            key += given.dtype, given.shape, given.data_ptr() % 16
            held.append(given)
        if given is None or torch._C._len_torch_dispatch_stack():
            return self._function(*operands, **flags)
        device = given.device
        kind = device, *key
        known = self._known.get(kind, False)
        if known is False:
            return self._first(kind, held, flags)
        if known is _SEEN:
            results, self._known[kind] = _followed(self._function, held, flags)
            return results
        if known is None or (device.type == "cuda" and torch._C._cuda_getDevice() != device.index):
            return self._function(*operands, **flags)
        program: _Program = known
        return program(held)

    def _first(self, kind: Any, operands: Sequence[Tensor | None], flags: dict[str, bool]) -> tuple[Tensor | None, ...]:
        """Return the results of a call that was not seen before, and say whether to follow the next one."""
        if len(self._known) >= _MOST:  # lengths that never come back
            self._known.clear()
        given = [operand for operand in operands if operand is not None]
        small = sum(operand.nbytes for operand in given) <= _LARGEST
        aligned = all(operand.data_ptr() % 16 == 0 for operand in given)
        self._known[kind] = _SEEN if small and aligned else None
        return self._function(*operands, **flags)


class _Program:
    """The launches of one kind of call.

    Args:
        device: Where it runs.
        room: Bytes of what it leaves behind.
        results: How every result is allocated (None where there is none), its shape and dtype.
        launches: Of each, its launcher, the arguments of the kernel, and where those are addresses.
    """

    def __init__(
        self,
        device: torch.device,
        room: int,
        results: Sequence[_Result],
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
            None if make is None else make(shape, dtype=dtype, device=device) for make, shape, dtype in self._results
        ]
        room = torch.empty(self._room, dtype=torch.uint8, device=device) if self._room else None
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
        super().__init__()  # type: ignore[no-untyped-call]
        self.repeatable = True
        # Kept alive, so that no address is used twice; each with the function that allocates the like.
        self.allocated: list[tuple[Tensor, Callable[..., Tensor]]] = []
        self.launches: list[tuple[Launcher, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        packet = function.overloadpacket
        if packet in _EMPTY or packet in _ZEROS:
            self.allocated.append((result, torch.zeros if packet in _ZEROS else torch.empty))
        elif not function.is_view:
            self.repeatable = False
        return result

    def heard(self, launcher: Launcher, args: tuple[Any, ...]) -> None:
        """Note a launch."""
        self.launches.append((launcher, args))


def _followed(
    function: Callable[..., tuple[Tensor | None, ...]], operands: Sequence[Tensor | None], flags: dict[str, bool]
) -> tuple[tuple[Tensor | None, ...], _Program | None]:
    """Return the results of a call, and the program that repeats it; None where it cannot be repeated."""
    followed = _Followed()
    before, LISTENING.heard = LISTENING.heard, followed.heard
    try:
        with followed:
            results = function(*operands, **flags)
    finally:
        LISTENING.heard = before
    return results, _program(followed, operands, results) if followed.repeatable else None


def _program(
    followed: _Followed, operands: Sequence[Tensor | None], results: Sequence[Tensor | None]
) -> _Program | None:
    """Return the program of a call that was followed; None where memory is used that it did not allocate."""
    device = next(operand.device for operand in operands if operand is not None)
    spans = _Spans()
    for number, operand in enumerate(operands, 1):
        spans.add(operand, (number, 0))
    returned = {value.data_ptr(): place for place, value in enumerate(results) if value is not None and value.numel()}
    makers = dict.fromkeys(returned.values(), torch.empty)
    room = total = 0
    for value, make in followed.allocated:
        size = value.untyped_storage().nbytes()
        total += size
        number = returned.pop(value.data_ptr(), -1)
        if number >= 0:
            makers[number] = make
            spans.add(value, (1 + len(operands) + number, 0))
        elif make is torch.empty:
            spans.add(value, (0, room))
            room += -(-size // _ALIGNED) * _ALIGNED
        else:
            return None
    complete = all(_is_all_of_its_memory(value) for value in results) and not returned
    if not complete or spans.overlap() or total > _LARGEST:
        return None
    made = [_result(value, makers.get(place)) for place, value in enumerate(results)]
    launches = []
    for launcher, args in followed.launches:
        places: dict[int, _Place] = {}
        for at, arg in enumerate(args):
            if isinstance(arg, Tensor):
                place = spans.place_of(arg)
                if place is None:
                    return None
                places[at] = place
        kept = tuple(arg.dtype if isinstance(arg, Tensor) else arg for arg in args)
        launches.append((launcher, kept, places))
    return _Program(device, room, made, launches)


def _is_all_of_its_memory(value: Tensor | None) -> bool:
    return value is None or (value.is_contiguous() and value.nbytes == value.untyped_storage().nbytes())


def _result(value: Tensor | None, make: Callable[..., Tensor] | None) -> _Result:
    if value is None:
        return None, torch.Size(), torch.float32
    if make is not None:
        return make, value.shape, value.dtype
    nothing = value.detach()  # without numbers: the same every time
    return lambda shape, dtype, device: nothing, value.shape, value.dtype


class _Spans:
    """Which addresses belong to which memory of a program."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, _Place]] = []  # first byte, end, and where that is

    def add(self, value: Tensor | None, place: _Place) -> None:
        """Note where the memory of a contiguous tensor is in a program."""
        if value is not None and value.numel():
            self._spans.append((value.data_ptr(), value.data_ptr() + value.nbytes, place))

    def overlap(self) -> bool:
        """Tell whether two of them share memory, as if one tensor were given in two places."""
        return any(end > begin for (_, end, _), (begin, _, _) in pairwise(sorted(self._spans)))

    def place_of(self, value: Tensor) -> _Place | None:
        """Return where a tensor begins; None where that is nowhere in a program's memory."""
        address = value.data_ptr()
        for begin, end, (base, offset) in self._spans:
            if begin <= address < end:
                return base, offset + address - begin
        return None if value.numel() else (0, 0)  # nothing is read there
