"""Triton's interpreter without its repeated work: half of its time went into preparing what was prepared."""

from __future__ import annotations

import inspect
from dataclasses import replace

try:
    import triton.language as tl
    from triton.runtime import interpreter
except ImportError:
    interpreter = None


def prepare_language_once():
    """Let a function that a kernel calls find the language as the kernel left it, prepared for the interpreter."""
    prepare, known = interpreter._patch_lang, {}

    def prepare_once(function):
        module = function.__module__
        if module not in known:
            names = function.__globals__.values()
            known[module] = [each for each in (tl, tl.core) if any(each is value for value in names)]
        used = known[module]
        if used and not any(tl.core.is_builtin(each.load) for each in used):
            return interpreter._LangPatchScope()  # nothing was changed, so nothing is to be restored
        return prepare(function)

    interpreter._patch_lang = prepare_once


def look_up_types_once():
    """Keep the NumPy type of every scalar type; the interpreter builds its table of all types at every look."""
    look_up, known = interpreter._get_np_dtype, {}

    def look_up_once(dtype):
        name = dtype.scalar.name
        if name not in known:
            known[name] = look_up(dtype)
        return known[name]

    interpreter._get_np_dtype = look_up_once


def build_types_once():
    """Keep what a type of blocks computes from its shape, and what a tensor computes from its type."""
    parameters = [tuple(inspect.signature(kind).parameters) for kind in (tl.block_type, tl.tensor)]
    if parameters != [("element_ty", "shape"), ("handle", "type")]:
        return
    prepare_type, prepare_tensor, known = tl.block_type.__init__, tl.tensor.__init__, {}

    def prepare_type_once(self, element_ty, shape):
        sizes = tuple(size.value if isinstance(size, tl.constexpr) else size for size in shape)
        key = str(element_ty), getattr(element_ty, "address_space", None), sizes
        if key not in known:
            prepare_type(self, element_ty, shape)
            known[key] = vars(self)
        self.__dict__ = known[key]  # shared by all types of this shape

    def prepare_tensor_once(self, handle, type):
        kept = vars(type).get("_kept_for_tensors")
        if kept is None:
            prepare_tensor(self, handle, type)
            type._kept_for_tensors = {name: value for name, value in vars(self).items() if name != "handle"}
        else:
            vars(self).update(kept, handle=handle)

    tl.block_type.__init__, tl.tensor.__init__ = prepare_type_once, prepare_tensor_once


def skip_unread_overflow_checks():
    """Leave out the arithmetic of overflow checks that are not read: without ``debug`` no assertion follows it."""
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


# These names are Triton's own; with a version that has others, the tests are the same and take longer.
if all(hasattr(interpreter, name) for name in ("_patch_lang", "_LangPatchScope", "_get_np_dtype")):
    prepare_language_once()
    look_up_types_once()
    build_types_once()
    skip_unread_overflow_checks()
