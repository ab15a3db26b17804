"""What crosses the link between a device and its host, and what the host does with its own memory.

    copy    bytes / min(link, a device's part of the host's memory rate)
    update  bytes / that part: an optimizer on a CPU is bound by its memory

The link carries as much in each direction; ranks of one node share the memory of its host evenly.
Copy engines and CPUs take no cores of the device: by the one law of concurrency a copy takes of the
device's memory what it moves, and nothing of the links between devices.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.host import Host
from silicast.workload.graphs.op import OpBatch

if TYPE_CHECKING:
    from silicast.communication.collective import CollectiveTimes

HOST_COPY, HOST_UPDATE = "host_copy", "host_update"
OF_HOST = frozenset((HOST_COPY, HOST_UPDATE))
"""Families whose one size is ``bytes``: over the link, or to and from the host's memory."""
RESOURCE = {HOST_COPY: "host_link", HOST_UPDATE: "host_memory"}
"""What sets the time of each."""
LOG_SD = 0.2
"""Between hosts, drivers and pinned buffers, of what is reached of the peak rates; judged."""
USUAL_MEMORY_GB_PER_S = 400.0
"""Of a node whose host is not known: two sockets of eight channels DDR4-3200."""


def link_bytes_per_s(machine: Machine) -> float:
    """Peak of one device's link to its host, per direction: as stated, NVLink-C2C, else PCIe.

    Raises:
        SilicastError: neither is known, or it carries nothing.

    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.composition.engines.engine import find_engine
    >>> engine = find_engine("megatron")
    >>> [link_bytes_per_s(Machine(find_device(name), engine)) / 1e9 for name in ("H100", "GB200")]
    [64.0, 450.0]
    """
    link_gb_per_s, links = machine.host.link_gb_per_s, machine.device.links
    link = links.get("nvlink_c2c") or links.get("pcie")
    rate = link_gb_per_s * 1e9 or (link.bandwidth_bytes_per_s if link is not None else 0.0)
    if not rate > 0.0:
        raise SilicastError(
            f"no link between {machine.device.name} and its host is known",
            field="host.link_gb_per_s",
            hint="state its rate, GB/s per direction",
        )
    return rate


def copy_bytes_per_s(machine: Machine) -> float:
    """Peak of copies between one device and its host: of the link, or of the device's part of the
    host's memory where that is known and less.
    """
    link = link_bytes_per_s(machine)
    known = node_host(machine).memory_gb_per_s > 0.0
    return min(link, memory_bytes_per_s(machine)) if known else link


def node_host(machine: Machine) -> Host:
    """The host of a node: as stated, what is left out as of the devices' usual system."""
    host = machine.host
    if host.cpu != "reference":
        return host
    usual = machine.links.host
    return replace(
        host,
        memory_gb=host.memory_gb or usual.memory_gb,
        memory_gb_per_s=host.memory_gb_per_s or usual.memory_gb_per_s,
    )


def memory_bytes_per_s(machine: Machine) -> float:
    """A device's part of the peak rate of its host's memory."""
    whole = node_host(machine).memory_gb_per_s or USUAL_MEMORY_GB_PER_S
    return whole * 1e9 / machine.links.gpus_per_node


def host_times(batch: OpBatch, machine: Machine) -> CollectiveTimes:
    """Times of copies, or of updates, of so many bytes."""
    size = np.asarray(batch.dims["bytes"], dtype=np.float64)
    table = machine.engine.parallel
    peak = memory_bytes_per_s(machine)
    reached = peak * table.host_memory_share
    if batch.family == HOST_COPY:
        peak = copy_bytes_per_s(machine)
        reached = peak * table.host_link_share
    bound = size / peak
    return times_with_host(size / reached, bound, {RESOURCE[batch.family]: bound}, LOG_SD)


def times_with_host(
    estimate: F64, bound: F64, resource_s: dict[str, F64], log_sd: float
) -> CollectiveTimes:
    """Times of work that depends on a host, seconds, shape (n,).

    Args:
        resource_s: what the work occupies at its peak rate -> seconds.
        log_sd: between hosts, common to all such work.
    """
    from silicast.communication.collective import CollectiveTimes

    spread = math.exp(Z90 * log_sd)
    return CollectiveTimes(
        estimate_s=estimate,
        p05_s=np.maximum(estimate / spread, bound),
        p95_s=estimate * spread,
        bound_s=bound,
        resource_s=resource_s,
        shared_log_sd={"host_link": log_sd},
        independent_log_sd=np.zeros_like(estimate),
        choice=("",) * len(estimate),
    )
