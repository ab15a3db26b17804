"""A training step of many devices, and the passes of a frozen model beside it.

A training step of many devices: chunks of layers under a schedule, sums of gradients, update.

    step = pipeline of forward and backward passes + what of the sums of gradients is left + update

A rank's passes are priced with what its ranks exchange beside them
(:mod:`~silicast.distributed.pipeline.chunk`); passes that
begin or end a step have more to exchange than those between, and what they take longer is counted
once. The schedule (:mod:`~silicast.distributed.pipeline.pipeline`) says how long ranks wait for
each other. One device alone
takes what :func:`silicast.composition.passes.training_step.predict_training_step` says, bit for
bit.

A frozen model whose forward pass a loss needs: the reference of DPO, a teacher.

Its passes come before those that train, over the same tokens on the same ranks (Rafailov et al.
2023; Hinton et al. 2015). It keeps nothing for gradients and has none; of sharded weights each
layer's are gathered once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import final

import numpy as np

from silicast.composition.errors.uncertainty import narrowed_sum
from silicast.composition.passes.program import ProgramPass, predict_program
from silicast.composition.passes.training_step import (
    predict_update,
    repeated,
    unmeasured_training,
    update_graph,
)
from silicast.composition.step.pipes import clocked_ps
from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.core.prediction import (
    ErrorFactors,
    Later,
    Part,
    Prediction,
    said_by,
    weakest_tier,
    worst_domain,
)
from silicast.distributed.memory.offload import host_updates
from silicast.distributed.pipeline.chunk import Rank, chunk_graph, predict_chunk
from silicast.distributed.pipeline.chunk_bounds import model_bounds
from silicast.distributed.pipeline.pipeline import Durations, PipelineTimes, pipeline_times
from silicast.distributed.ranks.data_ranks import Exchanges, layer_parameters
from silicast.distributed.ranks.plan import ELEMENT, collective
from silicast.distributed.schedules.order import Order
from silicast.distributed.schedules.schedule import PipelineSchedule, schedule
from silicast.workload.graphs.graph import Block, Direction, Graph, Node
from silicast.workload.models.model import ModelConfig

WAYS: tuple[Direction, ...] = ("forward", "backward")


@final
@dataclass(frozen=True, slots=True)
class Overlap:
    """What runs beside the device's work.

    Attributes:
        gradients: their sums over data ranks, beside the backward pass.
        weights: gathers of sharded weights, beside the next forward pass.
        transfers: results between pipeline stages, beside other micro-batches.
        tensor: of tensor ranks in the forward pass, beside the products that they belong to.
        experts: of tokens to their experts and back, beside another micro-batch; schedules of the
            DualPipe kind always do so.
        shared: likewise beside shared experts.
        gradient_bits: in which gradients are summed.
    """

    gradients: bool = True
    weights: bool = True
    transfers: bool = True
    tensor: bool = False
    experts: bool = False
    shared: bool = False
    gradient_bits: int = 32


@final
@dataclass(frozen=True)
class DistributedStep:
    """What one step takes.

    Attributes:
        step: all of it, until the last rank ends.
        bounds: first and one-past-last layer of each chunk of the model, in order.
        passes: one micro-batch through each of them, between the first and the last.
        update: gradients that were not summed yet, their norm, the optimizer, weights gathered.
        run: the pipeline; None where there is one stage.
        limits: the busiest rank of the pipeline, whose passes and waits are the parts of ``step``.
        schedule: its name; "" = there is one stage.
        kept: where only ``again_share`` of the layers run again, the passes in which none does;
            ``passes`` are those in which all do.
    """

    step: Prediction
    bounds: tuple[tuple[int, int], ...]
    passes: tuple[ProgramPass, ...]
    update: ProgramPass
    order: Order
    run: PipelineTimes | None
    limits: int
    schedule: str = ""
    kept: tuple[ProgramPass, ...] = ()
    again_share: float = 1.0

    @property
    def weighted_passes(self) -> tuple[tuple[ProgramPass, float], ...]:
        """What a micro-batch runs, each with how often: some layers as in one pass, the others as
        in the other.
        """
        again = tuple((chunk_pass, self.again_share) for chunk_pass in self.passes)
        share = 1.0 - self.again_share
        return again + tuple((chunk_pass, share) for chunk_pass in self.kept)

    @property
    def bubble(self) -> float:
        """Share of the pipeline's time in which the rank that limits it waits."""
        if self.run is None:
            return 0.0
        return float(self.run.bubble[self.limits]) / float(self.run.makespan)


def alike(rank: Rank, bounds: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """For each chunk the first one of the same layers, which is priced for all of them.

    Embedding and head are on the first and the last chunk, which may hold no layers: the next one
    begins with the same layer, and one of the same layers amid the model stands for it.
    """
    return _alike(rank.deployment.model, bounds)


@lru_cache(maxsize=256)
def _alike(model: ModelConfig, bounds: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    count = len(bounds)
    firsts: dict[object, tuple[int, int]] = {}
    keys: list[object] = []
    for number, (first, last) in enumerate(bounds):
        kinds = tuple(model.kind(layer) for layer in range(first, min(last, model.layers)))
        ends = number == 0, number == count - 1
        keys.append((kinds, ends))
        if (first == 0, last == model.staged_layers) == ends:
            firsts.setdefault(keys[-1], (first, last))
    return tuple(firsts.get(key, chunk) for key, chunk in zip(keys, bounds, strict=True))


def schedule_of(rank: Rank) -> PipelineSchedule:
    """The schedule that a plan names, or the usual one."""
    plan = rank.plan
    return schedule(plan.schedule or ("interleaved" if plan.virtual_stages > 1 else "1f1b"))


def predict_step(
    rank: Rank, micro_batches: int, optimizer: str = "adamw", overlap: Overlap = Overlap()
) -> DistributedStep:
    """Predicts one optimizer step.

    Args:
        rank: what every rank runs.
        micro_batches: of one step, on each data rank.

    Raises:
        SilicastError: the plan does not fit the model, its schedule or the number of micro-batches.
    """
    order = schedule_of(rank).order(rank.plan.pp, micro_batches, rank.plan.virtual_stages)
    bounds = model_bounds(rank.deployment.model, order.placement.stages)
    update = predict_update(rank.deployment.machine, _update(rank, bounds, optimizer, overlap))
    kinds = MicroBatches.from_rank(rank, overlap)
    passes = tuple(predict_chunk(rank, *chunk, kinds.between) for chunk in alike(rank, bounds))
    if rank.plan.pp == 1:
        whole = _one_stage(rank, bounds[0], kinds, micro_batches)
        whole = replace(whole, part=whole.part.changed(name="forward_and_backward"))
        step = _joined((whole, *waiting_for_slowest(whole, rank), update.total), "step")
        step = unmeasured_training(step, rank.deployment, context=rank.plan.cp > 1)
        return DistributedStep(step, bounds, passes, update, order, None, 0)
    return _Pipeline(rank, order, bounds, passes, kinds, update, overlap).step()


@final
@dataclass(frozen=True, slots=True)
class MicroBatches:
    """What the first micro-batch of a step exchanges, those between, and the last one."""

    first: Exchanges
    between: Exchanges
    last: Exchanges

    @staticmethod
    def from_rank(rank: Rank, overlap: Overlap) -> MicroBatches:
        """What a rank exchanges with this overlap."""
        batches = overlap.experts or rank.plan.schedule.startswith("dualpipe")
        between = Exchanges(
            gradient_bits=overlap.gradient_bits,
            beside_products=overlap.tensor,
            experts_beside="batches" if batches else "shared" if overlap.shared else "",
        )
        down = rank.offload.by_host > 0.0 and overlap.gradients
        if rank.plan.group("dp_cp").size == rank.plan.group("edp").size == 1:
            return MicroBatches(between, between, replace(between, gradients_down=down))
        if rank.plan.zero == 3:
            engine = rank.deployment.engine.training
            always = replace(
                between,
                gathers_forward=True,
                gathers_backward=engine.reshard_after_forward,
                weights_copied=engine.weights_copied,
                gradients_copied=engine.gradients_copied,
                sums=True,
                weights_wait=not overlap.weights,
                sums_wait=not overlap.gradients,
            )
            return MicroBatches(always, always, replace(always, gradients_down=down))
        gathers = rank.plan.zero > 0 and overlap.weights
        parallel = rank.deployment.engine.parallel
        a_rank = parallel.bucket_parameters_a_rank * rank.plan.group("dp_cp").size
        between = replace(between, bucket=max(parallel.bucket_parameters, a_rank))
        return MicroBatches(
            replace(between, gathers_forward=gathers),
            between,
            replace(between, sums=overlap.gradients, gradients_down=down),
        )

    def in_order(self, micro_batches: int) -> list[tuple[Exchanges, int]]:
        """Those of the micro-batches of a step, each with how many follow each other alike."""
        if micro_batches == 1:
            return [(replace(self.last, gathers_forward=self.first.gathers_forward), 1)]
        runs: list[tuple[Exchanges, int]] = []
        for kind, count in ((self.first, 1), (self.between, micro_batches - 2), (self.last, 1)):
            if runs and runs[-1][0] == kind:
                runs[-1] = (kind, runs[-1][1] + count)
            elif count:
                runs.append((kind, count))
        return runs


def waiting_for_slowest(passes: Prediction, rank: Rank) -> list[Prediction]:
    """What ranks wait for the slowest device, once all of a rank's passes are done; nothing where
    devices are alike.

    Boards of one kind differ in the clock that their power limit leaves them, so that only work
    that goes with the cores' clock takes longer (Sinha et al., SC 2022). All devices of a step wait
    for each other, in layers, between stages, or when gradients are summed.
    """
    share = rank.boards.wait_for_slowest(rank.plan.gpus)
    waits = round(clocked_ps(passes.part) * share) if share else 0
    if not waits:
        return []
    return [replace(passes, part=Part(SLOWEST, waits, bound_by=passes.part.bound_by))]


def _one_stage(
    rank: Rank, bounds: tuple[int, int], kinds: MicroBatches, micro_batches: int
) -> Prediction:
    """All micro-batches of a device that holds all layers."""
    totals = []
    for kind, count in kinds.in_order(micro_batches):
        total = predict_chunk(rank, *bounds, kind).total
        totals.append(replace(total, part=repeated(total.part, count)))
    return totals[0] if len(totals) == 1 else _joined(totals, "micro_batches")


@final
class _Pipeline:
    """A step of several stages."""

    def __init__(
        self,
        rank: Rank,
        order: Order,
        bounds: tuple[tuple[int, int], ...],
        passes: tuple[ProgramPass, ...],
        kinds: MicroBatches,
        update: ProgramPass,
        overlap: Overlap,
    ) -> None:
        self.rank, self.order, self.bounds, self.passes = rank, order, bounds, passes
        self.kinds, self.update, self.overlap = kinds, update, overlap

    @cached_property
    def durations(self) -> Durations:
        """Whole picoseconds of each action: of the device, or of the host where that takes longer:
        launches, and half of a micro-batch's schedule.
        """
        half = self._schedule_ps() // 2
        forward, back = (
            np.array(
                [
                    max(chunk_pass.part_of(way).exposed_ps, _launched(chunk_pass, way) + half)
                    for chunk_pass in self.passes
                ]
            )
            for way in WAYS
        )
        weights = np.array(
            [
                round(ps * _weight_share(chunk_pass))
                for ps, chunk_pass in zip(back, self.passes, strict=True)
            ]
        )
        return Durations.of_stages(self.order.placement, forward, back - weights, weights)

    def _schedule_ps(self) -> int:
        """What the host does for a micro-batch, forward and backward, of each chunk."""
        machine = self.rank.deployment.machine
        return round(machine.engine.host.stage_us * machine.host_us_s * 1e12)

    @cached_property
    def transfer(self) -> Prediction:
        """Results of a micro-batch to the next stage."""
        plan, model = self.rank.plan, self.rank.deployment.model
        tokens = self.rank.micro_batch * self.rank.seq_len // plan.cp
        shared = plan.tp if plan.sequence_parallel else 1
        op = collective(plan, "send_recv", "pp", tokens * model.hidden * ELEMENT // shared)
        op = replace(op, dims=tuple((n, 2 if n == "gpus" else v) for n, v in op.dims))
        graph = Graph("transfer", (Block("transfer", (Node("send", op),)),))
        return predict_program(self.rank.deployment.machine, graph).directions["forward"]

    def _later(self, way: Direction, kind: Exchanges, placed: I64) -> I64:
        """By how much a pass of each rank's chunks takes longer than those between, picoseconds,
        shape (ranks,).

        Args:
            placed: chunks of the ranks, shape (ranks, chunks of one).
        """
        if kind == self.kinds.between:
            return np.zeros(len(placed), dtype=np.int64)
        chunks, longer_ps = (
            alike(self.rank, self.bounds),
            np.zeros(len(self.bounds), dtype=np.int64),
        )
        for stage in sorted(set(placed.ravel().tolist())):
            longer = predict_chunk(self.rank, *chunks[stage], kind)
            longer_ps[stage] = max(
                longer.part_of(way).exposed_ps - self.passes[stage].part_of(way).exposed_ps, 0
            )
        later: I64 = longer_ps[placed].sum(axis=1)
        return later

    def step(self) -> DistributedStep:
        placed, order = self.order.placement.stage, self.order
        send = self.transfer.part.exposed_ps
        durations = self.durations
        if not self.overlap.transfers:
            durations = self._sending(send)
        run = pipeline_times(order, durations, send if self.overlap.transfers else 0)
        sums = self._later("backward", self.kinds.last, placed)
        gathers = int(self._later("forward", self.kinds.first, placed[:1])[0])
        ends = run.end[order.first[1:] - 1] + sums
        # of the busiest rank: what an idle one waits for is the others' work, and no bubble
        limits = int(run.busy.argmax())
        waits = int(ends.max()) - int(run.busy[limits]) - int(sums[limits])
        count = order.micro_batches // len(np.unique(order.placement.path))
        directions = [  # none of a chunk without layers
            replace(direction, part=repeated(direction.part, count))
            for number in placed[limits]
            for direction in self.passes[number].directions.values()
        ]
        work = _joined(directions, "forward_and_backward")
        sent = int(run.busy[limits]) - work.part.exposed_ps
        parts = {
            BUBBLE: waits,
            "transfers_between_stages": sent,
            "gradients_and_weights": int(sums[limits]) + gathers,
        }
        waiting = [
            replace(work, part=Part(name, ps, bound_by=WAITS.get(name, "network")))
            for name, ps in parts.items()
            if ps
        ]
        waiting += waiting_for_slowest(work, self.rank)
        step = _joined((work, *waiting, self.update.total), "step")
        step = unmeasured_training(step, self.rank.deployment, context=self.rank.plan.cp > 1)
        return DistributedStep(
            step,
            self.bounds,
            self.passes,
            self.update,
            order,
            run,
            limits,
            schedule_of(self.rank).name,
        )

    def _sending(self, send_ps: int) -> Durations:
        """Durations with the transfers that a rank waits for: each pass but those at the ends of
        the model sends once, and what it receives was sent before it began.
        """
        durations_ps, stage = self.durations.each.copy(), self.order.placement.stage
        last = self.order.placement.stages - 1
        durations_ps[0] += send_ps * (stage < last)
        durations_ps[1] += send_ps * (stage > 0)
        durations_ps[2] += send_ps * (stage > 0)
        return Durations(durations_ps)


def _launched(chunk_pass: ProgramPass, way: Direction) -> int:
    """What the host takes to launch a direction of a pass, picoseconds."""
    return round(float(chunk_pass.times.launches_s[WAYS.index(way)].sum()) * 1e12)


def _weight_share(chunk_pass: ProgramPass) -> float:
    """Share of a backward pass that gradients of weights take."""
    whole = part = 0.0
    for node, seconds in zip(
        chunk_pass.model.graph.nodes, chunk_pass.times.exposed_s[:, 0], strict=True
    ):
        if node.direction == "backward":
            whole += float(seconds)
            if node.name.endswith(("_grad_weight", "_grad_bias", "_grad_accumulated")):
                part += float(seconds)
    return part / whole if whole else 0.0


def _update(
    rank: Rank, bounds: Sequence[tuple[int, int]], optimizer: str, overlap: Overlap
) -> Graph:
    """The update of the rank with most parameters, and exchanges that nothing hides."""
    plan, deployment = rank.plan, rank.deployment
    graph = update_graph(deployment, optimizer)
    if rank.plain:
        return graph
    placed = schedule_of(rank).placement(plan.pp, plan.virtual_stages).stage
    usual = MicroBatches.from_rank(
        rank, overlap
    ).between  # as passes are predicted: one graph for both
    counts = np.array([_parameters(rank, *chunk, usual) for chunk in alike(rank, tuple(bounds))])
    dense, experts = (int(count) for count in counts[placed].sum(axis=1).max(axis=0))
    sharded = plan.zero > 0
    held = dense // (plan.sharers if sharded else 1)
    copies = plan.group("edp_shard").size
    held += experts // (copies if sharded else 1)
    if not held:
        assert rank.adapters is not None
        raise SilicastError(
            f"no layer of {deployment.model.name} has a product that adapters stand beside: "
            f"{', '.join(rank.adapters.products)}",
            field="lora.targets",
            hint="q_proj, k_proj, v_proj or o_proj",
        )
    nodes: list[Node] = []
    family = "reduce_scatter" if sharded else "all_reduce"
    gradient_bytes = overlap.gradient_bits // 8
    last: tuple[str, ...] = ()
    if plan.zero < 3 and not overlap.gradients:
        replicas = dense // (plan.sharers if sharded else 1)
        for axis, count in (("shard", dense), ("edp", experts), ("replicate", replicas)):
            if count and plan.group(axis).size > 1:  # type: ignore[arg-type]
                own_family = "all_reduce" if axis == "replicate" else family
                op = collective(plan, own_family, axis, count * gradient_bytes)  # type: ignore[arg-type]
                nodes.append(Node(f"gradients_{axis}", op, last))
                last = (nodes[-1].name,)
    for node in graph.blocks[0].nodes:
        op = node.op
        if "elements" in dict(op.dims):
            op = replace(op, dims=tuple((n, held if n == "elements" else v) for n, v in op.dims))
        update = replace(node, op=op, inputs=node.inputs or last)
        if rank.offload.any:
            nodes += host_updates(
                update,
                held,
                optimizer,
                deployment.precision.hidden,
                rank.offload,
                0 if overlap.gradients else gradient_bytes,
            )
        else:
            nodes.append(update)
        last = (nodes[-1].name,)
    if 0 < plan.zero < 3 and not overlap.weights:
        for axis, count in (("shard", dense), ("edp_shard", experts)):
            if count and plan.group(axis).size > 1:  # type: ignore[arg-type]
                op = collective(plan, "all_gather", axis, count * ELEMENT)  # type: ignore[arg-type]
                nodes.append(Node(f"weights_{axis}", op, last))
                last = (nodes[-1].name,)
    block = replace(graph.blocks[0], nodes=tuple(nodes))
    return replace(graph, blocks=(block,))


@lru_cache(maxsize=4096)
def _parameters(rank: Rank, first: int, last: int, exchanges: Exchanges) -> tuple[int, int]:
    """Dense parameters of a chunk on a rank, and those of routed experts."""
    graph = chunk_graph(rank, first, last, exchanges)
    return layer_parameters(graph, rank.deployment.model, rank.adapters)


def _joined(parts: Sequence[Prediction], name: str) -> Prediction:
    """One after the other."""
    both = [
        (prediction.part.exposed_ps, prediction.error, prediction.narrowed) for prediction in parts
    ]
    return replace(
        parts[0],
        part=Part.group(name, [prediction.part for prediction in parts]),
        error=ErrorFactors.of_sum([(time, error) for time, error, _ in both]),
        tier=weakest_tier(prediction.tier for prediction in parts),
        domain=worst_domain(prediction.domain for prediction in parts),
        warnings=said_by(*parts),
        narrowed=Later(lambda: narrowed_sum(both)),
    )


NAME = "reference"

BUBBLE = "pipeline_bubble"
SLOWEST = "slowest_device"

WAITS = {BUBBLE: "pipeline"}
"""Part -> what it waits for where that is no network: other stages, however quick the links."""


def reference_passes(rank: Rank, micro_batches: int, overlap: Overlap) -> Prediction:
    """Forward passes of all micro-batches of a step through a model that is not trained.

    A pipeline is filled and drained once: (micro-batches + stages - 1) passes of the slowest stage.

    Args:
        rank: of the frozen model, with the degrees of the one that is trained.
    """
    frozen = replace(rank, framework=replace(rank.framework, training=None), adapters=None)
    kinds = MicroBatches.from_rank(frozen, overlap)
    quiet = replace(kinds.between, gathers_backward=False, sums=False, gradients_down=False)
    order = schedule_of(frozen).order(frozen.plan.pp, micro_batches, frozen.plan.virtual_stages)
    bounds = model_bounds(frozen.deployment.model, order.placement.stages)
    passes = [predict_chunk(frozen, *chunk, quiet).total for chunk in alike(frozen, bounds)]
    stages = [[passes[chunk] for chunk in row] for row in order.placement.stage.tolist()]
    times = [sum(prediction.part.exposed_ps for prediction in row) for row in stages]
    slowest: list[Prediction] = stages[times.index(max(times))]
    parts = [repeated(prediction.part, micro_batches) for prediction in slowest]
    fills = frozen.plan.pp - 1
    if fills:
        waits = fills * max(times) // len(slowest)
        parts.append(Part(BUBBLE, waits, bound_by=WAITS[BUBBLE]))
    return replace(slowest[0], part=Part.group(NAME, parts))


def with_reference(step: Prediction, passes: Prediction) -> Prediction:
    """A step behind the passes of a frozen model."""
    both = [
        (prediction.part.exposed_ps, prediction.error, prediction.narrowed)
        for prediction in (passes, step)
    ]
    return replace(
        step,
        part=Part.group(step.part.name, (passes.part, *step.part.children)),
        error=ErrorFactors.of_sum([(time, error) for time, error, _ in both]),
        tier=weakest_tier(prediction.tier for prediction in (passes, step)),
        domain=worst_domain(prediction.domain for prediction in (passes, step)),
        warnings=said_by(passes, step),
        narrowed=Later(lambda: narrowed_sum(both)),
    )
