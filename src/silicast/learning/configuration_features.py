"""What a ranker sees of configurations: ratios of their times, blocks and sizes, none negative.

Nothing names a device or an engine, and no feature has a unit, so that what was learned on some
devices holds for others as far as the physics does.
"""

from __future__ import annotations

import numpy as np

from silicast.core.numerics import F64
from silicast.kernels.products.tile_times import TileSteps, TileTimes

NAMES = (
    "slow", "core_slow", "memory_slow", "core_share", "memory_share", "l2_share", "multiply_share",
    "operand_over_tensor", "share", "waves", "tail", "resident", "resident_warps", "steps",
    "padded_rows", "padded_columns", "shared", "accumulators", "registers", "flight", "ahead",
    "chain_share", "visits", "window", "wide", "rows_of_expert", "tiles_of_expert",
    "tile_over_rows", "group_over_tiles", "row_tiles", "column_tiles", "step_bytes", "bound_share",
    "intensity", "warp_area", "tile_m", "tile_n", "tile_k", "group_m", "warps", "stages",
    "weights_over_l2", "launch_share",
)  # fmt: skip


def configuration_features(
    times: TileTimes, step: TileSteps, rows_of_expert: float, beside: TileTimes
) -> F64:
    """Features of shape (names, configurations), in the order of :data:`NAMES`.

    Args:
        rows_of_expert: rows of each expert that has any.
        beside: times of all configurations of the grid, which these are compared with.
    """
    tiles, blocks = step.tiles, step.blocks
    t, n = times.time_s, len(step.tiles)
    one = np.ones(n)
    of_expert = np.maximum(rows_of_expert / tiles.m, 1.0)
    ideal = np.maximum(times.ideal_multiply_s, times.ideal_memory_s)
    smem = step.device.memory["smem"].capacity_bytes
    columns = (
        _beyond(t / beside.time_s.min()), _beyond(times.core_s / beside.core_s.min()),
        _beyond(times.memory_s / beside.memory_s.min()),
        times.core_s / t, times.memory_s / t, times.l2_s / t, times.multiply_s / t,
        step.operand_s / step.tensor_s, times.share, times.waves,
        _beyond(np.ceil(times.waves) / times.waves), blocks.resident, blocks.resident * tiles.warps,
        times.steps, _beyond(times.padded_rows), _beyond(times.padded_columns),
        blocks.shared_bytes / smem, tiles.m * tiles.n / blocks.threads, blocks.registers,
        times.flight, np.maximum(tiles.stages - 1.0, 1.0) * blocks.step_bytes / smem,
        times.chain_s / t, times.visits, times.window, one * blocks.wide, one * rows_of_expert,
        of_expert,
        tiles.m / rows_of_expert, tiles.group / of_expert, times.row_tiles, times.column_tiles,
        blocks.step_bytes / smem, ideal / t, times.ideal_multiply_s / times.ideal_memory_s,
        tiles.m * tiles.n / tiles.warps, tiles.m, tiles.n, tiles.k, tiles.group, tiles.warps,
        tiles.stages, times.ideal_memory_s * (step.dram / step.l2_bytes),
        times.launch_s / t,
    )  # fmt: skip
    return np.stack(columns)


def _beyond(ratio: F64) -> F64:
    """How much a ratio is above one: codes of trees tell small excesses apart, not ratios."""
    beyond: F64 = np.maximum(ratio - 1.0, 0.0) + 0.001
    return beyond
