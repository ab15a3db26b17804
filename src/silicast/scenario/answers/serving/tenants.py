"""Models that share devices: what each runs on, beside the others and alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import msgspec

from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.step_price import StepNeeds
from silicast.composition.prices.stepper import SlowerPrices
from silicast.composition.step.step import step_model
from silicast.core.errors import SilicastError, errors_located, unknown_name, unsupported
from silicast.hardware.device import Device
from silicast.hardware.partitions import chosen_profiles, fewer_cores, isolated, sharing
from silicast.hardware.platforms import listed, runs_on
from silicast.scenario.answerer import refuse_unmodelled
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.deployments import ScenarioPool as Deployed
from silicast.scenario.resolving.deployments import pools_of
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.schema import ColocationTable
from silicast.serving.simulation.colocation import Colocation, Tenant
from silicast.serving.simulation.deploy import replica_spec
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.fleet import Fleet, ReplicaPool
from silicast.serving.simulation.launch import Expected
from silicast.serving.simulation.routers import LeastLoaded, RoundRobin
from silicast.serving.simulation.sharing import Law, TimeSlicing, Together
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Requests

ROUNDING = 1e-3
"""By how much stated shares may add up to more than 1."""
UNMEASURED = (
    "colocation: no measurement of models beside each other was found; the slowdown follows from "
    "{}, and its error is judged"
)
BASIS = {
    "time_slice": "turns on the device",
    "mps": "average shares of cores and memory bandwidth",
    "mig": "each part taken as a smaller device",
}


@final
@dataclass(frozen=True)
class Neighbour:
    """One model of several on a device.

    Attributes:
        fleet: beside the others; ``alone``: with the device to itself.
        cores: share of the device's cores that it may use.
        part: of the device, for people; "" = all of it.
    """

    name: str
    fleet: Fleet
    alone: Fleet
    cores: float = 1.0
    part: str = ""


@final
@dataclass(frozen=True)
class SharedDevices:
    """Models on shared devices.

    Attributes:
        mode: of sharing; ``law``: by which they slow one another, None = not at all.
        log_sd: judged error of their steps beside each other.
    """

    mode: str
    neighbours: tuple[Neighbour, ...]
    law: Law | None
    log_sd: float

    def simulate(
        self, requests: Sequence[Requests], specs: Sequence[Sequence[ReplicaSpec]]
    ) -> list[Records]:
        """Each model's requests on replicas of these kinds, all together."""
        every = [
            each.fleet.simulation(item, kinds)
            for each, item, kinds in zip(self.neighbours, requests, specs, strict=True)
        ]
        if self.law is None:
            return [each.run() for each in every]
        weighed = isinstance(self.law, Together)
        tenants = [
            Tenant(
                tenant_requests,
                StepNeeds(step_model(each.fleet.entry.deployment)) if weighed else None,
                each.cores,
            )
            for tenant_requests, each in zip(every, self.neighbours, strict=True)
        ]
        return Colocation(tenants, self.law).run()


def shared_of(scenario: Scenario, expected: Expected) -> tuple[SharedDevices, list[str]]:
    """The models of a scenario with ``colocation``, and what was assumed.

    Args:
        expected: the traffic that each engine is launched for.

    Raises:
        SilicastError: pools that cannot share devices, shares that do not add up, a model that
            does not fit into its share.
    """
    refuse_unmodelled(scenario, "speculative", "lora", "links")
    pools, division = division_of(scenario)
    neighbours = tuple(
        neighbour_of(name, pool, expected, *part)
        for (name, pool), part in zip(pools.items(), division.parts, strict=True)
    )
    shared = SharedDevices(division.mode, neighbours, division.law, division.log_sd)
    return shared, division.remarks


@final
@dataclass(frozen=True)
class DeviceDivision:
    """How pools share a device.

    Attributes:
        parts: of each pool, the device that it runs on and its share of the memory.
        law, log_sd: see :class:`SharedDevices`; remarks: what was assumed.
    """

    mode: str
    parts: list[tuple[Device, float]]
    law: Law | None
    log_sd: float
    remarks: list[str]


def division_of(scenario: Scenario) -> tuple[Mapping[str, Deployed], DeviceDivision]:
    """The pools of a scenario with ``colocation``, and how they share their devices; raises as
    :func:`shared_of`.
    """
    table = scenario.raw.colocation
    assert table is not None
    bare = msgspec.structs.replace(
        scenario, raw=msgspec.structs.replace(scenario.raw, colocation=None)
    )
    pools = pools_of(bare)
    device = _one_device(pools, table.mode)
    shares = _shares(table, list(pools))
    has_shares = table.shares is not None
    remarks = [f"{name}: {text}" for name, pool in pools.items() for text in pool.warnings]
    remarks.append(UNMEASURED.format(BASIS[table.mode]))
    parts: list[tuple[Device, float]]
    constants = sharing()
    law: Law | None = None
    if table.mode == "mig":
        profiles = chosen_profiles(device, shares)
        parts, log_sd = [(isolated(device, each), 1.0) for each in profiles], constants.mig.log_sd
        if len({each.name for each in profiles} | {device.name}) > 1:
            chosen = zip(pools, profiles, strict=True)
            remarks.append(f"colocation: parts {', '.join(f'{n}: {p.name}' for n, p in chosen)}")
    elif table.mode == "mps":
        if not runs_on(device, constants.mps.on):
            raise unsupported(
                f"{device.name} has no mps: it is on {listed(constants.mps.on)}",
                "colocation.mode",
                "time_slice",
            )
        cores = [
            max(round(share * device.cores), 1) if has_shares else device.cores for share in shares
        ]
        parts = [
            (fewer_cores(device, count, f"{count} SMs"), share)
            for count, share in zip(cores, shares, strict=True)
        ]
        law, log_sd = Together(), constants.mps.log_sd
    else:
        parts, slices = [(device, share) for share in shares], constants.time_slice
        weights = tuple(share * len(shares) / sum(shares) for share in shares)
        law = TimeSlicing(weights, slices.switch_s(device) * 1e9, slices.slice_us * 1e3)
        log_sd = slices.log_sd
        if max(shares) - min(shares) > ROUNDING:
            remarks.append(
                "colocation.shares: turns of unequal length, which a scheduler above the driver "
                "must give: the driver's own are equal"
            )
    return pools, DeviceDivision(table.mode, parts, law, log_sd, remarks)


def neighbour_of(
    name: str, pool: Deployed, expected: Expected, part: Device, memory_share: float
) -> Neighbour:
    """A pool that serves on its part of a device."""
    deployment = pool.deployment
    beside = deployment
    if part is not deployment.device:
        beside = Deployment(
            replace(deployment.machine, device=part),
            deployment.model,
            deployment.plan,
            deployment.precision,
        )
    router = LeastLoaded if pool.count > 1 else RoundRobin
    whole = replica_spec(deployment, expected)
    with errors_located(f"pools.{name}"):
        spec = replica_spec(beside, expected, memory_share=memory_share)
    if part is not deployment.device and not spec.policy.one_pass:
        spec = replace(spec, prices=SlowerPrices(spec.prices, whole.prices))
    return Neighbour(
        name,
        Fleet((ReplicaPool(beside, spec, pool.count),), router),
        Fleet((ReplicaPool(deployment, whole, pool.count),), router),
        part.cores / deployment.device.cores,
        part.name.removeprefix(deployment.device.name).strip(),
    )


def _one_device(pools: Mapping[str, Deployed], mode: str) -> Device:
    """The one device that all pools share."""
    first = next(iter(pools.values()))
    for name, pool in pools.items():
        deployment, plan = pool.deployment, pool.deployment.plan
        if deployment.device != first.deployment.device:
            raise SilicastError(
                f"{deployment.device.name} beside {first.deployment.device.name}",
                field=f"pools.{name}.device",
                hint="models that share a device name the same one",
            )
        if (plan.gpus, pool.count) != (first.deployment.plan.gpus, first.count):
            raise SilicastError(
                f"{pool.count} x {plan.gpus} devices beside {first.count} x "
                f"{first.deployment.plan.gpus}",
                field=f"pools.{name}",
                hint="models that share devices need as many replicas of as many devices each",
            )
        if plan.pp > 1 or pool.role:
            raise not_yet_of(PARTS["colocation"], f"pools.{name}")
        if mode == "mig" and plan.gpus > 1:
            raise unsupported(
                "parts of a device have no links to others",
                f"pools.{name}.parallel",
                "one device a replica, or time_slice or mps",
            )
    return first.deployment.device


def _shares(table: ColocationTable, names: Sequence[str]) -> list[float]:
    """Of each pool, in their order; equal where none are stated."""
    stated_shares = table.shares
    if stated_shares is None:
        return [1.0 / len(names)] * len(names)
    if isinstance(stated_shares, dict):
        for name in stated_shares:
            if name not in names:
                raise unknown_name(
                    f"no pool {name[:80]!r}",
                    f"colocation.shares.{name[:80]}",
                    f"pools: {', '.join(names)}",
                )
        for name in names:
            if name not in stated_shares:
                raise SilicastError("is missing", field=f"colocation.shares.{name}")
        shares = [stated_shares[name] for name in names]
    else:
        shares = list(stated_shares)
    if len(shares) != len(names):
        raise SilicastError(
            f"{len(shares)} shares for {len(names)} pools", field="colocation.shares"
        )
    if min(shares) <= 0.0 or sum(shares) > 1.0 + ROUNDING:
        nothing = [name for name, share in zip(names, shares, strict=True) if share <= 0.0]
        subject = f"the share of {nothing[0]} is" if nothing else "shares add up to"
        raise SilicastError(
            f"{subject} {min(shares) if nothing else sum(shares):g}",
            field="colocation.shares",
            hint="each above 0, together at most 1",
        )
    return shares
