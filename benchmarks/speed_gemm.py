"""Prints the cost of one matrix product alone and of each of 100,000 in a batch.

OPENBLAS_NUM_THREADS=1 python benchmarks/speed_gemm.py
"""

from __future__ import annotations

import time

import numpy as np

from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import implementation_for
from silicast.workload.op import Op, OpBatch, Variant


def best_of(runs: int, repeats: int, call: object) -> float:
    """Seconds of one call: the best of some runs."""
    assert callable(call)
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        found.append((time.perf_counter() - start) / repeats)
    return min(found)


def main() -> None:
    model = implementation_for("gemm", "simt")
    assert model is not None
    random = np.random.default_rng(0)
    for name in ("H100-SXM-80GB", "L40S", "B200-SXM-180GB"):
        device = find_device(name)
        one = OpBatch.of([Op.make("gemm", m=64, n=4096, k=4096)])
        many = OpBatch("gemm", Variant(), {x: random.integers(1, 8193, 100_000) for x in "mnk"})
        alone = best_of(5, 200, lambda one=one, device=device: model.times(one, device))
        batch = best_of(3, 1, lambda many=many, device=device: model.times(many, device))
        print(
            f"{name:16s} one kernel {alone * 1e6:6.1f} us   in 100,000 {batch * 10:6.3f} us a row"
        )


if __name__ == "__main__":
    main()
