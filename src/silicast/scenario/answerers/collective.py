"""Task ``collective``: one collective call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np

from silicast.communication.collective import CollectiveTimes, collective_times
from silicast.communication.topology import Topology
from silicast.composition.engine import Engine
from silicast.composition.pipes import pipe_parts
from silicast.composition.remarks import ELSEWHERE, NETWORK_ASSUMED
from silicast.core.prediction import Domain, Part, Quantity, to_picoseconds
from silicast.hardware.cluster import Cluster
from silicast.hardware.device import Device
from silicast.hardware.platforms import listed, runs_on
from silicast.kernels.physics import load_physics
from silicast.learning.tiers import Evidence
from silicast.scenario.answer import Answer, answer, why_tree
from silicast.scenario.answerer import Answerer, ignored, refuse_unmodelled, register
from silicast.scenario.chosen_engine import chosen_engine, options_elsewhere
from silicast.scenario.decode import Scenario
from silicast.scenario.measured import calibrated_by
from silicast.scenario.resolve import cluster_of, device_of, evidence_of, namesake_warnings
from silicast.scenario.workloads import CollectiveWorkload
from silicast.workload.op import Op, Variant

_BUS_FACTOR = {"all_reduce": 2.0, "broadcast": 0.0, "send_recv": 0.0}
"""Times (n - 1) / n: bytes on the bus per byte of nccl-tests' size; 0 = each byte once."""


@register
@final
class CollectiveAnswerer(Answerer):
    """Metrics: ``latency_us``, ``bus_bandwidth_gbs`` (as nccl-tests defines it)."""

    task: ClassVar[str] = "collective"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        work = scenario.workload
        assert isinstance(work, CollectiveWorkload)
        refuse_unmodelled(
            scenario, "speculative", "lora", "colocation", "pools", "links",
            "cluster.slow_gpus", "cluster.failures",
        )  # fmt: skip
        device = device_of(scenario)
        evidence = evidence_of(scenario, device)
        cluster = cluster_of(scenario, device)
        engine, said = chosen_engine(scenario) if scenario.engine is not None else (None, [])
        topology = topology_between(cluster, work.gpus)
        if engine is not None:
            topology = replace(topology, nvls=engine.nvls)
        found = collective_times(
            work.op, np.array([work.bytes], dtype=np.int64), work.gpus, topology,
            work.implementation or (engine.collectives if engine else ""),
            work.launch or "graph", work.dtype, work.implementation_version or "",
            learned=evidence.learned, measured=evidence.collectives,
        )  # fmt: skip
        estimate, low, high, bound = (
            float(row[0]) for row in (found.estimate_s, found.p05_s, found.p95_s, found.bound_s)
        )
        bound_only = scenario.raw.tier == "bound"
        latency = Quantity(bound, bound, high) if bound_only else Quantity(estimate, low, high)
        moved = work.bytes * _bus_factor(work.op, work.gpus) / 1e9
        bandwidth = Quantity(moved / latency.estimate, moved / latency.p95, moved / latency.p05)
        domain: Domain = "in"
        warnings = ignored(scenario, "model", "precision", "parallel", "host", "limits")
        warnings += [*namesake_warnings(device), *said, *found.warnings]
        warnings += _unused(scenario, found)
        if engine is not None:
            warnings += _elsewhere(scenario, engine, device)
        if "inter_node" in cluster.assumed and topology.nodes > 1:
            warnings.append(NETWORK_ASSUMED.format(cluster.inter_node.name))
        if not load_physics("communication").is_measured(device.architecture):
            domain = "near"
        return answer(
            metrics={"latency_us": latency.times(1e6), "bus_bandwidth_gbs": bandwidth},
            bound={"latency_us": bound * 1e6},
            tier="bound" if bound_only else found.tiers()[0],
            domain=domain,
            warnings=warnings,
            why=_why(work, latency, found, device.name, scenario.raw.why == "full")
            | _calibrated(work, found, evidence),
        )


def _calibrated(
    work: CollectiveWorkload, found: CollectiveTimes, evidence: Evidence
) -> dict[str, Any]:
    """By what, if by anything."""
    if found.calibrated is None or float(found.calibrated[0]) <= 0.0:
        return {}
    return calibrated_by(evidence, [Op.make(work.op, Variant(dtype=work.dtype))])


def _elsewhere(scenario: Scenario, engine: Engine, device: Device) -> list[str]:
    """Remarks that the engine, or one of its options, does not exist on the device."""
    said = options_elsewhere(scenario, engine, device)
    if not runs_on(device, engine.runs_on):
        said.append(ELSEWHERE.format(engine.name, device.name, listed(engine.runs_on), "it"))
    return said


def _unused(scenario: Scenario, found: CollectiveTimes) -> list[str]:
    """A warning where a calibration is given that does not apply to the call."""
    if scenario.raw.calibration is None or scenario.raw.tier not in ("auto", "calibrated"):
        return []
    if found.calibrated is not None and float(found.calibrated[0]) > 0.0:
        return []
    return ["the calibration holds no such collective of this device, size and number of devices"]


def _bus_factor(op: str, gpus: int) -> float:
    factor = _BUS_FACTOR.get(op, 1.0)
    return factor * (gpus - 1) / gpus if factor else 1.0


def topology_between(cluster: Cluster, gpus: int) -> Topology:
    """The links between the participants; no link joins more devices than the cluster has."""
    return Topology.of(
        cluster.linked_device,
        gpus,
        gpus_per_node=max(min(cluster.domain, cluster.gpus), cluster.gpus_per_node),
        inter=cluster.inter_node.link,
        paths=cluster.pcie_paths,
    )


def _why(
    work: CollectiveWorkload, latency: Quantity, found: CollectiveTimes, device: str, detailed: bool
) -> dict[str, Any]:
    exposed = to_picoseconds(latency.estimate)
    seconds = np.array([latency.estimate])
    part = Part(
        work.op,
        exposed,
        bound_ps=to_picoseconds(float(found.bound_s[0])),
        bound_by=found.bound_by()[0],
        children=pipe_parts(found.resource_s, seconds, np.ones(1), exposed) if detailed else (),
    )
    errors = {name: round(value, 6) for name, value in sorted(found.shared_log_sd.items())}
    errors["independent"] = round(float(found.independent_log_sd[0]), 6)
    return {**why_tree(part), "algorithm": found.choice[0], "log_sd": errors, "device": device}
