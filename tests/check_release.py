"""Make the source distribution and the wheel, and try them as a stranger would.  Usage: ``make release``.

The source distribution must hold every test, page, example, proof and script of the repository and no records; the
wheel is made from it.  In an empty environment of every Python that is asked for, the wheel is installed, the command
runs, a user's file passes ``mypy --strict`` and runs.  Nothing is published.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = ("results/", "benchmarks/results/", ".ci/", ".gitignore")
USERS_FILE = ROOT / "tests" / "users_file.py"
COMMANDS = (
    ("transductor", "--help"),
    ("transductor", "--version"),
    ("transductor", "explore", "-o", "explorer.html"),
    ("transductor", "automaton", "show", "regex:(ab)*"),
    ("python", str(USERS_FILE)),
    ("python", "-m", "mypy", "--strict", "--python-executable", "python", str(USERS_FILE)),
)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; stop with all of it where it fails."""
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def missing_files(archive: Path) -> list[str]:
    """Return what the repository tracks and the source distribution lacks; stop where it holds records."""
    with tarfile.open(archive) as tar:
        held = {name.partition("/")[2] for name in tar.getnames()}
    records = sorted(name for name in held if name.startswith(WITHOUT))
    if records:
        raise SystemExit(f"the source distribution holds records: {records[:5]}")
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    return [name for name in tracked if not name.startswith(WITHOUT) and name not in held]


def tried(python: str, wheel: Path) -> str:
    """Install the wheel in an empty environment and run the commands there; return one line about it."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        run(python, "-m", "venv", environment, cwd=Path(folder))
        programs = environment / "bin"
        install = (programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*install, "--constraint", ROOT / "constraints.txt", wheel, "mypy", cwd=Path(folder))
        for program, *arguments in COMMANDS:
            words = [str(programs / word) if word == "python" else word for word in arguments]
            run(programs / program, *words, cwd=Path(folder))
        version = run(
            programs / "python",
            "-c",
            "import sys, torch; print(sys.version.split()[0], torch.__version__)",
            cwd=Path(folder),
        )
    number, torch = version.split()
    took = time.perf_counter() - begin
    return f"Python {number}, torch {torch}: installed, {len(COMMANDS)} commands passed, {took:.0f} s"


def main() -> None:
    """Build both files into ``dist``, compare, install, run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], help="interpreters to try the wheel with")
    pythons = parser.parse_args().pythons
    with tempfile.TemporaryDirectory() as made:
        run(sys.executable, "-m", "build", "--outdir", made, ROOT, cwd=ROOT)
        (archive,), (wheel,) = Path(made).glob("*.tar.gz"), Path(made).glob("*.whl")
        left_out = missing_files(archive)
        if left_out:
            raise SystemExit(f"the source distribution lacks {len(left_out)} files: {left_out[:10]}")
        print(f"{archive.name} ({archive.stat().st_size / 1e6:.1f} MB) has every file but the records", flush=True)
        for python in pythons:
            print(tried(python, wheel), flush=True)
        target = ROOT / "dist"
        target.mkdir(exist_ok=True)
        for file in (archive, wheel):
            (target / file.name).write_bytes(file.read_bytes())
    print(f"both are in {target}")


if __name__ == "__main__":
    main()
