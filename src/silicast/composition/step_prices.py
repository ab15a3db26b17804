"""Prices of single steps for simulators: what depends on one number of a step is in tables.

Most nodes of a step depend on its batch through one number: its tokens, its sequences. What they
take is looked up in a table, filled by the full model in blocks of values as they occur, so that
nothing is interpolated. Attention depends on every sequence's length and is evaluated; over a run
of decode steps, at steps between which it is all but linear. Clock and power are a state of each
step: its own mix of work sets the clock; below boost, times are taken between clocks of a grid,
where they are linear in one over the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.composition.clock import held_clock
from silicast.composition.concurrency import pair_s, slowdown
from silicast.composition.host_time import host_work
from silicast.composition.node_times import Call, NodeGroup, NodeTimes
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.composition.timeline import Launches, total_wait_s
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.workload.op import Affine
from silicast.workload.symbols import CROSS_KV, DECODE_KV, PREFILL_KV, PREFILL_Q, TOKENS

CLOCKS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, *(0.44 * 0.86**step for step in range(20)))
"""Shares of the boost clock at which steps are evaluated."""
BLOCK = 64
"""Values of a symbol that are evaluated together."""
SEQUENCES_A_STEP = 16
"""Sequences evaluated for a step of a run, on average: larger batches skip steps."""

_RAGGED = frozenset((PREFILL_Q, PREFILL_KV, DECODE_KV, CROSS_KV))


@final
@dataclass(frozen=True, slots=True)
class StepPrice:
    """One step, seconds.

    Attributes:
        stages_s: device time of each pipeline stage.
        waits_s: what the device waits for launches.
        work_s: the host's work for the step.
        clock_hz: that the step's mix of work holds.
    """

    stages_s: tuple[float, ...]
    waits_s: float
    work_s: float
    clock_hz: float

    @property
    def pass_s(self) -> float:
        """From the first launch to the end of the last kernel."""
        return sum(self.stages_s) + self.waits_s


@final
@dataclass(frozen=True, slots=True)
class RunPrice:
    """Decode steps one after another, arrays of shape (steps,) and seconds; see :class:`StepPrice`.

    Attributes:
        stages_s: shape (stages, steps).
    """

    stages_s: F64
    waits_s: F64
    work_s: float
    clock_hz: F64

    @property
    def pass_s(self) -> F64:
        """From the first launch to the end of the last kernel."""
        found: F64 = np.cumsum(self.stages_s, axis=0)[-1] + self.waits_s
        return found


@final
@dataclass(frozen=True, slots=True)
class _Row:
    """Nodes that depend on one symbol, at one value.

    Attributes:
        sums: seconds of each stage, then FLOPs, then bytes.
        nodes_s: of one execution of every node of the graph, shape (nodes,).
    """

    sums: tuple[float, ...]
    nodes_s: F64


@final
class StepPrices:
    """A step model as a function of one state that is quick in a loop.

    Equal to :meth:`StepModel.steps` at each step's own clock: to rounding at the boost clock,
    within half a percent where power holds the clock below it.

    Args:
        model: of an engine's steps.

    Raises:
        SilicastError: a graph with streams of its own.
    """

    def __init__(self, model: StepModel) -> None:
        if model.graph.has_streams:
            raise SilicastError("steps of a program with streams", kind="not_yet", field="engine")
        self.model, self.graph, self.timer = model, model.graph, model.timer
        self._boost = model.machine.uncapped_device
        self._stage = np.array([node.stage for node in self.graph.nodes])
        self._devices = {0: self._boost}
        self._tables: dict[tuple[str, bool, int], dict[int, _Row]] = {}
        self._hidden: dict[tuple[int, int], tuple[tuple[float, ...], F64]] = {}
        self._parts: dict[bool, dict[str, list[tuple[NodeGroup, list[int]]]]] = {}
        self._lengthy: dict[bool, list[tuple[NodeGroup, list[int]]]] = {}
        for prefill in (False, True):
            self._split(prefill=prefill)
        self._by_tokens = [r for r in self.graph.regions if not r.any_step]
        self._by_lengths = [r for r in self.graph.regions if r.any_step]
        host, machine = model.machine.engine.host, model.machine
        self._asynchronous = host.asynchronous and not machine.in_line

    def _split(self, *, prefill: bool) -> None:
        """Nodes by the one symbol that their sizes depend on; apart, those of sequences."""
        parts: dict[str, list[tuple[NodeGroup, list[int]]]] = {}
        lengthy: list[tuple[NodeGroup, list[int]]] = []
        for group, members in self.timer.kinds(prefill=prefill):
            by_symbol: dict[str, list[int]] = {}
            for index in members:
                by_symbol.setdefault(self._symbol(index), []).append(index)
            for symbol, alike in by_symbol.items():
                if symbol == "?":
                    lengthy.append((group, alike))
                elif prefill or group.phase != "prefill":
                    parts.setdefault(symbol, []).append((group, alike))
        self._parts[prefill], self._lengthy[prefill] = parts, lengthy

    def _symbol(self, index: int) -> str:
        """The symbol of a node's sizes, "" = numbers alone, "?" = lengths, or several symbols."""
        dims = [dim for _, dim in self.graph.nodes[index].op.dims]
        named = {dim.symbol if isinstance(dim, Affine) else dim for dim in dims}
        symbols = {name for name in named if isinstance(name, str)}
        if len(symbols) > 1 or symbols & _RAGGED or any(isinstance(dim, tuple) for dim in dims):
            return "?"
        return symbols.pop() if symbols else ""

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: I64, elsewhere: int = -1
    ) -> StepPrice:
        """One step.

        Args:
            prefill: (new tokens, past plus new tokens) of each sequence in prefill.
            decode_kv: cached tokens, without the new one, of each decoding sequence.
            elsewhere: new tokens of the other groups of attention_dp; -1 = as many each.
        """
        state = _one_state(prefill, decode_kv, elsewhere)
        values, calls = self._values(state), self._calls(state)
        sums, nodes_s = self._at(0, state, values, calls)
        launches, work_s = self._launches(state), self._work_s(state)
        waits_s = self._waits_s(launches, nodes_s)
        hz = self._held_hz(sums, waits_s, work_s)
        share = hz / self._boost.clocks.boost_hz
        if share < 1.0:
            place, weight = _between(share)
            fast, slow = (self._at(at, state, values, calls) for at in (place, place + 1))
            sums = tuple(a + weight * (b - a) for a, b in zip(fast[0], slow[0], strict=True))
            nodes_s = fast[1] + weight * (slow[1] - fast[1])
            waits_s = self._waits_s(launches, nodes_s)
        return StepPrice(sums[:-2], waits_s, work_s, hz)

    def run(self, decode_kv: I64, steps: int, elsewhere: int = -1) -> RunPrice:
        """``steps`` decode steps of the same sequences, each a token longer than the one before.

        Args:
            decode_kv: cached tokens of each sequence before the first step.
        """
        every = max(1, -(-len(decode_kv) // SEQUENCES_A_STEP))
        knots = np.unique(np.append(np.arange(0, steps, every), steps - 1))
        states = BatchStates.decode(decode_kv.tolist(), knots + 1)
        if elsewhere >= 0:
            states = replace(states, elsewhere=np.full(len(knots), elsewhere))
        one = states.first()
        fixed, _ = self._fixed(0, one, self._values(one))
        sums = np.repeat(np.array(fixed)[:, None], len(knots), axis=1)
        for call in self._calls(states):
            sums += self._call_sums(call)
        table = np.stack([np.interp(np.arange(steps), knots, row) for row in sums])
        middle = self.price((), decode_kv + steps // 2, elsewhere)
        waits = np.full(steps, middle.waits_s)
        boost = self._boost.clocks.boost_hz
        clock = np.full(steps, boost)
        if middle.clock_hz < boost:  # the mix of work, and with it the clock, hardly changes
            share = np.array(middle.stages_s) / table[:-2, steps // 2]
            table[:-2] *= share[:, None]
            clock = np.full(steps, middle.clock_hz)
        return RunPrice(table[:-2], waits, middle.work_s, clock)

    def _values(self, state: BatchStates) -> dict[str, int]:
        """Symbol -> its value."""
        return {name: int(v[0]) for name, v in self.timer.symbols(state).items()} | {"": 0}

    def _calls(self, states: BatchStates) -> list[Call]:
        """Nodes of sequences, at the boost clock."""
        prefill = bool(len(states.prefill_q))
        symbols = self.timer.symbols(states)
        rows = np.arange(len(states))
        return [
            self.timer.call(group, members, rows, states, symbols, self._boost)
            for group, members in self._lengthy[prefill]
            if group.phase != "decode" or len(states.decode_kv)
        ]

    def _at(
        self, place: int, state: BatchStates, values: Mapping[str, int], calls: Sequence[Call]
    ) -> tuple[tuple[float, ...], F64]:
        """Sums and times of all nodes at one clock of the grid.

        Args:
            place: in :data:`CLOCKS`.
            calls: nodes of sequences at the boost clock.
        """
        fixed, nodes_s = self._fixed(place, state, values)
        sums, nodes_s = list(fixed), nodes_s.copy()
        at = [self.timer.slowed(call, self._device(place)) if place else call for call in calls]
        for call in at:
            for row, value in enumerate(self._call_sums(call)[:, 0].tolist()):
                sums[row] += value
            nodes_s[np.asarray(call.members)] = call.spread(call.times.estimate_s)[:, 0]
        if self._by_lengths and len(state.prefill_q) and len(state.decode_kv):
            self._share_lengths(at, sums, nodes_s)
        return tuple(sums), nodes_s

    def _fixed(
        self, place: int, state: BatchStates, values: Mapping[str, int]
    ) -> tuple[tuple[float, ...], F64]:
        """Nodes that do not look at sequences, less what second streams hide of them."""
        prefill = bool(len(state.prefill_q))
        sums = [0.0] * (self.graph.stages + 2)
        nodes_s = np.zeros(len(self.graph.nodes))
        for symbol in self._parts[prefill]:
            if symbol and not values[symbol]:  # of sequences that the step has not
                continue
            row = self._row(symbol, values[symbol], prefill, place)
            for number, value in enumerate(row.sums):
                sums[number] += value
            nodes_s += row.nodes_s
        tokens = int(state.tokens[0])
        if self._by_tokens and not prefill and tokens <= self.model.replayed_tokens:
            hidden, less = self._hidden_at(tokens, place)
            for stage, value in enumerate(hidden):
                sums[stage] -= value
            nodes_s = nodes_s - less
        return tuple(sums), nodes_s

    def _row(self, symbol: str, value: int, prefill: bool, place: int) -> _Row:
        """The nodes of one symbol at one value; those around it are evaluated along."""
        table = self._tables.setdefault((symbol, prefill, place), {})
        found = table.get(value)
        if found is None:
            low = value // BLOCK * BLOCK
            self._fill(table, symbol, np.arange(low, low + BLOCK), prefill, place)
            found = table[value]
        return found

    def _fill(
        self, table: dict[int, _Row], symbol: str, values: I64, prefill: bool, place: int
    ) -> None:
        values = values[values > 0] if symbol else np.zeros(1, dtype=np.int64)
        device, count = self._device(place), len(values)
        sums = np.zeros((self.graph.stages + 2, count))
        nodes_s = np.zeros((len(self.graph.nodes), count))
        for group, members in self._parts[prefill][symbol]:
            symbols = {symbol: values} if symbol else {}
            batch, times = self.timer.sized(group, members, symbols, count, device)
            rows = np.arange(count)
            call = Call(group, members, rows, rows, count, batch, times)
            seconds = call.spread(times.estimate_s)
            if symbol == TOKENS:
                bounds = call.spread(times.bound_s)
                for own, index in enumerate(members):
                    seconds[own] = self.timer.without_saved(
                        index, seconds[own], bounds[own], values, device
                    )
            nodes_s[np.asarray(members)] = seconds
            sums += self._call_sums(call, seconds)
        for number, value in enumerate(values.tolist()):
            table[value] = _Row(tuple(sums[:, number].tolist()), nodes_s[:, number].copy())

    def _call_sums(self, call: Call, seconds: F64 | None = None) -> F64:
        """Seconds of each stage, FLOPs and bytes of all executions, shape (stages + 2, rows)."""
        times, members = call.times, np.asarray(call.members)
        counts = self.graph.counts[members][:, None]
        seconds = call.spread(times.estimate_s) if seconds is None else seconds
        found = np.zeros((self.graph.stages + 2, seconds.shape[1]))
        for row, stage in zip(seconds * counts, self._stage[members].tolist(), strict=True):
            found[stage] += row
        if isinstance(times, KernelTimes):
            demand = times.analysis.demand
            for number, table, name in (
                (-2, demand.pipe_work, "tensor"), (-1, demand.level_bytes, "dram"),
            ):  # fmt: skip
                if name in table:
                    found[number] = np.cumsum(call.spread(table[name]) * counts, axis=0)[-1]
        return found

    def _hidden_at(self, tokens: int, place: int) -> tuple[tuple[float, ...], F64]:
        """What second streams hide in a decode step of so many tokens: seconds of each stage, and
        of one execution of every node.
        """
        key = (tokens, place)
        if key not in self._hidden:
            state = _one_state((), np.ones(tokens, dtype=np.int64), -1)
            nodes = NodeTimes(self.graph, 1, self._device(place))
            wanted = {i for r in self._by_tokens for i in (*r.main, *r.side)}
            symbols, rows = self.timer.symbols(state), np.zeros(1, dtype=np.int64)
            for group, members in self.timer.kinds(prefill=False):
                own = [index for index in members if index in wanted]
                if own:
                    call = self.timer.call(group, own, rows, state, symbols, nodes.device)
                    nodes.put(call)
            exposed, hidden = nodes.time_s * self.graph.counts[:, None], np.zeros_like(nodes.time_s)
            for region in self._by_tokens:
                self.model.share(region, nodes, state, exposed, hidden)
            stages = np.bincount(self._stage, weights=hidden[:, 0], minlength=self.graph.stages)
            self._hidden[key] = tuple(stages.tolist()), hidden[:, 0] / self.graph.counts
        return self._hidden[key]

    def _share_lengths(self, calls: Sequence[Call], sums: list[float], nodes_s: F64) -> None:
        """Takes off what attention of two kinds hides in one call."""
        nodes = NodeTimes(self.graph, 1, self._boost)
        for call in calls:
            nodes.put(call)
        shares = nodes.shares
        for region in self._by_lengths:
            (main,), (side,) = region.main, region.side
            total = (shares.of((main,)) + shares.of((side,)))[:, 0, 0].tolist()
            one, other = float(nodes_s[main]), float(nodes_s[side])
            under = min(max(one + other - pair_s(one, other, slowdown(total)), 0.0), other)
            nodes_s[side] -= under
            sums[self._stage[side]] -= under * float(self.graph.counts[side])

    def _launches(self, state: BatchStates) -> Launches:
        ((launches, _),) = self.model.launches.classes(state)
        return launches

    def _waits_s(self, launches: Launches, nodes_s: F64) -> float:
        """What the device waits for launches."""
        if launches.free:
            return 0.0
        order = self.graph.executions.order
        return float(total_wait_s(nodes_s[order][:, None], launches)[0])

    def _work_s(self, state: BatchStates) -> float:
        spans = self.graph.plan.gpus > 1
        return float(host_work(self.model.machine, state, transports=spans).work_s[0])

    def _held_hz(self, sums: tuple[float, ...], waits_s: float, work_s: float) -> float:
        """The clock that a step's mix of work holds."""
        pass_s = sum(sums[:-2]) + waits_s
        host = self.model.machine.engine.host
        gap_s = host.gap_us * 1e-6 / self.model.machine.host.factor
        hidden = min(work_s, pass_s) if self._asynchronous else 0.0
        total_s = pass_s + gap_s + work_s - hidden
        machine, dtype = self.model.machine, self.model.matrix_format
        return held_clock(machine, dtype, total_s, sums[-2], sums[-1])

    def _device(self, place: int) -> Device:
        """The device at a clock of the grid."""
        if place not in self._devices:
            hz = self._boost.clocks.boost_hz * CLOCKS[place]
            self._devices[place] = self._boost.at_clock(hz)
        return self._devices[place]


def _between(share: float) -> tuple[int, float]:
    """The faster of the two clocks of the grid around a share of the boost clock, and how far the
    share is on the way to the slower one, in one over the clock.
    """
    place = max(n for n, clock in enumerate(CLOCKS[:-1]) if clock >= share)
    high, low = 1.0 / CLOCKS[place], 1.0 / CLOCKS[place + 1]
    return place, (1.0 / share - high) / (low - high)


def _one_state(prefill: Sequence[tuple[int, int]], decode_kv: I64, elsewhere: int) -> BatchStates:
    new, total = (np.array([pair[i] for pair in prefill], dtype=np.int64) for i in (0, 1))
    ends = (np.array([0, len(each)], dtype=np.int64) for each in (prefill, decode_kv))
    first, second = ends
    return BatchStates(new, total, first, decode_kv, second, np.array([elsewhere]))
