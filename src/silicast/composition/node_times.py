"""Times of all placed nodes for many batch states, one vectorised call a kind of node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.communication.collective import CollectiveTimes, collective_batch_times
from silicast.composition.as_run import COLLECTIVES
from silicast.composition.machine import Machine
from silicast.composition.node_rows import columns, in_chunks, ragged, running
from silicast.composition.pipes import Resources
from silicast.composition.placed import Placed, topology
from silicast.composition.states import BatchStates
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.core.prediction import TIERS, Part
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes, implementation_for
from silicast.kernels.moe_recipes import DISPATCHED, DISPATCHED_PREFILL
from silicast.learning.tiers import in_whole_models, kernel_times
from silicast.workload.op import Dim, Op, OpBatch, Variant
from silicast.workload.symbols import (
    ALL_TOKENS,
    CROSS_KV,
    DECODE_KV,
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


@final
@dataclass(frozen=True, slots=True)
class Kind:
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
class NodeTimes:
    """Times of all placed nodes for n states; arrays (nodes, n), seconds, one execution each.

    Attributes:
        bound_by: what sets each node's bound, names of shape (nodes, n).
        shared: per node, loadings on shared error factors.
        tensor_flops, dram_bytes: demand of each node, for the power state.
        tiers: of each node, as a place in ``core.prediction.TIERS``.
        ceiling_s: what the quick ones of measured kernels reached; 0 = not known or not asked.
        fill: share of the device's cores that each keeps busy.
        resources: what each node needs of each resource; None = not asked.
        hidden_s: of each node, what runs under others; not part of ``time_s``. None = nothing.
    """

    time_s: F64
    bound_s: F64
    independent: F64
    bound_by: NDArray[np.str_]
    shared: tuple[Mapping[str, float], ...]
    tensor_flops: F64
    dram_bytes: F64
    tiers: I64
    ceiling_s: F64
    fill: F64
    resources: Resources | None = None
    hidden_s: F64 | None = None

    def pipes(self, index: int, weights: F64, runs: float, exposed_ps: int) -> tuple[Part, ...]:
        """What node ``index`` waits for over weighted states; () where it was not asked for."""
        if self.resources is None:
            return ()
        return self.resources.of(index, self.time_s[index], weights, runs, exposed_ps)


@final
class Timer:
    """Times the nodes of a graph.

    Args:
        machine: what they run on.
        placed: the nodes.
        name: of what needs them, for messages.
    """

    def __init__(self, machine: Machine, placed: Sequence[Placed], name: str = "") -> None:
        self.machine = machine
        self.name = name
        self.placed = placed
        self.groups = self._group()

    def _group(self) -> dict[Kind, list[int]]:
        """Nodes that one vectorised call times: of one family, variant and set of dimensions, that
        run in the same steps; collectives also by their number of devices.
        """
        groups: dict[Kind, list[int]] = {}
        for index, placed in enumerate(self.placed):
            op = placed.op
            gpus = dict(op.dims).get("gpus", 0)
            names = tuple(name for name, _ in op.dims)
            looks = CROSS_KV in [dim for _, dim in op.dims]
            key = Kind(op.family, op.variant, names, gpus, phase_of(op), placed.crosses, looks)
            groups.setdefault(key, []).append(index)
        return groups

    def run_tokens(self, states: BatchStates) -> I64:
        """Tokens that a step runs, shape (n,): those of a decode step that replays a graph are
        padded to the next batch that was captured.
        """
        engine = self.machine.engine
        sizes = np.array(engine.launch.graph_batch_sizes, dtype=np.int64)
        tokens = states.tokens
        if not len(sizes):
            return tokens
        place = np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)
        padded = np.where(tokens <= sizes[-1], sizes[place], tokens)
        prefills = states.prefill_sequences > 0
        replays = np.where(prefills, engine.padded(prefill=True), engine.padded(prefill=False))
        found: I64 = np.where(replays, padded, tokens)
        return found

    def times(self, states: BatchStates, device: Device) -> NodeTimes:
        """Times of all nodes for all states."""
        shape = (len(self.placed), len(states))
        time_s, bound_s = np.zeros(shape), np.zeros(shape)
        independent, flops, dram = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        ceiling_s, fill = np.zeros(shape), np.ones(shape)
        tiers = np.full(shape, TIERS.index("analytic"))
        bound_by = np.full(shape, "", dtype="U16")
        resources = self._resources(shape, device)
        shared: list[Mapping[str, float]] = [{}] * len(self.placed)
        for key, members, rows in self.calls(states):
            result = self.evaluate(key, members, states, rows, device)
            grid = (len(members), len(rows))
            selected = np.ix_(np.array(members), rows)
            time_s[selected] = result.estimate_s.reshape(grid)
            bound_s[selected] = result.bound_s.reshape(grid)
            independent[selected] = result.independent_log_sd.reshape(grid)
            places = [TIERS.index(tier) for tier in result.tiers()]
            tiers[selected] = np.array(places).reshape(grid)
            if isinstance(result, KernelTimes):
                if result.ceiling_s is not None:
                    ceiling_s[selected] = result.ceiling_s.reshape(grid)
                demand = result.analysis.demand
                fill[selected] = np.minimum(demand.waves, 1.0).reshape(grid)
                for target, table, name in (
                    (flops, demand.pipe_work, "tensor"),
                    (dram, demand.level_bytes, "dram"),
                ):
                    if name in table:
                        target[selected] = table[name].reshape(grid)
            bound_by[selected] = np.array(result.bound_by()).reshape(grid)
            if resources is not None:
                needs = result.analysis if isinstance(result, KernelTimes) else result
                resources.put(members, rows, needs.resource_s, device, key.variant.dtype)
            for index in members:
                shared[index] = result.shared_log_sd
        return NodeTimes(
            time_s, bound_s, independent, bound_by, tuple(shared), flops, dram, tiers, ceiling_s,
            fill, resources,
        )  # fmt: skip

    def _resources(self, shape: tuple[int, int], device: Device) -> Resources | None:
        """An empty table of resources, where the full tree of parts is asked for."""
        if not self.machine.evidence.ceilings:
            return None
        return Resources(*shape, device.clocks.max_hz / device.clocks.boost_hz)

    def calls(self, states: BatchStates) -> Iterator[tuple[Kind, list[int], I64]]:
        """Kinds of nodes, their members and the states in which they run, none of them empty.

        Experts of dispatched tokens have a kernel for prefill and one for decode.
        """
        prefills = states.prefill_sequences > 0
        for key, members in self.groups.items():
            rows = running(key.phase, states)
            parts: tuple[tuple[Kind, I64], ...] = ((key, rows),)
            if key.variant.kernel == DISPATCHED:
                prefill = replace(key, variant=replace(key.variant, kernel=DISPATCHED_PREFILL))
                parts = ((prefill, rows[prefills[rows]]), (key, rows[~prefills[rows]]))
            yield from ((kind, members, part) for kind, part in parts if len(part))

    def symbols(self, states: BatchStates, rows: I64) -> dict[str, I64]:
        """Values of all sizes that are one number a step, for ``rows`` of the states."""
        tokens = self.run_tokens(states)
        return {
            TOKENS: tokens[rows],
            ALL_TOKENS: states.all_tokens(self.machine.plan.attention_dp, tokens)[rows],
            LOGIT_ROWS: states.logit_rows[rows],
            PREFILL_KV_TOKENS: states.prefill_kv_tokens[rows],
            PREFILL_TOKENS: states.prefill_tokens[rows],
            PREFILL_SEQUENCES: states.prefill_sequences[rows],
            PREFILL_LONGEST: states.prefill_longest[rows],
            DECODE_TOKENS: states.decode_sequences[rows],
        }

    def sized(
        self,
        key: Kind,
        members: Sequence[int],
        symbols: Mapping[str, I64],
        count: int,
        device: Device,
    ) -> KernelTimes | CollectiveTimes:
        """Times of one kind of nodes for ``count`` values of the symbols that their sizes are made
        of; rows of the first member first.
        """
        ops = [self.placed[index].op for index in members]
        if any(isinstance(dim, tuple) for _, dim in ops[0].dims):  # lengths that a program states
            batch = OpBatch.of([op for op in ops for _ in range(count)])
        else:
            batch = OpBatch(key.family, key.variant, columns(ops, symbols, count))
        if key.family in COLLECTIVES:
            links = topology(self.machine, ops[0], crosses=key.crosses)
            known = self.machine.evidence
            return collective_batch_times(
                batch, links, learned=known.learned, measured=known.collectives
            )
        return self._timed(batch, device)

    def evaluate(
        self,
        key: Kind,
        members: Sequence[int],
        states: BatchStates,
        rows: I64,
        device: Device,
    ) -> KernelTimes | CollectiveTimes:
        """Times of one kind of nodes for ``rows`` of the states, the first member's first."""
        batch = self.lengthy(members, states, rows)
        if batch is None:
            return self.sized(key, members, self.symbols(states, rows), len(rows), device)
        return self._timed(batch, device)

    def lengthy(self, members: Sequence[int], states: BatchStates, rows: I64) -> OpBatch | None:
        """Nodes whose sizes are the lengths of sequences as one batch; None of other nodes."""
        ops: Sequence[Op] = [self.placed[index].op for index in members]
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

    def slowed(self, batch: OpBatch, device: Device, boost: F64) -> KernelTimes:
        """Times at a lower clock than boost, of nodes whose times at boost are known.

        Args:
            boost: at the boost clock, shape (2, n): estimate, and what the analytic model says.
        """
        implementation = self._model(batch.family, device)
        slow = implementation.times(batch, device)
        estimate = np.maximum(boost[0] * (slow.analysis.time_s / boost[1]), slow.bound_s)
        return replace(slow, estimate_s=estimate)

    def _timed(self, batch: OpBatch, device: Device) -> KernelTimes:
        implementation = self._model(batch.family, device)
        boosted = self.machine.uncapped_device
        known = self.machine.evidence
        times = in_whole_models(kernel_times(implementation, batch, boosted, known), known)
        if device.clocks.boost_hz == boosted.clocks.boost_hz:
            return times
        return _at_clock(times, implementation, batch, device)

    def _model(self, family: str, device: Device) -> Implementation:
        found = implementation_for(family, device.execution_model)
        if found is None:
            raise SilicastError(
                f"no model of {family} on {device.execution_model} devices such as {device.name}",
                kind="not_yet",
                field="device",
                hint=f"{self.name} needs it" if self.name else "",
            )
        return found


def analytic_s(times: KernelTimes) -> F64:
    """What the analytic model alone says, shape (n,)."""
    return times.analysis.time_s if times.analytic_s is None else times.analytic_s


def _at_clock(
    times: KernelTimes, model: Implementation, batch: OpBatch, device: Device
) -> KernelTimes:
    """Times at another clock than boost: what was learned or measured holds at boost, and the
    analytic model says what the clock changes.
    """
    slow = model.times(batch, device)
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
