"""Benchmarks of row kernels by provider: which rows are read, and as what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.scorecard.suites.liger import TABLE, memory_rows, timed_rows
from silicast.kernels.rows.chain_model import BACKWARD, BOTH


def record(name: str, size: int, **changes: Any) -> dict[str, Any]:
    table = {
        "kernel_name": name, "kernel_provider": "liger", "kernel_operation_mode": "forward",
        "metric_name": "speed", "x_name": "H", "x_value": str(size), "value_p50": 0.25,
        "extra_benchmark_config_str": json.dumps({"M": 2048, "dtype": "torch.bfloat16"}),
        "device": "NVIDIA H100 80GB HBM3", "latest": True,
    }  # fmt: skip
    return {**table, **changes}


def written(folder: Path, *records: dict[str, Any]) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / TABLE).parent.mkdir()
    pq.write_table(pa.Table.from_pylist(list(records)), folder / TABLE)
    return folder


def test_a_direction_is_a_flag_and_every_second_size_is_held_out(tmp_path: Path) -> None:
    modes = ("forward", "backward", "full")
    rows = [record("rms_norm", size, kernel_operation_mode=mode)
            for mode in modes for size in (1024, 2048, 4096)]  # fmt: skip
    result = timed_rows(written(tmp_path, *rows))
    assert sorted(result) == ["backward_us", "forward_us", "full_us"]
    for metric, flags in (("forward_us", set()), ("backward_us", {BACKWARD}), ("full_us", {BOTH})):
        (part,) = result[metric]
        assert part.batch.family == "rmsnorm"
        assert {name for name, _ in part.batch.variant.flags} == flags
        assert part.batch.dims["hidden"].tolist() == [1024, 2048, 4096]
        assert part.held_out.tolist() == [True, False, True]
        assert part.seconds.tolist() == [0.25e-3] * 3
        assert (part.batch.variant.launch, part.batch.variant.cache) == ("stream", "cold")


def test_rows_that_repeat_both_passes_and_older_ones_are_left_out(tmp_path: Path) -> None:
    config = json.dumps({"S": 2048, "B": 4})
    again = {"x_name": "ffn_local", "extra_benchmark_config_str": config}
    result = timed_rows(
        written(
            tmp_path,
            record("megatron_swiglu", 1024, **again),
            record("megatron_swiglu", 1024, **again, kernel_operation_mode="backward"),
            record("rms_norm", 1024, latest=False),
            record("fused_moe", 1024),
            record("rms_norm", 1024, kernel_provider="megatron"),
        )
    )
    ((part,),) = result.values()
    assert part.batch.family == "silu_mul"
    assert part.batch.dims["width"].tolist() == [2048]


def test_a_residual_is_part_of_the_call(tmp_path: Path) -> None:
    row = record("fused_add_rms_norm", 1024, kernel_provider="liger_fused_add_rms_norm")
    ((part,),) = timed_rows(written(tmp_path, row)).values()
    assert part.batch.dims["residual"].tolist() == [1]
    assert part.batch.variant.library == "liger"


def test_peaks_are_mebibytes_and_hold_what_other_providers_hold(tmp_path: Path) -> None:
    config = json.dumps({"H": 4096, "V": 32768, "dtype": "torch.bfloat16"})
    row = record(
        "fused_linear_cross_entropy", 4096, metric_name="memory", x_name="BT", value_p50=2.0,
        extra_benchmark_config_str=config, kernel_operation_mode="full",
    )  # fmt: skip
    softmax = record("softmax", 1024, metric_name="memory", x_name="N")
    (part,) = memory_rows(written(tmp_path, row, softmax))
    assert part.seconds.tolist() == [2.0 * 2**20]
    assert part.values["beside_bytes"].tolist() == [4096 * 32768 * 2]
