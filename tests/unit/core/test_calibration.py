"""Calibrations: scope, choice of an offset, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from silicast.core.calibrated import CollectiveCurve, HostConstant, InModels
from silicast.core.calibration import (
    FORMAT,
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
        ('{"format": 7, "scope": {"device": "x"}, "offsets": []}', "format 7"),
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


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    save_calibration(SAMPLE.signed, path)
    assert load_calibration(path) == SAMPLE.signed
    assert SAMPLE.signed.hash == SAMPLE.hash
    path.write_text(path.read_text().replace("0.03", "0.04"))
    with pytest.raises(SilicastError, match="checksum") as caught:
        load_calibration(path)
    assert "silicast calibrate" in caught.value.hint


TREES = {"edges": [[3, 9], [4]], "questions": [[[0, 1], [1, 1]]], "leaves": [[0, 1, 2, 3]]}
FIELD = {
    "coordinates": ["time", "size:m"], "scales": [0.1, 0.2], "anchors": [[1, 2], [3, 4]],
    "weights": [0.5, -0.5], "trend": {"constant": 0.1}, "field_log_sd": 0.1, "noise_log_sd": 0.02,
}  # fmt: skip
WHOLE = {
    "family": "gemm", "log_offset": 0.1, "log_sd": 0.02, "rows": 80,
    "features": ["size:m", "waves"],
    "ranges": [[1, 2], [3, 4]], "correction": TREES, "interpolation": FIELD,
}  # fmt: skip


def load(path: Path, offset: dict[str, Any]) -> Calibration:
    tree = {"format": 3, "scope": {"device": "x"}, "offsets": [offset]}
    path.write_text(json.dumps(tree))
    return load_calibration(path)


def test_shapes_that_fit_are_read(tmp_path: Path) -> None:
    assert load(tmp_path / "c.json", WHOLE).offsets[0].correction is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranges": [[1, 2]]}, "1 ranges for 2 features"),
        ({"features": ["a", "b", "c"], "ranges": []}, "correction of 2 features"),
        ({"correction": {**TREES, "leaves": [[0, 1, 2]]}}, "trees of depths"),
        ({"correction": {**TREES, "leaves": []}}, "trees of depths"),
        ({"correction": {**TREES, "questions": [[[7, 1], [1, 1]]]}}, "asks for feature 7"),
        ({"correction": {**TREES, "questions": [[[-1, 1], [1, 1]]]}}, "questions"),
        ({"correction": {**TREES, "leaves": [[0, 1, 2, 99999]]}}, "leaves"),
        ({"interpolation": {**FIELD, "scales": [0.1]}}, "coordinates"),
        ({"interpolation": {**FIELD, "anchors": [[1, 2], [3]]}}, "coordinates"),
        ({"interpolation": {**FIELD, "weights": [0.5]}}, "1 weights for 2 anchors"),
        ({"interpolation": {**FIELD, "weights": [0.5, 1e30]}}, "weights"),
        ({"interpolated_share": 2.0}, "interpolated_share"),
    ],
)
def test_wrong_shapes_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SilicastError) as caught:
        load(tmp_path / "c.json", {**WHOLE, **change})
    assert words in str(caught.value)
    assert "c.json" in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(SilicastError) as caught:
        load_calibration(tmp_path / "none.json")
    assert caught.value.kind == "io"
    with pytest.raises(SilicastError):
        save_calibration(SAMPLE, tmp_path / "none" / "c.json")


def test_a_file_of_the_layout_before_keeps_its_checksum() -> None:
    third = msgspec.structs.replace(SAMPLE, format=3)
    # as version 0.1.0 signed it when layout 3 was the last
    assert third.hash == "b55054b794157cb2"
    assert msgspec.structs.replace(third, checksum="b55054b794157cb2").format == 3


BESIDE = Calibration(
    FORMAT,
    Scope("H100-SXM-80GB"),
    [],
    constants=[HostConstant("dispatch_us", 9.0, 0.1, 3, engine="torch-eager")],
    collectives=[
        CollectiveCurve("all_reduce", "nccl", "graph", 8, 1, [1024, 4096], [0.1, 0.2], 0.05, 4)
    ],
    models=[InModels("torch-eager", "eager", 0.1, 0.03, 6, (0.001, 0.1), tasks=["graph"])],
)


def test_all_parts_are_signed_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    save_calibration(BESIDE.signed, path)
    assert load_calibration(path) == BESIDE.signed
    path.write_text(path.read_text().replace("9.0", "9.5"))
    with pytest.raises(SilicastError, match="checksum"):
        load_calibration(path)


@pytest.mark.parametrize("part", ["constants", "collectives", "models"])
def test_two_that_say_the_same_are_refused(part: str) -> None:
    with pytest.raises(ValueError, match="two "):
        msgspec.structs.replace(BESIDE, **{part: 2 * getattr(BESIDE, part)})


@pytest.mark.parametrize(
    ("sizes", "ratios", "words"),
    [([1, 2], [0.1], "1 ratios for 2 sizes"), ([2, 2], [0.1, 0.1], "do not ascend")],
)
def test_curves_have_a_ratio_a_size_ascending(
    sizes: list[int], ratios: list[float], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        CollectiveCurve("all_reduce", "nccl", "graph", 8, 1, sizes, ratios, 0.05, 4)
