"""What learned corrections of matrix products read: ratios of the analytic model's terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, final

import numpy as np

from silicast.core.numerics import F64
from silicast.kernels.gemm_model import Machine
from silicast.kernels.gemm_tiles import Tiles
from silicast.kernels.implementation import Demand


@final
class Features(Mapping[str, F64]):
    """Features that are computed when somebody first looks: most predictions need none."""

    def __init__(self, compute: Callable[[], dict[str, F64]]) -> None:
        self._compute = compute

    @cached_property
    def _values(self) -> dict[str, F64]:
        return self._compute()

    def __getitem__(self, name: str) -> F64:
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping, but without an exception for what is not there."""
        return self._values.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def features(
    machine: Machine, tiles: Tiles, best: Mapping[str, F64], demand: Demand, matrix_work: F64,
    sizes: tuple[F64, F64, F64], ops: F64, moved: F64, launch_s: float,
) -> dict[str, F64]:  # fmt: skip
    """Features of every row, from the columns of its best candidate and its useful work.

    Ratios, not logarithms: they are the same bits in every batch; learners take logs.
    """
    time = best["time"]
    ridge = machine.core_rate * machine.cores / machine.dram
    found = {f"{name}_share": best[name] / time for name in ("tensor", "l2", "dram", "chain")}
    found["launch_share"] = launch_s / time
    found["padding"] = matrix_work / ops
    found["waves"] = demand.waves
    found["fill"] = demand.waves / np.ceil(demand.waves)
    found["working_set_over_l2"] = moved / machine.l2_bytes
    found["rereads"] = best["dram_bytes"] / moved
    found["intensity_over_ridge"] = ops / (moved * ridge)
    for name, size in zip("mnk", sizes, strict=True):
        found[f"{name}_odd"] = size % 8.0 * 0.125
    found["steps"] = best["block_steps"]
    if "quantise" in best:
        found["quantise_share"] = best["quantise"] / time
    found.update(zip(tiles.near_names, best["near"], strict=True))
    return found
