"""Peak memory of one forward and backward scan, as the operating system sees it, in a process of its own."""

from __future__ import annotations

import argparse

from transductor.experiments.memory import PeakMemory, scan_memory

__all__ = ["PeakMemory", "scan_memory"]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("batch", 8), ("time", 16_384), ("dim", 16), ("symbols", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    print(scan_memory(**vars(parser.parse_args())))
