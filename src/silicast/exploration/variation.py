"""New designs out of known ones: parts of two put together, and steps to neighbours."""

from __future__ import annotations

import numpy as np

from silicast.core.numerics import I64
from silicast.exploration.space import Space


def crossed(rng: np.random.Generator, first: I64, second: I64) -> I64:
    """Each parameter from one of two parents, (designs, parameters)."""
    return np.where(rng.random(first.shape) < 0.5, first, second)


def stepped(rng: np.random.Generator, space: Space, designs: I64) -> I64:
    """Designs with one parameter changed or more, each with chance 1 / parameters.

    A parameter of numbers moves by few levels rather than by many; another takes any level.
    """
    result = designs.copy()
    count, parameters = result.shape
    change = rng.random(result.shape) < 1.0 / parameters
    sure = rng.integers(0, parameters, count)
    change[np.arange(count), sure] = True
    for i, parameter in enumerate(space.parameters):
        levels = len(parameter.values)
        if parameter.is_ordered:
            far = np.minimum(rng.geometric(0.5, count), max(levels - 1, 1))
            moved = result[:, i] + np.where(rng.random(count) < 0.5, -far, far)
            # What would leave the range turns back into it.
            moved = np.abs(moved)
            moved = np.where(moved > levels - 1, 2 * (levels - 1) - moved, moved)
        else:
            moved = rng.integers(0, levels, count)
        result[:, i] = np.where(change[:, i], np.clip(moved, 0, levels - 1), result[:, i])
    return space.canonical(result)


def new_codes(space: Space, designs: I64, tried: I64) -> I64:
    """Codes of designs that are new and allowed, each once, in order."""
    codes = space.encode(designs[space.allowed(designs)])
    _, first = np.unique(codes, return_index=True)
    codes = codes[np.sort(first)]
    return codes[~np.isin(codes, tried)]
