"""Mappings whose last tiles are cut short."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gap_claims import every_mapping, least
from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory, Port
from silicast.accelerator.mapper._ragged import _lengths
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.accelerator.mapper.task import OBJECTIVES


def chip(capacity: float) -> Architecture:
    dram = Memory("dram", read_pj=10.0, fill_pj=10.0, update_pj=10.0, ports=(Port("port", 1.0),))
    buffer = Memory("buffer", capacity, read_pj=1.0, fill_pj=1.0, update_pj=1.0)
    return Architecture(
        "chip", (dram, buffer, FanOut("array", (2,))), Compute("mac", energy_pj=0.1)
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_tiles_that_do_not_divide_a_prime_size_are_the_best(objective: Objective) -> None:
    """Of 7 x 7 outputs a buffer of 12 words holds no tile that divides but rows of one; tiles of
    2 x 3 or 3 x 2, with 5 operands, fit.
    """
    einsum, arch = matmul(m=7, n=7, k=1), chip(12.0)
    answer = best_mapping(einsum, arch, objective=objective)
    ragged, divided = (every_mapping(einsum, arch, ragged=is_cut) for is_cut in (True, False))
    assert ragged is not None
    assert divided is not None
    assert answer.value == pytest.approx(least(einsum, arch, ragged, objective))
    assert answer.value < 0.9 * least(einsum, arch, divided, objective)
    assert answer.bound <= least(einsum, arch, divided, objective) * (1 + 1e-9)
    assert not answer.divides


def test_rules_hold_for_tiles_that_do_not_divide() -> None:
    """At most two rows in a tile, and N innermost at main memory."""
    einsum, arch = matmul(m=7, n=7, k=1), chip(12.0)
    rules = {
        ("buffer", -1): SlotRule(most={"M": 2}),
        ("array", 0): SlotRule(fixed={"M": 1}),
        ("dram", -1): SlotRule(innermost=("N",)),
    }
    answer = best_mapping(einsum, arch, Constraints(rules=rules))
    batch = MappingBatch.from_nest(answer.nest, einsum, arch)
    m, n = (einsum.dims.index(dim) for dim in "MN")
    slots = [(arch.nodes[slot.node].name, slot.axis) for slot in arch.slots]
    dram, buffer = slots.index(("dram", -1)), slots.index(("buffer", -1))
    assert not answer.divides
    assert batch.factors[buffer, m, 0] == 2
    assert batch.factors[slots.index(("array", 0)), m, 0] == 1
    turning = np.flatnonzero(batch.factors[dram, :, 0] > 1)
    assert max(turning, key=lambda d: batch.positions[dram, d, 0]) == n
    assert answer.value > best_mapping(einsum, arch).value


def test_sizes_that_divide_stay_as_they_are_proven() -> None:
    """Nothing is gained by cutting where all of the problem fits."""
    einsum, arch = matmul(m=8, n=8, k=1), chip(1000.0)
    answer = best_mapping(einsum, arch)
    assert answer.divides
    assert answer.gap == 0.0


def test_lengths_of_loops_need_no_more_than_one_for_each_number_of_tiles() -> None:
    for left in (13, 100, 97):
        turns = {-(-left // length) for length in range(1, left + 1)}
        assert {-(-left // length) for length in _lengths(left)} == turns
