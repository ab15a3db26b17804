"""How energies and areas go from one CMOS node, voltage or word width to another.

Laws are powers; their exponents come from published energies at two nodes
(``catalog/technology/cmos.toml``), and how much those disagree is the interval.
docs/explanation/accelerators.md states each law and its source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, final

import msgspec

from silicast.accelerator.design.architecture import Architecture, FanOut, Memory
from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_toml
from silicast.core.errors import SilicastError
from silicast.core.prediction import Z90, Quantity

Kind = Literal["logic", "sram"]

CLASSICAL = 3.0
"""Exponent of energy over feature size while voltage shrank with it (Dennard et al., 1974)."""


class _NodeTable(Strict, frozen=True):
    source: str
    sure: Literal["read", "recalled"]


class NodeEnergyTable(_NodeTable, frozen=True):
    """Energies of operations at two nodes, pJ."""

    nodes_nm: tuple[float, float]
    logic: dict[str, tuple[float, float]]
    sram: dict[str, tuple[float, float]]


class CellTable(_NodeTable, frozen=True):
    """Area of an SRAM cell by node, um2."""

    um2: dict[str, float]


class WaferTable(_NodeTable, frozen=True):
    """Prices by node, US dollars, and their range relative to these."""

    diameter_mm: float
    usd: dict[str, float]
    range: tuple[float, float]


class DefectTable(_NodeTable, frozen=True):
    """Defects a square centimetre: low, usual, high; and how they cluster."""

    per_cm2: tuple[float, float, float]
    clusters: float


class MemoryArrayTable(_NodeTable, frozen=True):
    """Parts of arrays that compute in memory, at one node and 1 V; units in the names."""

    node_nm: float
    gate_ff: float
    gate_um2: float
    adder_gates: float
    adc_linear_fj: float
    adc_quartic_fj: float
    dac_fj: float
    adc_um2_per_level: float


class LayoutTable(_NodeTable, frozen=True):
    """Power of published layouts by what draws it, milliwatts, one entry a layout."""

    memory_mw: tuple[float, ...]
    logic_mw: tuple[float, ...]
    registers_mw: tuple[float, ...]
    clock_network_mw: tuple[float, ...]


class WireTable(_NodeTable, frozen=True):
    """Energy of a bit over a millimetre of wire by node, pJ."""

    pj_per_bit_mm: dict[str, float]


class Technology(Strict, frozen=True):
    """Content of the file of technologies."""

    format: Literal[1]
    energy: tuple[NodeEnergyTable, ...]
    cell: CellTable
    wafer: WaferTable
    defects: DefectTable
    arrays: MemoryArrayTable
    layouts: LayoutTable
    wires: WireTable


@cache
def cmos() -> Technology:
    """The shipped table."""
    return msgspec.convert(read_toml(CATALOG / "technology" / "cmos.toml"), Technology)


def node_energy_factor(kind: Kind, from_nm: float, to_nm: float) -> Quantity:
    """Energy of an operation at one node over that at another, at each node's own voltage.

    Between the nodes of the table the exponent is the mean of its operations, and their spread is
    the interval; beyond them it lies between none and :data:`CLASSICAL`.

    Raises:
        SilicastError: a node of 0 nm or less.

    >>> node_energy_factor("logic", 45, 45).estimate
    1.0
    >>> 0.3 < node_energy_factor("logic", 45, 7).estimate < 0.5
    True
    """
    for name, node in (("from_nm", from_nm), ("to_nm", to_nm)):
        if not (node > 0 and math.isfinite(node)):
            raise SilicastError(f"expected more than 0 nm, found {node:g}", field=name)
    table = cmos().energy[0]
    coarse, fine = table.nodes_nm
    exponents = [
        math.log(pair[0] / pair[1]) / math.log(coarse / fine)
        for pair in (table.logic if kind == "logic" else table.sram).values()
    ]
    mean = math.fsum(exponents) / len(exponents)
    spread = math.sqrt(math.fsum((e - mean) ** 2 for e in exponents) / (len(exponents) - 1))
    inside = math.log(_within(to_nm, fine, coarse) / _within(from_nm, fine, coarse))
    beyond = math.log(to_nm / from_nm) - inside
    ends = []
    for steep, flat in ((mean + Z90 * spread, CLASSICAL), (max(0.0, mean - Z90 * spread), 0.0)):
        ends.append(math.exp(steep * inside + flat * beyond))
    estimate = math.exp(mean * (inside + beyond))
    return Quantity(estimate, min(*ends, estimate), max(*ends, estimate))


def _within(node: float, fine: float, coarse: float) -> float:
    return min(coarse, max(fine, node))


def voltage_energy_factor(from_v: float, to_v: float) -> Quantity:
    """Switching energy over voltage: its square; the share that a short circuit takes is not known.

    Raises:
        SilicastError: a voltage of 0 or less.

    >>> voltage_energy_factor(1.0, 0.5).estimate
    0.25
    """
    if not (from_v > 0 and to_v > 0):
        raise SilicastError(f"expected more than 0 V, found {min(from_v, to_v):g}", field="voltage")
    ratio = to_v / from_v
    ends = ratio**2, ratio**3
    return Quantity(ratio**2, min(ends), max(ends))


def leak_factor(from_nm: float, to_nm: float, from_v: float = 1.0, to_v: float = 1.0) -> Quantity:
    """Leakage power of a circuit at another node and voltage: not better known than this.

    As its area at most (as many transistors, as leaky by area), as itself at least shrunk; over
    voltage between its first and third power.
    """
    area = area_factor(from_nm, to_nm).estimate
    ratio = to_v / from_v
    volts = sorted((ratio, ratio**3))
    ends = sorted((area, 1.0))
    return Quantity(math.sqrt(area) * ratio**2, ends[0] * volts[0], ends[1] * volts[1])


def area_factor(from_nm: float, to_nm: float) -> Quantity:
    """Area of a circuit at one node over that at another: as its SRAM cells, within a quarter.

    Raises:
        SilicastError: a node that no published cell is near.

    >>> 0.15 < area_factor(28, 7).estimate < 0.3
    True
    """
    ratio = between(cmos().cell.um2, to_nm, "to_nm") / between(cmos().cell.um2, from_nm, "from_nm")
    away = 1.0 if from_nm == to_nm else 1.25
    return Quantity(ratio, ratio / away, ratio * away)


def between(table: Mapping[str, float], node_nm: float, field: str) -> float:
    """A value at a node, between its neighbours in a table by powers.

    Raises:
        SilicastError: the node lies outside the table.
    """
    points = sorted((float(name), value) for name, value in table.items())
    if not points[0][0] <= node_nm <= points[-1][0]:
        raise SilicastError(
            f"expected a node from {points[0][0]:g} to {points[-1][0]:g} nm, found {node_nm:g}",
            field=field,
            hint="state the number itself",
        )
    for (fine, low), (coarse, high) in itertools.pairwise(points):
        if fine <= node_nm <= coarse:
            share = math.log(node_nm / fine) / math.log(coarse / fine)
            return math.exp((1 - share) * math.log(low) + share * math.log(high))
    return points[0][1]


@final
@dataclass(frozen=True)
class NodeScaling:
    """From one node and voltage to another.

    Attributes:
        from_nm, to_nm: nodes; from_v, to_v: voltages of the same circuits, relative to each other.
    """

    from_nm: float
    to_nm: float
    from_v: float = 1.0
    to_v: float = 1.0

    def energy(self, kind: Kind) -> Quantity:
        """Energy of an operation there over that here.

        Raises:
            SilicastError: a node or a voltage of 0 or less.
        """
        node = node_energy_factor(kind, self.from_nm, self.to_nm)
        volts = voltage_energy_factor(self.from_v, self.to_v)
        return Quantity(node.estimate * volts.estimate, node.p05 * volts.p05, node.p95 * volts.p95)

    def applied(self, architecture: Architecture) -> Architecture:
        """The design at the other node: memories on the chip as SRAM, units and meshes as logic,
        leakage and areas as theirs. Main memory, which is a chip of its own, and the clock stay.

        Raises:
            SilicastError: a node that the tables do not reach, or a voltage of 0 or less.

        >>> from silicast.accelerator.design.architecture_file import find_design
        >>> chip = find_design("tpu-v4-nest").architecture
        >>> NodeScaling(7, 7).applied(chip) == chip
        True
        """
        sram, logic = self.energy("sram").estimate, self.energy("logic").estimate
        leak = leak_factor(self.from_nm, self.to_nm, self.from_v, self.to_v).estimate
        area = area_factor(self.from_nm, self.to_nm).estimate
        first, unit = architecture.nodes[0], architecture.compute
        nodes = tuple(
            replace(node, hop_pj=_times(node.hop_pj, logic))
            if isinstance(node, FanOut)
            else _memory_at(node, sram, leak, area)
            for node in architecture.nodes[1:]
        )
        return replace(
            architecture,
            nodes=(first, *nodes),
            every_cycle=tuple((name, pj * logic) for name, pj in architecture.every_cycle),
            compute=replace(
                unit,
                energy_pj=_times(unit.energy_pj, logic),
                gated_pj=unit.gated_pj * logic,
                leak_pj_per_cycle=_times(unit.leak_pj_per_cycle, leak),
                area_um2=_times(unit.area_um2, area),
            ),
        )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _memory_at(memory: Memory, energy: float, leak: float, area: float) -> Memory:
    store = memory.metadata
    if store is not None:
        store = replace(
            store,
            read_pj=_times(store.read_pj, energy),
            fill_pj=_times(store.fill_pj, energy),
            update_pj=_times(store.update_pj, energy),
        )
    return replace(
        memory,
        read_pj=_times(memory.read_pj, energy),
        fill_pj=_times(memory.fill_pj, energy),
        update_pj=_times(memory.update_pj, energy),
        gated_pj=memory.gated_pj * energy,
        expand_pj=_times(memory.expand_pj, energy),
        compress_pj=_times(memory.compress_pj, energy),
        leak_pj_per_cycle=_times(memory.leak_pj_per_cycle, leak),
        area_um2=_times(memory.area_um2, area),
        metadata=store,
    )
