"""From measured collectives to trees: one correction for each architecture and launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from lab.artefact_files import Learned
from lab.boosted_forests import train_forest, train_quantile
from lab.family_training import QUANTILE, device_sd, mean_ape, normal_sd, without_who
from silicast.communication.correction import LONG, SHORT, Model
from silicast.communication.features import (
    RELEASE,
    CollectiveCall,
    for_trees,
    is_short,
    names_of,
    table,
)
from silicast.core.numerics import F64, I64
from silicast.learning.artefact import Trained
from silicast.learning.boosting import Settings, train
from silicast.learning.forest import codes, no_trees

MIN_ROWS = 60
"""Least number of rows of a correction."""
BLANK_EVERY = 3
"""One row in so many is repeated without its release, because many queries state none."""
FEWEST_OF_KIND = 20
"""Least number of short or long rows whose errors are estimated separately."""
UNSEEN_DEVICE_FLOOR = 0.04

OF_CEILING = Settings(trees=60, depth=6, rate=0.15)

Made = tuple[list[Trained], dict[str, Learned]]


@final
@dataclass(frozen=True)
class MeasuredCalls:
    """One collective measured at some sizes; arrays of shape (n,).

    Attributes:
        seconds: of one call.
        held_out: rows that are only scored.
        fold: 0, 1 or 2: the error that is left in a fold is estimated by trees of the others.
    """

    call: CollectiveCall
    size: I64
    seconds: F64
    held_out: NDArray[np.bool_]
    fold: I64


@final
@dataclass(frozen=True)
class _Table:
    """Features, shape (F, n), and logs of measured over analytic time of some rows; whether they
    are short, and repeats that name no release.
    """

    columns: F64
    target: F64
    held_out: NDArray[np.bool_]
    fold: I64
    device: I64
    short: NDArray[np.bool_]
    blank: NDArray[np.bool_]


def train_collectives(
    parts: Sequence[MeasuredCalls],
    model: Model,
    settings: Settings,
    report: Callable[[str], None] = lambda _: None,
) -> Made:
    """Corrections of every architecture and launch.

    Returns:
        Their descriptions, and by key their arrays.
    """
    groups: dict[tuple[str, str], list[MeasuredCalls]] = {}
    for part in parts:
        architecture = part.call.topology.device.architecture
        groups.setdefault((architecture, part.call.launch), []).append(part)
    described: list[Trained] = []
    entries: dict[str, Learned] = {}
    for (architecture, launch), members in sorted(groups.items()):
        trained = _train_one(f"{launch}.{architecture}", members, model, settings)
        if trained is not None:
            described.append(trained[0])
            entries[trained[0].key] = trained[1]
            report(f"collective {trained[0].key}: {trained[0].scores}")
    return described, entries


def _train_one(
    key: str, parts: Sequence[MeasuredCalls], model: Model, settings: Settings
) -> tuple[Trained, Learned] | None:
    devices = sorted({part.call.topology.device.name for part in parts})
    names = names_of([(part.call, model(part.call, part.size)[0]) for part in parts])
    rows = _joined([_table(part, model, names, devices) for part in parts])
    fit = ~rows.held_out
    if int(fit.sum()) < MIN_ROWS:
        return None
    reached = ranges(rows.columns[:, fit])
    rows = replace(rows, columns=for_trees(rows.columns))
    trees = train_forest(rows.columns[:, fit], rows.target[fit], settings)
    across = np.zeros(len(rows.target))
    for number in range(3):
        out, others = fit & (rows.fold == number), fit & (rows.fold != number)
        part = train(rows.columns[:, others], rows.target[others], settings)
        across[out] = part.evaluate(rows.columns[:, out]) - rows.target[out]
    named, blank = fit & ~rows.blank, fit & rows.blank
    if mean_ape(across[named]) >= mean_ape(-rows.target[named]):
        return None
    held = rows.held_out & ~rows.blank
    left = trees.evaluate(rows.columns[:, held]) - rows.target[held]
    architecture, launch = parts[0].call.topology.device.architecture, parts[0].call.launch
    trained = Trained(
        key=key,
        architecture=architecture,
        dtypes=[launch],
        devices=devices,
        features=list(names),
        log_sd=normal_sd(across[named]),
        blank_log_sd=normal_sd(across[blank]) if blank.any() else 0.0,
        shared_log_sd=device_sd(across[named], rows.device[named], len(devices)),
        device_log_sd=max(UNSEEN_DEVICE_FLOOR, _unseen(rows, named, len(devices), settings)),
        rows=int(named.sum()),
        scores={
            "analytic": round(mean_ape(-rows.target[held]), 2) if held.any() else 0.0,
            "learned": round(mean_ape(left), 2) if held.any() else 0.0,
            "rows": int(held.sum()),
            SHORT: _sd_of(across, named & rows.short, named),
            LONG: _sd_of(across, named & ~rows.short, named),
        },
    )
    ceiling = train_quantile(
        trees.common.bins,
        without_who(rows.columns[:, named], names),
        rows.target[named],
        QUANTILE,
        OF_CEILING,
    )
    return trained, Learned(trees, ceiling, no_trees(trees.common.bins), reached)


def _table(part: MeasuredCalls, model: Model, names: tuple[str, ...], devices: list[str]) -> _Table:
    """One part's rows, and a share of them repeated without their release."""
    selection, bound = model(part.call, part.size)
    columns = table(part.call, part.size, selection, bound, names)
    count = len(part.size)
    named = _Table(
        columns,
        np.log(part.seconds / np.maximum(selection.time_s, bound)),
        part.held_out,
        part.fold,
        np.full(count, devices.index(part.call.topology.device.name)),
        is_short(selection),
        np.zeros(count, dtype=np.bool_),
    )
    released = [row for row, name in enumerate(names) if name.startswith(RELEASE)]
    if not columns[released].any():
        return named
    blank_rows = np.arange(0, count, BLANK_EVERY)
    bare = columns[:, blank_rows]
    bare[released] = 0.0
    unnamed = _Table(
        bare,
        named.target[blank_rows],
        named.held_out[blank_rows],
        named.fold[blank_rows],
        named.device[blank_rows],
        named.short[blank_rows],
        ~named.blank[blank_rows],
    )
    return _joined([named, unnamed])


def _joined(tables: Sequence[_Table]) -> _Table:
    return _Table(
        np.concatenate([part.columns for part in tables], axis=1),
        *(
            np.concatenate([getattr(part, name) for part in tables])
            for name in ("target", "held_out", "fold", "device", "short", "blank")
        ),
    )


def ranges(columns: F64) -> NDArray[np.int64]:
    """Smallest and largest code of each feature, shape (F, 2)."""
    feature_codes = codes(columns)
    return np.stack([feature_codes.min(axis=1), feature_codes.max(axis=1)], axis=1)


def _unseen(rows: _Table, named: NDArray[np.bool_], devices: int, settings: Settings) -> float:
    """Error of trees of the other devices on a device that was left out; 0 with one device."""
    worst = 0.0
    quick = replace(settings, trees=max(20, settings.trees // 4), rate=min(1.0, settings.rate * 2))
    for number in range(devices if devices > 1 else 0):
        others, here = named & (rows.device != number), named & (rows.device == number)
        if int(others.sum()) >= MIN_ROWS and here.any():
            trees = train(rows.columns[:, others], rows.target[others], quick)
            left = trees.evaluate(rows.columns[:, here]) - rows.target[here]
            worst = max(worst, float(abs(np.median(left))))
    return worst


def _sd_of(left: F64, rows: NDArray[np.bool_], all_: NDArray[np.bool_]) -> float:
    """The sd of errors of some rows, or of all where those are few."""
    return round(normal_sd(left[rows if int(rows.sum()) >= FEWEST_OF_KIND else all_]), 4)
