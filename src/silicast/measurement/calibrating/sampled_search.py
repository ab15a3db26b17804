"""Networks of a search space, ranked and searched for a device of which a few were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from silicast.core.calibrated import Blended
from silicast.core.calibration import load_calibration
from silicast.core.errors import SilicastError, errors_located
from silicast.core.naming import normalise
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Quantity
from silicast.exploration.network_search import Measure, RankedNetworks, ranked, search_networks
from silicast.formats.tables import read_table
from silicast.learning.known_latencies import blended_ms, known_latencies, own_table, usual_ranks
from silicast.measurement.calibrating.calibrate_samples import MODEL, blend_of, read_samples
from silicast.measurement.calibrating.priced_space import (
    FOR_RANKS,
    NO_BUDGET,
    PricedSpace,
    priced_space,
)
from silicast.workload.spaces import ArchitectureSpace, space_named

ACCURACY: Final = ("accuracy", "top1", "score")
"""Names of the column of a table of accuracies."""

MEASURED: Final = (
    "{} is {} of the {} table: answered by what was measured there, batches of one under the "
    "framework of that table"
)

Accuracy = Callable[[Sequence[str]], Sequence[float]]
"""Names of networks -> what is made as large as possible."""


@final
@dataclass(frozen=True)
class SampledSearch:
    """The best networks of a space for a device.

    Attributes:
        objective: what was made as large as possible.
        blend: what the samples came to; None = there is none.
        known: there is no sample, and the blend is of the space's own table of the device.
        priced: without either, what the kernels of a device of the catalog take; None = latencies
            are ranks alone.
        notes: what a user must know of the samples.
    """

    space: ArchitectureSpace
    device: str
    objective: str
    networks: RankedNetworks
    blend: Blended | None
    notes: tuple[str, ...]
    known: bool = False
    priced: PricedSpace | None = None

    @property
    def names(self) -> list[str]:
        """Of the networks, as every command takes them."""
        return [_name(self.space, each) for each in self.networks.choices.tolist()]

    def latency_ms(self, index: int) -> Quantity | None:
        """Of one network; None where there are ranks alone."""
        latency_ms = float(self.networks.latencies[index])
        if self.blend is not None:
            return Quantity.around(latency_ms, self.blend.log_sd)
        return None if self.priced is None else self.priced.quantity(latency_ms)


def search_space(
    space_name: str,
    device: str,
    samples: Sequence[Path] = (),
    *,
    budget_ms: float | None = None,
    accuracy: Path | Accuracy | None = None,
    evaluations: int = 20_000,
    count: int = 10,
    seed: int = 0,
) -> SampledSearch:
    """The networks of a space that are best within a budget of time on a device.

    Args:
        samples: tables of latencies of networks (columns ``model`` and ``latency_ms``), or
            calibrations made of such; () = what the space's own table holds of the device, else
            what its kernels take if the catalog has it, which is for ranks, else ranks by what
            other devices take.
        accuracy: a table of networks with their accuracy, of which the best are chosen, or a
            function of names; None = as many multiplications as the budget allows.
        evaluations: networks that a search looks at, at most.

    Raises:
        SilicastError: an unknown space, samples that cannot be right or of another space, a budget
            without samples of an unknown device, or a table without a network of the space.
    """
    space = space_named(space_name)
    blend, notes = _blend(space, samples)
    known = blend is None and (blend := own_table(space, device)) is not None
    priced = priced_space(space.name, device) if blend is None else None
    if known and blend is not None and normalise(device) not in map(normalise, blend.devices):
        notes = (*notes, MEASURED.format(device[:60], *blend.devices, space.name))
    if priced is not None:
        budgeted = () if budget_ms is None else (NO_BUDGET,)
        notes = (*notes, FOR_RANKS.format(space.name), *budgeted, *priced.notes)
    if blend is None and priced is None and budget_ms is not None:
        raise SilicastError(
            f"of {device[:60]} nothing is known: without samples networks are ranked, not timed",
            field="budget",
            hint="give latencies of about ten networks with --samples; silicast calibrate --advise "
            f"{space.name} says which; devices of the catalog (silicast devices) and "
            f"{', '.join(_known_names(space))} need none",
        )

    def latency(choices: I64) -> F64:
        if priced is not None:
            return priced.latencies(choices)
        return usual_ranks(space, choices) if blend is None else blended_ms(blend, choices)

    if isinstance(accuracy, Path):
        choices, values = _accuracies(space, accuracy)
        networks = ranked(choices, latency(choices), values, budget_ms, count)
    else:
        networks = search_networks(
            space,
            latency,
            _value(space, accuracy),
            budget_ms=budget_ms,
            evaluations=evaluations,
            count=count,
            seed=seed,
        )
    objective = "multiplications" if accuracy is None else "accuracy"
    return SampledSearch(space, device, objective, networks, blend, notes, known, priced)


def _blend(
    space: ArchitectureSpace, samples: Sequence[Path]
) -> tuple[Blended | None, tuple[str, ...]]:
    """What samples of the space came to, and notes."""
    if not samples:
        return None, ()
    calibrations = [path for path in samples if path.suffix.casefold() == ".json"]
    blends = {
        blend.space: blend for path in calibrations for blend in load_calibration(path).blends
    }
    notes: list[str] = []
    tables = [path for path in samples if path not in calibrations]
    for networks in read_samples(tables):
        if networks.space == space.name:
            try:
                blends[space.name], remarks = blend_of(networks)
            except SilicastError as error:
                raise error.located(error.field, ", ".join(map(str, tables))) from None
            notes += remarks
        else:
            blends.setdefault(networks.space, blend_of(networks)[0])
            count, of = len(networks.names), networks.space
            notes.append(f"{count} samples of {of} say nothing of {space.name}: left out")
    if space.name not in blends:
        raise SilicastError(
            f"are of {', '.join(sorted(blends)) or 'no space'}, not of {space.name}",
            field="samples",
            file=", ".join(map(str, samples)),
            hint=f"networks are named as {space.example[:50]}",
        )
    return blends[space.name], tuple(notes)


def _known_names(space: ArchitectureSpace) -> list[str]:
    """Devices of which the space's own table is shipped."""
    return [each.name for each in known_latencies(space.name).devices]


def _value(space: ArchitectureSpace, accuracy: Accuracy | None) -> Measure:
    """What a search makes as large as possible."""
    if accuracy is None:
        return space.multiplications

    def values(choices: I64) -> F64:
        names = [_name(space, each) for each in choices.tolist()]
        result = np.asarray(accuracy(names), dtype=np.float64)
        if result.shape != (len(names),) or not np.isfinite(result).all():
            raise SilicastError(
                f"expected {len(names)} finite numbers, found an array of shape {result.shape}",
                field="accuracy",
            )
        return result

    return values


def _accuracies(space: ArchitectureSpace, path: Path) -> tuple[I64, F64]:
    """Networks of a table and their accuracies."""
    choices, values = [], []
    for row in read_table(path):
        name = next((row.values[each] for each in MODEL if each in row.values), None)
        value = _number(row.values)
        if not isinstance(name, str) or value is None:
            raise SilicastError(
                f"expected columns {MODEL[0]} and {ACCURACY[0]}",
                field=f"row {row.number}",
                file=str(path),
                hint="a name of a network, and its accuracy",
            )
        with errors_located(f"row {row.number}: model", str(path)):
            choices.append(space.choices(name.removeprefix(f"{space.name}:")))
        values.append(value)
    if not choices:
        raise SilicastError("holds no network", field="accuracy", file=str(path))
    return np.array(choices, dtype=np.int64), np.array(values)


def _number(values: Mapping[str, object]) -> float | None:
    value = next((values[each] for each in ACCURACY if each in values), None)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _name(space: ArchitectureSpace, choices: Sequence[int]) -> str:
    return f"{space.name}:{space.text(choices)}"
