"""Time of a prefill call against sums over its sequences, given its tiles and its traffic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.attention.attention_kernel import tensor_rate
from silicast.kernels.attention.attention_memory import prefill_traffic
from silicast.kernels.attention.attention_prefill import WAVE_EDGE, AttentionPrefill, PrefillModel
from silicast.kernels.attention.attention_schemes import padded_width, scheme_for
from silicast.kernels.attention.attention_work import live_keys
from silicast.kernels.engine_kernels import kernels_of
from silicast.kernels.physics.device_rates import cache_rate, softmax_rates
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.unit.kernels.attention.test_attention_decode import Missing

CONSTANTS = Missing({
    "task_cycles": 1500.0, "step_cycles": 200.0, "window_steps": 0.5, "merge_s": 2e-6,
    "l2_efficiency": 0.6, "serial": 0.3, "launch_cycles": 6000.0, "narrow_launch": 1.25,
    "append_launch_cycles": 1000.0, "fp8_efficiency": 0.9, "softmax_ops": 6.0, "convert_ops": 2.0,
    "exposed": 0.2, "tail": 0.5, "tail_sorted": 0.1, "split_tiles": 4.0, "masked_step": 0.25,
    "tensor_efficiency": 0.5, "tensor_exponent": 0.6, "step_64": 1.3, "step_192": 1.1,
    "step_256": 0.9, "step_512": 1.7, "fp8_step_64": 1.4, "fp8_step_192": 1.2, "fp8_step_256": 1.0,
    "dram_efficiency": 0.85, "resident_share": 0.5,
})  # fmt: skip


def prefill(
    new: tuple[int, ...], past: tuple[int, ...] = (), variant: Variant = Variant(),
    device: str = "H100", width: int = 128, window: int = 0, heads: int = 32, groups: int = 8,
) -> PrefillModel:  # fmt: skip
    whole = tuple(a + b for a, b in zip(new, past or (0,) * len(new), strict=True))
    op = Op.make(
        "attention_prefill", variant, q_len=new, kv_len=whole, num_heads=heads,
        num_kv_heads=groups, head_dim=width, window=window,
    )  # fmt: skip
    where = find_device(device)
    return PrefillModel(OpBatch.from_ops([op]), where, scheme_for(variant, where), CONSTANTS)


CASES: dict[str, dict[str, Any]] = {
    "one prompt": {"new": (4096,)},
    "prompts that differ": {"new": (300, 2000, 70)},
    "a chunk over a long past": {"new": (64,), "past": (100_000,)},
    "chunks that fill the device": {"new": (16,) * 200, "past": (20_000,) * 200},
    "a window": {"new": (8192,), "window": 1024},
    "eight bits": {"new": (2048,) * 2, "variant": Variant("fp8")},
    "a narrow cache": {"new": (512,), "past": (9000,), "variant": Variant(kv_dtype="fp8")},
    "warps' own instructions": {"new": (2048, 1000), "device": "A100-SXM-80GB"},
    "a core's two tasks": {"new": (1800,), "heads": 8, "device": "A100-SXM-80GB", "width": 64},
    "flashinfer": {
        "new": (100, 3000),
        "past": (5000, 0),
        "variant": Variant(library="flashinfer"),
        "device": "A100-SXM-80GB",
    },
    "wide heads": {"new": (1024,), "width": 256},
    "narrow heads": {"new": (1024,), "width": 64},
}


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_launch_work_and_memory(case: str) -> None:
    one = prefill(**CASES[case])
    c, device, work = CONSTANTS, one.device, one.work
    keys = live_keys(work.q, work.kv, one.window)
    a_core = float(one.tasks[0]) / device.cores
    assert float(one.share[0]) == pytest.approx(min(max(a_core, 1.0), float(one.resident[0])))
    traffic = prefill_traffic(one.batch, work, device, one.scheme, c, keys, cache_rate(device))
    step = one._step_cycles(work.spread(one.share))
    visited, furthest = one._visited()
    fixed = 1500.0 + (0.5 * step if CASES[case].get("window") else 0.0)
    every = one.fill * (visited * step + one.tiles * one.parts * fixed)
    total = float(work.total(every)[0] * one.units.reshape(-1)[0])
    longest = float(work.largest(furthest * step)[0] * one.share[0])
    longest += float(np.max(np.asarray(fixed)))
    core_s = makespan(one, total, longest) / device.clocks.boost_hz
    loaded = np.minimum(one.blocks * one.tile_kv, one.tiles * work.kv)
    loads = float(work.total(one.fill * loaded)[0] * one.units.reshape(-1)[0])
    width = CASES[case].get("width", 128)
    l2_s = (float(traffic.moved[0]) + loads * 2 * width * traffic.kv_bytes) / (
        cache_rate(device) * 0.6
    )
    memory_s = max(float(traffic.dram_s[0]), l2_s)
    launch = 6000.0 / device.clocks.boost_hz
    launch *= 1.25 if traffic.kv_bytes < 2 and one.scheme.casts else 1.0
    omitted = one.scheme.omitted * 1000.0 / device.clocks.boost_hz
    wanted = max(launch - omitted, launch / 4) + max(core_s, memory_s)
    wanted += 0.3 * min(core_s, memory_s) + float(traffic.append_s[0])
    wanted += 2e-6 * float(one.merges.reshape(-1)[0])
    assert float(one.analysis().time_s[0]) == pytest.approx(wanted, rel=1e-9)


def makespan(one: PrefillModel, total: float, longest: float) -> float:
    """Waves of equal tasks; unequal ones leave a tail of the longest."""
    waves, mean = float(one.tasks[0]) / one.device.cores, total / float(one.tasks[0])
    even = min(max(2 * mean / longest - 1, 0.0), 1.0)
    idle = math.ceil(waves) - waves
    if one.planned is not None and bool(one.planned.reshape(-1)[0]) and waves > 1:
        idle = min(idle, WAVE_EDGE * (waves - math.floor(waves)))
    tail = 0.1 if one.scheme.longest_first else 0.5
    spread = total / one.device.cores + even * idle * mean
    spread += (1 - even) * tail * longest * min(1.0, waves)
    return max(min(longest, total), spread)


@pytest.mark.parametrize(
    ("width", "dtype", "factor"),
    [
        (64, "bf16", 1.3), (95, "bf16", 1.3), (96, "bf16", 1.0), (128, "bf16", 1.0),
        (129, "bf16", 1.1), (192, "bf16", 1.1), (193, "bf16", 0.9), (256, "bf16", 0.9),
        (257, "bf16", 1.7), (64, "fp8", 1.4), (160, "fp8", 1.2),
    ],
)  # fmt: skip
def test_a_step_is_products_beside_exponentials(width: int, dtype: str, factor: float) -> None:
    one = prefill((4096,), variant=Variant(dtype), width=width)
    one.scheme = replace(one.scheme, mainloop="wgmma", encoder=False)
    rows, keys = int(one.rows.reshape(-1)[0]), int(np.asarray(one.tile_kv).reshape(-1)[0])
    rate = tensor_rate(one.device, one.pipe, one.dtype, CONSTANTS)
    rate *= 0.9 if dtype == "fp8" else 1.0
    padded = int(np.asarray(padded_width(one.scheme, one.work.spread(one.width))).reshape(-1)[0])
    products = 4 * rows * keys * padded / rate * factor
    xu, fma = softmax_rates(one.device)
    softmax = rows * keys * (1 / xu + 6.0 / fma)
    softmax += 2 * keys * width * 2.0 / fma if one.converts else 0.0
    serial, floor = products + softmax + 200.0, max(products, softmax)
    step = one._step_cycles(np.array([2.0]))
    assert float(step[0]) == pytest.approx(floor + 0.2 * (serial - floor) / 2)


@pytest.mark.parametrize(("past", "merged"), [(60_000, 1.0), (0, 0.0)])
def test_parts_of_a_planned_chunk_are_merged_once(past: int, merged: float) -> None:
    one = prefill((16,), (past,), Variant(library="flashinfer"), device="A100-SXM-80GB")
    parts = float(np.max(np.asarray(one.parts)))
    assert (parts > 2.0) == (merged == 1.0)
    assert float(one.merges.reshape(-1)[0]) == merged


@pytest.mark.parametrize(("heads", "width", "published"), [(16, 128, 350e12), (32, 64, 320e12)])
def test_flash_attention_2_reaches_a_third_of_hoppers_matrix_units(
    heads: int, width: int, published: float
) -> None:
    """35 % of the peak (2407.08608, figure 5, without a mask): its instructions are those of
    Ampere, where they reach the whole rate.
    """
    op = Op.make(
        "attention_prefill",
        Variant("bf16", "bf16", "fa2", flags=(("causal", False),)),
        batch=1,
        q_len=16384,
        kv_len=16384,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width,
    )
    seconds = AttentionPrefill().analyse(OpBatch.single(op), find_device("H100")).time_s
    assert 4 * 16384**2 * heads * width / seconds == pytest.approx(published, rel=0.12)
    shares = [scheme_for(op.variant, find_device(name)).matrix_share for name in ("H100", "A100")]
    assert shares == [0.629, 1.0]


@pytest.mark.parametrize("engine", ["torch-eager", "torch-compile"])
def test_pytorch_runs_flash_attention_2_on_hopper(engine: str) -> None:
    assert kernels_of(engine).library("attention_prefill", "hopper") == "fa2"
