"""Results that are kept between processes: recalled as they were, and never trusted."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from silicast.core import disk_cache
from silicast.core.decode import Strict
from silicast.core.disk_cache import (
    KeptKind,
    cache_folder,
    cached,
    cached_kinds,
    can_keep,
    clear,
    store,
)
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash


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


ONE, TWO = content_hash(1), content_hash(2)


def test_what_is_kept_is_counted_and_cleared(folder: Path) -> None:
    assert cached_kinds() == clear() == {}
    store("answers", ONE, Answer(1.0))
    store("answers", TWO, Answer(2.0))
    store("others", ONE, Answer(3.0))
    size = (folder / f"{ONE}.json").stat().st_size
    assert cached_kinds() == {"answers": KeptKind(2, 0, 2 * size), "others": KeptKind(1, 0, size)}
    assert clear() == {"answers": KeptKind(2, 0, 2 * size), "others": KeptKind(1, 0, size)}
    assert cached_kinds() == {}
    assert cached("answers", ONE, Answer) is None


def test_broken_and_planted_entries_are_told_and_cleared(folder: Path) -> None:
    store("answers", ONE, Answer(1.0))
    (folder / f"{TWO}.json").write_bytes((folder / f"{ONE}.json").read_bytes())
    (folder / f"{content_hash(3)}.json").write_bytes((folder / f"{ONE}.json").read_bytes()[:40])
    assert (cached_kinds()["answers"].entries, cached_kinds()["answers"].broken) == (3, 2)
    assert clear()["answers"].entries == 3
    assert list(folder.iterdir()) == []


def test_what_is_not_of_the_cache_stays(folder: Path, tmp_path: Path) -> None:
    store("answers", ONE, Answer(1.0))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{ONE}.json").write_bytes(b"{}")
    (folder / "notes.json").write_bytes(b"{}")
    (folder / f"{TWO}.json").symlink_to(elsewhere / f"{ONE}.json")
    (folder.parent / "linked").symlink_to(elsewhere)
    (folder.parent / f"{ONE}.json").write_bytes(b"{}")
    os.mkfifo(folder / f"{content_hash(3)}.json")
    assert {name: kind.entries for name, kind in cached_kinds().items()} == {"answers": 1}
    clear()
    assert (elsewhere / f"{ONE}.json").exists()
    assert (folder.parent / f"{ONE}.json").exists()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ("notes.json", f"{TWO}.json", f"{content_hash(3)}.json")
    )


def test_a_foreign_file_that_is_called_by_a_hash_stays(folder: Path) -> None:
    """A sweep's store or a user's notes in the folder: neither name nor shape makes an entry."""
    store("answers", ONE, Answer(1.0))
    sweep = folder.parent / "points"
    sweep.mkdir()
    planted = {
        folder / f"{TWO}.json": b'{"seal":"0123456789abcdef","result":{"value":1.0}}',
        sweep / f"{ONE}.json": b'{"key": 1}',
        sweep / f"{TWO}.json": b"",
    }
    for path, content in planted.items():
        path.write_bytes(content)
    kinds = clear()
    assert {name: (kind.entries, kind.foreign) for name, kind in kinds.items()} == {
        "answers": (1, 1),
        "points": (0, 2),
    }
    assert kinds["points"].text == "0 entries, 0.00 MB, 2 not ours, left"
    assert {path: path.read_bytes() for path in planted} == planted
    assert not (folder / f"{ONE}.json").exists()


def test_room_is_made_among_entries_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store("answers", ONE, Answer(1.0))
    foreign = folder / f"{TWO}.json"
    foreign.write_bytes(b"{}")
    for path in (foreign, folder / f"{ONE}.json"):
        os.utime(path, (1, 1))
    monkeypatch.setattr(disk_cache, "MOST_FILES", 1)
    monkeypatch.setattr(disk_cache, "LOOKED_AT", 8)
    for number in (1, 2):
        store("answers", f"00{number:014x}", Answer(2.0))
    assert foreign.exists()
    assert not (folder / f"{ONE}.json").exists()


def test_room_is_made_where_files_are_too_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("answers", ONE, Answer(1.0))
    os.utime(folder / f"{ONE}.json", (1, 1))
    size = (folder / f"{ONE}.json").stat().st_size
    monkeypatch.setattr(disk_cache, "MOST_KIND_BYTES", 2 * size)
    monkeypatch.setattr(disk_cache, "LOOKED_AT", 4)
    store("answers", f"00{1:014x}", Answer(2.0))
    assert (folder / f"{ONE}.json").exists(), "two are as much as may be kept"
    store("answers", f"00{2:014x}", Answer(3.0))
    assert not (folder / f"{ONE}.json").exists()


def test_a_process_removes_few_files_and_the_number_still_falls(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        store("answers", f"ff{number:014x}", Answer(1.0))
        os.utime(folder / f"ff{number:014x}.json", (number + 1, number + 1))
    monkeypatch.setattr(disk_cache, "MOST_FILES", 30)
    monkeypatch.setattr(disk_cache, "LOOKED_AT", 8)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    left = [60]
    for number in range(40):
        store("answers", content_hash(number), Answer(2.0))
        left.append(len(list(folder.iterdir())))
    removed = [one + 1 - other for one, other in pairwise(left)]
    assert removed[0] == 4, "another process looks at once"
    assert max(removed) == 4
    assert sum(removed) <= 4 + 2 * 40
    assert removed[1::2] == [0] * 20, "and then at every second file"
    assert left[-1] <= 32


def test_a_result_that_is_too_large_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "MOST_BYTES", 20)
    store("answers", ONE, Answer(1.0))
    assert list(folder.iterdir()) == []


def test_what_another_user_planted_is_no_result_and_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("answers", ONE, Answer(1.0))
    path = folder / f"{ONE}.json"
    if os.getuid() == 0:
        os.chown(path, 4242, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert cached("answers", ONE, Answer) is None
    assert clear()["answers"].foreign == 1
    assert path.exists()


def test_several_writers_of_an_entry_leave_a_whole_one(folder: Path) -> None:
    def write(number: int) -> bool:
        store("answers", ONE, Answer(float(number % 2)))
        return cached("answers", ONE, Answer) in (Answer(0.0), Answer(1.0))

    with ThreadPoolExecutor(8) as writers:
        assert all(writers.map(write, range(200)))
    assert [path.name for path in folder.iterdir()] == [f"{ONE}.json"]


def test_whether_a_folder_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_keep(tmp_path)
    assert can_keep(tmp_path / "new" / "folder")
    (tmp_path / "file").write_bytes(b"")
    assert not can_keep(tmp_path / "file" / "below")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert not can_keep(tmp_path)


def test_an_entry_that_goes_while_others_are_counted_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("answers", ONE, Answer(1.0))
    store("answers", TWO, Answer(2.0))
    size = (folder / f"{ONE}.json").stat().st_size
    marked = disk_cache._is_marked

    def removes_one(path: Path) -> bool:
        before = marked(path)
        (folder / f"{TWO}.json").unlink(missing_ok=True)
        return before

    monkeypatch.setattr(disk_cache, "_is_marked", removes_one)
    assert cached_kinds() == {"answers": KeptKind(1, 0, size)}


def test_a_folder_that_cannot_be_changed_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("answers", ONE, Answer(1.0))

    def refused(self: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(SilicastError, match="Read-only file system") as error:
        clear()
    assert error.value.file == str(folder)
    assert "SILICAST_CACHE" in error.value.hint
    assert cached("answers", ONE, Answer) == Answer(1.0)


def test_a_cache_that_is_a_file_is_refused_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path / "file"))
    with pytest.raises(SilicastError, match="Not a directory"):
        cached_kinds()
    monkeypatch.setenv("SILICAST_CACHE", "")
    assert cached_kinds() == clear() == {}
