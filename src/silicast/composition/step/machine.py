"""What work runs on: devices, the software that drives them and the host beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, final

from silicast.composition.engines.engine import Engine
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.kernels.physics import power
from silicast.learning.tiers import ALL_SHIPPED, Evidence

if TYPE_CHECKING:
    from silicast.hardware.cluster import Cluster

IN_LINE = frozenset(("vector_cpu",))
"""Execution models whose operations run in the thread that calls them: nothing is launched ahead,
and nothing of the host is hidden."""


@final
@dataclass(frozen=True)
class Machine:
    """Everything that a time depends on beside the work itself.

    Attributes:
        power_w, clock_hz: limits the user set; None = the board's own.
        cluster: the links between the devices; None = the device's usual system.
        gpus_per_node: devices under one host where no cluster is given; 0 = the usual number.
        evidence: what kernel times may rest on beside the analytic models.
    """

    device: Device
    engine: Engine
    host: Host = Host()
    cluster: Cluster | None = None
    gpus_per_node: int = 0
    power_w: float | None = None
    clock_hz: float | None = None
    evidence: Evidence = ALL_SHIPPED

    @cached_property
    def links(self) -> Cluster:
        """The cluster, stated or usual."""
        from silicast.hardware.cluster import cluster_of

        return self.cluster or cluster_of(self.device, gpus_per_node=self.gpus_per_node or None)

    @property
    def in_line(self) -> bool:
        """Whether operations run in the thread that calls them (:data:`IN_LINE`)."""
        return self.device.execution_model in IN_LINE

    @property
    def between_s(self) -> float:
        """Where they do, what that thread takes between two of them."""
        host = self.engine.host
        return (host.between_us or host.dispatch_us) * self.host_us_s

    @cached_property
    def host_us_s(self) -> float:
        """Seconds that one microsecond of the engine's host constants takes on this host."""
        slower = self.engine.host.slower_on
        if not slower:
            return 1e-6 / self.host.factor
        cpu = self.host.cpu if self.host.cpu != "reference" else self.links.host.cpu
        return 1e-6 * slower.get(cpu, 1.0) / self.host.factor

    @property
    def framework_gb(self) -> float:
        """What the engine takes beside weights, cache and results; 10^9 bytes a device."""
        memory = self.engine.memory
        return memory.process_gb if self.in_line else memory.framework_gb

    @cached_property
    def limited_device(self) -> Device:
        """The device under the power limit that the user set, in the cluster that they stated."""
        device = self.device if self.cluster is None else self.cluster.networked(self.device)
        if self.power_w is None:
            return device
        return replace(device, power_cap_w=self.power_w)

    @cached_property
    def boosted_device(self) -> Device:
        """The device as kernels of a pass are timed: its limit slows the pass as a whole."""
        return self.limited_device.in_state("boost")

    def state_log_sd(self, clock_hz: float) -> float:
        """Log sd of a pass at a clock that the power limit holds, or the user's own."""
        most = min(power.top_hz(self.device), self.clock_hz or math.inf)
        share = min(clock_hz / most, 1.0)
        return power.state_log_sd(share, self.device)
