from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from silicast.core.errors import SilicastError
from silicast.measurement.records.records import (
    FailedRow,
    HostRow,
    KernelRow,
    Protocol,
    RunRow,
    Session,
    UnreadRow,
    read_measurements,
)
from silicast.measurement.records.store import MeasurementFile, check_output

SESSION = Session(
    id="one", started="2026-01-01T00:00:00Z", device="H100", protocol=Protocol("perf_counter", 3, 9)
)
AGAIN = msgspec.structs.replace(SESSION, id="two", started="2026-01-02T00:00:00Z")


def kernel(at: str = "", m: int = 8, session: str = "one", **more: object) -> KernelRow:
    return KernelRow(session, {"op": "gemm", "m": m, "n": 8, "k": 8}, 2.5, at=at, **more)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "measured.jsonl"


def filled(path: Path, rows: int = 3) -> None:
    with MeasurementFile.open(path, SESSION) as file:
        for m in range(1, rows + 1):
            file.append(kernel(at=f"t{m}", m=m))


def test_reads_what_was_written(path: Path) -> None:
    rows = (
        kernel("t1"),
        HostRow("one", "dispatch", 4.0),
        RunRow("one", {"task": "graph"}, {"e2e_ms": 1.0}),
        FailedRow("one", {"op": "gemm", "m": 9}, "out_of_memory"),
        UnreadRow("one", "void f()", 3, 9.0),
    )
    with MeasurementFile.open(path, SESSION) as file:
        assert not file.resumed
        file.append(*rows)
    measurements = read_measurements(path)
    assert measurements.sessions == (SESSION,)
    kinds = (
        measurements.kernels,
        measurements.hosts,
        measurements.runs,
        measurements.failed,
        measurements.unread,
    )
    assert kinds == tuple((row,) for row in rows)
    assert measurements.rows_of("one") == 5
    assert measurements.session("one") == SESSION
    assert measurements.notes == ()


def test_goes_on_where_it_stopped(path: Path) -> None:
    filled(path)
    with MeasurementFile.open(path, AGAIN) as file:
        assert file.resumed
        assert file.session.id == "one"
        assert len(file.before.kernels) == 3
        file.append(kernel("t4"))
    assert len(read_measurements(path).kernels) == 4


def test_notes_do_not_make_another_session(path: Path) -> None:
    filled(path)
    noted = msgspec.structs.replace(AGAIN, notes=["other processes compute on it"])
    with MeasurementFile.open(path, noted) as file:
        assert file.resumed


@pytest.mark.parametrize("change", [{"device": "H200"}, {"protocol": None}, {"stack": {"a": "1"}}])
def test_another_machine_or_protocol_is_another_session(
    path: Path, change: dict[str, object]
) -> None:
    filled(path)
    with MeasurementFile.open(path, msgspec.structs.replace(AGAIN, **change)) as file:
        assert not file.resumed
        file.append(kernel(session="two"))
    assert [session.id for session in read_measurements(path).sessions] == ["one", "two"]


def test_the_same_session_is_not_imported_twice(path: Path) -> None:
    filled(path)
    before = path.read_bytes()
    with pytest.raises(SilicastError, match="already holds a session 'one'"):
        MeasurementFile.open(path, SESSION, resume=False)
    assert path.read_bytes() == before


ROWS = (kernel("t1", 1, "two"), UnreadRow("two", "void f()", 3, 9.0), kernel("t2", 2, "two"))


def test_a_session_and_its_rows_are_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    writes: list[bytes] = []
    real = os.write

    def write(to: int, data: bytes) -> int:
        writes.append(data)
        return real(to, data)

    monkeypatch.setattr(os, "write", write)
    MeasurementFile.add(path, [(AGAIN, ROWS), (msgspec.structs.replace(AGAIN, id="three"), ())])
    assert len(writes) == 1
    measurements = read_measurements(path)
    assert [session.id for session in measurements.sessions] == ["one", "two", "three"]
    assert measurements.rows_of("two") == 3


@pytest.mark.parametrize("lines", range(4))
@pytest.mark.parametrize("torn", [b"", b'{"record":"ker'])
def test_what_a_kill_cut_off_of_an_import_is_added(path: Path, lines: int, torn: bytes) -> None:
    """Killed after any line of it, the first of which is the session's."""
    filled(path)
    start = len(path.read_bytes().splitlines())
    MeasurementFile.add(path, [(AGAIN, ROWS)])
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[: start + lines]) + torn)
    MeasurementFile.add(path, [(AGAIN, ROWS)])
    assert path.read_bytes() == whole


def test_a_session_that_holds_something_else_is_not_added_to(path: Path) -> None:
    filled(path)
    MeasurementFile.add(path, [(AGAIN, ROWS[:1])])
    before = path.read_bytes()
    other = msgspec.structs.replace(AGAIN, device="H200")
    for session, rows in ((AGAIN, ROWS[:1]), (AGAIN, ROWS[1:]), (AGAIN, ()), (other, ROWS)):
        with pytest.raises(SilicastError, match="already holds a session 'two'"):
            MeasurementFile.add(path, [(session, rows)])
    assert path.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 2, 20, 60])
def test_a_last_line_that_was_cut_off_is_moved_aside(path: Path, cut: int) -> None:
    filled(path)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    path.write_bytes(content[:-cut])

    complete = 3 if cut == 1 else 2  # only the newline is gone
    measurements = read_measurements(path)
    assert len(measurements.kernels) == complete
    assert bool(measurements.notes) == (cut > 1)
    with MeasurementFile.open(path, AGAIN) as file:
        assert bool(file.notes) == (cut > 1)
        file.append(kernel("t9"))
    assert path.read_bytes().splitlines(keepends=True)[:-1] == lines[: complete + 1]
    assert len(read_measurements(path).kernels) == complete + 1
    if cut > 1:
        torn = path.with_name("measured.jsonl.torn").read_bytes()
        assert torn == lines[-1][:-cut] + b"\n"


def test_every_cut_leaves_the_lines_before_it(path: Path) -> None:
    filled(path)
    content = path.read_bytes()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        with MeasurementFile.open(path, SESSION):
            pass
        remaining = path.read_bytes()
        whole = content[: content[:end].rfind(b"\n") + 1]
        assert remaining.startswith(whole), end
        read_measurements(path)


def test_zeros_after_a_crash_are_moved_aside(path: Path) -> None:
    filled(path)
    content = path.read_bytes()
    path.write_bytes(content + bytes(40) + b"\n")
    with MeasurementFile.open(path, AGAIN) as file:
        assert len(file.before.kernels) == 3
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"# A readme\nof mine\n", "something else than measurements"),
        (b'{"a": 1}\n', "something else than measurements"),
    ],
)
def test_another_file_is_left_alone(path: Path, content: bytes, says: str) -> None:
    path.write_bytes(content)
    with pytest.raises(SilicastError, match=says):
        MeasurementFile.open(path, SESSION)
    assert path.read_bytes() == content


def test_places_are_refused_before_anything_is_measured(tmp_path: Path, path: Path) -> None:
    check_output(path)
    filled(path)
    check_output(path)
    path.write_bytes(path.read_bytes()[:5])  # killed within its first line
    check_output(path)
    other = tmp_path / "notes.txt"
    other.write_text("my notes\n")
    for position in (other, tmp_path, tmp_path / "no" / "folder.jsonl", Path("/dev/null")):
        with pytest.raises(SilicastError):
            check_output(position)


def test_a_broken_line_within_is_named_and_nothing_is_changed(path: Path) -> None:
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    broken = b"".join([*lines[:2], b"nonsense\n", *lines[2:]])
    path.write_bytes(broken)
    with pytest.raises(SilicastError, match="line 3: not valid JSON"):
        read_measurements(path)
    with pytest.raises(SilicastError, match="line 3: not valid JSON"):
        MeasurementFile.open(path, SESSION)
    assert path.read_bytes() == broken


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"record":"kernel","session":"one","kernel":{},"latency_us":-1}', "line 2.*>= *0|> 0"),
        ('{"record":"kernel","session":"one","kernel":{},"latency_us":1,"colour":2}', "colour"),
        ('{"record":"kernel","session":"nine","kernel":{},"latency_us":1}', "no session 'nine'"),
        ('{"record":"novel"}', "novel"),
        ('{"record":"session","id":"one","started":""}', "comes twice"),
        ('{"record":"session","id":"two","started":"","format":2}', "format 2"),
    ],
)
def test_wrong_records_are_named(path: Path, line: str, says: str) -> None:
    filled(path, rows=0)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(SilicastError, match=says) as raised:
        read_measurements(path)
    assert "line 2" in str(raised.value)


def test_the_same_row_twice_is_refused(path: Path) -> None:
    filled(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1]]))
    with pytest.raises(SilicastError, match="line 5 repeats line 2"):
        read_measurements(path)


def test_rows_without_a_moment_may_be_alike(path: Path) -> None:
    with MeasurementFile.open(path, SESSION) as file:
        file.append(kernel(), kernel())
    assert len(read_measurements(path).kernels) == 2


def test_a_second_writer_is_refused(path: Path) -> None:
    with MeasurementFile.open(path, SESSION) as file:
        with pytest.raises(SilicastError, match="another process is measuring into it"):
            MeasurementFile.open(path, AGAIN)
        file.append(kernel("t1"))
    with MeasurementFile.open(path, AGAIN) as file:
        assert file.resumed


@pytest.mark.parametrize("latency", [0.0, -1.0, float("nan"), float("inf")])
def test_a_row_that_could_not_be_read_is_not_written(path: Path, latency: float) -> None:
    with MeasurementFile.open(path, SESSION) as file, pytest.raises(SilicastError):
        file.append(kernel("t1"), KernelRow("one", {}, latency))
    assert read_measurements(path).kernels == ()


def test_a_full_disk_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with MeasurementFile.open(path, SESSION) as file:
        file.append(kernel("t1"))
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:20]))
        with pytest.raises(SilicastError, match="the disk is full"):
            file.append(kernel("t2"))
        monkeypatch.undo()
        assert path.read_bytes() == before
        file.append(kernel("t3"))
    assert [row.at for row in read_measurements(path).kernels] == ["t1", "t3"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for position in (tmp_path, tmp_path / "no" / "folder.jsonl", Path("/dev/null")):
        with pytest.raises(SilicastError) as raised:
            MeasurementFile.open(position, SESSION)
        assert raised.value.kind == "io"
    with pytest.raises(SilicastError, match="cannot read"):
        read_measurements(tmp_path / "none.jsonl")


def test_a_file_without_a_session_is_refused(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(SilicastError, match="holds no session"):
        read_measurements(path)
