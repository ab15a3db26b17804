"""The mapper against every mapping there is, and laws of a proven optimum."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from silicast.accelerator.counting.cost import Objective, cost, value_of
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.mapping import MappingBatch, keep_patterns
from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory, Port
from silicast.accelerator.mapper._hunt import Hunt
from silicast.accelerator.mapper.budget import EFFORT, SearchBudget
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.enumeration import DesignFamily, counted_mappings
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.accelerator.mapper.task import OBJECTIVES
from silicast.core.errors import SilicastError
from tests.sampling import FULL

PROBLEMS = 100 if FULL else 12


def random_chip(rng: np.random.Generator, names: tuple[str, ...]) -> Architecture:
    """Three memories, of which one may keep a single tensor, and a fan-out somewhere."""
    energy = np.sort(rng.uniform(0.1, 20, 3))[::-1]
    leak = float(rng.choice([0.0, 0.05]))
    memories = [
        Memory(
            name, capacity_words=capacity, read_pj=float(e), fill_pj=float(e * rng.uniform(0.5, 1)),
            update_pj=float(e * rng.uniform(0.5, 1)), keeps=keeps, may_bypass=passes,
            leak_pj_per_cycle=leak,
        )
        for name, capacity, e, keeps, passes in (
            ("dram", None, energy[0], None, ()),
            ("buffer", float(rng.integers(12, 80)), energy[1], None,
             (str(rng.choice(names)),) if rng.random() < 0.5 else ()),
            ("local", float(rng.integers(3, 12)), energy[2],
             tuple(rng.choice(names, int(rng.integers(1, 4)), replace=False)), ()),
        )
    ]  # fmt: skip
    fan = FanOut("array", (int(rng.integers(2, 5)),), bool(rng.random() < 0.8),
                 bool(rng.random() < 0.8))  # fmt: skip
    index = int(rng.integers(1, 4))
    if index < 3 and fan.size == 4:
        memories[2] = dataclasses.replace(memories[2], cluster=int(rng.choice([1, 2, 4])))
    nodes: tuple[Memory | FanOut, ...] = (*memories[:index], fan, *memories[index:])
    return Architecture("chip", nodes, Compute("mac", energy_pj=0.2), idle_leaks=False)


def random_problem(rng: np.random.Generator) -> Einsum:
    if rng.random() < 0.5:
        m, n, k = (int(rng.choice([2, 3, 4, 6, 8])) for _ in range(3))
        return matmul(m=m, n=n, k=k)
    sizes = {d: int(rng.choice([1, 2, 3, 4])) for d in "cmpr"}
    return conv2d(**sizes, q=1, s=1, stride=int(rng.integers(1, 3)))


def every_mapping(einsum: Einsum, chip: Architecture) -> list[MappingBatch]:
    """All of them, or nothing where there are more than a million."""
    slots, dims = chip.slots, einsum.dims
    per_dim = []
    for size in einsum.bounds.values():
        divisors = [f for f in range(1, size + 1) if size % f == 0]
        per_dim.append(
            [c for c in itertools.product(divisors, repeat=len(slots)) if np.prod(c) == size]
        )
    turning = [d for d, size in enumerate(einsum.bounds.values()) if size > 1]
    orders = list(itertools.permutations(turning))
    count = np.prod([len(c) for c in per_dim]) * len(orders) ** 3
    if count > 1_000_000:
        return []
    tables = [np.array(c, dtype=float).T for c in per_dim]
    index = np.indices([len(c) for c in per_dim]).reshape(len(dims), -1)
    factors = np.stack([t[:, i] for t, i in zip(tables, index, strict=True)], axis=1)
    for s, slot in enumerate(slots):
        factors = factors[:, :, factors[s].prod(axis=0) <= slot.limit]
    mapping_batches = []
    for keep in keep_patterns(einsum, chip):
        for chosen in itertools.product(orders, repeat=3):
            positions = np.zeros(factors.shape, dtype=np.int8)
            for position, order in zip(chip.memory_slots, chosen, strict=True):
                for rank, d in enumerate(order):
                    positions[position, d] = rank
            mapping_batches.append(MappingBatch(factors, positions, keep))
    return mapping_batches


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
@pytest.mark.parametrize("problems", [PROBLEMS, pytest.param(1000, marks=pytest.mark.nightly)])
def test_no_mapping_is_better_than_the_one_found(objective: Objective, problems: int) -> None:
    rng = np.random.default_rng(18)
    solved = 0
    while solved < problems // (1 if objective == "energy" else 4):
        einsum = random_problem(rng)
        chip = random_chip(rng, einsum.names)
        batches = every_mapping(einsum, chip)
        if not batches:
            continue
        least = min(float(value_of(cost(einsum, chip, b), objective).min()) for b in batches)
        if not np.isfinite(least):
            continue
        mapping = best_mapping(einsum, chip, objective=objective, effort=100_000_000, padding=False)
        assert mapping.value == pytest.approx(least, rel=1e-9), (solved, chip, einsum.bounds)
        assert mapping.bound <= least * (1 + 1e-9)
        assert mapping.gap < 0.05
        solved += 1


def with_widths(
    chip: Architecture, names: tuple[str, ...], rng: np.random.Generator
) -> Architecture:
    """The chip with elements in its memories that are wider than its words."""
    nodes: list[Memory | FanOut] = []
    for node in chip.nodes:
        if isinstance(node, FanOut):
            nodes.append(node)
            continue
        some = [name for name in names if node.may_keep(name)]
        bits = tuple((name, int(rng.choice([8, 16, 32]))) for name in some)
        nodes.append(dataclasses.replace(node, tensor_bits=bits))
    return dataclasses.replace(chip, nodes=tuple(nodes))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_mapping_of_tensors_of_several_widths_is_better(objective: Objective) -> None:
    rng = np.random.default_rng(23)
    solved = 0
    while solved < PROBLEMS:
        einsum = random_problem(rng)
        chip = with_port(with_widths(random_chip(rng, einsum.names), einsum.names, rng), rng)
        batches = every_mapping(einsum, chip)
        if not batches:
            continue
        least = min(float(value_of(cost(einsum, chip, b), objective).min()) for b in batches)
        if not np.isfinite(least):
            continue
        mapping = best_mapping(einsum, chip, objective=objective, effort=100_000_000, padding=False)
        assert mapping.bound <= least * (1 + 1e-9), (solved, chip, einsum.bounds)
        assert mapping.value >= least * (1 - 1e-9)
        if objective == "energy":
            assert mapping.value == pytest.approx(least, rel=1e-9), (solved, chip, einsum.bounds)
        solved += 1


@pytest.mark.parametrize("objective", ["energy", "edp"])
def test_no_mapping_is_below_the_floor_of_what_it_keeps(objective: Objective) -> None:
    """The floor stands for every choice that a budget does not reach, or that is left out."""
    rng = np.random.default_rng(71)
    compared = 0
    while compared < PROBLEMS:
        einsum = random_problem(rng)
        chip = random_chip(rng, einsum.names)
        batches = every_mapping(einsum, chip)
        if not batches:
            continue
        hunt = Hunt(einsum, chip, Constraints(), objective, EFFORT, 0.0, SearchBudget(math.inf))
        floors = {choice.keep: choice.bound for choice in hunt.floors()}
        for batch in batches:
            least = float(value_of(cost(einsum, chip, batch), objective).min())
            assert floors[batch.keep] <= least * (1 + 1e-9), (chip, einsum.bounds, batch.keep)
        compared += 1


def with_port(chip: Architecture, rng: np.random.Generator) -> Architecture:
    """The chip with a port at one of its memories."""
    index = int(rng.choice([i for i, node in enumerate(chip.nodes) if isinstance(node, Memory)]))
    memory = chip.nodes[index]
    assert isinstance(memory, Memory)
    port = Port("port", float(rng.choice([0.5, 1.0, 2.0])))
    nodes = (*chip.nodes[:index], dataclasses.replace(memory, ports=(port,)))
    return dataclasses.replace(chip, nodes=(*nodes, *chip.nodes[index + 1 :]))


def without_clusters(chip: Architecture) -> Architecture:
    """The chip with memories whose instances share no access."""
    nodes = (n if isinstance(n, FanOut) else dataclasses.replace(n, cluster=1) for n in chip.nodes)
    return dataclasses.replace(chip, nodes=tuple(nodes))


def grown(chip: Architecture, name: str, factor: int) -> Architecture:
    """The chip with one level larger: a memory's room and ports, or a fan-out's instances."""
    nodes: list[Memory | FanOut] = []
    for node in chip.nodes:
        if node.name == name and isinstance(node, Memory):
            ports = tuple(
                dataclasses.replace(port, words_per_cycle=port.words_per_cycle * factor)
                for port in node.ports
            )
            words = None if node.capacity_words is None else node.capacity_words * factor
            node = dataclasses.replace(node, capacity_words=words, ports=ports)  # noqa: PLW2901
        elif node.name == name and isinstance(node, FanOut):
            mesh = tuple(size * factor for size in node.mesh)
            node = dataclasses.replace(node, mesh=mesh)  # noqa: PLW2901
        nodes.append(node)
    return dataclasses.replace(chip, nodes=tuple(nodes))


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_a_larger_or_wider_level_is_never_worse(objective: Objective) -> None:
    """Any level of any chip, at equal energy per access; where the optimum is proven, and always
    by the bound. Only ports hide time: every second chip has none, and all of its optima are
    proven, of each objective.
    """
    rng = np.random.default_rng(5)
    proven = 0
    for number in range(max(4, PROBLEMS // 10)):
        has_port = number % 2 == 0
        einsum = random_problem(rng)
        chip = random_chip(rng, einsum.names)
        chip = with_port(chip, rng) if has_port else chip
        node = chip.nodes[int(rng.integers(len(chip.nodes)))]
        if isinstance(node, FanOut):  # over more clusters, as many instances share fewer accesses
            chip = without_clusters(chip)
        name, best = node.name, None
        for factor in (1, 2, 8):
            try:
                mapping = best_mapping(
                    einsum, grown(chip, name, factor), objective=objective, effort=10**8,
                    padding=False,
                )  # fmt: skip
            except SilicastError:
                assert best is None, "what fits a level fits a larger one"
                continue
            assert has_port or mapping.gap <= 1e-9, (name, factor, chip, einsum.bounds)
            if best is not None:
                assert mapping.bound <= best * (1 + 1e-9)
                if mapping.gap <= 1e-9:
                    assert mapping.value <= best * (1 + 1e-9), (name, factor, chip, einsum.bounds)
                    proven += 1
            best = mapping.value
    assert proven


def test_a_narrow_port_is_bounded_and_counted() -> None:
    einsum = matmul(m=8, n=8, k=8)
    memory = Memory("dram", read_pj=1.0, update_pj=1.0, ports=(Port("read", 0.25, ("read",)),))
    buffer = Memory("buffer", 64.0, read_pj=0.1, fill_pj=0.1, update_pj=0.1)
    chip = Architecture("chip", (memory, buffer), Compute("mac", energy_pj=0.1))
    mapping = best_mapping(einsum, chip, objective="latency")
    assert mapping.value == max(512, mapping.cost.traffic.reads[0].sum() / 0.25)
    assert mapping.bound <= mapping.value


def test_counting_all_mappings_once_finds_the_best_of_every_design() -> None:
    """Of designs that differ in meshes, capacities, energies and widths, one by one."""
    for case in range(max(4, PROBLEMS // 10)):
        rng = np.random.default_rng([77, case])
        einsum = random_problem(rng)
        base = random_chip(rng, einsum.names)
        chips = [base]
        for _ in range(3):
            nodes: list[Memory | FanOut] = []
            for node in base.nodes:
                if isinstance(node, FanOut):
                    nodes.append(dataclasses.replace(node, mesh=(int(rng.integers(1, 5)),)))
                else:
                    size = node.capacity_words and float(node.capacity_words * rng.uniform(0.7, 2))
                    read, fill, update = (float(pj) for pj in rng.uniform(0.1, 9, 3))
                    nodes.append(
                        dataclasses.replace(
                            node, capacity_words=size, read_pj=read, fill_pj=fill,
                            update_pj=update,
                        )
                    )  # fmt: skip
            chips.append(dataclasses.replace(base, nodes=tuple(nodes)))
        family = DesignFamily.from_architecture(chips[0])
        for chip in chips:
            family = family.with_(chip)
        counted = counted_mappings(einsum, family, Constraints())
        for chip in chips:
            for objective in OBJECTIVES:
                try:
                    mapping = best_mapping(
                        einsum, chip, objective=objective, effort=10**9, padding=False
                    )
                except SilicastError:
                    with pytest.raises(SilicastError, match="no mapping"):
                        counted.best(chip, objective)
                    continue
                best = counted.best(chip, objective)
                assert best.value == pytest.approx(mapping.value, rel=1e-12)
                batch = MappingBatch.from_nest(best.nest, einsum, chip)
                assert value_of(cost(einsum, chip, batch), objective)[0] == best.value


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_sizes_that_do_not_fit_are_mapped_no_worse_for_it(objective: Objective) -> None:
    rng = np.random.default_rng(11)
    better = 0
    for m, n, k in ((31, 17, 13), (127, 8, 29), (53, 27, 8)):
        einsum = matmul(m=m, n=n, k=k)
        chip = random_chip(rng, einsum.names)
        plain = best_mapping(einsum, chip, objective=objective, padding=False)
        mapping = best_mapping(einsum, chip, objective=objective)
        assert mapping.value <= plain.value
        assert mapping.bound == plain.bound
        assert mapping.cost.fits.all()
        assert mapping.divides or mapping.value < plain.value
        better += not mapping.divides
    assert better


def test_a_window_that_waits_behind_another_loop_is_not_taken_to_slide() -> None:
    """Of two partial mappings that cost the same so far, only one's inner windows can slide."""
    einsum = conv2d(c=1, m=4, p=3, q=1, r=3, s=1, stride=2)
    chip = Architecture(
        "chip",
        (
            Memory("dram", read_pj=17.0, fill_pj=16.0, update_pj=9.5),
            Memory("buffer", 17.0, read_pj=12.3, fill_pj=9.7, update_pj=7.9),
            Memory("local", 5.0, keeps=("Inputs",), read_pj=4.7, fill_pj=4.7, update_pj=3.8),
            FanOut("array", (3,)),
        ),
        Compute("mac", energy_pj=0.2), idle_leaks=False,
    )  # fmt: skip
    least = min(
        float(value_of(cost(einsum, chip, b), "energy").min()) for b in every_mapping(einsum, chip)
    )
    assert best_mapping(einsum, chip, padding=False).value == pytest.approx(least, rel=1e-9)
