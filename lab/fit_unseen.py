"""Fits how far kernels are off on boards that nobody measured.

    python -m lab.fit_unseen

Nothing of the architecture measured: log residuals of rows that no constant is fitted on, under
constants without their architecture. The width of a cell (a family, format and architecture) is
that which holds 90 % of its rows. Widths are averaged in logs and drawn to those of the family, and
these to that of all: each mean counts as so many cells as its own spread between cells is larger
than that between means (method of moments).

A sister measured: corrections that were learned on the other devices of the architecture, on the
one left out; its median's square, and the log of how much wider the rest is, against the distance.

All is estimated without each architecture too, so that no scored board sets its own width. Writes
``catalog/physics/unseen.json`` and ``held_out/unseen.json``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from lab import fitting
from lab.family_training import devices_left_out
from lab.fitter import Body, Fitter
from lab.fitting import Constants
from lab.scorecard.held_out import groups, held_out, unmeasured
from lab.scorecard.rows import MeasuredRows, shares_of
from lab.scorecard.suite import predicted
from lab.scorecard.training import ONE_METRIC, all_tables, by_metric_and_device
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.unseen import SPREADS, octaves_between

ROWS = 400
LEARNT_FROM, SCORED = 1500, 300
"""Rows of a device that corrections are learned from and scored on where one is left out."""
FEWEST = 20
FLOORS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6)
AS_WELL = 0.005
"""Judged: a score that differs by half a percent is as good."""
MOST_SHARED = 0.8
"""Of the spread at the bound, what kernels of a board have in common at most."""
LEAST_LOG_SD = 0.02
WIDER = 1.06
"""Judged, between coverage and interval score of architectures left out: a new one's width is not
the mean of the others'."""


@final
@dataclass(frozen=True)
class Cell:
    """Rows of one family and format on one board.

    Attributes:
        left: logs of measured over predicted time; near: bound over predicted time; shape (n,).
    """

    family: str
    dtype: str
    board: str
    left: F64
    near: F64

    @property
    def architecture(self) -> str:
        """Of the board."""
        return find_device(self.board).architecture

    @property
    def kind(self) -> tuple[str, str]:
        """Family, and format where formats are reported apart."""
        return self.family, "" if self.family in ONE_METRIC else self.dtype


def unmeasured_cells(data: Path, *, held: bool = True) -> list[Cell]:
    """Every family, format and board as if its architecture had not been measured.

    Args:
        held: rows that suites score; else the others, for choices between rules.
    """
    architectures = {architecture for group in groups() for architecture in held_out(group)}
    boards: dict[str, list[tuple[str, list[MeasuredRows]]]] = defaultdict(list)
    for (_, board), parts in by_metric_and_device(data).items():
        architecture = find_device(board).architecture
        if architecture in architectures:
            boards[architecture].append((board, shares_of(parts, ROWS, held=held)))
    cells = []
    for architecture, members in boards.items():
        with unmeasured(architecture):
            for board, parts in members:
                times = [predicted(part) for part in parts]
                if not parts or any(kernel_times.measured for kernel_times in times):
                    continue
                pairs = list(zip(parts, times, strict=True))
                left = [
                    np.log(part.seconds / kernel_times.estimate_s) for part, kernel_times in pairs
                ]
                near = [kernel_times.bound_s / kernel_times.estimate_s for _, kernel_times in pairs]
                batch = parts[0].batch
                cells.append(
                    Cell(
                        batch.family,
                        batch.variant.dtype,
                        board,
                        np.concatenate(left),
                        np.concatenate(near),
                    )
                )
    return [cell for cell in cells if len(cell.left) >= FEWEST]


def shape(near: F64, floor: float) -> F64:
    """Of the spread far from the bound, what rows have; see ``silicast.kernels.physics.unseen``."""
    shape: F64 = 1.0 - (1.0 - floor) * near
    return shape


def best_floor(cells: Iterable[Cell]) -> float:
    """The least floor under which intervals score as well as under any, each cell with its own
    best width: kernels of whole models are nearer to their bounds than most of the tables'.
    """
    cell_list = list(cells)
    scores = dict.fromkeys(FLOORS, 0.0)
    for cell in cell_list:
        for floor in FLOORS:
            relative = shape(cell.near, floor)
            width = relative * max(_width(np.abs(cell.left) / relative), LEAST_LOG_SD) * Z90
            low = np.maximum(np.exp(-width), cell.near) / np.exp(cell.left)
            high = np.exp(width - cell.left)
            miss = np.maximum(low - 1.0, 0.0) + np.maximum(1.0 - high, 0.0)
            scores[floor] += math.log(float(np.mean(high - low + 20.0 * miss))) / len(cell_list)
    return min(floor for floor in FLOORS if scores[floor] <= min(scores.values()) + AS_WELL)


def _width(apart: F64) -> float:
    return float(np.quantile(apart, 0.9)) / Z90


Kind = tuple[str, str]


def widths(cells: Iterable[Cell], floor: float) -> dict[tuple[Kind, str], float]:
    """(Kind, architecture) -> log of the log sd far from the bound that holds 90 % of its rows."""
    table: dict[tuple[Kind, str], list[F64]] = defaultdict(list)
    for cell in cells:
        table[cell.kind, cell.architecture].append(np.abs(cell.left) / shape(cell.near, floor))
    return {
        key: math.log(max(_width(np.concatenate(rows)), LEAST_LOG_SD))
        for key, rows in sorted(table.items())
    }


def pooled(sd_by_kind: Mapping[tuple[Kind, str], float]) -> Constants:
    """Widths of all families, of each, and of each format; see the module's description."""
    kinds: dict[Kind, list[float]] = defaultdict(list)
    families: dict[str, list[float]] = defaultdict(list)
    for (kind, _), value in sd_by_kind.items():
        kinds[kind].append(value)
        families[kind[0]].append(value)
    whole = float(np.mean([np.mean(values) for values in families.values()]))
    within = _within(kinds.values())
    of_families = _prior_cells(list(families.values()), within)
    of_kinds = _prior_cells(list(kinds.values()), within)
    centre = {name: _drawn(values, whole, of_families) for name, values in families.items()}
    constants = {"unmeasured.log_sd": math.exp(whole)}
    for name, value in centre.items():
        constants[f"unmeasured.{name}.log_sd"] = math.exp(value)
    for (family, dtype), values in kinds.items():
        if dtype:
            value = _drawn(values, centre[family], of_kinds)
            constants[f"unmeasured.{family}.{dtype}.log_sd"] = math.exp(value)
    return constants


def _within(groups: Iterable[Sequence[float]]) -> float:
    """Variance of cells of one group around their mean."""
    several = [np.var(values, ddof=1) for values in groups if len(values) > 1]
    return float(np.mean(several))


def _prior_cells(groups: Sequence[Sequence[float]], within: float) -> float:
    """How many cells the mean of all counts for."""
    means = [float(np.mean(values)) for values in groups]
    noise = within * float(np.mean([1.0 / len(values) for values in groups]))
    between = max(float(np.var(means, ddof=1)) - noise, 1e-3)
    return within / between


def _drawn(values: Sequence[float], to: float, cells: float) -> float:
    return (math.fsum(values) + cells * to) / (len(values) + cells)


def of_kind(constants: Constants, kind: Kind) -> float:
    """The log sd of a family and format far from the bound."""
    family, dtype = kind
    log_sd = constants.get(f"unmeasured.{family}.log_sd", constants["unmeasured.log_sd"])
    return constants.get(f"unmeasured.{family}.{dtype}.log_sd", log_sd)


def unmeasured_spreads(cells: Sequence[Cell], floor: float) -> Constants:
    """All constants of boards of which nothing like them was measured."""
    sd_by_kind = widths(cells, floor)
    constants = {name: value * WIDER for name, value in pooled(sd_by_kind).items()}
    formats: dict[Kind, set[str]] = defaultdict(set)
    for kind, architecture in sd_by_kind:
        formats[kind].add(architecture)
    # a format measured on one architecture is unknown where that is left out
    alone = []
    for (kind, _), value in sd_by_kind.items():
        if kind[1] and len(formats[kind]) == 1:
            usual = constants[f"unmeasured.{kind[0]}.log_sd"]
            alone.append(math.exp(2.0 * value) - usual * usual)
    constants["unmeasured.format_log_sd"] = math.sqrt(max(float(np.mean(alone or [0.0])), 0.0))
    constants["unmeasured.floor"] = floor
    medians = []
    for cell in cells:
        kind_sd = of_kind(constants, cell.kind)
        noise = math.pi / 2 * float(np.var(cell.left)) / len(cell.left)
        medians.append((float(np.median(cell.left)) ** 2 - noise) / (kind_sd * kind_sd))
    shared = math.sqrt(max(float(np.mean(medians)), 0.0))
    constants["unmeasured.device"] = min(shared, MOST_SHARED * floor)
    return constants


@final
@dataclass(frozen=True)
class Sister:
    """A board predicted from others of its architecture.

    Attributes:
        octaves: to the nearest of them; median: of its logs of predicted over measured time;
            widening: the spread of the rest over that of a board that was learned from.
    """

    architecture: str
    octaves: float
    median: float
    widening: float


def sisters(data: Path) -> list[Sister]:
    """Every board of an architecture with two or more, by family and format."""
    boards: dict[tuple[str, str], dict[str, list[MeasuredRows]]] = defaultdict(dict)
    for (metric, board), parts in by_metric_and_device(data).items():
        boards[metric, find_device(board).architecture][board] = parts
    sisters = []
    for (_, architecture), members in boards.items():
        fitted = {
            board: shares_of(parts, LEARNT_FROM, held=False) for board, parts in members.items()
        }
        fitted = {board: parts for board, parts in fitted.items() if sum(map(len, parts)) >= FEWEST}
        if len(fitted) < 2:
            continue
        rows = [part for parts in fitted.values() for part in parts]
        rows += [part for name in fitted for part in shares_of(members[name], SCORED, held=True)]
        left_out = devices_left_out(rows[0].model, [part.kernels for part in rows])
        for name, left in left_out.items():
            if len(left.unseen) < FEWEST:
                continue
            others = [find_device(other) for other in fitted if other != name]
            device = find_device(name)
            sisters.append(
                Sister(
                    architecture,
                    min(octaves_between(device, other) for other in others),
                    float(np.median(left.unseen)),
                    _apart(left.unseen) / _apart(left.seen),
                )
            )
    return sisters


def _apart(left: F64) -> float:
    return max(_width(np.abs(left - np.median(left))), LEAST_LOG_SD)


def sister_spreads(boards: Sequence[Sister]) -> Constants:
    """at^2 + (octave x distance)^2 through the squares of medians, by their own relative size."""
    squares = np.array([board.median**2 for board in boards])
    columns = np.stack([np.ones(len(boards)), np.array([b.octaves**2 for b in boards])], axis=1)
    weight = np.ones(len(boards))
    at, octave = 0.0, 0.0
    for _ in range(20):
        # the square of a normal error has a variance of twice its mean's square
        rows, wanted = columns * weight[:, None], squares * weight
        (at, octave), *_ = np.linalg.lstsq(rows, wanted, rcond=None)
        at, octave = max(float(at), 1e-4), max(float(octave), 0.0)
        weight = 1.0 / (at + octave * columns[:, 1])
    wider = np.log([board.widening for board in boards])
    beside = np.stack([np.ones(len(boards)), np.array([b.octaves for b in boards])], axis=1)
    (here, slope), *_ = np.linalg.lstsq(beside, wider, rcond=None)
    return {
        "sister.device_log_sd": math.sqrt(at),
        "sister.octave_log_sd": math.sqrt(octave),
        "sister.log_widening": max(float(here), 0.0),
        "sister.octave_log_widening": max(float(slope), 0.0),
    }


@final
@dataclass(frozen=True)
class Rows:
    """What the spreads of unseen boards are estimated from."""

    cells: Sequence[Cell]
    sisters: Sequence[Sister]

    def spreads(self, without: str = "") -> Constants:
        """All constants, from what is not of an architecture."""
        cells = [cell for cell in self.cells if cell.architecture != without]
        boards = [board for board in self.sisters if board.architecture != without]
        return unmeasured_spreads(cells, best_floor(cells)) | sister_spreads(boards)


class Unseen(Fitter[Rows]):
    """Widths on boards that nobody measured."""

    group = SPREADS
    data = tuple(all_tables())
    split = (
        "rows that corrections hold out, under constants and corrections without their "
        "architecture, or without their board"
    )

    def rows(self, data: Path) -> Rows:
        return Rows(unmeasured_cells(data), sisters(data))

    def fit(self, rows: Rows) -> Body:
        body = fitting.body(rows.spreads(), {})
        print(body)
        return body

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        boards = len({cell.board for cell in rows.cells})
        return {"boards": boards, "cells": len(rows.cells), "sisters": len(rows.sisters)}

    def left_out(self, rows: Rows, body: Body) -> Sequence[str]:
        return sorted({cell.architecture for cell in rows.cells})

    def without(self, rows: Rows, architecture: str, body: Body) -> Body:
        default = fitting.rounded(rows.spreads(without=architecture))
        return {"default": default, "architectures": {}}


if __name__ == "__main__":
    Unseen().run()
