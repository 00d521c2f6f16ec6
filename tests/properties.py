"""What hypothesis gives to tests; where it is missing, the tests that are ``given`` examples are skipped."""

from __future__ import annotations

import pytest

try:
    from hypothesis import given, settings
    from hypothesis import strategies as st
except ImportError:

    class Missing:
        """Whatever is asked of a strategy is this again."""

        def __getattr__(self, name):
            return self

        def __call__(self, *_, **__):
            return self

        def __or__(self, other):
            return self

    st = Missing()

    def given(*_, **__):
        return pytest.mark.skip(reason="could not import 'hypothesis'")

    def settings(**_):
        return lambda test: test
else:
    settings.register_profile("house", deadline=None, max_examples=30, derandomize=True)
    settings.load_profile("house")

__all__ = ["given", "settings", "st"]
