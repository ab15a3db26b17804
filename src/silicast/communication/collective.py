"""Predicted times of collectives: the entry point of this package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from silicast.communication.algorithms.algorithm import COLLECTIVES, Collective, Constants
from silicast.communication.algorithms.ring import sharing
from silicast.communication.correction import (
    CorrectedCurve,
    MeasuredChange,
    Model,
    curve,
    measured_change,
    shipped_curve,
)
from silicast.communication.features import CollectiveCall
from silicast.communication.library import usual_algorithms
from silicast.communication.network import (
    between_log_sd,
    network_constants,
    network_warnings,
    shares_pcie,
)
from silicast.communication.selection import (
    Sections,
    Selection,
    constants_of,
    launches,
    sections,
    select,
    shipped_sections,
)
from silicast.communication.topology import Topology
from silicast.core.calibrated import CollectiveCurve
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.core.prediction import Z90, Tier
from silicast.hardware.cluster import Paths
from silicast.hardware.device import Device
from silicast.kernels.implementation import positive
from silicast.kernels.physics.constants import Physics, load_physics
from silicast.learning.artefact import Artefact
from silicast.workload.graphs.op import OpBatch

STATED_PATHS: tuple[Paths, Paths] = ("own", "shared")
"""Kinds of hosts: with a PCIe path for every pair of devices, and whose pairs take turns."""


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
        learned: weight of a learned correction, 0..1 per row; None = there is none.
        analytic_s: the estimate without it, where there is one.
        calibrated: weight of a user's calibration, 0..1 per row; None = there is none.
    """

    estimate_s: F64
    p05_s: F64
    p95_s: F64
    bound_s: F64
    resource_s: Mapping[str, F64]
    shared_log_sd: Mapping[str, float]
    independent_log_sd: F64
    choice: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    learned: F64 | None = None
    analytic_s: F64 | None = None
    calibrated: F64 | None = None

    def tiers(self) -> list[Tier]:
        """The tier of each row: the best whose correction had any weight."""
        none = np.zeros(len(self.estimate_s))
        learned = none if self.learned is None else self.learned
        calibrated = none if self.calibrated is None else self.calibrated
        return [
            "calibrated" if y > 0.0 else "cross-device" if x > 0.0 else "analytic"
            for x, y in zip(learned.tolist(), calibrated.tolist(), strict=True)
        ]

    def bound_by(self) -> list[str]:
        """What dominates each row: "link" or "latency", or a resource of the host."""
        names = list(self.resource_s)
        largest = np.argmax(np.array([self.resource_s[name] for name in names]), axis=0)
        return [names[position] for position in largest.tolist()]


def collective_times(
    op: Collective,
    size: I64,
    gpus: int,
    where: Device | Topology,
    implementation: str = "",
    launch: str = "graph",
    dtype: str = "bf16",
    version: str = "",
    *,
    algorithm: str = "",
    physics: Physics | None = None,
    artefact: Artefact | None = None,
    learned: bool = True,
    measured: Sequence[CollectiveCurve] = (),
) -> CollectiveTimes:
    """Times of ``op`` at every size.

    Args:
        op: one of :data:`~silicast.communication.algorithms.algorithm.COLLECTIVES`.
        size: bytes as nccl-tests counts them (all_gather: the output, reduce_scatter: the
            input, all_to_all: one rank's buffer), int64 of shape (n,), at least 0.
        gpus: participants; 1 takes no time at all.
        where: a device (its usual node is assumed) or a topology for exactly ``gpus``.
        implementation: a library of :func:`~silicast.communication.library.collective_libraries`:
            an engine's own all-reduce serves small messages, the usual library the rest; "" = the
            usual library.
        launch: "graph" (replayed, as nccl-tests behaves), "eager" (launched one by one by an
            engine), or a library through which times hold the ranks' skew ("torch").
        dtype: element format; the switch cannot add integers.
        version: of the library, "" = the kernels that most of its releases have.
        algorithm: the only one that the library may take, as by ``NCCL_ALGO``; "" = any.
        physics: constants; None = the shipped ones.
        artefact: of learned corrections on these constants; None = the shipped one with the
            shipped constants, and none with others.
        learned: False = without any correction.
        measured: curves of a user's calibration on the very device.

    Raises:
        SilicastError: unknown operation, library or launch; sizes or participants out of range.

    >>> from silicast.hardware.catalog import find_device
    >>> h100 = find_device("H100")
    >>> t = collective_times("all_reduce", np.array([2**20, 2**30]), 8, h100, "nccl")
    >>> bool(2e-5 < t.estimate_s[0] < 4e-5), bool(t.bound_s[1] < t.estimate_s[1] < 6e-3)
    (True, True)
    """
    topology = where if isinstance(where, Topology) else Topology.from_device(where, gpus)
    size = np.asarray(size)
    _check(op, size, gpus, topology, launch)
    if gpus == 1 or len(size) == 0:
        return _nothing(len(size))
    call = CollectiveCall(op, topology, implementation, launch, dtype, version, algorithm)
    collective_times = _predicted(call, size, physics, artefact, learned=learned)
    if not measured:
        return collective_times
    by_usual = [name in usual_algorithms() for name in collective_times.choice]
    change = measured_change(measured, call, size, by_usual)
    return collective_times if change is None else _changed(collective_times, change)


def _moved(times: CollectiveTimes, estimate_s: F64, **changes: Any) -> CollectiveTimes:
    """Times with another estimate, of which latency is no larger a part than the whole."""
    latency_s = np.minimum(times.resource_s["latency"], estimate_s)
    resource_s = {**times.resource_s, "latency": latency_s}
    return replace(times, estimate_s=estimate_s, resource_s=resource_s, **changes)


def _changed(times: CollectiveTimes, change: MeasuredChange) -> CollectiveTimes:
    """Times with a user's corrections; the error that is left is independent at each size."""
    estimate = np.maximum(times.estimate_s * exp_fixed(change.log_ratio), times.bound_s)
    shared = sum(value * value for value in times.shared_log_sd.values())
    before = times.independent_log_sd * times.independent_log_sd + shared
    after = change.log_sd * change.log_sd
    weight = change.weight
    log_sd = np.sqrt(weight * after + (1.0 - weight) * np.maximum(before, after))
    spread = exp_fixed(Z90 * log_sd)
    return _moved(
        times,
        estimate,
        p05_s=np.maximum(estimate / spread, times.bound_s),
        p95_s=estimate * spread,
        shared_log_sd={},
        independent_log_sd=log_sd,
        calibrated=weight,
    )


def _predicted(
    call: CollectiveCall,
    size: I64,
    physics: Physics | None,
    artefact: Artefact | None,
    *,
    learned: bool,
) -> CollectiveTimes:
    """Times without a user's corrections."""
    op, topology, launch = call.op, call.topology, call.launch
    architecture = topology.device.architecture
    fitted = physics or load_physics("communication")
    device = topology.device
    constants = sections(constants_of(physics, device)) if physics else shipped_sections(device)
    selected = _selected(call, size, constants)
    bound = link_bound(op, size.astype(np.float64), topology)
    shared = _shared(fitted.is_measured(architecture), topology, constants[""])
    shared["network"] = math.hypot(shared["network"], between_log_sd(op, topology))
    independent = _independent(selected, topology, constants[""], launch)
    analytic = _with_interval(selected, bound, shared, independent, topology)
    if not learned or not fitted.is_measured(architecture):
        return analytic
    if artefact is not None:
        taught = curve(call, artefact, _model(lambda _: constants))
    else:
        taught = None if physics else shipped_curve(call, _shipped_model)
    if taught is None:
        return _within_hosts(analytic, call, size, physics, artefact)
    common = constants[""]
    return _corrected(
        analytic,
        taught,
        size,
        selected,
        topology,
        common["log_sd_network_pcie"],
        common["log_sd_per_octave"],
    )


def _within_hosts(
    analytic: CollectiveTimes,
    call: CollectiveCall,
    size: I64,
    physics: Physics | None,
    artefact: Artefact | None,
) -> CollectiveTimes:
    """No quicker than on hosts with a path for every pair, no slower than on those that share, both
    as corrected: corrections are learned on hosts that are stated, and this one may not be.
    """
    topology = call.topology
    if topology.turns == 1.0 or topology.host_paths:
        return analytic
    hosts = [replace(call, topology=replace(topology, paths=paths)) for paths in STATED_PATHS]
    separate, shared = (_predicted(host, size, physics, artefact, learned=True) for host in hosts)
    weights = [times.learned for times in (separate, shared) if times.learned is not None]
    if not weights:
        return analytic
    before = analytic.estimate_s
    least = np.minimum(separate.estimate_s, shared.estimate_s)
    estimate = np.clip(before, least, np.maximum(separate.estimate_s, shared.estimate_s))
    change = estimate / positive(before)
    return _moved(
        analytic,
        estimate,
        p05_s=np.clip(analytic.p05_s * change, analytic.bound_s, estimate),
        p95_s=analytic.p95_s * change,
        learned=np.where(estimate == before, 0.0, np.max(weights, axis=0)),
        analytic_s=before,
    )


def _selected(call: CollectiveCall, size: I64, constants: Sections) -> Selection:
    return select(
        call.op, size, call.topology, constants, call.library, call.launch, call.dtype,
        call.version, call.forced, network_constants(call.topology),
    )  # fmt: skip


def _model(sections_of: Callable[[Device], Sections]) -> Model:
    """The analytic model under the constants of a device."""

    def model(call: CollectiveCall, size: I64) -> tuple[Selection, F64]:
        constants = sections_of(call.topology.device)
        selected = _selected(call, size, constants)
        return selected, link_bound(call.op, size.astype(np.float64), call.topology)

    return model


_shipped_model = _model(shipped_sections)


def analytic_model(physics: Physics) -> Model:
    """Selections and bounds under given constants, for training corrections."""
    return _model(lambda device: sections(constants_of(physics, device)))


def _corrected(
    analytic: CollectiveTimes,
    taught: CorrectedCurve,
    size: I64,
    selection: Selection,
    topology: Topology,
    network_log_sd: float,
    per_octave: float,
) -> CollectiveTimes:
    """Times with the learned correction; shared and independent errors shrink by its weight.

    How PCIe is shared among more than two devices depends on the host, and only a few hosts were
    measured: ``network_log_sd`` of that stays. ``per_octave`` is added for every octave beyond the
    longest message of the training rows.
    """
    time, weight = taught.at(size, selection)
    estimate = np.maximum(time, analytic.bound_s)
    trained = taught.trained
    is_trained = topology.device.name in trained.devices
    shared = {
        "network": network_log_sd if shares_pcie(topology) else trained.shared_log_sd,
        "device": trained.shared_log_sd if is_trained else trained.device_log_sd,
    }
    variance = sum(value * value for value in shared.values())
    before = sum(value * value for value in analytic.shared_log_sd.values())
    apart = analytic.independent_log_sd
    further = taught.octaves_beyond(size) * per_octave
    left = taught.rest_log_sd(selection) ** 2 + further * further
    faded = apart * apart + np.maximum(before - variance, 0.0)
    log_sd = np.sqrt(weight * left + (1.0 - weight) * faded)
    spread = exp_fixed(Z90 * np.sqrt(variance + log_sd * log_sd))
    return _moved(
        analytic,
        estimate,
        p05_s=np.maximum(estimate / spread, analytic.bound_s),
        p95_s=estimate * spread,
        shared_log_sd=shared,
        independent_log_sd=log_sd,
        learned=weight,
        analytic_s=analytic.estimate_s,
    )


def collective_batch_times(
    batch: OpBatch,
    where: Device | Topology,
    *,
    learned: bool = True,
    measured: Sequence[CollectiveCurve] = (),
) -> CollectiveTimes:
    """The same for graph nodes: dims ``bytes`` and ``gpus``, library and launch in the variant.

    All rows of a batch have the same number of participants.

    Raises:
        SilicastError: rows differ in ``gpus``; else as :func:`collective_times`.
    """
    gpus = batch.dims["gpus"]
    if len(gpus) and int(gpus.min()) != int(gpus.max()):
        raise SilicastError("one batch of collectives has one group size", field="gpus")
    launch = "eager" if batch.variant.launch == "stream" else "graph"
    return collective_times(
        _known(batch.family), batch.dims["bytes"], int(gpus[0]) if len(gpus) else 1, where,
        batch.variant.library, launch, batch.variant.dtype, batch.variant.version, learned=learned,
        measured=measured,
    )  # fmt: skip


def link_bound(op: Collective, size: F64, topology: Topology) -> F64:
    """No algorithm is faster: bytes that one device must send or receive over its fastest way.

    A switch that reduces needs each contribution once; else an all-reduce is a reduce-scatter
    and an all-gather. Across nodes, what must enter the node with the fewest devices crosses all
    its adapters: all of a sum, which no node knows before, or the parts of the others; what must
    enter the pod with the fewest crosses all its uplinks.
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
    uplinks, pod = math.inf, n
    if topology.uplink is not None:
        pod = max(topology.uplink.domain, topology.gpus_per_node)
        uplinks = topology.uplink.bandwidth_bytes_per_s * pod
    if op == "send_recv":
        return size / min(network, uplinks)
    if op == "all_to_all":
        inside = (topology.local - 1) / n / rate
        out = max((n - topology.local) / network, pod * (n - pod) / uplinks)
        return size * max(inside, out / n)

    def entering(joined: int) -> tuple[int, float]:
        """The devices of the smallest part of so many, and the share of the bytes it lacks."""
        least = n - (-(-n // joined) - 1) * joined
        return least, 1.0 if op in ("all_reduce", "broadcast") else (n - least) / n

    least, lacks = entering(topology.gpus_per_node)
    between = max(lacks / (network * least), entering(pod)[1] / uplinks)
    return size * max(share * (topology.local - 1) / (n - 1) / rate, between)


def _known(op: str) -> Collective:
    for collective in COLLECTIVES:
        if op == collective:
            return collective
    raise unknown_name(f"unknown collective {op!r}", "op", ", ".join(COLLECTIVES))


def _check(op: str, size: I64, gpus: int, topology: Topology, launch: str) -> None:
    _known(op)
    if launch not in launches():
        raise SilicastError(
            f"unknown launch {launch!r}", field="launch", hint=", ".join(launches())
        )
    if gpus != topology.gpus:
        raise SilicastError(f"{gpus} participants on a topology of {topology.gpus}", field="gpus")
    if size.ndim != 1 or size.dtype.kind not in "iu":
        raise SilicastError("sizes are a vector of whole bytes", field="bytes")
    if len(size) and int(size.min()) < 0:
        raise SilicastError("a message has at least 0 bytes", field="bytes")


def _independent(selection: Selection, topology: Topology, common: Constants, launch: str) -> F64:
    """Log sd of each row's own error: of its fabric and algorithm, and of the host's floor.

    The error of the floor counts by the floor's share of the time.
    """
    fabric = "nvlink"
    if topology.fabric in {"pcie", "host"}:
        fabric = "pcie" if topology.local == 2 else "shared_pcie"
    least = common[f"log_sd_{fabric}"]
    engine = max(least, common["log_sd_kernels"])
    table = np.array([least if name in usual_algorithms() else engine for name in selection.names])
    log_sd: F64 = table[selection.picked]
    if launch == "graph":
        return log_sd
    weight = np.where(selection.time_s > 0.0, selection.floor_s / positive(selection.time_s), 0.0)
    host = weight * common[f"log_sd_{launch}"]
    total: F64 = np.sqrt(log_sd * log_sd + host * host)
    return total


def _shared(measured: bool, topology: Topology, common: Constants) -> dict[str, float]:
    network, device = common["log_sd_network"], common["log_sd_device"]
    share = sharing(topology, common)
    host = math.sqrt(share * (1.0 - share)) * math.log(topology.turns)
    if not measured:
        device = common["log_sd_device_unmeasured"]
        if topology.fabric in {"pcie", "host"}:
            network = common["log_sd_network_pcie"]
    return {"network": math.hypot(network, host), "device": device}


def _with_interval(
    selection: Selection, bound: F64, shared: dict[str, float], log_sd: F64, topology: Topology
) -> CollectiveTimes:
    estimate = np.maximum(selection.time_s, bound)
    variance = sum(value * value for value in shared.values())
    spread = exp_fixed(Z90 * np.sqrt(variance + log_sd * log_sd))
    return CollectiveTimes(
        estimate_s=estimate,
        p05_s=np.maximum(estimate / spread, bound),
        p95_s=estimate * spread,
        bound_s=bound,
        resource_s={"link": bound, "latency": selection.latency_s},
        shared_log_sd=shared,
        independent_log_sd=log_sd,
        choice=tuple(map(selection.names.__getitem__, selection.picked.tolist())),
        warnings=network_warnings(topology),
    )


def _nothing(count: int) -> CollectiveTimes:
    """One participant: no time and no error."""
    zero = np.zeros(count)
    return CollectiveTimes(
        zero, zero, zero, zero, {"link": zero, "latency": zero}, {}, zero, ("none",) * count
    )
