"""How many designs each method of search needs: a space of 20,000, enumerated, then searched.

    python -m benchmarks.design_search [--table FILE] [--methods random evolutionary bayesian]

``FILE`` takes (or holds already) the enumeration, as `silicast design search --method exhaustive`
writes it; without it the space is enumerated anew, which takes some minutes. Every method then
searches the space 20 times by 5 % of the designs, with outcomes looked up in the enumeration.
Written are benchmarks/results/design_search.json and .png: the share of the enumerated hypervolume
after so many designs, with the worst of all designs as the corner; in the metrics' units, and by
logarithm.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.exploration.design_evaluation import problem_of
from silicast.exploration.history import DesignOutcome, History
from silicast.exploration.pareto import hypervolume
from silicast.exploration.problem import Evaluation, SearchProblem
from silicast.exploration.search import search
from silicast.exploration.space_file import read_space
from silicast.report.drawing.plot_file import figure_class

HERE = Path(__file__).parent
SPACE = HERE / "spaces" / "systolic.toml"
RESULT = HERE / "results" / "design_search.json"
METHODS = ("random", "evolutionary", "bayesian")
SEEDS, SHARE, TARGET = 20, 0.05, 0.99
MARKS = 40
LOOKED_UP_S = 20.0
"""An enumeration that takes longer was not read from a file."""


@final
class LookedUp(Evaluation):
    """Outcomes of an enumeration."""

    def __init__(self, known: History) -> None:
        self._space = known.space
        codes = (int(code) for code in known.codes)
        self._known: dict[int, DesignOutcome] = dict(zip(codes, known.outcomes, strict=True))

    def outcome(self, design: I64) -> DesignOutcome:
        return self._known[int(self._space.encode(design[None])[0])]


def enumerated(table: Path | None) -> tuple[SearchProblem, History, float]:
    problem = problem_of(read_space(SPACE))
    start = time.process_time()
    state = search(problem, "exhaustive", 10**9, file=table, resume=True)
    return problem, state.history, time.process_time() - start


def shares(history: History, indices: list[int], corner: F64, whole: float, *, log: bool) -> F64:
    """Share of the enumerated hypervolume after so many designs."""
    values = np.log(history.values) if log else history.values
    rows = np.cumsum(history.feasible)
    return np.array([hypervolume(values[: rows[n - 1]], corner) / whole for n in indices])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", type=Path)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    given = parser.parse_args()
    problem, known, seconds = enumerated(given.table)
    budget = int(SHARE * len(known))
    positions = sorted({*np.linspace(16, budget, MARKS).astype(int).tolist(), budget})
    result: dict[str, Any] = {
        "space": SPACE.name, "identity": problem.identity, "designs": len(known),
        "infeasible": known.infeasible, "on_the_front": len(known.front),
        "objectives": [o.metric for o in known.objectives],
        "seeds": SEEDS, "evaluations": budget, "places": positions, "methods": {},
    }  # fmt: skip
    if RESULT.exists():
        before = json.loads(RESULT.read_text())
        if before["identity"] == problem.identity:
            result["methods"] = before["methods"]
    if seconds > LOOKED_UP_S:
        result["enumeration_cpu_s"] = round(seconds, 1)
    table = SearchProblem(problem.space, problem.objectives, LookedUp(known), problem.identity)
    for method in given.methods:
        result["methods"][method] = searched(table, known, method, budget, positions)
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    draw(result)


def searched(
    table: SearchProblem, known: History, method: str, budget: int, indices: list[int]
) -> dict[str, Any]:
    """What one method reached, by the seeds."""
    values = {"plain": known.values, "log": np.log(known.values)}
    corners = {scale: value.max(axis=0) for scale, value in values.items()}
    whole = {scale: hypervolume(value, corners[scale]) for scale, value in values.items()}
    curves: dict[str, list[F64]] = {scale: [] for scale in values}
    spent = 0.0
    for seed in range(SEEDS):
        start = time.process_time()
        value = search(table, method, budget, seed=seed).history
        spent += time.process_time() - start
        for scale in values:
            curves[scale].append(
                shares(value, indices, corners[scale], whole[scale], log=scale == "log")
            )
        print(method, seed, *(f"{curves[scale][-1][-1]:.4f}" for scale in values), flush=True)
    return {"cpu_s_a_search": round(spent / SEEDS, 2)} | {
        scale: summary(np.array(each), indices) for scale, each in curves.items()
    }


def summary(curves: F64, indices: list[int]) -> dict[str, Any]:
    reached = [
        next((n for n, share in zip(indices, curve, strict=True) if share >= TARGET), None)
        for curve in curves
    ]
    known = sorted(np.inf if n is None else n for n in reached)
    middle = float(np.median(known))
    return {
        "median_share": np.round(np.median(curves, axis=0), 5).tolist(),
        "p10_share": np.round(np.quantile(curves, 0.1, axis=0), 5).tolist(),
        "least_share_at_the_end": round(float(curves[:, -1].min()), 5),
        "median_designs_to_99_percent": None if np.isinf(middle) else middle,
        "seeds_that_reach_99_percent": sum(n is not None for n in reached),
    }


def draw(result: dict[str, Any]) -> None:
    figure = figure_class()(figsize=(9.2, 3.8), layout="constrained")
    colours = {"random": "#94a3b8", "evolutionary": "#0f766e", "bayesian": "#c2410c"}
    titles = {"plain": "hypervolume in the metrics' units", "log": "hypervolume of logarithms"}
    for number, (scale, title) in enumerate(titles.items()):
        axes = figure.add_subplot(1, 2, number + 1)
        for method in result["methods"]:
            colour = colours[method]
            item = result["methods"][method][scale]
            axes.plot(result["places"], item["median_share"], color=colour, label=method)
            axes.fill_between(
                result["places"], item["p10_share"], item["median_share"], color=colour,
                alpha=0.15, linewidth=0,
            )  # fmt: skip
        axes.axhline(TARGET, color="#111827", linewidth=0.8, linestyle=":")
        low = min(item[scale]["median_share"][0] for item in result["methods"].values())
        axes.set_ylim(max(0.0, low - 0.02), 1.005)
        axes.set_xlabel("designs tried")
        axes.set_ylabel("share of the enumerated hypervolume")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#e5e7eb", linewidth=0.6)
        if number == 0:
            axes.legend(frameon=False, fontsize=9, loc="lower right")
    figure.suptitle(
        f"{result['designs']:,} designs, {result['seeds']} seeds: median, and down to the tenth"
        " percentile", fontsize=10,
    )  # fmt: skip
    figure.savefig(RESULT.with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main()
