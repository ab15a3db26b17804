"""Arrays of memory that compute: what must hold whatever the constants are."""

from __future__ import annotations

import dataclasses

import pytest

from lab.scorecard.memory_array import MemoryArray

DIGITAL = MemoryArray("digital", 128, 8, 8, 28, 0.9, 8, 8)
ANALOG = dataclasses.replace(DIGITAL, kind="analog", rows=256, columns=64)


@pytest.mark.parametrize("array", [DIGITAL, ANALOG], ids=["digital", "analog"])
def test_more_takes_more(array: MemoryArray) -> None:
    wider = dataclasses.replace(array, weight_bits=16)
    assert wider.product_pj > array.product_pj
    assert wider.area_mm2 > array.area_mm2
    twice = dataclasses.replace(array, macros=2 * array.macros)
    assert twice.area_mm2 == pytest.approx(2 * array.area_mm2)
    assert twice.product_pj == array.product_pj


@pytest.mark.parametrize("array", [DIGITAL, ANALOG], ids=["digital", "analog"])
def test_a_finer_node_and_less_voltage_take_less(array: MemoryArray) -> None:
    assert dataclasses.replace(array, node_nm=7).product_pj <= array.product_pj
    assert dataclasses.replace(array, node_nm=7).area_mm2 < array.area_mm2
    assert dataclasses.replace(array, volts=0.6).product_pj < array.product_pj


def test_rows_share_a_converter() -> None:
    """Beyond 8 bits a converter grows no more, and its rows do."""
    assert dataclasses.replace(ANALOG, rows=1024).product_pj < ANALOG.product_pj
