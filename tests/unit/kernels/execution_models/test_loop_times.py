"""Schedules of loops on CPUs: times that follow physics, and what a device cannot run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.configuration import read_configuration
from silicast.kernels.execution_models.loop_times import core_facts, scheduled_s

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
