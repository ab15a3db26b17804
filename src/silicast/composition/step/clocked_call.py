"""What a group of nodes takes at each clock of a grid, as a few numbers of each size.

Prices of steps ask for the same kernels at several clocks, and want little of each: seconds, the
bound, shares, energy. Where the compiled core runs they come from two tapes
(:mod:`silicast.kernels.taped`): one at boost, and one of what the clock changes, for all clocks
(:mod:`silicast.kernels.clock_inputs`). Else, and where a formula cannot be traced, the formulas
answer, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, final

import numpy as np
from msgspec import Struct

from silicast.composition.engines.host_weights import ON_HOST
from silicast.composition.step.op_state_grid import EXCHANGES, NodeGroup, OpStateGrid
from silicast.composition.step.states import BatchStates
from silicast.composition.step.timer import Timer, is_clocked, slowed_s
from silicast.core import compiled_core
from silicast.core.numerics import F64, I64
from silicast.core.xp import UntraceableError
from silicast.hardware.device import Device
from silicast.kernels import taped
from silicast.kernels.clock_inputs import ClockInputs
from silicast.kernels.implementation import Analysis, Implementation, KernelTimes, shared_of
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.held_clock import CLOCKS, at_step, beyond_own
from silicast.kernels.physics.power import LimitedBoard, board, drawn_from, silicon, top_hz
from silicast.learning.tiers import kernel_times
from silicast.workload.graphs.op import OpBatch, Variant

OF_BLOCKS = 1
"""Requests that a block of sizes at boost counts as, fewer than :data:`.taped.OF_ARRAYS`: a tape
saves little of it, and a first simulation asks for hardly anything else."""
_TOLD_APART = (0, 1, 8, 20, len(CLOCKS) - 1)
"""Clocks by which numbers that differ are told from others."""
_JOULES = ("core_j", "memory_j", "dynamic_j")
_PUT = ("time_s", "bound_s", *_JOULES)
_VALUES = ("time_s", "waves", "dram_bytes", *_JOULES)


@final
class CallNumbers(Struct, frozen=True):
    """Numbers of kernels at one clock, or arrays of a value a kernel, shape (n,).

    Attributes:
        time_s, bound_s: one execution alone, seconds.
        waves: thread blocks over what the device holds at once, as of :class:`.Demand`.
        dram_bytes: bytes to and from main memory; of links and the host 0, as waves and joules.
        core_j, memory_j, dynamic_j: joules, see :meth:`.OpStateGrid.joules`.
        before_s: what the analytic model says at boost, seconds; ``analytic_s``: see
            :class:`KernelTimes`.
    """

    time_s: Any
    bound_s: Any
    waves: Any
    dram_bytes: Any
    core_j: Any
    memory_j: Any
    dynamic_j: Any
    before_s: Any = 0.0
    analytic_s: Any = None

    def rows(self, names: Sequence[str]) -> F64:
        """Some of them by name, shape (names, n)."""
        table = np.empty((len(names), np.size(self.time_s)))
        for row, name in zip(table, names, strict=True):
            row[:] = getattr(self, name)
        return table


@final
class ClockedCall:
    """Some nodes in some states at any clock.

    Args:
        evaluated: the same call at the clock of a device by the formulas.
        batch: its kernels; None = something else than their clock sets what they take.
    """

    def __init__(
        self,
        timer: Timer,
        group: NodeGroup,
        evaluated: Callable[[Device], OpStateGrid],
        batch: OpBatch | None,
    ) -> None:
        self._timer, self._group, self._evaluated = timer, group, evaluated
        self._kernels = None if batch is None else ClockedKernels.from_batch(timer, batch)
        self._boosted = None if self._kernels is None else self._kernels.boosted()

    @staticmethod
    def sized(
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        symbols: Mapping[str, I64],
        count: int,
    ) -> ClockedCall:
        """As :meth:`.Timer.sized`."""
        batch = None
        if is_clocked(group) and compiled_core.runs():
            batch = timer.sizes_of(group, timer.ops_of(members)[0], symbols, count)

        def evaluated(device: Device) -> OpStateGrid:
            return timer.sized(group, members, symbols, count, device)

        return ClockedCall(timer, group, evaluated, batch)

    @staticmethod
    def of_states(
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        states: BatchStates,
        symbols: Mapping[str, I64],
    ) -> ClockedCall:
        """As :meth:`.Timer.call`, of nodes with one op; tapes answer where each state has a size of
        its own.
        """
        rows, batch = np.arange(len(states)), None
        if is_clocked(group) and compiled_core.runs():
            batch = timer.lengthy(members, states, rows)
            if batch is None and len(rows) == 1:
                batch = timer.sizes_of(group, timer.ops_of(members)[0], symbols, 1)

        def evaluated(device: Device) -> OpStateGrid:
            return timer.call(group, members, rows, states, symbols, device)

        return ClockedCall(timer, group, evaluated, batch)

    def at(self, position: int) -> CallNumbers:
        """Numbers at a place in the grid of clocks, of each evaluated size."""
        numbers = self.by_tapes(position)
        return (
            numbers_of(self.grid(position), self.device(position)) if numbers is None else numbers
        )

    def by_tapes(self, position: int) -> CallNumbers | None:
        """The same where tapes answer."""
        if self._boosted is None or not position:
            return self._boosted
        assert self._kernels is not None
        return self._kernels.slowed(self._boosted, position)

    def grid(self, position: int) -> OpStateGrid:
        """All that the formulas say there."""
        if not position:
            return self._call
        if self._group.variant.flag(ON_HOST):  # a link's share of it has no clock
            return self._evaluated(self.device(position))
        return self._timer.slowed(self._call, self.device(position))

    def device(self, position: int) -> Device:
        """The device there."""
        return at_step(self._timer.machine.boosted_device, position)

    def put(self, table: F64, members: Sequence[int], ops: I64, position: int) -> None:
        """Puts what nodes take into a table of all nodes: seconds, bounds, joules as of
        :meth:`.OpStateGrid.joules` (0 of links, exchanges and the host), shape (5, nodes, n).

        Args:
            ops: which of the evaluated ops each member runs.
        """
        rows = self.at(position).rows(_PUT)
        if self._group.family in EXCHANGES:
            rows[2:] = 0.0
        table[:, members] = rows.reshape(len(rows), -1, table.shape[2])[:, ops]

    @cached_property
    def _call(self) -> OpStateGrid:
        return self._evaluated(self.device(0))


def numbers_of(call: OpStateGrid, device: Device) -> CallNumbers:
    """Numbers of a call at the clock of its times, by formulas."""
    times = call.times
    if not isinstance(times, KernelTimes):  # of the host, or of links: none of its resources
        return CallNumbers(times.estimate_s, times.bound_s, 0.0, 0.0, 0.0, 0.0, 0.0)
    demand = times.analysis.demand
    moved = demand.level_bytes.get("dram", 0.0)
    joules = call.joules(device)
    return CallNumbers(times.estimate_s, times.bound_s, demand.waves, moved, *joules)


def values_of(numbers: CallNumbers, device: Device) -> F64:
    """What one execution of each size takes, shape (6, n): seconds, the shares of cores and of
    memory, joules as of :meth:`.OpStateGrid.joules`.
    """
    values = numbers.rows(_VALUES)
    seconds, fill, share = values[:3]
    np.minimum(fill, 1.0, out=fill)
    share /= device.dram.bandwidth_bytes_per_s
    np.divide(share, seconds, out=share, where=share > 0.0)  # what the host does may take no time
    np.minimum(share, 1.0, out=share)
    return values


@final
class ClockedKernels:
    """Some kernels, answered by tapes.

    Args:
        device: at boost.
    """

    def __init__(self, timer: Timer, model: Implementation, device: Device, batch: OpBatch) -> None:
        self._timer, self._model, self._device, self._batch = timer, model, device, batch
        evidence = timer.machine.evidence
        rests_on = evidence.learned, evidence.ceilings, evidence.whole, timer.longer_than_taken
        self._key = model, batch.variant, device, rests_on

    @staticmethod
    def from_batch(timer: Timer, batch: OpBatch) -> ClockedKernels | None:
        """Those of a batch; None = tapes do not answer for them: a user's measurements count, or
        their energy beyond the board's own limit does, or somebody changed the cores.
        """
        device, evidence = timer.machine.boosted_device, timer.machine.evidence
        if evidence.measured or batch.variant.config or not _is_as_built(device):
            return None
        return ClockedKernels(timer, timer.model_of(batch.family, device), device, batch)

    def boosted(self) -> CallNumbers | None:
        """At boost; None = there is no tape."""
        held, key = self._model.held_sizes, ("boosted", *self._key)
        count = 1 if self._batch.numbers else len(self._batch)
        counts_as = taped.OF_ARRAYS if count <= taped.FEW else OF_BLOCKS
        numbers: CallNumbers | None = taped.run(
            key, self._at_boost, self._batch, constants=held, of_arrays=counts_as
        )
        return numbers

    def slowed(self, boosted: CallNumbers, position: int) -> CallNumbers | None:
        """At a place in the grid of clocks; None = there is no tape."""
        inputs = _inputs(self._model, self._batch.variant, self._device)
        numbers = None if inputs is None else inputs.numbers(position)
        clock = None if numbers else position  # else a tape for this clock alone
        key = ("clocked", *self._key, boosted.analytic_s is None, clock)

        def formula(
            batch: OpBatch, seconds: F64, before_s: F64, known_s: F64, *inputs_there: Any
        ) -> Any:
            analytic_s = None if boosted.analytic_s is None else known_s
            record = inputs.filled(inputs_there) if inputs_there and inputs else None
            return self._at_clock(position, record, batch, seconds, before_s, analytic_s)

        known_s = boosted.time_s if boosted.analytic_s is None else boosted.analytic_s
        slowed: CallNumbers | None = taped.run(
            key,
            formula,
            self._batch,
            boosted.time_s,
            boosted.before_s,
            known_s,
            shared=numbers or (),
            constants=self._model.held_sizes,
        )
        return slowed

    def _at_boost(self, batch: OpBatch) -> CallNumbers:
        timer, device = self._timer, self._device
        times = kernel_times(self._model, batch, device, timer.machine.evidence)
        times = timer.in_models(times)
        return self._numbers(
            device,
            _budget(device, batch.variant.dtype),
            times.estimate_s,
            times.analysis,
            timer.before_s(self._model, batch, times),
            times.analytic_s,
        )

    def _at_clock(
        self,
        position: int,
        record: _Clocked | None,
        batch: OpBatch,
        seconds: F64,
        before_s: F64,
        analytic_s: F64 | None,
    ) -> CallNumbers:
        model, variant = self._model, batch.variant
        shared = shared_of(model, variant, self._device)
        if record is None:
            record = _clocked(model, variant, self._device, position)
            slow = model.analysed(batch, at_step(self._device, position))
        else:
            slow = model.analyse_clocked(batch, shared.device, record.rates)
        usual_s = model.usual_s(shared, shared.device, batch, slow)
        time_s = slowed_s(seconds, slow.bound_s, usual_s / before_s, record.most)
        return self._numbers(self._device, record.budget, time_s, slow, before_s, analytic_s)

    def _numbers(
        self,
        device: Device,
        budget: LimitedBoard | None,
        time_s: F64,
        analysis: Analysis,
        before_s: F64,
        analytic_s: F64 | None,
    ) -> CallNumbers:
        demand = analysis.demand
        core_j: Any = 0.0
        memory_j: Any = 0.0
        if budget is not None:
            known_s = time_s if analytic_s is None else analytic_s
            draw = drawn_from(analysis, budget, device.dram.bandwidth_bytes_per_s, known_s)
            core_j, memory_j = draw.core_w * time_s, draw.memory_w * time_s
        moved = demand.level_bytes.get("dram", 0.0)
        energies = core_j, memory_j, 0.0
        return CallNumbers(
            time_s, analysis.bound_s, demand.waves, moved, *energies, before_s, analytic_s
        )


@final
class _Clocked(Struct, frozen=True):
    """What formulas of a variant take of the clock: rates as of :meth:`.Implementation.clocked`,
    the budget of power, how many times as long work may take.
    """

    rates: Any
    budget: LimitedBoard | None
    most: float


def _is_as_built(device: Device) -> bool:
    """Whether neither cores nor power were changed in a way that formulas look at by the clock."""
    if device.execution_model != "simt":
        return False
    return device.cores == silicon(device).cores and not beyond_own(device)


def _budget(device: Device, dtype: str) -> LimitedBoard | None:
    """What :meth:`.OpStateGrid.joules` counts by."""
    return None if device.power_cap_w is None else board(device, dtype)


def _clocked(model: Implementation, variant: Variant, device: Device, position: int) -> _Clocked:
    slow = at_step(device, position)
    in_format, _ = with_format(slow.in_state("boost"), variant.dtype)
    rates, most = model.clocked(variant, in_format), top_hz(device) / top_hz(slow)
    return _Clocked(rates, _budget(slow, variant.dtype), most)


@lru_cache(maxsize=1024)
def _inputs(model: Implementation, variant: Variant, device: Device) -> ClockInputs | None:
    """Numbers that differ by the clock; None = the analysis asks the device itself, or something
    else differs.
    """
    if _clocked(model, variant, device, 0).rates is None:
        return None
    try:
        return ClockInputs(partial(_clocked, model, variant, device), _TOLD_APART)
    except UntraceableError:
        return None
