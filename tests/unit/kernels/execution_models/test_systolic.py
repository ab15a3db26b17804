"""Systolic devices: closed forms of array cycles, and every family through the battery."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.device import Device, MatrixArray
from silicast.kernels.check import check_kernel
from silicast.kernels.execution_models.systolic import (
    SystolicAttention,
    array_cycles,
    issued_by_arrays,
    systolic_rates,
)
from silicast.kernels.registry import families, implementation_for
from silicast.learning.dispatch import times
from silicast.workload.graphs.op import Op, Variant
from tests.sampling import share

DEVICES: list[Device] = [
    device
    for name in device_index().names
    if (device := device_index().get(name)).execution_model == "systolic"
]
ONE = np.ones(1)


def cycles(rows: float, columns: float, depth: float, arrays: float = 1.0) -> float:
    result = array_cycles(
        MatrixArray(128, 128), arrays, rows * ONE, columns * ONE, depth * ONE, ONE, 1.0
    )
    return float(result[0])


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "arrays", "expected"),
    [
        (512, 128, 128, 1, 512),  # one tile, the stream is as long as its rows
        (512, 256, 256, 1, 4 * 512),  # four tiles one after another
        (512, 256, 256, 4, 512),  # four tiles at once
        (512, 129, 128, 1, 2 * 512),  # one column too many is a tile more
        (1, 128, 128, 1, 128),  # a single row waits for the next weights
        (1024, 128, 128, 4, 256),  # fewer tiles than arrays: the stream is cut
        (1024, 640, 128, 4, 2 * 1024),  # five tiles on four arrays
    ],
)
def test_cycles_by_hand(
    rows: float, columns: float, depth: float, arrays: float, expected: float
) -> None:
    assert cycles(rows, columns, depth, arrays) == expected


def test_the_better_operand_stays_put() -> None:
    device = find_device("TPU v5e")
    tall = issued_by_arrays(device, ONE, 4096 * ONE, 4096 * ONE, ONE, 1.0)
    wide = issued_by_arrays(device, 4096 * ONE, ONE, 4096 * ONE, ONE, 1.0)
    assert tall == wide
    # 4096 rows stream past one padded column: 32 tiles on four arrays, 32768 operations a row step
    assert float(tall[0]) == 8 * 4096 * 32768 * 4


def test_a_full_array_issues_the_useful_operations() -> None:
    device = find_device("TPU v4")
    m, n, k = 8192 * ONE, 8192 * ONE, 8192 * ONE
    assert float(issued_by_arrays(device, m, n, k, ONE, 1.0)[0]) == 2.0 * 8192**3


def test_narrow_heads_waste_half_of_a_wide_array() -> None:
    model, ratio = implementation_for("attention_prefill", "systolic"), {}
    assert isinstance(model, SystolicAttention)
    for name in ("TPU v5e", "TPU v6e"):
        device = find_device(name)
        narrow, wide = (
            model.issued(device, "bf16", 4096 * ONE, 4096 * ONE, width * ONE)
            for width in (128, 256)
        )
        ratio[name] = float(wide[0] / narrow[0])
    # 128 fills an array of 128; an array of 256 is half empty with it
    assert ratio == {"TPU v5e": 2.0, "TPU v6e": 1.0}


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_large_products_reach_a_plausible_share_of_the_peak(device: Device) -> None:
    time = times([Op.make("gemm", m=8192, n=8192, k=8192)], device)[0]
    rate = 2.0 * 8192**3 / time.estimate_s
    assert 0.3 < rate / device.peak_per_s("tensor", "bf16") < 0.9


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_decode_products_are_bound_by_memory(device: Device) -> None:
    op = Op.make("gemm", Variant(cache="cold"), m=1, n=28672, k=8192)
    time = times([op], device)[0]
    rate = 2.0 * 28672 * 8192 / time.estimate_s
    assert 0.5 < rate / device.dram.bandwidth_bytes_per_s < 1.0


def test_a_format_without_a_rate_is_refused() -> None:
    from silicast.core.errors import SilicastError

    with pytest.raises(SilicastError, match="no fp8"):
        systolic_rates(find_device("TPU v4"), "fp8")


@pytest.mark.parametrize(("turn", "family"), list(enumerate(families("systolic"))))
def test_battery(turn: int, family: str) -> None:
    model = implementation_for(family, "systolic")
    assert model is not None
    assert model.execution_model == "systolic"
    assert check_kernel(model, share(DEVICES[::3], turn), draws=200, scalar_rows=2) >= 100


def test_every_simt_family_exists() -> None:
    assert set(families("systolic")) == set(families("simt"))


def test_weights_come_from_memory_in_every_call() -> None:
    """Software fills the on-chip memory: 33 MB of weights would fit into the 128 MiB of a v6e."""
    device = find_device("TPU v6e")
    for cache in ("", "warm"):
        op = Op.make("gemm", Variant(cache=cache), m=8, n=4096, k=4096)
        weights_s = 2 * 4096 * 4096 / device.dram.bandwidth_bytes_per_s
        assert times([op], device)[0].estimate_s > weights_s
    host = find_device("EPYC 9654")  # a cache keeps them: 384 MiB of L3
    warm = Op.make("gemm", Variant(cache="warm"), m=1, n=4096, k=4096)
    assert times([warm], host)[0].estimate_s < 2 * 4096 * 4096 / host.dram.bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("dtype", "said"),
    [("fp8", "no fp8 units"), ("mxfp8", "no fp8 units"), ("int4_wo", "widens int4 weights"),
     ("int8_wo", "widens int8 weights")],
)  # fmt: skip
def test_a_format_without_a_unit_is_said_and_widens(dtype: str, said: str) -> None:
    device = find_device("TPU v6e")
    for family, sizes in (
        ("gemm", {"m": 4096, "n": 4096, "k": 4096}),
        ("moe", {"tokens": 256, "hidden": 2048, "intermediate": 768, "experts": 64, "topk": 8}),
    ):
        wide, narrow = (
            times([Op.make(family, Variant(dtype=name), **sizes)], device)[0]
            for name in ("bf16", dtype)
        )
        assert any(said in text and "computed in bf16" in text for text in narrow.warnings)
        assert not any("computed in" in text for text in wide.warnings)
        assert (wide.domain, narrow.domain) == ("in", "near")
        assert narrow.p95_s / narrow.estimate_s > 1.1 * wide.p95_s / wide.estimate_s
