"""Content hashes of plain data, the same in every process and on every machine."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="deterministic")


def content_hash(value: Any) -> str:
    """Sixteen hex digits of BLAKE2b over canonical JSON.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    return hashlib.blake2b(_ENCODER.encode(value), digest_size=8).hexdigest()
