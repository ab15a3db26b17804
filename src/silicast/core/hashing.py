"""Hashes of plain data and of files, the same in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from silicast.core.files import opened_file

MOST_BYTES = 1 << 30
_ENCODER = msgspec.json.Encoder(order="deterministic")


def content_hash(value: Any) -> str:
    """Sixteen hex digits of BLAKE2b over canonical JSON.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    return hashlib.blake2b(_ENCODER.encode(value), digest_size=8).hexdigest()


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
