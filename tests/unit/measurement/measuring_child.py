"""Measures made-up kernels into a file until it is killed; says of each row when it is safe.

Run by test_killed.py: FILE and how many kernels there are.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from silicast.measurement.records.records import Columns, KernelRow, Protocol, Session, utc_now
from silicast.measurement.records.store import MeasurementFile
from silicast.measurement.sweeps.session import (
    MeasuringSession,
    SessionProgress,
    Tools,
    new_session_id,
)


class Counting:
    """Kernels with m = 1, 2, ...; forgets those that are known."""

    def __init__(self, count: int) -> None:
        self.count, self.known = count, set[int]()

    def next(self, left_s: float) -> Columns | None:
        left = (m for m in range(1, self.count + 1) if m not in self.known)
        m = next(left, None)
        return None if m is None else {"op": "gemm", "m": m, "n": 8, "k": 8}

    def tell(self, kernel: Columns, latency_us: float) -> None:
        self.known.add(kernel["m"])

    def failed(self, kernel: Columns, reason: str) -> None:
        self.known.add(kernel["m"])


def measure(kernel: Columns) -> KernelRow:
    """A kernel of half a millisecond."""
    time.sleep(5e-4)
    return KernelRow("", kernel, float(kernel["m"]), flags=["noisy"] * (kernel["m"] % 40))


def main() -> None:
    """Measures all, and says so."""
    path, count = Path(sys.argv[1]), int(sys.argv[2])
    chooser = Counting(count)
    said = 0

    def watch(progress: SessionProgress) -> None:
        nonlocal said
        if progress.rows > said:  # the row is in the file
            said = progress.rows
            os.write(1, b"row\n")

    with MeasurementFile.open(
        path, Session(new_session_id(), utc_now(), protocol=Protocol("none"))
    ) as file:
        os.write(1, f"known {len(file.before.kernels)}\n".encode())
        MeasuringSession(file, Tools(measure, chooser), 60.0, watch=watch).run()
    os.write(1, b"done\n")


if __name__ == "__main__":
    main()
