"""Run the whole test suite on a machine with a GPU, several processes at once, and write down how it ended.

Nothing but pytest is needed beside the package: tests whose optional package is missing are skipped.  Test files are
dealt to processes; the longest are shared by several.  Every outcome is written down when it is there, so that the
record is right however the run ends: a process that a test takes down (a segmentation fault) costs that test, and the
others of its files run in a new process; a test that gives no sign for ``--silent`` seconds is killed likewise; what
had no time within ``--seconds`` is counted as not run.

Writes ``benchmarks/results/suite_on_gpu.json``; the exit status is 0 if every test ran and none failed.  Usage:
``PYTHONPATH=src python3 benchmarks/suite_on_gpu.py [--jobs 12] [--seconds 540] [--select "not slow"] [FILES]``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transductor.results import Record, environment

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import forks  # noqa: E402
from tests.longest import LONGEST  # noqa: E402

BAD = ("failed", "error", "crashed", "silent")
OUTCOMES = ("passed", "skipped", "xfailed", *BAD)
BEGUN = "begun"
SHARES = 4  # processes that share one of the longest files
PACKAGES = (
    *("pytest", "hypothesis", "mpmath", "scikit-learn", "aalpy", "python-flint", "pynini"),
    *("transformers", "accelerate", "peft", "onnx", "onnxscript", "onnxruntime"),
)
JOURNAL, SHARE = "SUITE_JOURNAL", "SUITE_SHARE"  # variables by which a process of pytest knows its part
GPU = """
import torch
if torch.cuda.is_available():
    print(torch.cuda.get_device_name(), torch.cuda.device_count(), torch.version.cuda, sep="\\n")
"""


# What pytest calls: this file is its plugin, and keeps a journal of the tests that began and ended.


def _noted(**line: Any) -> None:
    if JOURNAL in os.environ:
        with open(os.environ[JOURNAL], "a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep this process's share of the tests, less those that the journal has already."""
    if JOURNAL not in os.environ:
        return
    share, shares = map(int, os.environ[SHARE].split("/"))
    over = {line["test"] for line in journal_lines(Path(os.environ[JOURNAL]))}
    kept = [item for place, item in enumerate(items) if place % shares == share and item.nodeid not in over]
    chosen = set(map(id, kept))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


def pytest_collectreport(report: Any) -> None:
    """Note a file that cannot be read, or is skipped as a whole; one process of those that share it does."""
    if report.outcome != "passed" and os.environ.get(SHARE, "").startswith("0/"):
        outcome = "skipped" if report.skipped else "error"
        _noted(test=report.nodeid, outcome=outcome, words=words_of(report), seconds=0.0)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note that a test begins: if nothing follows, it took the process down."""
    _noted(test=nodeid, outcome=BEGUN, words="", seconds=0.0)


def pytest_runtest_logreport(report: Any) -> None:
    """Note how a test ended; the last line about a test counts."""
    if report.when != "call" and report.passed:
        return
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.skipped else "passed"
    else:
        outcome = "error" if report.failed and report.when != "call" else report.outcome
    _noted(test=report.nodeid, outcome=outcome, words=words_of(report), seconds=round(report.duration, 3))


def words_of(report: Any) -> str:
    """Return why a test was skipped, or the first line of what went wrong and where."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return " ".join(str(report.longrepr).split())[-300:]
    return f"{Path(crash.path).name}:{crash.lineno}: {' '.join(str(crash.message).split())[:300]}"


def journal_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal, less those that a kill cut short."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):
            lines.append(json.loads(text))
    return lines


# What starts them.


@dataclass
class Part:
    """Some test files, or one process's share of one, and the process that runs them now."""

    files: list[Path]
    share: int
    shares: int
    journal: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    begun: float = 0.0
    ended: bool = False
    known: int = 0  # outcomes when the process began
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def start(self, select: str) -> None:
        """Start pytest on what the journal does not have yet."""
        paths = [str(ROOT / "src"), str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
            JOURNAL: str(self.journal),
            SHARE: f"{self.share}/{self.shares}",
        }
        options = ["-q", "-p", Path(__file__).stem, "-p", "no:cacheprovider", "-m", select]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *map(str, self.files)],
                cwd=ROOT,
                env=os.environ | variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.begun, self.known = time.monotonic(), len(self.outcomes)

    def kill(self) -> None:
        """End the process and everything that it started."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def silence(self) -> float:
        """Return for how many seconds nothing began or ended."""
        written = time.time() - self.journal.stat().st_mtime if self.journal.exists() else float("inf")
        return min(written, time.monotonic() - self.begun)

    def read(self) -> str:
        """Read the journal; return the test that is under way, or an empty text."""
        lines = journal_lines(self.journal)
        self.outcomes = {line["test"]: line for line in lines}
        return lines[-1]["test"] if lines and lines[-1]["outcome"] == BEGUN else ""

    def note(self, test: str, outcome: str, words: str) -> None:
        """Write an outcome that pytest could not write itself."""
        line = {"test": test, "outcome": outcome, "words": words, "seconds": round(time.monotonic() - self.begun, 1)}
        with open(self.journal, "a", encoding="utf-8") as journal:
            journal.write(f"\n{json.dumps(line)}\n")  # after a line that may have been cut short
        self.read()

    def look(self, silent: float, select: str) -> None:
        """Look at the process: say how it ended, and go on without a test that took it down."""
        assert self.process is not None
        status, known = self.process.poll(), self.known
        if status is None and self.silence() < silent:
            return
        test = self.read()
        if status is None:
            self.kill()
            self.note(test or self.name, "silent", f"nothing began or ended for {silent:.0f} s")
        elif test:
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            self.note(test, "crashed", how)
        elif status not in (0, 1, 5) and not any(line["outcome"] == "error" for line in self.outcomes.values()):
            said = " ".join(self.log.read_text(errors="replace").split())[-600:]
            self.note(self.name, "error", f"pytest ended with {status}: {said}")
        if (status is None or status < 0 or test) and len(self.outcomes) > known:
            self.start(select)
        else:
            self.ended = True

    @property
    def name(self) -> str:
        """The files."""
        return " ".join(str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path) for path in self.files)


def test_files(places: Iterable[Path]) -> list[Path]:
    """Return all test files of some folders and files."""
    files = []
    for place in places:
        if not place.exists():
            raise SystemExit(f"{place} does not exist")
        files += sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    return [file.resolve() for file in files]


def parts_of(files: list[Path], jobs: int, folder: Path) -> list[Part]:
    """Share out the longest files, and deal the others to some processes for each job, large ones first."""
    longest = [ROOT / "tests" / name for name in LONGEST]
    shared = [file for file in longest if file in files]
    others = sorted(set(files) - set(shared), key=lambda file: (-file.stat().st_size, file))
    bins = min(len(others), 3 * jobs)
    plans = [([file], share, SHARES) for file in shared for share in range(SHARES)]
    plans += [(others[place::bins], 0, 1) for place in range(bins)]
    return [
        Part(each, share, shares, folder / f"{number}.jsonl", folder / f"{number}.log")
        for number, (each, share, shares) in enumerate(plans)
    ]


def versions() -> dict[str, str | None]:
    """Return the packages that tests ask for, and None for those that are missing."""
    there: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            there[package] = version(package)
        except PackageNotFoundError:
            there[package] = None
    return there


def measured(parts: list[Part], seconds: float) -> dict[str, Any]:
    """Count outcomes, by file too, and name what failed and why tests were skipped."""
    counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
    files: dict[str, Counter[str]] = {}
    times: Counter[str] = Counter()
    bad, skipped = [], Counter[str]()
    for part in parts:
        for test, line in part.outcomes.items():
            file, outcome = test.split("::")[0], line["outcome"]
            if outcome == BEGUN:
                continue
            counts[outcome] += 1
            files.setdefault(file, Counter())[outcome] += 1
            times[file] += line["seconds"]
            if outcome in BAD:
                bad.append({"test": test, "outcome": outcome, "words": line["words"]})
            elif outcome == "skipped":
                skipped[line["words"]] += 1
    left = sorted({part.name for part in parts if not part.ended})
    return {
        **counts,
        "seconds": round(seconds, 1),
        "complete": not left,
        "not_finished": left,
        "bad": sorted(bad, key=lambda each: each["test"]),
        "skips": dict(skipped.most_common()),
        "files": {file: {**files[file], "seconds": round(times[file], 1)} for file in sorted(files)},
    }


def gpu(asked: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a process that asked torch for the GPU was told; it is asked while the first tests run."""
    if asked.stdout is None or asked.stdout.closed:
        return {}
    lines = asked.communicate()[0].split("\n")
    return {"device": lines[0], "gpus": int(lines[1]), "cuda": lines[2]} if len(lines) > 2 else {"device": "cpu"}


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run all parts and write the record again every few seconds; return the last measurements."""
    begun = time.monotonic()
    asked = subprocess.Popen([sys.executable, "-c", GPU], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    parts = parts_of(test_files(options.files), options.jobs, folder)
    waiting, running = list(parts), list[Part]()
    settings = {"jobs": options.jobs, "seconds": options.seconds, "silent": options.silent, "select": options.select}
    about = {**environment(), "packages": versions()}
    written = 0.0
    try:
        while True:
            for part in running:
                part.look(options.silent, options.select)
                if part.ended:
                    print(f"{time.monotonic() - begun:6.1f} s  {part.name}: {_counted(part)}", flush=True)
            running = [part for part in running if not part.ended]
            late = time.monotonic() - begun > options.seconds
            while waiting and len(running) < options.jobs and not late:
                running.append(waiting.pop(0))
                running[-1].start(options.select)
            over = late or not running
            if over or time.monotonic() - written > 5:
                for part in running:
                    part.read()
                if over or asked.poll() is not None:
                    about |= gpu(asked)
                measurements = measured(parts, time.monotonic() - begun)
                Record("suite_on_gpu", settings, measurements, about).write(options.output)
                written = time.monotonic()
            if over:
                return measurements
            time.sleep(0.1)
    finally:
        for part in running:
            part.kill()


def _counted(part: Part) -> str:
    counts = Counter(line["outcome"] for line in part.outcomes.values())
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no test"


def main() -> None:
    """Run the suite, print what failed and the counts, and end with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=[ROOT / "tests"], help="test files or folders")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--silent", type=float, default=150, help="seconds after which a test is killed")
    parser.add_argument("--select", default="not slow", help="pytest's -m")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "suite_on_gpu.json")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1; got {options.jobs}")
    with tempfile.TemporaryDirectory() as folder, forks.server():
        measurements = run(options, Path(folder))
    for each in measurements["bad"]:
        print(f"{each['outcome']}: {each['test']}: {each['words']}")
    for name in measurements["not_finished"]:
        print(f"not finished: {name}")
    print(", ".join(f"{measurements[outcome]} {outcome}" for outcome in OUTCOMES), f"in {measurements['seconds']} s")
    sys.exit(1 if measurements["bad"] or measurements["not_finished"] else 0)


if __name__ == "__main__":
    main()
