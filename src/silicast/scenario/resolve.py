"""Names, inline tables and paths of a scenario into devices, models, engines and calibrations."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near
from silicast.core.plain_data import shown
from silicast.hardware.catalog import device_from, find_device, load_device_file
from silicast.hardware.device import NO_CAP, Device, Link
from silicast.hardware.host import Host, hosts
from silicast.hardware.host import host_of as catalog_host
from silicast.learning.tiers import Evidence
from silicast.scenario.decode import Scenario
from silicast.scenario.schema import ClusterTable, EngineTable, LimitsTable, LinkTable
from silicast.workload.transformers.plan import Plan

if TYPE_CHECKING:
    from silicast.composition.engines.engine import Engine
    from silicast.hardware.cluster import Cluster, Network
    from silicast.learning.calibration import Calibrator
    from silicast.learning.scaled import ScaledCalibrator
    from silicast.workload.models.model import ModelConfig


def device_of(scenario: Scenario) -> Device:
    """The device of the one pool, under the user's limits.

    Raises:
        SilicastError: no device, an unknown name (the nearest are offered), a bad table or file.
    """
    raw = scenario.raw
    if raw.device is None:
        raise SilicastError("is missing", field="device", hint="a name, a table or a path")
    return limited(find_any_device(raw.device, scenario.folder), raw.limits)


def find_any_device(spec: str | dict[str, Any], folder: Path, field: str = "device") -> Device:
    """A device by name, inline table or file (``.toml``, relative to ``folder``).

    A table with ``base`` is that device of the catalog with the other fields changed.
    """
    try:
        if isinstance(spec, dict):
            return device_from(spec)
        if spec.endswith(".toml"):
            return load_device_file(folder / spec)
        return find_device(spec)
    except SilicastError as error:
        raise _placed(_with_kind(error, spec, folder), field) from None


def _with_kind(error: SilicastError, spec: str | dict[str, Any], folder: Path) -> SilicastError:
    from silicast.scenario.reading.kinds_of_names import with_kind

    return with_kind(error, spec, folder)


POWER_CHOSEN = (
    "{}: taken at its largest power, {:g} W; makers of systems set {:g} W and more: state "
    "limits.power_w"
)
MOST_CLOCK = 2.0 + 1e-9
"""Times a board's boost clock up to which the laws of clock and power are tested."""
EXTRAPOLATED = "{}: {:.3g} times the boost clock of {}: laws of clock and power extrapolate"
POWER_NOT_MODELLED = "limits.power_w is not modelled on this device: its own clock is assumed"


def limited(device: Device, limits: LimitsTable) -> Device:
    """A device under power and clock limits; limits above its own change nothing.

    Raises:
        SilicastError: a clock below a tenth of the base clock, or a power that does not even feed
            the idle board: no device runs like that.
    """
    if limits.clock_mhz is not None:
        hz = limits.clock_mhz * 1e6
        base_hz = device.clocks.base_hz or device.clocks.boost_hz
        if hz < 0.1 * base_hz:
            raise SilicastError(
                f"{limits.clock_mhz:g} MHz on a device of {base_hz / 1e6:g} MHz",
                field="limits.clock_mhz",
                hint="the unit is MHz",
            )
        device = device.clock_limited_to(hz)
    if limits.power_w is not None and not above_power(device, limits):
        idle_w = board_idle_w(device)
        if limits.power_w <= idle_w:
            raise SilicastError(
                f"{limits.power_w:g} W, but {device.name} takes about {idle_w:.3g} W without work",
                field="limits.power_w",
                hint=f"at most the board's own {device.power_cap_w or math.inf:g} W, in watts",
            )
        unknowns = tuple(path for path in device.unknowns if path != NO_CAP)
        device = replace(device, power_cap_w=limits.power_w, idle_power_w=idle_w, unknowns=unknowns)
    return device


def limit_warnings(scenario: Scenario) -> list[str]:
    """Limits that change nothing because the device stays below them by itself, and a limit that
    is the choice of whoever built the system and was not stated.
    """
    from silicast.kernels.physics.power import silicon

    raw = scenario.raw
    remarks: list[str] = []
    if raw.device is None:
        return remarks
    device, limits = find_any_device(raw.device, scenario.folder), raw.limits
    times = device.clocks.boost_hz / silicon(device).clocks.boost_hz
    if times > MOST_CLOCK:
        remarks.append(EXTRAPOLATED.format(device.name, times, silicon(device).name))
    if limits.power_w is None and device.least_power_cap_w is not None:
        remarks.append(
            POWER_CHOSEN.format(device.name, device.power_cap_w or 0.0, device.least_power_cap_w)
        )
    if limits.power_w is not None and above_power(device, limits):
        remarks.append(
            f"limits.power_w = {limits.power_w:g} changes nothing: the board's own limit is "
            f"{device.power_cap_w:g} W"
        )
    fastest_mhz = max(device.clocks.max_hz, device.clocks.boost_hz) / 1e6
    if limits.clock_mhz is not None and limits.clock_mhz > fastest_mhz:
        remarks.append(
            f"limits.clock_mhz = {limits.clock_mhz:g} changes nothing: the device's own limit is "
            f"{fastest_mhz:g} MHz"
        )
    return remarks


NAMESAKE = (
    "device {}: not the board of the catalog that has this name, but one of {} that nobody "
    "measured; it differs in {}"
)
MOST_SHOWN = 6
"""Fields of such a device that are named."""


def namesake_warnings(device: Device) -> list[str]:
    """A remark where a table describes another board than the one whose name it carries."""
    if not device.differs:
        return []
    more = len(device.differs) - MOST_SHOWN
    fields = "; ".join(device.differs[:MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return [NAMESAKE.format(device.name, device.architecture, fields)]


def board_idle_w(device: Device) -> float:
    """What the board draws without work; a user's limit does not change it."""
    from silicast.kernels.physics.constants import load_physics
    from silicast.kernels.physics.energy import waiting_w
    from silicast.kernels.physics.power import PHYSICS, idle_w

    if device.structure is not None:
        return waiting_w(device)
    return idle_w(device, load_physics(PHYSICS).constants(device.architecture)["idle_share"])


def above_power(device: Device, limits: LimitsTable) -> bool:
    """Whether a power limit is above the board's own, so that it changes nothing."""
    return device.power_cap_w is not None and (limits.power_w or 0.0) > device.power_cap_w


def model_of(scenario: Scenario) -> ModelConfig:
    """The model of the one pool; raises as :func:`find_any_model`."""
    spec = scenario.raw.model
    if spec is None:
        raise SilicastError("is missing", field="model", hint="a name, a table or a path")
    return find_any_model(spec, scenario.folder)


def find_any_model(spec: str | dict[str, Any], folder: Path, field: str = "model") -> ModelConfig:
    """A model by name, from a ``config.json`` (a path or inline), or ``{base: name, changes}``.

    Raises:
        SilicastError: an unknown name (the nearest are offered), a model that is known but not
            modelled ("not_yet"), a bad field or file.
    """
    from silicast.workload.models.lookup import model_from

    try:
        return model_from(_from_folder(spec, folder))
    except SilicastError as error:
        raise _placed(_with_kind(error, spec, folder), field) from None


def _from_folder(spec: str | dict[str, Any], folder: Path) -> str | dict[str, Any]:
    """A model with its path, if it is one, put behind ``folder``."""
    if isinstance(spec, dict):
        base = spec.get("base")
        return {**spec, "base": _from_folder(base, folder)} if isinstance(base, str) else spec
    from silicast.workload.models.lookup import configuration_in

    if spec.endswith(".json"):
        return str(folder / spec)
    config = configuration_in(folder / spec) if spec.strip() else None
    return spec if config is None else str(config)


def engine_of(scenario: Scenario) -> Engine:
    """The engine of the one pool, or the task's default one.

    Raises:
        SilicastError: unknown engine; the nearest are offered.
    """
    from silicast.composition.engines.engine import default_engine

    table = scenario.engine or EngineTable(default_engine(scenario.raw.task))
    return find_any_engine(table, scenario.folder)


def find_any_engine(table: EngineTable, folder: Path, field: str = "engine") -> Engine:
    """An engine by name or from a file (``.toml``, relative to ``folder``)."""
    from silicast.composition.engines.engine import find_engine, load_engine_file

    try:
        if table.name.endswith(".toml"):
            return load_engine_file(folder / table.name)
        return find_engine(table.name)
    except SilicastError as error:
        raise _placed(_with_kind(error, table.name, folder), field) from None


def host_of(scenario: Scenario) -> Host | None:
    """The host that the scenario states, or None.

    Raises:
        SilicastError: a name that is not of the catalog, without a factor.
    """
    table = scenario.raw.host
    if table is None:
        return None
    if table.factor is None and table.cpu not in hosts():
        raise unknown_name(
            f"no host {shown(table.cpu)}",
            "host.cpu",
            f"{near(table.cpu, hosts().names)}; or state host.factor, its single-thread speed "
            "against the reference host",
        )
    result = catalog_host(table.cpu, table.factor)
    names = ("memory_gb", "memory_gb_per_s", "link_gb_per_s")
    stated = {name: getattr(table, name) for name in names}
    return replace(result, **{name: value for name, value in stated.items() if value is not None})


def cluster_of(scenario: Scenario, device: Device) -> Cluster:
    """The links of the scenario's cluster; what it leaves out is as in the device's usual system.

    Raises:
        SilicastError: an unknown system, link or network; or something not modelled.
    """
    from silicast.hardware.cluster import cluster_of as catalog_cluster

    table = scenario.raw.cluster or ClusterTable()
    return catalog_cluster(
        device,
        system=table.topology,
        gpus=table.gpus,
        gpus_per_node=table.gpus_per_node,
        intra_node=_link(device, table.intra_node, "cluster.intra_node"),
        inter_node=_network(table.inter_node, "cluster.inter_node"),
        host=host_of(scenario),
        price_per_gpu_hour=table.price_per_gpu_hour,
        pod=table.gpus_per_pod,
        inter_pod=_network(table.inter_pod, "cluster.inter_pod"),
        oversubscription=table.oversubscription,
        pcie_paths=table.pcie_paths or "",
    )


def _link(device: Device, spec: str | LinkTable | None, field: str) -> str | Link | None:
    if not isinstance(spec, LinkTable):
        return spec
    from silicast.hardware.cluster import described_link

    return described_link(device, spec.kind, _bandwidth(spec, field), switched=spec.switched)


def _network(spec: str | LinkTable | None, field: str) -> str | Network | None:
    if not isinstance(spec, LinkTable):
        return spec
    from silicast.hardware.cluster import Network

    return Network(spec.kind, _bandwidth(spec, field), (spec.latency_us or 0.0) * 1e-6)


def _bandwidth(spec: LinkTable, field: str) -> float:
    if spec.bandwidth_gb_per_s is None:
        raise SilicastError(
            "is missing", field=f"{field}.bandwidth_gb_per_s", hint="per device and direction"
        )
    return spec.bandwidth_gb_per_s * spec.count * 1e9


def plan_of(scenario: Scenario) -> Plan:
    """The parallel degrees of the one pool."""
    p = scenario.raw.parallel
    return Plan(p.tp, p.pp, p.dp or 1, p.ep, p.cp, p.attention_dp)


def evidence_of(scenario: Scenario, device: Device) -> Evidence:
    """What kernel times may rest on: as the scenario's highest tier and calibrations say.

    Later calibrations go before earlier ones, those of ``device`` before those of others.

    Raises:
        SilicastError: a file is unreadable, or of a device that says nothing about this one.
    """
    paths = scenario.raw.calibration
    calibrators: tuple[Calibrator, ...] = ()
    scaled: tuple[ScaledCalibrator, ...] = ()
    if paths:
        from silicast.scenario.resolving.calibrations import calibrators_in

        names = [paths] if isinstance(paths, str) else paths
        calibrators, scaled = calibrators_in(names, scenario.folder, device)
    tier = scenario.raw.tier
    return Evidence(
        learned=tier not in ("bound", "analytic"),
        calibrators=calibrators if tier in ("auto", "calibrated") else (),
        scaled=scaled if tier in ("auto", "scaled", "calibrated") else (),
        ceilings=scenario.raw.why == "full",
    )


def _placed(error: SilicastError, field: str) -> SilicastError:
    """The error at ``field``, unless its own path begins there."""
    if error.field == field or error.field.startswith(f"{field}."):
        return error
    return error.at(field)
