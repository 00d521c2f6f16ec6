"""Give every reader of strangers' files altered ones: records, checkpoints, certificates, data, automata and others.

    nice -n 10 python benchmarks/fuzz_readers.py --inputs 100000

Each input is a valid file (or folder) with one to three alterations of its structure: another type, huge or negative
numbers, NaN, 5 000 digits, deep nesting, fields given twice, missing or not known, names that lead elsewhere,
truncation, flipped bits, headers that promise much, hashes forged anew, and pipes, devices, folders, loops or other
files in its place.
An answer is right if it is a refusal of the library's own kind that names the file, or a value that is what the file
says; if it comes within five seconds and a gigabyte; and if nothing else was touched.  The first failures are printed
with the number that makes them again, and the exit status is 1.  The core is that of tests/fuzzing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "RUST_BACKTRACE": "0"}

import torch
from tests.fuzzing.hugging_face import hugging_face_readers
from tests.fuzzing.readers import all_readers
from tests.fuzzing.running import KINDS, Tally, run_all, table_rows

from transductor.results import Record, environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()

    def said(name: str, tally: Tally) -> None:
        print(f"{name}: {dict(tally.outcomes)}, slowest {tally.slowest:.2f} s", flush=True)
        for failure in tally.failures[:5]:
            print(f"    {failure[:1500]}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        tallies = run_all([*all_readers(), *hugging_face_readers()], options.inputs, Path(folder), said)
    table = [
        {"reader": name, **{kind: tally.outcomes[kind] for kind in KINDS}, "slowest": round(tally.slowest, 3)}
        for name, tally in tallies.items()
    ]
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    record = Record(
        "fuzz_readers",
        {"inputs": options.inputs, "most_seconds": 5.0, "most_bytes": 2**30},
        {"table": table, "failures": [failure[:500] for failure in failures[:20]],
         "seconds": round(time.process_time() - began, 1)},
        environment(),
    )  # fmt: skip
    record.write(options.output / "fuzz_readers.json")
    print("\n".join(table_rows(record)))
    print(f"{options.inputs} altered inputs, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
