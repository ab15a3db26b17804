"""Hashes of files and of the catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core import catalog
from silicast.core.catalog import catalog_hash
from silicast.core.hashing import files_hash


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
