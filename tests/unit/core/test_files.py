"""Where output is written, and what is left alone."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from silicast.core.calibration import Calibration, Offset, Scope, save_calibration
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded, read_text, write_atomically, writing
from silicast.runner.batch import run_batch_file

CASE = (
    b'{"task": "kernel", "device": "H100", "kernel": {"op": "rmsnorm", "tokens": 8, "hidden": 8}}'
)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _write_batch(path: Path) -> None:
    cases = path.parent / "cases.jsonl"
    cases.write_bytes(CASE)
    run_batch_file(cases, path)
    cases.unlink()


def _write_calibration(path: Path) -> None:
    save_calibration(Calibration(1, Scope("H100"), [Offset("gemm", 0.1, 0.05, 4)]), path)


Write = Callable[[Path], None]
WRITERS: list[Write] = [
    lambda path: write_atomically(path, b"new\n"),
    _write_batch,
    _write_calibration,
]
each_writer = pytest.mark.parametrize("write", WRITERS, ids=["plain", "batch", "calibration"])


@each_writer
def test_a_new_file_gets_the_mode_of_any_new_file(write: Write, tmp_path: Path) -> None:
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.touch()
    write(ours)
    assert _mode(ours) == _mode(plain)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "plain"]


@each_writer
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_file_that_exists_keeps_its_mode(write: Write, mode: int, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    target.chmod(mode)
    write(target)
    assert _mode(target) == mode
    assert target.read_text() != "old"


@each_writer
@pytest.mark.parametrize("exists", [True, False])
def test_links_are_written_through(write: Write, exists: bool, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "target"
    if exists:
        target.write_text("old")
    first, second = tmp_path / "first", tmp_path / "second"
    first.symlink_to("second")
    second.symlink_to(Path("there") / "target")
    write(first)
    assert first.is_symlink()
    assert second.is_symlink()
    assert not target.is_symlink()
    assert target.stat().st_size > 3
    assert [path.name for path in target.parent.iterdir()] == ["target"]


@each_writer
def test_a_loop_of_links_is_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(SilicastError, match="cannot write") as caught:
        write(tmp_path / "a")
    assert caught.value.kind == "io"
    assert (tmp_path / "a").is_symlink()


@each_writer
def test_a_pipe_is_written_and_stays_a_pipe(write: Write, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    link = tmp_path / "link"
    link.symlink_to(pipe)
    write(link)
    reader.join(10)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()
    assert read
    assert read[0]


def test_the_name_of_an_open_stream_is_appended_to(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with target.open("wb") as stream:
        stream.write(b"before\n")
        stream.flush()
        inode = target.stat().st_ino
        write_atomically(Path(f"/proc/self/fd/{stream.fileno()}"), b"after\n")
    assert target.read_bytes() == b"before\nafter\n"
    assert target.stat().st_ino == inode


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="is a folder"):
        write_atomically(tmp_path, b"")
    with pytest.raises(SilicastError, match="cannot write"):
        write_atomically(tmp_path / "nowhere" / "file", b"")
    with pytest.raises(SilicastError, match="not a file name"):
        write_atomically(Path("a\0b"), b"")


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")

    def fails() -> None:
        with writing(target) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("kind", ["itself", "link", "hard link"])
def test_a_batch_is_not_written_over_its_input(kind: str, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_bytes(CASE)
    target = cases if kind == "itself" else tmp_path / "other"
    if kind == "link":
        target.symlink_to(cases)
    elif kind == "hard link":
        target.hardlink_to(cases)
    with pytest.raises(SilicastError, match="is the input itself"):
        run_batch_file(cases, target)
    assert cases.read_bytes() == CASE


def test_a_reader_that_left_is_told_apart(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def write() -> None:
        with writing(pipe) as stream:
            os.close(reader)
            stream.write(b"late")

    with pytest.raises(BrokenPipeError):
        write()
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.parametrize("name", ["/dev/zero", "fifo", "folder", "absent", "nul\0byte"])
def test_what_is_no_regular_file_is_refused_before_it_is_opened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SilicastError) as caught:
        read_bounded(tmp_path / name, 10, "a list")
    assert caught.value.kind == "io"


def test_a_file_may_hold_what_is_allowed_and_no_byte_more(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(b"\xef\xbb\xbf1234567")
    assert read_bounded(path, 10, "a list") == path.read_bytes()
    assert read_text(path, 10, "a list") == "1234567"
    with pytest.raises(SilicastError, match="is larger than 9 bytes: not a list") as caught:
        read_bounded(path, 9, "a list")
    assert caught.value.kind == "limit"
    path.write_bytes(b"a\xff")
    with pytest.raises(SilicastError, match="byte 1 is 0xff"):
        read_text(path, 10, "a list")
