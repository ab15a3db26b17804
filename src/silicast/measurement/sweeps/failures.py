"""Why a measurement failed, and whether it is tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.measurement.records.records import FailedRow

UNSUPPORTED = (
    "not implemented", "not supported", "unsupported", "only supports", "not available",
    "no available kernel", "not compiled", "is not currently", "expected", "must be", "requires",
    "capturing", "capture", "out of resource", "could not create a primitive", "no kernel image",
)  # fmt: skip
"""Parts of PyTorch's errors about what it does not implement."""
NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate")
FATAL = (
    "illegal memory access",
    "device-side assert triggered",
    "unspecified launch failure",
    "misaligned address",
    "an illegal instruction",
    "device lost",
    "ecc error",
    "fallen off the bus",
    "uncorrectable",
)
"""Parts of errors after which a process can compute nothing more on its GPU. PyTorch adds a hint to
every error of CUDA on how to "enable device-side assertions", which none of these may match."""
ATTEMPTS = 2
"""Attempts at what failed with a fatal error: a second failure shows that it caused the first."""
LONGEST = 400

DEVICE_LOST = "the GPU can compute nothing more in this process: run the command again to continue"


def reason_of(error: BaseException) -> tuple[str, str]:
    """Reason of a failure, as :class:`FailedRow` names it, and the error's text.

    >>> reason_of(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))[0]
    'out_of_memory'
    >>> reason_of(NotImplementedError("aten::_scaled_mm"))[0], reason_of(ValueError("odd"))[0]
    ('unsupported', 'error')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = f"{type(error).__name__}: {' '.join(lines)[:LONGEST] if lines else 'no message'}"
    text = str(error).casefold()
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory", message
    if any(words in text for words in NO_MEMORY):
        return "out_of_memory", message
    if isinstance(error, (NotImplementedError, ImportError, AttributeError)):
        return "unsupported", message
    if isinstance(error, SilicastError):
        return "unsupported" if error.kind == "unsupported" else "error", str(error)
    if isinstance(error, RuntimeError) and any(words in text for words in UNSUPPORTED):
        return "unsupported", message
    return "error", message


def is_fatal(row: object) -> bool:
    """Whether a row reports that the GPU is lost.

    >>> is_fatal(FailedRow("", {}, "error", "CUDA error: misaligned address"))
    True
    >>> is_fatal(FailedRow("", {}, "error", "CUDA error: invalid argument"))
    False
    """
    if not isinstance(row, FailedRow):
        return False
    message = row.message.casefold()
    return any(words in message for words in FATAL)


def given_up(rows: Iterable[FailedRow]) -> list[FailedRow]:
    """Failures that are not tried again, one row for each kernel or model.

    After a fatal error, which another kernel may have caused, a kernel gets a second attempt, so
    that a continued file gets past one that always fails this way.
    """
    table: dict[str, FailedRow] = {}
    fatal: Counter[str] = Counter()
    for row in rows:
        key = content_hash(row.what)
        fatal[key] += is_fatal(row)
        if not is_fatal(row) or fatal[key] >= ATTEMPTS:
            table.setdefault(key, row)
    return list(table.values())
