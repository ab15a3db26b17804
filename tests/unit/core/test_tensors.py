"""Files of named arrays: written whole, read as they were, refused if anything is off."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from lab.artefact_files import write_tensors
from silicast.core.errors import SilicastError
from silicast.core.tensors import read_tensors

ARRAYS = {
    "b": np.arange(6, dtype=np.int16).reshape(2, 3),
    "a": np.array([1.5, -2.0]),
    "empty": np.zeros((0, 4), dtype=np.uint8),
}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    digest = write_tensors(tmp_path / "x.safetensors", ARRAYS)
    tensors = read_tensors(tmp_path / "x.safetensors", digest)
    assert sorted(tensors) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        assert tensors[name].dtype == array.dtype
        assert (tensors[name] == array).all()
        assert tensors[name].shape == array.shape


def test_the_layout_is_that_of_safetensors(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x.safetensors", ARRAYS)
    raw = (tmp_path / "x.safetensors").read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    assert size % 8 == 0
    assert header["a"] == {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}
    assert raw[8 + size : 8 + size + 16] == np.array([1.5, -2.0]).tobytes()


def test_it_is_the_same_file_every_time(tmp_path: Path) -> None:
    first = write_tensors(tmp_path / "x", ARRAYS)
    assert write_tensors(tmp_path / "y", dict(reversed(ARRAYS.items()))) == first


def test_another_hash_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", ARRAYS)
    with pytest.raises(SilicastError, match="not what its card says") as caught:
        read_tensors(tmp_path / "x", "0" * 64)
    assert "x" in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "header", "offsets", "missing", "dtype"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x"
    write_tensors(path, ARRAYS)
    raw = path.read_bytes()
    if damage == "cut":
        path.write_bytes(raw[:-5])
    elif damage == "header":
        path.write_bytes(struct.pack("<Q", 1 << 60) + raw[8:])
    elif damage == "offsets":
        path.write_bytes(raw.replace(b'"data_offsets":[0,16]', b'"data_offsets":[0,99]'))
    elif damage == "dtype":
        path.write_bytes(raw.replace(b'"F64"', b'"Q99"'))
    else:
        path.unlink()
    with pytest.raises(SilicastError) as caught:
        read_tensors(path)
    assert str(path) in str(caught.value)
