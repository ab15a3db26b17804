"""Streaming kernels' rows under any constants: their errors, and how these are spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis
from silicast.kernels.movement.streaming import SCALAR, Stream, Streamed, analyse_stream
from silicast.kernels.movement.streaming_rates import StreamingRates

LONG_US = 20.0


@dataclass(frozen=True)
class Case:
    """A group of rows, ready to be evaluated under any constants."""

    rows: MeasuredRows
    device: Device
    stream: Stream
    scalar: bool

    @staticmethod
    def of(rows: MeasuredRows) -> Case:
        """The rows with their device and what their ops move."""
        kernel, variant = rows.model, rows.batch.variant
        assert isinstance(kernel, Streamed)
        stream = kernel.stream(rows.batch.dims, variant)
        return Case(rows, rows.hardware, stream, kernel.is_scalar(variant))

    @property
    def source(self) -> str:
        return self.rows.words["source"]

    @property
    def family(self) -> str:
        return self.rows.batch.family

    @property
    def eager(self) -> bool:
        return self.rows.batch.variant.launch == "stream"

    def analyse(self, shared: Mapping[str, float], tables: Tables) -> Analysis:
        """Of each row, under any constants; not yet held above the bound."""
        constants = {**shared, **tables.get(self.device.architecture, {})}
        style = SCALAR if self.scalar else ""
        rates = StreamingRates.from_device(self.device, self.family, constants, style=style)
        return analyse_stream(self.stream, self.rows.batch.variant, rates)

    def log_ratio(self, shared: Mapping[str, float], architectures: Tables) -> F:
        """log(estimate / measured) per row."""
        return np.log(self.analyse(shared, architectures).time_s / self.rows.seconds)


def thin(rows: MeasuredRows, count: int) -> MeasuredRows:
    """A deterministic subsample of at most ``count`` rows."""
    total = len(rows)
    if total <= count:
        return rows
    return rows.take(np.random.default_rng(0).permutation(total)[:count])


def cases_of(parts: Sequence[MeasuredRows], count: int) -> list[Case]:
    """At most ``count`` rows of each part."""
    return [Case.of(thin(rows, count)) for rows in parts]


def error_sizes(
    cases: Sequence[Case], shared: Mapping[str, float], architectures: Tables
) -> Constants:
    """Log sd of the errors of ``cases``, train rows that these constants were not fitted on.

    The bias of a whole group (one source, device and kind) is what its rows share, half of its
    variance put down to the device and half to the family; the rest is each row's own, larger
    where the kernel mostly waits. Both are then scaled so that nine tenths of the rows lie within
    their 90 % interval; kinds of one source and family weigh together what any other does.
    """
    eager = [case for case in cases if case.eager]
    others = [case for case in cases if not case.eager]
    residuals, waiting, weights = residuals_of(others, shared, architectures)
    biases = np.array([np.median(error) ** 2 for error in residuals])
    group_weights = np.array([part[0] * len(part) for part in weights])
    common = float(np.sqrt(np.average(biases, weights=group_weights)))
    away = [np.abs(error - np.median(error)) for error in residuals]
    busy = [np.mean(c[w < 0.3]) for c, w in zip(away, waiting, strict=True) if (w < 0.3).any()]
    idle = [np.mean(c[w > 0.7]) for c, w in zip(away, waiting, strict=True) if (w > 0.7).any()]
    # the mean absolute deviation of a normal error is 0.8 of its sd
    alone, small = float(np.mean(busy)) / 0.8, float(np.mean(idle)) / 0.8
    sizes = (common, alone, max(small - alone, 0.0))
    factor = covering(residuals, waiting, weights, sizes)
    return {
        "device_log_sd": common * factor / np.sqrt(2.0),
        "family_log_sd": common * factor / np.sqrt(2.0),
        "own_log_sd": alone * factor,
        "small_log_sd": sizes[2] * factor,
        "eager_error": covering(*residuals_of(eager, shared, architectures), sizes) / factor,
    }


Parts = list[F]


def residuals_of(
    cases: Sequence[Case], shared: Mapping[str, float], tables: Tables
) -> tuple[Parts, Parts, Parts]:
    """Log residuals, share of the time spent waiting, and weights of the rows of each case."""
    kinds = Counter((case.source, case.family) for case in cases)
    residuals, waiting, weights = [], [], []
    for case in cases:
        residuals.append(case.log_ratio(shared, tables))
        waiting.append(1.0 - np.asarray(case.analyse(shared, tables).features["busy_share"]))
        count, share = len(case.rows), kinds[case.source, case.family]
        weights.append(np.full(count, 1.0 / count / share))
    return residuals, waiting, weights


def covering(
    residuals: Parts, waiting: Parts, weights: Parts, sizes: tuple[float, float, float]
) -> float:
    """By what the error sizes must be scaled for 90 % intervals to hold 90 % of the rows."""
    common, alone, small = sizes
    error, wait, weight = (np.concatenate(parts) for parts in (residuals, waiting, weights))
    scaled = np.abs(error) / np.sqrt(common**2 + (alone + small * wait) ** 2)
    order = np.argsort(scaled)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(scaled[order][np.searchsorted(reached, 0.9)]) / Z90


def score(cases: Sequence[Case], shared: Mapping[str, float], architectures: Tables) -> Tables:
    """Mean APE, bias and coverage-relevant spread per source, family and device."""
    scores: Tables = {}
    for case in cases:
        error = case.log_ratio(shared, architectures)
        v = case.rows.batch.variant
        kind = "+".join(name for name, _ in v.flags)
        words = (case.source, case.family, v.library, kind, case.device.name)
        key = "/".join(part for part in words if part)
        while key in scores:
            key += "'"
        off = np.abs(np.expm1(error))
        long = off[case.rows.seconds >= LONG_US * 1e-6]  # the others are too short for some clocks
        scores[key] = {
            "rows": float(len(error)),
            "mean_ape": round(float(np.mean(off)) * 100, 1),
            "median_ape": round(float(np.median(off)) * 100, 1),
            **({"median_ape_long": round(float(np.median(long)) * 100, 1)} if len(long) else {}),
            "bias_pct": round(float(np.expm1(np.mean(error))) * 100, 1),
            "log_sd": round(float(np.std(error)), 3),
        }
        print(f"{key:70s}", scores[key])
    return scores


def summary(scores: Tables) -> Constants:
    """Mean APE (%) of the held-out rows of each source and family, for the card."""
    sums: dict[str, tuple[float, float]] = {}
    for key, figures in scores.items():
        name = "/".join(key.split("/")[:2])
        rows, error = sums.get(name, (0.0, 0.0))
        sums[name] = (rows + figures["rows"], error + figures["rows"] * figures["mean_ape"])
    return {f"{name} mean_ape": round(error / rows, 1) for name, (rows, error) in sums.items()}
