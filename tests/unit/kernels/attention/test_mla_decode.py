"""Time of a latent decode call against plain sums over its sequences."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.attention.attention_memory import outside_l2
from silicast.kernels.attention.mla_decode import KEY_TILE, _LatentDecodeBatch
from silicast.kernels.attention.mla_schemes import mla_scheme
from silicast.kernels.physics.device_rates import cache_rate, data_rate
from silicast.workload.graphs.op import Op, OpBatch, Variant

C = {
    "ctas_per_core": 1.5, "split_tiles": 2.0, "most_splits": 64.0, "l2_efficiency": 0.7,
    "tail": 0.4, "task_cycles": 2500.0, "dram_efficiency": 0.85, "narrow_dram": 0.9,
    "reread_share": 0.5, "grouped_rate": 1.25, "grouped_task_cycles": 2500.0,
    "core_bytes_per_cycle": 60.0, "serial": 0.3, "merge_s": 2e-6,
    "launch_s": 6e-6, "narrow_launch": 1.25, "call_s": 1e-9, "idle_parts": 3.0,
    "tensor_efficiency": 0.6, "narrow_rate": 0.9, "softmax_ops": 5.0, "key_cycles": 20.0,
    "convert_ops": 2.0, "append_launch_s": 1e-6, "append_bytes": 2.0, "widened_bytes": 0.5,
    "l2_usable": 0.5, "l2_fade": 0.5, "independent_log_sd": 0.1,
}  # fmt: skip
RANK, CACHED = 512, 576

CASES: dict[str, tuple[tuple[int, ...], int, Variant, str]] = {
    "one cache": ((40_000,), 128, Variant(), "H200"),
    "caches that differ": ((700, 9000, 30_000), 16, Variant(), "H200"),
    "more caches than cores": ((1500,) * 300, 128, Variant(), "H200"),
    "cold": ((6000,) * 40, 32, Variant(cache="cold"), "H200"),
    "an eight-bit cache": ((6000,) * 40, 128, Variant("bf16", "fp8"), "H200"),
    "flashinfer": ((6000,) * 4, 64, Variant(library="flashinfer"), "H200"),
    "the kernel alone": ((6000,) * 4, 64, Variant(flags=(("append", False), ("project", False))),
                         "H200"),
    "another chip": ((20_000,) * 7, 128, Variant(), "B200"),
}  # fmt: skip


def call(lengths: tuple[int, ...], heads: int, variant: Variant, device: str) -> _LatentDecodeBatch:
    op = Op.make(
        "mla_decode", variant, q_len=(1,) * len(lengths), kv_len=lengths, num_heads=heads,
        kv_lora_rank=RANK, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    )  # fmt: skip
    where = find_device(device)
    return _LatentDecodeBatch(OpBatch.from_ops([op]), where, mla_scheme(variant, where), C)


def by_hand_s(one: _LatentDecodeBatch, lengths: tuple[int, ...], heads: int) -> float:
    """Of sequences that all have one new token."""
    device, scheme = one.device, one.scheme
    cores, clock, slots = device.cores, device.clocks.boost_hz, device.cores * 1.5
    tile = int(one.tile.reshape(-1)[0])
    tiles, element = math.ceil(heads / tile), 1.0 if scheme.narrow else 2.0
    keys = [n + 1 for n in lengths]
    visits, base = sum(keys) * tiles, len(keys) * tiles
    chunk = max(visits / slots, 2.0 * KEY_TILE)
    splits_on = scheme.style.splits_on
    splits = [1.0 for _ in keys]
    if base < slots and (not splits_on or device.architecture in splits_on):
        splits = [min(max(n / chunk, 1.0), 64.0) for n in keys]
    longest = max(n / part for n, part in zip(keys, splits, strict=True))
    waves = sum(splits) * tiles / slots
    whole = math.ceil(waves * (1 - 1e-9))
    rate = device.rate_per_core(one.pipe, scheme.math) * 0.6 * (0.9 if scheme.narrow else 1.0)
    fma = device.rate_per_core("fma", "fp32")
    key = 2 * tile * (CACHED + RANK) / rate + 20.0
    key += tile * (1 / (device.rate_per_core("xu", "fp32") or 16.0) + 5.0 / fma)
    if scheme.narrow and scheme.math != "fp8":
        key += CACHED * 2.0 / fma
    compute = visits * key / cores
    ragged = compute * (1 + 0.4 * (whole / max(waves, 1.0) - 1))
    rounds = max(1.0, waves + 0.4 * (whole - waves))
    core_s = (rounds * 2500.0 + max(ragged, longest * key)) / clock
    inner = cache_rate(device) * 0.7
    bandwidth = data_rate(device) * 0.85 * (0.9 if scheme.narrow else 1.0)
    moved, read = float(one.useful.moved[0]), float(one.useful.keys[0])
    outside = float(outside_l2(one.useful.moved, device, C, one.batch.variant.cache)[0])

    def passed_s(size: float, share: float) -> float:
        return size * (share / bandwidth + (1 - share) / inner)

    again = visits * CACHED * element - read
    left = min(max(len(keys) / slots - 1, 0.0), 1.0)
    dram_s = (moved + again * left * 0.5) * outside / bandwidth
    load_s = max(longest, visits / cores) * CACHED * element / (60.0 * clock)
    memory_s = max(dram_s, load_s, (moved + again) / inner)
    together = max(core_s, memory_s) + 0.3 * min(core_s, memory_s)
    parts = [part - 1 for part in splits]
    if scheme.style.fixed_parts:
        parts = [max(part, 3.0) for part in parts]
    partial = sum(parts) * heads * RANK * 8
    share = min(max((partial / (0.5 * device.l2.capacity_bytes) - 1) / 0.5, 0.0), 1.0)
    merge_s = min(max(splits) - 1, 1.0) * 2e-6 + passed_s(partial, share)
    launch_s = 6e-6 * (1.25 if scheme.narrow else 1.0)
    around_s = -1e-6
    if scheme.engine:
        beside = len(keys) * (heads * CACHED * 4 * 2.0 + CACHED * 4)
        beside += read * 0.5 if scheme.narrow else 0.0
        around_s = passed_s(beside, outside)
    return max(launch_s + together + merge_s + around_s, launch_s / 4)


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_the_sum_of_its_terms(case: str) -> None:
    lengths, heads, variant, device = CASES[case]
    one = call(lengths, heads, variant, device)
    assert not one.scheme.projects
    assert float(one.analysis().time_s[0]) == pytest.approx(
        by_hand_s(one, lengths, heads), rel=1e-9
    )


def test_a_kernel_for_whole_groups_splits_narrow_caches_in_parts_of_its_own() -> None:
    board, narrow = "RTX PRO 6000 Blackwell Server", Variant("bf16", "fp8", library="trtllm")

    def tasks(heads: int, variant: Variant, count: int = 3) -> float:
        one = call((8000,) * count, heads, variant, board)
        return float(one.analysis().demand.tasks.reshape(-1)[0])

    assert tasks(128, narrow) == 3 * 4, "four parts of each cache, all heads in a tile"
    assert tasks(64, narrow) == 3 * 1, "fewer heads: not split, and one tile of 64"
    assert tasks(128, Variant("bf16", library="trtllm")) == 3 * 2, "a wide cache is not split"
    assert tasks(128, replace(narrow, library="sglang")) != 3 * 4, "another engine's kernel"


def test_caches_up_to_a_wave_of_parts_take_as_long_as_one() -> None:
    board, narrow = "RTX PRO 6000 Blackwell Server", Variant("bf16", "fp8", library="trtllm")
    cores = find_device(board).cores

    def core_s(count: int) -> float:
        analysis = call((60_000,) * count, 128, narrow, board).analysis()
        return float((analysis.features["core_share"] * analysis.time_s).reshape(-1)[0])

    wave = cores // 4
    assert core_s(wave) == pytest.approx(core_s(1), rel=1e-9)
    assert core_s(2 * wave) == pytest.approx(2 * core_s(1), rel=0.02)
    # 2 x 128 rows x (576 + 512) operations a key and its softmax, over a quarter of the keys
    one = call((60_000,), 128, narrow, board)
    clock, fma = one.device.clocks.boost_hz, one.device.rate_per_core("fma", "fp32")
    rate = one.device.rate_per_core(one.pipe, "fp8") * 0.6 * 0.9 * 1.25
    key = 2 * 128 * (CACHED + RANK) / rate + 20.0
    key += 128 * (1 / (one.device.rate_per_core("xu", "fp32") or 16.0) + 5.0 / fma)
    assert core_s(1) == pytest.approx((2500.0 + 60_001 / 4 * key) / clock, rel=1e-9)


def test_narrow_caches_are_multiplied_as_they_are_where_the_kernel_can() -> None:
    narrow = Variant("bf16", "fp8", library="trtllm")
    math = {name: mla_scheme(narrow, find_device(name)).math for name in ("H200", "L40S", "A100")}
    math["pro"] = mla_scheme(narrow, find_device("RTX PRO 6000 Blackwell Server")).math
    assert math == {"H200": "fp8", "L40S": "bf16", "A100": "bf16", "pro": "fp8"}
