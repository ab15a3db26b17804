"""Kernels that are asked for one at a time, answered by one tape each.

A batch that a tape answers (:mod:`silicast.kernels.taped`) still costs a record of every quantity
that its formula knows, the search for the clock, energy and names. All that a :class:`KernelTime`
holds is traced here as one formula of its sizes and its clock. Asked at the clock of the device it
says too whether a power limit binds: where none does, its numbers are the answer. Else the clock is
found as for all kernels, and the tape is asked again there. Bits are those of
:func:`silicast.learning.dispatch.times`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from silicast.core import compiled_core, xp
from silicast.core.prediction import Quantity
from silicast.core.remembered import RecentlyUsed
from silicast.core.xp import UntraceableError
from silicast.hardware.device import Device
from silicast.kernels import taped
from silicast.kernels.implementation import CandidateLabels, Implementation, KernelTimes, shared_of
from silicast.kernels.limits import IN_TURN, competing
from silicast.kernels.physics.energy import kernel_energy
from silicast.kernels.physics.held_clock import beyond_own, share_in_state
from silicast.kernels.physics.measured_range import domain_of
from silicast.kernels.physics.power import board, drawn, limits
from silicast.kernels.registry import implementation_for
from silicast.learning.kernel_time import KernelTime, memory_s
from silicast.learning.tiers import Evidence, shipped_times
from silicast.workload.graphs.op import Op, OpBatch

if TYPE_CHECKING:
    from silicast.core.tape import Tape

_OF_POWER = 3
"""Numbers behind those of a kernel: its seconds that no power limit slows, watts of cores and of
memory."""


def time_of(op: Op, device: Device, evidence: Evidence) -> KernelTime | None:
    """The time of one op; None = it has to be asked for otherwise: there is no core, the setting
    was not asked for often enough, or cannot be traced.
    """
    if not compiled_core.runs() or evidence.measured or op.variant.config:
        return None
    names = tuple([name for name, _ in op.dims])
    model = implementation_for(op.family, device.execution_model)
    held = model.held_sizes if model is not None else frozenset()
    sizes = tuple([size for name, size in op.dims if name in held]) if held else ()
    key = (model, op.family, op.variant, names, sizes, device, evidence.learned, evidence.ceilings)
    setting = _settings.get(key) or _settings.put(key, LoneSetting())
    return setting.time_of(op, device, evidence)


def forget() -> None:
    """Drops all that is kept."""
    _settings.clear()


@final
class LoneSetting:
    """Ops that share all but their sizes, and what answers them once they were asked for often."""

    __slots__ = ("_kernel", "_requests")

    def __init__(self) -> None:
        self._requests = 0
        self._kernel: LoneKernel | None = None

    def time_of(self, op: Op, device: Device, evidence: Evidence) -> KernelTime | None:
        """The time of one of them; None, see :func:`time_of`."""
        if self._kernel is None:
            if self._requests < 0:
                return None
            self._requests += 1
            if self._requests < taped.REQUESTS:
                return None
            try:
                self._kernel = LoneKernel.traced(op, device, evidence)
            except (UntraceableError, ArithmeticError):
                self._requests = -1
                return None
        try:
            return self._kernel.time_of(op)
        except (ArithmeticError, TypeError):  # numbers that only Python holds, lengths of sequences
            return None


_settings: RecentlyUsed[Hashable, LoneSetting] = RecentlyUsed(taped.MOST)


@final
class LoneKernel:
    """A kernel model for one variant on one device under some evidence.

    Args:
        tape: of sizes; and, on a device with a power limit, of a share of the clock, and how many
            times as long kernels take there.
        shared: interval widths, warnings and labels, which sizes do not change.
    """

    def __init__(
        self, model: Implementation, device: Device, dtype: str, tape: Tape, shared: _Shared
    ) -> None:
        self._model, self._device, self._dtype = model, device, dtype
        self._tape, self._shared = tape, shared
        self._slower: taped.Steps = {}
        self._clock_of_device: tuple[float, ...] = ()
        self._room_w = 0.0
        if limits(device):
            self._clock_of_device = (1.0, 1.0)
            budget = board(device, dtype, model.clock_hz(device))
            self._room_w = budget.limit_w - budget.idle_w

    @staticmethod
    def traced(op: Op, device: Device, evidence: Evidence) -> LoneKernel:
        """Of ops with such sizes.

        Raises:
            UntraceableError: it cannot be traced; SilicastError: the device cannot run it.
        """
        model, batch = implementation_for(op.family, device.execution_model), OpBatch.single(op)
        if model is None or batch.ragged or (limits(device) and beyond_own(device)):
            raise UntraceableError("no kernels, or none whose clock is found by their draw alone")
        formula, further = partial(_numbers, model, device, evidence), 2 * limits(device)
        graph, (numbers, shared) = taped.traced(formula, batch, further, model.held_sizes)
        tape, _ = graph.tape([graph.symbol_of(value) for value in numbers])
        return LoneKernel(model, device, op.variant.dtype, tape, shared)

    def time_of(self, op: Op) -> KernelTime:
        """The time of one op.

        Raises:
            ArithmeticError: it has numbers that tapes do not hold; TypeError: lengths of sequences.
        """
        held = self._model.held_sizes
        sizes: Any = [size for name, size in op.dims if name not in held]
        numbers = self._tape.single([*sizes, *self._clock_of_device])
        if self._clock_of_device:
            seconds, core_w, memory_w = numbers[-_OF_POWER:]
            if core_w + memory_w > self._room_w:
                clock = self._clock(op, seconds, core_w, memory_w)
                numbers = self._tape.single([*sizes, *clock])
        return self._shared.time_of(op, numbers)

    def _clock(self, op: Op, seconds: float, core_w: float, memory_w: float) -> tuple[float, float]:
        """The share of the clock that the power limit leaves, and how many times as long the kernel
        takes there.
        """
        model, device, batch = self._model, self._device, OpBatch.single(op)
        slowing = model.slowing(batch, device, _as_array(seconds), self._slower)
        share = share_in_state(device, self._dtype, core_w, memory_w, seconds, slowing)
        longer: Any = 1.0 if share >= 1.0 else slowing.at_shares(_as_array(share))
        return share, longer


def _as_array(number: float) -> Any:
    """A number where types say arrays, see :mod:`silicast.core.xp`."""
    return number


@final
class _Shared:
    """Interval widths, warnings and labels of a tape, which sizes do not change; its numbers and
    these make a record.

    Args:
        times: of a formula that was traced; the numbers of ops are symbols.
        resources: names of what the third number tells apart.
    """

    def __init__(self, times: KernelTimes, energy: Any, resources: list[str]) -> None:
        labels = times.analysis.choice
        self._log_sd = dict(times.shared_log_sd)
        self._labels = list(labels.labels) if isinstance(labels, CandidateLabels) else [""]
        self._resources = resources
        self._warnings, self._measured, self._built = times.warnings, times.measured, times.built
        self._has_energy, self._has_ceiling = energy is not None, times.ceiling_s is not None
        self._power_measured = energy is None or energy.measured
        if any(hasattr(value, "graph") for value in self._log_sd.values()):
            raise UntraceableError("an error that sizes change")

    def time_of(self, op: Op, numbers: list[float]) -> KernelTime:
        """Of one op.

        Args:
            numbers: :class:`_Numbers`, and others behind them.
        """
        row = _Numbers(*numbers[:_COUNT])
        return KernelTime(
            op=op,
            estimate_s=row.estimate_s,
            p05_s=row.p05_s,
            p95_s=row.p95_s,
            bound_s=row.bound_s,
            bound_by=self._resources[int(row.bound_by)],
            shared_log_sd=self._log_sd,
            independent_log_sd=row.independent_log_sd,
            tier="cross-device" if row.learned > 0.0 else "analytic",
            choice=self._labels[int(row.choice)],
            warnings=self._warnings,
            domain=domain_of(row.octaves_outside, measured=self._measured, built=self._built),
            measured=self._measured,
            energy_j=Quantity(*row[-3:]) if self._has_energy else None,
            power_measured=self._power_measured,
            ceiling_s=row.ceiling_s if self._has_ceiling else None,
            waves=row.waves,
            clock_share=row.clock_share,
            memory_s=row.memory_s,
        )


@final
class _Numbers(NamedTuple):
    """Numbers of a :class:`KernelTime` that sizes change, in the order of a tape."""

    estimate_s: Any
    p05_s: Any
    p95_s: Any
    bound_s: Any
    bound_by: Any
    independent_log_sd: Any
    octaves_outside: Any
    learned: Any
    choice: Any
    waves: Any
    clock_share: Any
    memory_s: Any
    ceiling_s: Any
    energy_j: Any
    energy_p05_j: Any
    energy_p95_j: Any


_COUNT = len(_Numbers._fields)


def _numbers(
    model: Implementation, device: Device, evidence: Evidence, batch: OpBatch, *clock: Any
) -> tuple[tuple[Any, ...], _Shared]:
    """Numbers of ops that sizes change, and what sizes do not change.

    Args:
        clock: a share of the clock, and how many times as long ops take there. The numbers end with
            the seconds of ops that no power limit slows, and watts of cores and of memory then.
    """
    times: Any = shipped_times(model, device, evidence, batch, *clock)
    energy: Any = kernel_energy(times, batch, device)
    analysis = times.analysis
    resources, largest = _largest(analysis.resource_s)
    choice: Any = 0.0
    if isinstance(analysis.choice, CandidateLabels):
        choice = xp.float64(analysis.choice.index)
    elif analysis.choice is not tuple:
        raise UntraceableError("labels that are no candidates'")
    energies = [0.0] * 3
    if energy is not None:
        energies = [energy.estimate_j, energy.p05_j, energy.p95_j]
    numbers = _Numbers(
        estimate_s=times.estimate_s,
        p05_s=times.p05_s,
        p95_s=times.p95_s,
        bound_s=times.bound_s,
        bound_by=largest,
        independent_log_sd=times.independent_log_sd,
        octaves_outside=times.octaves_outside,
        learned=0.0 if times.learned is None else times.learned,
        choice=choice,
        waves=analysis.demand.waves,
        clock_share=1.0 if times.clock_share is None else times.clock_share,
        memory_s=memory_s(times, device),
        ceiling_s=0.0 if times.ceiling_s is None else times.ceiling_s,
        energy_j=energies[0],
        energy_p05_j=energies[1],
        energy_p95_j=energies[2],
    )
    shared = _Shared(times, energy, resources)
    if not clock:
        return numbers, shared
    free = model.free(shared_of(model, batch.variant, device), batch, analysis)
    draw = drawn(analysis, batch.variant.dtype, device, free.time_s, model.clock_hz(device))
    return (*numbers, free.time_s, draw.core_w, draw.memory_w), shared


def _largest(resource_s: Mapping[str, Any]) -> tuple[list[str], Any]:
    """Names of resources, and the position of that which takes longest, the first of equal ones.

    Raises:
        UntraceableError: some of them take turns.
    """
    if any(name in resource_s for name in IN_TURN):
        raise UntraceableError("resources that take turns")
    needs = competing(resource_s)
    names = list(needs)
    at: Any = 0.0
    most = needs[names[0]]
    for position, name in enumerate(names[1:], start=1):
        longer = needs[name] > most
        at, most = xp.where(longer, float(position), at), xp.maximum(most, needs[name])
    return names, at
