"""Hashes of plain data and of files, the same in every process and on every machine."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from silicast.core import LOADED_NS
from silicast.core.files import opened_file

MOST_BYTES = 1 << 30
COARSE_NS = 20_000_000
"""By what a file's time may be behind the clock: kernels stamp files by a tick of up to 10 ms."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


def content_hash(value: Any) -> str:
    """Sixteen hex digits of BLAKE2b over canonical JSON.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    return hashlib.blake2b(_ENCODER.encode(value), digest_size=8).hexdigest()


def record_hash(value: Any) -> str | None:
    """The same over a record: a tree of dataclasses, structs, arrays and plain data, in which no
    number is rounded; None of what holds anything else.
    """
    try:
        return hashlib.blake2b(_RECORDS.encode(value), digest_size=8).hexdigest()
    except (TypeError, OverflowError, msgspec.EncodeError):
        return None


def _of_array(value: Any) -> Any:
    if hasattr(value, "dtype") and not value.dtype.hasobject:
        return [value.dtype.str, value.shape, value.tobytes()]
    raise TypeError(f"no record: {type(value).__name__}")


_RECORDS = msgspec.msgpack.Encoder(order="deterministic", enc_hook=_of_array)


def made_by(folders: tuple[Path, ...], loaded_ns: int = LOADED_NS) -> str | None:
    """What results rest on beside their question: sizes and times of all files in folders, the
    release, Python, numpy and the processor; None where a file changed since it was loaded: what
    runs is then not what the files say.

    Args:
        loaded_ns: when the first of the files was read, ns since 1970.

    Raises:
        OSError: a folder cannot be read.
    """
    import numpy as np

    import silicast

    stamps = sorted(stamp for folder in folders for stamp in _stamps(os.fspath(folder)))
    if any(max(times) > loaded_ns - COARSE_NS for _, _, *times in stamps):
        return None
    runs = sys.implementation.cache_tag, np.__version__, platform.machine()
    return content_hash([stamps, silicast.__version__, runs])


def _stamps(folder: str) -> Iterator[tuple[str, int, int, int]]:
    """Path, size and times of files: installers set that of the content, but never that of the
    last change (on Windows: of the creation).
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == "__pycache__":
                continue
            if entry.is_dir():
                yield from _stamps(entry.path)
            else:
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def files_hash(paths: Iterable[Path]) -> str:
    """The same over the bytes of files, one after the other.

    Raises:
        SilicastError: a file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in paths:
        with opened_file(path, MOST_BYTES, "a file that an answer rests on") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
