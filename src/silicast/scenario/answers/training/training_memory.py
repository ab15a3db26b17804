"""What a training step takes of a device's memory, for an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from silicast.composition.engines.host_copies import node_host
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import GB
from silicast.composition.passes.training_step import TrainingStep
from silicast.core.numerics import F64
from silicast.core.prediction import Quantity
from silicast.distributed.memory.memory import RankMemory, Rules, checkpoint_bytes, rows_memory
from silicast.distributed.memory.memory_rows import PipelineRanks
from silicast.distributed.memory.memory_search import OFFLOAD, candidates_memory, remedies
from silicast.distributed.pipeline.chunk import Rank
from silicast.distributed.pipeline.chunk_bounds import model_bounds
from silicast.distributed.search.candidates import CandidatePlans
from silicast.distributed.step.partial_recompute import mixed_memory
from silicast.distributed.step.step import schedule_of

HOST_LINKS = frozenset(("nvlink_c2c", "pcie"))
LOWEST, HIGHEST = 0.7, 1.5
"""Of what is estimated (activations, what an allocator holds), the ends of the interval."""
LEAST_ALLOCATED, MOST_ALLOCATED = 0.8, 1.3
"""Likewise of what an allocator handed out: activations and buffers alone are estimated."""
OF_THE_ALLOCATOR, OF_A_PROCESS = "fragmentation", "framework"


@final
@dataclass(frozen=True, slots=True)
class RunMemory:
    """Of the rank that needs most.

    Attributes:
        quantity: GB (10^9 bytes) of the device.
        allocated: what the framework's allocator handed out at the worst moment.
        reserved: with what it holds beyond it.
        parts: GB by what takes them, what is usable, and by how much it does not fit.
        advice: what would make it fit, where it does not.
        host_gb: that a node's host needs for its ranks; 0 = nothing is offloaded.
        peak_at: the operation at which it is most, "" = not known.
    """

    quantity: Quantity
    allocated: Quantity
    reserved: Quantity
    parts: Mapping[str, Any]
    advice: tuple[str, ...] = ()
    peak_at: str = ""
    host_gb: float = 0.0


def counted_on_operations(rank: Rank) -> bool:
    """Whether one device's memory is: a model's own code keeps other tensors than the layers of a
    training library.
    """
    return rank.deployment.engine.kind == "framework"


def memory_of_one(training_step: TrainingStep, rank: Rank) -> RunMemory:
    """Of one device, counted on the operations that it runs."""
    memory, deployment = training_step.memory, rank.deployment
    exact = memory.weights + memory.gradients + memory.optimizer
    names = ("weights", "gradients", "optimizer", "activations", "fragmentation", "framework")
    parts = {name: getattr(memory, name) / 1e9 for name in names}
    usable = deployment.device.dram.capacity_bytes * deployment.engine.memory.usable_fraction
    return _memory(
        exact, memory.total - exact, usable, parts, training_step.recompute, memory.peak_node
    )


def memory_of_many(
    rank: Rank, micro_batches: int, optimizer: str, gradient_bits: int, again_share: float = 1.0
) -> RunMemory:
    """Of the rank of a pipeline that needs most; one device is a pipeline of one rank.

    Args:
        again_share: of the layers, those that run again where the rank says all.
    """
    deployment, plan = rank.deployment, rank.plan
    result = rank_memory(rank, micro_batches, optimizer, gradient_bits)
    if again_share < 1.0:
        without = rank_memory(rank, micro_batches, optimizer, gradient_bits, "none")
        result = mixed_memory(without, result, again_share)
    most = int(result.total.argmax())
    names = (
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "transient",
        "buffers",
        "fragmentation",
        "framework",
    )
    parts = {name: float(getattr(result, name)[most]) / GB for name in names}
    usable = deployment.device.dram.capacity_bytes * deployment.engine.memory.usable_fraction
    states = float((result.weights + result.gradients + result.optimizer)[most])
    where = f"pipeline rank {most}" if plan.pp > 1 else ""
    memory = _memory(
        states, float(result.total[most]) - states, usable, parts, rank.recompute, where
    )
    if rank.offload.any:
        host_gb = (
            int(result.host.max()) * min(deployment.machine.links.gpus_per_node, plan.gpus) / GB
        )
        memory = replace(memory, host_gb=host_gb)
    if not memory.advice:
        return replace(memory, advice=_host_advice(rank, memory.host_gb))
    rules = _rules(rank, optimizer, gradient_bits, rank.recompute)
    ways = remedies(
        deployment.model, plan, rank.seq_len, rank.micro_batch, micro_batches, rules, usable
    )
    if not deployment.device.links.keys() & HOST_LINKS:
        ways = tuple(way for way in ways if not way.startswith(OFFLOAD))
    remark = f"it would fit with {' or '.join(ways)}" if ways else "no single change makes it fit"
    remark = f"{memory.advice[0]}; {remark}"
    return replace(memory, advice=(remark, *_host_advice(rank, memory.host_gb)))


def _host_advice(rank: Rank, needed_gb: float) -> tuple[str, ...]:
    """Where a node's host cannot hold what is offloaded, or nobody knows."""
    if not needed_gb:
        return ()
    host = node_host(rank.deployment.machine)
    message = f"offloading takes {needed_gb:.4g} GB of the host's memory on each node"
    if not host.memory_gb:
        return (f"{message}; how much {host.cpu} has is not known: host.memory_gb",)
    if needed_gb > host.memory_gb:
        return (f"{message}, which has {host.memory_gb:.4g} GB",)
    return ()


def rank_memory(
    rank: Rank, micro_batches: int, optimizer: str, gradient_bits: int, recompute: str = ""
) -> RankMemory:
    """Memory of each pipeline rank; ``recompute``: another than the rank's own."""
    deployment, plan = rank.deployment, rank.plan
    order = schedule_of(rank).order(plan.pp, micro_batches, plan.virtual_stages)
    bounds = model_bounds(deployment.model, order.placement.stages)
    chunks = [[bounds[stage] for stage in row] for row in order.placement.stage.tolist()]
    rows = PipelineRanks.from_model(
        deployment.model,
        plan,
        rank.seq_len,
        rank.micro_batch,
        micro_batches,
        chunks=chunks,
        in_flight=[int(each) for each in order.peak()],
    )
    return rows_memory(
        deployment.model, rows, _rules(rank, optimizer, gradient_bits, recompute or rank.recompute)
    )


def needed_bytes(rank: Rank, optimizer: str, gradient_bits: int, plans: CandidatePlans) -> F64:
    """Of the fullest rank of each plan, shape (n,)."""
    return candidates_memory(plans, _rules(rank, optimizer, gradient_bits, "none"))


def checkpoint_size(rank: Rank, optimizer: str) -> int:
    """Bytes of a checkpoint of all ranks."""
    return checkpoint_bytes(rank.deployment.model, _rules(rank, optimizer, 32, "none"))


def _rules(rank: Rank, optimizer: str, gradient_bits: int, recompute: str) -> Rules:
    deployment = rank.deployment
    return Rules(
        style=rank.style,
        offload=rank.offload,
        recompute=recompute,
        optimizer=optimizer,
        gradient_bytes=gradient_bits // 8,
        reshards=deployment.engine.training.reshard_after_forward,
        in_place=deployment.engine.training.fused_gradient_accumulation,
        loss_copies=deployment.engine.training.loss_copies,
        expandable=deployment.engine.training.expandable_segments,
        in_line=deployment.machine.in_line,
        framework_bytes=round(deployment.machine.framework_gb * GB),
        workspace_bytes=_workspaces(deployment),
    )


def _workspaces(deployment: Deployment) -> int:
    """Bytes that libraries of products hold."""
    table, architecture = deployment.engine.memory, deployment.device.architecture
    training = deployment.engine.training
    less = 0.0
    if not (training.wide_workspaces or training.deterministic):
        less = table.narrow_workspaces_mb.get(architecture, 0.0)
    return round((table.workspaces_mb.get(architecture, 0.0) - less) * 1e6)


def _memory(
    exact: float,
    rough: float,
    usable: float,
    parts: Mapping[str, float],
    recompute: str,
    peak_at: str,
) -> RunMemory:
    total = exact + rough
    excess = max(total - usable, 0.0)
    advice: tuple[str, ...] = ()
    if excess:
        message = f"does not fit by {excess / 1e9:.1f} GB with recompute = {recompute}"
        advice = (message,)
    outside = parts[OF_A_PROCESS] * 1e9
    beyond = outside + parts[OF_THE_ALLOCATOR] * 1e9
    return RunMemory(
        _around(exact, rough, LOWEST, HIGHEST),
        _around(exact, rough - beyond, LEAST_ALLOCATED, MOST_ALLOCATED),
        _around(exact, rough - outside, LOWEST, HIGHEST),
        {**parts, "usable": usable / 1e9, "excess": excess / 1e9},
        advice,
        peak_at,
    )


def _around(exact: float, rough: float, low: float, high: float) -> Quantity:
    """GB of bytes that are known and of bytes that are estimated."""
    return Quantity(
        (exact + rough) / 1e9, (exact + low * rough) / 1e9, (exact + high * rough) / 1e9
    )
