"""Time of a decode call against plain sums over its sequences, given its tasks and its traffic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_decode import AttentionDecode, _DecodeBatch
from silicast.kernels.attention.attention_kernel import tensor_rate
from silicast.kernels.attention.attention_schemes import scheme_for
from silicast.kernels.physics.device_rates import cache_rate, softmax_rates
from silicast.workload.graphs.op import Op, OpBatch, Variant

CONSTANTS = {
    "ctas_per_core": 3.0, "plan_ctas": 2.0, "split_tiles": 4.0, "task_cycles": 900.0,
    "task_width_cycles": 300.0, "scalar_task_cycles": 2100.0, "narrow_task": 1.2, "tail": 0.4,
    "core_bytes_per_cycle": 50.0, "l2_efficiency": 0.6, "serial": 0.3, "merge_s": 2e-6,
    "launch_cycles": 6000.0, "scalar_launch": 1.5, "narrow_launch": 1.25,
    "append_launch_cycles": 1000.0, "irregular_launch_s": 1e-6, "softmax_ops": 6.0,
    "convert_ops": 2.0, "scalar_ops": 1.3, "scalar_convert_ops": 0.7, "tensor_efficiency": 0.5,
    "tensor_exponent": 0.6, "independent_log_sd": 0.1, "dram_efficiency": 0.85,
    "resident_share": 0.5, "append_us": 1.0,
}  # fmt: skip


class Missing(dict[str, float]):
    """Constants of other terms, which the test takes as they come."""

    def __missing__(self, name: str) -> float:
        return 0.5


def decode(
    lengths: tuple[int, ...],
    heads: int = 32,
    groups: int = 8,
    width: int = 128,
    variant: Variant = Variant(),
    device: Device = find_device("H100"),
    window: int = 0,
) -> _DecodeBatch:
    op = Op.make(
        "attention_decode", variant, q_len=(1,) * len(lengths), kv_len=lengths, num_heads=heads,
        num_kv_heads=groups, head_dim=width, window=window,
    )  # fmt: skip
    return _DecodeBatch(
        OpBatch.from_ops([op]), device, scheme_for(variant, device), Missing(CONSTANTS)
    )


def by_hand_s(one: _DecodeBatch, lengths: tuple[int, ...], heads: int, groups: int, width: int,
              window: int = 0) -> float:  # fmt: skip
    """Of sequences whose tasks and bytes are given: caches are cut for two tasks a core, parts of
    256 keys or more, where that is quicker than whole ones.
    """
    c, device, traffic = CONSTANTS, one.device, one.traffic
    cores, clock = device.cores, device.clocks.boost_hz
    tasking = one.tasking
    entries = (tasking.rows, tasking.shared, tasking.most_splits)
    rows, shared, most = (int(each.reshape(-1)[0]) for each in entries)
    scalar = bool(tasking.scalar.reshape(-1)[0])
    narrow = traffic.kv_bytes < 2.0
    keys = [n + 1 for n in lengths]  # and the new token
    if window:
        keys = [min(n, window) for n in keys]
    reread = heads / groups / shared
    tokens = sum(keys) * reread * groups
    planned = cores * 2.0
    chunk = max(tokens / planned, 4.0 * 64)
    splits = [1.0] * len(keys)
    if len(keys) * reread * groups < planned:
        splits = [min(max(n / chunk, 1.0), most) for n in keys]
    fixed = 2100.0 if scalar else 900.0 + 300.0 * width / 128
    fixed *= 1.2 if narrow else 1.0
    xu, fma = softmax_rates(device)
    if scalar:
        token = 4 * width * (1.3 + (0.7 if narrow else 0.0)) / fma
    else:
        token = 4 * rows * width / tensor_rate(device, one.pipe, one.dtype, c)
        token += rows * (1 / xu + 6.0 / fma) + (2 * width * 2.0 / fma if narrow else 0.0)
    token_bytes = 2 * width * traffic.kv_bytes
    l2 = cache_rate(device) * 0.6
    l2_s = float(traffic.moved[0] + tokens * token_bytes - traffic.cached[0]) / l2

    def cut_s(parts: list[float]) -> float:
        longest = max(n / s for n, s in zip(keys, parts, strict=True))
        waves = sum(parts) * reread * groups / (cores * 3.0)
        rounds = max(1.0, waves + 0.4 * (math.ceil(waves) - waves))
        core_s = (rounds * fixed + max(tokens * token / cores, longest * token)) / clock
        load_s = max(longest, tokens / cores) * token_bytes / (50.0 * clock)
        memory_s = max(float(traffic.dram_s[0]), l2_s, load_s)
        together = max(core_s, memory_s) + 0.3 * min(core_s, memory_s)
        merge_s = 2e-6 + sum(parts) * heads * width * 8 / l2 if max(parts) > 1 else 0.0
        return together + merge_s

    launch = 6000.0 / clock
    more = 1.5 if scalar else 1.25 if narrow and one.scheme.casts else 1.0
    omitted = one.scheme.omitted * 1000.0 / clock
    launch = max(launch * more - omitted, 0.25 * launch * more)
    launch += 1e-6 if width & (width - 1) else 0.0
    return launch + min(cut_s(splits), cut_s([1.0] * len(keys))) + float(traffic.append_s[0])


CASES: dict[str, tuple[tuple[int, ...], int, int, int, Variant, str, int]] = {
    "one long cache": ((60_000,), 32, 8, 128, Variant(), "H100", 0),
    "sixteen caches": ((3000,) * 16, 32, 8, 128, Variant(), "H100", 0),
    "many caches": ((900, 1500) * 64, 32, 8, 128, Variant(), "H100", 0),
    "short caches": ((70, 300), 16, 16, 64, Variant(), "A100-SXM-80GB", 0),
    "eight bits": ((5000,) * 8, 64, 8, 128, Variant("fp8"), "H100", 0),
    "flashinfer": ((5000, 20_000), 32, 8, 128, Variant(library="flashinfer"), "H100", 0),
    "tensorrt": ((9000,), 32, 32, 128, Variant(library="trtllm"), "H100", 0),
    "tensorrt, grouped": ((9000,) * 40, 32, 4, 128, Variant(library="trtllm"), "H100", 0),
    "an odd width": ((4000,) * 4, 24, 8, 96, Variant(), "L40S", 0),
    "a window": ((4000,) * 40, 32, 8, 128, Variant(), "H100", 1024),
}


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_the_sum_of_its_terms(case: str) -> None:
    lengths, heads, groups, width, variant, device, window = CASES[case]
    one = decode(lengths, heads, groups, width, variant, find_device(device), window)
    assert float(one.analysis().time_s[0]) == pytest.approx(
        by_hand_s(one, lengths, heads, groups, width, window), rel=1e-9
    )


@pytest.mark.parametrize("board", ["MI300X", "H100", "L40S", "RTX PRO 6000 S"])
@pytest.mark.parametrize(("heads", "groups"), [(8, 1), (32, 8), (64, 4)])
def test_one_more_sequence_is_never_quicker(board: str, heads: int, groups: int) -> None:
    """Plans of whole parts made 60 sequences 10 % quicker than 56 on MI300X."""
    sizes = np.arange(1, 400)
    dims = {"q_len": 1, "kv_len": 2047, "num_heads": heads, "num_kv_heads": groups, "head_dim": 128}
    columns = {name: np.full(len(sizes), size) for name, size in dims.items()}
    batch = OpBatch("attention_decode", Variant(), {**columns, "batch": sizes})
    seconds = AttentionDecode().times(batch, find_device(board)).estimate_s
    assert (seconds[1:] / seconds[:-1]).min() >= 0.995


def test_a_kernel_of_one_head_a_block_reads_a_group_s_keys_again_for_each_head() -> None:
    """DRAM gives them once, the cache on chip as often as the group has heads; of one head a group
    both kernels read the same. Its constants are those of TensorRT-LLM's kernel of one head.
    """
    paged, shared = Variant(library="vllm_paged"), Variant(library="flashinfer")
    assert scheme_for(paged, find_device("H100")).caller == "trtllm"
    for heads, groups in ((32, 4), (32, 32)):
        one = decode((512,) * 64, heads, groups, variant=paged)
        together = decode((512,) * 64, heads, groups, variant=shared)
        read = one.l2_s * cache_rate(one.device) * CONSTANTS["l2_efficiency"]
        keys = 64 * 513 * heads * 128 * 2 * 2.0  # the new token sees itself
        new = float(one.traffic.moved[0] - one.traffic.cached[0])
        assert float(read[0]) == pytest.approx(keys + new, rel=1e-9)
        assert one.tasks[0] == pytest.approx(64 * heads * one.splits.max())
        assert float(one.traffic.dram_s[0]) == float(together.traffic.dram_s[0])
        assert np.all(one.tasking.scalar)
