"""A newcomer's ten minutes: what README and docs/start.md say, typed into a fresh clone, with the time of every step.

Everything that stands in a shell block is run, in its order, in one shell, but ``make test`` and what was run before:
install and demo, an own file, its machine, its proof, the explorer.  A command may end with another exit status than 0
only where the page says that it refutes.

Writes ``benchmarks/results/ten_minutes.json``.  Usage: ``python benchmarks/ten_minutes.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from transductor.results import Record, environment

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "ten_minutes.json"
REFUTES = "--against 'regex:.* arm open'"  # the page: "A wrong rule is refuted"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Return every command of the two pages once, with the title above it."""
    once: dict[str, str] = {}
    for name in ("README.md", "docs/start.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        for block in BLOCK.finditer(page):
            title = re.findall(r"^#+ (?:\d+\. )?(.*)$", page[: block.start()], re.MULTILINE)[-1]
            for line in block[1].splitlines():
                once.setdefault(re.sub(r"\s+#.*", "", line), f"{name}, {title}")
    return [(title, command) for command, title in once.items() if command != "make test"]


def followed(clone: Path, steps: list[tuple[str, str]]) -> list[dict[str, object]]:
    """Run the steps in one shell, as a newcomer would type them, and return their times."""
    changes = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    shell = subprocess.Popen(["bash"], cwd=clone, env=changes, text=True, **pipes)
    assert shell.stdin is not None
    assert shell.stdout is not None
    table: list[dict[str, object]] = []
    for title, command in steps:
        begin, said, mark = time.perf_counter(), [], f"-- ended {len(table)}:"
        shell.stdin.write(f"{command}\nstatus=$?; echo; echo '{mark}' $status\n")
        shell.stdin.flush()
        for line in shell.stdout:
            if line.startswith(mark):
                status = int(line.removeprefix(mark))
                break
            said.append(line)
        else:
            raise RuntimeError(f"the shell ended at {command!r}: {''.join(said[-20:])}")
        seconds = round(time.perf_counter() - begin, 1)
        print(f"{seconds:7.1f} s  {title}: {command}", flush=True)
        if (status != 0) != (REFUTES in command):
            raise RuntimeError(f"{command!r} ended with {status}: {''.join(said[-20:])}")
        table.append({"step": title, "command": command, "seconds": seconds, "status": status})
    shell.stdin.close()
    return table


def main() -> None:
    """Follow the page in a fresh clone."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "transductor"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        steps = [("the install, which make demo begins with", "make .venv/.ready"), *commands()]
        table = followed(clone, steps)
        page = clone / "doors.html"
        assert page.stat().st_size > 100_000
    after = sum(float(str(row["seconds"])) for row in table[1:])
    print(f"{after:7.1f} s after the install")
    Record(
        "ten_minutes", {"cores": os.cpu_count()}, {"table": table, "after_install": round(after, 1)}, environment()
    ).write(RESULT)


if __name__ == "__main__":
    main()
