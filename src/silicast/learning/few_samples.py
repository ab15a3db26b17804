"""A new device's latencies from a few of its own: other devices' combine without negative weights.

The latency of a network is a sum of what known devices would take and of its work by kinds of
kernel, each times a weight that is not negative. Weights of devices are pulled toward an even mean
over their groups, those of kernels toward nothing, the harder the noisier the samples are; samples
far off weigh less (Huber's loss on relative errors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64

ROUNDS = 8
"""Of weighing samples anew; the noise settles after four or so."""
USUAL_PULLS: Final = (0.1, 0.4)
"""How hard weights of devices and of kernels are pulled where no space says it."""
PULL_NOISE = 0.07
"""The relative noise at which they are pulled so hard."""
HUBER = 1.3
"""Relative errors beyond so many standard deviations weigh by their size, not its square."""
LEAST_NOISE, MOST_NOISE = 0.015, 0.3
FREEDOM = 2.5
"""Samples that the weights use up, for the noise of the rest."""
USUAL_LOG_SD, USUAL_SAMPLES = 0.15, 6.0
"""What devices left out showed of networks not sampled, and how many samples that is worth."""
FEWEST: Final = 3
"""Samples below which only the level is fitted."""
LEVEL_LOG_SD = 0.3
"""Of networks where one or two samples give the level alone."""
STRAY = 1.0
"""Natural log of measured over fitted from which a sample is named: 2.7 times off."""
SAME = 1.3
"""Two measurements of one network further apart than this contradict each other."""
DRAWS = 16
"""Sets of networks that are tried to advise one."""
FAR = 30.0
"""A level so far outside what known devices take is another unit."""


@final
@dataclass(frozen=True)
class Blend:
    """What a few samples came to.

    Attributes:
        devices: weight of each known device, (D,), in its own unit of time.
        kernels: time of each unit of work, (K,).
        log_sd: standard deviation of log(measured / predicted) of a network not sampled.
        strays: samples that the rest contradicts.
    """

    devices: F64
    kernels: F64
    log_sd: float
    strays: tuple[int, ...]

    def predict(self, devices: F64, kernels: F64) -> F64:
        """Latencies, (n,), from those of known devices (n, D) and work (n, K)."""
        total: F64 = devices @ self.devices + kernels @ self.kernels
        return total


def even_weights(groups: Sequence[str]) -> F64:
    """Weights of devices that give each group of relatives the same, (D,); they sum to 1.

    >>> even_weights(["gpu", "gpu", "cpu"]).tolist()
    [0.25, 0.25, 0.5]
    """
    counts = np.array([groups.count(group) for group in groups], dtype=np.float64)
    weights: F64 = 1.0 / (counts * len(set(groups)))
    return weights


def fit_blend(
    devices: F64, kernels: F64, even: F64, latencies: F64, pulls: tuple[float, float] = USUAL_PULLS
) -> Blend:
    """Fits a blend to samples of a device.

    Args:
        devices: latencies of the sampled networks on known devices, (n, D), each column over its
            median of the whole space.
        kernels: their work, (n, K), likewise over medians.
        even: weights toward which those of devices are pulled, (D,), that sum to 1.
        latencies: measured, (n,), above zero.
        pulls: how hard weights of devices and of kernels are pulled.

    Raises:
        SilicastError: no sample.
    """
    if not len(latencies):
        raise SilicastError("no sample", field="samples", hint="ten networks are enough")
    level = float(np.median(latencies / (devices @ even)))
    if len(latencies) < FEWEST:
        return Blend(level * even, np.zeros(kernels.shape[1]), LEVEL_LOG_SD, ())
    columns = np.concatenate([devices, kernels], axis=1) * (level / latencies)[:, None]
    prior = np.concatenate([even, np.zeros(kernels.shape[1])])
    pull = np.concatenate(
        [pulls[0] / np.sqrt(even * len(even)), np.full(kernels.shape[1], pulls[1])]
    )
    weights, noise = prior, PULL_NOISE
    trust = np.ones(len(latencies))
    for step in range(ROUNDS):
        held = pull * (min(max(noise, 0.02), MOST_NOISE) / PULL_NOISE)
        rows = np.concatenate([columns * np.sqrt(trust)[:, None], np.diag(held)])
        weights = nonnegative(rows, np.concatenate([np.sqrt(trust), held * prior]))
        errors = columns @ weights - 1.0
        seen = _noise(errors)
        noise = seen if step < 2 else 0.5 * (noise + seen)
        trust = 1.0 / np.maximum(1.0, np.abs(errors) / (HUBER * noise))
    count = len(even)
    fitted = np.maximum(columns @ weights, 1e-9)
    strays = np.flatnonzero(np.abs(np.log(fitted)) > STRAY)
    return Blend(
        level * weights[:count],
        level * weights[count:],
        _log_sd(noise, len(latencies)),
        tuple(int(stray) for stray in strays),
    )


def _noise(errors: F64) -> float:
    """Robust standard deviation of relative errors, for the freedom that the fit used up."""
    count = len(errors)
    usual = 1.4826 * float(np.median(np.abs(errors)))
    return max(usual * float(np.sqrt(count / max(count - FREEDOM, 0.5))), LEAST_NOISE)


def _log_sd(noise: float, samples: int) -> float:
    """Of networks not sampled: what the samples show, and what other devices did."""
    seen = samples * noise**2 + USUAL_SAMPLES * USUAL_LOG_SD**2
    return float(np.sqrt(seen / (samples + USUAL_SAMPLES)))


def nonnegative(rows: F64, values: F64) -> F64:
    """The x >= 0 for which ``rows @ x`` is nearest to ``values`` (Lawson and Hanson, 1974).

    Args:
        rows: (n, m) of full column rank; values: (n,).

    >>> nonnegative(np.eye(2), np.array([1.0, -1.0])).tolist()
    [1.0, 0.0]
    """
    products, sides = rows.T @ rows, rows.T @ values
    count = rows.shape[1]
    x, free = np.zeros(count), np.zeros(count, dtype=bool)
    limit = 1e-10 * max(float(np.abs(sides).max()), 1e-30)
    for _ in range(3 * count):
        slope = np.where(free, -np.inf, sides - products @ x)
        best = int(np.argmax(slope))
        if slope[best] <= limit:
            break
        free[best] = True
        x, free = _inside(products, sides, x, free)
    return x


def _inside(products: F64, sides: F64, x: F64, free: np.ndarray) -> tuple[F64, np.ndarray]:
    """The best x of the free entries alone, entries that would turn negative taken out."""
    while True:
        at = np.flatnonzero(free)
        trial = np.zeros_like(x)
        trial[at] = np.linalg.solve(products[np.ix_(at, at)], sides[at])
        if trial[at].min() > 0.0:
            return trial, free
        falling = at[trial[at] <= 0.0]
        steps = x[falling] / np.maximum(x[falling] - trial[falling], 1e-300)
        x = np.maximum(x + float(steps.min()) * (trial - x), 0.0)
        free = free.copy()
        free[falling[steps <= steps.min()]] = False
        x[~free] = 0.0


def best_samples(
    devices: F64,
    kernels: F64,
    groups: Sequence[str],
    among: I64,
    count: int,
    pulls: tuple[float, float] = USUAL_PULLS,
) -> I64:
    """Which networks to measure on a new device, rows of the tables, (count,).

    Of sets drawn at random, the one that would have predicted known devices best, each from the
    devices that are no relatives of it. Sets chosen by the variance of a linear model do worse
    than random ones: they pick networks that no device's model describes well.

    Args:
        devices, kernels, groups: as of :func:`fit_blend` and :func:`even_weights`.
        among: rows that may be picked.
        pulls: as of :func:`fit_blend`.
    """
    first = {group: list(groups).index(group) for group in groups}
    draw = np.random.default_rng(0)
    tried: list[tuple[float, I64]] = []
    for _ in range(DRAWS):
        at = np.sort(draw.choice(among, min(count, len(among)), replace=False))
        off = [_error(devices, kernels, groups, sample, at, pulls) for sample in first.values()]
        tried.append((float(np.mean(off)), at))
    return min(tried, key=lambda trial: trial[0])[1]


def _error(
    devices: F64,
    kernels: F64,
    groups: Sequence[str],
    target: int,
    at: I64,
    pulls: tuple[float, float],
) -> float:
    """Mean |log| error of a known device from samples of it and devices that are no relatives."""
    others = [i for i, group in enumerate(groups) if group != groups[target]]
    even = even_weights([groups[i] for i in others])
    blend = fit_blend(devices[at][:, others], kernels[at], even, devices[at, target], pulls)
    predicted = np.maximum(blend.predict(devices[:, others], kernels), 1e-6)
    return float(np.mean(np.abs(np.log(predicted / devices[:, target]))))


def check_samples(names: Sequence[str], latencies: F64, usual: tuple[float, float]) -> None:
    """Refuses samples that cannot be right.

    Args:
        names: of the networks; latencies: in ms.
        usual: least and greatest latency that known devices take for such networks, ms.

    Raises:
        SilicastError: none or negative, equal for different networks, contradictory, or in another
            unit.
    """
    if not len(names):
        raise SilicastError("no sample", field="samples", hint="ten networks are enough")
    for row, value in enumerate(latencies, 1):
        if not np.isfinite(value) or value <= 0:
            raise SilicastError(
                f"a latency is a number above zero, found {value:g}", field=f"row {row}"
            )
    _check_unit(float(np.median(latencies)), usual)
    several = len(set(names))
    if several >= FEWEST and float(latencies.max()) == float(latencies.min()):
        raise SilicastError(
            f"{several} networks that differ all take {latencies[0]:g} ms",
            field="latency_ms",
            hint="was one measurement copied, or the timer too coarse?",
        )
    first: dict[str, float] = {}
    for row, (name, value) in enumerate(zip(names, latencies, strict=True), 1):
        first_value = first.setdefault(name, float(value))
        if max(value, first_value) > SAME * min(value, first_value):
            raise SilicastError(
                f"{name[:60]} takes {first_value:g} ms in one row and {value:g} ms in another",
                field=f"row {row}",
                hint="measure it again on a quiet device, and leave one of them out",
            )


def _check_unit(median: float, usual: tuple[float, float]) -> None:
    least, most = usual
    if least / FAR <= median <= most * FAR:
        return
    unit = "microseconds" if median > most else "seconds"
    usual_ms = (
        f"{least:.3g} to {most:.3g}" if f"{least:.3g}" != f"{most:.3g}" else f"about {most:.3g}"
    )
    raise SilicastError(
        f"the median is {median:g} ms, and known devices take {usual_ms} ms",
        field="latency_ms",
        hint=f"are they {unit}? name the column latency_{'us' if median > most else 's'} then",
    )


def tracks(devices: F64, groups: Sequence[str], latencies: F64) -> bool:
    """Whether networks that known devices are slow at are slow here: the ranks of samples agree
    more often than not. Of fewer than five samples, always.
    """
    if len(latencies) < 5:
        return True
    usual = devices @ even_weights(groups)
    pairs = np.sign(usual[:, None] - usual[None, :]) * np.sign(
        latencies[:, None] - latencies[None, :]
    )
    return float(pairs.sum()) > 0.0
