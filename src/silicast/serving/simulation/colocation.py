"""Several models on the same devices: their simulations run side by side, and slow one another.

Each tenant has traffic, engine and replicas of its own; replica k of each is on the same devices as
replica k of the others. The tenant whose next event is the earliest goes on. When a step, or a
stretch of decode steps, begins or ends on a device, the rates of all that run there change
(:mod:`~silicast.serving.simulation.sharing`); what is left of a step then takes so much longer or
shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from silicast.composition.prices.step_price import Needs, StepNeeds
from silicast.core.numerics import I64
from silicast.serving.simulation.event_loop import Simulation
from silicast.serving.simulation.replica import Replica
from silicast.serving.simulation.sharing import UNIT, DeviceLoad, Law, rates
from silicast.serving.statistics.records import Records

NEVER = 1 << 62


@final
class Tenant:
    """One of the models on a device.

    Args:
        needs: of its steps, of the device that it was priced on; None = all of every resource.
        cores: share of the whole device's cores that this device has.
    """

    def __init__(
        self, simulation: Simulation, needs: StepNeeds | None = None, cores: float = 1.0
    ) -> None:
        self.simulation, self._needs, self._cores = simulation, needs, cores

    def needs(self, replica: Replica) -> Needs:
        """What the work under way needs of the whole device."""
        work = replica.under_way
        if self._needs is None or work is None:
            return 1.0, 1.0, 0.0
        decoding, new, prompts, past, there = work.counts
        groups = len(replica.groups)
        numbers = (each // groups for each in (prompts, new, past + new, decoding, there))
        cores, dram, links = self._needs.needs(*numbers)
        return cores * self._cores, dram, links


@final
class WorkProgress:
    """The work under way of one replica, and how far it is.

    Attributes:
        begun: number of the work; 0 = none.
        load: on the device.
        done: of its work, in units of :data:`~silicast.serving.simulation.sharing.UNIT` a
        nanosecond.
    """

    def __init__(self, tenant: Tenant, replica: Replica) -> None:
        self.tenant, self.replica = tenant, replica
        self.begun, self.load, self.done = 0, DeviceLoad(), 0
        self._rate, self._since = UNIT, 0
        self._starts = self._ends = np.zeros(0, dtype=np.int64)

    def looked_at(self, now_ns: int) -> bool:
        """Notes whether other work is under way than before; True = it is."""
        work = self.replica.under_way
        begun = self.replica.begun if work is not None else 0
        if begun == self.begun:
            return False
        self.begun, self.done, self._rate, self._since = begun, 0, UNIT, now_ns
        if work is None:
            self.load = DeviceLoad()
            return True
        starts, ends = work.times
        self._starts, self._ends = starts - now_ns, ends - now_ns
        device_ns = float((ends - starts).sum())
        busy = min(device_ns / max(int(ends[-1]) - now_ns, 1), 1.0)
        self.load = DeviceLoad(busy, self.tenant.needs(self.replica), device_ns / work.steps)
        return True

    def at_rate(self, rate: int, now_ns: int) -> bool:
        """The work goes on at another rate from now; True = its end has moved."""
        if not self.begun or rate == self._rate:
            return False
        self.done += (now_ns - self._since) * self._rate
        self._rate, self._since = rate, now_ns
        work = self.replica.under_way
        assert work is not None
        spans = zip(work.times, (self._starts, self._ends), strict=True)
        starts, ends = (self._moved(old, alone[: work.steps]) for old, alone in spans)
        self.replica.retime(starts, ends)
        return True

    def _moved(self, old_ns: I64, alone_ns: I64) -> I64:
        """When so much work is done; what is done already stays when it was."""
        left = alone_ns * UNIT - self.done
        later: I64 = self._since - (-left // self._rate)
        moved: I64 = np.where(left > 0, later, old_ns)
        return moved


@final
class Colocation:
    """Tenants on shared devices.

    Args:
        tenants: with as many replicas each.
        law: by which they slow one another.

    Raises:
        ValueError: different numbers of replicas, or replicas with several steps in flight.
    """

    def __init__(self, tenants: Sequence[Tenant], law: Law) -> None:
        counts = {len(each.simulation.replicas) for each in tenants}
        every = [replica for each in tenants for replica in each.simulation.replicas]
        if len(counts) != 1 or any(each.stepper.in_flight > 1 for each in every):
            raise ValueError("tenants need as many replicas each, of one stage")
        self.tenants, self.law = list(tenants), law
        self._devices = [
            [WorkProgress(each, each.simulation.replicas[number]) for each in tenants]
            for number in range(counts.pop())
        ]

    def run(self) -> list[Records]:
        """Runs until every request of every tenant is answered."""
        while self.next_ns >= 0:
            self.advance()
        return [each.simulation.close() for each in self.tenants]

    @property
    def next_ns(self) -> int:
        """Time of the next event of all tenants; -1 = there is none."""
        now = min(self._times())
        return now if now < NEVER else -1

    def advance(self) -> None:
        """Takes the next event; of several at one time, that of the first tenant."""
        times = self._times()
        now = min(times)
        index = times.index(now)
        self.tenants[index].simulation.advance()
        for device in self._devices:
            if device[index].looked_at(now):
                self._share(device, now)

    def _times(self) -> list[int]:
        times = (each.simulation.next_ns for each in self.tenants)
        return [time if time >= 0 else NEVER for time in times]

    def _share(self, device: Sequence[WorkProgress], now_ns: int) -> None:
        """The rates on a device change, and the steps there end at other times."""
        result = rates(self.law, [each.load for each in device])
        for each, rate in zip(device, result, strict=True):
            if each.at_rate(rate, now_ns):
                each.tenant.simulation.reschedule(each.replica)
