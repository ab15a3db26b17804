"""What known devices take for the architectures of a space: ``catalog/edge/<space>.json``.

A device's latency is linear in the indicators of choices, see
:meth:`~silicast.workload.spaces.ArchitectureSpace.features`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import final

import numpy as np

from silicast.core.calibrated import Blended
from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError
from silicast.core.naming import normalise
from silicast.core.numerics import F64, I64
from silicast.hardware.index import device_names
from silicast.kernels.physics.constants import PhysicsCard
from silicast.learning.few_samples import best_samples, even_weights
from silicast.workload.spaces import ArchitectureSpace, space_named

FOLDER = CATALOG / "edge"
FLOOR = 0.05
"""Of the quickest sample, below which no prediction goes."""


@final
class KnownDevice(Strict, frozen=True):
    """One device whose latencies were published.

    Attributes:
        name: as its source names it, batch size at the end where it is one.
        group: relatives share one: a chip's family.
        median_ms: over the space.
        weights: of the space's features, over the median.
    """

    name: str
    group: str
    median_ms: float
    weights: list[float]


@final
class KnownLatencies(Strict, frozen=True):
    """All known devices of one space.

    Attributes:
        kernel_medians: of :meth:`~ArchitectureSpace.kernel_work` over the space.
    """

    format: int
    card: PhysicsCard
    kernel_medians: list[float]
    devices: list[KnownDevice]

    def without(self, groups: Collection[str]) -> KnownLatencies:
        """Without some groups of devices."""
        devices = [device for device in self.devices if device.group not in groups]
        return KnownLatencies(self.format, self.card, self.kernel_medians, devices)

    @property
    def groups(self) -> list[str]:
        """The group of each device."""
        return [device.group for device in self.devices]

    @property
    def usual_ms(self) -> tuple[float, float]:
        """Least and greatest median of devices."""
        medians = [device.median_ms for device in self.devices]
        return min(medians), max(medians)

    def of_devices(self, space: ArchitectureSpace, choices: I64) -> F64:
        """Latencies over each device's median, (n, D), none below a hundredth."""
        columns = [space.latencies(choices, np.array(device.weights)) for device in self.devices]
        return np.maximum(np.stack(columns, axis=1), 0.01)

    def of_kernels(self, space: ArchitectureSpace, choices: I64) -> F64:
        """Work over its medians, (n, K)."""
        relative: F64 = space.kernel_work(choices) / np.array(self.kernel_medians)
        return relative


@cache
def known_latencies(space: str) -> KnownLatencies:
    """The shipped file of a space."""
    file = f"{space}.json"
    return decode_json(
        (FOLDER / file).read_bytes(), KnownLatencies, file=str(FOLDER / file), page="docs/adr/0028"
    )


def table_device(space: str, device: str) -> str | None:
    """The device of a space's table that a name means, by its name there or by a name of the
    catalog for the same board; tables of larger batches are meant by their names alone.

    >>> table_device("fbnet", "GeForce RTX 2080 Ti"), table_device("fbnet", "RTX 4090")
    ('2080ti_1', None)
    """
    names = [entry.name for entry in known_latencies(space).devices]
    boards = device_names()
    board = boards.canonical(device) if device in boards else None
    for name in names:
        if normalise(name) == normalise(device):
            return name
    for name in names:
        stem = name.removesuffix(ALONE)
        if board is not None and stem in boards and boards.canonical(stem) == board:
            return name
    return None


def own_table(space: ArchitectureSpace, device: str) -> Blended | None:
    """What a known device takes itself, see :func:`table_device`; None = it is not known in the
    space.

    >>> own_table(space_named("fbnet"), "Pixel 3").devices.keys()
    dict_keys(['pixel3'])
    """
    latencies, meant = known_latencies(space.name), table_device(space.name, device)
    for entry in latencies.devices:
        if entry.name == meant:
            errors = latencies.card.scores[FITTED_ERRORS]
            log_sd = max(WIDER * errors[entry.name] / 100.0 / MEDIAN_OF_NORMAL, LEAST_LOG_SD)
            return Blended(
                space=space.name,
                devices={entry.name: entry.median_ms},
                kernels={},
                log_sd=log_sd,
                rows=1,
                least_ms=FLOOR * entry.median_ms,
                most_ms=entry.median_ms / FLOOR,
            )
    return None


ALONE = "_1"
"""End of the name of a device whose table is of batches of one, where it has others too."""
FITTED_ERRORS = "median_error_pct of rows fitted"
"""Scores of a card: device -> median error."""
WIDER, MEDIAN_OF_NORMAL, LEAST_LOG_SD = 1.5, 0.6745, 0.02
"""Tails of these errors are wider than a normal distribution's of that median."""


def blended_ms(blend: Blended, choices: I64) -> F64:
    """Latencies of architectures under a blend, (n,), in ms.

    All weights are put into one vector first, so that a million architectures take seconds.

    Raises:
        SilicastError: it names a device or a kind of kernel that is not known here.
    """
    space, table = space_named(blend.space), known_latencies(blend.space)
    weights = {device.name: np.array(device.weights) for device in table.devices}
    unknown = [*(set(blend.devices) - set(weights)), *(set(blend.kernels) - set(space.kernels))]
    if unknown:
        raise SilicastError(
            f"names {', '.join(sorted(unknown))[:120]}, which this version does not know",
            field="calibration.blends",
            hint="make it again with silicast calibrate",
        )
    total = np.zeros(space.columns)
    for name, share in sorted(blend.devices.items()):
        total += share * weights[name]
    latencies = space.latencies(choices, total)
    if blend.kernels:
        times = np.array([blend.kernels.get(kind, 0.0) for kind in space.kernels])
        latencies = latencies + table.of_kernels(space, choices) @ times
    floor: F64 = np.maximum(latencies, FLOOR * blend.least_ms)
    return floor


def usual_ranks(space: ArchitectureSpace, choices: I64) -> F64:
    """An amount that grows with the latency on a device of which nothing is known, (n,)."""
    latencies = known_latencies(space.name)
    usual: F64 = latencies.of_devices(space, choices) @ even_weights(latencies.groups)
    return usual


CANDIDATES = 2048
"""Networks that those to measure are drawn from, and that draws are judged by."""
CENTRAL = (0.1, 0.9)
"""Quantiles of what known devices take, between which networks are measured."""


def worth_measuring(space: ArchitectureSpace, latencies: KnownLatencies, count: int) -> I64:
    """Networks to measure on a new device, (count, positions), from quick to slow.

    See :func:`~silicast.learning.few_samples.best_samples`.
    """
    choices = space.every(CANDIDATES, 0)
    devices, kernels = latencies.of_devices(space, choices), latencies.of_kernels(space, choices)
    usual = devices @ even_weights(latencies.groups)
    low, high = np.quantile(usual, CENTRAL)
    inside = np.flatnonzero((usual >= low) & (usual <= high))
    best = best_samples(devices, kernels, latencies.groups, inside, count, space.pulls)
    return choices[best[np.argsort(usual[best], kind="stable")]]
