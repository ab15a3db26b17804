"""Which files a process reads, and hashes of what they say."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from silicast.core.decode import read_toml
from silicast.core.hashing import content_hash, files_hash

FILES: set[str] = set()
"""Files that were opened since :func:`watch` was called, in workers of this process too."""
MODULES: set[str] = set()
"""Modules that workers of this process imported."""


def watch() -> None:
    """From now on notes in :data:`FILES` what Python, or pyarrow for it, opens for reading."""
    import pyarrow.parquet as pq

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
            if not writes:
                FILES.add(arguments[0])

    sys.addaudithook(opened)
    for name in ("read_table", "read_schema"):  # opens files outside Python
        plain = getattr(pq, name)

        def noted(path: Any, *values: Any, plain: Any = plain, **named: Any) -> Any:
            FILES.add(str(path))
            return plain(path, *values, **named)

        setattr(pq, name, noted)


def imported() -> set[str]:
    """Modules that this process and its workers have imported."""
    return MODULES | set(sys.modules)


Reads = tuple[set[str], set[str]]
"""Files and modules."""


def of_worker() -> Reads:
    """What a worker read, for the process that waits for it; nothing where nobody watches."""
    return (FILES, imported()) if FILES else (set(), set())


def add(reads: Reads) -> None:
    """Counts what a worker read as read here."""
    FILES.update(reads[0])
    MODULES.update(reads[1])


@cache
def table_hash(path: Path) -> str:
    """Hash of a measured table; "" if it is not there."""
    return files_hash([path]) if path.is_file() else ""


def numbers_hash(path: Path) -> str:
    """Hash of what a file of numbers says; its card, its sources and its layout do not count.

    Of trees the card states the hash of the tensors beside it.
    """
    if path.suffix == ".toml":
        return content_hash(without_sources(read_toml(path)))
    if path.suffix != ".json":
        return files_hash([path])
    content = json.loads(path.read_bytes())
    if isinstance(content, dict) and "card" in content:
        content = {name: value for name, value in content.items() if name != "card"}
    elif isinstance(content, dict) and "sha256" in content:
        content = [content["sha256"], content.get("trained")]
    return content_hash(content)


def without_sources(value: Any) -> Any:
    """A table of the catalog without what its numbers are from."""
    if not isinstance(value, dict):
        return value
    return {name: without_sources(inner) for name, inner in value.items() if name != "source"}
