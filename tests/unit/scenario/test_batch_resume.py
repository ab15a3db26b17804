"""A batch that was interrupted goes on to the same bytes; another one is refused."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.core.growing import growing
from silicast.runner import workers as batch_workers
from silicast.runner.batch import BUSY, run_batch_file
from silicast.runner.process import AnswerProcess
from silicast.runner.record import record_of


def case(number: int, **changes: Any) -> dict[str, Any]:
    kernel = {"op": "gemm", "m": 1 + number, "n": 4096, "k": 4096}
    return {"task": "kernel", "device": "H100", "workload": {"kernel": kernel}, **changes}


def written(path: Path, cases: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in cases), encoding="utf-8")
    return path


class StoppedError(Exception):
    """Stands for a process that was killed."""


def stopped(source: Path, target: Path, after: int, torn: int = 0) -> None:
    """A batch that ends once so many cases are done, with some bytes of the last line missing."""

    def watch(done: int) -> None:
        if done >= after:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_batch_file(source, target, watch)
    if torn:
        os.truncate(target, target.stat().st_size - torn)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_workers, "MOST_LINES", 7)


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    lines = [case(number) for number in range(40)]
    lines[3] = {"task": "nonsense"}
    lines[20] = case(20, id="named")
    return written(tmp_path / "cases.jsonl", lines)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("torn", [0, 1, 300, 5000])
def test_what_is_there_is_kept_and_the_rest_is_added(
    cases: Path, tmp_path: Path, torn: int
) -> None:
    whole, target = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run_batch_file(cases, whole)
    stopped(cases, target, 20, torn)
    assert record_of(target).exists()
    before = target.read_bytes()
    inode = target.stat().st_ino
    remaining = before[: before.rindex(b"\n") + 1]
    result = run_batch_file(cases, target, resume=True)
    assert target.stat().st_ino == inode
    assert target.read_bytes().startswith(remaining)
    assert target.read_bytes() == whole.read_bytes()
    assert result.kept == remaining.count(b"\n") > 0
    assert (result.answered, result.failed, result.exit_status) == (39, 1, 3)
    assert not record_of(target).exists()


@pytest.mark.usefixtures("pieces")
def test_a_batch_can_be_interrupted_many_times(cases: Path, tmp_path: Path) -> None:
    whole, target = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run_batch_file(cases, whole)
    draw = random.Random(0)
    stopped(cases, target, 1)
    for _ in range(30):
        if record_of(target).exists() and draw.random() < 0.6:  # killed within a line
            size = target.stat().st_size
            os.truncate(target, max(0, size - draw.randrange(2000)))

        def watch(_: int) -> None:
            if draw.random() < 0.4:
                raise StoppedError

        try:
            run_batch_file(cases, target, watch, resume=True)
        except StoppedError:
            continue
        assert target.read_bytes() == whole.read_bytes()
        os.truncate(target, draw.randrange(whole.stat().st_size))  # and the record is gone
    run_batch_file(cases, target, resume=True)
    assert target.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("pieces")
def test_other_cases_are_refused_with_their_line(cases: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    stopped(cases, target, 20)
    before = target.read_bytes()
    lines = cases.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[8] = lines[8].replace("4096", "4097", 1)
    cases.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(SilicastError, match="other cases than these: they differ") as caught:
        run_batch_file(cases, target, resume=True)
    first, last = map(int, re.findall(r"lines (\d+) to (\d+)", caught.value.message)[0])
    assert first <= 9 <= last < first + 7, "the piece of at most seven lines that the change is in"
    assert caught.value.file == str(target)
    assert "anew" in caught.value.hint
    assert target.read_bytes() == before
    cases.write_text("".join(lines[:5]), encoding="utf-8")
    with pytest.raises(SilicastError, match="other cases"):
        run_batch_file(cases, target, resume=True)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    ("field", "said"),
    [("version", "version of Silicast: 0.0.1 there"), ("package", "code or numbers"),
     ("calibrations", "calibrations")],
)  # fmt: skip
def test_another_version_is_refused(cases: Path, tmp_path: Path, field: str, said: str) -> None:
    target = tmp_path / "out.jsonl"
    stopped(cases, target, 20)
    before = target.read_bytes()
    first, remaining = record_of(target).read_text(encoding="utf-8").split("\n", 1)
    maker = json.dumps({**json.loads(first), field: "0.0.1"})
    record_of(target).write_text(f"{maker}\n{remaining}", encoding="utf-8")
    with pytest.raises(SilicastError, match=said):
        run_batch_file(cases, target, resume=True)
    assert target.read_bytes() == before


@pytest.mark.usefixtures("pieces")
def test_without_a_record_answers_speak_for_themselves(cases: Path, tmp_path: Path) -> None:
    whole, target = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run_batch_file(cases, whole)
    content = whole.read_bytes()
    result = run_batch_file(cases, whole, resume=True)  # nothing is left to do
    assert (result.kept, result.exit_status, whole.read_bytes()) == (40, 3, content)
    lines = content.splitlines(keepends=True)
    target.write_bytes(b"".join(lines[:11]) + lines[11][:30])
    run_batch_file(cases, target, resume=True)
    assert target.read_bytes() == content
    changed = lines[10].replace(b'"estimate":', b'"estimate":1')
    target.write_bytes(b"".join([*lines[:10], changed]))
    with pytest.raises(
        SilicastError, match=f"line 11 is not what this version.*{silicast.__version__}"
    ):
        run_batch_file(cases, target, resume=True)
    target.write_bytes(b"".join([lines[1], lines[0]]))
    with pytest.raises(SilicastError, match="line 1 answers 2, but that case is 1"):
        run_batch_file(cases, target, resume=True)
    target.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(SilicastError, match="holds 41 answers, but there are 40 cases"):
        run_batch_file(cases, target, resume=True)
    for other in (b"hello\n", b"[1]\n", b"\xff\n", b"{}\n", b"\0\n"):
        target.write_bytes(other)
        with pytest.raises(SilicastError, match="line 1 is no answer"):
            run_batch_file(cases, target, resume=True)
        assert target.read_bytes() == other


def test_a_record_that_is_none_is_refused(cases: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    run_batch_file(cases, target)
    for other in (b"hello\n", b"{}\n", b"\xff\xfe\n"):
        record_of(target).write_bytes(other)
        with pytest.raises(SilicastError, match="is no record") as caught:
            run_batch_file(cases, target, resume=True)
        assert caught.value.file == str(record_of(target))
    record_of(target).write_bytes(b"")
    run_batch_file(cases, target, resume=True)


def test_there_may_be_nothing_yet(cases: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert run_batch_file(cases, target, resume=True).kept == 0
    assert len(target.read_bytes().splitlines()) == 40


def test_cases_that_were_added_since_are_answered(cases: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    run_batch_file(cases, target)
    with cases.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(case(99)) + "\n")
    result = run_batch_file(cases, target, resume=True)
    assert (result.kept, result.cases) == (40, 41)


def test_two_writers_are_refused(cases: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("mine\n")
    with growing(target, BUSY, keep=True):
        for resume in (False, True):
            with pytest.raises(SilicastError, match=BUSY):
                run_batch_file(cases, target, resume=resume)
    assert target.read_text() == "mine\n"
    assert not record_of(target).exists()


def test_a_stream_cannot_be_resumed(cases: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SilicastError, match="no regular file"):
        run_batch_file(cases, pipe, resume=True)


def test_a_full_disk_leaves_whole_lines(cases: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    target = tmp_path / "out.jsonl"
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
        "from silicast.app.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", limited, "batch", str(cases), "-o", str(target)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "cannot write: File too large" in run.stderr
    assert "Traceback" not in run.stderr
    left = target.read_bytes()
    assert left.endswith(b"\n")
    assert 10_000 < len(left) <= 20_000
    run_batch_file(cases, target, resume=True)
    assert target.read_bytes().startswith(left)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "silicast", "batch", *words]


@pytest.fixture
def slow_cases(tmp_path: Path) -> Path:
    lines: list[Any] = [
        {"task": "inference", "model": "Llama-3.1-8B", "device": device,
         "workload": {"batch": batch, "input_len": 256 * batch, "output_len": 64}}
        for device in ("h100", "a100") for batch in range(1, 31)
    ]  # fmt: skip
    return written(tmp_path / "slow.jsonl", [*lines, {"task": "?"}])


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.full)])
def test_kills_at_any_moment_change_no_byte(slow_cases: Path, tmp_path: Path, kills: int) -> None:
    whole, target = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    start = time.monotonic()
    run = subprocess.run(
        command(str(slow_cases), "-o", str(whole), "--workers", "2"), check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    takes = time.monotonic() - start
    assert (run.returncode, run.stdout) == (3, "")
    draw = random.Random(kills)
    ways = [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]
    for number in range(kills):
        words = [str(slow_cases), "-o", str(target), "--resume", "--workers", str(1 + number % 2)]
        with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True) as process:
            time.sleep(draw.random() * takes * 0.7)
            process.send_signal(ways[number % 3])
            _, remark = process.communicate()
        assert "Traceback" not in remark
        if process.returncode == 130:
            assert "interrupted" in remark
    run = subprocess.run(
        command(str(slow_cases), "-o", str(target), "--resume"), check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert run.returncode == 3, run.stderr
    assert target.read_bytes() == whole.read_bytes()


def test_answers_stream_through_pipes() -> None:
    """Whoever feeds cases by hand sees each answer before the next case."""
    line = json.dumps(case(1)).encode() + b"\n"
    with subprocess.Popen(
        command("-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2, 3):
            process.stdin.write(line)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait() == 0


def test_a_reader_that_leaves_ends_a_batch(slow_cases: Path) -> None:
    with subprocess.Popen(
        command(str(slow_cases)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ok"]
        process.stdout.close()
        assert process.stderr is not None
        remark = process.stderr.read()
        assert process.wait() == 141
    assert "nobody reads the answers any longer" in remark


def test_a_case_that_ends_its_process_costs_that_case_only(
    slow_cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is killed from outside each time it has work: its cases are refused or answered."""
    monkeypatch.setattr(batch_workers, "ALONE_S", 0.0)
    killed = threading.Event()
    give = AnswerProcess.give

    def gives(self: Any, piece: int, lines: Any) -> None:
        give(self, piece, lines)
        if not killed.is_set():
            killed.set()
            self._child.kill()

    monkeypatch.setattr(AnswerProcess, "give", gives)
    target, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    run_batch_file(slow_cases, whole)
    run_batch_file(slow_cases, target, workers=2)
    assert killed.is_set()
    assert target.read_bytes() == whole.read_bytes()


def test_a_case_that_ends_every_process_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_workers, "ALONE_S", 0.0)
    give = AnswerProcess.give

    def gives(self: Any, piece: int, lines: Any) -> None:
        if any(b"deadly" in raw for _, raw in lines):  # before it has them: it never answers
            self._child.kill()
        give(self, piece, lines)

    monkeypatch.setattr(AnswerProcess, "give", gives)
    lines = [case(1), case(2, id="deadly"), case(3)]
    source, target = written(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    assert run_batch_file(source, target, workers=1).exit_status == 0
    result = run_batch_file(source, target, workers=2)
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["ok"] for row in rows] == [True, False, True]
    assert "signal 9" in rows[1]["error"]["message"]
    assert (rows[1]["id"], result.exit_status) == ("deadly", 3)


def test_a_process_that_dies_between_cases_costs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends after it has answered is not blamed on the case that comes next."""
    monkeypatch.setattr(batch_workers, "ALONE_S", 0.0)
    take = AnswerProcess.take

    def takes(self: Any, *limits: Any) -> Any:
        outcome = take(self, *limits)
        self._child.kill()
        self._child.wait()
        return outcome

    monkeypatch.setattr(AnswerProcess, "take", takes)
    lines = [case(number) for number in (1, 2, 3)]
    for length in (1, 3):
        monkeypatch.setattr(batch_workers, "MOST_LINES", length)
        source, target = written(tmp_path / "in.jsonl", lines), tmp_path / f"out{length}.jsonl"
        assert run_batch_file(source, target, workers=1).exit_status == 0
        result = run_batch_file(source, target, workers=2)
        rows = [json.loads(line) for line in target.read_text().splitlines()]
        assert ([row["ok"] for row in rows], result.exit_status) == ([True] * 3, 0)
