"""Step times for serving and search: tables of what depends on one number of a step.

Most nodes of a step depend on its batch through one number: its tokens, its sequences. Their sum
is looked up in a table, filled with the full model for the values that occur, so that a value
costs its evaluation once and nothing is interpolated. Attention depends on every sequence's length
and is evaluated. Clock and power are a state of each step: its own mix of work sets the clock;
below boost, times are taken between clocks of a grid, where they are linear in one over the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.communication.collective import CollectiveTimes
from silicast.composition.clock import held_clocks
from silicast.composition.node_times import Kind, NodeTimes, Timer, analytic_s
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.workload.op import Affine
from silicast.workload.symbols import CROSS_KV, DECODE_KV, PREFILL_KV, PREFILL_Q, TOKENS

CLOCKS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, *(0.44 * 0.86**step for step in range(20)))
"""Shares of the boost clock at which steps are evaluated."""

_RAGGED = frozenset((PREFILL_Q, PREFILL_KV, DECODE_KV, CROSS_KV))
_LARGEST = 1 << 16
"""Values of a symbol up to which a table is kept; larger ones are evaluated every time."""


@final
@dataclass(frozen=True, slots=True)
class FastSteps:
    """Predicted engine steps, arrays of shape (n,).

    Attributes:
        total_s: the step; device_s: of it, the device's work.
        clock_hz: the clock that each step's mix of work holds.
    """

    total_s: F64
    device_s: F64
    clock_hz: F64


@final
class _Table:
    """Sums over nodes for each value of one symbol: seconds, FLOPs, bytes of memory."""

    def __init__(self) -> None:
        self.known = np.zeros(0, dtype=bool)
        self.sums: F64 = np.zeros((3, 0))

    def missing(self, values: I64) -> I64:
        """Values that are not in it yet, ascending, each once."""
        size = int(values.max()) + 1
        if size > len(self.known):
            grown = 1 << (size - 1).bit_length()
            self.known = np.concatenate((self.known, np.zeros(grown - len(self.known), dtype=bool)))
            more = np.zeros((3, grown - self.sums.shape[1]))
            self.sums = np.concatenate((self.sums, more), axis=1)
        fresh: I64 = np.unique(values[~self.known[values]])
        return fresh

    def put(self, values: I64, sums: F64) -> None:
        """Keeps the sums, shape (3, len(values))."""
        self.sums[:, values] = sums
        self.known[values] = True


@final
@dataclass(frozen=True, slots=True)
class _Call:
    """Nodes of one kind whose sizes depend on one symbol."""

    key: Kind
    members: Sequence[int]
    symbol: str


@final
@dataclass(frozen=True, slots=True)
class _Evaluated:
    """Times, bounds, shares of the cores and analytic times of one node in the states ``rows``."""

    rows: I64
    table: F64

    @staticmethod
    def of(times: KernelTimes | CollectiveTimes, member: int, rows: I64) -> _Evaluated:
        """Those of one of several nodes that were timed together."""
        here = slice(member * len(rows), (member + 1) * len(rows))
        estimate, bound = times.estimate_s[here], times.bound_s[here]
        fill, analytic = np.ones(len(rows)), estimate
        if isinstance(times, KernelTimes):
            fill = np.minimum(times.analysis.demand.waves[here], 1.0)
            analytic = analytic_s(times)[here]
        return _Evaluated(rows, np.stack((estimate, bound, fill, analytic)))

    def at(self, wanted: I64, count: int) -> F64:
        """For the states ``wanted`` of ``count``, shape (4, len(wanted)); 0 where it does not
        run.
        """
        whole = np.zeros((4, count))
        whole[:, self.rows] = self.table
        found: F64 = whole[:, wanted]
        return found

    def of_states(self, wanted: I64, count: int) -> _Evaluated:
        """The same of the states ``wanted`` of ``count``, which become 0, 1, 2, ..."""
        return _Evaluated(np.arange(len(wanted)), self.at(wanted, count))


def _nodes(tables: Sequence[F64]) -> NodeTimes:
    """Nodes of which only times, bounds and shares of the cores are known."""
    time_s, bound_s, fill, _ = np.stack(tables, axis=1)
    nothing = np.zeros_like(time_s)
    return NodeTimes(
        time_s, bound_s, nothing, np.full(time_s.shape, ""), ({},) * len(tables), nothing, nothing,
        nothing.astype(np.int64), nothing, fill,
    )  # fmt: skip


@final
class StepTable:
    """A step model as a function of batch states that is quick in a loop.

    Equal to :meth:`StepModel.steps` at each step's own clock: to the last bits at the boost clock,
    within half a percent where power holds the clock below it.

    Args:
        model: the full composition.
    """

    def __init__(self, model: StepModel) -> None:
        self.model = model
        self.machine = model.deployment.machine
        self._tables: dict[tuple[Kind, str, float], _Table] = {}
        self._boost = self.machine.uncapped_device.clocks.boost_hz
        self._hidden: dict[float, _Table] = {}
        overlap = model.overlap
        self._by_tokens = Timer(self.machine, overlap.by_tokens.placed, model.deployment.model.name)
        places = {id(placed): place for place, placed in enumerate(model.placed)}
        self._overlapped = [places[id(placed)] for placed in overlap.by_lengths.placed]

    def steps(self, states: BatchStates) -> FastSteps:
        """Times of all states, each at its own clock; a result does not depend on the others."""
        whole = self.model.host(states).total_s
        known: dict[int, _Evaluated] = {}
        seconds, flops, dram = self._at(states, 1.0, known)
        clocks = held_clocks(self.machine, self.model.matrix_format, whole(seconds), flops, dram)
        slow = np.flatnonzero(clocks < self._boost)
        if len(slow):
            seconds[slow] = self._below(states, slow, clocks[slow] / self._boost, known)
        return FastSteps(whole(seconds), seconds, clocks)

    def _below(
        self, states: BatchStates, slow: I64, share: F64, known: Mapping[int, _Evaluated]
    ) -> F64:
        """Device seconds of the states ``slow`` at shares of the boost clock.

        Args:
            known: what nodes of sequences take at the boost clock, of all states.
        """
        grid = np.array(CLOCKS)
        upper = np.clip(np.searchsorted(-grid, -share, side="right") - 1, 0, len(grid) - 2)
        found = np.empty(len(slow))
        for place in np.unique(upper).tolist():
            chosen = np.flatnonzero(upper == place)
            rows = slow[chosen]
            some = states.chosen(rows)
            base = {index: each.of_states(rows, len(states)) for index, each in known.items()}
            fast, slower = (self._at(some, CLOCKS[place + side], base)[0] for side in (0, 1))
            high, low = 1.0 / CLOCKS[place], 1.0 / CLOCKS[place + 1]
            weight = (1.0 / share[chosen] - high) / (low - high)
            found[chosen] = fast + weight * (slower - fast)
        return found

    def _at(self, states: BatchStates, share: float, known: dict[int, _Evaluated]) -> F64:
        """Device seconds, FLOPs and bytes of all states at one clock, shape (3, n).

        Args:
            known: what nodes of sequences take at the boost clock; filled at that clock.
        """
        device = self.machine.uncapped_device
        if share < 1.0:
            device = device.at_clock(device.clocks.boost_hz * share)
        sums = np.zeros((3, len(states)))
        evaluated: dict[int, _Evaluated] = {}
        for key, members, rows in self.model.timer.calls(states):
            for symbol, alike in self._by_symbol(members).items():
                if not symbol:
                    found = self._lengthy(key, alike, states, rows, device, known)
                    sums[:, rows] += self._sums(found, alike, len(rows), None, device)
                    for member, index in enumerate(alike):
                        evaluated[index] = _Evaluated.of(found, member, rows)
                    continue
                call = _Call(key, alike, symbol)
                for parts, values in self._looked_up(call, states, rows, share, device):
                    sums[:, parts] += values
        sums[0] -= self._under_others(states, evaluated, share, device)
        if share == 1.0:
            known.update(evaluated)
        return sums

    def _lengthy(
        self,
        key: Kind,
        members: Sequence[int],
        states: BatchStates,
        rows: I64,
        device: Device,
        known: Mapping[int, _Evaluated],
    ) -> KernelTimes | CollectiveTimes:
        """Times of nodes that look at every sequence."""
        timer = self.model.timer
        batch = timer.lengthy(members, states, rows) if members[0] in known else None
        if batch is None:
            return timer.evaluate(key, members, states, rows, device)
        boost = np.concatenate([known[i].at(rows, len(states))[[0, 3]] for i in members], axis=1)
        return timer.slowed(batch, device, boost)

    def _under_others(
        self,
        states: BatchStates,
        evaluated: Mapping[int, _Evaluated],
        share: float,
        device: Device,
    ) -> F64:
        """Device seconds of each state that run beside other kernels, shape (n,)."""
        found = np.zeros(len(states))
        overlap, timer = self.model.overlap, self._by_tokens
        by_tokens, by_lengths = overlap.by_tokens, overlap.by_lengths
        prefills = states.prefill_sequences > 0
        both = np.flatnonzero(prefills & (states.decode_sequences > 0))
        if by_lengths.branches and len(both):
            some = states.chosen(both)
            nodes = _nodes([evaluated[place].at(both, len(states)) for place in self._overlapped])
            tokens = self.model.timer.run_tokens(some)
            found[both] = by_lengths.hidden_s(nodes, some, tokens, device)
        decodes = np.flatnonzero(~prefills & (states.tokens <= by_tokens.replayed_tokens))
        if by_tokens.branches and len(decodes):
            table = self._hidden.setdefault(share, _Table())
            values = states.tokens[decodes]
            fresh = table.missing(values)
            if len(fresh):
                some = _decoding(fresh)
                nodes, tokens = timer.times(some, device), timer.run_tokens(some)
                hidden = by_tokens.hidden_s(nodes, some, tokens, device)
                table.put(fresh, np.stack((hidden, hidden, hidden)))
            found[decodes] = table.sums[0, values]
        return found

    def _looked_up(
        self, call: _Call, states: BatchStates, rows: I64, share: float, device: Device
    ) -> Iterator[tuple[I64, F64]]:
        """Sums over the nodes of one call: which states, and three numbers for each."""
        timer, key, members, symbol = self.model.timer, call.key, call.members, call.symbol
        values = timer.symbols(states, rows)[symbol]
        table = self._tables.setdefault((key, symbol, share), _Table())
        small = values <= _LARGEST
        if not small.all():
            large = np.flatnonzero(~small)
            found = timer.sized(key, members, {symbol: values[large]}, len(large), device)
            sizes = _tokens(symbol, values[large])
            yield rows[large], self._sums(found, members, len(large), sizes, device)
            rows, values = rows[small], values[small]
        if len(values):
            fresh = table.missing(values)
            if len(fresh):
                found = timer.sized(key, members, {symbol: fresh}, len(fresh), device)
                sizes = _tokens(symbol, fresh)
                table.put(fresh, self._sums(found, members, len(fresh), sizes, device))
            yield rows, table.sums[:, values]

    def _by_symbol(self, members: Sequence[int]) -> dict[str, list[int]]:
        """Nodes by the one symbol that their sizes depend on; "" if lengths or several do."""
        found: dict[str, list[int]] = {}
        for index in members:
            op = self.model.placed[index].op
            named = (dim.symbol if isinstance(dim, Affine) else dim for _, dim in op.dims)
            symbols = {name for name in named if isinstance(name, str)}
            alone = len(symbols) == 1 and not symbols & _RAGGED
            found.setdefault(symbols.pop() if alone else "", []).append(index)
        return found

    def _sums(
        self,
        times: KernelTimes | CollectiveTimes,
        members: Sequence[int],
        count: int,
        tokens: I64 | None,
        device: Device,
    ) -> F64:
        """Seconds, FLOPs and bytes over nodes, as often as each runs, shape (3, count).

        Args:
            tokens: of each state, where they are what the nodes' sizes depend on.
        """
        tables: list[F64 | None] = [times.estimate_s]
        if isinstance(times, KernelTimes):
            demand = times.analysis.demand
            tables += [demand.pipe_work.get("tensor"), demand.level_bytes.get("dram")]
        bounds = times.bound_s.reshape(len(members), count)
        sums = np.zeros((3, count))
        for row, table in enumerate(tables):
            if table is None:
                continue
            grid = table.reshape(len(members), count)
            for member, index in enumerate(members):
                values = grid[member]
                if row == 0 and tokens is not None:
                    values = self.model.overlap.saved(index, values, bounds[member], tokens, device)
                sums[row] += values * float(self.model.placed[index].count)
        return sums


def _tokens(symbol: str, values: I64) -> I64 | None:
    """The values, where they are tokens."""
    return values if symbol == TOKENS else None


def _decoding(counts: I64) -> BatchStates:
    """One state of so many decoding sequences for each count; their lengths do not matter."""
    total = int(counts.sum())
    none = np.zeros(0, dtype=np.int64)
    return BatchStates(
        none,
        none,
        np.zeros(len(counts) + 1, dtype=np.int64),
        np.ones(total, dtype=np.int64),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
    )
