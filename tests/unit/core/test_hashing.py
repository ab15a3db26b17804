"""Hashes of files and of the catalog."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import silicast
from silicast.core import catalog
from silicast.core.catalog import catalog_hash
from silicast.core.hashing import COARSE_NS, files_hash, made_by, record_hash


def test_files_are_hashed_one_after_the_other(tmp_path: Path) -> None:
    parts = [tmp_path / name for name in ("a", "b", "ab")]
    for path, text in zip(parts, ("one", "two", "onetwo"), strict=True):
        path.write_text(text)
    assert files_hash(parts[:2]) == files_hash(parts[2:])
    assert files_hash(parts[:2]) != files_hash(parts[1::-1])


def test_the_catalog_counts_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CATALOG", tmp_path)
    for kind in ("physics", "learned"):
        (tmp_path / kind).mkdir()
    (tmp_path / "physics" / "a.json").write_text("1")
    first = catalog_hash("physics", "learned")
    (tmp_path / "learned" / "t.safetensors").write_text("card states it")
    assert catalog_hash("physics", "learned") == first
    assert catalog_hash("learned") != first
    (tmp_path / "physics" / "a.json").rename(tmp_path / "learned" / "a.json")
    assert catalog_hash("physics", "learned") != first


@dataclass(frozen=True)
class Board:
    watts: float | None
    table: Any = ()


class Wire(msgspec.Struct, frozen=True):
    rates: dict[str, float]


def test_records_are_hashed_without_rounding() -> None:
    records = [
        Board(0.1),
        Board(math.nextafter(0.1, 1.0)),
        Board(None),
        Board(math.inf),
        Board(0.1, np.array([1.0, 2.0])),
        Board(0.1, np.array([[1.0, 2.0]])),
        Board(0.1, np.array([1.0, math.nextafter(2.0, 3.0)])),
        Board(0.1, Wire({"a": 1.0, "b": 2.0})),
        Board(1.0),
        Board(1),
    ]
    assert len({record_hash(each) for each in records}) == len(records)
    assert record_hash(Wire({"a": 1.0, "b": 2.0})) == record_hash(Wire({"b": 2.0, "a": 1.0}))
    assert record_hash(Board(0.1, object())) is None
    assert record_hash(Board(0.1, np.array([object()]))) is None


def test_results_rest_on_all_files_but_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    file = tmp_path / "below" / "a.json"
    file.write_text("1")
    later = time.time_ns() + 10 * COARSE_NS
    first = made_by((tmp_path,), later)
    assert first is not None
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("1")
    assert made_by((tmp_path,), later) == first
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_text("2")
    os.utime(file, ns=times)
    again = made_by((tmp_path,), later)
    assert again != first, "of the same size and time of content"
    os.utime(file, (1, 1))
    assert made_by((tmp_path,), later) not in (first, again)
    with monkeypatch.context() as context:
        context.setattr(silicast, "__version__", "0.0.1")
        assert made_by((tmp_path,), later) not in (first, again)


def test_results_rest_on_no_files_that_changed_since_they_were_loaded(tmp_path: Path) -> None:
    assert made_by((tmp_path,)) is not None
    (tmp_path / "a.json").write_text("1")
    assert made_by((tmp_path,)) is None, "the package was loaded before"
    os.utime(tmp_path / "a.json", (1, 1))
    assert made_by((tmp_path,)) is None, "the time of the content is what an installer sets"
