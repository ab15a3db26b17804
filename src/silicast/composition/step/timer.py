"""Prices the nodes of a stage graph for many batch states, one vectorised call a kind of node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from msgspec import structs

from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.engines.fusion import smallest_kernel_s
from silicast.composition.engines.host_copies import OF_HOST, host_times
from silicast.composition.engines.host_weights import ON_HOST, held_times
from silicast.composition.prices.kept_times import analysis_of, exchanges_of, times_of
from silicast.composition.step.machine import Machine
from silicast.composition.step.node_times import NodeTimes, columns, in_chunks, ragged, running
from silicast.composition.step.op_state_grid import NodeGroup, OpStateGrid
from silicast.composition.step.stage_graph import StageGraph, StageNode, link_shares, topology
from silicast.composition.step.states import BatchStates
from silicast.core import xp
from silicast.core.errors import unmodelled
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Implementation, KernelTimes, shared_of
from silicast.kernels.physics.power import top_hz
from silicast.kernels.registry import implementation_for
from silicast.kernels.row_devices import RowDevices
from silicast.learning.tiers import in_whole_models
from silicast.workload.graphs.nodes import (
    ALL_TOKENS,
    CROSS_KV,
    DECODE_KV,
    DECODE_LONGEST,
    DECODE_TOKENS,
    LOGIT_ROWS,
    PREFILL_KV,
    PREFILL_KV_TOKENS,
    PREFILL_LONGEST,
    PREFILL_LONGEST_KV,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    TOKENS,
    phase_of,
)
from silicast.workload.graphs.op import Affine, Op, OpBatch

TRANSFERS = COLLECTIVES | OF_HOST


def is_clocked(group: NodeGroup) -> bool:
    """Whether kernels of the device's cores alone run: no links, nothing of the host."""
    return group.family not in TRANSFERS and not group.variant.flag(ON_HOST)


@final
class Timer:
    """Prices the nodes of a stage graph.

    Args:
        machine: what they run on.
        graph: the nodes.
        captured: numbers of tokens to which steps that replay a graph are padded.
    """

    def __init__(self, machine: Machine, graph: StageGraph, captured: tuple[int, ...] = ()) -> None:
        self.machine = machine
        self.graph = graph
        self.nodes: tuple[StageNode, ...] = graph.nodes
        self.captured: I64 = np.array(captured, dtype=np.int64)
        self.groups: dict[NodeGroup, list[int]] = self._group()
        self._known: dict[tuple[int, ...], tuple[list[int], I64]] = {}

    def _group(self) -> dict[NodeGroup, list[int]]:
        """Nodes that one vectorised call times: of one family, variant and set of dimensions (those
        with a list of lengths apart), that run in the same steps; collectives also by their number
        of devices.
        """
        groups: dict[NodeGroup, list[int]] = {}
        for index, node in enumerate(self.nodes):
            op = node.op
            sizes = dict(op.dims)
            members = sizes.get("gpus", 0), sizes.get("stride", 1)
            names = tuple((name, isinstance(dim, tuple)) for name, dim in op.dims)
            looks = CROSS_KV in sizes.values()
            phase = phase_of(op)
            key = NodeGroup(op.family, op.variant, names, members, phase, node.crosses, looks)
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
        position = np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)
        padded = np.where(tokens <= sizes[-1], sizes[position], tokens)
        replays = np.where(
            states.prefill_sequences > 0, launch.prefill != "stream", launch.decode != "stream"
        )
        run_tokens: I64 = np.where(replays, padded, tokens)
        return run_tokens

    def times(self, states: BatchStates, device: Device) -> NodeTimes:
        """Times of all nodes for all states."""
        node_times = NodeTimes(self.graph, len(states), device)
        symbols = self.symbols(states)
        for group, members, rows in self.calls(states):
            node_times.put(self.call(group, members, rows, states, symbols, device))
        self.fuse(node_times, self.run_tokens(states))
        return node_times

    def call(
        self,
        group: NodeGroup,
        members: Sequence[int],
        rows: I64,
        states: BatchStates,
        symbols: Mapping[str, I64],
        device: Device,
    ) -> OpStateGrid:
        """One group of nodes in the states ``rows``; ``symbols`` as of :meth:`symbols`."""
        different, ops = self._different(members)
        batch = self.lengthy(different, states, rows)
        if batch is not None:
            return self._priced(group, members, ops, rows, len(rows), batch, device)
        used, position = _distinct(self.symbols_of(different), symbols, rows)
        count = len(next(iter(used.values()))) if used else 1
        call = self.sized(group, members, used, count, device)
        return structs.replace(call, rows=rows, size_index=position)

    def _different(self, members: Sequence[int]) -> tuple[list[int], I64]:
        """The first of all nodes with the same op, and which of them each member is like."""
        key = tuple(members)
        if key not in self._known:
            firsts: dict[Op, int] = {}
            for index in members:
                firsts.setdefault(self.nodes[index].op, index)
            number = {op: position for position, op in enumerate(firsts)}
            ops = np.array([number[self.nodes[index].op] for index in members], dtype=np.int64)
            self._known[key] = list(firsts.values()), ops
        return self._known[key]

    def at_clock(
        self, boosted: NodeTimes, states: BatchStates, device: Device, wanted: I64
    ) -> NodeTimes:
        """The same times at another clock than boost: what was learned or measured holds at boost,
        and the analytic model gives what the clock changes.

        Args:
            boosted: at the boost clock.
            wanted: states for which it matters; times of others are not to be used.
        """
        node_times = NodeTimes(self.graph, len(states), device)
        needed = np.zeros(len(states), dtype=bool)
        needed[wanted] = True
        for call, index in boosted.grids_of(wanted):
            if not needed[call.rows].any():
                node_times.note_factors(call)
                continue
            node_times.put(self.slowed(call, device, index))
        self.fuse(node_times, self.run_tokens(states))
        return node_times

    def at_clocks(
        self, boosted: NodeTimes, states: BatchStates, rows: I64, clocks: RowDevices
    ) -> NodeTimes:
        """:meth:`at_clock` of some states with a clock each, the same bits.

        Args:
            rows: states, in ascending order; ``clocks``: of them.
        """
        node_times = NodeTimes(self.graph, len(rows), boosted.device, clocks)
        for call in boosted.calls:
            slow = call.at_clocks(rows, partial(self._slowed_at, call, clocks))
            if slow is None:
                node_times.note_factors(call)
            else:
                node_times.put(slow)
        self.fuse(node_times, self.run_tokens(states.chosen(rows)))
        return node_times

    def _slowed_at(
        self, boosted: OpStateGrid, clocks: RowDevices, call: OpStateGrid, index: I64
    ) -> KernelTimes:
        """Times of a call whose states have a clock each.

        Args:
            boosted: at the boost clock; ``index``: places in it.
        """
        from silicast.composition.prices.kept_times import as_arrays, beside_analysis

        before = boosted.times
        assert isinstance(before, KernelTimes)
        assert boosted.batch is not None
        assert call.batch is not None
        call_clocks = call.clocks_of(clocks)
        model = self.model_of(call.batch.family, clocks.devices[0])
        slow = model.analysed_at(call.batch, call_clocks)
        slow_s = self.usual_s(model, call.batch, slow, clocks.devices[0])
        before_s = np.atleast_1d(self.before_s(model, boosted.batch, before))[index]
        most = np.array([self.most(device) for device in call_clocks.devices])[call_clocks.row]
        return _slowed(beside_analysis(as_arrays(before), index), slow, slow_s / before_s, most)

    def slowed(self, call: OpStateGrid, device: Device, index: I64 | None = None) -> OpStateGrid:
        """A call at the boost clock, at the clock of ``device``; what links and
        hosts do does not change.

        Args:
            index: places in the call's times of what it asks; None = all of them.
        """
        from silicast.composition.prices.kept_times import rows_of

        times = call.times
        if index is not None:
            times = rows_of(times, index)
        if call.batch is None or not isinstance(times, KernelTimes):
            return structs.replace(call, times=times)
        return structs.replace(call, times=self._at_clock(call.batch, times, device))

    def _at_clock(self, batch: OpBatch, times: KernelTimes, device: Device) -> KernelTimes:
        """Times at the boost clock, at the clock of ``device``."""
        model = self.model_of(batch.family, device)
        slow = analysis_of(model, batch, device)
        ratio = self.usual_s(model, batch, slow, device) / self.before_s(model, batch, times)
        return _slowed(times, slow, ratio, self.most(device))

    def before_s(self, model: Implementation, batch: OpBatch, times: KernelTimes) -> F64:
        """What the analytic model gives at the boost clock, under the device's libraries; (n,)."""
        if times.analytic_s is not None:
            return times.analytic_s
        return self.usual_s(model, batch, times.analysis, self.machine.boosted_device)

    def usual_s(
        self, model: Implementation, batch: OpBatch, analysis: Analysis, device: Device
    ) -> F64:
        """What kernels take by their analysis at the clock of ``device``, as
        :meth:`.Implementation.usual_s`.
        """
        boosted = self.machine.boosted_device
        shared, clock_hz = shared_of(model, batch.variant, boosted), top_hz(device)
        at_boost = clock_hz == top_hz(boosted)
        clocked = shared.device if at_boost else shared.device.at_clock(clock_hz)
        return model.usual_s(shared, clocked, batch, analysis)

    def fuse(self, node_times: NodeTimes, tokens: I64) -> None:
        """Takes off the launches that fusion saves."""
        if not self._saving:
            return
        if node_times.clocks is not None:
            smallest_s: F64 | float = node_times.clocks.beside(smallest_kernel_s)
        else:
            smallest_s = smallest_kernel_s(node_times.device)
        self.fuse_rows(node_times.time_s, node_times.bound_s, tokens, smallest_s)

    @cached_property
    def _saving(self) -> list[int]:
        return [index for index, node in enumerate(self.nodes) if node.saves]

    def fuse_rows(self, time_s: F64, bound_s: F64, tokens: I64, smallest_s: F64 | float) -> None:
        """:meth:`fuse` of times and bounds of all nodes, shape (nodes, n)."""
        for index in self._saving:
            row = self.without_saved(index, time_s[index], bound_s[index], tokens, smallest_s)
            time_s[index] = row

    def without_saved(
        self, index: int, time_s: F64, bound_s: F64, tokens: I64, smallest_s: F64 | float
    ) -> F64:
        """Times of one node, shape (n,), without the launches that fusion saves; never below what
        it must move and compute.

        Args:
            smallest_s: what a launch takes.
        """
        for most in self.nodes[index].saves:
            less = time_s - smallest_s * (tokens <= most)
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
            PREFILL_LONGEST_KV: states.prefill_longest_kv,
            DECODE_TOKENS: states.decode_sequences,
            DECODE_LONGEST: states.decode_longest,
        }

    def symbols_of_one(
        self, prefill: Sequence[tuple[int, int]], decoding: int, longest: int, elsewhere: int
    ) -> dict[str, int]:
        """:meth:`symbols` of one state, as numbers.

        Args:
            prefill: (new tokens, past plus new tokens) of each sequence in prefill.
            decoding: sequences in decode; ``longest``: tokens of the longest, with the new one.
            elsewhere: new tokens of the other groups of attention_dp; -1 = as many each.
        """
        new = total = most = deepest = 0
        for item, seen in prefill:
            new, total, most = new + item, total + seen, max(most, item)
            deepest = max(deepest, seen)
        tokens = new + decoding
        launch = self.machine.engine.launch
        replays = (launch.prefill if prefill else launch.decode) != "stream"
        if len(self.captured) and replays and tokens <= self.captured[-1]:
            tokens = int(self.captured[self.captured.searchsorted(tokens)])
        groups = self.graph.plan.attention_dp
        return {
            TOKENS: tokens,
            ALL_TOKENS: groups * tokens if elsewhere < 0 else tokens + elsewhere,
            LOGIT_ROWS: len(prefill) + decoding,
            PREFILL_KV_TOKENS: total,
            PREFILL_TOKENS: new,
            PREFILL_SEQUENCES: len(prefill),
            PREFILL_LONGEST: most,
            PREFILL_LONGEST_KV: deepest,
            DECODE_TOKENS: decoding,
            DECODE_LONGEST: longest,
        }

    def symbols_of(self, members: Sequence[int]) -> tuple[str, ...]:
        """The symbols that the sizes of some nodes are made of."""
        table: dict[str, None] = {}
        for index in members:
            for _, dim in self.nodes[index].op.dims:
                name = dim.symbol if isinstance(dim, Affine) else dim
                if isinstance(name, str):
                    table[name] = None
        return tuple(table)

    def sized(
        self,
        group: NodeGroup,
        members: Sequence[int],
        symbols: Mapping[str, I64],
        count: int,
        device: Device,
    ) -> OpStateGrid:
        """One group of nodes in ``count`` states, by the values of the symbols that their sizes are
        made of.
        """
        ops, positions = self.ops_of(members)
        rows, batch = np.arange(count), self.sizes_of(group, ops, symbols, count)
        if group.family in COLLECTIVES:
            from silicast.communication.collective import collective_batch_times

            gpus, stride = ops[0].dim("gpus"), dict(ops[0].dims).get("stride", 1)
            assert isinstance(gpus, int)
            assert isinstance(stride, int)
            links = topology(self.machine, gpus, crosses=group.crosses, stride=stride)
            evidence = self.machine.evidence
            kernel_times = exchanges_of(
                batch,
                links,
                evidence,
                lambda: collective_batch_times(
                    batch, links, learned=evidence.learned, measured=evidence.collectives
                ),
            )
            taken = link_shares(links)
            return OpStateGrid(
                group, members, positions, rows, rows, count, None, kernel_times, taken
            )
        if group.family in OF_HOST:
            moved = host_times(batch, self.machine)
            return OpStateGrid(
                group, members, positions, rows, rows, count, batch, moved, (0.0, 0.0)
            )
        return self._priced(group, members, positions, rows, count, batch, device)

    def ops_of(self, members: Sequence[int]) -> tuple[list[Op], I64]:
        """Different ops of some nodes, and which of them each node runs."""
        different, positions = self._different(members)
        return [self.nodes[index].op for index in different], positions

    def sizes_of(
        self, group: NodeGroup, ops: Sequence[Op], symbols: Mapping[str, I64], count: int
    ) -> OpBatch:
        """What :meth:`sized` evaluates: ops x states, of one of both numbers."""
        if any(isinstance(dim, tuple) for _, dim in ops[0].dims):  # lengths that a program states
            return OpBatch.from_ops([op for op in ops for _ in range(count)])
        sizes: dict[str, Any] = dict(columns(ops, symbols, count))
        is_lone = len(ops) == count == 1 and is_clocked(group)
        if is_lone:
            sizes = {name: int(values[0]) for name, values in sizes.items()}
        return OpBatch(group.family, group.variant, sizes, numbers=is_lone)

    def _priced(
        self,
        group: NodeGroup,
        members: Sequence[int],
        ops: I64,
        rows: I64,
        count: int,
        batch: OpBatch,
        device: Device,
    ) -> OpStateGrid:
        """A call whose states have a size each, ``rows``."""
        sizes = np.arange(len(rows))
        if group.variant.flag(ON_HOST):
            held = held_times(batch, self.machine, self._timed_on, device)
            return OpStateGrid(group, members, ops, rows, sizes, count, batch, held, (0.0, 0.0))
        times = self.timed(batch, device)
        return OpStateGrid(group, members, ops, rows, sizes, count, batch, times)

    def _timed_on(self, batch: OpBatch, device: Device) -> KernelTimes:
        """Times on another device than the machine's, or on that."""
        if device.execution_model == self.machine.device.execution_model:
            return self.timed(batch, device)
        evidence = self.machine.evidence
        return times_of(
            self.model_of(batch.family, device), batch, device.in_state("boost"), evidence
        )

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

    def timed(self, batch: OpBatch, device: Device) -> KernelTimes:
        """Times of kernels on the machine's device at the clock of ``device``."""
        implementation = self.model_of(batch.family, device)
        boosted = self.machine.boosted_device
        evidence = self.machine.evidence
        times = self.in_models(times_of(implementation, batch, boosted, evidence))
        if top_hz(device) == top_hz(boosted):
            return times
        return self._at_clock(batch, times, device)

    def in_models(self, times: KernelTimes) -> KernelTimes:
        """Times of kernels inside a model that the machine's engine runs."""
        times = in_whole_models(times, self.machine.evidence)
        return longer(times, self.longer_than_taken)

    @cached_property
    def longer_than_taken(self) -> float:
        """How many times as long as a library's own kernels the engine's take."""
        architecture = self.machine.boosted_device.architecture
        return self.machine.engine.taken_as.factor(architecture)

    def most(self, device: Device) -> float:
        """How many times as long work may take at a slower clock, that of ``device``."""
        return top_hz(self.machine.boosted_device) / top_hz(device)

    def model_of(self, family: str, device: Device) -> Implementation:
        """The model of a family on a device.

        Raises:
            SilicastError: there is none.
        """
        implementation = implementation_for(family, device.execution_model)
        if implementation is None:
            name = self.graph.name
            raise unmodelled(
                f"no model of {family} on {device.execution_model} devices such as {device.name}",
                "device",
                f"{name} needs it" if name else "",
            )
        return implementation


def _in_prefill(group: NodeGroup) -> NodeGroup:
    """The group in a step with a prefill: there dispatched experts have a kernel of their own."""
    if group.family != "moe":
        return group
    from silicast.kernels.experts.moe_recipes import DISPATCHED, DISPATCHED_PREFILL

    if group.variant.kernel != DISPATCHED:
        return group
    return structs.replace(group, variant=replace(group.variant, kernel=DISPATCHED_PREFILL))


FEW = 8
"""Rows up to which sets of values are told apart one by one."""


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
    if len(rows) <= FEW:  # numbers take less time than arrays
        members = list(zip(*values.tolist(), strict=True))
        sets = sorted(set(members))
        firsts = [members.index(devices) for devices in sets]
        positions: I64 = np.array([sets.index(devices) for devices in members])
        return dict(zip(names, values[:, firsts], strict=True)), positions
    key = np.zeros(len(rows), dtype=np.int64)
    for row in values:
        distinct, number = np.unique(row, return_inverse=True)
        key = key * len(distinct) + number
    _, first, position = np.unique(key, return_index=True, return_inverse=True)
    return dict(zip(names, values[:, first], strict=True)), position


def longer(times: KernelTimes, factor: float) -> KernelTimes:
    """``times`` of kernels of libraries that take ``factor`` times as long; a user's measurements
    hold what they take, so that rows have less of the factor the more a calibration weighs.
    """
    if factor == 1.0:
        return times
    left: Any = 1.0
    for weight in (times.calibrated, times.scaled):
        left = left if weight is None else np.minimum(left, 1.0 - weight)
    applied = exp_fixed(left * math.log(factor))
    estimate_s, p05_s, p95_s = (
        seconds * applied for seconds in (times.estimate_s, times.p05_s, times.p95_s)
    )
    return structs.replace(times, estimate_s=estimate_s, p05_s=p05_s, p95_s=p95_s)


def slowed_s(seconds: F64, bound_s: F64, ratio: F64, most: float | F64) -> F64:
    """What takes ``seconds`` at a slower clock, see :func:`_slowed`."""
    held: F64 = xp.maximum(seconds * xp.minimum(xp.maximum(ratio, 1.0), most), bound_s)
    return held


def _slowed(times: KernelTimes, slow: Analysis, ratio: F64, most: float | F64) -> KernelTimes:
    """``times`` at the clock of ``slow``, where the analytic model alone says ``ratio`` times as
    long; never shorter, nor more than ``most`` times.
    """
    ratio = np.minimum(np.maximum(ratio, 1.0), most)
    estimate = np.maximum(times.estimate_s * ratio, slow.bound_s)
    return structs.replace(
        times,
        estimate_s=estimate,
        p05_s=np.maximum(times.p05_s * ratio, slow.bound_s),
        p95_s=np.maximum(times.p95_s * ratio, estimate),
        bound_s=slow.bound_s,
        analysis=slow,
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
