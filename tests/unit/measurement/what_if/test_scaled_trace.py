"""A trace on another device: by hand where both devices are one, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.measurement.what_if.scaled_trace import scaled_trace
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to
from tests.unit.measurement.importers import samples as s

IDLE_US = 149.0
"""Of the sample, first kernel to last: 5 + 13 + 27.75 + 51 + 24.5 + 5.5 + 3.5 + 10 + 8.75."""


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
    assert result.wall_us[0] == pytest.approx(result.measured_us + IDLE_US)


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


def test_means_of_launches_are_refused(tmp_path: Path) -> None:
    path = s.written(tmp_path, "sum.csv", s.NSYS_SUM)
    with pytest.raises(SilicastError, match=r"means of launches|no kernel of it") as refused:
        scaled_trace(path, "A100", "H100")
    assert refused.value.hint


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
