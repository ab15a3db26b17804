"""Traces that mean nothing are refused by name, and not predicted from."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.operator_spans import DeviceSpan, device_times
from silicast.measurement.what_if.scaled_trace import scaled_trace
from tests.unit.measurement.importers import samples as s

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def kernels(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]


def edited(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    trace = s.gpu_trace()
    change(trace)
    return s.written(folder, "trace.json", trace)


def database(folder: Path, *statements: str) -> Path:
    path = s.nsys(folder / "report.sqlite")
    with closing(sqlite3.connect(path)) as base:
        for each in statements:
            base.execute(each)
        base.commit()
    return path


def refused(path: Path, traced: str = "H100") -> SilicastError:
    with pytest.raises(SilicastError) as caught:
        scaled_trace(path, "A100", traced)
    assert caught.value.file == str(path)
    assert caught.value.hint
    return caught.value


def without_kernels(trace: dict[str, Any]) -> None:
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") not in ON_DEVICE]


def test_a_trace_without_kernels_is_no_gpus(tmp_path: Path) -> None:
    """The host's operators are in it, whose times are those of their dispatch."""
    path = edited(tmp_path, without_kernels)
    assert "holds no kernel" in refused(path).message
    assert scaled_trace(path, "intel-xeon-8480", "intel-xeon-8380").measured_us > 0.0


def test_a_database_without_kernels(tmp_path: Path) -> None:
    path = database(tmp_path, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert "no CUDA kernel was recorded" in refused(path).message


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("dur", -5.0, "took -5.0 us"),
        ("ts", -5.0, "starts at -5.0 us"),
        ("ts", "nan", "expected a number"),
        ("ts", 1e15, "nothing runs for"),
    ],
)
def test_times_that_are_none(tmp_path: Path, field: str, value: Any, part: str) -> None:
    path = edited(tmp_path, lambda trace: kernels(trace)[0].update({field: value}))
    with pytest.raises(SilicastError) as caught:
        scaled_trace(path, "A100", "H100")
    assert part in caught.value.message
    assert caught.value.field


def all_at_once(trace: dict[str, Any]) -> None:
    for event in kernels(trace):
        event["ts"] = 100.0


def on_streams_of_their_own(trace: dict[str, Any]) -> None:
    all_at_once(trace)
    for number, event in enumerate(kernels(trace)):
        event["tid"] = 100 + number


def test_kernels_at_once_are_those_of_several_streams(tmp_path: Path) -> None:
    """On one stream they cannot be; on streams of their own they hide each other."""
    assert "of its own stream, as rows" in refused(edited(tmp_path, all_at_once)).message
    assert scaled_trace(edited(tmp_path, on_streams_of_their_own), "A100").overlap == ""


def test_times_of_a_device_by_hand(tmp_path: Path) -> None:
    """Two streams: 0-10 and 8-12 on one (2 us at once), 20-30 with 22-24 in it and 29-31 after it
    (2 + 1 us), 11-13 on the other; nothing runs from 13 to 20. What is on no known stream overlaps
    with nothing.
    """
    spans = [
        DeviceSpan(start, took, stream, row)
        for row, (start, took, stream) in enumerate(
            [(0, 10, 1), (8, 4, 1), (11, 2, 2), (20, 10, 1), (22, 2, 1), (29, 2, 1)], 1
        )
    ]
    source = Source(tmp_path / "x")
    times = device_times(spans, source, "ts")
    assert (times.idle_us, times.busy_us) == (7.0, 24.0)
    assert (times.overlap_us, times.overlap) == (5.0, "rows 1 and 2")
    nowhere = device_times([replace(span, stream=None) for span in spans], source, "ts")
    assert nowhere == replace(times, overlap_us=0.0, overlap="")


def test_kernels_at_once_in_a_database(tmp_path: Path) -> None:
    path = database(
        tmp_path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end - start + 100, start = 100"
    )
    assert "of its own stream" in refused(path).message


def test_a_database_has_gaps_too(tmp_path: Path) -> None:
    """By hand, ns: from the first kernel to the end of the last transfer, less what runs."""
    result = scaled_trace(database(tmp_path), "A100", "H100")
    spans = [(start, end) for _, start, end, _, _ in s.NSYS_KERNELS] + [(60_000, 61_500)]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    ran = sum(end - start for start, end in spans)
    assert result.idle_us == pytest.approx((last - first - ran) / 1e3)


def test_files_that_were_cut_off(tmp_path: Path) -> None:
    raw = json.dumps(s.gpu_trace()).encode()
    assert "not valid JSON" in refused(s.written(tmp_path, "trace.json", raw[:-200])).message
    whole = s.nsys(tmp_path / "whole.sqlite").read_bytes()
    half = s.written(tmp_path, "half.sqlite", whole[: len(whole) // 2])
    assert "damaged database" in refused(half).message


@pytest.mark.parametrize("name", ["trace.json", "report.sqlite"])
def test_a_file_of_two_gigabytes_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    whole = s.nsys(tmp_path / "small").read_bytes()
    start = json.dumps(s.gpu_trace()).encode() if name == "trace.json" else whole
    path = s.written(tmp_path, name, start)
    with path.open("r+b") as stream:
        stream.truncate(2 << 30)  # holes take no room on the disk
    error = refused(path)
    assert error.kind == "limit"
    assert "1 GiB" in error.message
