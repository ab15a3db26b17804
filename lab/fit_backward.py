"""Fits gradients of attention: catalog/physics/attention_backward.json.

    python -m lab.fit_backward

One shape in four is held out by hash, on every device. What kernels of warps' own instructions cost
over their forward is the median of differences of two times, of calls of a millisecond and more:
the only rows there are. Deterministic.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, Prior
from lab.scorecard.rows import MeasuredRows, held_out, some_of
from lab.scorecard.suites.backward import TABLE, attention_rows
from lab.scorecard.tables import read_records

PRIORS: dict[str, Prior] = {
    "tensor_share": (0.6, 0.2, 1.0), "softmax_share": (0.3, 0.01, 3.0), "tail": (0.3, 0.01, 2.0),
    "task_cycles": (2000.0, 50.0, 3e4), "dram_efficiency": (0.6, 0.2, 1.0),
    "launch_s": (1.5e-5, 2e-6, 6e-5), "ordered": (1.15, 0.9, 1.6), "ordered_wide": (1.0, 0.9, 1.6),
    "wide": (1.0, 0.5, 1.5), "hot": (0.1, 0.01, 1.0), "heat_s": (1e-2, 2e-3, 1e-1),
}  # fmt: skip
SHARED = {"device_log_sd": 0.04, "family_log_sd": 0.04}
UNKNOWN_LOG_SD = 0.08
LARGE_MS = 1.0
"""Shorter calls of that benchmark are mostly launches from Python."""
WIDEST = 128

Parts = list[MeasuredRows]


def forward_cost(data: Path) -> float:
    """Time of the gradients over that of the forward kernel, by the operations of either."""
    table: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in read_records(data / TABLE, kernel="attention"):
        if row["pass"] in ("fwd", "bwd") and row["quality"] in (
            "derived",
            "good_incomplete_settings",
        ):
            key = tuple(row[n] for n in ("batch", "q_len", "q_heads", "head_dim_qk", "backend"))
            table.setdefault(key, {})[row["pass"]] = row["time_ms"]
    ratios = [
        times_ms["bwd"] / times_ms["fwd"] / 2.5
        for key, times_ms in table.items()
        if len(times_ms) == 2
        and times_ms["fwd"] >= LARGE_MS
        and key[3] <= WIDEST
        and "flash" in key[4]
    ]
    return statistics.median(ratios)


class AttentionBackward(Fitter[tuple[Parts, float]]):
    """Gradients of fused attention."""

    group = "attention_backward"
    data = (TABLE,)
    split = "one shape in four, by hash, is never fitted on any device, mask or release"
    notes = (
        "mma_cost: kernels of warps' own instructions (GB200) over their forward by operations, a "
        "median of differences of two times"
    )
    capped = True

    def rows(self, data: Path) -> tuple[Parts, float]:
        return attention_rows(data), forward_cost(data)

    def fit(self, rows: tuple[Parts, float]) -> Body:
        parts, cost = rows
        return self._fitted(held_out(parts, False), cost)

    def _fitted(self, parts: Parts, cost: float) -> Body:
        start = {name: prior[0] for name, prior in PRIORS.items()}
        start |= {**SHARED, "independent_log_sd": UNKNOWN_LOG_SD, "mma_cost": cost}
        table = {}
        for name in sorted({part.hardware.architecture for part in parts}):
            mine = [part for part in parts if part.hardware.architecture == name]
            fit_rows = fitting.fit_rows(PRIORS, mine, start, 1000, steps=60)
            logs = fitting.log_ratios(mine, fit_rows)
            fit_rows["independent_log_sd"] = fitting.own_log_sd(
                logs, list(SHARED.values()), wider=1.3
            )
            table[name] = {k: fit_rows[k] for k in (*PRIORS, "independent_log_sd")}
            print(name, fitting.percent(logs, "rows", "mape", "p90", "bias"))
        default = {**start, **fitting.means(table.values())}
        return fitting.body(default, table)

    def scores(self, rows: tuple[Parts, float], body: Body) -> Mapping[str, Any]:
        scores = {}
        for device in sorted({part.device for part in rows[0]}):
            parts = [part for part in held_out(rows[0]) if part.device == device]
            scores[device] = fitting.shares(self._logs(parts, body))
        print(scores)
        return scores

    @staticmethod
    def _logs(parts: Sequence[MeasuredRows], body: Body) -> Any:
        def of(part: MeasuredRows) -> Constants:
            own_constants = body["architectures"].get(part.hardware.architecture, {})
            return {**body["default"], **own_constants}

        return np.concatenate([fitting.log_ratio(part, of(part)) for part in parts])

    def without(self, rows: tuple[Parts, float], architecture: str, body: Body) -> Body:
        others = some_of(
            held_out(rows[0], False),
            lambda part: np.full(len(part), part.hardware.architecture != architecture),
        )
        without = self._fitted(others, rows[1])
        mine = [part for part in rows[0] if part.hardware.architecture == architecture]
        print(architecture, "from the others", fitting.shares(self._logs(mine, without)))
        return without


if __name__ == "__main__":
    AttentionBackward().run()
