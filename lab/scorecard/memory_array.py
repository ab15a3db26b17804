"""Arrays of memory cells that multiply where they store: energy of a product, and area.

Weights stay in the cells; inputs come a bit at a time. In a *digital* array every row has a
multiplier of gates, and a tree adds a column's rows. In an *analog* one a column's wire adds, and
a converter reads it. What each part takes is in ``catalog/technology/cmos.toml``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from silicast.accelerator.design.technology import area_factor, between, cmos, node_energy_factor

FEMTO_TO_PICO = 1e-3


@final
@dataclass(frozen=True)
class MemoryArray:
    """Macros that compute in memory.

    Attributes:
        kind: how a column adds up.
        rows, columns: of words in a macro; a column adds its rows.
        macros: of the chip.
        node_nm, volts: of the process and its supply.
        weight_bits, input_bits: of the operands.
    """

    kind: Literal["analog", "digital"]
    rows: int
    columns: int
    macros: int
    node_nm: float
    volts: float
    weight_bits: float
    input_bits: float

    @property
    def depth_bits(self) -> float:
        """By which the sum of a column is wider than its terms."""
        return math.log2(self.rows) if self.rows > 1 else 0.0

    @property
    def converter_bits(self) -> float:
        """Of the converter of a column of single bits: as many as its sum has, 8 at most."""
        return min(self.depth_bits + 1.0, 8.0)

    @property
    def product_pj(self) -> float:
        """Energy of a multiplication and addition.

        >>> one = MemoryArray("digital", 128, 8, 8, 28, 0.9, 8, 8)
        >>> 0.05 < one.product_pj < 0.5
        True
        """
        table = cmos().arrays
        scale = (
            node_energy_factor("logic", table.node_nm, self.node_nm).estimate
            * self.volts
            * self.volts
        )
        if self.kind == "digital":
            adder = table.adder_gates * (
                self.weight_bits + 0.5 * self.depth_bits + self.wide_bits / self.rows
            )
            switched = self.input_bits * (self.weight_bits + adder) * table.gate_ff
            return switched * scale * FEMTO_TO_PICO
        bits = self.converter_bits
        converter = table.adc_linear_fj * bits + table.adc_quartic_fj * math.pow(4.0, bits)
        steps = self.input_bits * self.weight_bits
        added = table.adder_gates * self.wide_bits * table.gate_ff
        column = steps * (converter * self.volts * self.volts + added * scale) / self.rows
        driven = self.input_bits * table.dac_fj * self.volts * self.volts / self.columns
        return (column + driven + steps * table.gate_ff * scale) * FEMTO_TO_PICO

    @property
    def wide_bits(self) -> float:
        """Of a finished sum."""
        return self.weight_bits + self.input_bits + self.depth_bits

    @property
    def tops_per_watt(self) -> float:
        """Operations, two a product, of a joule, in 10^12."""
        return 2.0 / self.product_pj

    @property
    def area_mm2(self) -> float:
        """Of all macros: cells, and what computes beside them.

        >>> MemoryArray("digital", 128, 8, 8, 28, 0.9, 8, 8).area_mm2 < 1
        True
        """
        table = cmos().arrays
        products = self.rows * self.columns * self.macros
        at_node = area_factor(table.node_nm, self.node_nm).estimate
        cells = products * self.weight_bits * between(cmos().cell.um2, self.node_nm, "node_nm")
        if self.kind == "digital":
            gates = self.weight_bits + table.adder_gates * (
                self.weight_bits + 0.5 * self.depth_bits + self.wide_bits / self.rows
            )
            beside = products * gates * table.gate_um2
        else:
            wires = self.columns * self.weight_bits * self.macros
            beside = wires * (
                table.adc_um2_per_level * math.pow(2.0, self.converter_bits)
                + table.adder_gates * self.wide_bits * table.gate_um2
            )
        return (cells + beside * at_node) / 1e6
