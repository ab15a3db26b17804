"""What a reader must know of a step model, whatever it runs: fallbacks, and how far its kernels are
from those that were measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.step.stage_graph import topology
from silicast.core.prediction import Domain
from silicast.hardware.platforms import listed, runs_on
from silicast.kernels.movement.streaming import Streamed
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.measured_range import stand_ins
from silicast.kernels.registry import implementation_for
from silicast.workload.libraries.catalog import library
from silicast.workload.models.counting import host_weight_bytes

if TYPE_CHECKING:
    from silicast.composition.passes.deployment import Deployment
    from silicast.composition.step.step import StepModel

GIB = float(1 << 30)
NETWORK_ASSUMED = "network between nodes not stated: {} assumed"
HELD_BY_HOST = "cpu_offload_gb: passes that read weights of the host's memory were not measured"
BEYOND = (
    "engine.options.cpu_offload_gb = {:g}: more than can leave a device changes nothing: the "
    "layers of a rank have {:.3g} GiB, and embeddings and the output layer stay"
)
OLDER = (
    "kernels of releases before {} were not measured: they are taken to need {:g} times as long as "
    "measured ones"
)
ELSEWHERE = "{} does not run on {} but on {}: times are as if {} did"


def kernels_domain(model: StepModel) -> Domain:
    """How far a step model's kernels are from those that were measured, at worst."""
    device = model.machine.device
    if device.structure is not None:
        return "out"  # a design: nothing was measured on it
    engine = model.machine.engine
    if engine.memory.reads_host or engine.taken_as.factor(device.architecture) > 1.0:
        return "near"
    for key in model.timer.groups:
        implementation = implementation_for(key.family, device.execution_model)
        used, remark = with_format(device, key.variant.dtype)
        if remark:
            return "near"
        if implementation is None or isinstance(implementation, Streamed):
            continue
        if not implementation.is_measured(key.variant, used):
            return "near"
        if implementation.borrowed(key.variant, used):
            return "near"
    return "in"


def unmeasured_streams(model: StepModel) -> frozenset[str]:
    """Families that stream data and that nobody measured on the device's architecture: they share
    rates with those that were, so that they count by their share of the time.
    """
    device = model.machine.device
    families = set()
    for key in model.timer.groups:
        implementation = implementation_for(key.family, device.execution_model)
        if isinstance(implementation, Streamed) and not implementation.is_measured(
            key.variant, device
        ):
            families.add(key.family)
    return frozenset(families)


def warnings_of(model: StepModel) -> tuple[str, ...]:
    """Fallbacks of a step model that do not depend on its states."""
    device, evidence = model.machine.device, model.machine.evidence
    formats = dict.fromkeys(node.op.variant.dtype for node in model.graph.nodes)
    remarks = (with_format(device, dtype)[1] for dtype in formats)
    fromkeys = dict.fromkeys(text for text in remarks if text)
    structure: tuple[str, ...] = ()
    if model.assumed:
        from silicast.composition.errors.uncertainty import structure_remark

        structure = (structure_remark(),)
    held = (HELD_BY_HOST,) if model.machine.engine.memory.reads_host else ()
    return (
        *_elsewhere(model),
        *held,
        *_older(model),
        *fromkeys,
        *_borrowed(model),
        *stand_ins(device),
        *evidence.warnings(device),
        *_network_warnings(model),
        *model.caveats,
        *structure,
    )


def _older(model: StepModel) -> Iterator[str]:
    """A remark where kernels of the engine's release are taken to be slower than measured ones."""
    release = model.machine.engine.taken_as
    if (factor := release.factor(model.machine.device.architecture)) > 1.0:
        yield OLDER.format(release.before, factor)


def _borrowed(model: StepModel) -> tuple[str, ...]:
    """Remarks on kernels that constants of another library stand in for."""
    device, remarks = model.machine.device, dict[str, None]()
    for key in model.timer.groups:
        implementation = implementation_for(key.family, device.execution_model)
        if implementation is not None and (text := implementation.borrowed(key.variant, device)):
            remarks[text] = None
    return tuple(remarks)


def beyond_layers(deployment: Deployment) -> tuple[str, ...]:
    """A remark where the host is to hold more bytes of a rank than its layers have."""
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    most = max(
        host_weight_bytes(model, plan, deployment.precision, stage, policy)
        for stage in range(plan.pp)
    )
    if most >= policy.host_bytes:
        return ()
    return (BEYOND.format(policy.host_bytes / GIB, most / GIB),)


def _elsewhere(model: StepModel) -> Iterator[str]:
    """Remarks that the engine, or a library whose kernels it takes, does not run on the device."""
    device, engine = model.machine.device, model.machine.engine
    if not runs_on(device, engine.runs_on):
        yield ELSEWHERE.format(engine.name, device.name, listed(engine.runs_on), "it")
        return
    if device.execution_model != "simt":  # kernels there are the device's own, whatever the name
        return
    taken: dict[str, list[str]] = {}
    for key in model.timer.groups:
        taken.setdefault(key.variant.library, []).append(key.family)
    for name, families in taken.items():
        if not runs_on(device, library(name).runs_on):
            work = ", ".join(dict.fromkeys(families))
            yield ELSEWHERE.format(
                f"{name} ({work})", device.name, listed(library(name).runs_on), "its kernels"
            )


def _network_warnings(model: StepModel) -> tuple[str, ...]:
    """What a reader must know of the links that the model's collectives use."""
    calls = [key for key in model.timer.groups if key.family in COLLECTIVES]
    if not calls:
        return ()
    from silicast.communication.network import network_warnings

    links = model.machine.links
    table: dict[str, None] = {}
    for key in calls:
        gpus, stride = key.members
        assert isinstance(gpus, int)
        assert isinstance(stride, int)
        used = topology(model.machine, gpus, crosses=key.crosses, stride=stride)
        table |= dict.fromkeys(network_warnings(used))
        if used.inter is not None and "inter_node" in links.assumed:
            table[NETWORK_ASSUMED.format(links.inter_node.name)] = None
    return tuple(table)
