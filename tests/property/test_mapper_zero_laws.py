"""The mapper on designs that leave zeros out: what it proves holds for every mapping there is."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest

from silicast.accelerator.counting.cost import cost, value_of
from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import (
    Architecture,
    Compute,
    Elimination,
    FanOut,
    Memory,
)
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.accelerator.mapper.task import OBJECTIVES, Task, mapped
from silicast.accelerator.zeros.density import Structured, Uniform
from silicast.accelerator.zeros.formats import Bitmask, Coordinates, TensorFormat
from silicast.core.errors import SilicastError
from tests.property.test_mapper_laws import every_mapping, random_chip, random_problem
from tests.sampling import FULL

ON_ZERO: tuple[Literal["multiply", "gate", "skip"], ...] = ("multiply", "gate", "skip")


def with_rules(rng: np.random.Generator, chip: Architecture) -> Architecture:
    """The chip with formats, eliminations, and units that know zeros, each by chance."""
    nodes: list[Memory | FanOut] = []
    ranks = (Bitmask(),) if rng.random() < 0.5 else (Coordinates(),)
    for node in chip.nodes:
        if not isinstance(node, Memory):
            nodes.append(node)
            continue
        formats = tuple(
            TensorFormat(name, ranks) for name in ("Weights", "Inputs")
            if rng.random() < 0.5 and node.may_keep(name)
        )  # fmt: skip
        rules = tuple(
            Elimination("skip" if rng.random() < 0.5 else "gate",
                        str(rng.choice(["Inputs", "Outputs"])), ("Weights",))
            for _ in range(int(rng.integers(0, 3)))
        )  # fmt: skip
        nodes.append(dataclasses.replace(node, formats=formats, eliminations=rules))
    unit = dataclasses.replace(chip.compute, on_zero=ON_ZERO[int(rng.integers(len(ON_ZERO)))])
    return dataclasses.replace(
        chip, nodes=tuple(nodes), idle_leaks=bool(rng.random() < 0.5), compute=unit
    )


def test_no_mapping_without_zeros_is_below_what_is_proven() -> None:
    rng = np.random.default_rng(21)
    solved = 0
    while solved < (60 if FULL else 2):
        einsum = random_problem(rng)
        chip = with_rules(rng, random_chip(rng, einsum.names))
        einsum = einsum.with_densities(
            {
                "Weights": Uniform(float(rng.choice([0.3, 0.6]))),
                "Inputs": Structured(float(rng.choice([0.5, 1.0]))),
            }
        )
        batches = every_mapping(einsum, chip)
        if not batches or not chip.knows_zeros or sum(map(len, batches)) > 12_000:
            continue
        for objective in OBJECTIVES:
            least = min(float(value_of(cost(einsum, chip, b), objective).min()) for b in batches)
            if not np.isfinite(least):
                continue
            result = mapped(Task(einsum, chip, Constraints()), objective, 100_000)
            assert result.bound <= least * (1 + 1e-9)
            assert result.value <= least * 1.5
            if result.divides:
                assert result.value >= least * (1 - 1e-9)
            else:  # tiles cut short are not among every mapping: what it costs is counted again
                again = cost(einsum, chip, MappingBatch.from_nest(result.nest, einsum, chip))
                assert again.fits[0]
                assert result.value == float(value_of(again, objective)[0])
        solved += 1


def test_a_tile_cut_short_takes_two_steps_where_those_that_divide_take_three_by_hand() -> None:
    """Three columns on two units, which work on zeros too, without switching."""
    unit = Compute("mac", energy_pj=1.0, on_zero="gate")
    chip = Architecture("chip", (Memory("dram"), FanOut("array", (2,))), unit)
    einsum = matmul(m=1, n=3, k=1).with_densities({"Weights": Uniform(0.5)})
    result = mapped(Task(einsum, chip, Constraints()), "latency")
    assert (result.value, result.divides) == (2.0, False)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_density_one_is_searched_as_dense(objective: str) -> None:
    """Rules that never apply change neither the value nor what is proven of it."""
    rng = np.random.default_rng(4)
    for _ in range(2):
        einsum = random_problem(rng)
        chip = random_chip(rng, einsum.names)
        unit = dataclasses.replace(chip.compute, on_zero="skip")
        knowing = dataclasses.replace(chip, compute=unit)
        try:
            dense = mapped(Task(einsum, chip, Constraints()), objective)
        except SilicastError:
            continue
        result = mapped(Task(einsum, knowing, Constraints()), objective)
        assert result.value == pytest.approx(dense.value, rel=1e-9)
        assert result.bound <= dense.value * (1 + 1e-9)


def test_what_is_searched_without_zeros_is_never_worse_than_searched_with_them() -> None:
    rng = np.random.default_rng(6)
    einsum = random_problem(rng).with_densities({"Weights": Uniform(0.25)})
    chip = with_rules(rng, random_chip(rng, einsum.names))
    try:
        alone = best_mapping(einsum, chip)
    except SilicastError:
        return
    assert mapped(Task(einsum, chip, Constraints()), "energy").value <= alone.value
