"""Predicted times of collectives: the front of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from silicast.communication.algorithm import COLLECTIVES, Collective, Constants, algorithm
from silicast.communication.library import Choice, choices
from silicast.communication.protocol import MICRO
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.core.prediction import Z90, Tier
from silicast.hardware.device import Device
from silicast.kernels.implementation import positive
from silicast.kernels.physics import Physics, load_physics
from silicast.workload.op import OpBatch

Launch = Literal["graph", "eager", "torch"]
NCCL_ALGORITHMS = frozenset({"ring", "short_ring", "tree", "exchange", "nvls"})
LAUNCHES: tuple[Launch, ...] = ("graph", "eager", "torch")


@final
@dataclass(frozen=True)
class CollectiveTimes:
    """Predicted times of one collective at many sizes; arrays of shape (n,), seconds.

    ``bound_s <= p05_s <= estimate_s <= p95_s`` holds for every row.

    Attributes:
        bound_s: bytes that must cross a device's link over the datasheet bandwidth.
        resource_s: "link" (the bound's time) and "latency" (start, hops, barriers, launch).
        shared_log_sd: log sd of error factors that all rows share ("network", "device").
        independent_log_sd: log sd of the rest, per row.
        choice: algorithm expected for each row.
    """

    estimate_s: F64
    p05_s: F64
    p95_s: F64
    bound_s: F64
    resource_s: Mapping[str, F64]
    shared_log_sd: Mapping[str, float]
    independent_log_sd: F64
    choice: tuple[str, ...]
    tier: Tier = "analytic"
    warnings: tuple[str, ...] = ()

    def bound_by(self) -> list[str]:
        """What dominates each row: "link" or "latency"."""
        link = self.resource_s["link"] >= self.resource_s["latency"]
        return ["link" if row else "latency" for row in link]


def collective_times(
    op: Collective,
    size: I64,
    gpus: int,
    where: Device | Topology,
    implementation: str = "",
    launch: Launch = "graph",
    dtype: str = "bf16",
    version: str = "",
    *,
    physics: Physics | None = None,
) -> CollectiveTimes:
    """Times of ``op`` at every size.

    Args:
        op: one of :data:`~silicast.communication.algorithm.COLLECTIVES`.
        size: bytes as nccl-tests counts them (all_gather: the output, reduce_scatter: the
            input, all_to_all: one rank's buffer), int64 of shape (n,), at least 0.
        gpus: participants; 1 takes no time at all.
        where: a device (its usual node is assumed) or a topology for exactly ``gpus``.
        implementation: "nccl" (also ""), or an engine ("vllm", "sglang", "trtllm") with its own
            all-reduce for small messages and NCCL for the rest.
        launch: "graph" (replayed, as nccl-tests behaves), "eager" (launched one by one by an
            engine), "torch" (one by one, timed with the ranks' skew).
        dtype: element format; the switch cannot add integers.
        version: of the library, "" = the kernels that most of its releases have.
        physics: constants; None = the shipped ones.

    Raises:
        SilicastError: unknown operation, library or launch; sizes or participants out of range.

    >>> from silicast.hardware.catalog import find_device
    >>> h100 = find_device("H100")
    >>> t = collective_times("all_reduce", np.array([2**20, 2**30]), 8, h100, "nccl")
    >>> bool(2e-5 < t.estimate_s[0] < 4e-5), bool(t.bound_s[1] < t.estimate_s[1] < 6e-3)
    (True, True)
    """
    topology = where if isinstance(where, Topology) else Topology.of(where, gpus)
    size = np.asarray(size)
    _check(op, size, gpus, topology, launch)
    if gpus == 1 or len(size) == 0:
        return _nothing(len(size))
    physics = physics or load_physics("communication")
    constants = physics.constants(topology.device.architecture)
    time, latency, names = model_times(
        op, size, topology, constants, implementation, launch, dtype, version
    )
    floor = _floor(op, topology, constants, launch)
    bound = link_bound(op, size.astype(np.float64), topology)
    own = _independent(time, floor, names, topology, constants, launch)
    return _with_interval(
        np.maximum(time, bound), bound, latency, own, _shared(physics, topology, constants), names,
        topology,
    )  # fmt: skip


def model_times(
    op: Collective,
    size: I64,
    topology: Topology,
    constants: Constants,
    implementation: str,
    launch: Launch,
    dtype: str = "bf16",
    version: str = "",
) -> tuple[F64, F64, tuple[str, ...]]:
    """Time, its size-independent part (seconds) and algorithm per row, from given constants."""
    bytes_ = size.astype(np.float64)
    rules = choices(implementation, op, topology, dtype, version)
    time, latency, names = _by_choice(rules, op, size, bytes_, topology, constants)
    copies = implementation not in {"nccl", ""} and op == "all_reduce"
    floor = _floor(op, topology, constants, launch)
    time = time + _copy(bytes_, topology, constants) if launch == "eager" and copies else time
    # symmetric memory: a copy in and a copy out beside the kernel, each launched by the host
    floors = np.where(np.array(names) == "multimem", floor * constants["multimem_calls"], floor)
    time, latency = np.maximum(time, floors), np.maximum(latency, floors)
    empty = size == 0
    return np.where(empty, 0.0, time), np.where(empty, 0.0, latency), names


def collective_batch_times(batch: OpBatch, where: Device | Topology) -> CollectiveTimes:
    """The same for graph nodes: dims ``bytes`` and ``gpus``, library and launch in the variant.

    All rows of a batch have the same number of participants.

    Raises:
        SilicastError: rows differ in ``gpus``; else as :func:`collective_times`.
    """
    gpus = batch.dims["gpus"]
    if len(gpus) and int(gpus.min()) != int(gpus.max()):
        raise SilicastError("one batch of collectives has one group size", field="gpus")
    launch: Launch = "eager" if batch.variant.launch == "stream" else "graph"
    return collective_times(
        _known(batch.family),
        batch.dims["bytes"],
        int(gpus[0]) if len(gpus) else 1,
        where,
        batch.variant.library,
        launch,
        batch.variant.dtype,
        batch.variant.version,
    )


def link_bound(op: Collective, size: F64, topology: Topology) -> F64:
    """No algorithm is faster: bytes that one device must send or receive over its fastest way.

    A switch that reduces needs each contribution once; else an all-reduce is a reduce-scatter
    and an all-gather. Across nodes, what must leave a node crosses all its adapters.
    """
    n = topology.gpus
    share = {
        "all_reduce": 1.0 if topology.multicast else 2.0 * (n - 1) / n,
        "broadcast": 1.0,
        "send_recv": 1.0,
    }.get(op, (n - 1) / n)
    rate = topology.peer_rate if op == "send_recv" else topology.rate
    if topology.inter is None:
        return size * (share / rate)
    network = topology.inter.bandwidth_bytes_per_s
    if op == "send_recv":
        return size / network
    if op == "all_to_all":
        inside = (topology.local - 1) / n / rate
        return size * max(inside, (n - topology.local) / n / network)
    leaves = (topology.nodes - 1) / topology.nodes if op != "broadcast" else 1.0
    return size * max(share * (topology.local - 1) / (n - 1) / rate,
                      leaves / (network * topology.local))  # fmt: skip


def _known(op: str) -> Collective:
    for known in COLLECTIVES:
        if op == known:
            return known
    raise SilicastError(
        f"unknown collective {op!r}", kind="unknown_name", field="op", hint=", ".join(COLLECTIVES)
    )


def _check(op: str, size: I64, gpus: int, topology: Topology, launch: str) -> None:
    _known(op)
    if launch not in LAUNCHES:
        raise SilicastError(f"unknown launch {launch!r}", field="launch", hint=", ".join(LAUNCHES))
    if gpus != topology.gpus:
        raise SilicastError(f"{gpus} participants on a topology of {topology.gpus}", field="gpus")
    if size.ndim != 1 or size.dtype.kind not in "iu":
        raise SilicastError("sizes are a vector of whole bytes", field="bytes")
    if len(size) and int(size.min()) < 0:
        raise SilicastError("a message has at least 0 bytes", field="bytes")


def _by_choice(
    rules: list[Choice],
    op: Collective,
    size: I64,
    bytes_: F64,
    topology: Topology,
    constants: Constants,
) -> tuple[F64, F64, tuple[str, ...]]:
    """Time, latency and name of the algorithm that the library's rule takes for each size."""
    time, latency = np.zeros(len(size)), np.zeros(len(size))
    picked = np.full(len(size), -1)
    labels: list[str] = []
    open_rows = np.ones(len(size), dtype=bool)
    for rule in rules:
        rows = open_rows & (size <= rule.largest)
        open_rows &= ~rows
        best: F64 | None = None
        for name, section in rule.candidates:
            found = algorithm(name).times(op, bytes_, topology, _section(constants, section))
            take = rows if best is None else rows & (found.time_s < best)
            best = found.time_s if best is None else np.minimum(best, found.time_s)
            time = np.where(take, found.time_s, time)
            latency = np.where(take, found.latency_s, latency)
            picked = np.where(take, len(labels), picked)
            labels.append(name)
    return time, latency, tuple(labels[i] for i in picked)


def _section(constants: Constants, section: str) -> dict[str, float]:
    """The constants of one section, without its prefix, over the common ones."""
    prefix = f"{section}."
    common = {name: value for name, value in constants.items() if "." not in name}
    own = {n.removeprefix(prefix): v for n, v in constants.items() if n.startswith(prefix)}
    return {**common, **own}


def _floor(op: str, topology: Topology, constants: Constants, launch: Launch) -> float:
    """Seconds that the host or the ranks' skew keep a short call from beating.

    Eager: Python, dispatch and launch of an engine's all-reduce, by its CPU. Torch: timings of
    the first rank include its wait for the last; a pair's send and receive shows none.
    """
    if launch == "graph" or (launch == "torch" and op == "send_recv"):
        return 0.0
    if launch == "torch":
        fabric = topology.fabric if topology.fabric in {"pcie", "host"} else "nvlink"
        return constants[f"{fabric}.torch_floor_us"] * MICRO
    name = "grace_eager_floor_us" if "nvlink_c2c" in topology.device.links else "eager_floor_us"
    return constants[name] * MICRO


def _copy(bytes_: F64, topology: Topology, constants: Constants) -> F64:
    """An engine's eager path copies the tensor once in device memory: read and write."""
    rate = topology.device.dram.bandwidth_bytes_per_s * constants["copy_efficiency"]
    return bytes_ * (2.0 / rate)


def _independent(
    time: F64, floor: float, names: tuple[str, ...], topology: Topology, constants: Constants,
    launch: Launch,
) -> F64:  # fmt: skip
    """Log sd of each row's own error: of its fabric and algorithm, and of the host's floor.

    What the host sets matters as far as the time is the floor; it fades with larger messages.
    """
    fabric = "nvlink"
    if topology.fabric in {"pcie", "host"}:
        fabric = "pcie" if topology.local == 2 else "shared_pcie"
    nccl, engine = constants[f"log_sd_{fabric}"], constants["log_sd_kernels"]
    own = np.array([nccl if name in NCCL_ALGORITHMS else max(nccl, engine) for name in names])
    if topology.inter is not None:
        own = np.maximum(own, constants["log_sd_network_between"])
    if launch == "graph":
        return own
    weight = np.where(time > 0.0, floor / positive(time), 0.0)
    host = weight * constants[f"log_sd_{launch}"]
    total: F64 = np.sqrt(own * own + host * host)
    return total


def _shared(physics: Physics, topology: Topology, constants: Constants) -> dict[str, float]:
    network, device = constants["log_sd_network"], constants["log_sd_device"]
    if not physics.is_measured(topology.device.architecture):
        device = constants["log_sd_device_unmeasured"]
        if topology.fabric in {"pcie", "host"}:
            network = constants["log_sd_network_pcie"]
    return {"network": network, "device": device}


def _with_interval(
    estimate: F64,
    bound: F64,
    latency: F64,
    own: F64,
    shared: dict[str, float],
    names: tuple[str, ...],
    topology: Topology,
) -> CollectiveTimes:
    variance = sum(value * value for value in shared.values())
    spread = exp_fixed(Z90 * np.sqrt(variance + own * own))
    warnings: tuple[str, ...] = ()
    if topology.assumed_inter and topology.inter is not None:
        gbit = topology.inter.bandwidth_bytes_per_s * 8e-9
        warnings = (f"network between nodes not stated: {gbit:.0f} Gb/s per device assumed",)
    return CollectiveTimes(
        estimate_s=estimate,
        p05_s=np.maximum(estimate / spread, bound),
        p95_s=estimate * spread,
        bound_s=bound,
        resource_s={"link": bound, "latency": latency},
        shared_log_sd=shared,
        independent_log_sd=own,
        choice=names,
        warnings=warnings,
    )


def _nothing(count: int) -> CollectiveTimes:
    """No participants to talk to: exactly no time, and no doubt about it."""
    zero = np.zeros(count)
    return CollectiveTimes(
        zero, zero, zero, zero, {"link": zero, "latency": zero}, {}, zero, ("none",) * count
    )
