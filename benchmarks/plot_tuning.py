"""The pictures of docs/explanation/tuning.md.

    SILICAST_DATA=... python benchmarks/plot_tuning.py

Tiles: a swept problem ranked by a ranker that did not see its layer, with the measured near-best
marked. Causes and gains: SGLang's rule for Qwen3-30B-A3B on H20, diagnosed, beside a tuned file.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from lab.scorecard import tuning_held_out
from lab.scorecard.suite import data_folder
from lab.scorecard.tuning_rows import sglang_rule, swept_problems
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.kernels.products.candidates import SWEEP, grid, legal
from silicast.kernels.products.tile_times import tile_constants
from silicast.learning.configuration_ranking import Ranked, candidates_on, rank_steps
from silicast.report.drawing.plot_file import check_plot, figure_class, save_plot
from silicast.report.drawing.tuning_plots import LIGHT, MARK, plain_axes, plot_causes, plot_gains
from silicast.scenario.answers.diagnose.answerer import diagnose
from silicast.tuning.plan import tune_experts

STATIC = Path(__file__).parent.parent / "docs" / "_static"
SIZES = (512, 128, 8, 2048, 768)


def main() -> None:
    recipe = recipe_for("bf16")
    problem = next(
        x for x in swept_problems(data_folder()) if x.device == "H20" and x.sizes == SIZES
    )
    board = problem.hardware
    positions = legal(SWEEP, board, recipe)
    every = grid(SWEEP)
    result = rank_steps(
        problem.product, candidates_on(SWEEP, board, recipe),
        tuple(every[position] for position in positions.tolist()), tile_constants(),
        tuning_held_out.ranker(f"layers-{problem.fold}"),
    )  # fmt: skip
    near = np.flatnonzero(np.isin(positions, problem.near)).astype(np.float64)
    title = "gate and up of 128 experts, top 8, 2048 to 768, 512 tokens, H20, layer not seen"
    plot_tiles(result, title, STATIC / "tuning_tiles.svg", near)
    kernel = {
        "op": "moe", "tokens": 512, "experts": 128, "topk": 8, "hidden": 2048, "intermediate": 768,
        "part": "w13", "configuration": dict(sglang_rule(512, 128).values),
    }  # fmt: skip
    assert problem.heuristic_s is not None
    diagnosed = diagnose(kernel, "H20", [1e6 * problem.heuristic_s])
    plot_causes(diagnosed, f"the same under SGLang's rule: {sglang_rule(512, 128).label}",
                STATIC / "tuning_causes.svg")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rule.json"
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
        rows = {}
        for tokens in (1, 8, 64, 128, 256, 1024, 4096):
            values = dict(sglang_rule(tokens, 128).values)
            keys = ("tile_m", "tile_n", "tile_k", "group_m")
            rows[str(tokens)] = dict(zip(names, (values[key] for key in keys), strict=True))
        path.write_text(json.dumps(rows))
        plan = tune_experts("qwen3-30b-a3b", "H20", "sglang", tp=[1], existing=path)
    plot_gains(plan, STATIC / "tuning_gains.svg")


def plot_tiles(ranked: Ranked, title: str, path: Path, near: F64 | None = None) -> None:
    """Predicted time of every tile's best configuration; what came near the best is marked.

    Args:
        near: places in the grid of measured near-best configurations; None = the first ten are
            marked instead.
    """
    check_plot(path)
    tiles, time = ranked.steps.tiles, 1e6 * ranked.time_s
    names = [f"{m:.0f}x{n:.0f}x{k:.0f}" for m, n, k in zip(tiles.m, tiles.n, tiles.k, strict=True)]
    best: dict[str, float] = {}
    for name, each in zip(names, time.tolist(), strict=True):
        best[name] = min(best.get(name, np.inf), each)
    order = sorted(best, key=lambda name: best[name])
    marked = {names[int(position)] for position in (ranked.order[:10] if near is None else near)}
    figure = figure_class()(figsize=(9.0, 4.2), layout="constrained")
    axes = figure.subplots()
    colours = [MARK if name in marked else LIGHT for name in order]
    axes.bar(range(len(order)), [best[name] for name in order], color=colours)
    axes.set_xticks(range(len(order)), order, rotation=90, fontsize=7)
    axes.set_ylabel("predicted us, best of its group, warps, stages")
    red_tiles = "among the first ten" if near is None else "measured within 1 % of the best"
    axes.set_title(f"{title}\nred: tiles {red_tiles}", fontsize=10)
    plain_axes(axes)
    save_plot(figure, path)


if __name__ == "__main__":
    main()
