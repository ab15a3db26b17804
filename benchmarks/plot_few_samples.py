"""The picture of docs/explanation/edge.md: how well networks are ranked by how many samples.

python -m benchmarks.plot_few_samples      draws benchmarks/results/few_samples.json
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.few_samples import RESULT, TARGETS
from silicast.report.drawing.plot_file import figure_class, save_plot

PICTURE = Path(__file__).parent.parent / "docs" / "_static" / "few_samples.svg"
MEAN, FLOOR = "#c2410c", "#3b6fb6"


def main() -> None:
    results = json.loads(RESULT.read_text())
    figure = figure_class()(figsize=(7.6, 3.2), layout="constrained")
    rank, error = figure.subplots(1, 2)
    for space, style in (("nasbench201", "-"), ("fbnet", "--")):
        figures = results[space]
        points = {int(count): row for count, row in figures["mean_by_samples"].items()}
        points[10] = figures["ten_samples"]["mean"]
        counts = sorted(points)
        for axes, name in ((rank, "spearman"), (error, "median_error_pct")):
            values = [points[each][name] for each in counts]
            axes.plot(counts, values, style, marker="o", ms=3, color=MEAN, label=space)
            own = figures["no_sample"]["mean"][f"floor_{name}"]
            axes.axhline(own, ls=style, lw=0.8, color=FLOOR, label=f"{space}, own whole table")
    rank.set_ylabel("Spearman's rank correlation")
    error.set_ylabel("median error, %")
    error.set_yscale("log")
    for axes in (rank, error):
        axes.set_xscale("log")
        axes.set_xlabel("samples of the device")
    rank.legend(fontsize=7, loc="lower right")
    figure.suptitle(f"devices left out: {', '.join(TARGETS)}", fontsize=9)
    save_plot(figure, PICTURE)


if __name__ == "__main__":
    main()
