"""`silicast cache`: what is kept between processes, and how it is thrown away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.app.cli import main
from silicast.core.disk_cache import KeptKind, store
from silicast.core.hashing import content_hash


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path))
    for number in range(3):
        store("mappings", content_hash(number), KeptKind(number, 0, 0))
    broken = tmp_path / "mappings" / f"{content_hash(1)}.json"
    broken.write_bytes(broken.read_bytes()[:-9])
    return tmp_path


def test_what_is_kept_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "show"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{folder}: at most 20,000 entries and 256 MiB of a kind" in shown
    assert "mappings: 3 entries, 0.00 MB, 1 of them broken: computed again when needed" in shown
    assert main(["cache", "show", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["folder"] == str(folder)
    assert table["writable"]
    assert (table["kinds"]["mappings"]["entries"], table["kinds"]["mappings"]["broken"]) == (3, 1)


def test_a_folder_that_cannot_be_written_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("silicast.app.commands.cache.can_keep", lambda folder: False)
    assert main(["cache", "show"]) == 0
    assert "it cannot be written: nothing more is kept" in capsys.readouterr().out


def test_it_is_cleared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed mappings: 3 entries")
    assert list((folder / "mappings").iterdir()) == []
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": {}}


def test_without_a_cache_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SILICAST_CACHE", "")
    assert main(["cache", "show"]) == 0
    assert "nothing is kept" in capsys.readouterr().out


def test_a_cache_that_is_a_file_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path / "file"))
    assert main(["cache", "show"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "the cache cannot be read or changed" in message
    assert "SILICAST_CACHE" in message
