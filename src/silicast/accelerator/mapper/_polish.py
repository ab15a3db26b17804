"""Small changes of a mapping, counted exactly: where prices stand for time, the least sum of prices
need not be the least time, and what lies close to it often takes less.
"""

from __future__ import annotations

import numpy as np

from silicast.accelerator.counting.cost import MappingRank, Objective, best_of, cost, value_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper._lattice import divisors_of
from silicast.accelerator.mapper.constraints import Constraints
from silicast.core.numerics import F64

STEPS = 12
"""Changes one after the other, at most."""


def polished(
    batch: MappingBatch,
    einsum: Einsum,
    architecture: Architecture,
    rules: Constraints,
    objective: Objective,
) -> tuple[MappingBatch, MappingRank, int]:
    """A mapping none of whose neighbours is better, from a batch of one.

    Returns:
        it, its rank, and how many were counted.
    """
    start = cost(einsum, architecture, batch)
    rank = MappingRank(float(value_of(start, objective)[0]), float(start.cycles[0]))
    counted = 0
    for _ in range(STEPS):
        near = _neighbours(batch, einsum, architecture, rules)
        if near is None:
            break
        counted += len(near)
        result = cost(einsum, architecture, near)
        values = value_of(result, objective)
        values[result.traffic.units < rules.least_utilisation * architecture.units] = np.inf
        best = best_of(values, result.cycles)
        near_rank = MappingRank(float(values[best]), float(result.cycles[best]))
        if not near_rank.is_before(rank):
            break
        batch, rank = near.take(slice(best, best + 1)), near_rank
    return batch, rank, counted


def _neighbours(
    batch: MappingBatch, einsum: Einsum, architecture: Architecture, rules: Constraints
) -> MappingBatch | None:
    """Mappings in which a factor of one loop stands at another place; orders are as they were."""
    factors = batch.factors[:, :, 0]
    neighbours = []
    for d in range(len(einsum.dims)):
        for source in np.flatnonzero(factors[:, d] > 1):
            for factor in divisors_of(int(factors[source, d])):
                for to in range(len(factors)):
                    if factor > 1 and to != source:
                        moved = factors.copy()
                        moved[source, d] /= factor
                        moved[to, d] *= factor
                        neighbours.append(moved)
    if not neighbours:
        return None
    near = np.stack(neighbours, axis=2)
    near = near[:, :, _allowed(near, einsum, architecture, rules)]
    if not near.shape[2]:
        return None
    positions = np.repeat(batch.positions, near.shape[2], axis=2)
    return MappingBatch(np.ascontiguousarray(near), positions, batch.keep)


def _allowed(
    factors: F64, einsum: Einsum, architecture: Architecture, rules: Constraints
) -> np.ndarray:
    """Which keep to the rules and find instances, (mappings,)."""
    allowed = np.ones(factors.shape[2], dtype=bool)
    for number, slot in enumerate(architecture.slots):
        allowed &= factors[number].prod(axis=0) <= slot.limit
        rule = rules.rule(architecture, number)
        for dim, bound in rule.fixed.items():
            if dim in einsum.bounds:
                wanted = min(bound, einsum.bounds[dim])
                allowed &= factors[number, einsum.dims.index(dim)] == wanted
        for dim, bound in rule.most.items():
            if dim in einsum.bounds:
                allowed &= factors[number, einsum.dims.index(dim)] <= bound
    return allowed
