"""What a die costs: its area, the dies of a wafer, how many of them work, and the wafer's price."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.design.technology import between, cmos
from silicast.core.errors import SilicastError, unsupported
from silicast.core.prediction import Quantity


@final
@dataclass(frozen=True)
class Area:
    """Area of a design.

    Attributes:
        parts: level -> mm2 of all its instances.
        unknown: levels whose area nobody gave; the total lacks them.
    """

    parts: dict[str, float]
    unknown: tuple[str, ...]

    @property
    def mm2(self) -> float:
        return math.fsum(self.parts.values())


def area_of(architecture: Architecture) -> Area:
    """Area by level, from those of single instances."""
    parts: dict[str, float] = {}
    unknown = []
    levels = [
        (memory.name, memory.area_um2, count)
        for memory, count in zip(architecture.memories, architecture.instances, strict=True)
    ]
    compute = architecture.compute
    for name, area, count in (*levels, (compute.name, compute.area_um2, architecture.units)):
        if area is None:
            unknown.append(name)
        else:
            parts[name] = area * count / 1e6
    return Area(parts, tuple(unknown))


def dies_per_wafer(area_mm2: float, diameter_mm: float = 300.0) -> float:
    """Whole square dies on a wafer: its area, less a strip along the edge.

    ``pi (d/2)^2 / A - pi d / sqrt(2 A)`` (de Vries, IEEE Trans. Semicond. Manuf. 18(1), 2005).

    Raises:
        SilicastError: an area that is not above 0, or of which no die fits.

    >>> round(dies_per_wafer(100.0))
    640
    """
    if not (area_mm2 > 0 and math.isfinite(area_mm2)):
        raise SilicastError(f"expected more than 0 mm2, found {area_mm2:g}", field="area")
    dies = math.pi * diameter_mm**2 / 4 / area_mm2
    dies -= math.pi * diameter_mm / math.sqrt(2 * area_mm2)
    if dies < 1:
        raise unsupported(
            f"a die of {area_mm2:g} mm2 does not fit a wafer of {diameter_mm:g} mm",
            "area",
            "split it into chiplets",
        )
    return dies


def poisson_yield(defects: float) -> float:
    """Dies that work, of independent defects: exp(-A D).

    Args:
        defects: of a die on average, A D.

    >>> poisson_yield(0.0)
    1.0
    """
    return math.exp(-defects)


def murphy_yield(defects: float) -> float:
    """Dies that work, of a density that differs over the wafer: ((1 - exp(-A D)) / (A D))^2.

    Murphy, Proc. IEEE 52(12), 1964.

    >>> murphy_yield(0.0)
    1.0
    """
    return 1.0 if defects == 0 else (-math.expm1(-defects) / defects) ** 2


def clustered_yield(defects: float, clusters: float) -> float:
    """Dies that work, of defects in clusters: (1 + A D / alpha)^-alpha, the negative binomial.

    Stapper, IBM J. Res. Dev. 27(6), 1983; few clusters (small alpha) leave more dies whole.

    >>> round(clustered_yield(1.0, 1.0), 3)
    0.5
    """
    return math.pow(1.0 + defects / clusters, -clusters)


@final
@dataclass(frozen=True)
class DieCost:
    """Cost of a die that works, without test and package.

    Attributes:
        area_mm2: of the die.
        dies: of a wafer.
        yields: share that works, by model: ``poisson``, ``murphy``, ``negative_binomial``.
        wafer_usd: price of a wafer.
        usd: of a die that works, with the interval that price and defects leave.
    """

    area_mm2: float
    dies: float
    yields: dict[str, float]
    wafer_usd: Quantity
    usd: Quantity


def die_cost(
    area_mm2: float,
    node_nm: float,
    *,
    wafer_usd: float | None = None,
    defects_per_cm2: float | None = None,
) -> DieCost:
    """Cost of a die.

    Args:
        wafer_usd, defects_per_cm2: where the caller knows better than the shipped table.

    Raises:
        SilicastError: an area that fits no wafer, a number below 0, or a node without a price.

    >>> die_cost(50.0, 28).usd.estimate < die_cost(100.0, 28).usd.estimate / 2
    True
    """
    table = cmos()
    for name, value in (("wafer_usd", wafer_usd), ("defects_per_cm2", defects_per_cm2)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise SilicastError(f"expected 0 or more, found {value:g}", field=name)
    dies = dies_per_wafer(area_mm2, table.wafer.diameter_mm)
    if wafer_usd is None:
        price = between(table.wafer.usd, node_nm, "node")
        wafer = Quantity(price, price * table.wafer.range[0], price * table.wafer.range[1])
    else:
        wafer = Quantity(wafer_usd, wafer_usd, wafer_usd)
    few, usual, many = table.defects.per_cm2 if defects_per_cm2 is None else (defects_per_cm2,) * 3
    square_cm, clusters = area_mm2 / 100.0, table.defects.clusters

    def usd(price: float, density: float) -> float:
        return price / (dies * clustered_yield(square_cm * density, clusters))

    here = square_cm * usual
    return DieCost(
        area_mm2,
        dies,
        {
            "poisson": poisson_yield(here),
            "murphy": murphy_yield(here),
            "negative_binomial": clustered_yield(here, clusters),
        },
        wafer,
        Quantity(usd(wafer.estimate, usual), usd(wafer.p05, few), usd(wafer.p95, many)),
    )
