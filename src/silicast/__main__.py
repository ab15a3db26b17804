"""The command ``silicast`` as a process: settings of the interpreter around one call."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from typing import NoReturn

RARE_COLLECTIONS = 100_000
"""Allocations between two garbage collections: one answer makes few cycles."""


def _one_line(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 - what Python hands over
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> str:
    """A warning of Python without the line of code that it came from."""
    return f"warning: {message}\n"


def run() -> NoReturn:
    """Runs the command line and ends the process.

    Predictions take milliseconds, so threads for matrix products, garbage collections and the
    teardown of the interpreter would take longer than they do. Commands that run for minutes keep
    the threads and end as usual.
    """
    gc.set_threshold(RARE_COLLECTIONS)
    warnings.formatwarning = _one_line
    from silicast.app.cli import PREDICT, main

    quick = len(sys.argv) > 1 and sys.argv[1] in PREDICT
    if quick:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported
    status = main()
    if quick:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    run()
