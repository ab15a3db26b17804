"""What a training step takes of a device's memory, for an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from silicast.composition.program import GB
from silicast.composition.training_step import TrainingStep
from silicast.core.numerics import F64
from silicast.core.prediction import Quantity
from silicast.distributed.candidates import Candidates
from silicast.distributed.chunk import Rank
from silicast.distributed.memory import RankMemory, Rules, rows_memory
from silicast.distributed.memory_kept import Style
from silicast.distributed.memory_rows import Rows
from silicast.distributed.memory_search import candidates_memory, remedies
from silicast.distributed.partial_recompute import mixed_memory
from silicast.distributed.step import chunk_bounds, schedule_of

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


def memory_of_many(
    rank: Rank, micro_batches: int, optimizer: str, gradient_bits: int, again_share: float = 1.0
) -> RunMemory:
    """Of the rank of a pipeline that needs most.

    Args:
        again_share: of the layers, those that run again where the rank says all.
    """
    own, plan = rank.deployment, rank.plan
    found = rank_memory(rank, micro_batches, optimizer, gradient_bits)
    if again_share < 1.0:
        without = rank_memory(rank, micro_batches, optimizer, gradient_bits, "none")
        found = mixed_memory(without, found, again_share)
    most = int(found.total.argmax())
    names = (
        "weights", "gradients", "optimizer", "activations", "transient", "buffers",
        "fragmentation", "framework",
    )  # fmt: skip
    parts = {name: float(getattr(found, name)[most]) / GB for name in names}
    usable = own.device.dram.capacity_bytes * own.engine.memory.usable_fraction
    states = float((found.weights + found.gradients + found.optimizer)[most])
    where = f"pipeline rank {most}" if plan.pp > 1 else ""
    kept = _memory(
        states, float(found.total[most]) - states, usable, parts, recompute_of(rank), where
    )
    if not kept.advice:
        return kept
    rules = _rules(rank, optimizer, gradient_bits, recompute_of(rank))
    ways = remedies(own.model, plan, rank.seq_len, rank.micro_batch, micro_batches, rules, usable)
    said = f"it would fit with {' or '.join(ways)}" if ways else "no single change makes it fit"
    return replace(kept, advice=(f"{kept.advice[0]}; {said}",))


def rank_memory(
    rank: Rank, micro_batches: int, optimizer: str, gradient_bits: int, recompute: str = ""
) -> RankMemory:
    """Memory of each pipeline rank; ``recompute``: another than the rank's own."""
    own, plan = rank.deployment, rank.plan
    order = schedule_of(rank).order(plan.pp, micro_batches, plan.virtual_stages)
    bounds = chunk_bounds(own.model.layers, order.placement.stages)
    chunks = [[bounds[stage] for stage in row] for row in order.placement.stage.tolist()]
    rows = Rows.of(
        own.model, plan, rank.seq_len, rank.micro_batch, micro_batches, chunks=chunks,
        in_flight=[int(each) for each in order.peak()],
    )  # fmt: skip
    return rows_memory(
        own.model, rows, _rules(rank, optimizer, gradient_bits, recompute or recompute_of(rank))
    )


def needed_bytes(rank: Rank, optimizer: str, gradient_bits: int, plans: Candidates) -> F64:
    """Of the fullest rank of each plan, shape (n,)."""
    return candidates_memory(plans, _rules(rank, optimizer, gradient_bits, "none"))


def _rules(rank: Rank, optimizer: str, gradient_bits: int, recompute: str) -> Rules:
    own, adapters = rank.deployment, rank.adapters
    style = Style(
        precision=own.precision, flash=rank.framework.attention == "fused",
        adapted=None if adapters is None else adapters.products,
        adapter_rank=0 if adapters is None else adapters.rank,
    )  # fmt: skip
    return Rules(
        style=style, recompute=recompute, optimizer=optimizer, gradient_bytes=gradient_bits // 8,
        in_line=own.machine.in_line, framework_bytes=round(own.machine.framework_gb * GB),
    )  # fmt: skip


def recompute_of(rank: Rank) -> str:
    """What the rank's backward pass runs again."""
    return "none" if rank.framework.training is None else rank.framework.training.recompute


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
        said = f"does not fit by {excess / 1e9:.1f} GB with recompute = {recompute}"
        advice = (said,)
    return RunMemory(
        Quantity(total / 1e9, (known + LOWEST * rough) / 1e9, (known + HIGHEST * rough) / 1e9),
        {**parts, "usable": usable / 1e9, "excess": excess / 1e9}, advice, peak_at,
    )  # fmt: skip
