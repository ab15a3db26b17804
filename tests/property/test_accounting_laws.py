"""Counts of loop nests against a walk through them, and laws that no mapping escapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from silicast.accelerator.counting.accounting import account
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory
from tests.property.accelerator_walk import Walk
from tests.sampling import examples


def chip(*, multicast: bool = True, reduction: bool = True) -> Architecture:
    return Architecture(
        "chip",
        (
            Memory("dram"),
            FanOut("cores", (2,), multicast, reduction),
            Memory("buffer"),
            FanOut("array", (4, 4), multicast, reduction),
            Memory("weights", keeps=("Weights",)),
            Memory("sums", keeps=("Outputs",)),
        ),
        Compute("mac"),
    )


def deep_chip(memories: int) -> Architecture:
    """Memories that hold every tensor behind each other, so that a window slides over several."""
    inner = tuple(Memory(f"level{n}") for n in range(2, memories))
    outer = (Memory("dram"), Memory("level1"), FanOut("array", (3,)))
    return Architecture("deep", (*outer, *inner), Compute("mac"))


CHIP = chip()
DEEP = (deep_chip(3), deep_chip(4))


@st.composite
def splits(
    draw: st.DrawFn, *, exact: bool, arch: Architecture = CHIP, windows: bool = False
) -> tuple[Einsum, MappingBatch]:
    """A small problem, and loops that cover it."""
    size = st.integers(1, 4)
    window = windows or draw(st.booleans())
    if window:
        sizes = {d: draw(size) for d in "cmr"} | {"p": draw(st.integers(1, 6))}
        einsum = conv2d(**sizes, q=1, s=1, stride=draw(st.integers(1, 2)))
    else:
        einsum = matmul(m=draw(size), n=draw(size), k=draw(st.integers(1, 6)))
    slots = len(arch.slots)
    factors = np.ones((slots, len(einsum.dims), 1))
    for d, bound in enumerate(einsum.bounds.values()):
        left = bound
        for slot in draw(st.permutations(range(slots))):
            if arch.slots[slot].is_spatial and factors[slot].prod() > 1:
                continue
            split = draw(st.sampled_from([f for f in range(1, left + 1) if left % f == 0]))
            if arch.slots[slot].is_spatial and split > arch.slots[slot].limit:
                continue
            factors[slot, d, 0] = split
            left //= split
        factors[0, d, 0] *= left
    if not exact:
        # Cut every dimension short: the last tile of each level is then partial.
        bounds = {}
        for d, (dim, bound) in enumerate(einsum.bounds.items()):
            inner = int(bound // factors[0, d, 0])
            bounds[dim] = bound - draw(st.integers(0, max(0, inner - 1)))
        einsum = Einsum(einsum.name, bounds, einsum.tensors)
    order = np.array(
        [draw(st.permutations(range(len(einsum.dims)))) for _ in range(slots)], dtype=np.int8
    )
    keep = tuple(
        frozenset(n for n in einsum.names if level == 0 or memory.may_keep(n))
        for level, memory in enumerate(arch.memories)
    )
    if draw(st.booleans()):
        keep = (keep[0], keep[1] - {draw(st.sampled_from(einsum.names))}, *keep[2:])
    return einsum, MappingBatch(factors, order[:, :, None], keep)


def assert_equal(einsum: Einsum, arch: Architecture, batch: MappingBatch) -> None:
    ours, walk = account(einsum, arch, batch), Walk(einsum, arch, batch)
    assert ours.steps[0] == walk.steps
    for level in range(len(arch.memories)):
        for t, name in enumerate(einsum.names):
            for kind in ("reads", "fills", "updates"):
                mine = getattr(ours, kind)[level, t, 0]
                theirs = getattr(walk, kind)[level, name]
                where = (arch.memories[level], name, kind)
                assert mine == pytest.approx(theirs, rel=1e-12), where


def window_in_space(unit_p: int, unit_r: int) -> tuple[Einsum, MappingBatch]:
    """P = 2 and R = 2 on axes of the array, inputs straight from the buffer to the units."""
    einsum = conv2d(c=1, m=1, p=2, q=1, r=2, s=1)
    slots, dims = len(CHIP.slots), len(einsum.dims)
    factors = np.ones((slots, dims, 1))
    factors[unit_p, einsum.dims.index("P")] = factors[unit_r, einsum.dims.index("R")] = 2
    order = np.tile(np.arange(dims, dtype=np.int8)[None, :, None], (slots, 1, 1))
    every = frozenset(einsum.names)
    keep = (every, every, frozenset({"Weights"}), frozenset({"Outputs"}))
    return einsum, MappingBatch(factors, order, keep)


@pytest.mark.parametrize(
    ("unit_p", "unit_r", "reads"), [(3, 4, 3), (4, 3, 3), (3, 3, 3), (1, 4, 4), (1, 1, 3)]
)
def test_units_on_a_diagonal_share_a_read_by_hand(unit_p: int, unit_r: int, reads: int) -> None:
    """Units (p, r) take input p + r: (0, 1) and (1, 0) the same, so four take three words.

    Not where P is spread over the cores (slot 1): either core's buffer is read for its two units.
    """
    einsum, batch = window_in_space(unit_p, unit_r)
    arch = replace(CHIP, nodes=(CHIP.nodes[0], FanOut("cores", (4,)), *CHIP.nodes[2:]))
    level = 0 if unit_p == unit_r == 1 else 1
    inputs = einsum.names.index("Inputs")
    assert account(einsum, arch, batch).reads[level, inputs, 0] == reads
    assert Walk(einsum, arch, batch).reads[level, "Inputs"] == reads


def columns_cut_short(slots: dict[tuple[int, str], int]) -> tuple[Einsum, MappingBatch]:
    """M = 2, N = 3, K = 1 with N in two tiles of which the last is cut short."""
    einsum = matmul(m=2, n=3, k=1)
    factors = np.ones((len(CHIP.slots), len(einsum.dims), 1))
    for (slot, dim), turns in slots.items():
        factors[slot, einsum.dims.index(dim), 0] = turns
    order = np.tile(np.arange(3, dtype=np.int8)[None, :, None], (len(CHIP.slots), 1, 1))
    every = frozenset(einsum.names)
    keep = (every, every, frozenset({"Weights"}), frozenset({"Outputs"}))
    return einsum, MappingBatch(factors, order, keep)


IDLE_CORE = columns_cut_short({(0, "M"): 2, (0, "N"): 2, (1, "N"): 2})
"""Columns 0, 2 on one core, 1 on the other, which has none in the second step of either row."""
SINGLE_ITERATION = columns_cut_short({(0, "N"): 2, (2, "M"): 2, (2, "N"): 2})
"""Columns 0, 1, then 2 alone, for both rows: the innermost loop has one iteration left."""


@pytest.mark.parametrize(("case", "level"), [(IDLE_CORE, 0), (SINGLE_ITERATION, 1)])
def test_a_last_tile_comes_as_often_as_whole_ones_by_hand(
    case: tuple[Einsum, MappingBatch], level: int
) -> None:
    """3 weights for either row: also column 1 or 2, after which no other came to its memory."""
    einsum, batch = case
    arch = chip(multicast=False, reduction=False)
    weights = einsum.names.index("Weights")
    assert account(einsum, arch, batch).reads[level, weights, 0] == 6
    assert Walk(einsum, arch, batch).reads[level, "Weights"] == 6
    assert_equal(einsum, arch, batch)


@examples(150)
@given(splits(exact=True))
@example(window_in_space(3, 4))
def test_counts_of_whole_tiles_are_those_of_a_walk(case: tuple[Einsum, MappingBatch]) -> None:
    assert_equal(case[0], chip(), case[1])


@examples(150)
@given(splits(exact=False), st.booleans())
@example(IDLE_CORE, False)
@example(SINGLE_ITERATION, False)
def test_counts_of_tiles_cut_short_are_those_of_a_walk(
    case: tuple[Einsum, MappingBatch], shared: bool
) -> None:
    assert_equal(case[0], chip(multicast=shared, reduction=shared), case[1])


@pytest.mark.parametrize("arch", DEEP, ids=("three memories", "four memories"))
@examples(150)
@given(data=st.data())
def test_counts_of_a_window_that_slides_over_several_levels_are_those_of_a_walk(
    arch: Architecture, data: st.DataObject
) -> None:
    einsum, batch = data.draw(splits(exact=True, arch=arch, windows=True))
    assert_equal(einsum, arch, batch)


@pytest.mark.parametrize("arch", DEEP, ids=("three memories", "four memories"))
@examples(150)
@given(data=st.data())
def test_counts_of_a_window_that_is_cut_short_are_those_of_a_walk(
    arch: Architecture, data: st.DataObject
) -> None:
    einsum, batch = data.draw(splits(exact=False, arch=arch, windows=True))
    assert_equal(einsum, arch, batch)


def sliding(p: int, r: int, factors: dict[tuple[int, str], int]) -> tuple[Einsum, MappingBatch]:
    """A window of P + R on the chip of four memories, loops over P innermost."""
    einsum, arch = conv2d(c=1, m=1, p=p, q=1, r=r, s=1), DEEP[1]
    loops = np.ones((len(arch.slots), len(einsum.dims), 1))
    for (slot, dim), turns in factors.items():
        loops[slot, einsum.dims.index(dim), 0] = turns
    order = [[int(dim == "P") for dim in einsum.dims] for _ in arch.slots]
    every = frozenset(einsum.names)
    positions = np.array(order, dtype=np.int8)[:, :, None]
    return einsum, MappingBatch(loops, positions, (every,) * len(arch.memories))


CUT_TAPS = sliding(5, 4, {(0, "R"): 2, (1, "P"): 5, (3, "R"): 3})
"""Taps 0 to 2, then 3 alone, for five outputs one after the other."""
INSTANCES = sliding(12, 3, {(0, "P"): 2, (2, "P"): 3, (3, "P"): 2, (4, "R"): 3})
"""Three instances of two outputs each, twice: one goes a word on, then five, over three taps."""


@pytest.mark.parametrize(
    ("case", "level", "fills"),
    [
        pytest.param(CUT_TAPS, 2, (3 + 4 * 1) + 5 * 1, id="no tap of one stays"),
        pytest.param(INSTANCES, 3, 3 * (3 + 1 + 3 + 1), id="instances between"),
    ],
)
def test_what_a_window_keeps_from_before_by_hand(
    case: tuple[Einsum, MappingBatch], level: int, fills: int
) -> None:
    einsum, batch = case
    inputs = einsum.names.index("Inputs")
    assert account(einsum, DEEP[1], batch).fills[level, inputs, 0] == fills
    assert_equal(einsum, DEEP[1], batch)


@examples(100)
@given(splits(exact=False))
def test_nothing_beats_compulsory_traffic(case: tuple[Einsum, MappingBatch]) -> None:
    einsum, batch = case
    traffic = account(einsum, chip(), batch)
    for t, tensor in enumerate(einsum.tensors):
        moved = (traffic.updates if tensor.is_output else traffic.reads)[0, t, 0]
        touched = tensor.size(einsum.bounds)
        if tensor.windows:  # a stride may leave words between tiles untouched
            touched = min(touched, einsum.bounds["C"] * einsum.bounds["P"])
        assert moved >= touched


@pytest.mark.parametrize("rows", [1, 7, 8192, 8193])
def test_one_row_is_the_batch_bit_for_bit(rows: int) -> None:
    rng = np.random.default_rng(rows)
    einsum = matmul(m=8, n=8, k=8)
    slots = len(chip().slots)
    factors = np.ones((slots, 3, rows))
    for d in range(3):
        for _ in range(3):
            factors[rng.choice([0, 2, 5, 6], rows), d, np.arange(rows)] *= 2
    order = rng.permuted(
        np.tile(np.arange(3, dtype=np.int8)[None, :, None], (slots, 1, rows)), axis=1
    )
    batch = MappingBatch(factors, order, tuple(frozenset(einsum.names) for _ in range(4)))
    whole = account(einsum, chip(), batch)
    for row in {0, rows // 2, rows - 1}:
        one = account(einsum, chip(), batch.take(slice(row, row + 1)))
        assert (one.reads[..., 0] == whole.reads[..., row]).all()
        assert (one.updates[..., 0] == whole.updates[..., row]).all()
        assert one.steps[0] == whole.steps[row]
