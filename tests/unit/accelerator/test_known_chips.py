"""Chips that are in the catalog as devices and as designs: both say the same of products."""

from __future__ import annotations

import numpy as np

from silicast.hardware.catalog import find_device
from silicast.learning.dispatch import times
from silicast.workload.graphs.op import Op, Variant

LLAMA = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
"""Rows and columns of the weights of Llama-3.1-8B."""


def test_tpu_v4_as_a_loop_nest_takes_the_catalogs_times() -> None:
    """Products of a model at any number of tokens; of the same losses, counted by mappings."""
    ops = [
        Op.make("gemm", Variant("bf16"), m=m, n=n, k=k, batch=1)
        for m in (1, 100, 2048) for n, k in LLAMA
    ]  # fmt: skip
    device, nest = find_device("TPU v4"), find_device("tpu-v4-nest")
    ratios = np.array(
        [y.estimate_s / x.estimate_s
         for x, y in zip(times(ops, device), times(ops, nest), strict=True)]
    )  # fmt: skip
    assert np.abs(ratios - 1.0).max() <= 0.05
    assert np.abs(ratios - 1.0).mean() <= 0.02
