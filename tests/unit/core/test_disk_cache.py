"""Results that are kept between processes: recalled as they were, and never trusted."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from silicast.core.decode import Strict
from silicast.core.disk_cache import cache_folder, cached, store


class Answer(Strict, frozen=True):
    value: float


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "answers"


def test_a_result_is_recalled_as_it_was(folder: Path) -> None:
    assert cached("answers", "a", Answer) is None
    store("answers", "a", Answer(1 / 3))
    assert cached("answers", "a", Answer) == Answer(1 / 3)
    assert [path.name for path in folder.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"value": "x"}', b'{"value": 1, "more": 2}'])
def test_what_is_corrupted_is_nothing(folder: Path, content: bytes) -> None:
    store("answers", "a", Answer(1.0))
    (folder / "a.json").write_bytes(content)
    assert cached("answers", "a", Answer) is None
    store("answers", "a", Answer(2.0))
    assert cached("answers", "a", Answer) == Answer(2.0)


def test_nothing_is_kept_where_nothing_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in ("", str(tmp_path / "file" / "below")):
        (tmp_path / "file").write_bytes(b"")
        monkeypatch.setenv("SILICAST_CACHE", where)
        store("answers", "a", Answer(1.0))
        assert cached("answers", "a", Answer) is None
    monkeypatch.delenv("SILICAST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "silicast"
    assert msgspec.json.encode(Answer(1.0)) == b'{"value":1.0}'


def test_an_entry_that_was_edited_or_renamed_is_no_result(folder: Path) -> None:
    store("answers", "a", Answer(1.5))
    content = (folder / "a.json").read_text()
    (folder / "b.json").write_text(content)
    assert cached("answers", "b", Answer) is None
    (folder / "a.json").write_text(content.replace("1.5", "2.5"))
    assert cached("answers", "a", Answer) is None
    (folder / "a.json").write_text(content)
    assert cached("answers", "a", Answer) == Answer(1.5)


def test_a_pipe_in_place_of_an_entry_is_left_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.json")
    store("answers", "a", Answer(1.0))
    assert cached("answers", "a", Answer) is None
