"""A process that answers strangers: it opens no file but those of Python and of the catalog, writes
none, starts nothing and connects to nothing.

Names in a scenario that look like paths are refused beforehand
(:mod:`silicast.scenario.reading.inline_only`); this holds even where one is overlooked.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from silicast.core.errors import SilicastError, unsupported

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN = (
    "socket.",
    "subprocess.",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.system",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.truncate",
    "urllib.",
    "ftplib.",
    "http.client.",
    "smtplib.",
    "sqlite3.",
    "shutil.",
    "tempfile.",
)
"""How the events begin (https://docs.python.org/3/library/audit_events.html) that end a request."""
LISTING = ("os.listdir", "os.scandir")


def seal() -> None:
    """Seals this process for good."""
    sys.dont_write_bytecode = True
    readable = tuple(
        os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - a prefix, not a path
        for folder in {sys.prefix, sys.base_prefix, *filter(None, sys.path)}
    )

    def is_readable(name: Any) -> bool:
        if isinstance(name, int):  # a stream that is open already
            return True
        real = os.path.realpath(os.fsdecode(name))
        return os.path.join(real, "").startswith(readable)  # noqa: PTH118

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            name, _, flags = arguments
            if flags & WRITING or not is_readable(name):
                raise _refused("opens no file")
        elif event in LISTING:
            if arguments[0] is not None and not is_readable(arguments[0]):
                raise _refused("lists no folder")
        elif event.startswith(FORBIDDEN):
            raise _refused("starts, changes and connects to nothing")

    sys.addaudithook(watch)


def _refused(what: str) -> SilicastError:
    return unsupported(f"a server {what} for a request", hint="give the content inline")
