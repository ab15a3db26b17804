"""Calibrations: scope, choice of an offset, files."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core.calibration import (
    Calibration,
    Offset,
    Scope,
    load_calibration,
    save_calibration,
)
from silicast.core.errors import SilicastError

SAMPLE = Calibration(
    1,
    Scope("H100-SXM-80GB", "EPYC 9654", {"cuda": "12.8"}),
    [Offset("gemm", 0.1, 0.05, 40), Offset("gemm", 0.2, 0.03, 20, dtype="fp8")],
    created="2026-11-21",
)

HEAD = '{"format": 1, "scope": {"device": "x"}, "offsets": ['


def test_the_offset_of_the_very_dtype_goes_first() -> None:
    fp8, other = SAMPLE.offset_for("gemm", "fp8"), SAMPLE.offset_for("gemm", "bf16")
    assert fp8 is not None
    assert other is not None
    assert (fp8.log_offset, other.log_offset) == (0.2, 0.1)
    assert SAMPLE.offset_for("rmsnorm", "bf16") is None


def test_order_of_offsets_does_not_matter() -> None:
    turned = Calibration(1, SAMPLE.scope, SAMPLE.offsets[::-1])
    assert turned.offset_for("gemm", "fp8") == SAMPLE.offset_for("gemm", "fp8")


def test_a_file_holds_the_whole_of_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    save_calibration(SAMPLE, path)
    assert load_calibration(path) == SAMPLE
    assert load_calibration(path).hash == SAMPLE.hash
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_it_is_of_its_device_however_that_is_spelt() -> None:
    assert SAMPLE.is_of("h100_sxm_80gb")
    assert not SAMPLE.is_of("A100-SXM-80GB")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ('{"format": 4, "scope": {"device": "x"}, "offsets": []}', "format 4"),
        ('{"format": 1, "scope": {"device": "x"}, "offset": []}', "offset"),
        (
            HEAD + '{"family": "gemm", "log_offset": 9, "log_sd": 0, "rows": 1}]}',
            "offsets[0].log_offset",
        ),
        (
            HEAD
            + ",".join(['{"family": "g", "log_offset": 0, "log_sd": 0, "rows": 1}'] * 2)
            + "]}",
            "two offsets",
        ),
        ('{"format": ' + "[" * 5000, "c.json"),
    ],
)
def test_bad_files_name_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SilicastError) as caught:
        load_calibration(path)
    assert words in str(caught.value)
    assert "c.json" in str(caught.value)


def test_a_missing_file_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(SilicastError) as caught:
        load_calibration(tmp_path / "none.json")
    assert caught.value.kind == "io"
    with pytest.raises(SilicastError):
        save_calibration(SAMPLE, tmp_path / "none" / "c.json")
