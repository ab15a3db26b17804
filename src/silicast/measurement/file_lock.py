"""Keeps a second process from writing a file of measurements."""

from __future__ import annotations

from pathlib import Path

from silicast.core.errors import SilicastError


def lock(handle: int, path: Path) -> None:
    """Keeps other writers out until the file is closed, by whatever end.

    Raises:
        SilicastError: another process has it, or nothing can be locked there.
    """
    try:
        import fcntl
    except ImportError:
        raise SilicastError(
            "this system has no file locks", kind="unsupported", file=str(path)
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SilicastError(
            "another process is measuring into it",
            kind="io",
            file=str(path),
            hint="wait for it, or write to another file",
        ) from None
    except OSError as error:
        raise SilicastError(
            f"cannot be locked: {error.strerror}",
            kind="io",
            file=str(path),
            hint="write to a local disk",
        ) from None
