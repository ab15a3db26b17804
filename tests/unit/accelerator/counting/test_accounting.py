"""Counts and costs that fit on the back of an envelope."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest

from silicast.accelerator.counting.accounting import Count
from silicast.accelerator.counting.cost import MappingCost, cost
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.mapping import Loop, LoopNest, MappingBatch
from silicast.accelerator.design.architecture import (
    Architecture,
    Compute,
    Elimination,
    FanOut,
    Memory,
    Port,
)
from silicast.accelerator.zeros.density import Uniform
from silicast.accelerator.zeros.formats import FORMATS, TensorFormat
from silicast.core.errors import SilicastError

DRAM = Memory("dram", block_words=4, read_pj=8.0, fill_pj=8.0, update_pj=8.0)
BUFFER = Memory(
    "buffer", capacity_words=64, read_pj=1.0, fill_pj=2.0, update_pj=3.0,
    ports=(Port("read", 2.0, ("read",)), Port("write", 4.0, ("fill", "update"))),
)  # fmt: skip
CHIP = Architecture(
    "chip", (DRAM, BUFFER, FanOut("array", (4,))), Compute("mac", energy_pj=0.5), idle_leaks=False
)
PRODUCT = matmul(m=4, n=2, k=8)
HALF = PRODUCT.with_densities({"Weights": Uniform(0.5)})


def costed(
    loops: str, einsum: Einsum = PRODUCT, chip: Architecture = CHIP, keeps: str = "WIO"
) -> MappingCost:
    """``"dram K2 M4 / array N2"``: loops of each place, outermost first."""
    items: list[Loop] = []
    fans = {node.name for node in chip.nodes if isinstance(node, FanOut)}
    for position in loops.split("/"):
        name, *remaining = position.split()
        axis = 0 if name in fans else -1
        items.extend(Loop(name, word[0], int(word[1:]), axis) for word in remaining)
    names = frozenset(n for n in einsum.names if n[0] in keeps)
    nest = LoopNest(tuple(items), {"buffer": names})
    return cost(einsum, chip, MappingBatch.from_nest(nest, einsum, chip))


def counts(result: MappingCost, level: int, tensor: str) -> tuple[float, float, float]:
    t = result.einsum.names.index(tensor)
    traffic = result.traffic
    return tuple(
        float(getattr(traffic, kind)[level, t, 0]) for kind in ("reads", "fills", "updates")
    )  # type: ignore[return-value]


def test_a_tensor_stays_while_loops_inside_do_not_index_it() -> None:
    stationary = costed("dram K2 N2 M2 / buffer M2 K4")
    moving = costed("dram K2 M2 N2 / buffer M2 K4")
    assert counts(stationary, 0, "Weights")[0] == 2 * 8  # once: M is inside
    assert counts(moving, 0, "Weights")[0] == 2 * 2 * 8  # again for each M


def test_partial_sums_go_out_and_come_back() -> None:
    result = costed("dram K2 M2 / buffer M2 N2 K4")
    # 8 outputs leave after each half of K; only the second time are they read back.
    assert counts(result, 0, "Outputs") == (8, 0, 16)
    assert counts(result, 1, "Outputs") == (64 - 8, 8, 64)


def test_a_fan_out_reads_once_and_adds_on_the_way() -> None:
    result = costed("dram M4 / buffer N2 K2 / array K4")
    assert counts(result, 1, "Outputs")[2] == 64 / 4
    shared = costed("dram K8 / buffer N2 / array M4")
    assert counts(shared, 1, "Weights")[0] == 64 / 4
    alone = dataclasses.replace(
        CHIP, nodes=(DRAM, BUFFER, FanOut("array", (4,), multicast=False, reduction=False))
    )
    result = costed("dram K8 / buffer N2 / array M4", chip=alone)
    assert counts(result, 1, "Weights")[0] == 64


def test_what_instances_share_is_read_once_also_where_the_last_tile_is_cut_short() -> None:
    """Ten rows as two turns of three units with two each: the second turn has two units."""
    inner = Memory("line", keeps=("Outputs",), read_pj=1.0, fill_pj=1.0, update_pj=1.0)
    chip = dataclasses.replace(CHIP, nodes=(DRAM, BUFFER, FanOut("array", (4,)), inner))
    found = costed("dram M2 / array M3 / line M2", matmul(m=10, n=1, k=1), chip)
    assert counts(found, 1, "Weights")[0] == 2 * 2
    assert counts(found, 1, "Inputs")[0] == 10


def test_a_window_keeps_what_the_step_before_had() -> None:
    row = conv2d(c=1, m=1, p=8, q=1, r=3, s=1)
    assert counts(costed("dram P8 / buffer R3", row), 1, "Inputs")[1] == 3 + 7
    blocked = conv2d(c=1, m=2, p=8, q=1, r=3, s=1)
    # A loop that does not move the window stands inside: the neighbour is gone.
    assert counts(costed("dram P8 M2 / buffer R3", blocked), 1, "Inputs")[1] == 8 * 3


def test_a_window_slides_by_the_step_of_the_innermost_of_its_loops() -> None:
    """Eight outputs of a filter of three, in steps of one, by loops of two memories."""
    inner = Memory("line", read_pj=1.0, fill_pj=1.0, update_pj=1.0)
    chip = dataclasses.replace(CHIP, nodes=(DRAM, BUFFER, inner))
    row = conv2d(c=1, m=1, p=8, q=1, r=3, s=1)
    result = costed("dram P4 / buffer P2 / line R3", row, chip)
    assert counts(result, 1, "Inputs")[:2] == (3 + 7, 4 + 3 * 2)


@pytest.mark.parametrize(("outputs", "folds", "words"), [(2, "", 3), (4, "P2", 2 * 3)])
def test_units_side_by_side_share_what_their_windows_overlap(
    outputs: int, folds: str, words: int
) -> None:
    """Two outputs of a filter of two on four units: they read three words of the row, not four."""
    row = conv2d(c=1, m=1, p=outputs, q=1, r=2, s=1)
    assert counts(costed(f"dram / buffer {folds} / array P2 R2", row), 1, "Inputs")[0] == words


@pytest.mark.parametrize(
    ("loops", "size", "merged", "visits"),
    [
        ((3, 2, 2), 11, {1}, 3 * 2),  # tiles of 4, 4 and 3: of each, the first pair in two steps
        ((3, 2, 2), 9, {1}, 2 * 2 + 1),  # the last tile is a single row
        ((3, 2, 2), 11, {0}, 4),  # of the first tile, which is whole, all four
        ((3, 2, 2), 11, {2}, 6),  # pairs: 2, 2, 2, 2, 2 and 1
        ((3, 2, 2), 9, {0, 1}, 2),
        ((3, 2, 2), 12, {1}, 3 * 2),  # no tile is cut
        ((2, 3, 3), 17, {0, 1}, 3),
        ((2, 3, 3), 11, {1}, 3 + 2),  # tiles of 9 and 2
        ((1, 3, 2), 5, {0, 1}, 2),  # a loop of one turn counts for nothing
        ((2, 2, 2), 7, set(), 7),
    ],
)
def test_visits_leave_out_loops_whose_instances_share(
    loops: tuple[int, ...], size: int, merged: set[int], visits: int
) -> None:
    """Rows in tiles of three loops; every tile of a loop left out counts by its first part."""
    memories = tuple(dataclasses.replace(DRAM, name=f"level{n}") for n in range(3))
    chip = dataclasses.replace(CHIP, nodes=memories)
    einsum = matmul(m=size, n=1, k=1)
    nest = LoopNest(tuple(Loop(f"level{n}", "M", turns) for n, turns in enumerate(loops)), {})
    count = Count(einsum, chip, MappingBatch.from_nest(nest, einsum, chip), None)
    assert count.visits("M", 3, merged=frozenset(merged)) == visits


def test_energy_is_accesses_times_energy() -> None:
    result = costed("dram K2 N2 M2 / buffer M2 K4")
    reads = 16 + 32 * 2
    partial = 8
    assert result.access_pj[0].sum() == (reads + partial) / 4 * 8.0 + 16 / 4 * 8.0
    assert result.compute_pj[0] == 64 * 0.5
    assert result.energy_pj[0] == result.access_pj.sum() + 32.0


def test_time_is_the_busiest_port() -> None:
    result = costed("dram K2 N2 M2 / buffer M2 K4")
    read = (64 + 64 + 64 - 8) / 2.0
    assert result.port_cycles["buffer", "read"][0] == read
    assert result.cycles[0] == max(64, read)
    quick = dataclasses.replace(CHIP, clock_hz=2e9)
    costs = costed("dram K2 N2 M2 / buffer M2 K4", chip=quick)
    assert costs.seconds[0] == pytest.approx(read / 2e9)
    ramp = dataclasses.replace(CHIP, ramps=True)
    tiles = 4 * 1 + 2 * 4 + 2 * 1
    later = costed("dram K2 N2 M2 / buffer M2 K4", chip=ramp)
    assert later.cycles[0] == result.cycles[0] + -(-tiles // 4)


@pytest.mark.parametrize(("buffers", "marches", "loading"), [(1, 8 * 5, 8 * 5), (2, 5, 5 + 8 * 2)])
def test_a_systolic_mesh_is_loaded_by_rows_and_filled_along_both_sides(
    buffers: int, marches: int, loading: int
) -> None:
    """Eight folds of four steps: two cycles to load rows, one and two to reach the last unit. Units
    with two tiles load the next one while they work.
    """
    weights = Memory(
        "weights", keeps=("Weights",), buffers=buffers, read_pj=1.0, fill_pj=1.0, update_pj=1.0
    )
    above = DRAM, dataclasses.replace(BUFFER, ports=())
    nodes = (*above, FanOut("mesh", (2, 3), systolic="Weights"), weights)
    chip = dataclasses.replace(CHIP, nodes=nodes)
    result = costed("dram N2 K4 / mesh K2 / weights M4", chip=chip)
    assert result.march_cycles[0] == marches
    assert result.loading_cycles[0] == loading
    assert result.cycles[0] == 8 * 4 + marches


def crossed_pj(loops: str, einsum: Einsum, read: Elimination) -> float:
    """Of hops of 1 pJ on the way from two buffers to four units each."""
    buffer = dataclasses.replace(BUFFER, eliminations=(read,))
    nodes = (DRAM, FanOut("cores", (2,)), buffer, FanOut("array", (4,), hop_pj=1.0))
    return float(costed(loops, einsum, dataclasses.replace(CHIP, nodes=nodes)).hop_pj[0])


def test_words_that_are_skipped_cross_no_mesh() -> None:
    """A word goes over half of four links. Half of the Inputs meet a Weight of zero."""
    skip = Elimination("skip", "Inputs", ("Weights",))
    loops = "dram / cores M2 / buffer M2 N2 K2 / array K4"
    assert crossed_pj(loops, HALF, skip) == (64 + 64 / 2 + 64 / 4) * 2.0
    assert crossed_pj(loops, PRODUCT, skip) == (64 + 64 + 64 / 4) * 2.0
    # Each of two buffers sends one Weight and one Input, and takes one Output.
    assert crossed_pj("dram / cores M2", matmul(m=2, n=1, k=1), skip) == 3 * 2 * 2.0


@pytest.mark.parametrize(("on_zero", "gated", "steps"), [("gate", 32, 64), ("skip", 0, 32)])
def test_a_unit_that_meets_a_zero_does_not_multiply(
    on_zero: Literal["gate", "skip"], gated: int, steps: int
) -> None:
    unit = dataclasses.replace(CHIP.compute, on_zero=on_zero, gated_pj=0.125)
    result = costed("dram K8 M4 N2", HALF, dataclasses.replace(CHIP, compute=unit))
    assert result.zeros is not None
    assert result.products[0] == 32
    assert result.compute_pj[0] == 32 * 0.5 + gated * 0.125
    assert result.zeros.steps[0] == steps


def test_what_describes_a_tile_needs_room_as_its_values_do() -> None:
    """Of 16 Weights eight and their coordinates, 32 Inputs and eight Outputs: 56 words."""
    pairs = TensorFormat("Weights", (FORMATS["cp"],))
    for words, left in ((0, -1), (1, 0)):
        buffer = dataclasses.replace(BUFFER, formats=(pairs,), capacity_words=55 + words)
        chip = dataclasses.replace(CHIP, nodes=(DRAM, buffer, CHIP.nodes[2]))
        result = costed("dram / buffer M4 N2 K8", HALF, chip)
        assert result.left(1)[0] == left
        assert result.fits[0] == (left >= 0)


def test_a_tile_that_overflows_does_not_fit() -> None:
    assert costed("dram K2 N2 M2 / buffer M2 K4").fits[0]
    assert costed("dram / buffer M4 N2 K8").fits[0] == (32 + 16 + 8 <= 64)
    small = dataclasses.replace(BUFFER, capacity_words=13, buffers=2)
    chip = dataclasses.replace(CHIP, nodes=(DRAM, small, CHIP.nodes[2]))
    assert not costed("dram K2 N2 M2 / buffer M2 K4", chip=chip).fits[0]


def test_an_action_without_energy_is_named() -> None:
    free = dataclasses.replace(BUFFER, update_pj=None)
    chip = dataclasses.replace(CHIP, nodes=(DRAM, free, CHIP.nodes[2]))
    with pytest.raises(SilicastError, match=r"buffer\.update_pj"):
        costed("dram K8 M4 / buffer N2", chip=chip)


@pytest.mark.parametrize(
    ("loops", "said"),
    [
        ("dram K8 M4", "cover 1 of 2"),
        ("dram K8 M4 N2 / shelf K2", "no place for loops called 'shelf'"),
        ("dram K8 M4 N2 Z3", "no dimension 'Z'"),
        ("buffer K8 M4 / dram N2", "inside one of a lower level"),
        ("dram K4 M4 N2 K2", "twice"),
        ("dram K1 M4 N2 / array K8", "8 instances are used, 4 are there"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_refused(loops: str, said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        costed(loops)
