"""Files beside an answer: whole or not there, whatever ends the command; the status says what."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from silicast.app import status
from silicast.app.cli import main

INFER = "infer --model Llama-3.1-8B --device h100 --batch 1 --input-len 64 --output-len 4"
COMPARE = "compare --model Llama-3.1-8B --device h100,a100 --batch 1 --input-len 64 --output-len 4"
WRITING = [(INFER, "--html", "page.html"), (COMPARE, "--html", "page.html"),
           (COMPARE, "--csv", "table.csv"), (COMPARE, "--plot", "drawing.svg")]  # fmt: skip
MANY = [f"{command.split()[0]} {flag}" for command, flag, _ in WRITING]


def _whole(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        rows = list(csv.reader(text.splitlines()))
        return len(rows) >= 3 and len({len(row) for row in rows}) == 1
    return text.rstrip().endswith("</html>" if path.suffix == ".html" else "</svg>")


def _needs(flag: str) -> None:
    if flag == "--plot":
        pytest.importorskip("matplotlib")


def _limited(limit: str, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = f"{limit}; from silicast.app.cli import main; raise SystemExit(main())"
    # without bytecode: a limit of file sizes would cut that off too, for all who read it later
    return subprocess.run(
        [sys.executable, "-B", "-c", code, *command.split()], capture_output=True, text=True,
        cwd=folder, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("command", "flag", "name"), WRITING, ids=MANY)
def test_a_full_disk_leaves_no_half_of_a_file(
    command: str, flag: str, name: str, tmp_path: Path
) -> None:
    _needs(flag)
    (tmp_path / name).write_text("before", encoding="utf-8")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"
    done = _limited(limit, f"{command} {flag} {name}", tmp_path)
    assert done.returncode == status.BAD_INPUT, done.stderr
    assert name in done.stderr
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "before"}


@pytest.mark.parametrize(("command", "flag", "name"), WRITING, ids=MANY)
def test_an_interruption_leaves_no_half_of_a_file(
    command: str, flag: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needs(flag)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("silicast.core.files.os.replace", interrupted)
    target = tmp_path / name
    assert main([*command.split(), flag, str(target)]) == status.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "flag", "name"), WRITING, ids=MANY)
def test_who_stops_reading_has_the_file_whole(
    command: str, flag: str, name: str, tmp_path: Path
) -> None:
    _needs(flag)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "silicast", *command.split(), flag, name], stdout=writer,
            stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert done.returncode == status.ANSWERED, done.stderr
    assert "Traceback" not in done.stderr
    assert _whole(tmp_path / name)


@pytest.mark.parametrize(("command", "flag", "name"), WRITING, ids=MANY)
def test_a_folder_that_is_not_there_is_named(
    command: str, flag: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _needs(flag)
    target = tmp_path / "nowhere" / name
    assert main([*command.split(), flag, str(target)]) == status.BAD_INPUT
    remark = capsys.readouterr().err
    assert str(target) in remark
    assert "No such file or directory" in remark
