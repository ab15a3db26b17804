"""Reading safetensors: named arrays behind a JSON header, no code in them.

Format: 8 bytes little-endian length of the header, the header, then the arrays
(https://huggingface.co/docs/safetensors). Only what our artefacts need: integers and floats.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError, errors_located
from silicast.core.files import read_bounded

DTYPES = {
    "U8": "<u1",
    "I8": "<i1",
    "U16": "<u2",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "F32": "<f4",
    "F64": "<f8",
}
_LARGEST_HEADER = 1 << 24
MOST_BYTES = 1 << 30


def read_tensors(path: Path, sha256: str = "") -> dict[str, NDArray[Any]]:
    """All arrays of a file; they share its bytes and cannot be written to.

    Args:
        sha256: what the file's hash must be, "" = any.

    Raises:
        SilicastError: no such file, another hash, or not in this format; names the file.
    """
    with errors_located(field="artefact"):
        whole = read_bounded(path, MOST_BYTES, "an artefact")
    if sha256 and hashlib.sha256(whole).hexdigest() != sha256:
        raise SilicastError(
            "its content is not what its card says",
            file=str(path),
            field="sha256",
            hint="reinstall silicast, or train it again",
        )
    try:
        return _decoded(whole)
    except (ValueError, KeyError, TypeError, struct.error, SilicastError) as error:
        raise SilicastError(
            f"is no safetensors file: {error}", file=str(path), field="artefact"
        ) from None


def _decoded(whole: bytes) -> dict[str, NDArray[Any]]:
    (size,) = struct.unpack_from("<Q", whole)
    if size > min(_LARGEST_HEADER, len(whole) - 8):
        raise ValueError(f"a header of {size} bytes")
    header = decode_json(whole[8 : 8 + size], dict[str, Any])
    decoded: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
        start, end = entry["data_offsets"]
        count = int(np.prod(shape, dtype=np.int64))
        if not 0 <= start <= end <= len(whole) - 8 - size or end - start != count * dtype.itemsize:
            raise ValueError(f"{name} has offsets {start} to {end}")
        decoded[name] = np.frombuffer(whole, dtype, count, 8 + size + start).reshape(shape)
    return decoded
