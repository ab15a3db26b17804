"""Hashes of measured tables."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def table_hash(path: Path) -> str:
    """Sixteen hex digits over a file's bytes; "" if it is not there."""
    if not path.is_file():
        return ""
    digest = hashlib.blake2b(digest_size=8)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
