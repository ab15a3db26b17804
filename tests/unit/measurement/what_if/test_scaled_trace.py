"""A trace on another device: by hand where both devices are one, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.files import import_files
from silicast.measurement.importers.importer import Options
from silicast.measurement.importers.launches import Launch, reading_of
from silicast.measurement.what_if import scaled_trace as what_if
from silicast.measurement.what_if.scaled_trace import scaled_trace
from silicast.report.measurements.what_if import what_if_values
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to
from tests.unit.measurement.importers import samples as s

IDLE_US = 149.0
"""Of the sample, first kernel to last: 5 + 13 + 27.75 + 51 + 24.5 + 5.5 + 3.5 + 10 + 8.75."""
BESIDE_US = 1.5
"""Of the sample: a kernel of 1.5 us runs beside another."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return s.written(tmp_path, "trace.json", s.gpu_trace())


def test_the_traced_device_takes_what_was_measured(trace: Path) -> None:
    result = scaled_trace(trace, "H100")
    assert [op.scaled_us.estimate for op in result.ops] == pytest.approx(
        [op.measured_us for op in result.ops]
    )
    assert result.scaled_us.estimate == pytest.approx(result.measured_us)
    assert result.idle_us == pytest.approx(IDLE_US)
    assert result.wall_us is not None
    assert result.wall_us[0] == pytest.approx(result.measured_us - BESIDE_US + IDLE_US)


def test_a_kernel_is_scaled_by_the_ratio_of_its_predictions(trace: Path) -> None:
    result = scaled_trace(trace, "A100")
    (addition,) = [op for op in result.ops if op.op == "elementwise"]
    kernel = {"op": "elementwise", "kind": "add", "elements": 256, "inputs": 2, "dtype": "bf16"}
    ratios = []
    for device in ("A100", "H100"):
        reply = reply_to(
            {
                "task": "kernel",
                "device": device,
                "workload": {"kernel": {**kernel, "library": "torch"}},
            }
        )
        assert isinstance(reply, Answer)
        ratios.append(reply.metrics["latency_us"].estimate)
    assert addition.measured_us == 2.25
    assert addition.scaled_us.estimate == pytest.approx(2.25 * ratios[0] / ratios[1], rel=0.05)


def test_kernels_without_a_ratio_take_that_of_all_others(trace: Path) -> None:
    result = scaled_trace(trace, "A100")
    known = math.fsum(op.measured_us for op in result.ops)
    scaled = math.fsum(op.scaled_us.estimate for op in result.ops)
    assert result.unscaled[0].name == "somebody_elses"
    assert result.unscaled_share == pytest.approx(1.0 - known / result.measured_us)
    assert result.scaled_us.estimate == pytest.approx(result.measured_us * scaled / known)
    assert result.scaled_us.p05 < result.scaled_us.estimate < result.scaled_us.p95


def test_sums_without_sizes_are_refused(tmp_path: Path) -> None:
    path = s.written(tmp_path, "sum.csv", s.NSYS_SUM)
    with pytest.raises(SilicastError, match="no kernel of it can be predicted") as refused:
        scaled_trace(path, "A100", "H100")
    assert "record_shapes" in refused.value.hint


@pytest.mark.parametrize("launches", [1, 10])
def test_means_of_launches_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    """One launch is its own mean; ten are not counted in their row."""
    path = s.written(tmp_path, "sum.csv", s.NSYS_SUM)
    (usual,) = import_files([path], device="H100")
    kernel = {"op": "gemm", "m": 8, "n": 32, "k": 64, "dtype": "bf16"}
    rows = [Launch(s.GEMM, 5.0, 1, kernel, count=launches)]
    options = Options(device="H100")
    reading = reading_of(rows, usual.reading.session, options, Source(path))
    monkeypatch.setattr(what_if, "import_files", lambda *_, **__: [replace(usual, reading=reading)])
    if launches == 1:
        assert scaled_trace(path, "A100", "H100").measured_us == 5.0
        return
    with pytest.raises(SilicastError, match="holds means of launches") as refused:
        scaled_trace(path, "A100", "H100")
    assert "timeline" in refused.value.hint


def test_kernels_beside_each_other_are_counted_once(tmp_path: Path) -> None:
    """Two streams by hand: 10 us from 0, 10 us from 4, a gap of 6, 5 us: 25 of kernels, 19 busy."""
    shapes = [[8, 64], [64, 32]]
    events = [
        s.cpu_op(number, "aten::mm", 100 * number, 5, shapes, [s.BF16, s.BF16])
        for number in (1, 2, 3)
    ]
    for number, (start, took) in enumerate([(1000, 10.0), (1004, 10.0), (1020, 5.0)], 1):
        events.append(s.on_device(s.GEMM, start, took, number, 100 + number))
    path = s.written(tmp_path, "t.json", s.kineto(events))
    result = scaled_trace(path, "H100")
    assert result.measured_us == pytest.approx(25.0)
    assert result.idle_us == pytest.approx(6.0)
    assert result.busy_share == pytest.approx(19.0 / 25.0)
    assert result.wall_us is not None
    assert result.wall_us[0] == pytest.approx(25.0)
    other = scaled_trace(path, "A100")
    assert other.wall_us is not None
    wall = other.wall_us[1].estimate
    assert wall == pytest.approx(6.0 + other.scaled_us.estimate * 19.0 / 25.0)


def test_a_trace_without_shapes_is_refused_with_what_to_do(tmp_path: Path) -> None:
    events = [s.on_device("somebody_elses", 0, 5.0)]
    path = s.written(tmp_path, "t.json", s.kineto(events))
    with pytest.raises(SilicastError, match="no kernel of it can be predicted") as refused:
        scaled_trace(path, "A100")
    assert "record_shapes" in refused.value.hint


def test_the_command(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(trace), "--device", "a100", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["tier"] == "scaled"
    assert values["traced"] == "H100-SXM-80GB"
    assert main(["whatif", str(trace), "--device", "a100"]) == 0
    assert "with gaps" in capsys.readouterr().out
    assert main(["whatif", str(trace), "--device", "nonsense"]) == 2


def test_coverage_names_what_has_no_ratio(trace: Path) -> None:
    result = scaled_trace(trace, "A100")
    coverage = what_if_values(result)["coverage"]
    assert sum(coverage["time_share"].values()) == pytest.approx(1.0, abs=1e-5)
    assert coverage["time_share"]["unmodelled"] == pytest.approx(result.unscaled_share, abs=1e-6)
    assert coverage["largest_unmodelled"]["kernel"] == result.unscaled[0].name
