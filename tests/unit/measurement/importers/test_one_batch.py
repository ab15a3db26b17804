"""Static batches of ``sglang.bench_one_batch``: sizes that rates tell, against numbers by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.measurement.records.records import RunRow
from silicast.scenario.decode import decode
from tests.unit.measurement.importers import samples as s
from tests.unit.measurement.importers.test_runs import MODEL, read

NAME = "sglang-one-batch"


def printed(batch: int, prompt: int, steps: int, prefill_s: float, step_s: float) -> list[str]:
    total = prefill_s + steps * step_s
    tokens = batch * (prompt + steps + 1)

    def timed(what: str, seconds: float, rate: float, median: str = "") -> str:
        return f"{what} {median}latency: {seconds:6.5f} s, {median}throughput: {rate:9.2f} token/s"

    return [
        timed("Prefill.", prefill_s, batch * prompt / prefill_s),
        timed(f"Decode 0. Batch size: {batch},", step_s, batch / step_s),
        timed("Decode. ", step_s, batch / step_s, "median "),
        timed("Total.", total, tokens / total),
    ]


def test_what_it_prints(tmp_path: Path) -> None:
    lines = ["Warmup ...", *printed(1, 8, 7, 0.5, 0.02), "Benchmark ..."]
    lines += printed(4, 1024, 15, 0.125, 0.008) + printed(16, 512, 255, 0.25, 0.016)
    path = s.written(tmp_path, "x", "\n".join(lines))
    reading = read(path, NAME, "h100", **MODEL, parallel__tp=2)
    rows = [row for row in reading.records if isinstance(row, RunRow)]
    for row in rows:
        decode(row.scenario)
        assert row.scenario["parallel"] == {"tp": 2}
    assert [row.scenario["workload"] for row in rows] == [
        {"batch": 4, "input_len": 1024, "output_len": 16},
        {"batch": 16, "input_len": 512, "output_len": 256},
    ]
    assert rows[0].metrics == {"prefill_ms": 125.0, "decode_step_ms": 8.0, "total_ms": 245.0}


def test_json_lines(tmp_path: Path) -> None:
    test = {
        "run_name": "default",
        "batch_size": 8,
        "input_len": 256,
        "output_len": 32,
        "prefill_latency": 0.05,
        "prefill_throughput": 40960.0,
        "median_decode_latency": 0.01,
        "total_latency": 0.36,
        "overall_throughput": 6400.0,
    }
    path = s.written(tmp_path, "x", json.dumps(test))
    (row,) = read(path, NAME, "h100", **MODEL).records
    assert isinstance(row, RunRow)
    assert row.scenario["workload"] == {"batch": 8, "input_len": 256, "output_len": 32}
    assert row.metrics == {"prefill_ms": 50.0, "decode_step_ms": 10.0, "total_ms": 360.0}
    path = s.written(tmp_path, "y", json.dumps({**test, "batch_size": 0}))
    with pytest.raises(SilicastError, match="batch_size"):
        read(path, NAME, "h100", **MODEL)


def test_the_model_has_to_be_stated(tmp_path: Path) -> None:
    path = s.written(tmp_path, "x", "\n".join(printed(1, 64, 7, 0.1, 0.01)))
    with pytest.raises(SilicastError, match=r"model: is not in the file"):
        read(path, NAME, "h100")


@pytest.mark.parametrize(
    "text", [s.BATCH_LATENCY, '{"avg_latency": 1.25, "latencies": [1.2, 1.3], "percentiles": {}}']
)
def test_the_latency_of_a_batch_under_vllm(tmp_path: Path, text: str) -> None:
    path = s.written(tmp_path, "x.json" if text[0] == "{" else "x", text)
    reading = read(path, "vllm-latency", "h100", **MODEL, workload__input_len=512)
    (row,) = reading.records
    assert isinstance(row, RunRow)
    assert row.metrics == {"total_ms": 1250.0}
    assert row.name == "batch 8, 512 in, 128 out"
    assert row.scenario["engine"] == {"name": "vllm"}
    assert row.scenario["workload"] == {"batch": 8, "input_len": 512, "output_len": 128}
    (note,) = reading.session.notes
    assert "workload.batch = 8, workload.output_len = 128" in note
    assert reading.session.protocol is not None
    assert reading.session.protocol.statistic == "mean"


def test_a_session_has_as_many_devices_as_the_degrees_that_are_stated(tmp_path: Path) -> None:
    own = s.written(tmp_path, "x", "\n".join(printed(1, 64, 7, 0.1, 0.01)))
    degrees = {"parallel__tp": 2, "parallel__pp": 2}
    assert read(own, NAME, "h100", **MODEL).session.devices == 1
    assert read(own, NAME, "h100", **MODEL, **degrees).session.devices == 4
    of_vllm = s.written(tmp_path, "y", s.BATCH_LATENCY)
    assert read(of_vllm, "vllm-latency", "h100", **MODEL, **degrees).session.devices == 4


def test_a_latency_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = s.written(tmp_path, "x.json", '{"avg_latency": "fast", "latencies": []}')
    with pytest.raises(SilicastError) as caught:
        read(path, "vllm-latency", "h100", **MODEL)
    assert caught.value.field == "avg_latency"
