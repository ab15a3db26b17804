"""The search for the best plan of a training step, and the times of layers that it multiplies.

All legal plans are answered in closed form, the best of them in full. The closed form multiplies
times of single layers, with the bubble of the schedule and what the sums of gradients leave
exposed; plans that do not fit in memory are left out.
The order that it gives need not be that of the full prediction, so the finalists are predicted in
full, one after the other, and ranked by that. What a full prediction says may be kept
(:mod:`~silicast.distributed.search.search_file`), so that a search that was interrupted goes on
where it was.

Times are of single layers under each way to cut them. A unit is one micro-batch through the whole
model on the ranks of one stage, priced in full once for each (tp, cp, ep, etp, micro-batch); its
blocks say what a layer, the embedding and the head take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.collective import collective_times
from silicast.composition.passes.program import ProgramPass
from silicast.composition.prices.kept_times import keeping_times
from silicast.composition.step.stage_graph import topology
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.distributed.pipeline.chunk import Rank, chunk_graph, predict_chunk
from silicast.distributed.ranks.data_ranks import layer_parameters
from silicast.distributed.ranks.plan import ELEMENT, TrainingPlan
from silicast.distributed.search.candidates import CandidatePlans
from silicast.distributed.search.search_file import Kept, Priced
from silicast.distributed.step.step import DistributedStep, Overlap, predict_step
from silicast.workload.graphs.graph import BACKWARD, Graph
from silicast.workload.training.recomputation import (
    Part,
    Recompute,
    activation_bytes,
    has_latent,
    part_of,
    recomputed_parts,
)
from silicast.workload.transformers.decoder import PREDICTING
from silicast.workload.transformers.plan import Plan

PARTS: tuple[Part, ...] = ("norm", "core", "mla_up", "mlp", "moe_act", "moe", "shared")
FUSED_ACTIVATION = "fused_activation"
AGAIN = ("layer", *PARTS, FUSED_ACTIVATION)
"""A layer's forward pass, and parts of it that recomputation may run again; of experts that are one
kernel, the activation, which runs alone where they do not run again as a whole.
"""


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """One micro-batch, seconds; parameters of a rank.

    Attributes:
        layer_backward: of an average layer, nothing computed again.
        again: of the forward pass of an average layer and of its parts that may run again
            (:data:`AGAIN`): on the device, then what the host takes to launch them.
        ends_forward, ends_backward: of embedding, head and loss.
        launches: of the host, forward and backward.
        layer_parameters, layer_experts, ends_parameters: held by a rank without sharding.
    """

    layer_backward: float
    first_forward: float
    first_backward: float
    last_forward: float
    last_backward: float
    launches: float
    layer_parameters: float
    layer_experts: float
    ends_parameters: float
    again: tuple[float, ...]


@lru_cache(maxsize=4096)
def unit_of(rank: Rank) -> Unit:
    """The unit of a rank's cut; its plan's pipeline and data degrees do not matter.

    Raises:
        SilicastError: the layers cannot be cut so.
    """
    training = rank.framework.training
    assert training is not None
    plain = replace(rank.framework, training=replace(training, recompute="none"))
    rank = replace(rank, framework=plain)
    layers = rank.deployment.model.layers
    chunk = predict_chunk(rank, 0, rank.deployment.model.staged_layers)
    times: dict[str, float] = {}
    for node, seconds in zip(chunk.model.graph.nodes, chunk.times.exposed_s[:, 0], strict=True):
        times[node.block] = times.get(node.block, 0.0) + float(seconds)
    graph = chunk_graph(rank, 0, rank.deployment.model.staged_layers)
    layered = {block.name for block in graph.blocks if block.layers}
    again = _parts_s(chunk, graph, rank.deployment.device.dram.bandwidth_bytes_per_s)
    forward = backward = 0.0
    ends: dict[str, float] = {}
    for name, seconds in times.items():
        if name not in layered:
            ends[name] = seconds
        elif name.endswith(BACKWARD):
            backward += seconds
        else:
            forward += seconds
    whole = layer_parameters(graph, rank.deployment.model)
    inside = layer_parameters(
        replace(graph, blocks=tuple(b for b in graph.blocks if b.layers)), rank.deployment.model
    )
    last = sum(s for name, s in ends.items() if name.startswith(_LAST) and BACKWARD not in name)
    last_back = sum(s for name, s in ends.items() if name.startswith(_LAST) and BACKWARD in name)
    first = sum(
        s for name, s in ends.items() if not name.startswith(_LAST) and BACKWARD not in name
    )
    first_back = sum(
        s for name, s in ends.items() if not name.startswith(_LAST) and BACKWARD in name
    )
    return Unit(
        backward / layers, first, first_back, last, last_back, float(chunk.times.launches_s.sum()),
        inside[0] / layers, inside[1] / layers, float(whole[0] - inside[0]),
        (forward / layers, *(each / layers for each in again)),
    )  # fmt: skip


def _parts_s(chunk: ProgramPass, graph: Graph, bandwidth: float) -> list[float]:
    """Seconds of the forward pass of all layers in what :data:`AGAIN` names behind the layer, then
    what the host takes to launch the pass, and these.
    """
    parts = {
        (block.name, node.name): part_of(node, has_latent(block))
        for block in graph.blocks
        if block.layers
        for node in block.nodes
    }
    seconds_in, calls_in = dict.fromkeys(AGAIN[1:], 0.0), dict.fromkeys(AGAIN[1:], 0.0)
    every = inside = 0.0
    nodes, calls = chunk.model.graph.nodes, chunk.model.graph.calls.tolist()
    for node, seconds, count in zip(nodes, chunk.times.exposed_s[:, 0], calls, strict=True):
        key, runs = (node.block, node.name), node.count * count
        every += runs
        if node.direction != "forward" or key not in parts:
            continue
        part = parts[key]
        inside += runs
        if part in seconds_in:
            seconds_in[part] += float(seconds)
            calls_in[part] += runs
        if node.op.family == "moe":
            seconds_in[FUSED_ACTIVATION] += node.count * activation_bytes(node.op) / bandwidth
            calls_in[FUSED_ACTIVATION] += node.count
    launch_s = float(chunk.times.launches_s.sum()) / every
    launches_s = (launch_s * count for count in calls_in.values())
    return [*seconds_in.values(), launch_s * inside, *launches_s]


_LAST = ("head", PREDICTING)
"""Start of the names of blocks behind the layers."""
UPDATE_BYTES = 30.0
"""Moved for each parameter by an update of Adam with 32-bit states: gradient, weight and two
moments read, the latter three and the 16-bit weight written."""
FINALISTS = 32
"""Plans that are predicted in full where nobody says how many."""
_CUT = ("tp", "cp", "ep", "etp", "micro_batch")

Memory = Callable[[CandidatePlans], F64]
"""Bytes that the fullest rank of each plan needs, shape (n,)."""


@final
@dataclass(frozen=True, slots=True)
class Finalist:
    """A plan that was predicted in full.

    Attributes:
        plan, rank: with its micro-batch and what is computed again.
        micro_batches: of a step.
        estimate_s: in closed form.
        memory_bytes: of the fullest rank.
        priced: what the full prediction says.
    """

    plan: TrainingPlan
    rank: Rank
    micro_batches: int
    estimate_s: float
    memory_bytes: float
    priced: Priced

    @property
    def seconds(self) -> float:
        return self.priced.seconds


@final
@dataclass(frozen=True)
class PlanSearchResult:
    """What a search found.

    Attributes:
        legal, fitting: plans that are legal, and that fit in memory.
        finalists: predicted in full, the best first.
        unplaced: finalists that no schedule or kernel model takes, and why.
        frontier: plans in closed form of which no other is both quicker and smaller: seconds and
            bytes, quickest first.
        best: the step of the best finalist.
    """

    legal: int
    fitting: int
    finalists: tuple[Finalist, ...]
    unplaced: tuple[str, ...]
    frontier: tuple[tuple[TrainingPlan, int, str, float, float], ...]
    best: DistributedStep


@keeping_times()  # finalists run many of the same kernels
def search(
    rank: Rank,
    legal: CandidatePlans,
    memory: Memory,
    usable_bytes: float,
    *,
    optimizer: str = "adamw",
    overlap: Overlap = Overlap(),
    finalists: int = FINALISTS,
    done: Callable[[int, int], None] = lambda _, __: None,
    kept: Kept | None = None,
) -> PlanSearchResult:
    """The best plans of a training step.

    Args:
        rank: what every rank runs; its plan and micro-batch are replaced.
        legal: the plans.
        memory: of plans; usable_bytes: of a device.
        finalists: to predict in full.
        done: told how many of how many finalists were predicted.
        kept: what full predictions said before, of the very same search; new ones are added.

    Raises:
        SilicastError: no plan fits in memory; says by how much the smallest one does not. Or no
            finalist can be predicted; says why the first one cannot.
    """
    needed = memory(legal)
    fits = np.flatnonzero(legal.worthwhile(needed <= usable_bytes))
    if not len(fits):
        least = int(needed.argmin())
        plan, micro, again = legal.plan(least)
        raise SilicastError(
            f"none of {len(legal)} plans fits into {usable_bytes / 1e9:.1f} GB: the smallest "
            f"({words(plan, micro, again)}) needs {needed[least] / 1e9:.1f} GB",
            field="cluster.gpus",
            hint="more devices, a shorter sequence, or larger devices",
        )
    fitting = legal.chosen(fits)
    needed = needed[fits]
    times = closed_form(rank, fitting, overlap)
    order = np.lexsort((np.arange(len(fitting)), times))
    order = order[np.isfinite(times[order])]
    run = _Full(optimizer, overlap, {} if kept is None else kept)
    plans_priced: list[Finalist] = []
    refused: list[str] = []
    total = min(finalists, len(order))
    for number, row in enumerate(order[:total].tolist()):
        done(number, total)
        plan, micro, again = fitting.plan(row)
        count = int(fitting.micro_batches[row])
        chosen_rank = _rank(rank, plan, micro, again, count > 1)
        priced = run.priced(fitting.key(row), chosen_rank, count)
        if priced.refused:
            refused.append(f"{words(plan, micro, again)}: {priced.refused}")
            continue
        plans_priced.append(
            Finalist(plan, chosen_rank, count, float(times[row]), float(needed[row]), priced)
        )
    done(total, total)
    if not plans_priced:
        raise SilicastError(
            f"none of {len(legal)} plans can be predicted: {'; '.join(refused[:1])}",
            field="parallel",
            hint="state degrees of which a model's layers divide",
        )
    plans_priced.sort(key=lambda each: each.seconds)
    return PlanSearchResult(
        len(legal),
        len(fitting),
        tuple(plans_priced),
        tuple(refused),
        tuple(_frontier(fitting, times, needed)),
        run.step(plans_priced[0].rank, plans_priced[0].micro_batches),
    )


@final
class _Full:
    """Full predictions of plans: those that were kept, and new ones."""

    def __init__(self, optimizer: str, overlap: Overlap, kept: Kept) -> None:
        self._optimizer, self._overlap, self._kept = optimizer, overlap, kept
        self._quickest: tuple[Rank, int, DistributedStep] | None = None

    def priced(self, key: str, rank: Rank, micro_batches: int) -> Priced:
        """What the prediction of a plan says."""
        known = self._kept.get(key)
        if known is not None:
            return known
        try:
            step = predict_step(rank, micro_batches, self._optimizer, self._overlap)
        except SilicastError as error:
            priced = Priced(refused=error.message)
        else:
            priced = Priced.from_distributed_step(step)
            if self._quickest is None or step.step.seconds < self._quickest[2].step.seconds:
                self._quickest = rank, micro_batches, step
        self._kept[key] = priced
        return priced

    def step(self, rank: Rank, micro_batches: int) -> DistributedStep:
        """The whole prediction of the best plan; once more where only its times were kept."""
        if self._quickest is not None and self._quickest[:2] == (rank, micro_batches):
            return self._quickest[2]
        return predict_step(rank, micro_batches, self._optimizer, self._overlap)


def closed_form(rank: Rank, plans: CandidatePlans, overlap: Overlap = Overlap()) -> F64:
    """Seconds of a step under each plan, shape (n,); infinite where layers cannot be cut so."""
    keys = np.stack([plans.column(name) for name in _CUT])
    distinct, position = np.unique(keys, axis=1, return_inverse=True)
    units = [
        _unit(rank, plans, int(np.argmax(position == each))) for each in range(distinct.shape[1])
    ]
    table = np.array([_row(unit) for unit in units])[position.ravel()].T
    return _times(rank, plans, table, overlap)


_SCALARS = tuple(name for name in Unit.__dataclass_fields__ if name != "again")
_UNIT_FIELDS = (
    *_SCALARS,
    *(f"{name}_forward" for name in AGAIN),
    *(f"{name}_launched" for name in AGAIN),
)


def _row(unit: Unit | None) -> list[float]:
    if unit is None:
        return [float("inf")] * len(_UNIT_FIELDS)
    return [*(getattr(unit, name) for name in _SCALARS), *unit.again]


def _unit(rank: Rank, plans: CandidatePlans, row: int) -> Unit | None:
    plan, micro, _ = plans.plan(row)
    stage = replace(plan, pp=1, virtual_stages=1, zero=0, dp=plan.dp)
    try:
        return unit_of(_rank(rank, stage, micro, "none", accumulates=True))
    except SilicastError:
        return None


def _times(rank: Rank, plans: CandidatePlans, table: F64, overlap: Overlap) -> F64:
    """See :func:`closed_form`.

    Args:
        table: fields of the plans' units, shape (fields, n).
    """
    unit = dict(zip(_UNIT_FIELDS, table, strict=True))
    layers = float(rank.deployment.model.layers)
    pp, again = plans.column("pp"), plans.column("recompute")
    ceil = np.ceil(layers / pp)
    forward = ceil * unit["layer_forward"]
    extra, relaunched = np.zeros(len(plans)), np.zeros(len(plans))
    for number, policy in enumerate(plans.space.recomputes):
        for name in _run_again(policy):
            if f"{name}_forward" in unit:
                extra += np.where(again == number, unit[f"{name}_forward"], 0.0)
                relaunched += np.where(again == number, unit[f"{name}_launched"], 0.0)
    backward = ceil * (unit["layer_backward"] + extra)
    first = unit["first_forward"] + unit["first_backward"]
    last = unit["last_forward"] + unit["last_backward"]
    one = forward + backward
    slowest = one + np.where(pp == 1, first + last, np.maximum(first, last))
    count = plans.micro_batches
    waits = np.where(np.isfinite(one), one, 0.0)  # what is not priced has no bubble of its own
    bubble = (pp - 1) * waits / plans.column("virtual_stages")
    held = ceil * unit["layer_parameters"] + unit["ends_parameters"]
    experts = ceil * unit["layer_experts"]
    summed, gathered = _exchanges(rank, plans, held + experts, overlap.gradient_bits // 8)
    zero = plans.column("zero")
    beside_backward = backward if overlap.gradients else 0.0
    beside_forward = forward if overlap.weights else 0.0
    left = np.maximum(summed - beside_backward, 0.0)
    left += np.where(zero > 0, np.maximum(gathered - beside_forward, 0.0), 0.0)
    always = count * np.maximum(2.0 * gathered + summed - one, 0.0)
    left = np.where(zero == 3, always, left)
    shared = np.where(zero > 0, plans.column("dp") * plans.column("cp"), 1)
    bandwidth = rank.deployment.device.dram.bandwidth_bytes_per_s
    update = (held + experts) / shared * UPDATE_BYTES / bandwidth
    machine = rank.deployment.machine
    host = machine.engine.host
    update = update + (host.update_us or host.step_us) * machine.host_us_s
    chunks = plans.column("virtual_stages")
    stage = np.where(pp > 1, host.stage_us * machine.host_us_s, 0.0)
    launched = (unit["launches"] + layers * relaunched) / pp
    launched = np.where(np.isfinite(one), launched + chunks * stage, 0.0)
    later = np.maximum(launched - slowest, 0.0)  # the host takes longer than the device
    times: F64 = (count + (pp - 1) / chunks) * later + count * slowest + bubble + left + update
    return times


def _run_again(policy: Recompute) -> frozenset[str]:
    """Which of :data:`AGAIN` a policy runs again."""
    if policy == "full":
        return frozenset(("layer",))
    parts = recomputed_parts(policy)
    alone = "moe_act" in parts and "moe" not in parts
    return parts | {FUSED_ACTIVATION} if alone else frozenset(parts)


def _exchanges(rank: Rank, plans: CandidatePlans, held: F64, each: int) -> tuple[F64, F64]:
    """Seconds in which gradients are summed and weights gathered, shape (n,) each."""
    tp, copies = plans.column("tp"), plans.column("dp") * plans.column("cp")
    summed, gathered = np.zeros(len(plans)), np.zeros(len(plans))
    groups, position = np.unique(np.stack((tp, copies)), axis=1, return_inverse=True)
    for number in range(groups.shape[1]):
        stride, size = groups[:, number].tolist()
        rows = np.flatnonzero((position.ravel() == number) & np.isfinite(held))
        if size == 1 or not len(rows):
            continue
        links = topology(rank.deployment.machine, size, stride=stride)
        library = rank.deployment.engine.collectives
        ways: tuple[tuple[Collective, int, F64], ...] = (
            ("reduce_scatter", each, summed),
            ("all_gather", ELEMENT, gathered),
        )
        for op, width, into in ways:
            bytes_ = np.maximum((held[rows] * width).astype(np.int64), 1)
            into[rows] = collective_times(op, bytes_, size, links, library).estimate_s
    return summed, gathered


@lru_cache(maxsize=4096)
def _rank(rank: Rank, plan: TrainingPlan, micro: int, again: str, accumulates: bool) -> Rank:
    training = rank.framework.training
    assert training is not None
    training = replace(training, recompute=again, accumulates=accumulates)
    framework = replace(rank.framework, training=training)
    deployment = replace(rank.deployment, plan=Plan(tp=plan.tp))
    plan = replace(plan, context=rank.plan.context, dispatch=rank.plan.dispatch)
    return replace(rank, deployment=deployment, plan=plan, framework=framework, micro_batch=micro)


def _frontier(
    plans: CandidatePlans, times: F64, needed: F64
) -> Iterator[tuple[TrainingPlan, int, str, float, float]]:
    """Plans of which no other is both quicker and smaller, the quickest first."""
    order: I64 = np.lexsort((needed, times))
    least = float("inf")
    for row in order.tolist():
        if needed[row] < least and np.isfinite(times[row]):
            least = float(needed[row])
            yield (*plans.plan(row), float(times[row]), float(needed[row]))


def words(plan: TrainingPlan, micro: int, again: str) -> str:
    """A plan on one line.

    >>> words(TrainingPlan(tp=8, dp=4, zero=1), 2, "full")
    'tp 8, dp 4, zero 1, micro-batch 2, recompute full'
    """
    named = ("tp", "pp", "cp", "dp", "ep", "virtual_stages")
    degrees = [f"{name.replace('_', ' ')} {v}" for name in named if (v := getattr(plan, name)) > 1]
    degrees += [f"zero {plan.zero}"] if plan.zero else []
    again_words = [f"recompute {again}"] if again != "none" else []
    return ", ".join([*degrees, f"micro-batch {micro}", *again_words])


def why_slower(best: Finalist, other: Finalist) -> str:
    """What a runner-up loses most by, in words."""
    mine, theirs = best.priced.parts_ps, other.priced.parts_ps
    more = {name: theirs.get(name, 0) - mine.get(name, 0) for name in {**mine, **theirs}}
    name = max(more, key=lambda each: (more[each], each))
    return f"{name.replace('_', ' ')} takes {more[name] * 1e-9:,.0f} ms more"
