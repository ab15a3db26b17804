"""Fused neighbours: known answers by hand, laws, every plan with every mapping of small pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from silicast.accelerator.counting.cost import Objective, cost, objective_value
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.mapping import Loop, LoopNest, MappingBatch
from silicast.accelerator.counting.neighbours import Pair, pair_of
from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory, Port
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.enumeration import Best, DesignFamily, counted_mappings
from silicast.accelerator.mapper.fusion import FusionPlan, fused_cost
from silicast.accelerator.mapper.fusion_search import Fused, _FusionSearch, best_fusion
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.core.errors import SilicastError
from tests.sampling import FULL

CHIP = Architecture(
    "chip",
    (
        Memory("dram", read_pj=10.0, fill_pj=10.0, update_pj=10.0),
        Memory("buffer", 64.0, read_pj=1.0, fill_pj=1.0, update_pj=1.0),
    ),
    Compute("mac", energy_pj=1.0),
)
TWO_PRODUCTS = pair_of(matmul(m=4, n=3, k=2), matmul(m=4, n=2, k=3))
NO_KEEPS: dict[str, frozenset[str]] = {
    "dram": frozenset({"Weights", "Inputs", "Outputs"}),
    "buffer": frozenset({"Weights", "Inputs", "Outputs"}),
}


def in_buffer(plan: FusionPlan) -> tuple[LoopNest, LoopNest]:
    """All loops of both phases at the buffer, whose tiles come once."""
    items = []
    for half in (0, 1):
        stay = plan.staying(half)
        loops = tuple(
            Loop("buffer", dim, size) for dim, size in plan.einsums[half].bounds.items() if size > 1
        )
        keeps = {"dram": NO_KEEPS["dram"] - stay, "buffer": NO_KEEPS["buffer"]}
        items.append(LoopNest(loops, keeps))
    return items[0], items[1]


def test_rows_cut_in_two_by_hand() -> None:
    """Both weights stay; 4 of 8 inputs come for each tile, 2 x 3 between, 2 x 2 results leave.

    First: inputs 4 x (10 + 1) and 12 reads, weights 12 reads, between 12 updates and 6 reads, 12
    products: 98. Second: 12 and 12 reads, results 12 updates, 8 reads, 4 x 10 at dram, 12 products:
    96. Weights: 12 words once, 11 each.
    """
    plan = FusionPlan(TWO_PRODUCTS, 1, ((0, 2),), frozenset({(0, "Weights"), (1, "Weights")}))
    result = fused_cost(plan, CHIP, Constraints(), in_buffer(plan))
    assert float(result.phases[0].energy_pj[0]) == 98
    assert float(result.phases[1].energy_pj[0]) == 96
    assert (result.load_pj, result.energy_pj) == (132, 520)
    assert result.cycles == 2 * (12 + 12)
    outside = result.words(0)
    assert outside[0, "Outputs"] == outside[1, "Inputs"] == 0
    assert outside == {
        (0, "Weights"): 6, (0, "Inputs"): 8, (0, "Outputs"): 0,
        (1, "Weights"): 6, (1, "Inputs"): 0, (1, "Outputs"): 8,
    }  # fmt: skip
    assert result.recomputed == 0


def test_what_is_added_up_cut_in_three_by_hand() -> None:
    """Inputs and results stay; a column of weights and one of what lies between come for a tile.

    First: weights 2 x 11 and 8 reads, inputs 8 reads, between 8 updates, 4 reads, 8 products: 58.
    Second: 22, 8, 8 reads, 8 updates, 8 products: 54, and 8 reads more where results go on: 62.
    """
    resident = frozenset({(0, "Inputs"), (1, "Outputs")})
    plan = FusionPlan(TWO_PRODUCTS, 1, ((1, 3),), resident)
    assert plan.finishes
    assert not replace(plan, resident=frozenset({(0, "Inputs")})).finishes
    result = fused_cost(plan, CHIP, Constraints(), in_buffer(plan))
    assert float(result.phases[0].energy_pj[0]) == 58
    assert float(result.phases[1].energy_pj[0]) == 54
    assert float(result.going_on.energy_pj[0]) == 62
    assert result.load_pj == 8 * 11 + 8 * 10
    assert result.energy_pj == 3 * 58 + 54 + 2 * 62 + result.load_pj


def test_rows_of_a_window_are_computed_twice_or_stay() -> None:
    pair = pair_of(conv2d(c=1, m=1, p=6, q=1, r=1, s=1), conv2d(c=1, m=1, p=4, q=1, r=3, s=1))
    index = [other for _, other in pair.along].index("P")
    again = FusionPlan(pair, 1, ((index, 2),))
    assert again.einsums[0].bounds["P"] == again.between == 4
    assert fused_cost(again, CHIP, Constraints(), in_buffer(again)).recomputed == 2
    stays = replace(again, keeps_halo=True)
    assert stays.einsums[0].bounds["P"] == 3
    assert stays.between == 4
    assert fused_cost(stays, CHIP, Constraints(), in_buffer(stays)).recomputed == 0


def test_room_of_what_lies_between_and_of_residents_is_taken() -> None:
    plan = FusionPlan(TWO_PRODUCTS, 1, ((0, 2),), frozenset({(0, "Weights"), (1, "Weights")}))
    phase = plan.phase(0, CHIP, Constraints())
    # Of 64 words the other's weights take 6; what lies between and its own are its own tiles.
    assert phase.architecture.memories[1].capacity_words == 58
    small = replace(CHIP, nodes=(CHIP.nodes[0], Memory("buffer", 20.0)))
    with pytest.raises(SilicastError, match="20 words that are there"):
        plan.phase(0, small, Constraints())


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (matmul(m=4, n=2, k=5), "N=3, the second takes K=5"),
        (conv2d(c=3, m=1, p=4, q=1, r=1, s=1), "do not share their loops"),
    ],
)
def test_operations_that_are_no_neighbours_are_refused(second: object, said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        pair_of(TWO_PRODUCTS.first, second)  # type: ignore[arg-type]


def random_chip(rng: np.random.Generator) -> Architecture:
    energies = np.sort(rng.uniform(0.2, 20, 3))[::-1]
    port = (Port("all", float(rng.choice([0.5, 1, 4]))),) if rng.random() < 0.5 else ()
    memories = [
        Memory(name, room, read_pj=float(e), fill_pj=float(0.8 * e), update_pj=float(0.9 * e),
               ports=port if name == "dram" else (), block_words=block, keeps=keeps)
        for name, room, e, block, keeps in zip(
            ("dram", "buffer", "local"), (None, float(rng.integers(16, 60)), 3.0), energies,
            (int(rng.choice([1, 2])), 1, 1), (None, None, ("Outputs",)), strict=True,
        )
    ]  # fmt: skip
    fan = FanOut("array", (int(rng.integers(1, 4)),))
    return Architecture(
        "chip", (memories[0], memories[1], fan, memories[2]), Compute("mac", energy_pj=0.2)
    )


def random_pair(rng: np.random.Generator) -> Pair:
    if rng.random() < 0.6:
        m, n, k, l_ = (int(rng.choice([1, 2, 3])) for _ in range(4))
        return pair_of(matmul(m=m, n=n, k=k), matmul(m=m, n=l_, k=n))
    c, m, p, r = (int(rng.choice([1, 2])) for _ in range(3)), 2, 4, int(rng.choice([1, 2, 3]))
    one, two, three = c
    return pair_of(
        conv2d(c=one, m=two, p=p + r - 1, q=1, r=m, s=1), conv2d(c=two, m=three, p=p, q=1, r=r, s=1)
    )


def every_plan(pair: Pair, level: int) -> Iterator[FusionPlan]:
    """All of them, whether they fit or not."""
    counts = []
    for _, dim in pair.along:
        size = pair.second.bounds.get(dim, 1)
        counts.append([c for c in range(1, size + 1) if size % c == 0])
    tensors = [(h, t.name) for h, e in enumerate((pair.first, pair.second)) for t in e.tensors]
    for chosen in itertools.product(*counts):
        cut = [(index, count) for index, count in enumerate(chosen) if count > 1]
        for cuts in itertools.permutations(cut):
            for size in range(len(tensors) - 1):
                for some in itertools.combinations(tensors, size):
                    plan = FusionPlan(pair, level, cuts, frozenset(some))
                    if any(name == plan.between_of(half) for half, name in some):
                        continue
                    yield plan
                    last = pair.along[cuts[-1][0]] if cuts else ("", "")
                    if cuts and pair.first.bounds[last[0]] % cuts[-1][1] == 0:
                        yield replace(plan, keeps_halo=True)


def least_of_all(pair: Pair, chip: Architecture, objective: Objective) -> float:
    """The least of every plan with every mapping, and of both apart."""

    def alone(einsum: Einsum, architecture: Architecture, rules: Constraints) -> Best:
        return counted_mappings(einsum, DesignFamily.from_architecture(architecture), rules).best(
            architecture, objective
        )

    ends = [alone(einsum, chip, Constraints()) for einsum in (pair.first, pair.second)]
    least = sum(each.value for each in ends)
    for plan in every_plan(pair, 1):
        if not plan.finishes:
            continue
        try:
            nests = []
            for half in (0, 1):
                phase = plan.phase(half, chip, Constraints())
                nests.append(alone(phase.einsum, phase.architecture, phase.constraints).nest)
        except SilicastError:
            continue
        result = fused_cost(plan, chip, Constraints(), (nests[0], nests[1]))
        least = min(least, objective_value(objective, result.energy_pj, result.cycles))
    return least


def nests_of(fusion: Fused, pair: Pair) -> list[tuple[Einsum, LoopNest]]:
    """What is mapped, of the better way: tiles of a plan, or both as they are."""
    if fusion.cost is not None and fusion.is_fused:
        return list(zip(fusion.cost.plan.einsums, fusion.cost.nests, strict=True))
    return [(pair.first, fusion.apart[0].nest), (pair.second, fusion.apart[1].nest)]


def divides(fusion: Fused, pair: Pair) -> bool:
    """Whether no tile is cut short."""
    return all(
        math.prod(loop.bound for loop in nest.loops if loop.dim == dim) == size
        for einsum, nest in nests_of(fusion, pair)
        for dim, size in einsum.bounds.items()
    )


def counted_again(fusion: Fused, pair: Pair, chip: Architecture) -> float:
    """The objective of the better way, counted anew; infinite where a tile does not fit."""
    (first, one), (second, other) = nests_of(fusion, pair)
    if fusion.cost is not None and fusion.is_fused:
        counted = fused_cost(fusion.cost.plan, chip, Constraints(), (one, other))
        fit = all(phase.fits[0] for phase in counted.phases)
        energy, cycles = counted.energy_pj, counted.cycles
    else:
        parts = [
            cost(einsum, chip, MappingBatch.from_nest(nest, einsum, chip))
            for einsum, nest in ((first, one), (second, other))
        ]
        fit = all(part.fits[0] for part in parts)
        energy = sum(float(part.energy_pj[0]) for part in parts)
        cycles = sum(float(part.cycles[0]) for part in parts)
    return objective_value(fusion.objective, energy, cycles) if fit else math.inf


def test_tiles_cut_short_are_quicker_than_every_mapping_that_divides_by_hand() -> None:
    """Three columns on two units, once and for three products each: 2 + 6 steps, not 3 + 9."""
    chip = replace(CHIP, nodes=(*CHIP.nodes, FanOut("array", (2,))))
    pair = pair_of(matmul(m=1, n=3, k=1), matmul(m=1, n=3, k=3))
    assert least_of_all(pair, chip, "latency") == 12.0
    fusion = best_fusion(pair, chip, objective="latency")
    assert fusion.value == counted_again(fusion, pair, chip) == 8.0
    assert not divides(fusion, pair)


@pytest.mark.parametrize("objective", ["energy", pytest.param("latency", marks=pytest.mark.full)])
def test_no_plan_is_better_than_the_one_found(objective: Objective) -> None:
    rng = np.random.default_rng(7)
    solved = fused = 0
    while solved < (30 if FULL else 2):
        pair, chip = random_pair(rng), random_chip(rng)
        try:
            fusion = best_fusion(pair, chip, objective=objective, effort=10_000_000)
        except SilicastError:
            continue
        least = least_of_all(pair, chip, objective)
        # Results that go on cost reads which no search sees: another mapping may have fewer.
        assert fusion.value <= least * (1 + 1e-9) or fusion.bound <= least * (1 + 1e-9)
        assert fusion.value <= least * 1.02
        if divides(fusion, pair):
            assert fusion.value >= least * 0.98
        else:  # tiles cut short are not among every mapping: what it costs is counted again
            assert fusion.value == counted_again(fusion, pair, chip)
        assert fusion.bound <= least * (1 + 1e-9)
        solved += 1
        fused += fusion.is_fused
    assert fused or not FULL


def test_a_resident_tensor_comes_once_for_all_tiles() -> None:
    """The first's weights fill the buffer once, not for either tile: a bound that charges them
    twice gives this plan up.
    """
    pair = pair_of(conv2d(c=2, m=2, p=6, q=1, r=2, s=1), conv2d(c=2, m=2, p=4, q=1, r=3, s=1))
    chip = Architecture(
        "chip",
        (
            Memory(
                "dram", block_words=2, read_pj=1.124, fill_pj=0.899, update_pj=1.011,
                ports=(Port("all", 4.0),),
            ),
            Memory("buffer", 26.0, read_pj=0.8, fill_pj=0.64, update_pj=0.72),
            FanOut("array", (1,)),
            Memory("local", 3.0, read_pj=0.6, fill_pj=0.48, update_pj=0.54, keeps=("Outputs",)),
        ),
        Compute("mac", energy_pj=0.2),
    )  # fmt: skip
    fusion = best_fusion(pair, chip, objective="energy", effort=10_000_000)
    assert fusion.is_fused
    assert fusion.cost is not None
    assert fusion.cost.plan.resident == {(0, "Weights")}
    # The best of every plan with every mapping, as ``least_of_all`` counts it.
    assert fusion.value == pytest.approx(346.38, rel=1e-9)
    assert fusion.bound <= 346.38 * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_no_bound_of_a_plan_is_above_its_best_phases(objective: Objective) -> None:
    """Every plan by itself, residents and their loading among it, on chips that leak."""
    rng = np.random.default_rng(11)
    for _ in range(12 if FULL else 2):
        pair, chip = random_pair(rng), random_chip(rng)
        chip = replace(chip, compute=replace(chip.compute, leak_pj_per_cycle=0.3))
        try:
            search = _FusionSearch(pair, chip, Constraints(), objective, 10_000_000)
            plans = list(search.plans())
        except SilicastError:
            continue
        for number in rng.permutation(len(plans))[:8]:
            plan = plans[number]
            try:
                phases = [plan.phase(half, chip, Constraints()) for half in (0, 1)]
                first, second = (
                    best_mapping(
                        each.einsum, each.architecture, each.constraints,
                        objective=objective, effort=10_000_000, padding=False,
                    )
                    for each in phases
                )  # fmt: skip
            except SilicastError:
                continue
            result = fused_cost(plan, chip, Constraints(), (first.nest, second.nest))
            value = objective_value(objective, result.energy_pj, result.cycles)
            assert search._least(plan) <= value * (1 + 1e-9)
            assert search._least_of_tiles(plan) <= value * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_fused_is_never_worse_than_apart(objective: Objective) -> None:
    pair = pair_of(
        matmul(m=32, n=16, k=16, batch=2, weights_per_batch=True),
        matmul(m=32, n=16, k=16, batch=2, weights_per_batch=True),
    )
    chip = Architecture(
        "chip",
        (
            Memory("dram", read_pj=60.0, update_pj=60.0, ports=(Port("all", 2.0),)),
            Memory("buffer", 1024.0, read_pj=1.0, fill_pj=1.0, update_pj=1.0),
            FanOut("array", (4, 4)),
        ),
        Compute("mac", energy_pj=0.2),
    )
    fusion = best_fusion(pair, chip, objective=objective)
    assert fusion.bound <= fusion.value <= fusion.apart_value
    assert fusion.is_fused or objective == "latency"  # the units are the bound of both
    assert fusion.cost is not None
    before = sum(
        float(getattr(each.cost.traffic, action)[0].sum())
        for each in fusion.apart for action in ("reads", "fills", "updates")
    )  # fmt: skip
    assert fusion.saved_bytes == before - sum(fusion.cost.words(0).values())
    # Nothing beats what has to move once.
    least = sum(
        tensor.size(einsum.bounds) for half, einsum in enumerate((pair.first, pair.second))
        for tensor in einsum.tensors if tensor.name != fusion.cost.plan.between_of(half)
    )  # fmt: skip
    assert sum(fusion.cost.words(0).values()) >= least


def test_tensors_at_home_on_the_chip_are_mapped_as_well_as_they_can_be() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40 if FULL else 6):
        pair, chip = random_pair(rng), random_chip(rng)
        plan = FusionPlan(pair, 1, (), frozenset({(0, "Weights")}))
        try:
            phase = plan.phase(0, chip, Constraints())
            least = counted_mappings(
                phase.einsum, DesignFamily.from_architecture(phase.architecture), phase.constraints
            ).best(phase.architecture, "energy")
        except SilicastError:
            continue
        mapping = best_mapping(
            phase.einsum, phase.architecture, phase.constraints, effort=10**8, padding=False
        )
        assert mapping.value == pytest.approx(least.value, rel=1e-9)
        assert mapping.bound <= least.value * (1 + 1e-9)
        for name in plan.staying(0):
            assert name not in mapping.nest.keeps["dram"]
