"""Elements that are wider than the words of a memory, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.counting.mapping import LoopNest, MappingBatch
from silicast.accelerator.design.architecture import Architecture, Compute, Memory, Port
from silicast.accelerator.design.check import check_architecture
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.core.errors import SilicastError

EINSUM = matmul(m=4, n=2, k=8)
PORT = Port("all", 2.0)


def chip(bits: int, capacity: float = 1000.0) -> Architecture:
    """Main memory and a buffer of 8-bit words, in which results are so wide."""
    main = Memory("dram", read_pj=1.0, fill_pj=1.0, update_pj=1.0)
    buffer = Memory(
        "buffer", capacity, read_pj=1.0, fill_pj=1.0, update_pj=1.0,
        ports=(PORT,), tensor_bits=(("Outputs", bits),),
    )  # fmt: skip
    return Architecture("chip", (main, buffer), Compute("mac", energy_pj=0.0))


def nest_of(architecture: Architecture) -> LoopNest:
    return best_mapping(EINSUM, architecture).nest


def test_sums_of_32_bits_move_four_words_of_a_buffer_each() -> None:
    """Of one mapping: accesses, port cycles and room of results grow fourfold, of operands not."""
    nest = nest_of(chip(8))
    narrow, wide = (
        cost(EINSUM, arch, MappingBatch.from_nest(nest, EINSUM, arch))
        for arch in (chip(8), chip(32))
    )
    output = EINSUM.names.index("Outputs")
    operands = [n for n in range(3) if n != output]
    assert wide.access_pj[1, output, 0] == 4 * narrow.access_pj[1, output, 0] > 0
    np.testing.assert_array_equal(wide.access_pj[1, operands], narrow.access_pj[1, operands])
    np.testing.assert_array_equal(wide.access_pj[0], narrow.access_pj[0])
    more = 3 * narrow.words[1, output, 0]
    assert wide.words[1].sum() == narrow.words[1].sum() + more
    key = ("buffer", "all")
    assert wide.port_cycles[key][0] == narrow.port_cycles[key][0] + more / PORT.words_per_cycle
    held = 3 * narrow.traffic.tiles[1, output, 0]
    assert wide.left(1)[0] == narrow.left(1)[0] - held


def test_room_is_of_bits() -> None:
    """A word of weights, one of inputs, and a sum of four words need six."""
    assert best_mapping(EINSUM, chip(32, capacity=6)).cost.fits[0]
    with pytest.raises(SilicastError, match="need 6 words"):
        best_mapping(EINSUM, chip(32, capacity=5))
    assert best_mapping(EINSUM, chip(8, capacity=5)).cost.fits[0]


def test_widths_that_have_no_meaning_are_named() -> None:
    arch = chip(32)
    memory = replace(arch.memories[1], keeps=("Weights",), tensor_bits=(("Outputs", 12),))
    wrong = check_architecture(replace(arch, nodes=(arch.nodes[0], memory)))
    assert [each.field for each in wrong] == ["buffer.tensor_bits.Outputs", "buffer.tensor_bits"]
    sparse = replace(arch, compute=replace(arch.compute, on_zero="skip"))
    (fault,) = check_architecture(sparse)
    assert fault.field == "buffer.tensor_bits"
