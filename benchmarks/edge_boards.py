"""Whole networks on NPUs: boards and networks that were left out of the fit.

    python -m benchmarks.edge_boards           writes benchmarks/results/edge_boards.json

``edge/qualcomm_ai_hub.csv.gz``, rows that ran on the NPU. A board is left out with the boards that
have the same chip (QCS8275 and SA7255P): once without a sample, once with ten networks of it, the
other networks scored, ten draws. Networks are left out in eight parts, all boards known: what is
known of them then is their multiplications, parameters and kind (catalog/edge/networks.csv).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.few_samples import mean
from lab.fit_edge_boards import Row, latencies_of, rows_of
from lab.scorecard.figures import rank_correlation
from lab.scorecard.suite import data_folder
from silicast.core.calibrated import Blended
from silicast.core.files import write_atomically
from silicast.learning.board_networks import (
    NpuLatencies,
    NpuLatency,
    board_named,
    fit_board,
    latency_on,
)

RESULT = Path(__file__).with_name("results") / "edge_boards.json"
TWINS = {"SA7255P ADP": "QCS8275 (Proxy)", "QCS8275 (Proxy)": "SA7255P ADP"}
DRAWS, SAMPLES, PARTS = 10, 10, 8


def score(predicted: Sequence[NpuLatency], rows: Sequence[Row], log_sd: float = 0.0) -> Any:
    """Figures of predictions."""
    ms, truth = np.array([each.ms for each in predicted]), np.array([row.ms for row in rows])
    errors, logs = np.abs(ms / truth - 1.0), np.abs(np.log(truth / ms))
    widths = np.array([log_sd or each.log_sd for each in predicted])
    return {
        "spearman": rank_correlation(ms, truth),
        "median_error_pct": 100 * float(np.median(errors)),
        "signed_median_pct": 100 * float(np.median(ms / truth - 1.0)),
        "within_10_pct": 100 * float(np.mean(errors < 0.1)),
        "in_interval_pct": 100 * float(np.mean(logs < 1.645 * widths)),
    }


def predict(
    latencies: NpuLatencies, rows: Sequence[Row], blend: Blended | None = None
) -> list[NpuLatency]:
    """Latencies of rows."""
    return [
        latency_on(board_named(r.board), r.network, r.precision, r.runtime, latencies, blend)
        for r in rows
    ]


def sampled(latencies: NpuLatencies, rows: Sequence[Row], seed: int) -> Any:
    """Figures of the networks that one draw of ten leaves."""
    draw = np.random.default_rng(seed)
    models = sorted({row.network.model for row in rows})
    picked = set(draw.permutation(models)[:SAMPLES].tolist())
    samples = [
        draw.choice([i for i, row in enumerate(rows) if row.network.model == each])
        for each in sorted(picked)
    ]
    board = board_named(rows[0].board)
    few = [(rows[i].network, rows[i].precision, rows[i].runtime, rows[i].ms) for i in samples]
    blend = fit_board(latencies, board, few)
    rest = [row for row in rows if row.network.model not in picked]
    return score(predict(latencies, rest, blend), rest, blend.log_sd)


def boards(rows: Sequence[Row]) -> dict[str, Any]:
    """Each board left out."""
    none, ten = {}, {}
    for name in sorted({row.board for row in rows}):
        out = {name, TWINS.get(name, "")}
        latencies = latencies_of([row for row in rows if row.board not in out])
        measured = {(each.network, each.precision) for each in latencies.networks}
        scored = [
            row
            for row in rows
            if row.board == name and (row.network.name, row.precision) in measured
        ]
        none[name] = {"rows": len(scored), **score(predict(latencies, scored), scored)}
        ten[name] = mean([sampled(latencies, scored, seed) for seed in range(DRAWS)])
    return {
        "no_sample": {"mean": mean(list(none.values())), "boards": none},
        "ten_samples": {"mean": mean(list(ten.values())), "boards": ten},
    }


def twins_known(rows: Sequence[Row]) -> dict[str, Any]:
    """Boards left out, another with the same chip measured."""
    figures = {}
    for name in TWINS:
        latencies = latencies_of([row for row in rows if row.board != name])
        measured = {(each.network, each.precision) for each in latencies.networks}
        scored = [
            row
            for row in rows
            if row.board == name and (row.network.name, row.precision) in measured
        ]
        figures[name] = score(predict(latencies, scored), scored)
    return figures


def left_out_networks(rows: Sequence[Row]) -> dict[str, Any]:
    """Networks left out in parts, all boards known; those whose work was counted and those of which
    it is recalled apart.
    """
    models = np.random.default_rng(0).permutation(sorted({row.network.model for row in rows}))
    predicted: list[NpuLatency] = []
    scored: list[Row] = []
    for part in range(PARTS):
        out = set(models[part::PARTS].tolist())
        latencies = latencies_of([row for row in rows if row.network.model not in out])
        rest = [row for row in rows if row.network.model in out]
        predicted += predict(latencies, rest)
        scored += rest
    figures = {"networks_left_out": score(predicted, scored)}
    for name, recalled in (("counted", False), ("recalled", True)):
        at = [i for i, row in enumerate(scored) if row.network.recalled == recalled]
        figures[f"networks_left_out_{name}"] = {
            "rows": len(at),
            "models": len({scored[i].network.model for i in at}),
            **score([predicted[i] for i in at], [scored[i] for i in at]),
        }
    return figures


def main() -> None:
    rows = rows_of(data_folder())
    results = {
        **boards(rows),
        "no_sample_twin_known": twins_known(rows),
        **left_out_networks(rows),
        "fitted_rows": score(predict(latencies_of(rows), rows), rows),
    }
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())
    for name in ("no_sample", "ten_samples"):
        print(name, results[name]["mean"])
        for board, figures in results[name]["boards"].items():
            print("  ", board, figures)
    print("twin known", results["no_sample_twin_known"])
    for name in ("networks_left_out", "networks_left_out_counted", "networks_left_out_recalled"):
        print(name, results[name])
    print("fitted rows", results["fitted_rows"])


if __name__ == "__main__":
    main()
