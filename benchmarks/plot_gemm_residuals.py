"""Draws predicted over measured time of held-out bf16 products by device and number of rows.

python benchmarks/plot_gemm_residuals.py [OUT.png]
"""

from __future__ import annotations

import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from silicast.hardware.catalog import find_device
from silicast.kernels.gemm import Gemm
from silicast.validation.gemm_rows import bf16_rows, fp32_rows, pipeweave_rows, vidur_rows
from silicast.validation.suite import data_folder
from silicast.workload.op import OpBatch


def main() -> None:
    data = data_folder()
    parts = bf16_rows(data) + vidur_rows(data) + pipeweave_rows(data) + fp32_rows(data)
    held = [part.take(part.held_out) for part in parts if part.held_out.any()]
    columns = 5
    lines = -(-len(held) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    for part, axis in zip(held, axes.flat, strict=False):
        found = Gemm().times(OpBatch("gemm", part.variant, part.dims), find_device(part.device))
        ratio = found.estimate_s / part.seconds
        below = int((part.seconds < found.bound_s).sum())
        axis.scatter(part.seconds * 1e6, ratio, c=np.log2(part.m), s=3, cmap="viridis")
        axis.set(xscale="log", yscale="log", ylim=(0.3, 3.0), xlabel="measured, us")
        mean = 100 * float(np.abs(ratio - 1).mean())
        axis.set_title(f"{part.device} {part.variant.dtype} {part.source}: {mean:.1f} %", size=9)
        axis.axhline(1.0, color="black", linewidth=0.5)
        print(f"{part.source:10s} {part.device:16s} {mean:5.1f} %, faster than the bound: {below}")
    figure.tight_layout()
    figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "gemm_residuals.png", dpi=70)


if __name__ == "__main__":
    main()
