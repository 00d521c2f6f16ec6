from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from tests import forks
from tests.longest import LONGEST

gc.disable()  # until all tests are collected: what they import stays

if not torch.cuda.is_available():
    # Kernels for a GPU are tested on any machine, by Triton's interpreter; it is chosen when triton is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # At every seed torch writes down the stack, for devices that may be started later; none will be.
    torch.cuda.manual_seed_all = torch.xpu.manual_seed_all = torch.mtia.manual_seed_all = lambda seed: None


def pytest_configure(config):
    """Start the process whose forks run programs; pytest's workers use that of the process which started them."""
    servers = ExitStack()
    servers.enter_context(forks.server())
    config.add_cleanup(servers.close)


def pytest_collection_finish():
    """Let the garbage collector pass over what was imported, and come less often: it took a tenth of the time."""
    with warnings.catch_warnings():  # of torch's own
        warnings.simplefilter("ignore")
        importlib.import_module("torch._dynamo")  # the first test would import it, and it is large
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


# Give everything back to the collector at the end, otherwise nanobind reports leaks; not before pytest's last complete
# collections, which are many and would look for cycles in all that was imported.
atexit.register(gc.unfreeze)


def pytest_collection_modifyitems(items):
    folder = Path(__file__).parent
    places = {folder / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(autouse=True, scope="module")
def passed_over():
    """Let the collector pass over what earlier modules left: compilers and benchmarks ask for complete collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def repeatable():
    """Every test starts from one seed, and uninitialised memory holds NaN so that a read of it shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def followed_again():
    """A test that changes kernels, or how rows are cut, must not get the launches of another one."""
    operator = sys.modules.get("transductor.recurrence.operator")
    if operator is not None:
        operator.forget_repeats()


@pytest.fixture(scope="module")
def coarse():
    """Draw pictures of few pixels, for tests that look at none: sizes are in points, so all else is the same."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("style", "portrait"):
            patch.setattr(f"transductor.report.{module}._DOTS_PER_INCH", 40)
        yield
