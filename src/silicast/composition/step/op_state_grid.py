"""One evaluation of a kind of node in many batch states: different ops x states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from msgspec import Struct, structs

from silicast.composition.engines.host_copies import HOST_COPY
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.limits import Also, also_bound_by, bound_by
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import above_static_at, above_static_j
from silicast.kernels.physics.held_clock import beyond_own, dynamic_j
from silicast.kernels.physics.power import drawn
from silicast.kernels.registry import implementation_for
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.nodes import Phase
from silicast.workload.graphs.op import Dim, OpBatch, Variant

if TYPE_CHECKING:
    from silicast.communication.collective import CollectiveTimes

_ONE: I64 = np.zeros(1, dtype=np.int64)
EXCHANGES = frozenset(("dispatch", "combine"))
"""Kernels that move tokens between the ranks of their experts."""
Times: TypeAlias = "KernelTimes | CollectiveTimes"


@final
class NodeGroup(Struct, frozen=True):
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

    @cached_property
    def _different(self) -> int:
        """The number of different ops that were evaluated."""
        number: int = max(self.ops.tolist()) + 1
        return number

    @property
    def sizes(self) -> int:
        """The number of evaluated sizes of all ops."""
        return self._different * self.count

    @property
    def is_kernel(self) -> bool:
        """Whether cores compute it: no collective, no exchange, nothing of the host."""
        return isinstance(self.times, KernelTimes) and self.group.family not in EXCHANGES

    def dram_bytes(self) -> Any:
        """Bytes to and from main memory, of each size."""
        if self.is_kernel:
            assert isinstance(self.times, KernelTimes)
            return self.times.analysis.demand.level_bytes.get("dram", 0.0)
        if self.batch is not None and self.group.family == HOST_COPY:
            return self.batch.dims["bytes"]
        return 0.0

    def fill(self) -> Any:
        """The share of the cores that each size takes."""
        if self.is_kernel:
            assert isinstance(self.times, KernelTimes)
            return np.minimum(self.times.analysis.demand.waves, 1.0)
        if self.batch is not None and not isinstance(self.times, KernelTimes):
            return 0.0  # of the host: copy engines and the CPU take no cores
        return load_physics("composition").default["collective_cores"]

    def octaves_outside(self) -> Any:
        """Factors of two between each size and the nearest that was measured."""
        return self.times.octaves_outside if isinstance(self.times, KernelTimes) else 0.0

    def spread(self, values: F64) -> F64:
        """One value an evaluated size, over the states, shape (members, rows)."""
        result: F64 = np.reshape(values, -1)[self.positions]
        return result

    @cached_property
    def positions(self) -> I64:
        """Place of each member in each state among the sizes of all ops, shape (members, rows)."""
        return self.ops[:, None] * self.count + self.size_index

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
        """The call of :meth:`of_states`, but with the times of all states, and its own places
        in them; None = all of them.
        """
        rows, used = self._sizes_of(states)
        if not len(rows):
            return None
        position = _ONE
        if len(rows) > 1:
            used, position = np.unique(used, return_inverse=True)
        different = self._different
        if len(used) == self.count:
            return structs.replace(self, rows=rows, size_index=position), None
        index = (np.arange(different)[:, None] * self.count + used).ravel()
        batch = None if self.batch is None else self.batch.rows(index)
        cut = structs.replace(self, rows=rows, size_index=position, count=len(used), batch=batch)
        return cut, index

    def _sizes_of(self, states: I64) -> tuple[I64, I64]:
        """Places in ``states``, which ascend, of those that this call has, and their sizes."""
        near = np.minimum(np.searchsorted(self.rows, states), len(self.rows) - 1)
        rows = np.flatnonzero(self.rows[near] == states)
        return rows, self.size_index[near[rows]]

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
        return draw.core_w * seconds, draw.memory_w * seconds, self.dynamic_j(device)

    def dynamic_j(self, device: Device) -> Any:
        """Energy by the law of dynamic power, the last of :meth:`joules`."""
        if not isinstance(self.times, KernelTimes) or self.batch is None or not beyond_own(device):
            return 0.0
        seconds = self.times.estimate_s
        implementation = implementation_for(self.batch.family, device.execution_model)
        assert implementation is not None
        analysis, analysed = self.times.analysis, implementation.analysed
        return dynamic_j(analysis, self.batch, device, seconds, analysed)

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
        rows, used = self._sizes_of(states)
        if not len(rows):
            return None
        if self.batch is None or not isinstance(self.times, KernelTimes):
            return self.of_states(states)
        different = np.arange(self._different)[:, None]
        index = (different * self.count + used).ravel()
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
