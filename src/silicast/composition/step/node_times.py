"""Times of the nodes of a stage graph in many batch states, and the evaluations behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from silicast.composition.step.op_state_grid import OpStateGrid, Times
from silicast.composition.step.pipes import Resources
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.core.numerics import F64, I64
from silicast.core.prediction import TIERS
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.limits import Also
from silicast.kernels.physics.energy import cores_w, most_above_static_w
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.nodes import Phase
from silicast.workload.graphs.op import Op, OpBatch, resolve

if TYPE_CHECKING:
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


_NO_ROWS: I64 = np.zeros(0, dtype=np.int64)
_NUMBERS = np.dtype(np.float64)
_ANALYTIC, _LEARNED = TIERS.index("analytic"), TIERS.index("cross-device")
_SCALED, _CALIBRATED = TIERS.index("scaled"), TIERS.index("calibrated")


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
        self.device = device
        self.clocks = clocks
        self.shared: list[Mapping[str, float]] = [{}] * len(graph.nodes)
        self._count = count
        self._calls: list[OpStateGrid] = []
        self._whole: tuple[NodeTimes, I64] | None = None
        self._kernels_j: F64 | None = None

    @cached_property
    def time_s(self) -> F64:
        return self._table("time_s", lambda call: call.times.estimate_s)

    @cached_property
    def bound_s(self) -> F64:
        return self._table("bound_s", lambda call: call.times.bound_s)

    @cached_property
    def independent(self) -> F64:
        return self._table("independent", lambda call: call.times.independent_log_sd)

    @cached_property
    def core_j(self) -> F64:
        return self._table("core_j", lambda call: self._joules[id(call)][0])

    @cached_property
    def memory_j(self) -> F64:
        return self._table("memory_j", lambda call: self._joules[id(call)][1])

    @cached_property
    def dynamic_j(self) -> F64:
        return self._table("dynamic_j", self._dynamic_j)

    @cached_property
    def dram_bytes(self) -> F64:
        return self._table("dram_bytes", OpStateGrid.dram_bytes)

    @cached_property
    def tiers(self) -> I64:
        return self._table("tiers", lambda call: _tiers(call.times), np.dtype(np.int64), _ANALYTIC)

    @cached_property
    def _fill(self) -> F64:
        return self._table("_fill", OpStateGrid.fill, default=1.0)

    @cached_property
    def _links(self) -> F64:
        return self._table("_links", lambda call: 0.0 if call.is_kernel else call.links[0])

    @cached_property
    def _network(self) -> F64:
        return self._table("_network", lambda call: 0.0 if call.is_kernel else call.links[1])

    def _dynamic_j(self, call: OpStateGrid) -> Any:
        return call.dynamic_j(self.device) if self.clocks is None and call.is_kernel else 0.0

    @cached_property
    def _joules(self) -> dict[int, tuple[Any, Any, Any]]:
        """Energies of each call by its id, see :meth:`OpStateGrid.joules`."""
        joules = {id(call): (0.0, 0.0, 0.0) for call in self._calls}
        if self.clocks is None:
            kernels = (call for call in self._calls if call.is_kernel)
            joules |= {id(call): call.joules(self.device) for call in kernels}
        return joules

    @cached_property
    def _positions(self) -> I64:
        """Where each node in each state stands among the values of all calls, one call's after
        another's; 0 = it does not run.
        """
        positions, first = np.zeros((len(self.shared), self._count), dtype=np.int64), 1
        for call in self._calls:
            positions[np.asarray(call.members)[:, None], call.rows] = first + call.positions
            first += call.sizes
        return positions

    def _table(
        self,
        name: str,
        value_of: Callable[[OpStateGrid], Any],
        dtype: np.dtype[Any] = _NUMBERS,
        default: float = 0.0,
    ) -> NDArray[Any]:
        """An array (nodes, n) of one value a size of each call; of some states of others, cut when
        somebody asks.
        """
        if self._whole is not None:
            whole, states = self._whole
            # not by an index: that may turn the layout, and with it sums' last bits
            return np.take(getattr(whole, name), states, axis=1)
        values = np.empty(1 + sum(call.sizes for call in self._calls), dtype)
        values[0], first = default, 1
        for call in self._calls:
            values[first : first + call.sizes] = value_of(call)
            first += call.sizes
        return values.take(self._positions)

    @cached_property
    def beyond_measured(self) -> I64:
        """Nodes that in some of these states, or of those that they are some of, have a size beyond
        all that were measured.
        """
        if self._whole is not None:
            return self._whole[0].beyond_measured
        return np.flatnonzero(self.octaves_outside.any(axis=1))

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
        if len(wanted) == len(self._whole[1]):
            yield from self._grids
            return
        yield from self._grids_of(wanted)

    @cached_property
    def _grids(self) -> list[tuple[OpStateGrid, I64 | None]]:
        """Calls of all the states that were taken from others."""
        assert self._whole is not None
        return list(self._grids_of(np.arange(len(self._whole[1]))))

    def _grids_of(self, wanted: I64) -> Iterator[tuple[OpStateGrid, I64 | None]]:
        assert self._whole is not None
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
        self.note_factors(call)

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
        return self._table("octaves_outside", OpStateGrid.octaves_outside)

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
