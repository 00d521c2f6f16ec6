"""The runner of the suite on a GPU machine: whatever a test does to its process, every outcome is counted."""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from transductor.results import read_record

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "suite_on_gpu.py"
CRASHING = """
import os, pytest

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_skips(): pytest.skip("no reason")
def test_crashes(): os.kill(os.getpid(), 11)
@pytest.mark.xfail
def test_after_the_crash(): assert False
@pytest.mark.slow
def test_not_selected(): pass
"""
SILENT = """
import time

def test_before(): pass
def test_silent(): time.sleep(600)
def test_after(): pass
"""
BROKEN = """
import pytest

@pytest.fixture
def broken(): raise RuntimeError("no such fixture")
@pytest.fixture
def torn():
    yield
    raise RuntimeError("torn")
def test_set_up(broken): pass
def test_torn_down(torn): pass
"""
PARTS = {
    "crashing": CRASHING,
    "silent": SILENT,
    "broken": BROKEN,
    "missing": 'import pytest\npytest.importorskip("no_such_module")\n',
    "not_readable": "import no_such_module\n",
    "empty": "",
}


@pytest.fixture
def script(monkeypatch):
    """The runner as a module; it is not told about a GPU, which would take an import of torch."""
    specification = importlib.util.spec_from_file_location("suite_on_gpu", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.setitem(sys.modules, "suite_on_gpu", module)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "GPU", "")
    return module


def run(script, folder, *names, **changes):
    """Run the named files; return the measurements that were written, and the bad tests by name."""
    for name in names:
        (folder / f"test_{name}.py").write_text(PARTS[name])
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    (folder / "work").mkdir()
    options = {"jobs": 2, "seconds": 100, "silent": 60, "select": "not slow", "output": folder / "record.json"}
    measurements = script.run(Namespace(files=[folder], **options | changes), folder / "work")
    assert dict(read_record(folder / "record.json").measurements) == measurements
    return measurements, {each["test"].split("::")[-1]: each for each in measurements["bad"]}


def counts(script, measurements):
    return {outcome: count for outcome in script.OUTCOMES if (count := measurements[outcome])}


def test_a_crash_costs_one_test(script, tmp_path):
    measurements, bad = run(script, tmp_path, "crashing")
    assert counts(script, measurements) == {"passed": 1, "failed": 1, "skipped": 1, "crashed": 1, "xfailed": 1}
    assert (measurements["complete"], measurements["not_finished"]) == (True, [])
    assert (bad["test_crashes"]["outcome"], bad["test_crashes"]["words"]) == ("crashed", "SIGSEGV")
    assert bad["test_fails"]["words"] == "test_crashing.py:5: assert 1 == 2"
    assert measurements["skips"] == {"no reason": 1}


@pytest.mark.slow
def test_silence_missing_modules_and_broken_fixtures_are_counted(script, tmp_path):
    measurements, bad = run(script, tmp_path, *PARTS, silent=10)
    assert counts(script, measurements) == {
        "passed": 3,
        "skipped": 2,
        "xfailed": 1,
        "failed": 1,
        "error": 3,
        "crashed": 1,
        "silent": 1,
    }
    assert measurements["complete"]
    assert bad["test_silent"]["words"] == "nothing began or ended for 10 s"
    assert bad["test_set_up"]["words"].endswith("RuntimeError: no such fixture")
    assert bad["test_torn_down"]["words"].endswith("RuntimeError: torn")
    assert bad["test_not_readable.py"]["words"].endswith("ModuleNotFoundError: No module named 'no_such_module'")
    assert any("no_such_module" in reason for reason in measurements["skips"])


@pytest.mark.slow
def test_what_had_no_time_is_named_and_not_counted(script, tmp_path):
    measurements, bad = run(script, tmp_path, "silent", "crashing", jobs=1, seconds=8)
    assert not measurements["complete"]
    assert measurements["not_finished"]
    assert "test_silent" not in bad


def test_the_longest_files_are_shared_and_every_file_is_in_one_part(script, tmp_path):
    files = script.test_files([SCRIPT.parents[1] / "tests"])
    parts = script.parts_of(files, 12, tmp_path)
    for file in files:
        shares = [(part.share, part.shares) for part in parts if file in part.files]
        assert shares == ([(share, script.SHARES) for share in range(script.SHARES)] if len(shares) > 1 else [(0, 1)])
    assert sum(len(part.files) for part in parts if part.shares == 1) + len(script.LONGEST) == len(files)
