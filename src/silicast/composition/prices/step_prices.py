"""Prices of single steps for simulators: what depends on one number of a step is in tables.

Most nodes of a step depend on its batch through one number: its tokens, its sequences. What they
take is looked up in a table, filled by the full model in blocks of values as they occur, so that
nothing is interpolated. Attention over cached tokens is a surface
(:mod:`~silicast.composition.prices.decode_surface`), and so are prompts
(:mod:`~silicast.composition.prices.prefill_surface`); nodes of other lengths are evaluated.
Clock and power are a state of each step: its own mix of work sets the clock; below boost, times are
taken between neighbouring clocks of a grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np

from silicast.composition.engines.host_time import host_work_s
from silicast.composition.passes.deployment import Deployment
from silicast.composition.power.clock import ClockedWork, PowerLimit
from silicast.composition.prices.call_values import Values, remember
from silicast.composition.prices.decode_lengths import DecodeLengths, Lengths, lengths_of
from silicast.composition.prices.decode_surface import DecodeSurface
from silicast.composition.prices.kept_fills import KeptFills
from silicast.composition.prices.prefill_surface import PrefillSurface
from silicast.composition.prices.step_price import RunPrice, StepPrice
from silicast.composition.prices.step_tables import (
    JOULES,
    REMEMBERED,
    StepTables,
    called,
    middle_state,
    one_state,
    symbol_of,
)
from silicast.composition.step.clocked_call import numbers_of, values_of
from silicast.composition.step.concurrency import pair_s, slowdown
from silicast.composition.step.op_state_grid import NodeGroup, OpStateGrid
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.step import StepModel, step_model
from silicast.composition.step.timer import Timer
from silicast.composition.timeline.breakdown import Breakdown
from silicast.composition.timeline.timeline import Launches, total_wait_s
from silicast.core.errors import unmodelled
from silicast.core.numerics import F64
from silicast.core.prediction import ErrorFactors
from silicast.kernels.physics.held_clock import at_step, step_below, weight_of
from silicast.kernels.physics.power import top_hz
from silicast.workload.graphs.nodes import DECODE_LONGEST, PREFILL_TOKENS
from silicast.workload.graphs.op import Op

__all__ = ["RunPrice", "StepPrice", "StepPrices", "step_prices"]

_JOULES = range(-JOULES, 0)
CORE_J, MEMORY_J = -3, -2
_Row = tuple[tuple[float, ...], float, float, float]
"""Stages, host work and joules of a step beside its attention."""
KEPT = 16
"""Deployments whose prices are kept; each takes up to tens of megabytes."""


@final
class _Step(NamedTuple):
    """What a step is priced by.

    Attributes:
        tokens: new ones; values: symbol -> its value, those of the tables alone.
        seen: tokens of the decoding sequences with the new ones; ``longest``: of the longest.
    """

    prefill: Sequence[tuple[int, int]]
    cached: DecodeLengths
    tokens: int
    elsewhere: int
    values: tuple[int, ...]
    seen: int
    longest: int
    launches: Launches
    calls: tuple[tuple[_Alike, OpStateGrid], ...]


@final
@dataclass(frozen=True, slots=True)
class _Alike:
    """Nodes with the same op.

    Attributes:
        members: their places; ``runs``: (stage, executions) of them; ``count``: in all.
    """

    members: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]
    count: int


Parts = list[tuple[_Alike, Values]]
"""Nodes, and what one execution takes as of :func:`values_of`."""


@final
class StepPrices:
    """A step model as a function of one state that is quick in a loop.

    Equal to :meth:`StepModel.steps` at each step's own clock but for the surfaces of attention over
    cached tokens and of prompts, and the grid of clocks: up to 0.2 percent of a step on average,
    two percent in one of a hundred.

    Args:
        model: of an engine's steps.
        fills: what earlier processes kept of tables and surfaces; None = nothing.

    Raises:
        SilicastError: a graph with streams of its own, or behind an encoder.
    """

    def __init__(self, model: StepModel, fills: KeptFills | None = None) -> None:
        if model.graph.has_streams:
            raise unmodelled("steps of a program with streams", "engine")
        if any(group.on_encoder for group in model.timer.groups):
            raise unmodelled("steps behind an encoder", "model")
        self.model = model
        self.graph: StageGraph = model.graph
        self.timer: Timer = model.timer
        self._fills = fills or KeptFills()
        self._boost = model.machine.boosted_device
        self._top_hz, self._limit = top_hz(self._boost), PowerLimit(model.machine)
        self._never_slowed = self._limit.free_hz == self._top_hz
        self._rows: dict[tuple[int, int, int], _Row] = {}
        self._decodes: dict[tuple[int, ...], tuple[tuple[int, ...], Launches]] = {}
        self._errors: dict[tuple[int, ...], ErrorFactors] = {}
        self._parts: dict[bool, dict[str, list[tuple[NodeGroup, list[int]]]]] = {}
        self._exact: dict[bool, list[tuple[NodeGroup, _Alike]]] = {}
        self._surfaces: list[tuple[_Alike, DecodeSurface]] = []
        self._prefills: list[tuple[_Alike, PrefillSurface]] = []
        self._last: tuple[object, StepPrice] | None = None
        for prefill in (False, True):
            self._split(prefill=prefill)
        self._tables = StepTables(model, self._parts, self._fills)
        self._by_longest = DECODE_LONGEST in self._parts[False]
        self._sees_each = bool(self._exact[False]) or any(s.windowed for _, s in self._surfaces)
        self._by_lengths = [r for r in self.graph.regions if r.any_step]
        host = model.machine.engine.host
        self._asynchronous = host.asynchronous and not model.machine.in_line
        self.gap_s: float = host.gap_us * model.machine.host_us_s

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""
        return self._asynchronous

    def steps_s(self, pass_s: F64, work_s: float) -> F64:
        """What steps take in a run of alike ones by their passes and the host's work, shape (n,);
        one batch goes through all pipeline stages.
        """
        steps_s: F64 = np.maximum(pass_s, work_s) if self._asynchronous else pass_s + work_s
        return steps_s + self.gap_s

    def _split(self, *, prefill: bool) -> None:
        """Nodes by the one symbol that their sizes depend on; apart, those of sequences."""
        parts: dict[str, list[tuple[NodeGroup, list[int]]]] = {}
        exact: list[tuple[NodeGroup, _Alike]] = []
        for group, members in self.timer.kinds(prefill=prefill):
            by_symbol: dict[str, list[int]] = {}
            smooth: dict[Op, list[int]] = {}
            for index in members:
                if DecodeSurface.describes(self.timer, index):
                    smooth.setdefault(self.graph.nodes[index].op, []).append(index)
                else:
                    by_symbol.setdefault(symbol_of(self.graph.nodes[index].op), []).append(index)
            if not prefill:
                self._surfaces += [
                    (
                        self._alike(alike),
                        DecodeSurface(self.timer, group, alike, self._fills, self._rest_s),
                    )
                    for alike in smooth.values()
                ]
            for symbol, alike in by_symbol.items():
                if symbol == "?":
                    exact += self._lengthy(group, alike)
                elif prefill or group.phase != "prefill":
                    parts.setdefault(symbol, []).append((group, alike))
        self._parts[prefill], self._exact[prefill] = parts, exact

    def _lengthy(
        self, group: NodeGroup, members: Sequence[int]
    ) -> Iterator[tuple[NodeGroup, _Alike]]:
        """Nodes of several lengths, by op: those of prompts as surfaces, which are kept; the others
        are given.
        """
        by_op: dict[Op, list[int]] = {}
        for index in members:
            by_op.setdefault(self.graph.nodes[index].op, []).append(index)
        for alike in by_op.values():
            if PrefillSurface.describes(self.timer, group, alike[0]):
                surface = PrefillSurface(
                    self.timer, group, alike, self._fills, self._prompts_rest_s
                )
                self._prefills.append((self._alike(alike), surface))
            else:
                yield group, self._alike(alike)

    def _alike(self, members: Sequence[int]) -> _Alike:
        runs: dict[int, int] = {}
        for index in members:
            node = self.graph.nodes[index]
            runs[node.stage] = runs.get(node.stage, 0) + node.count
        return _Alike(tuple(members), tuple(runs.items()), sum(runs.values()))

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        """One step.

        Args:
            prefill: (new tokens, past plus new tokens) of each sequence in prefill.
            decode_kv: cached tokens, without the new one, of each decoding sequence.
            elsewhere: new tokens of the other groups of attention_dp; -1 = as many each.
        """
        if prefill:
            return self._priced(self._step(prefill, lengths_of(decode_kv), elsewhere))
        return self._decoded(lengths_of(decode_kv), elsewhere)

    def _decoded(self, cached: DecodeLengths, elsewhere: int) -> StepPrice:
        """A step of decode alone; a run begins with the one that was asked for last."""
        each = np.asarray(cached).tobytes() if self._sees_each else b""
        key = (elsewhere, cached.count, cached.total, cached.longest, each)
        if self._last is None or self._last[0] != key:
            self._last = key, self._alone(cached, elsewhere)
        return self._last[1]

    def _alone(self, cached: DecodeLengths, elsewhere: int) -> StepPrice:
        """A step of decode alone; most are not slowed by the power limit, and wait for nothing."""
        count, longest = cached.count, cached.longest + 1
        known = self._rows.get((count, elsewhere, longest if self._by_longest else 0))
        if known is not None and self._never_slowed:
            stages_s, work_s = list(known[0]), known[1]
            core_j, memory_j = known[2], known[3]
            pass_s, seen = 0.0, cached.total + count
            for alike, surface in self._surfaces:
                values = surface.at(0, cached, seen, longest)
                for stage, runs in alike.runs:
                    stages_s[stage] += values[0] * runs
                core_j += values[CORE_J] * alike.count
                memory_j += values[MEMORY_J] * alike.count
            for seconds in stages_s:
                pass_s += seconds
            hidden = min(work_s, pass_s) if self._asynchronous else 0.0
            if self._limit.leaves(pass_s + self.gap_s + work_s - hidden, core_j, memory_j):
                return StepPrice(tuple(stages_s), 0.0, work_s, self._top_hz)
        step = self._step((), cached, elsewhere)
        if known is None and step.launches.free and not step.calls:
            *stages, core_j, memory_j, _ = self._tables.at(
                0, step.values, count, elsewhere, prefill=False
            ).sums
            key = (count, elsewhere, longest if self._by_longest else 0)
            row = tuple(stages), self._work_s(step), core_j, memory_j
            remember(self._rows, key, row, REMEMBERED)
        return self._priced(step)

    def _priced(self, step: _Step) -> StepPrice:
        work_s = self._work_s(step)
        waits_s, *sums = self._at(0, step)
        work = self._work(waits_s, sums, work_s)
        if self._never_slowed and self._limit.is_free(work):
            return StepPrice(tuple(sums[:-JOULES]), waits_s, work_s, self._top_hz)
        at = {0: [waits_s, *sums]}

        def at_clock(position: int) -> ClockedWork[float]:
            at[position] = self._at(position, step)
            return self._work(at[position][0], at[position][1:], work_s)

        hz = self._limit.clock(work, at_clock)
        share = hz / self._top_hz
        if share < 1.0:
            position = step_below(share)
            weight = float(weight_of(position, share))  # type: ignore[arg-type]
            fast, slow = (
                at[near] if near in at else self._at(near, step)
                for near in (position, position + 1)
            )
            waits_s, *sums = (a + weight * (b - a) for a, b in zip(fast, slow, strict=True))
        return StepPrice(tuple(sums[:-JOULES]), waits_s, work_s, hz)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        """``steps`` decode steps of the same sequences, each a token longer than the one before.

        Args:
            decode_kv: cached tokens of each sequence before the first step.
        """
        first = lengths_of(decode_kv)

        def price(number: int) -> StepPrice:
            if not number:
                return self._decoded(first, elsewhere)
            return self._alone(first + number, elsewhere)

        return RunPrice.from_prices(price, steps, (first.total + first.count) / first.count)

    def error(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> ErrorFactors:
        """The error of a step like this one: of the full composition in the middle of all steps
        whose tokens and sequences are within the same powers of two.
        """
        new, seen = (sum(pair[i] for pair in prefill) for i in (0, 1))
        numbers = (len(prefill), new, seen, len(decode_kv), int(decode_kv.sum()), elsewhere + 1)
        key = tuple(number.bit_length() for number in numbers)
        error_factors = self._errors.get(key)
        if error_factors is None:
            times = self.model.steps(middle_state(key))
            total = Breakdown(self.model, times, np.ones(1)).sum()
            error_factors = remember(
                self._errors, key, self.model.uncertainty.factors(total), REMEMBERED
            )
        return error_factors

    def _step(
        self, prefill: Sequence[tuple[int, int]], decode_kv: DecodeLengths, elsewhere: int
    ) -> _Step:
        count, starts = decode_kv.count, bool(prefill)
        longest, seen = 0, 0
        if count:
            longest, seen = decode_kv.longest + 1, decode_kv.total + count
        key = (count, elsewhere, longest if self._by_longest else 0)
        exact = self._exact[starts]
        if not (starts or exact) and (known := self._decodes.get(key)):
            return _Step((), decode_kv, count, elsewhere, known[0], seen, longest, known[1], ())
        symbols = self.timer.symbols_of_one(prefill, count, longest, elsewhere)
        tokens = count + symbols[PREFILL_TOKENS]
        values = tuple([symbols[s] if s else 0 for s in self._parts[starts]])
        launches = self.model.launches.launches(tokens, prefill=starts, decode=count > 0)
        calls: tuple[tuple[_Alike, OpStateGrid], ...] = ()
        if exact:
            state = one_state(prefill, np.asarray(decode_kv), elsewhere)
            calls = tuple(
                (alike, called(self.timer, group, alike.members[:1], state))
                for group, alike in exact
                if group.phase != "decode" or count
            )
        if not starts:
            remember(self._decodes, key, (values, launches), REMEMBERED)
        return _Step(prefill, decode_kv, tokens, elsewhere, values, seen, longest, launches, calls)

    def _at(self, position: int, step: _Step) -> list[float]:
        """Waits, seconds of each stage and joules (:class:`.ClockedWork`) at one clock."""
        fixed = self._tables.at(
            position, step.values, step.tokens, step.elsewhere, prefill=bool(step.prefill)
        )
        sums = list(fixed.sums)
        parts: Parts = []
        if step.longest:
            cached, seen, longest = step.cached, step.seen, step.longest
            parts = [
                (alike, each.at(position, cached, seen, longest)) for alike, each in self._surfaces
            ]
        if step.prefill:
            parts += [(alike, each.at(position, step.prefill)) for alike, each in self._prefills]
        if step.calls:
            device = at_step(self._boost, position)
            for alike, call in step.calls:
                slowed = self.timer.slowed(call, device) if position else call
                numbers = values_of(numbers_of(slowed, device), device)
                parts.append((alike, tuple(numbers[:, slowed.positions[0, 0]].tolist())))
        for alike, values in parts:
            for stage, runs in alike.runs:
                sums[stage] += values[0] * runs
            for column in _JOULES:
                sums[column] += values[column] * alike.count
        shared = bool(self._by_lengths) and bool(step.prefill) and step.longest > 0
        if not shared and step.launches.free:
            return [0.0, *sums]
        nodes_s = fixed.nodes_s.copy()
        for alike, values in parts:
            for index in alike.members:
                nodes_s[index] = values[0]
        if shared:
            self._share_lengths(parts, sums, nodes_s)
        return [self._waits_s(step.launches, nodes_s), *sums]

    def _share_lengths(self, parts: Parts, sums: list[float], nodes_s: F64) -> None:
        """Takes off what attention of two kinds hides in one call."""
        shares = {index: values for alike, values in parts for index in alike.members}
        for region in self._by_lengths:
            (main,), (side,) = region.main, region.side
            share, beside = shares[main], shares[side]
            one, other = share[0], beside[0]
            both = pair_s(one, other, slowdown([share[1] + beside[1], share[2] + beside[2]]))
            under = min(max(one + other - both, 0.0), other)
            nodes_s[side] -= under
            node = self.graph.nodes[side]
            sums[node.stage] -= under * node.count

    def _rest_s(self, index: int, sequences: int) -> float:
        """What nodes beside attention take in a decode step."""
        ones = np.ones(sequences, dtype=np.int64)
        step = self._step((), lengths_of(ones), -1)
        return sum(self._tables.at(index, step.values, sequences, -1, prefill=False).sums[:-JOULES])

    def _prompts_rest_s(self, index: int, prompts: int, tokens: int) -> float:
        """What nodes beside those of sequences take in a step that is prefill alone."""
        each = [(tokens // prompts, tokens // prompts)] * prompts
        symbols = self.timer.symbols_of_one(each, 0, 0, -1)
        values = tuple([symbols[s] if s else 0 for s in self._parts[True]])
        return sum(self._tables.at(index, values, tokens, -1, prefill=True).sums[:-JOULES])

    def _waits_s(self, launches: Launches, nodes_s: F64) -> float:
        """What the device waits for launches."""
        if launches.free:
            return 0.0
        order = self.graph.executions.order
        return float(total_wait_s(nodes_s[order][:, None], launches)[0])

    def _work_s(self, step: _Step) -> float:
        count, new = step.cached.count, 0
        for item, _ in step.prefill:
            new += item
        machine, plan = self.model.machine, self.graph.plan
        return host_work_s(machine, count + len(step.prefill), new, plan.gpus, plan.pp)

    def _work(self, waits_s: float, sums: Sequence[float], work_s: float) -> ClockedWork[float]:
        """A step, the host's work included; ``sums`` as of :meth:`_at`."""
        pass_s = sum(sums[:-JOULES]) + waits_s
        hidden = min(work_s, pass_s) if self._asynchronous else 0.0
        return ClockedWork(pass_s + self.gap_s + work_s - hidden, *sums[-JOULES:])


@lru_cache(maxsize=KEPT)
def step_prices(deployment: Deployment) -> StepPrices:
    """The prices of a deployment's steps: what one simulation filled, the next one finds, in this
    process and in later ones.
    """
    return StepPrices(step_model(deployment), KeptFills.of_deployment(deployment))
