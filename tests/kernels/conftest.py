"""Triton's interpreter without its repeated work: half of its time went into preparing what was prepared."""

from __future__ import annotations

from dataclasses import replace

try:
    import triton.language as tl
    from triton.runtime import interpreter
except ImportError:
    interpreter = None


def prepare_language_once():
    """Let a function that a kernel calls find the language as the kernel left it, prepared for the interpreter."""
    prepare = interpreter._patch_lang

    def prepare_once(function):
        used = [each for each in (tl, tl.core) if any(each is value for value in function.__globals__.values())]
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


def skip_unread_overflow_checks():
    """Leave out the arithmetic of overflow checks that are not read: without ``debug`` no assertion follows it."""
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


# These names are Triton's own; with a version that has others, the tests are the same and take longer.
if all(hasattr(interpreter, name) for name in ("_patch_lang", "_LangPatchScope", "_get_np_dtype")):
    prepare_language_once()
    look_up_types_once()
    skip_unread_overflow_checks()
