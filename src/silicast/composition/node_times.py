"""Times of all nodes of a stage graph for many batch states, one vectorised call a kind of node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from silicast.composition.engine_lowering import COLLECTIVES
from silicast.composition.fusion import smallest_kernel_s
from silicast.composition.machine import Machine
from silicast.composition.node_rows import columns, in_chunks, ragged, running
from silicast.composition.pipes import Resources
from silicast.composition.stage_graph import StageGraph, topology
from silicast.composition.states import BatchStates
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.core.prediction import TIERS
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes, implementation_for
from silicast.kernels.physics import load_physics
from silicast.learning.tiers import in_whole_models, kernel_times
from silicast.workload.op import Affine, Dim, Op, OpBatch, Variant
from silicast.workload.symbols import (
    ALL_TOKENS,
    CROSS_KV,
    DECODE_KV,
    DECODE_LONGEST,
    DECODE_TOKENS,
    LOGIT_ROWS,
    PREFILL_KV,
    PREFILL_KV_TOKENS,
    PREFILL_LONGEST,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    TOKENS,
    Phase,
    phase_of,
)

if TYPE_CHECKING:
    from silicast.communication.collective import CollectiveTimes
    from silicast.composition.concurrency import Shares

Times: TypeAlias = "KernelTimes | CollectiveTimes"
_ANALYTIC, _LEARNED = TIERS.index("analytic"), TIERS.index("cross-device")
_SCALED, _CALIBRATED = TIERS.index("scaled"), TIERS.index("calibrated")


@final
@dataclass(frozen=True, slots=True)
class NodeGroup:
    """What nodes share that one call times; attention on an encoder's outputs has lengths of its
    own.
    """

    family: str
    variant: Variant
    names: tuple[str, ...]
    gpus: Dim
    phase: Phase
    crosses: bool
    on_encoder: bool = False


@final
@dataclass(frozen=True)
class Call:
    """One evaluation: nodes x states, the states of the first node first.

    Attributes:
        group: what the nodes share.
        members: places of the nodes.
        rows: states in which they run.
        place: which of the evaluated sizes each state has, shape (rows,); sizes that several states
            share are evaluated once.
        count: evaluated sizes of each node.
        batch: what was evaluated; None = a collective.
        times: of it.
    """

    group: NodeGroup
    members: Sequence[int]
    rows: I64
    place: I64
    count: int
    batch: OpBatch | None
    times: Times

    def spread(self, values: F64) -> F64:
        """One value an evaluated size, over the states, shape (members, rows)."""
        return np.reshape(values, (len(self.members), self.count))[:, self.place]

    @cached_property
    def bound_by(self) -> list[str]:
        """The resource that sets the bound of each evaluated size."""
        if not isinstance(self.times, KernelTimes):
            return self.times.bound_by()
        needs = {n: s for n, s in self.times.analysis.resource_s.items() if n != "launch"}
        names, rows = list(needs), len(self.members) * self.count
        each = [
            found if len(found := np.ravel(s).tolist()) == rows else found * rows
            for s in needs.values()
        ]
        return [names[row.index(max(row))] for row in zip(*each, strict=True)]


@final
class NodeTimes:
    """Times of all nodes for n states; arrays (nodes, n), seconds, one execution each.

    Attributes:
        time_s: where a node runs alone; bound_s: its physical limit.
        independent: log sd of each node's own error; shared: per node, loadings on shared factors.
        tensor_flops, dram_bytes: demand of each node, for the power state.
        tiers: of each node, as a place in ``core.prediction.TIERS``.
        shares: of cores, memory and links that each node takes alone.
        calls: the evaluations behind them.
    """

    def __init__(self, graph: StageGraph, count: int, device: Device) -> None:
        shape = (len(graph.nodes), count)
        self.device = device
        self.time_s, self.bound_s = np.zeros(shape), np.zeros(shape)
        self.independent = np.zeros(shape)
        self.tensor_flops, self.dram_bytes = np.zeros(shape), np.zeros(shape)
        self.tiers: I64 = np.full(shape, _ANALYTIC)
        self.shared: list[Mapping[str, float]] = [{}] * shape[0]
        self._fill, self._links = np.ones(shape), np.zeros(shape)
        self.calls: list[Call] = []

    def put(self, call: Call) -> None:
        """Notes what a call found."""
        self.calls.append(call)
        times, where = call.times, np.ix_(np.asarray(call.members), call.rows)
        self.time_s[where] = call.spread(times.estimate_s)
        self.bound_s[where] = call.spread(times.bound_s)
        self.independent[where] = call.spread(times.independent_log_sd)
        tiers = _tiers(times)
        self.tiers[where] = tiers if isinstance(tiers, int) else call.spread(tiers)
        for index in call.members:
            self.shared[index] = times.shared_log_sd
        if not isinstance(times, KernelTimes):
            self._fill[where] = load_physics("composition").default["collective_cores"]
            self._links[where] = 1.0
            return
        demand = times.analysis.demand
        self._fill[where] = call.spread(np.minimum(demand.waves, 1.0))
        if "tensor" in demand.pipe_work:
            self.tensor_flops[where] = call.spread(demand.pipe_work["tensor"])
        if "dram" in demand.level_bytes:
            self.dram_bytes[where] = call.spread(demand.level_bytes["dram"])

    @cached_property
    def shares(self) -> Shares:
        """See the class."""
        from silicast.composition.concurrency import Shares

        busy = self.dram_bytes / self.device.dram.bandwidth_bytes_per_s
        share = np.divide(busy, self.time_s, out=np.zeros_like(busy), where=self.time_s > 0.0)
        return Shares(self._fill, np.minimum(share, 1.0), self._links)

    def bound_by(self, index: int, state: int) -> str:
        """What sets a node's bound in a state, "" = it does not run."""
        for call, own in self._calls_of.get(index, ()):
            place = int(np.searchsorted(call.rows, state))
            if place < len(call.rows) and call.rows[place] == state:
                return call.bound_by[own * call.count + int(call.place[place])]
        return ""

    @cached_property
    def _calls_of(self) -> dict[int, list[tuple[Call, int]]]:
        """Calls of each node, and which of their members it is."""
        found: dict[int, list[tuple[Call, int]]] = {}
        for call in self.calls:
            for own, index in enumerate(call.members):
                found.setdefault(index, []).append((call, own))
        return found

    def ceiling_s(self) -> F64:
        """What the quick ones of measured kernels reached, shape (nodes, n); 0 = not known."""
        found = np.zeros_like(self.time_s)
        for call in self.calls:
            times = call.times
            if isinstance(times, KernelTimes) and times.ceiling_s is not None:
                found[np.ix_(np.asarray(call.members), call.rows)] = call.spread(times.ceiling_s)
        return found

    def resources(self) -> Resources:
        """What each node needs of each resource."""
        clocks = self.device.clocks
        found = Resources(*self.time_s.shape, clocks.max_hz / clocks.boost_hz)
        for call in self.calls:
            times = call.times
            needs = times.analysis if isinstance(times, KernelTimes) else times
            spread = {name: call.spread(np.asarray(s)) for name, s in needs.resource_s.items()}
            found.put(call.members, call.rows, spread, self.device, call.group.variant.dtype)
        return found


def _tiers(times: Times) -> int | F64:
    """The tier of each row, as a place in ``TIERS``: the best whose correction had any weight."""
    scaled = times.scaled if isinstance(times, KernelTimes) else None
    known = (times.learned, _LEARNED), (scaled, _SCALED), (times.calibrated, _CALIBRATED)
    found: int | F64 = _ANALYTIC
    for weight, tier in known:
        if weight is not None:
            found = np.where(weight > 0.0, tier, found)
    return found


@final
class Timer:
    """Prices the nodes of a stage graph.

    Args:
        machine: what they run on.
        graph: the nodes.
        captured: numbers of tokens to which steps that replay a graph are padded.
    """

    def __init__(self, machine: Machine, graph: StageGraph, captured: tuple[int, ...] = ()) -> None:
        self.machine, self.graph, self.nodes = machine, graph, graph.nodes
        self.captured: I64 = np.array(captured, dtype=np.int64)
        self.groups = self._group()

    def _group(self) -> dict[NodeGroup, list[int]]:
        """Nodes that one vectorised call times: of one family, variant and set of dimensions, that
        run in the same steps; collectives also by their number of devices.
        """
        groups: dict[NodeGroup, list[int]] = {}
        for index, node in enumerate(self.nodes):
            op = node.op
            gpus = dict(op.dims).get("gpus", 0)
            names = tuple(name for name, _ in op.dims)
            looks = CROSS_KV in [dim for _, dim in op.dims]
            key = NodeGroup(op.family, op.variant, names, gpus, phase_of(op), node.crosses, looks)
            groups.setdefault(key, []).append(index)
        return groups

    def run_tokens(self, states: BatchStates) -> I64:
        """Tokens that a step runs, shape (n,): those of a step that replays a graph are padded to
        the next batch that was captured.
        """
        sizes, tokens = self.captured, states.tokens
        if not len(sizes):
            return tokens
        launch = self.machine.engine.launch
        place = np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)
        padded = np.where(tokens <= sizes[-1], sizes[place], tokens)
        replays = np.where(
            states.prefill_sequences > 0, launch.prefill != "stream", launch.decode != "stream"
        )
        found: I64 = np.where(replays, padded, tokens)
        return found

    def times(self, states: BatchStates, device: Device) -> NodeTimes:
        """Times of all nodes for all states."""
        found = NodeTimes(self.graph, len(states), device)
        symbols = self.symbols(states)
        for group, members, rows in self.calls(states):
            found.put(self.call(group, members, rows, states, symbols, device))
        self.fuse(found, self.run_tokens(states))
        return found

    def call(
        self,
        group: NodeGroup,
        members: Sequence[int],
        rows: I64,
        states: BatchStates,
        symbols: Mapping[str, I64],
        device: Device,
    ) -> Call:
        """One group of nodes in the states ``rows``; ``symbols`` as of :meth:`symbols`."""
        batch = self.lengthy(members, states, rows)
        if batch is not None:
            times = self._timed(batch, device)
            return Call(group, members, rows, np.arange(len(rows)), len(rows), batch, times)
        used, place = _distinct(self.symbols_of(members), symbols, rows)
        count = len(next(iter(used.values()))) if used else 1
        sized, found = self.sized(group, members, used, count, device)
        return Call(group, members, rows, place, count, sized, found)

    def at_clock(
        self, boosted: NodeTimes, states: BatchStates, device: Device, wanted: I64
    ) -> NodeTimes:
        """The same times at another clock than boost: what was learned or measured holds at boost,
        and the analytic model gives what the clock changes.

        Args:
            boosted: at the boost clock.
            wanted: states for which it matters; others may stay as they are.
        """
        found = NodeTimes(self.graph, len(states), device)
        needed = np.zeros(len(states), dtype=bool)
        needed[wanted] = True
        for call in boosted.calls:
            if not needed[call.rows].any():
                found.put(call)
                continue
            found.put(self.slowed(call, device))
        self.fuse(found, self.run_tokens(states))
        return found

    def slowed(self, call: Call, device: Device) -> Call:
        """A call at the boost clock, at the clock of ``device``; collectives do not change."""
        if call.batch is None:
            return call
        assert isinstance(call.times, KernelTimes)
        slow = self._model(call.batch.family, device).times(call.batch, device)
        return replace(call, times=_slowed(call.times, slow))

    def fuse(self, found: NodeTimes, tokens: I64) -> None:
        """Takes off the launches that fusion saves."""
        for index, node in enumerate(self.nodes):
            if node.saves:
                row = self.without_saved(
                    index, found.time_s[index], found.bound_s[index], tokens, found.device
                )
                found.time_s[index] = row

    def without_saved(
        self, index: int, time_s: F64, bound_s: F64, tokens: I64, device: Device
    ) -> F64:
        """Times of one node, shape (n,), without the launches that fusion saves; never below what
        it must move and compute.
        """
        for most in self.nodes[index].saves:
            less = time_s - smallest_kernel_s(device) * (tokens <= most)
            time_s = np.where(time_s > 0.0, np.maximum(less, bound_s), 0.0)
        return time_s

    def calls(self, states: BatchStates) -> Iterator[tuple[NodeGroup, list[int], I64]]:
        """Groups of nodes, their members and the states in which they run, none of them empty."""
        prefills = states.prefill_sequences > 0
        for group, members in self.groups.items():
            rows = running(group.phase, states)
            other = _in_prefill(group)
            parts: tuple[tuple[NodeGroup, I64], ...] = ((group, rows),)
            if other is not group:
                parts = ((other, rows[prefills[rows]]), (group, rows[~prefills[rows]]))
            yield from ((kind, members, part) for kind, part in parts if len(part))

    def kinds(self, *, prefill: bool) -> Iterator[tuple[NodeGroup, list[int]]]:
        """Groups of nodes that may run in steps with a prefill, or in those without."""
        for group, members in self.groups.items():
            if prefill or group.phase != "prefill":
                yield (_in_prefill(group) if prefill else group), members

    def symbols(self, states: BatchStates) -> dict[str, I64]:
        """Values of all sizes that are one number a step, shape (n,)."""
        tokens = self.run_tokens(states)
        return {
            TOKENS: tokens,
            ALL_TOKENS: states.all_tokens(self.graph.plan.attention_dp, tokens),
            LOGIT_ROWS: states.logit_rows,
            PREFILL_KV_TOKENS: states.prefill_kv_tokens,
            PREFILL_TOKENS: states.prefill_tokens,
            PREFILL_SEQUENCES: states.prefill_sequences,
            PREFILL_LONGEST: states.prefill_longest,
            DECODE_TOKENS: states.decode_sequences,
            DECODE_LONGEST: states.decode_longest,
        }

    def symbols_of(self, members: Sequence[int]) -> tuple[str, ...]:
        """The symbols that the sizes of some nodes are made of."""
        found: dict[str, None] = {}
        for index in members:
            for _, dim in self.nodes[index].op.dims:
                name = dim.symbol if isinstance(dim, Affine) else dim
                if isinstance(name, str):
                    found[name] = None
        return tuple(found)

    def sized(
        self,
        group: NodeGroup,
        members: Sequence[int],
        symbols: Mapping[str, I64],
        count: int,
        device: Device,
    ) -> tuple[OpBatch | None, Times]:
        """Times of one group of nodes for ``count`` values of the symbols that their sizes are made
        of; rows of the first member first. The batch is None for collectives.
        """
        ops = [self.nodes[index].op for index in members]
        if any(isinstance(dim, tuple) for _, dim in ops[0].dims):  # lengths that a program states
            batch = OpBatch.of([op for op in ops for _ in range(count)])
        else:
            sizes: dict[str, Any] = dict(columns(ops, symbols, count))
            one = len(ops) == count == 1 and group.family not in COLLECTIVES
            if one:
                sizes = {name: int(values[0]) for name, values in sizes.items()}
            batch = OpBatch(group.family, group.variant, sizes, numbers=one)
        if group.family in COLLECTIVES:
            from silicast.communication.collective import collective_batch_times

            links = topology(self.machine, ops[0], crosses=group.crosses)
            known = self.machine.evidence
            return None, collective_batch_times(
                batch, links, learned=known.learned, measured=known.collectives
            )
        return batch, self._timed(batch, device)

    def lengthy(self, members: Sequence[int], states: BatchStates, rows: I64) -> OpBatch | None:
        """Nodes whose sizes are the lengths of sequences as one batch; None of other nodes."""
        ops: Sequence[Op] = [self.nodes[index].op for index in members]
        lengths = [dim for _, dim in ops[0].dims]
        if PREFILL_KV in lengths:
            new, total, offsets = states.prefill_q, states.prefill_kv, states.prefill_offsets
            ops, new, total, offsets = _cut(ops, new, total, offsets)
            return ragged(ops, offsets, rows, {"q_len": new, "kv_len": total})
        if DECODE_KV in lengths:
            total, offsets = states.decode_kv + 1, states.decode_offsets
            ops, _, total, offsets = _cut(ops, np.ones_like(total), total, offsets)
            return ragged(ops, offsets, rows, {"kv_len": total - 1})
        if CROSS_KV in lengths:
            assert states.cross_kv is not None
            seen = states.cross_kv - 1  # of all that it sees, decoding counts one as new
            return ragged(ops, states.decode_offsets, rows, {"kv_len": seen})
        return None

    def _timed(self, batch: OpBatch, device: Device) -> KernelTimes:
        implementation = self._model(batch.family, device)
        boosted = self.machine.uncapped_device
        known = self.machine.evidence
        times = in_whole_models(kernel_times(implementation, batch, boosted, known), known)
        if device.clocks.boost_hz == boosted.clocks.boost_hz:
            return times
        return _slowed(times, implementation.times(batch, device))

    def _model(self, family: str, device: Device) -> Implementation:
        found = implementation_for(family, device.execution_model)
        if found is None:
            name = self.graph.name
            raise SilicastError(
                f"no model of {family} on {device.execution_model} devices such as {device.name}",
                kind="not_yet",
                field="device",
                hint=f"{name} needs it" if name else "",
            )
        return found


def _in_prefill(group: NodeGroup) -> NodeGroup:
    """The group in a step with a prefill: there dispatched experts have a kernel of their own."""
    if group.family != "moe":
        return group
    from silicast.kernels.moe_recipes import DISPATCHED, DISPATCHED_PREFILL

    if group.variant.kernel != DISPATCHED:
        return group
    return replace(group, variant=replace(group.variant, kernel=DISPATCHED_PREFILL))


def _distinct(
    names: Sequence[str], symbols: Mapping[str, I64], rows: I64
) -> tuple[dict[str, I64], I64]:
    """Values of some symbols, each set of them once, and which set each of ``rows`` has."""
    if not names:
        return {}, np.zeros(len(rows), dtype=np.int64)
    values = np.stack([symbols[name][rows] for name in names])
    if len(rows) == 1:
        return dict(zip(names, values, strict=True)), np.zeros(1, dtype=np.int64)
    if (values == values[:, :1]).all():
        return dict(zip(names, values[:, :1], strict=True)), np.zeros(len(rows), dtype=np.int64)
    key = np.zeros(len(rows), dtype=np.int64)
    for row in values:
        known, number = np.unique(row, return_inverse=True)
        key = key * len(known) + number
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return dict(zip(names, values[:, first], strict=True)), place


def analytic_s(times: KernelTimes) -> F64:
    """What the analytic model alone gives, shape (n,)."""
    return times.analysis.time_s if times.analytic_s is None else times.analytic_s


def _slowed(times: KernelTimes, slow: KernelTimes) -> KernelTimes:
    """``times`` at the clock of ``slow``, which the analytic model alone made."""
    ratio = slow.analysis.time_s / analytic_s(times)
    estimate = np.maximum(times.estimate_s * ratio, slow.bound_s)
    return replace(
        times,
        estimate_s=estimate,
        p05_s=np.maximum(times.p05_s * ratio, slow.bound_s),
        p95_s=np.maximum(times.p95_s * ratio, estimate),
        bound_s=slow.bound_s,
        analysis=slow.analysis,
    )


def _cut(
    ops: Sequence[Op], new: I64, total: I64, offsets: I64
) -> tuple[Sequence[Op], I64, I64, I64]:
    """Sequences as attention sees them: chunked attention is full attention within each chunk."""
    if not ops[0].variant.flag("chunked"):
        return ops, new, total, offsets
    chunk = ops[0].dim("window")
    assert isinstance(chunk, int)
    whole = [
        replace(op, dims=tuple((n, 0 if n == "window" else v) for n, v in op.dims)) for op in ops
    ]
    return whole, *in_chunks(new, total, offsets, chunk)
