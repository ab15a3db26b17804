"""Candidate kernels of a sweep.

They fill the ranges of an op evenly by a sequence of low discrepancy in the logs of sizes. Point i
has the coordinates ``frac(start + i x powers of 1 / g)``, g the root of g^(d+1) = g + 1 (Roberts
2018): each further point falls into the largest gap, so that any first part of the sequence fills
the space too. Choices are coordinates like sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.core.errors import SilicastError, unknown_name, unsupported
from silicast.core.naming import near
from silicast.core.numerics import F64
from silicast.measurement.benches import BENCHES
from silicast.measurement.benches.bench import Bench
from silicast.measurement.benches.ranges import Ranges, Size
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns
from silicast.measurement.sweeps.budget import WEIGHTS
from silicast.measurement.sweeps.timing import as_timed, usual_protocol

CANDIDATES, MOST_CANDIDATES = 400, 4000
"""Least and most candidates of each op."""
CHOICE = 2.0
"""Candidates for each kernel that there is time for."""
QUICK_S = 0.15
"""Seconds of measuring a fast kernel."""
SEED = 1
TRIES = 30
"""Draws for each candidate: many are equal after rounding."""
UNALIGNED = 0.25
"""Share of the values of a size without a multiple that are used as drawn; the others become a
power of two or 1.5 times one, as most work has them."""


@final
@dataclass(frozen=True)
class KernelSelection:
    """Which kernels a sweep may measure.

    Attributes:
        families: ops; None = all that have a bench.
        dtypes: formats; None = those that the machine computes in.
        kernels: only these, instead of drawn ones.
    """

    families: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    kernels: tuple[Columns, ...] | None = None


def candidates_of(
    machine: MeasuredMachine, selection: KernelSelection, budget_s: float = 0.0, seed: int = SEED
) -> list[Columns]:
    """Kernels that a sweep of a machine chooses from, with launch and cache as they are timed.

    Args:
        budget_s: of the sweep; a longer one has more candidates.
        seed: of the draws; a continued file gets the same candidates.

    Raises:
        SilicastError: a family or format that cannot be measured here.
    """
    protocol = usual_protocol(machine)
    benches = _benches(selection.families)
    if selection.kernels is not None:
        kernels = _measurable(selection.kernels, benches)
        return [as_timed(kernel, machine, protocol) for kernel in kernels]
    _check_dtypes(machine, benches, selection.dtypes)
    columns: list[Columns] = []
    total = sum(WEIGHTS.get(op, 1.0) for op in benches)
    for op, bench in benches.items():
        share = WEIGHTS.get(op, 1.0) / total
        count = round(CHOICE * budget_s / QUICK_S * share)
        ranges = bench.ranges(machine)
        if selection.dtypes is not None:
            dtypes = [each for each in ranges.choices.get("dtype", ()) if each in selection.dtypes]
            if not dtypes:
                continue
            ranges = replace(ranges, choices={**ranges.choices, "dtype": dtypes})
        drawn = candidates_from(ranges, min(max(count, CANDIDATES), MOST_CANDIDATES), seed)
        columns += [as_timed(kernel, machine, protocol) for kernel in drawn]
    return columns


def _measurable(kernels: tuple[Columns, ...], benches: Mapping[str, Bench]) -> list[Columns]:
    columns = [kernel for kernel in kernels if kernel["op"] in benches]
    if not columns:
        ops = ", ".join(sorted({str(kernel["op"]) for kernel in kernels})) or "none"
        raise unsupported(
            f"none of the scenario's kernels can be measured here: {ops}",
            "--scenario",
            f"measured are {', '.join(benches)}",
        )
    return columns


def _benches(families: tuple[str, ...] | None) -> Mapping[str, Bench]:
    for name in families or ():
        if name not in BENCHES:
            raise unknown_name(
                f"{name[:60]!r} cannot be measured here", "--families", near(name, BENCHES)
            )
    return {op: bench for op, bench in BENCHES.items() if families is None or op in families}


def _check_dtypes(
    machine: MeasuredMachine, benches: Mapping[str, Bench], dtypes: tuple[str, ...] | None
) -> None:
    measurable = {
        str(dtype)
        for bench in benches.values()
        for dtype in bench.ranges(machine).choices.get("dtype", ())
    }
    for dtype in dtypes or ():
        if dtype not in measurable:
            raise SilicastError(
                f"{dtype[:40]!r} cannot be measured on this machine",
                field="--dtypes",
                hint=f"one of {', '.join(sorted(measurable))}",
            )


def candidates_from(ranges: Ranges, count: int, seed: int) -> list[Columns]:
    """Different kernels, evenly spread; fewer than ``count`` where the ranges hold no more.

    Args:
        seed: of the start of the sequence.

    >>> from silicast.measurement.benches.ranges import Ranges, Size
    >>> two = Ranges("softmax", {"rows": Size(1, 64), "cols": Size(8, 8)}, {"dtype": ("fp32",)})
    >>> candidates_from(two, 3, 0)[0]["cols"]
    8
    """
    names = (*ranges.sizes, *ranges.choices)
    sequence = _Sequence(len(names) + 1, seed)
    table: dict[tuple[object, ...], Columns] = {}
    for number in range(TRIES * count):
        if len(table) == count:
            break
        point = dict(zip((*names, ""), sequence.point(number).tolist(), strict=True))
        drawn: dict[str, object] = {
            name: _value(size, point[name], aligned=_fraction(point[""], index) >= UNALIGNED)
            for index, (name, size) in enumerate(ranges.sizes.items())
        }
        for name, values in ranges.choices.items():
            drawn[name] = values[min(int(point[name] * len(values)), len(values) - 1)]
        kernel = ranges.kernel(drawn)
        table.setdefault(tuple(sorted((k, str(v)) for k, v in kernel.items())), kernel)
    return list(table.values())


class _Sequence:
    """Roberts' sequence from a random start."""

    def __init__(self, dimensions: int, seed: int) -> None:
        root = 2.0
        for _ in range(64):
            root = (1.0 + root) ** (1.0 / (dimensions + 1))
        self._steps = root ** -np.arange(1.0, dimensions + 1.0)
        self._start = np.random.default_rng(seed).random(dimensions)

    def point(self, number: int) -> F64:
        """Coordinates from 0 to 1."""
        return np.mod(self._start + number * self._steps, 1.0)


def _fraction(value: float, index: int) -> float:
    """Another number from 0 to 1 for each size."""
    return math.modf(value * (index + 1) * 97.0)[0]


def _value(size: Size, share: float, *, aligned: bool) -> float:
    if size.low >= size.high:
        return size.low
    if size.scale == "linear":
        return size.low + share * (size.high - size.low)
    value = math.exp(math.log(max(size.low, 1)) + share * math.log(size.high / max(size.low, 1)))
    if aligned and size.multiple < 8:
        power = 2.0 ** math.floor(math.log2(value))
        value = min((power, 1.5 * power, 2.0 * power), key=lambda near: abs(near - value))
    return value
