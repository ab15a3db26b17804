"""Files of Chakra traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.chakra import files
from silicast.formats.chakra.files import is_chakra, read_chakra, write_chakra
from tests.unit.formats.chakra.traces import collective, compute, trace

MADE = trace([compute(0), collective(1, 0, group="g")], [collective(0, group="g")],
             groups={"g": (0, 1)})  # fmt: skip


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    names = [path.name for path in write_chakra(MADE, tmp_path / "new")]
    assert names == ["program.0.et", "program.1.et", "comm_group.json"]
    for path in (tmp_path / "new", tmp_path / "new" / "program"):
        assert is_chakra(path)
        assert read_chakra(path) == MADE


def test_one_file_is_one_rank(tmp_path: Path) -> None:
    write_chakra(MADE, tmp_path)
    assert list(read_chakra(tmp_path / "program.1.et").ranks) == [1]


def test_two_traces_in_a_folder_are_told_apart(tmp_path: Path) -> None:
    write_chakra(MADE, tmp_path)
    (tmp_path / "other.0.et").write_bytes((tmp_path / "program.0.et").read_bytes())
    with pytest.raises(SilicastError, match=r"several traces: other, program"):
        read_chakra(tmp_path)
    assert list(read_chakra(tmp_path / "other").ranks) == [0]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_chakra(MADE, tmp_path)
    file = tmp_path / "program.1.et"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(SilicastError, match=r"program\.1\.et: no Chakra trace: message 2"):
        read_chakra(tmp_path)


@pytest.mark.parametrize("text", ["[1]", '{"g": []}', '{"g": [0, 0]}', '{"g": [-1]}', '{"g": "0"}'])
def test_bad_groups_are_named(tmp_path: Path, text: str) -> None:
    write_chakra(MADE, tmp_path)
    (tmp_path / "comm_group.json").write_text(text)
    with pytest.raises(SilicastError, match=r"comm_group\.json"):
        read_chakra(tmp_path)


def test_what_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_chakra(MADE, tmp_path)
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    with pytest.raises(SilicastError, match="larger than") as caught:
        read_chakra(tmp_path)
    assert caught.value.kind == "limit"


def test_what_is_not_there(tmp_path: Path) -> None:
    assert not is_chakra(tmp_path)
    assert not is_chakra(tmp_path / "a" / "b")
    for path in (tmp_path, tmp_path / "x" / "y", tmp_path / "none.0.et"):
        with pytest.raises(SilicastError) as caught:
            read_chakra(path)
        assert caught.value.kind == "io"
