"""Layers whose weights stay in the host's memory.

Under llama.cpp ("-ngl", "--n-cpu-moe") a product of such a layer either runs on the host's CPU,
where its weights are, or its weights are copied to the device first:

    tokens <  copies_from_tokens    time on the CPU + a handover each way
    tokens >= copies_from_tokens    bytes of the weights / link + time on the device

Attention of a token that is generated runs where its cache is, on the CPU; that of a prompt on the
device. Everything else of these layers takes microseconds and stays on the device.

Servers that compute on the device alone ("--cpu-offload-gb") read these weights in every pass:

    copied    bytes of the weights / link + time on the device
    in place  max(bytes of the weights that tokens meet / link, time on the device)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from silicast.composition.engines.host_copies import (
    copy_bytes_per_s,
    link_bytes_per_s,
    times_with_host,
)
from silicast.composition.step.machine import Machine
from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError, unmodelled
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.transformers.plan import ParallelPolicy

if TYPE_CHECKING:
    from silicast.communication.collective import CollectiveTimes

ON_HOST = "on_host"
"""Flag of an op whose weights, or whose part of the cache, are in the host's memory."""
EXPERTS = frozenset(("quantized_moe",))
HELD = EXPERTS | {"quantized_gemm", "attention_decode"}
"""Families that the host runs, or that need a copy of what it holds."""
CPU = "vector_cpu"
LOG_SD = 0.25
"""Of a computer that nobody described: its memory, CPU and slot; judged."""


def with_host_layers(graph: Graph, policy: ParallelPolicy) -> Graph:
    """The graph with marks on the ops of layers that the host holds: of its first
    ``host_layers`` layers all in :data:`HELD`, of its first ``host_expert_layers`` the experts.
    """
    parts = ((policy.host_layers, HELD), (policy.host_expert_layers, EXPERTS))
    blocks = graph.blocks
    for count, families in parts:
        blocks = tuple(part for block in blocks for part in _parts(block, count, families))
    return replace(graph, blocks=blocks)


def _parts(block: Block, count: int, families: frozenset[str]) -> list[Block]:
    held = tuple(layer for layer in block.layers if layer < count)
    if not held:
        return [block]
    nodes = tuple(_held(node) if node.op.family in families else node for node in block.nodes)
    marked = replace(block, name=f"{block.name}_{ON_HOST}", nodes=nodes, layers=held)
    others = tuple(layer for layer in block.layers if layer >= count)
    return [marked, replace(block, layers=others)] if others else [marked]


def with_host_weights(graph: Graph, held_bytes: int, stages: Sequence[tuple[int, int]]) -> Graph:
    """The graph with marks on the ops whose weights the host holds: of the first layers of each
    stage, one op after the other, until their weights are ``held_bytes``.
    """
    marks: dict[str, dict[int, tuple[int, ...]]] = {}
    for first, last in stages:
        left_bytes = float(held_bytes)
        for layer in range(first, last):
            for block in (each for each in graph.blocks if layer in each.layers):
                marked = []
                for index, node in enumerate(block.nodes):
                    size = _tensor_bytes(node.op)
                    if size and left_bytes > 0.0:
                        marked.append(index)
                        left_bytes -= size
                marks.setdefault(block.name, {})[layer] = tuple(marked)
    blocks = [part for block in graph.blocks for part in _alike(block, marks.get(block.name, {}))]
    return replace(graph, blocks=tuple(blocks))


def _alike(block: Block, marks: Mapping[int, tuple[int, ...]]) -> list[Block]:
    """The block, a part for all layers of which the same nodes are marked."""
    parts: dict[tuple[int, ...], list[int]] = {}
    for layer in block.layers:
        parts.setdefault(marks[layer], []).append(layer)
    if not any(parts):
        return [block]
    return [
        replace(
            block,
            name=f"{block.name}_{ON_HOST}_{len(marked)}" if marked else block.name,
            nodes=tuple(_held(n) if i in marked else n for i, n in enumerate(block.nodes)),
            layers=tuple(layers),
        )
        for marked, layers in parts.items()
    ]


def _tensor_bytes(op: Op) -> float:
    """Of the weights of an op on one rank, scales left out; 0 = it has none."""
    if op.family not in ("gemm", "moe"):
        return 0.0
    return float(_tensors(op.family, op.variant, dict(op.dims)))


def _tensors(family: str, variant: Variant, sizes: Mapping[str, Any]) -> Any:
    """Bytes of the weights of a product, or of all experts of a rank, scales left out."""
    if family == "moe":
        matrices = 3 if variant.flag("gated", default=True) else 2
        each = sizes["hidden"] * sizes["intermediate"] // sizes["tp"]
        count = matrices * each * sizes["experts"] // sizes["ep"]
    else:
        count = sizes["n"] * sizes["k"] * sizes.get("batch", 1)
    return count * _element_bytes(variant)


def _element_bytes(variant: Variant) -> float:
    return RECIPES[variant.dtype].weight_bits / 8.0


def _held(node: Node) -> Node:
    variant = node.op.variant
    flags = tuple(sorted({*variant.flags, (ON_HOST, True)}))
    return replace(node, op=replace(node.op, variant=replace(variant, flags=flags)))


@cache
def _cpu(name: str) -> Device:
    from silicast.hardware.catalog import find_device

    return find_device(name)


def host_cpu(machine: Machine) -> Device:
    """The CPU that runs what the host holds: the scenario's, if the catalog has it, else the usual
    one of the engine's file.

    Raises:
        SilicastError: the scenario names a device of the catalog that is no CPU.
    """
    table = machine.engine.memory.offload
    assert table is not None
    try:
        device = _cpu(machine.host.cpu)
    except SilicastError:
        return _cpu(table.usual_cpu)
    if device.execution_model != CPU:
        raise SilicastError(
            f"{device.name} is no CPU", field="host.cpu", hint=f"name one, as {table.usual_cpu}"
        )
    return device


def held_times(
    batch: OpBatch,
    machine: Machine,
    timed: Callable[[OpBatch, Device], KernelTimes],
    device: Device,
) -> CollectiveTimes:
    """Times of ops that the host holds, arrays of shape (n,), seconds.

    Args:
        timed: times of a batch on a device.
        device: the accelerator, at its clock.

    Raises:
        SilicastError: the op has no model on CPUs.
    """
    from silicast.communication.collective import CollectiveTimes

    table, variant = machine.engine.memory.offload, batch.variant
    flags = tuple(flag for flag in variant.flags if flag[0] != ON_HOST)
    plain = _with(batch, replace(variant, flags=flags))
    if table is None:
        return _fetched_times(plain, machine, timed(plain, device))
    library = machine.engine.kernels.libraries.get("cpu", {}).get(batch.family, "")
    cpu = host_cpu(machine)
    if implementation_for(batch.family, CPU) is None:
        raise unmodelled(f"no model of {batch.family} on {cpu.name}")
    on_cpu = timed(_with(plain, replace(plain.variant, library=library)), cpu)
    handover = 2.0 * table.handover_us * 1e-6
    spread = math.exp(Z90 * LOG_SD)
    estimate, bound = on_cpu.estimate_s + handover, on_cpu.bound_s
    low, high = on_cpu.p05_s, on_cpu.p95_s + handover
    host_s, link_s = np.array(bound), np.zeros_like(bound)
    if batch.family != "attention_decode":
        on_device = timed(plain, device)
        copied = _met_bytes(plain) / link_bytes_per_s(machine)
        fetched = copied / machine.engine.parallel.host_link_share + on_device.estimate_s
        tokens = plain.dims["tokens" if batch.family in EXPERTS else "m"]
        few = tokens < table.copies_from_tokens
        estimate = np.where(few, estimate, fetched)
        bound = np.where(few, bound, np.maximum(copied, on_device.bound_s))
        low = np.where(few, low, np.maximum(fetched / spread, bound))
        high = np.where(few, high, fetched * spread)
        host_s, link_s = np.where(few, host_s, 0.0), np.where(few, 0.0, copied)
    return CollectiveTimes(
        estimate_s=estimate,
        p05_s=np.minimum(low, estimate),
        p95_s=np.maximum(high, estimate),
        bound_s=bound,
        resource_s={"host_memory": host_s, "host_link": link_s},
        shared_log_sd={**on_cpu.shared_log_sd, "host_link": LOG_SD},
        independent_log_sd=np.zeros_like(estimate),
        choice=("",) * len(estimate),
    )


def _fetched_times(batch: OpBatch, machine: Machine, on_device: KernelTimes) -> CollectiveTimes:
    """Times of ops that the device runs with weights in the host's memory, as of
    :func:`held_times`.
    """
    table = machine.engine.memory.host_weights
    assert table is not None
    copied = table.read == "copied"
    moved_s = (_all_bytes(batch) if copied else _met_bytes(batch)) / copy_bytes_per_s(machine)
    reached_s = moved_s / machine.engine.parallel.host_link_share
    one, quick = on_device.estimate_s, on_device.bound_s
    estimate = reached_s + one if copied else np.maximum(reached_s, one)
    bound = moved_s + quick if copied else np.maximum(moved_s, quick)
    return times_with_host(estimate, bound, {"host_link": moved_s}, LOG_SD)


def _all_bytes(batch: OpBatch) -> F64:
    """Of all weights of an op on one rank, shape (n,)."""
    return np.asarray(_tensors(batch.family, batch.variant, batch.dims), dtype=np.float64)


def _met_bytes(batch: OpBatch) -> F64:
    """Of weights of an op on one rank, those that tokens of a step meet, shape (n,)."""
    if batch.family in EXPERTS:
        from silicast.kernels.experts.quantized_moe import stored_expert_weights

        return stored_expert_weights(batch) * _element_bytes(batch.variant)
    if batch.family != "moe":
        return _all_bytes(batch)
    from silicast.kernels.experts.moe import distribution_of
    from silicast.kernels.experts.routing import busiest_loads

    dims = batch.dims
    sizes = (np.asarray(dims[name]) for name in ("tokens", "experts", "topk", "ep"))
    loads = busiest_loads(distribution_of(batch.variant), *sizes)
    return _all_bytes(batch) * loads.experts_hit() / loads.experts()


def _with(batch: OpBatch, variant: Variant) -> OpBatch:
    return msgspec.structs.replace(batch.arrays(), variant=variant)
