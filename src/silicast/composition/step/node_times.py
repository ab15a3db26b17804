"""Times of the nodes of a stage graph in many batch states, and the evaluations behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from msgspec import Struct, structs

from silicast.composition.engines.host_copies import HOST_COPY
from silicast.composition.step.pipes import Resources
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.core.numerics import F64, I64
from silicast.core.prediction import TIERS
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.limits import Also, also_bound_by, bound_by
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import (
    above_static_at,
    above_static_j,
    cores_w,
    dynamic_w,
    most_above_static_w,
)
from silicast.kernels.physics.held_clock import beyond_own
from silicast.kernels.physics.power import drawn
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.nodes import Phase
from silicast.workload.graphs.op import Dim, Op, OpBatch, Variant, resolve

if TYPE_CHECKING:
    from silicast.communication.collective import CollectiveTimes
    from silicast.composition.step.concurrency import ResourceShares


def running(phase: Phase, states: BatchStates) -> I64:
    """Indices of the states in which ops of a phase run."""
    if phase == "prefill":
        return np.flatnonzero(states.prefill_sequences > 0)
    if phase == "decode":
        return np.flatnonzero(states.decode_sequences > 0)
    return np.arange(len(states))


def columns(ops: Sequence[Op], symbols: Mapping[str, I64], count: int) -> dict[str, I64]:
    """Dimension columns of ops x states, the states of the first op first."""
    columns: dict[str, I64] = {}
    for name, _ in ops[0].dims:
        table = np.empty((len(ops), count), dtype=np.int64)
        for row, op in zip(table, ops, strict=True):
            row[:] = resolve(op.dim(name), symbols)
        columns[name] = table.ravel()
    return columns


def ragged(ops: Sequence[Op], offsets: I64, rows: I64, lengths: Mapping[str, I64]) -> OpBatch:
    """Attention ops x states as one ragged batch."""
    counts = np.diff(offsets)[rows]
    repeat = len(ops)
    if repeat == 1 and len(rows) == 1:
        sizes = {n: v for n, v in ops[0].dims if n not in lengths and not isinstance(v, str)}
        if counts[0] == 1:  # one sequence is a number, which is quicker and has the same bits
            alone: dict[str, Any] = {"batch": 1, **sizes}
            for name, values in lengths.items():
                alone[name] = int(values[offsets[rows[0]]])
            return OpBatch(ops[0].family, ops[0].variant, alone, numbers=True)
        ends = np.array([0, counts[0]])
        one: dict[str, Any] = {**lengths, **sizes}
        return OpBatch(ops[0].family, ops[0].variant, one, ends, frozenset(lengths), numbers=True)
    all_offsets = np.concatenate(([0], np.cumsum(np.tile(counts, repeat))))
    dims: dict[str, I64] = {name: np.tile(values, repeat) for name, values in lengths.items()}
    for name, value in ops[0].dims:
        if name not in lengths and not isinstance(value, str):
            dims[name] = np.repeat(
                np.array([op.dim(name) for op in ops], dtype=np.int64), len(rows)
            )
    return OpBatch(ops[0].family, ops[0].variant, dims, all_offsets, frozenset(lengths))


def in_chunks(new: I64, total: I64, offsets: I64, chunk: int) -> tuple[I64, I64, I64]:
    """Sequences cut at multiples of ``chunk`` tokens: each piece sees only its own chunk.

    Args:
        new, total: new tokens, and past plus new tokens, of each sequence.
        offsets: which sequences belong to which state.
        chunk: tokens of one chunk.

    Returns:
        The same three for the pieces.

    >>> q, kv, offsets = in_chunks(np.array([6]), np.array([10]), np.array([0, 1]), 8)
    >>> q.tolist(), kv.tolist(), offsets.tolist()
    ([4, 2], [8, 2], [0, 2])
    """
    first = (total - new) // chunk
    pieces = -(-total // chunk) - first
    sequence = np.repeat(np.arange(len(total)), pieces)
    running = np.concatenate(([0], np.cumsum(pieces)))
    number = first[sequence] + np.arange(running[-1]) - running[sequence]
    start = np.maximum((total - new)[sequence], number * chunk)
    end = np.minimum(total[sequence], (number + 1) * chunk)
    return end - start, end - number * chunk, running[offsets]


FEW_COLUMNS = 256
"""Columns up to which running sums of all rows take less time than row by row."""


def rows_summed(table: F64) -> F64:
    """Sum over rows in their order, shape (n,): the same bits however many columns there are."""
    if not len(table):
        return np.zeros(table.shape[1])
    if table.shape[1] <= FEW_COLUMNS:
        last: F64 = np.cumsum(table, axis=0)[-1]
        return last
    total: F64 = table[0].copy()
    for row in table[1:]:
        total += row
    return total


_ONE: I64 = np.zeros(1, dtype=np.int64)
_NO_ROWS: I64 = np.zeros(0, dtype=np.int64)
EXCHANGES = frozenset(("dispatch", "combine"))
"""Kernels that move tokens between the ranks of their experts."""
Times: TypeAlias = "KernelTimes | CollectiveTimes"
_TABLES = 10
"""Arrays of numbers that :class:`NodeTimes` holds."""
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
    names: tuple[tuple[str, bool], ...]
    members: tuple[Dim, Dim]
    phase: Phase
    crosses: bool
    on_encoder: bool = False


@final
class OpStateGrid(Struct, frozen=True, dict=True):
    """One evaluation: different ops x states, the states of the first op first.

    Attributes:
        group: what the nodes share.
        members: places of the nodes; ``ops``: which of the evaluated ops each runs, shape
            (members,), because layers that look alike run the same ones.
        rows: states in which they run.
        size_index: which of the evaluated sizes each state has, shape (rows,); sizes that several
            states share are evaluated once.
        count: evaluated sizes of each op.
        batch: what was evaluated; None = a collective.
        times: of it.
        links: of a collective, the shares of the link in a node and of the network that it takes.
    """

    group: NodeGroup
    members: Sequence[int]
    ops: I64
    rows: I64
    size_index: I64
    count: int
    batch: OpBatch | None
    times: Times
    links: tuple[float, float] = (1.0, 0.0)

    @property
    def _different(self) -> int:
        """Evaluated ops."""
        number: int = max(self.ops.tolist()) + 1
        return number

    def spread(self, values: F64) -> F64:
        """One value an evaluated size, over the states, shape (members, rows)."""
        result: F64 = np.reshape(values, (-1, self.count))[self._places]
        return result

    @cached_property
    def _places(self) -> tuple[I64, I64]:
        return self.ops[:, None], self.size_index[None, :]

    def of_states(self, states: I64) -> OpStateGrid | None:
        """The same call of some states, in ascending order, as if it had been made for them alone;
        None where it has none of them.
        """
        result = self.grid_of(states)
        if result is None:
            return None
        call, index = result
        if index is None:
            return call
        from silicast.composition.prices.kept_times import rows_of

        return structs.replace(call, times=rows_of(self.times, index))

    def grid_of(self, states: I64) -> tuple[OpStateGrid, I64 | None] | None:
        """What :meth:`of_states` asks, with the times of all states, and its places in them; None =
        all of them.
        """
        near = np.minimum(np.searchsorted(self.rows, states), len(self.rows) - 1)
        rows = np.flatnonzero(self.rows[near] == states)
        if not len(rows):
            return None
        used, position = self.size_index[near[rows]], _ONE
        if len(rows) > 1:
            used, position = np.unique(used, return_inverse=True)
        different = self._different
        if len(used) == self.count:
            return structs.replace(self, rows=rows, size_index=position), None
        index = (np.arange(different)[:, None] * self.count + used).ravel()
        batch = None if self.batch is None else self.batch.rows(index)
        cut = structs.replace(self, rows=rows, size_index=position, count=len(used), batch=batch)
        return cut, index

    def spread_all(self, values: Sequence[Any]) -> F64:
        """:meth:`spread` of several, shape (values, members, rows)."""
        table = np.empty((len(values), self._different * self.count))
        for row, value in zip(table, values, strict=True):
            row[:] = value
        by_size = table.reshape(len(table), -1, self.count)
        result: F64 = by_size.take(self.ops, axis=1).take(self.size_index, axis=2)
        return result

    def joules(self, device: Device) -> tuple[Any, Any, Any]:
        """What one execution takes as of :class:`~.composition.power.clock.Work`, one value an
        evaluated size each; 0 where no power limit is known.

        Args:
            device: at the clock of the times.
        """
        if device.power_cap_w is None or device.execution_model != "simt":
            return 0.0, 0.0, 0.0
        assert isinstance(self.times, KernelTimes)
        seconds, analytic_s = self.times.estimate_s, self.times.analytic_s
        known_s = seconds if analytic_s is None else analytic_s
        draw = drawn(self.times.analysis, self.group.variant.dtype, device, known_s)
        dynamic_j: F64 | float = 0.0
        if self.batch is not None and beyond_own(device):
            dynamic_j = seconds * dynamic_w(self.times.analysis, self.batch, device, seconds)
        return draw.core_w * seconds, draw.memory_w * seconds, dynamic_j

    def above_static_j(self, device: Device, clocks: RowDevices | None) -> F64 | None:
        """Energy of one execution beyond what the board draws while it waits, shape
        (members, rows); None where it is not modelled.

        Args:
            device: at the clock of the times; clocks: those of the states, if they have their own.
        """
        if not isinstance(self.times, KernelTimes) or self.batch is None:
            return None
        if clocks is None:
            result = above_static_j(self.times, self.batch, device)
        else:
            result = above_static_at(self.times, self.batch, self.clocks_of(clocks))
        return None if result is None else self.spread(result)

    def clocks_of(self, clocks: RowDevices) -> RowDevices:
        """The clock of each evaluated size, by those of the states, which have a size each."""
        return clocks.rows(np.tile(self.rows, self._different))

    def at_clocks(
        self, states: I64, slowed: Callable[[OpStateGrid, I64], KernelTimes]
    ) -> OpStateGrid | None:
        """The same call of some states, in ascending order, with a size and a clock each; None
        where it has none of them.

        Args:
            slowed: times of such a call, from the places in those of this one.
        """
        near = np.minimum(np.searchsorted(self.rows, states), len(self.rows) - 1)
        rows = np.flatnonzero(self.rows[near] == states)
        if not len(rows):
            return None
        if self.batch is None or not isinstance(self.times, KernelTimes):
            return self.of_states(states)
        different = np.arange(self._different)[:, None]
        index = (different * self.count + self.size_index[near[rows]]).ravel()
        call = structs.replace(
            self,
            rows=rows,
            size_index=np.arange(len(rows)),
            count=len(rows),
            batch=self.batch.arrays().rows(index),
        )
        return structs.replace(call, times=slowed(call, index))

    @cached_property
    def limits(self) -> list[tuple[str, Also]]:
        """What sets the bound of each evaluated size, or "power", and what else binds it."""
        if not isinstance(self.times, KernelTimes):
            return [(name, ()) for name in self.times.bound_by()]
        analysis, rows = self.times.analysis, self._different * self.count
        names = bound_by(analysis.resource_s, rows)
        also = also_bound_by(analysis.resource_s, analysis.time_s, rows)
        return list(zip(names, also, strict=True))


@final
class NodeTimes:
    """Times of all nodes for n states; arrays (nodes, n), seconds, one execution each.

    Attributes:
        time_s: where a node runs alone; bound_s: its physical limit.
        independent: log sd of each node's own error; shared: per node, loadings on shared factors.
        core_j, memory_j, dynamic_j: energy of each node at the device's clock, for the power state
            (:class:`~.composition.power.clock.Work`).
        dram_bytes: to and from main memory.
        tiers: of each node, as a place in ``core.prediction.TIERS``.
        shares: of cores, memory, links and network that each node takes alone.
        calls: the evaluations behind them.
        clocks: of states that have clocks of their own, for which nobody asks what the power state
            is: they hold it.
    """

    def __init__(
        self, graph: StageGraph, count: int, device: Device, clocks: RowDevices | None = None
    ) -> None:
        shape = (len(graph.nodes), count)
        self.device = device
        self.clocks = clocks
        self._every: F64 = np.zeros((_TABLES, *shape))
        self.tiers = np.full(shape, _ANALYTIC)
        self.shared: list[Mapping[str, float]] = [{}] * shape[0]
        self._calls: list[OpStateGrid] = []
        self._whole: tuple[NodeTimes, I64] | None = None
        self._kernels_j: F64 | None = None
        self._fill[:] = 1.0

    @cached_property
    def time_s(self) -> F64:
        return self._table(0)

    @cached_property
    def bound_s(self) -> F64:
        return self._table(1)

    @cached_property
    def independent(self) -> F64:
        return self._table(2)

    @cached_property
    def core_j(self) -> F64:
        return self._table(3)

    @cached_property
    def memory_j(self) -> F64:
        return self._table(4)

    @cached_property
    def dynamic_j(self) -> F64:
        return self._table(5)

    @cached_property
    def dram_bytes(self) -> F64:
        return self._table(6)

    @cached_property
    def _fill(self) -> F64:
        return self._table(7)

    @cached_property
    def _links(self) -> F64:
        return self._table(8)

    @cached_property
    def _network(self) -> F64:
        return self._table(9)

    def _table(self, number: int) -> F64:
        """One of the arrays; of some states of others, cut when somebody asks."""
        if self._whole is None:
            table: F64 = self._every[number]
            return table
        whole, states = self._whole
        # not by an index: that may turn the layout, and with it sums' last bits
        return np.take(whole._table(number), states, axis=1)  # noqa: SLF001 - its own class

    @cached_property
    def tiers(self) -> I64:
        assert self._whole is not None
        whole, states = self._whole
        return np.take(whole.tiers, states, axis=1)

    @cached_property
    def within_measured(self) -> bool:
        """Whether no node of these states, or of those that they are some of, has a size beyond all
        that were measured.
        """
        if self._whole is not None:
            return self._whole[0].within_measured
        return not self.octaves_outside.any()

    def of_states(self, states: I64, device: Device | None = None) -> NodeTimes:
        """Some states, in ascending order, as if they had been evaluated alone.

        Args:
            device: at the clock of these, where states have clocks of their own.
        """
        node_times = NodeTimes.__new__(NodeTimes)
        node_times.device, node_times.shared = device or self.device, self.shared
        node_times.clocks = None
        node_times._calls = []  # noqa: SLF001 - its own class
        whole, rows = self._whole or (self, None)
        node_times._whole = whole, states if rows is None else rows[states]  # noqa: SLF001
        node_times._kernels_j = None  # noqa: SLF001
        return node_times

    def grids_of(self, wanted: I64) -> Iterator[tuple[OpStateGrid, I64 | None]]:
        """The calls as :meth:`OpStateGrid.grid_of` gives them, in the states ``wanted``; those
        that only others have, with all of theirs or none.
        """
        if self._whole is None:
            yield from ((call, None) for call in self._calls)
            return
        whole, states = self._whole
        for call in whole.calls:
            if (result := call.grid_of(states[wanted])) is not None:
                grid, index = result
                yield structs.replace(grid, rows=wanted[grid.rows]), index
            elif np.isin(states, call.rows).any():
                yield structs.replace(call, rows=_NO_ROWS), None

    @property
    def calls(self) -> Sequence[OpStateGrid]:
        """See the class; of some states of others, cut when somebody asks."""
        if self._whole is not None and not self._calls:
            whole, states = self._whole
            cut = (call.of_states(states) for call in whole.calls)
            self._calls = [call for call in cut if call is not None]
        return self._calls

    def note_factors(self, call: OpStateGrid) -> None:
        """Notes the shared factors of a call whose states do not matter."""
        for index in call.members:
            self.shared[index] = call.times.shared_log_sd

    def put(self, call: OpStateGrid) -> None:
        """Stores the times of one call."""
        self._calls.append(call)
        times, members = call.times, np.asarray(call.members)
        where: tuple[Any, ...] = (members[:, None], call.rows)
        if len(call.rows) == self._every.shape[2]:
            where = (members,)  # all states, in their order
        values: list[Any] = [times.estimate_s, times.bound_s, times.independent_log_sd]
        plain = False
        if isinstance(times, KernelTimes) and call.group.family not in EXCHANGES:
            plain = True
            demand = times.analysis.demand
            values += (0.0,) * 3 if self.clocks is not None else call.joules(self.device)
            values += [demand.level_bytes.get("dram", 0.0), np.minimum(demand.waves, 1.0)]
        self._every[: len(values), *where] = call.spread_all(values)
        tiers = _tiers(times)
        self.tiers[where] = tiers if isinstance(tiers, int) else call.spread(tiers)
        self.note_factors(call)
        if plain:
            return
        if not isinstance(times, KernelTimes):
            self._fill[where] = load_physics("composition").default["collective_cores"]
            self._links[where], self._network[where] = call.links
            if call.batch is not None:  # of the host: copy engines and the CPU take no cores
                self._fill[where] = 0.0
                if call.group.family == HOST_COPY:
                    self.dram_bytes[where] = call.spread(
                        np.asarray(call.batch.dims["bytes"], dtype=np.float64)
                    )
            return
        self._fill[where] = load_physics("composition").default["collective_cores"]
        self._links[where] = 1.0  # an exchange, over the links as a collective

    @cached_property
    def shares(self) -> ResourceShares:
        from silicast.composition.step.concurrency import ResourceShares

        busy = self.dram_bytes / self.device.dram.bandwidth_bytes_per_s
        share = np.divide(busy, self.time_s, out=np.zeros_like(busy), where=self.time_s > 0.0)
        return ResourceShares(self._fill, np.minimum(share, 1.0), self._links, self._network)

    def limits(self, state: int) -> list[tuple[str, Also]]:
        """What sets the bound of each node in a state and what else binds it, "" = it does not
        run.
        """
        if self._whole is not None:
            whole, states = self._whole
            return whole.limits(int(states[state]))
        limits, table = self._limits
        return [limits[number] for number in table[state].tolist()]

    @cached_property
    def _limits(self) -> tuple[list[tuple[str, Also]], I64]:
        """Limits, and which of them each node has in each state, shape (n, nodes); the first = it
        does not run.
        """
        numbers: dict[tuple[str, Also], int] = {("", ()): 0}
        table = np.zeros(self.time_s.shape, dtype=np.int64)
        for call in self._calls:
            of_size = [numbers.setdefault(limit, len(numbers)) for limit in call.limits]
            table[np.asarray(call.members)[:, None], call.rows] = call.spread(np.array(of_size))
        return list(numbers), np.ascontiguousarray(table.T)

    def ceiling_s(self) -> F64:
        """What the quick ones of measured kernels reached, shape (nodes, n); 0 = not known."""
        ceiling_s = np.zeros_like(self.time_s)
        for call in self.calls:
            times = call.times
            if isinstance(times, KernelTimes) and times.ceiling_s is not None:
                ceiling_s[np.ix_(np.asarray(call.members), call.rows)] = call.spread(
                    times.ceiling_s
                )
        return ceiling_s

    @cached_property
    def above_static_j(self) -> F64:
        """Energy of one execution of each node beyond what the board draws while it waits, shape
        (nodes, n); 0 where it is not modelled. Of a collective that of the cores which it keeps
        busy: what its links draw beyond waiting is not known.
        """
        if self._whole is not None:
            whole, states = self._whole
            return np.take(whole.above_static_j, states, axis=1)
        above_static_j = np.zeros_like(self.time_s)
        for call in self.calls:
            where = np.ix_(np.asarray(call.members), call.rows)
            if (joules := call.above_static_j(self.device, self.clocks)) is not None:
                above_static_j[where] = joules
            elif not isinstance(call.times, KernelTimes):
                at = None if self.clocks is None else self.clocks.rows(call.rows)
                cores = cores_w(self.device) if at is None else at.beside(cores_w)
                above_static_j[where] = self.time_s[where] * self._fill[where] * cores
        return above_static_j

    def kernels_j(self, counts: F64) -> F64:
        """The same of all executions in each state, shape (n,); on average no more than the
        board's power limit leaves while kernels run.

        Args:
            counts: of the graph's nodes, how often each runs.
        """
        if self._kernels_j is None:
            if self._whole is not None:
                whole, states = self._whole
                self._kernels_j = np.take(whole.kernels_j(counts), states)
            else:
                kernels_j = rows_summed(self.above_static_j * counts[:, None])
                busy_s = rows_summed(self.time_s * counts[:, None])
                most_w = most_above_static_w(self.device)
                self._kernels_j = np.minimum(kernels_j, most_w * busy_s)
        return self._kernels_j

    @cached_property
    def octaves_outside(self) -> F64:
        """Factors of two between each node's size and the nearest that was measured of its family,
        shape (nodes, n).
        """
        if self._whole is not None:
            whole, states = self._whole
            return np.take(whole.octaves_outside, states, axis=1)
        octaves_outside = np.zeros_like(self.time_s)
        for call in self._calls:
            times = call.times
            if isinstance(times, KernelTimes) and np.any(times.octaves_outside):
                where = np.ix_(np.asarray(call.members), call.rows)
                octaves_outside[where] = call.spread(times.octaves_outside)
        return octaves_outside

    def resources(self) -> Resources:
        """What each node needs of each resource."""
        clocks = self.device.clocks
        nodes, states = self.time_s.shape
        resources = Resources(nodes, states, clocks.max_hz / clocks.boost_hz)
        for call in self.calls:
            times = call.times
            needs = times.analysis if isinstance(times, KernelTimes) else times
            spread = {name: call.spread(np.asarray(s)) for name, s in needs.resource_s.items()}
            resources.put(call.members, call.rows, spread, self.device, call.group.variant.dtype)
        return resources


def _tiers(times: Times) -> int | F64:
    """The tier of each row, as a place in ``TIERS``: the best whose correction had any weight."""
    scaled = times.scaled if isinstance(times, KernelTimes) else None
    known = (times.learned, _LEARNED), (scaled, _SCALED), (times.calibrated, _CALIBRATED)
    tiers: int | F64 = _ANALYTIC
    for weight, tier in known:
        if weight is not None:
            tiers = np.where(weight > 0.0, tier, tiers)
    return tiers
