"""A GPU that can compute nothing more in this process, as failed rows tell it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from silicast.core.hashing import content_hash
from silicast.measurement.records import FailedRow

FATAL = ("illegal memory access", "device-side assert triggered", "unspecified launch failure",
         "misaligned address", "an illegal instruction", "device lost", "ecc error",
         "fallen off the bus", "uncorrectable")  # fmt: skip
"""Errors after which a process can compute nothing more on its GPU. PyTorch adds to every error of
CUDA how to "enable device-side assertions": none of these may be in that."""
ATTEMPTS = 2
"""Of what failed so: whether it was at fault itself shows when it fails again."""

LOST = "the GPU can compute nothing more in this process: run the command again to go on"


def is_fatal(row: object) -> bool:
    """Whether a row says that the GPU is lost.

    >>> is_fatal(FailedRow("", {}, "error", "CUDA error: misaligned address"))
    True
    >>> is_fatal(FailedRow("", {}, "error", "CUDA error: invalid argument"))
    False
    """
    if not isinstance(row, FailedRow):
        return False
    said = row.message.casefold()
    return any(words in said for words in FATAL)


def given_up(rows: Iterable[FailedRow]) -> list[FailedRow]:
    """The failed rows of what is not to be tried again, one of each.

    A row that says that the GPU is lost may be another's fault: only after two of them its kernel
    or model is given up, so that a file which is continued comes past one that always does this.
    """
    found: dict[str, FailedRow] = {}
    lost: Counter[str] = Counter()
    for row in rows:
        key = content_hash(row.what)
        lost[key] += is_fatal(row)
        if not is_fatal(row) or lost[key] >= ATTEMPTS:
            found.setdefault(key, row)
    return list(found.values())
