"""What a scenario's calibrations change beside kernels, and by what an answer was calibrated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from silicast.hardware.host import Host
from silicast.hardware.host import host_of as catalog_host
from silicast.learning.tiers import Evidence, WholeModels
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import host_of
from silicast.scenario.workloads import GraphWorkload
from silicast.workload.graphs.op import Op

if TYPE_CHECKING:
    from silicast.composition.engines.engine import Engine
    from silicast.core.calibrated import CollectiveCurve, HostConstant, InModels
    from silicast.core.calibration import Calibration


def kind_of_run(scenario: Scenario) -> str:
    """What a run of a whole model is, as calibrations tell runs apart: its task, and whether a pass
    of a graph trains.
    """
    work = scenario.workload
    trains = isinstance(work, GraphWorkload) and work.mode == "training"
    return f"{scenario.raw.task} training" if trains else scenario.raw.task


def with_measured(
    scenario: Scenario, engine: Engine, evidence: Evidence
) -> tuple[Engine, Evidence, list[str]]:
    """The engine with measured host constants, the evidence with what runs of whole models say, and
    warnings about both.
    """
    if not evidence.calibrators:
        return engine, evidence, []
    from silicast.composition.engines.measured_host import with_measured_host

    host, remarks = host_of(scenario), []
    calibrations = [each.calibration for each in evidence.calibrators]
    requested = (scenario.engine.version if scenario.engine else "") or engine.version
    versions: dict[str, None] = {}
    for calibration in reversed(calibrations):  # the first of them counts, so it goes last
        measured_on = _host(calibration)
        measured_host = with_measured_host(engine, calibration.constants, measured_on, host)
        engine = measured_host.engine
        versions |= {each.version: None for each in measured_host.used if each.engine}
        if measured_host.used and host is not None and host != measured_on:
            remarks.append(
                f"host times were measured on {measured_on.cpu}: taken to {host.cpu} by their "
                f"speed factors ({measured_on.factor:g} and {host.factor:g})"
            )
    model = _whole(calibrations, engine, kind_of_run(scenario))
    if model is not None:
        evidence = replace(evidence, whole=WholeModels(model.log_ratio, model.log_sd))
        versions[model.version] = None
    others = [version for version in versions if version and not _same(version, requested)]
    remarks += [
        f"calibrated with {engine.name} {other}, asked for {requested}: host times and whole "
        "models may differ between versions"
        for other in others
    ]
    return engine, evidence, remarks


def _host(calibration: Calibration) -> Host:
    name = calibration.scope.host
    return catalog_host(name) if name else Host()


def _whole(calibrations: Iterable[Calibration], engine: Engine, kind: str) -> InModels | None:
    """The first factor of whole models of the engine and this kind of run."""
    for calibration in calibrations:
        for model in calibration.models:
            if model.engine == engine.name and kind in model.tasks:
                return model
    return None


def _same(version: str, other: str) -> bool:
    """Whether one version is the other, or one of its releases.

    >>> _same("0.19.1", "0.19"), _same("0.2", "0.19")
    (True, False)
    """
    first, second = (f"{each.removeprefix('v').partition('+')[0]}." for each in (version, other))
    return first.startswith(second) or second.startswith(first)


def calibrated_by(
    evidence: Evidence, ops: Iterable[Op], engine: Engine | None = None, kind: str = ""
) -> dict[str, Any]:
    """By what an answer was calibrated, as plain tables; empty where by nothing.

    Keys: ``device``, ``host`` and ``source`` of the calibration, ``kernels`` (families and formats
    that it applies to, with rows), ``host_constants``, ``collectives``, ``whole_models``.

    Args:
        ops: what runs.
        kind: of run, as :func:`kind_of_run` says.
    """
    if not evidence.calibrators:
        return {}
    different = list(dict.fromkeys(ops))
    tables = [
        _used(each.calibration, different, engine, kind if evidence.whole is not None else "")
        for each in evidence.calibrators
    ]
    tables = [table for table in tables if len(table) > len(_ORIGIN)]
    if not tables:
        return {}
    return {"calibration": tables[0] if len(tables) == 1 else tables}


_ORIGIN = ("device", "source", "hash")


def _used(
    calibration: Calibration, ops: list[Op], engine: Engine | None, kind: str
) -> dict[str, Any]:
    kernels: dict[str, int] = {}
    for op in ops:
        offset = calibration.offset_for(op.family, op.variant.dtype)
        if offset is not None:
            kernels[f"{op.family} {op.variant.dtype}"] = offset.rows
    used: dict[str, Any] = {
        "device": calibration.scope.device,
        "source": calibration.source,
        "hash": calibration.hash,
    }
    if kernels:
        used["kernels"] = dict(sorted(kernels.items()))
    constants = _constants(calibration, engine)
    if constants:
        used["host_constants"] = {each.constant: each.value_us for each in constants}
    families = {op.family for op in ops}
    curves = [_curve(each) for each in calibration.collectives if each.op in families]
    if curves:
        used["collectives"] = curves
    model = _whole([calibration], engine, kind) if engine is not None and kind else None
    if model is not None:
        used["whole_models"] = {
            "runs": model.rows,
            "log_ratio": model.log_ratio,
            "log_sd": model.log_sd,
        }
    return used


def _constants(calibration: Calibration, engine: Engine | None) -> tuple[HostConstant, ...]:
    if engine is None:
        return ()
    from silicast.composition.engines.measured_host import with_measured_host

    return with_measured_host(engine, calibration.constants, Host(), None).used


def _curve(curve: CollectiveCurve) -> str:
    return f"{curve.op} {curve.implementation} {curve.launch} x{curve.gpus}"
