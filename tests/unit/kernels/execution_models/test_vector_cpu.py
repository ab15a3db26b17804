"""CPUs: padding of matrix tiles, idle cores, bandwidth, and every family through the battery."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel
from silicast.kernels.execution_models.vector_cpu import padded_ops
from silicast.kernels.registry import families, implementation_for
from silicast.learning.dispatch import times
from silicast.workload.graphs.op import Op, Variant
from tests.sampling import share

DEVICES: list[Device] = [
    device
    for name in device_index().names
    if (device := device_index().get(name)).execution_model == "vector_cpu"
]
ONE = np.ones(1)


@pytest.mark.parametrize(
    ("name", "dtype", "sides", "padded"),
    [
        ("Xeon", "bf16", (16, 16, 32), (16, 16, 32)),
        ("Xeon", "bf16", (1, 17, 33), (16, 32, 64)),  # AMX: 16 rows, 16 columns, 64 bytes deep
        ("Xeon", "int8", (16, 16, 33), (16, 16, 64)),
        ("Xeon", "fp32", (1, 17, 33), (1, 32, 33)),  # vectors pad columns only
        ("EPYC", "bf16", (1, 17, 33), (1, 32, 33)),
    ],
)
def test_padding_by_hand(
    name: str, dtype: str, sides: tuple[int, int, int], padded: tuple[int, int, int]
) -> None:
    m, n, k = (side * ONE for side in sides)
    rows, columns, depth = padded
    assert float(padded_ops(find_device(name), dtype, m, n, k)[0]) == 2 * rows * columns * depth


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_large_products_reach_a_plausible_share_of_the_peak(device: Device) -> None:
    time = times([Op.make("gemm", m=8192, n=8192, k=8192)], device)[0]
    peak = device.peak_per_s(device.matrix_pipe("bf16"), "bf16")
    assert 0.3 < 2.0 * 8192**3 / time.estimate_s / peak < 0.9


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_streams_reach_a_plausible_share_of_the_bandwidth(device: Device) -> None:
    op = Op.make("elementwise", Variant(dtype="fp32", cache="cold"), elements=1 << 30, inputs=1)
    time = times([op], device)[0]
    assert 0.4 < 8.0 * (1 << 30) / time.estimate_s / device.dram.bandwidth_bytes_per_s < 1.0


def test_matrix_tiles_beat_vectors() -> None:
    op = Op.make("gemm", m=4096, n=4096, k=4096)
    without, with_tiles = (times([op], find_device(name))[0] for name in ("Xeon 8380", "Xeon 8480"))
    assert without.estimate_s > 8.0 * with_tiles.estimate_s


def test_results_of_a_framework_that_outgrow_its_heap_pay_for_their_pages() -> None:
    device = find_device("EPYC 9654")
    sizes = [(8 << 20) - 1, 8 << 20]  # elements of 4 bytes: glibc maps 32 MiB and more anew
    current, other = (
        [
            time.estimate_s
            for time in times(
                [
                    Op.make("elementwise", Variant("fp32", library=library), elements=n, inputs=1)
                    for n in sizes
                ],
                device,
            )
        ]
        for library in ("torch", "onednn")
    )
    assert current[0] == other[0]
    pages = sizes[1] * 4 / 4096
    assert current[1] - other[1] == pytest.approx(pages * 2e-6 / 8)


def test_a_larger_working_set_is_no_quicker_a_byte() -> None:
    """Once all cores work: 256 KiB wake one."""
    for device in DEVICES:
        first = device.cores << 16
        elements = [first << step for step in range(1, 8)]
        ops = [Op.make("elementwise", Variant("fp32"), elements=n, inputs=1) for n in elements]
        rates = [t.estimate_s / n for t, n in zip(times(ops, device), elements, strict=True)]
        fixed = 8e-6 / first  # the call, and waking the cores
        assert all(b >= a - fixed for a, b in itertools.pairwise(rates)), device.name


def test_little_data_wakes_one_core() -> None:
    device = find_device("EPYC 9654")
    sizes = [1 << 14, 1 << 15]
    ops = [Op.make("elementwise", Variant("fp32", flags=(("exp", True),)), elements=n, inputs=1)
           for n in sizes]  # fmt: skip
    call = times([Op.make("elementwise", Variant("fp32"), elements=1, inputs=1)], device)[0]
    one, two = (time.estimate_s - call.estimate_s for time in times(ops, device))
    assert two == pytest.approx(2.0 * one, rel=0.02)


def test_one_thread_group_a_head_leaves_cores_idle() -> None:
    sizes = {"kv_len": 65536, "num_heads": 8, "num_kv_heads": 8, "head_dim": 128, "window": 0}
    one = Op.make("attention_decode", Variant(cache="cold"), batch=1, q_len=1, **sizes)
    eight = Op.make("attention_decode", Variant(cache="cold"), batch=8, q_len=1, **sizes)
    first, second = times([one, eight], find_device("EPYC 9654"))
    assert second.estimate_s < 8.0 * first.estimate_s


def test_a_block_of_queries_reads_only_the_keys_of_its_window() -> None:
    sizes = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    long = {"batch": 1, "q_len": 10**6, "kv_len": 10**6, **sizes}
    for causal in (True, False):
        variant = Variant(flags=(("causal", causal),))
        every, some, one = times(
            [Op.make("attention_prefill", variant, **long, window=w) for w in (0, 4096, 1)],
            find_device("EPYC 9654"),
        )
        assert one.bound_s <= one.estimate_s < 5.0 * one.bound_s
        assert some.estimate_s > 20.0 * one.estimate_s
        assert some.estimate_s < 0.02 * every.estimate_s  # pairs: 0.4 % (causal 0.8 %) of all


@pytest.mark.parametrize(("turn", "family"), list(enumerate(families("vector_cpu"))))
def test_battery(turn: int, family: str) -> None:
    model = implementation_for(family, "vector_cpu")
    assert model is not None
    assert model.execution_model == "vector_cpu"
    assert check_kernel(model, share(DEVICES[::4], turn, 6), draws=200, scalar_rows=2) >= 100


def test_every_simt_family_exists() -> None:
    assert set(families("vector_cpu")) == set(families("simt"))
