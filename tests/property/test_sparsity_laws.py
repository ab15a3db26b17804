"""Designs that leave zeros out: laws, and a walk through random tensors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.accelerator.counting.cost import MappingCost, cost
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import (
    Architecture,
    Compute,
    Elimination,
    FanOut,
    Memory,
    MetadataStore,
    Port,
)
from silicast.accelerator.zeros.density import Blocked, Density, Given, Structured, Uniform
from silicast.accelerator.zeros.formats import FORMATS, TensorFormat
from tests.property.sparse_walk import SparseWalk
from tests.sampling import examples

TENSORS = ("Weights", "Inputs", "Outputs")


def chip(*memories: Memory, waits: bool = False) -> Architecture:
    """A memory, a buffer, four units with a register file each."""
    dram, buffer, register = memories
    return Architecture(
        "chip", (dram, buffer, FanOut("units", (4,), waits=waits), register),
        Compute("mac", energy_pj=0.5),
    )  # fmt: skip


def plain(name: str) -> Memory:
    return Memory(
        name, block_words=2 if name == "dram" else 1, read_pj=3.0, fill_pj=2.0, update_pj=2.5,
        ports=(Port("read", 2.0, ("read",)), Port("write", 2.0, ("fill", "update"))),
        metadata=MetadataStore(4, 1, None, 0.3, 0.2, 0.25),
    )  # fmt: skip


def eliminations(operands_only: bool = False) -> st.SearchStrategy[Elimination]:
    def rule(kind: str, pair: tuple[str, ...]) -> Elimination:
        conditions = tuple(n for n in pair[1:] if n != "Outputs")
        return Elimination(kind, pair[0], conditions)  # type: ignore[arg-type]

    targets = st.permutations(TENSORS).filter(lambda p: not operands_only or p[0] != "Outputs")
    return st.builds(rule, st.sampled_from(["skip", "gate"]), targets.map(tuple))


def formats() -> st.SearchStrategy[tuple[TensorFormat, ...]]:
    outer = st.lists(st.sampled_from(["uop", "u", "cp"]), max_size=2)
    last = st.sampled_from(["cp", "rle", "bitmask"])
    one = st.builds(lambda o, last: tuple(FORMATS[n] for n in (*o, last)), outer, last)
    chosen = st.lists(st.sampled_from(("Weights", "Inputs")), unique=True, max_size=2)
    ranks = st.tuples(one, one)
    return st.builds(
        lambda names, two: tuple(TensorFormat(n, r) for n, r in zip(names, two, strict=False)),
        chosen, ranks,
    )  # fmt: skip


@st.composite
def designs(draw: st.DrawFn) -> Architecture:
    return chip(
        *(
            replace(
                plain(name), formats=draw(formats()),
                eliminations=tuple(draw(st.lists(eliminations(), max_size=2))),
            )
            for name in ("dram", "buffer", "register")
        )
    )  # fmt: skip


@st.composite
def mappings(draw: st.DrawFn, *, windows: bool = True) -> tuple[Einsum, MappingBatch]:
    """A small problem, and loops that divide it."""
    if not windows or draw(st.booleans()):
        einsum = matmul(m=draw(st.integers(1, 4)), n=draw(st.integers(1, 4)),
                        k=draw(st.sampled_from([2, 4, 6])))  # fmt: skip
    else:
        einsum = conv2d(c=2, m=2, p=draw(st.sampled_from([2, 4])), r=2, q=1, s=1)
    arch = chip(plain("dram"), plain("buffer"), plain("register"))
    factors = np.ones((len(arch.slots), len(einsum.dims), 1))
    for d, bound in enumerate(einsum.bounds.values()):
        left = bound
        for slot in draw(st.permutations(range(len(arch.slots)))):
            split = draw(st.sampled_from([f for f in range(1, left + 1) if left % f == 0]))
            if arch.slots[slot].is_spatial and split * factors[slot].prod() > 4:
                continue
            factors[slot, d, 0] *= split
            left //= split
        factors[0, d, 0] *= left
    order = np.array(
        [draw(st.permutations(range(len(einsum.dims)))) for _ in arch.slots], dtype=np.int8
    )
    keep = [frozenset(einsum.names)] * 3
    keep[1] = keep[1] - frozenset(draw(st.lists(st.sampled_from(TENSORS), max_size=1)))
    return einsum, MappingBatch(factors, order[:, :, None], tuple(keep))


def moved(result: MappingCost) -> float:
    assert result.zeros is not None
    parts = (result.zeros.reads, result.zeros.fills, result.zeros.updates)
    return float(sum(part.actual.sum() for part in parts))


@examples(40)
@given(mappings(), st.lists(eliminations(), min_size=1, max_size=3))
def test_density_one_is_dense_bit_for_bit(
    case: tuple[Einsum, MappingBatch], rules: list[Elimination]
) -> None:
    einsum, batch = case
    dense = cost(einsum, chip(plain("dram"), plain("buffer"), plain("register")), batch)
    knowing = chip(*(replace(plain(n), eliminations=tuple(rules))
                     for n in ("dram", "buffer", "register")))  # fmt: skip
    result = cost(einsum, knowing, batch)
    assert result.zeros is not None
    assert (result.energy_pj == dense.energy_pj).all()
    assert (result.cycles == dense.cycles).all()
    assert (result.access_pj == dense.access_pj).all()


@examples(40)
@given(mappings(), designs(), st.sampled_from([Uniform, Structured]))
def test_fewer_values_never_cost_more(
    case: tuple[Einsum, MappingBatch], design: Architecture, kind: type[Uniform | Structured]
) -> None:
    einsum, batch = case
    if not design.knows_zeros:
        return
    last: MappingCost | None = None
    for share in (0.25, 0.5, 0.75, 1.0):
        result = cost(
            einsum.with_densities({"Weights": kind(share), "Inputs": kind(share)}), design, batch
        )
        if last is not None:
            assert last.energy_pj[0] <= result.energy_pj[0] * (1 + 1e-12)
            assert last.cycles[0] <= result.cycles[0]
            assert moved(last) <= moved(result)
        last = result


@examples(40)
@given(mappings(), designs())
def test_what_is_left_out_adds_up(case: tuple[Einsum, MappingBatch], design: Architecture) -> None:
    einsum, batch = case
    einsum = einsum.with_densities({"Weights": Uniform(0.5), "Inputs": Uniform(0.5)})
    result = cost(einsum, design, batch)
    zeros = result.zeros
    if zeros is None:
        assert not design.knows_zeros
        return
    for name in ("reads", "fills", "updates"):
        outcome, dense = getattr(zeros, name), getattr(result.traffic, name)
        for part in (outcome.actual, outcome.gated, outcome.skipped):
            assert (part >= 0).all()
        whole = outcome.actual + outcome.gated + outcome.skipped
        assert (whole <= dense / result.traffic.used[:, None]).all()
    assert (zeros.stored <= result.traffic.tiles).all()
    assert zeros.computes.actual[0] <= einsum.points


def drawn(tensor_shape: tuple[int, ...], density: Density, rng: np.random.Generator) -> np.ndarray:
    size = math.prod(tensor_shape)
    held = np.zeros(size, dtype=bool)
    held[rng.permutation(size)[: max(1, round(density.share * size))]] = True
    return held.reshape(tensor_shape)


def compare_with_walks(
    einsum: Einsum, design: Architecture, batch: MappingBatch, draws: int
) -> None:
    """The mean over draws lies within what sampling and whole words leave open."""
    rng = np.random.default_rng(0)
    result = cost(einsum, design, batch)
    zeros = result.zeros
    assert zeros is not None
    shapes = {t.name: t.shape(einsum.bounds) for t in einsum.tensors}
    walks = [
        SparseWalk(einsum, design, batch,
                   {t.name: drawn(shapes[t.name], t.density, rng) for t in einsum.tensors})
        for _ in range(draws)
    ]  # fmt: skip

    def near(ours: float, counts: list[int], words: float, what: object) -> None:
        spread = float(np.std(counts)) / math.sqrt(draws)
        assert abs(ours - float(np.mean(counts))) <= words + 5 * spread + 1e-9, what

    for level, t in walks[0].sent:
        number = einsum.names.index(t)
        kind = zeros.updates if einsum.tensor(t).is_output else zeros.reads
        used = float(result.traffic.used[level, 0])
        near(
            float(kind.actual[level, number, 0]) * used, [w.sent[level, t] for w in walks], used,
            (level, t),
        )  # fmt: skip
    near(float(zeros.computes.actual[0]), [w.products for w in walks], 1.0, "products")


def exact_share(size: int) -> Uniform:
    """Half of the values, so that a draw has exactly as many as the density says."""
    return Uniform((size // 2) / size if size > 1 else 1.0)


def walk_through(case: tuple[Einsum, MappingBatch], design: Architecture, draws: int) -> None:
    einsum, batch = case
    if not design.knows_zeros:
        return
    shapes = {t.name: t.shape(einsum.bounds) for t in einsum.tensors}
    half = {
        t.name: exact_share(math.prod(shapes[t.name])) for t in einsum.tensors if not t.is_output
    }
    compare_with_walks(einsum.with_densities(half), design, batch, draws)


@examples(10)
@given(mappings(windows=False), designs())
def test_counts_are_the_means_of_walks_through_random_tensors(
    case: tuple[Einsum, MappingBatch], design: Architecture
) -> None:
    walk_through(case, design, draws=15)


@pytest.mark.full
@examples(400)
@given(mappings(windows=False), designs())
def test_counts_are_the_means_of_many_walks(
    case: tuple[Einsum, MappingBatch], design: Architecture
) -> None:
    walk_through(case, design, draws=30)


TILES = st.tuples(st.sampled_from([1, 2, 3, 4, 6, 12]), st.sampled_from([1, 2, 4, 8, 16]))
WHOLE = (12, 16)


@examples(60)
@given(TILES, st.sampled_from([0.0625, 0.25, 0.5, 0.75]), st.sampled_from([1, 2, 4]))
def test_uniform_tiles_are_those_of_draws(tile: tuple[int, int], share: float, block: int) -> None:
    density, rng = Uniform(share), np.random.default_rng(1)
    counts = []
    for _ in range(200):
        held = drawn(WHOLE, density, rng)
        counts.extend(held.reshape(WHOLE[0] // tile[0], tile[0], WHOLE[1] // tile[1], tile[1])
                      .sum(axis=(1, 3)).ravel())  # fmt: skip
    counts_of = np.array(counts)
    spread = 6 / math.sqrt(200)
    words = math.prod(tile)
    assert density.empty_one(tile, WHOLE) == pytest.approx(
        float((counts_of == 0).mean()), abs=spread * 0.5
    )
    blocks = float(np.ceil(counts_of / block).mean())
    assert density.blocks_one(tile, WHOLE, block) == pytest.approx(
        blocks, abs=1e-9 + spread * float(np.std(np.ceil(counts_of / block)))
    )
    assert density.most_one(tile, WHOLE) >= counts_of.max()
    assert density.most_one(tile, WHOLE) <= words


@examples(60)
@given(TILES, st.sampled_from([1, 2, 7, 64]))
def test_the_busiest_tile_is_between_the_mean_and_the_fullest(
    tile: tuple[int, int], units: int
) -> None:
    pattern = Given.from_values(np.random.default_rng(2).random(WHOLE) < 0.3)
    for density in (Uniform(0.3), Structured(0.3), Blocked(1, 4), pattern):
        words, share = math.prod(tile), density.share
        busiest = density.busiest_one(tile, WHOLE, units)
        assert words * share * (1 - 1e-9) <= busiest <= density.most_one(tile, WHOLE) + 1e-9
        if units == 1:
            assert busiest == pytest.approx(words * share, rel=1e-9)
        assert busiest <= density.busiest_one(tile, WHOLE, units + 1) + 1e-9


@pytest.mark.parametrize("tile", [(1, 1), (1, 2), (2, 2), (3, 4), (1, 6)])
def test_blocks_of_a_pattern_are_those_of_draws(tile: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    counts = []
    for _ in range(400):
        order = rng.random((12, 4, 4)).argsort(axis=2) < 2
        held = order.reshape(12, 16)
        counts.append(held[: tile[0], : tile[1]].sum())
    empty = float((np.array(counts) == 0).mean())
    assert Blocked(2, 4).empty_one(tile, (12, 16)) == pytest.approx(empty, abs=0.1)


def test_units_that_wait_take_as_long_as_the_busiest() -> None:
    einsum = matmul(m=8, n=1, k=64).with_densities({"Inputs": Uniform(0.25)})
    rules = (Elimination("skip", "Weights", ("Inputs",)),)
    batch = MappingBatch(np.ones((4, 3, 1)), np.zeros((4, 3, 1), np.int8),
                         (frozenset(einsum.names),) * 3)  # fmt: skip
    factors = batch.factors.copy()
    factors[0, 0], factors[2, 0], factors[3, 2] = 2, 4, 64  # four rows at once, all of k in each
    batch = replace(batch, factors=factors)
    memories = plain("dram"), plain("buffer"), replace(plain("register"), eliminations=rules)
    free = cost(einsum, chip(*memories), batch)
    waiting = cost(einsum, chip(*memories, waits=True), batch)
    assert free.zeros is not None
    assert waiting.zeros is not None
    rng = np.random.default_rng(4)
    rows = [drawn((8, 64), Uniform(0.25), rng)[:4].sum(axis=1).max() for _ in range(400)]
    assert free.zeros.steps[0] == 32
    assert waiting.zeros.steps[0] == pytest.approx(2 * float(np.mean(rows)), rel=0.02)


def test_whole_blocks_of_a_pattern_hold_what_it_says() -> None:
    """Of three rows of two blocks 2:4 twelve; of a row of a block and two values, two and what is
    drawn: one of six pairs of places has none, four have one, one has both.
    """
    assert Blocked(2, 4).drawn((3, 8), (3, 8)) == ((12, 1.0),)
    cut = dict(Blocked(2, 4).drawn((1, 6), (1, 8)))
    assert cut == pytest.approx({2: 1 / 6, 3: 4 / 6, 4: 1 / 6})
