"""From measured rows of a family to its artefact.

How fast kernels of a problem have been seen to be: what is within reach on a device.

The physical bound leaves out that no kernel fills every pipe all the time. The ceiling is what the
quicker kernels reached on such problems, whoever wrote them: a low quantile of measured times over
the analytic one, learned without marks of library and release. A kernel far above its ceiling has a
better implementation; one at its ceiling is as good as what is known, however far from the bound.

Which kernels of a correction are less certain than others, learned from what it leaves over.

Two halves of the training rows each predict the other; trees learn the log of how far a row is off
then, from the same features. Half the rows predict worse than all do, so this says only which rows
are further off than others. How far a usual one is off, held-out rows say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from lab.artefact_files import Learned
from lab.boosted_forests import train_forest, train_quantile
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import Implementation
from silicast.learning.artefact import Trained
from silicast.learning.boosting import Settings, grown, train
from silicast.learning.calibration_fit import MeasuredKernels
from silicast.learning.features import WHO, Kernels, all_names
from silicast.learning.forest import LEAF_SCALE, U8, Trees, binned, codes

QUANTILE = 0.1
"""Of measured times: one kernel in ten was quicker than the ceiling."""


def without_who(columns: F64, names: tuple[str, ...]) -> F64:
    """Features, shape (F, n), with the marks of who provides a kernel cleared."""
    cleared = columns.copy()
    cleared[[row for row, name in enumerate(names) if name.startswith(WHO)]] = 0
    return cleared


QUICK = Settings(trees=40, depth=6, rate=0.25, rows=0.5)
OF_SPREAD = Settings(trees=24, depth=5, rate=0.2, prior=60.0, clip=4.0)
LEAST = 0.005
"""Nothing is told apart below half a percent."""


def spread_of(bins: U8, columns: F64, target: F64) -> Trees:
    """Trees of the log of a row's distance over the usual one.

    Args:
        bins: tables of the correction's features.
        columns, target: its training rows, as of :func:`~silicast.learning.boosting.train`.
    """
    bins_of_rows = binned(bins, codes(columns))
    half = np.random.default_rng(1).permutation(len(target)) % 2 == 0
    distance = np.empty(len(target))
    for mine in (half, ~half):
        distance[mine] = np.abs(_by_others(bins, bins_of_rows, target, mine))
    log = np.log(distance + LEAST)
    return grown(bins, bins_of_rows, log - np.median(log), OF_SPREAD)


def _by_others(bins: U8, bins_of_rows: U8, target: F64, mine: NDArray[np.bool_]) -> F64:
    """What trees of the other half leave over."""
    trees = grown(bins, bins_of_rows[:, ~mine], target[~mine], QUICK)
    left: F64 = target[mine] - trees.of_bins(bins_of_rows[:, mine]).astype(np.float64) * LEAF_SCALE
    return left


BLANK_SHARE = 0.25
"""Of the rows, how many are also learned from without a library, as many queries name none."""
MIN_ROWS = 200
"""Fewer rows than that teach no correction."""
FEWEST_OF_RELEASE = 50
"""Held-out rows of a release that say how far it is off."""
OF_CEILING = Settings(trees=60, depth=6, rate=0.15)
SHARED_FLOOR = 0.01
UNSEEN_DEVICE_FLOOR = 0.04
"""A device that nobody measured is at least that uncertain, in logs."""


@final
@dataclass(frozen=True)
class _TrainingRows:
    """Features and logs of measured over analytic time of some rows; numbers of their device and
    release, and whether they are repeats that name neither.
    """

    columns: F64
    target: F64
    held_out: NDArray[np.bool_]
    device: NDArray[np.int64]
    release: NDArray[np.int64]
    blank: NDArray[np.bool_]

    def take(self, rows: NDArray[np.bool_]) -> _TrainingRows:
        """Some of the rows."""
        return _TrainingRows(
            self.columns[:, rows],
            self.target[rows],
            self.held_out[rows],
            self.device[rows],
            self.release[rows],
            self.blank[rows],
        )


def train_family(
    model: Implementation,
    parts: Sequence[MeasuredKernels],
    settings: Settings = Settings(),
    report: Callable[[str], None] = lambda _: None,
) -> tuple[list[Trained], dict[str, Learned]]:
    """Corrections for every architecture and format of ``parts``.

    Returns:
        Their descriptions, and by key their arrays.
    """
    groups: dict[tuple[str, str], list[MeasuredKernels]] = {}
    for part in parts:
        device = find_device(part.device)
        groups.setdefault((device.architecture, part.batch.variant.dtype), []).append(part)
    described: list[Trained] = []
    table: dict[str, Learned] = {}
    for (architecture, dtype), members in sorted(groups.items()):
        key = f"{dtype}.{architecture}"
        trained = _train_one(model, key, architecture, dtype, members, settings)
        if trained is None:
            continue
        described.append(trained[0])
        table[key] = trained[1]
        report(f"{model.family} {key}: {trained[0].scores}")
    return described, table


def _train_one(
    model: Implementation,
    key: str,
    architecture: str,
    dtype: str,
    parts: Sequence[MeasuredKernels],
    settings: Settings,
) -> tuple[Trained, Learned] | None:
    devices = sorted({part.device for part in parts})
    names = all_names(model, [(part.batch, find_device(part.device)) for part in parts])
    releases = sorted({_release(part) for part in parts})
    table = _joined([_table(model, part, names, devices, releases) for part in parts])
    fit = ~table.held_out
    if int(fit.sum()) < MIN_ROWS:
        return None
    trees = train_forest(table.columns[:, fit], table.target[fit], settings=settings)
    left = trees.evaluate(table.columns) - table.target
    scored = table.held_out & ~table.blank if table.held_out.any() else ~table.blank
    blank = table.blank & (table.held_out if table.held_out.any() else True)
    shared = device_sd(left[scored], table.device[scored], len(devices))
    if not _better(left[scored], table.target[scored]):
        return None
    ceiling = _ceiling(trees.common.bins, table, fit, names)
    spread = spread_of(trees.common.bins, table.columns[:, fit], table.target[fit])
    usual = np.exp(spread.evaluate(table.columns))
    apart = (left - _medians(left, table.device, scored)) / usual
    above = ceiling.evaluate(without_who(table.columns[:, scored], names)) > table.target[scored]
    campaign, release = _other_release(table, fit, usual, len(releases), settings)
    trained = Trained(
        key=key,
        architecture=architecture,
        dtypes=[dtype],
        devices=[find_device(name).name for name in devices],
        features=list(names),
        log_sd=normal_sd(apart[scored]),
        blank_log_sd=normal_sd(left[blank] / usual[blank]) if blank.any() else 0.0,
        shared_log_sd=shared,
        device_log_sd=max(UNSEEN_DEVICE_FLOOR, _unseen(table, fit, devices, settings)),
        rows=int(fit.sum()),
        scores={
            "analytic": round(mean_ape(-table.target[scored]), 2),
            "learned": round(mean_ape(left[scored]), 2),
            "rows": int(scored.sum()),
            "quicker_than_ceiling": round(100.0 * float(above.mean()), 1),
        },
        campaign_log_sd=campaign,
        release_log_sd=release,
    )
    return trained, Learned(trees, ceiling, spread, _ranges(table.columns[:, fit]))


def _release(part: MeasuredKernels) -> str:
    """Library and version; kernels of one have their errors in common."""
    return f"{part.batch.variant.library} {part.batch.variant.version}"


def _ceiling(
    bins: U8, table: _TrainingRows, fit: NDArray[np.bool_], names: tuple[str, ...]
) -> Trees:
    """Trees of the low quantile of time, whoever provides the kernel."""
    named = fit & ~table.blank
    columns = without_who(table.columns[:, named], names)
    return train_quantile(bins, columns, table.target[named], QUANTILE, OF_CEILING)


def _other_release(
    table: _TrainingRows, fit: NDArray[np.bool_], usual: F64, releases: int, settings: Settings
) -> tuple[float, float]:
    """How far trees are off on a release that they never saw: together, and row by row.

    The root mean square over releases of their median error, and the sd of the rest; zeros where
    fewer than two releases have rows enough.
    """
    medians: list[float] = []
    deviations: list[F64] = []
    quick = replace(settings, trees=max(20, settings.trees // 2))
    for number in range(releases):
        mine = table.release == number
        train_rows = fit & ~mine
        here = table.held_out & mine & ~table.blank
        if int(train_rows.sum()) < MIN_ROWS or int(here.sum()) < FEWEST_OF_RELEASE:
            continue
        train_table = table.take(train_rows)
        trees = train(train_table.columns, train_table.target, settings=quick)
        left = trees.evaluate(table.columns[:, here]) - table.target[here]
        medians.append(float(np.median(left)))
        deviations.append((left - medians[-1]) / usual[here])
    if len(medians) < 2:
        return 0.0, 0.0
    return float(np.sqrt(np.mean(np.square(medians)))), normal_sd(np.concatenate(deviations))


def _table(
    model: Implementation,
    part: MeasuredKernels,
    names: tuple[str, ...],
    devices: list[str],
    releases: list[str],
) -> _TrainingRows:
    """One part's rows, and a share of them again as if the library had not been named."""
    device = find_device(part.device)
    times = model.times(part.batch, device)
    columns = Kernels.from_analysis(model, times.analysis, part.batch, device).table(names)
    count = len(part.batch)
    named = _TrainingRows(
        columns=columns,
        target=np.log(part.seconds / times.estimate_s),
        held_out=part.held_out,
        device=np.full(count, devices.index(part.device)),
        release=np.full(count, releases.index(_release(part))),
        blank=np.zeros(count, dtype=np.bool_),
    )
    who = [row for row, name in enumerate(names) if name.startswith(WHO)]
    if not columns[who].any():
        return named
    blank_rows = np.arange(0, count, round(1.0 / BLANK_SHARE))
    bare = columns[:, blank_rows]
    bare[who] = 0.0
    unnamed = _TrainingRows(
        bare,
        named.target[blank_rows],
        named.held_out[blank_rows],
        named.device[blank_rows],
        named.release[blank_rows],
        ~named.blank[blank_rows],
    )
    return _joined([named, unnamed])


def _joined(tables: Sequence[_TrainingRows]) -> _TrainingRows:
    return _TrainingRows(
        columns=np.concatenate([t.columns for t in tables], axis=1),
        target=np.concatenate([t.target for t in tables]),
        held_out=np.concatenate([t.held_out for t in tables]),
        device=np.concatenate([t.device for t in tables]),
        release=np.concatenate([t.release for t in tables]),
        blank=np.concatenate([t.blank for t in tables]),
    )


def _unseen(
    table: _TrainingRows, fit: NDArray[np.bool_], devices: list[str], settings: Settings
) -> float:
    """How far trees of the other devices are off on one that they never saw, at worst; 0 with one
    device.
    """
    left_out = _left_out(table, fit, len(devices), settings)
    return max((float(abs(np.median(left))) for left in left_out.values()), default=0.0)


def _left_out(
    table: _TrainingRows, fit: NDArray[np.bool_], devices: int, settings: Settings
) -> dict[int, F64]:
    """Number of a device -> logs of predicted over measured time of its rows that are held out,
    by trees of the other devices.
    """
    left_out: dict[int, F64] = {}
    if devices < 2:
        return left_out
    quick = replace(settings, trees=max(20, settings.trees // 4))
    for number in range(devices):
        train_rows = fit & (table.device != number)
        here = table.held_out & (table.device == number) & ~table.blank
        if int(train_rows.sum()) < MIN_ROWS or not here.any():
            continue
        trees = train(table.columns[:, train_rows], table.target[train_rows], settings=quick)
        left_out[number] = trees.evaluate(table.columns[:, here]) - table.target[here]
    return left_out


@final
@dataclass(frozen=True)
class HeldOutLogs:
    """Logs of predicted over measured time of a device's rows that are held out, shape (n,).

    Attributes:
        unseen: by corrections that were learned on the other devices of the architecture; seen: by
            those that were learned on all of them, in the same way.
    """

    unseen: F64
    seen: F64


def devices_left_out(
    model: Implementation, parts: Sequence[MeasuredKernels], settings: Settings = Settings()
) -> dict[str, HeldOutLogs]:
    """Each device of ``parts``, which are of one architecture and format, as if not measured."""
    devices = sorted({part.device for part in parts})
    names = all_names(model, [(part.batch, find_device(part.device)) for part in parts])
    releases = sorted({_release(part) for part in parts})
    table = _joined([_table(model, part, names, devices, releases) for part in parts])
    fit = ~table.held_out
    left_out = _left_out(table, fit, len(devices), settings)
    if not left_out:
        return {}
    quick = replace(settings, trees=max(20, settings.trees // 4))
    trees = train(table.columns[:, fit], table.target[fit], settings=quick)
    left = trees.evaluate(table.columns) - table.target
    scored = table.held_out & ~table.blank
    return {
        devices[number]: HeldOutLogs(unseen, left[scored & (table.device == number)])
        for number, unseen in left_out.items()
    }


def _ranges(columns: F64) -> NDArray[np.int64]:
    feature_codes = codes(columns)
    return np.stack([feature_codes.min(axis=1), feature_codes.max(axis=1)], axis=1)


def _medians(left: F64, device: NDArray[np.int64], scored: NDArray[np.bool_]) -> F64:
    """Per row the median error of its device's scored rows."""
    medians = np.zeros(len(left))
    for number in np.unique(device[scored]):
        medians[device == number] = np.median(left[scored & (device == number)])
    return medians


def device_sd(left: F64, device: NDArray[np.int64], devices: int) -> float:
    """Median error of a device's rows, root mean square over the devices."""
    medians = [float(np.median(left[device == n])) for n in range(devices) if (device == n).any()]
    return max(SHARED_FLOOR, float(np.sqrt(np.mean(np.square(medians)))))


def normal_sd(left: F64) -> float:
    """The sd of the normal law that has the same share of errors inside its 90 % interval."""
    return float(np.quantile(np.abs(left), 0.9)) / Z90


def mean_ape(left: F64) -> float:
    """Mean absolute error of times whose logarithms are off by ``left``, percent."""
    return float(100.0 * np.abs(np.exp(left) - 1.0).mean())


def _better(left: F64, target: F64) -> bool:
    return mean_ape(left) < mean_ape(-target)
