"""What a training step takes of a device's memory, for an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.composition.training_step import TrainingStep
from silicast.core.prediction import Quantity
from silicast.distributed.chunk import Rank

LOWEST, HIGHEST = 0.7, 1.5
"""Of what is estimated (activations, what an allocator holds), the ends of the interval."""


@final
@dataclass(frozen=True, slots=True)
class RunMemory:
    """Of the rank that needs most.

    Attributes:
        quantity: GB (10^9 bytes).
        parts: GB by what takes them, what is usable, and by how much it does not fit.
        advice: what would make it fit, where it does not.
        peak_at: the operation at which it is most, "" = not known.
    """

    quantity: Quantity
    parts: Mapping[str, Any]
    advice: tuple[str, ...] = ()
    peak_at: str = ""


def memory_of_one(found: TrainingStep, rank: Rank) -> RunMemory:
    """Of one device that trains alone."""
    memory, own = found.memory, rank.deployment
    known = memory.weights + memory.gradients + memory.optimizer
    names = ("weights", "gradients", "optimizer", "activations", "fragmentation", "framework")
    parts = {name: getattr(memory, name) / 1e9 for name in names}
    usable = own.device.dram.capacity_bytes * own.engine.memory.usable_fraction
    return _memory(known, memory.total - known, usable, parts, found.recompute, memory.peak_node)


def _memory(
    known: float,
    rough: float,
    usable: float,
    parts: Mapping[str, float],
    recompute: str,
    peak_at: str,
) -> RunMemory:
    total = known + rough
    excess = max(total - usable, 0.0)
    advice: tuple[str, ...] = ()
    if excess:
        advice = (
            f"does not fit by {excess / 1e9:.1f} GB with recompute = {recompute}: a smaller "
            "micro_batch or several devices would help",
        )
    return RunMemory(
        Quantity(total / 1e9, (known + LOWEST * rough) / 1e9, (known + HIGHEST * rough) / 1e9),
        {**parts, "usable": usable / 1e9, "excess": excess / 1e9}, advice, peak_at,
    )  # fmt: skip
