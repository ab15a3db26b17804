"""Schedules of loops on CPUs: times that follow physics, and what a device cannot run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.configuration import read_configuration
from silicast.kernels.execution_models.loop_times import (
    ORDERS,
    CoreFacts,
    core_facts,
    loop_features,
    scheduled_s,
    schedules_of,
)

LOOPS = {"tile_m": 32, "tile_n": 128, "tile_k": 128, "order": "mnk", "unroll": 4, "vector": 16}
GEMM = {"op": "gemm", "m": 512, "n": 512, "k": 512, "dtype": "fp32"}


def latency(device: str, **changes: Any) -> float:
    kernel = {**GEMM, "configuration": {**LOOPS, **changes}}
    result = silicast.predict(task="kernel", device=device, workload={"kernel": kernel})
    belief = result["latency_us"]
    assert result.bound["latency_us"] <= belief.p05 <= belief.estimate <= belief.p95
    assert result.why["configuration"].startswith("loops 32x128x128")
    return belief.estimate


@pytest.mark.parametrize("device", ["Xeon 8480", "EPYC 9654", "Grace"])
def test_threads_share_the_work_and_narrow_vectors_cost(device: str) -> None:
    alone = latency(device)
    assert latency(device, threads=4) == pytest.approx(alone / 4.0)
    assert latency(device, vector=1) > 2.0 * alone
    facts = core_facts(find_device(device))
    assert facts.vector >= 4.0
    assert facts.multiplies >= 1.0


CORE = CoreFacts(
    vector=8.0, multiplies=2.0, loads=2.0, clock_hz=3e9, l1_bytes=32e3, l2_bytes=512e3,
    l2_bytes_per_clock=24.0, beyond_bytes_per_clock=6.0,
)  # fmt: skip


def by_hand_s(m: int, n: int, k: int, tile: dict[str, int], order: str, unroll: int,
              vector: int) -> float:  # fmt: skip
    """The largest count of clocks, and three tenths of the others."""
    sizes = {"m": m, "n": n, "k": k}
    tile = {side: min(tile[side], sizes[side]) for side in "mnk"}
    turns = {side: math.ceil(sizes[side] / tile[side]) for side in "mnk"}
    products, lanes = m * n * k, min(vector, 8)
    multiply = products / (lanes * 2 * min(unroll / 8, 1))  # four clocks of two pipes to fill
    load = products / lanes * (1 + 1 / unroll) / 2
    strips = turns["k"] * m / unroll * n / lanes
    store = strips * unroll * 2 / 2 + strips * 6
    area = {"mk": 0, "kn": 0, "mn": 0}
    moved = 0.0
    for sides in area:
        words = tile[sides[0]] * tile[sides[1]]
        brought = math.prod(turns.values())
        if order[2] not in sides:  # it stays while the innermost loop runs
            brought //= turns[order[2]]
        moved += 4 * words * brought
    tile_b = 4 * tile["k"] * tile["n"]
    from_l2 = products / unroll * 4 * min(max(tile_b / 32e3 - 0.5, 0), 1)
    whole = 4 * (m * k + k * n + m * n)
    beyond = moved * min(max(whole / 512e3 - 0.5, 0), 1)
    parts = [multiply, load, store, (from_l2 + moved) / 24.0, beyond / 6.0]
    return (max(parts) + 0.3 * (sum(parts) - max(parts))) / 3e9


@pytest.mark.parametrize("order", ["mnk", "mkn", "nmk", "nkm", "kmn", "knm"])
@pytest.mark.parametrize(
    ("sizes", "tile", "unroll", "vector"),
    [
        ((64, 64, 64), (32, 32, 32), 4, 8),
        ((512, 512, 512), (32, 128, 128), 4, 16),
        ((100, 300, 700), (64, 64, 512), 8, 4),
        ((1000, 1000, 1000), (1000, 1000, 1000), 16, 8),
        ((30, 2000, 50), (64, 500, 64), 2, 8),
        ((300, 100, 400), (50, 90, 60), 16, 1),
    ],
)
def test_clocks_of_a_schedule_by_hand(
    sizes: tuple[int, int, int], tile: tuple[int, int, int], unroll: int, vector: int, order: str
) -> None:
    if order not in ORDERS:
        pytest.skip("no order of the model")
    one = read_configuration({
        "tile_m": tile[0], "tile_n": tile[1], "tile_k": tile[2], "order": order, "unroll": unroll,
        "vector": vector,
    })  # fmt: skip
    m, n, k = (np.array([float(size)]) for size in sizes)
    seconds, features = loop_features(m, n, k, schedules_of([one]), CORE)
    wanted = by_hand_s(*sizes, dict(zip("mnk", tile, strict=True)), order, unroll, vector)
    assert float(seconds[0]) == pytest.approx(wanted, rel=1e-12)
    assert (features >= 0.0).all()


def test_rows_are_as_one() -> None:
    one, device = read_configuration(LOOPS), find_device("Xeon 8480")
    m, n, k = (np.array([64.0, 512.0, 96.0]) for _ in "mnk")
    whole = scheduled_s(m, n, k, one, device)
    rows = [scheduled_s(m[i : i + 1], n[i : i + 1], k[i : i + 1], one, device)[0] for i in range(3)]
    assert whole.tolist() == rows


@pytest.mark.parametrize(
    ("kernel", "device", "said"),
    [
        ({**GEMM, "dtype": "bf16"}, "Xeon 8480", "modelled for gemm in fp32"),
        (GEMM, "H20", "loops ones run on vector_cpu"),
        ({**GEMM, "threads": 60}, "Xeon 8480", "4 too many"),
    ],
)
def test_what_cannot_run_is_refused(kernel: dict[str, Any], device: str, said: str) -> None:
    threads = kernel.pop("threads", 1) if "threads" in kernel else 1
    stated = {**kernel, "configuration": {**LOOPS, "threads": threads}}
    with pytest.raises(SilicastError) as raised:
        silicast.predict(task="kernel", device=device, workload={"kernel": stated})
    assert said in f"{raised.value} {raised.value.hint}"
