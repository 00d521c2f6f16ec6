from __future__ import annotations

import functools

import pytest


@pytest.fixture(scope="session")
def translations_read_once():
    """Keep torch's table of ONNX translations: every export read the source of five hundred functions again."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        ONNXRegistry = None
    # These names are torch's own; with a version that has others, the tests are the same and take longer.
    if not hasattr(ONNXRegistry, "from_torchlib") or not hasattr(ONNXRegistry(), "functions"):
        yield
        return
    read = functools.cache(ONNXRegistry.from_torchlib)

    def copied(**options):
        """Return a copy, to which an export adds the translations of its caller."""
        table, copy = read(**options), ONNXRegistry()
        vars(copy).update(vars(table), functions={name: list(entries) for name, entries in table.functions.items()})
        return copy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(copied))
        yield
