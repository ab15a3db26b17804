"""Tables of what a step takes of nodes whose sizes follow one number of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.composition.engines.fusion import smallest_kernel_s
from silicast.composition.prices.call_values import ASKED, block_of, remember
from silicast.composition.prices.kept_fills import KeptFills
from silicast.composition.step.clocked_call import ClockedCall
from silicast.composition.step.node_times import NodeTimes
from silicast.composition.step.op_state_grid import NodeGroup, OpStateGrid
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.composition.step.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.kernels.physics.held_clock import at_step
from silicast.workload.graphs.nodes import CROSS_KV, DECODE_KV, PREFILL_KV, PREFILL_Q, TOKENS
from silicast.workload.graphs.op import Affine, Op

REMEMBERED = 1 << 14
"""Steps of which something is remembered."""
NUMBERS = 1 << 22
"""Numbers in all tables at most (32 MiB): they then start anew."""

_RAGGED = frozenset((PREFILL_Q, PREFILL_KV, DECODE_KV, CROSS_KV))
JOULES = 3
"""Energies of a step, behind its stages: see :class:`~.composition.power.clock.Work`."""
FIRST = np.zeros(1, dtype=np.int64)
Parts = Mapping[bool, Mapping[str, Sequence[tuple[NodeGroup, list[int]]]]]
"""Whether a step has a prefill -> symbol -> groups of nodes."""


@final
@dataclass(frozen=True, slots=True)
class NodeRow:
    """Nodes of tables at the values of one step.

    Attributes:
        sums: seconds of each stage, then the joules of :class:`~.composition.power.clock.Work`.
        nodes_s: of one execution of every node of the graph, shape (nodes,).
    """

    sums: tuple[float, ...]
    nodes_s: F64


@final
class StepTables:
    """Rows by symbol and value, filled by the full model in blocks of values as they occur.

    Args:
        model: of the steps.
        parts: the nodes.
        fills: what is kept of rows.
    """

    def __init__(self, model: StepModel, parts: Parts, fills: KeptFills) -> None:
        self._fills = fills
        self.model = model
        self.graph = model.graph
        self.timer: Timer = model.timer
        self._parts = parts
        self._blocks: dict[tuple[str, bool, int, int], F64] = {}
        self._numbers = 0
        self._asked: dict[tuple[str, bool, int], list[ClockedCall]] = {}
        self._known: dict[tuple[int, bool, int, tuple[int, ...]], NodeRow] = {}
        self._by_tokens = [r for r in self.graph.regions if not r.any_step]

    def at(
        self, index: int, values: tuple[int, ...], tokens: int, elsewhere: int, *, prefill: bool
    ) -> NodeRow:
        """Nodes that do not look at sequences, less what second streams hide of them.

        Args:
            index: in the grid of clocks.
            values: of the symbols, in the order of the parts.
            tokens: new ones of the step; ``elsewhere``: of other groups of attention_dp.
        """
        replays = not prefill and tokens <= self.model.replayed_tokens
        hides = bool(self._by_tokens) and replays
        key = (index, prefill, tokens if hides else -1, values)
        if (known := self._known.get(key)) is not None:
            return known
        total = np.zeros(self.graph.stages + JOULES + len(self.graph.nodes))
        for symbol, value in zip(self._parts[prefill], values, strict=True):
            if value or not symbol:  # else of sequences that the step has not
                total += self._row(symbol, value, prefill, index)
        sums, nodes_s = total[: self.graph.stages + JOULES], total[self.graph.stages + JOULES :]
        if hides:
            hidden = self._hidden(tokens, elsewhere, index)
            for node, seconds in zip(self.graph.nodes, hidden.tolist(), strict=True):
                sums[node.stage] -= seconds * node.count
            nodes_s -= hidden
        row = NodeRow(tuple(sums.tolist()), nodes_s)
        return remember(self._known, key, row, REMEMBERED)

    def _row(self, symbol: str, value: int, prefill: bool, index: int) -> F64:
        """The nodes of one symbol at one value, sums and seconds of nodes in the order of
        :class:`NodeRow`; those around it are evaluated along.
        """
        values = block_of(value)
        key = (symbol, prefill, index, values.start)
        block = self._blocks.get(key)
        if block is None:
            block = self._fills.array(
                lambda: self._filled(symbol, values, prefill, index), len(values), *key, values.stop
            )
            if self._numbers + block.size > NUMBERS:
                self._blocks.clear()
                self._numbers = 0
            self._blocks[key] = block
            self._numbers += block.size
        row: F64 = block[value - values.start] if symbol else block[-1]
        return row

    def _filled(self, symbol: str, block: range, prefill: bool, position: int) -> F64:
        """The rows of a block of values; a row of none is 0."""
        values = np.arange(max(block.start, 1), block.stop) if symbol else np.zeros(1, np.int64)
        timer, count = self.timer, len(values)
        symbols = {symbol: values} if symbol else {}
        parts, key = self._parts[prefill][symbol], (symbol, prefill, block.start)
        calls = self._asked.get(key)
        if calls is None:
            calls = [ClockedCall.sized(timer, *part, symbols, count) for part in parts]
            remember(self._asked, key, calls, ASKED)
        nodes = self.graph.nodes
        table = np.zeros((2 + JOULES, len(nodes), count))
        for (_, members), call in zip(parts, calls, strict=True):
            call.put(table, members, timer.ops_of(members)[1], position)
        if symbol == TOKENS:
            device = at_step(timer.machine.boosted_device, position)
            timer.fuse_rows(table[0], table[1], values, smallest_kernel_s(device))
        first = self.graph.stages + JOULES
        rows = np.zeros((len(block) if symbol else 1, first + len(nodes)))
        current = rows[len(rows) - count :].T
        current[first:] = table[0]
        table *= self.graph.counts[:, None]
        for index, node in enumerate(nodes):
            current[node.stage] += table[0, index]
            current[first - JOULES : first] += table[2:, index]
        return rows

    def _hidden(self, tokens: int, elsewhere: int, position: int) -> F64:
        """What second streams hide in a decode step of so many tokens, of one execution of every
        node, shape (nodes,).
        """
        state = one_state((), np.ones(tokens, dtype=np.int64), elsewhere)
        device = at_step(self.timer.machine.boosted_device, position)
        nodes = NodeTimes(self.graph, 1, device)
        wanted = {i for r in self._by_tokens for i in (*r.main, *r.side)}
        symbols = self.timer.symbols(state)
        for group, members in self.timer.kinds(prefill=False):
            current = [index for index in members if index in wanted]
            if current:
                nodes.put(self.timer.call(group, current, FIRST, state, symbols, nodes.device))
        counts = self.graph.counts[:, None]
        exposed, hidden = nodes.time_s * counts, np.zeros_like(nodes.time_s)
        for region in self._by_tokens:
            self.model.share(region, nodes, state, exposed, hidden)
        result: F64 = (hidden / counts)[:, 0]
        return result


def one_state(prefill: Sequence[tuple[int, int]], decode_kv: I64, elsewhere: int) -> BatchStates:
    """A batch of one state; see :meth:`.step_prices.StepPrices.price`."""
    new, total = (np.array([pair[i] for pair in prefill], dtype=np.int64) for i in (0, 1))
    ends = (np.array([0, len(each)], dtype=np.int64) for each in (prefill, decode_kv))
    first, second = ends
    return BatchStates(new, total, first, decode_kv, second, np.array([elsewhere]))


def middle_state(key: tuple[int, ...]) -> BatchStates:
    """A state whose numbers have the bits of ``key``, near the geometric middle of each."""
    starts, new, seen, decoding, cached, beside = (
        round(2.0 ** (bits - 0.5)) if bits else 0 for bits in key
    )
    each = max(new // max(starts, 1), 1)
    pairs = [(each, max(seen // max(starts, 1), each))] * starts
    lengths = np.full(decoding, cached // max(decoding, 1), dtype=np.int64)
    return one_state(pairs, lengths, beside - 1)


def symbol_of(op: Op) -> str:
    """The symbol of an op's sizes, "" = numbers alone, "?" = lengths, or several symbols.

    >>> symbol_of(Op.make("gemm", m="tokens", n=512, k=128))
    'tokens'
    """
    dims = [dim for _, dim in op.dims]
    named = {dim.symbol if isinstance(dim, Affine) else dim for dim in dims}
    symbols = {name for name in named if isinstance(name, str)}
    if len(symbols) > 1 or symbols & _RAGGED or any(isinstance(dim, tuple) for dim in dims):
        return "?"
    return symbols.pop() if symbols else ""


def called(
    timer: Timer, group: NodeGroup, members: Sequence[int], state: BatchStates
) -> OpStateGrid:
    """Nodes in one state at the boost clock."""
    device = timer.machine.boosted_device
    return timer.call(group, members, FIRST, state, timer.symbols(state), device)
