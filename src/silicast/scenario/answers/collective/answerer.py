"""Task ``collective``: one collective call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np

from silicast.communication.collective import CollectiveTimes, collective_times
from silicast.communication.flows.groups import GroupContention, Groups, sharing_of
from silicast.communication.flows.packets import PacketEffects, packet_effects, widened
from silicast.communication.topology import Topology
from silicast.composition.engines.engine import Engine
from silicast.composition.step.pipes import pipe_parts
from silicast.composition.step.remarks import ELSEWHERE, NETWORK_ASSUMED
from silicast.core.prediction import Domain, Part, Quantity, to_picoseconds
from silicast.hardware.cluster import Cluster
from silicast.hardware.device import Device
from silicast.hardware.platforms import listed, runs_on
from silicast.kernels.physics.constants import load_physics
from silicast.learning.tiers import Evidence
from silicast.scenario.answer import Answer, answer, why_tree
from silicast.scenario.answerer import Answerer, ignored, refuse_unmodelled, register
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import cluster_of, device_of, evidence_of, namesake_warnings
from silicast.scenario.resolving.chosen_engine import chosen_engine, options_elsewhere
from silicast.scenario.resolving.measured import calibrated_by
from silicast.scenario.workloads import CollectiveWorkload
from silicast.workload.graphs.op import Op, Variant

_BUS_FACTOR = {"all_reduce": 2.0, "broadcast": 0.0, "send_recv": 0.0}
"""Times (n - 1) / n: bytes on the bus per byte of nccl-tests' size; 0 = each byte once."""

SHARED = "shared links"
"""The part of the time in which a group waits for others on links that both need."""
SIMULATED = (
    "{} groups at once: what they wait for each other on links between nodes is simulated at the "
    "full rates of these links, and was not measured"
)


@register
@final
class CollectiveAnswerer(Answerer):
    """Metrics: ``latency_us``, ``bus_bandwidth_gbs`` (as nccl-tests defines it)."""

    task: ClassVar[str] = "collective"

    def answer(self, scenario: Scenario) -> Answer:
        work = scenario.workload
        assert isinstance(work, CollectiveWorkload)
        refuse_unmodelled(
            scenario,
            "speculative",
            "lora",
            "colocation",
            "pools",
            "links",
            "cluster.slow_gpus",
            "cluster.gpu_log_sd",
            "cluster.failures",
        )
        device = device_of(scenario)
        evidence = evidence_of(scenario, device)
        cluster = cluster_of(scenario, device)
        engine, engine_warnings = (
            chosen_engine(scenario) if scenario.engine is not None else (None, [])
        )
        groups = groups_of(work)
        topology = topology_of_a_group(cluster, groups)
        if engine is not None:
            topology = replace(topology, nvls=engine.nvls)
        result = collective_times(
            work.op,
            np.array([work.bytes], dtype=np.int64),
            work.gpus,
            topology,
            work.implementation or (engine.collectives if engine else ""),
            work.launch or "graph",
            work.dtype,
            work.implementation_version or "",
            learned=evidence.learned,
            measured=evidence.collectives,
        )
        estimate, low, high, bound = (
            float(row[0]) for row in (result.estimate_s, result.p05_s, result.p95_s, result.bound_s)
        )
        bound_only = scenario.raw.tier == "bound"
        latency = Quantity(bound, bound, high) if bound_only else Quantity(estimate, low, high)
        sharing = None
        if groups.count > 1 and not bound_only:
            every = topology_between(cluster, groups.devices)
            sharing = sharing_of(work.op, work.bytes, every, groups)
            latency = latency.times(1.0 + sharing.extra_s / estimate)
        packets = None if bound_only else _packets(work, cluster, groups, estimate)
        if packets is not None:
            latency = widened(latency)
        moved = work.bytes * _bus_factor(work.op, work.gpus) / 1e9
        bandwidth = Quantity(moved / latency.estimate, moved / latency.p95, moved / latency.p05)
        warnings = ignored(scenario, "model", "precision", "parallel", "host", "limits")
        warnings += [*namesake_warnings(device), *engine_warnings, *result.warnings]
        warnings += _unused(scenario, result)
        if engine is not None:
            warnings += _elsewhere(scenario, engine, device)
        if "inter_node" in cluster.assumed and topology.nodes > 1:
            warnings.append(NETWORK_ASSUMED.format(cluster.inter_node.name))
        if sharing is not None:
            warnings.append(SIMULATED.format(groups.count))
        if packets is not None:
            warnings.append(packets.remark)
        measured = load_physics("communication").is_measured(device.architecture)
        alone = sharing is None and packets is None
        domain: Domain = "in" if measured and alone else "near"
        return answer(
            metrics={"latency_us": latency.times(1e6), "bus_bandwidth_gbs": bandwidth},
            bound={"latency_us": bound * 1e6},
            tier="bound" if bound_only else result.tiers()[0],
            domain=domain,
            warnings=warnings,
            why={
                **_why(work, latency, result, sharing, detailed=scenario.raw.why == "full"),
                "device": device.name,
                **_calibrated(work, result, evidence),
            },
        )


def _packets(
    work: CollectiveWorkload, cluster: Cluster, groups: Groups, estimate_s: float
) -> PacketEffects | None:
    """Why packets matter where links are shared by groups or by what is below uplinks; None where
    they do not. What was measured between nodes holds them.
    """
    every = topology_between(cluster, groups.devices)
    if not estimate_s or (groups.count == 1 and every.uplink is None):
        return None
    if every.gpus % every.local:
        if groups.count > 1:
            return None
        filled = every.nodes * every.gpus_per_node  # one that fills its nodes, of about as many
        every, groups = replace(every, gpus=filled), Groups(1, filled)
    effects = packet_effects(work.op, work.bytes, every, groups)
    return effects if effects is not None and effects.reasons else None


def _calibrated(
    work: CollectiveWorkload, result: CollectiveTimes, evidence: Evidence
) -> dict[str, Any]:
    """What calibrated the answer, for ``why``; empty where nothing did."""
    if result.calibrated is None or float(result.calibrated[0]) <= 0.0:
        return {}
    return calibrated_by(evidence, [Op.make(work.op, Variant(dtype=work.dtype))])


def _elsewhere(scenario: Scenario, engine: Engine, device: Device) -> list[str]:
    """Remarks that the engine, or one of its options, does not exist on the device."""
    remarks = options_elsewhere(scenario, engine, device)
    if not runs_on(device, engine.runs_on):
        remarks.append(ELSEWHERE.format(engine.name, device.name, listed(engine.runs_on), "it"))
    return remarks


def _unused(scenario: Scenario, result: CollectiveTimes) -> list[str]:
    """A warning where a calibration is given that does not apply to the call."""
    if scenario.raw.calibration is None or scenario.raw.tier not in ("auto", "calibrated"):
        return []
    if result.calibrated is not None and float(result.calibrated[0]) > 0.0:
        return []
    return ["the calibration holds no such collective of this device, size and number of devices"]


def _bus_factor(op: str, gpus: int) -> float:
    factor = _BUS_FACTOR.get(op, 1.0)
    return factor * (gpus - 1) / gpus if factor else 1.0


def topology_between(cluster: Cluster, gpus: int) -> Topology:
    """The links between the participants; no link joins more devices than the cluster has."""
    return Topology.from_device(
        cluster.linked_device,
        gpus,
        gpus_per_node=max(min(cluster.domain, cluster.gpus), cluster.gpus_per_node),
        inter=cluster.inter_node.link,
        paths=cluster.pcie_paths,
    )


def groups_of(work: CollectiveWorkload) -> Groups:
    """The groups of devices that call at once; usually one."""
    return Groups(work.groups, work.gpus, work.group_stride)


def topology_of_a_group(cluster: Cluster, groups: Groups) -> Topology:
    """The links between the members of one group. Where several call, uplinks are left out: all
    groups share them, which a simulation counts.
    """
    if groups.count == 1:
        return topology_between(cluster, groups.size)
    neighbours = replace(topology_between(cluster, groups.size), uplink=None)
    if groups.stride == 1 or groups.size * groups.stride <= neighbours.gpus_per_node:
        return neighbours
    every = topology_between(cluster, groups.devices)
    local = max(every.gpus_per_node // groups.stride, 1)
    return replace(every, gpus=groups.size, gpus_per_node=local, uplink=None)


def _why(
    work: CollectiveWorkload,
    latency: Quantity,
    result: CollectiveTimes,
    sharing: GroupContention | None,
    *,
    detailed: bool,
) -> dict[str, Any]:
    exposed = to_picoseconds(latency.estimate)
    part = Part(
        work.op,
        exposed,
        bound_ps=to_picoseconds(float(result.bound_s[0])),
        bound_by=result.bound_by()[0],
        children=_pipes(latency.estimate, result, sharing) if detailed else (),
    )
    errors = {name: round(value, 6) for name, value in sorted(result.shared_log_sd.items())}
    errors["independent"] = round(float(result.independent_log_sd[0]), 6)
    why = {**why_tree(part), "algorithm": result.choice[0], "log_sd": errors}
    if sharing is not None:
        why["sharing"] = {
            "groups": work.groups,
            "waited_us": sharing.extra_s * 1e6,
            "busiest_link": sharing.busiest,
            "busy_share": sharing.busy_share,
        }
    return why


def _pipes(
    seconds: float, result: CollectiveTimes, sharing: GroupContention | None
) -> tuple[Part, ...]:
    """What the time goes to, waiting for other groups last."""
    waited_s = sharing.extra_s if sharing is not None else 0.0
    waited = to_picoseconds(waited_s)
    busy_s = np.array([seconds - waited_s])
    parts = pipe_parts(result.resource_s, busy_s, np.ones(1), to_picoseconds(seconds) - waited)
    return (*parts, Part(SHARED, waited, kind="pipe")) if waited else parts
