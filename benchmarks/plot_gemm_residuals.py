"""Draws predicted over measured time of held-out bf16 products by device and number of rows.

python benchmarks/plot_gemm_residuals.py [OUT.png]
"""

from __future__ import annotations

import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from lab.scorecard.rows import held_out
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.gemm import bf16_rows, fp32_rows, pipeweave_rows, vidur_rows


def main() -> None:
    data = data_folder()
    parts = bf16_rows(data) + vidur_rows(data) + pipeweave_rows(data) + fp32_rows(data)
    held = held_out(parts)
    columns = 5
    lines = -(-len(held) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    for part, axis in zip(held, axes.flat, strict=False):
        result = part.model.times(part.batch, part.hardware)
        source = part.words["source"]
        ratio = result.estimate_s / part.seconds
        below = int((part.seconds < result.bound_s).sum())
        colour = np.log2(part.batch.dims["m"])
        axis.scatter(part.seconds * 1e6, ratio, c=colour, s=3, cmap="viridis")
        axis.set(xscale="log", yscale="log", ylim=(0.3, 3.0), xlabel="measured, us")
        mean = 100 * float(np.abs(ratio - 1).mean())
        axis.set_title(f"{part.device} {part.batch.variant.dtype} {source}: {mean:.1f} %", size=9)
        axis.axhline(1.0, color="black", linewidth=0.5)
        print(f"{source:10s} {part.device:16s} {mean:5.1f} %, faster than the bound: {below}")
    figure.tight_layout()
    figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "gemm_residuals.png", dpi=70)


if __name__ == "__main__":
    main()
