"""What NPUs of boards take for whole networks, as amounts of work and times for a unit of each.

    python -m lab.fit_edge_boards

``edge/qualcomm_ai_hub.csv.gz``, rows that ran on the NPU. Latencies of (network, precision) on
boards are factorised into four amounts of each and a time a unit of each board, none negative, by
relative errors; runtimes are one factor a precision. Writes ``catalog/edge/npu.json``.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lab import fitting
from lab.fitting import F
from lab.scorecard.suite import data_folder
from silicast.kernels.physics.constants import PhysicsCard
from silicast.learning.board_networks import (
    FOLDER,
    PRECISIONS,
    RUNTIMES,
    MeasuredBoard,
    MeasuredWork,
    NpuLatencies,
    NpuNetwork,
    board_named,
    networks,
    precision_named,
    runtime_named,
)
from silicast.learning.few_samples import nonnegative

TABLE = "edge/qualcomm_ai_hub.csv.gz"
AMOUNTS, ROUNDS = 4, 8
POWERS = (0.4, 0.8, 1.2, 1.6)
"""Of a board's mean latency, that times a unit start at."""
PULL = 0.02
"""Of amounts toward equal shares, in relative errors."""
LEVEL_PULL = 0.1
HUBER = 1.3


@dataclass(frozen=True)
class Row:
    """One latency, in ms."""

    board: str
    network: NpuNetwork
    precision: str
    runtime: str
    ms: float


def rows_of(data: Path) -> list[Row]:
    """Rows that ran on the NPU."""
    named = {part.name: part for parts in networks().values() for part in parts}
    with gzip.open(data / TABLE, "rt", encoding="utf-8") as file:
        return [
            Row(
                board_named(row["device"]).name,
                named[f"{row['model']}/{row['component']}"],
                precision_named(row["precision"]),
                runtime_named(row["runtime"]),
                float(row["inference_ms"]),
            )
            for row in csv.DictReader(file)
            if row["compute_unit"] == "NPU"
        ]


class Factors:
    """Amounts of networks and times of boards, fitted in turns."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.keys = sorted({(row.network.name, row.precision) for row in rows})
        self.boards = sorted({row.board for row in rows})
        places = {key: index for index, key in enumerate(self.keys)}
        self.key = np.array([places[row.network.name, row.precision] for row in rows])
        self.board = np.array([self.boards.index(row.board) for row in rows])
        self.runtime = np.array([RUNTIMES.index(row.runtime) for row in rows])
        self.precision = np.array([PRECISIONS.index(row.precision) for row in rows])
        self.ms = np.array([row.ms for row in rows])
        self.added = np.zeros((len(RUNTIMES), len(PRECISIONS)))
        level = np.array(
            [np.log(self.ms[self.board == board]).mean() for board in range(len(self.boards))]
        )
        self.unit = np.exp((level - level.mean())[:, None] * np.array(POWERS))
        self.amounts = np.zeros((len(self.keys), AMOUNTS))
        for _ in range(ROUNDS):
            self._turn()

    def _turn(self) -> None:
        wanted = self.ms / np.exp(self.added[self.runtime, self.precision])
        for index in range(len(self.keys)):
            at = self.key == index
            columns = self.unit[self.board[at]] / wanted[at][:, None]
            even = 1.0 / float(np.median(columns.sum(axis=1)))
            held = PULL / even
            rows = np.concatenate([columns, held * np.eye(AMOUNTS)])
            sides = np.concatenate([np.ones(int(at.sum())), np.full(AMOUNTS, PULL)])
            self.amounts[index] = nonnegative(rows, sides)
        for index in range(len(self.boards)):
            at = self.board == index
            self.unit[index] = _robust(
                self.amounts[self.key[at]] / wanted[at][:, None], self.unit[index]
            )
        self._set_runtimes(
            np.maximum((self.amounts[self.key] * self.unit[self.board]).sum(1), 1e-9)
        )

    def _set_runtimes(self, fitted: F) -> None:
        off = np.log(self.ms / fitted)
        for runtime in range(len(RUNTIMES)):
            for precision in range(len(PRECISIONS)):
                at = (self.runtime == runtime) & (self.precision == precision)
                if at.any():
                    self.added[runtime, precision] = float(np.median(off[at]))
        self.added -= self.added[0]

    def errors(self) -> F:
        """Relative errors of the rows."""
        fitted = (self.amounts[self.key] * self.unit[self.board]).sum(axis=1)
        off: F = fitted * np.exp(self.added[self.runtime, self.precision]) / self.ms - 1.0
        return off


def _robust(columns: F, start: F) -> F:
    """Times for units, by Huber's weights."""
    trust, times = np.ones(len(columns)), start
    for _ in range(3):
        rows = np.concatenate([columns * np.sqrt(trust)[:, None], 1e-4 * np.eye(AMOUNTS)])
        times = nonnegative(rows, np.concatenate([np.sqrt(trust), 1e-4 * start]))
        errors = columns @ times - 1.0
        usual = 1.4826 * float(np.median(np.abs(errors))) + 0.01
        trust = 1.0 / np.maximum(1.0, np.abs(errors) / (HUBER * usual))
    return times


def latencies_of(rows: Sequence[Row], scores: dict[str, Any] | None = None) -> NpuLatencies:
    """What rows come to."""
    factors = Factors(rows)
    times = factors.amounts @ factors.unit.T
    logs = np.log(np.maximum(times, 1e-3 * times.max(axis=1, keepdims=True)))
    operations = np.log([board_named(name).tops for name in factors.boards])
    design = np.stack([np.ones(len(operations)), operations], axis=1)
    held = np.diag([1e-6, LEVEL_PULL])
    level = np.linalg.solve(design.T @ design + held, design.T @ logs.mean(axis=0))
    card = fitting.card(
        "python -m lab.fit_edge_boards",
        [TABLE],
        "all rows; benchmarks/edge_boards.py fits without the boards and networks that it scores",
        scores=scores or {},
    )
    return NpuLatencies(
        1,
        PhysicsCard(**card),
        [
            MeasuredWork(name, precision, _rounded(amounts))
            for (name, precision), amounts in zip(factors.keys, factors.amounts, strict=True)
        ],
        [
            MeasuredBoard(name, _rounded(factors.unit[index]))
            for index, name in enumerate(factors.boards)
        ],
        {
            runtime: dict(zip(PRECISIONS, _rounded(factors.added[index]), strict=True))
            for index, runtime in enumerate(RUNTIMES)
        },
        _rounded(level),
    )


def _rounded(values: F) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


def main() -> None:
    rows = rows_of(data_folder())
    errors = np.abs(Factors(rows).errors())
    scores = {
        "median_error_pct of rows fitted": round(100 * float(np.median(errors)), 1),
        "rows": len(rows),
    }
    fitting.write(FOLDER / "npu.json", msgspec.to_builtins(latencies_of(rows, scores)))


if __name__ == "__main__":
    main()
