"""What a scenario runs on: the machine, and the deployment of each of its pools."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, final, get_args

from silicast.composition.engines.attention_scores import writes_scores
from silicast.composition.engines.engine import Engine, engines_of, mixing_engines
from silicast.composition.passes.deployment import Deployment, with_copies
from silicast.composition.power.energy import is_modelled
from silicast.composition.step.machine import Machine
from silicast.core.dtypes import BLOCKS, RECIPES, key_format, value_format
from silicast.core.errors import SilicastError, errors_at, unsupported
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.hardware.platforms import maker_of
from silicast.scenario.answerer import refuse_unmodelled
from silicast.scenario.decode import Scenario, of_pool
from silicast.scenario.resolve import (
    POWER_NOT_MODELLED,
    cluster_of,
    device_of,
    evidence_of,
    host_of,
    limit_warnings,
    model_of,
    namesake_warnings,
    plan_of,
)
from silicast.scenario.resolving.chosen_engine import (
    checked_engine,
    chosen_engine,
    options_elsewhere,
    with_quantisation,
)
from silicast.scenario.resolving.measured import with_measured
from silicast.scenario.road import FIELDS, not_yet_of
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import Plan

if TYPE_CHECKING:
    from silicast.workload.frameworks.eager import Framework


@final
@dataclass(frozen=True)
class ScenarioPool:
    """One pool of a scenario.

    Attributes:
        count: replicas of the deployment.
        role: what the pool does ("prefill", "decode"); "" = everything.
        warnings: what was assumed for it.
    """

    deployment: Deployment
    count: int = 1
    role: str = ""
    warnings: tuple[str, ...] = ()


def pools_of(scenario: Scenario) -> dict[str, ScenarioPool]:
    """The deployment of every pool by name; "" = that of a scenario without pools.

    Raises:
        SilicastError: as :func:`deployment_of`; the field names the pool.
    """
    if not scenario.pools:
        deployment, warnings = deployment_of(scenario)
        return {"": ScenarioPool(deployment, warnings=tuple(warnings))}
    pools = {}
    for name, table in scenario.pools.items():
        with errors_at(f"pools.{name}"):
            deployment, warnings = deployment_of(of_pool(scenario, table))
        pools[name] = ScenarioPool(deployment, table.count, table.role, tuple(warnings))
    return pools


def deployment_of(
    scenario: Scenario, options: tuple[str, ...] = (), *, trains: bool = False
) -> tuple[Deployment, list[str]]:
    """The deployment of a scenario's one pool, and warnings about what was assumed for it.

    Args:
        options: options of the engine that the task understands.
        trains: the task needs an engine that trains, else one that does not; the deployment is
            then of one rank, whose degrees are the training plan's.

    Raises:
        SilicastError: an unknown name, contradictory degrees, or something not modelled.
    """
    if trains:
        machine, warnings = machine_of(scenario, options, trains=True)
        model = model_of(scenario)
        precision, remarks = precision_of(scenario, model, machine.device, trained_in=Precision())
        plan = Plan(tp=scenario.raw.parallel.tp)
        return Deployment(machine, model, plan, precision), [*remarks, *warnings]
    degrees = scenario.raw.parallel
    for name in ("dp", "cp", "virtual_stages"):
        if (getattr(degrees, name) or 1) > 1:
            raise not_yet_of(FIELDS[f"parallel.{name}"], f"parallel.{name}")
    if degrees.sp is True or degrees.sp > 1:
        raise not_yet_of(FIELDS["parallel.sp"], "parallel.sp")
    machine, warnings = machine_of(scenario, options, trains=trains)
    plan = plan_of(scenario)
    plan, cut = _by_layers(plan, machine.engine)
    model, assumed = with_copies(model_of(scenario), plan, machine.engine)
    if machine.engine.weight_mix:
        model, precision, remarks = with_file_formats(scenario, model, machine)
    elif model.default_precision.mix:
        raise _is_of_files(model.default_precision.mix, "model", GGUF)
    else:
        precision, remarks = precision_of(scenario, model, machine.device)
    precision = with_quantisation(scenario, machine.engine, precision)
    machine, unused = checked_engine(scenario, machine, model, precision)
    _require_kernels(machine, model, precision)
    remarks += unused
    remarks += _in_32_bits(scenario, model, machine)
    if not machine.engine.fusion.scores and not all(map(writes_scores, model.kinds)):
        remarks.append(STAYS_FUSED)
    offload = machine.engine.memory.offload
    remarks += offload.beyond(model.layers) if offload is not None else []
    return Deployment(machine, model, plan, precision), [*remarks, *cut, *assumed, *warnings]


def _by_layers(plan: Plan, engine: Engine) -> tuple[Plan, list[str]]:
    """The plan of an engine that splits models by layers, which may cut products by rows besides,
    and what a reader must know of that.

    Raises:
        SilicastError: tensor parallelism under an engine that has none.
    """
    table = engine.parallel
    if table.tensor:
        return plan, []
    if table.rows and plan.gpus == 1:
        return plan, ["products are cut by rows over several devices: one is stated"]
    if plan.tp == 1:
        return plan, []
    if not table.rows:
        raise unsupported(
            f"{engine.name} splits models over devices by layers",
            "parallel.tp",
            f"state pp = {plan.tp}, or engine.options.split_mode = row",
        )
    return dataclasses.replace(plan, tp=1, pp=plan.pp * plan.tp), []


def _require_kernels(machine: Machine, model: ModelConfig, precision: Precision) -> None:
    """Raises SilicastError where the engine's library multiplies no weights of some format that the
    file has.
    """
    engine, device = machine.engine, machine.device
    if not engine.weight_mix:
        return
    values = value_format(precision.kv_cache)
    if not engine.fusion.scores and values in BLOCKS:
        raise unsupported(
            f"without flash attention {engine.name} keeps no values in {values}",
            "precision.kv_cache",
            f"{key_format(precision.kv_cache)}/f16, or leave flash attention on",
        )
    from silicast.workload.libraries.catalog import library

    formats = {precision.recipe, *(each for table in model.formats for _, each in table)}
    for family in engine.kernels.families.values():
        name = engine.kernels.library(family, device.architecture, maker=maker_of(device))
        lacking = sorted(formats & set(library(name).without)) if name else []
        if lacking:
            raise unsupported(
                f"{name} has no kernels for weights in {' and '.join(lacking)}",
                "precision.weights",
                f"take another format, or run it on a processor: {engine.name} leaves such to it",
            )


def check_trains(device: Device) -> None:
    """Raises SilicastError where no software trains on the device."""
    if device.structure is not None and not device.structure.trains:
        raise unsupported(
            f"nothing trains on {device.name}: it is an NPU that runs networks",
            "device",
            "train on another device; task graph predicts one inference on this one",
        )


def machine_of(
    scenario: Scenario, options: tuple[str, ...] = (), *, trains: bool = False
) -> tuple[Machine, list[str]]:
    """What a scenario's one pool runs on, and warnings; raises as :func:`deployment_of`."""
    of_training = (
        () if trains else ("lora", "cluster.slow_gpus", "cluster.gpu_log_sd", "cluster.failures")
    )
    refuse_unmodelled(scenario, "speculative", "colocation", "pools", "links", *of_training)
    raw = scenario.raw
    engine, remarks = chosen_engine(scenario, options)
    if trains and engine.kind == "serving":
        raise SilicastError(
            f"{engine.name} serves models",
            field="engine",
            hint=f"{' or '.join(engines_of('training'))} train them",
        )
    if engine.kind == "training" and not trains:
        raise SilicastError(
            f"{engine.name} trains models",
            field="engine",
            hint=f"{' or '.join((*engines_of('serving'), *engines_of('framework')))} run them",
        )
    device = device_of(scenario)
    if trains:
        check_trains(device)
    engine, evidence, measured = with_measured(scenario, engine, evidence_of(scenario, device))
    machine = Machine(
        device=device,
        engine=engine,
        host=host_of(scenario) or Host(),
        cluster=cluster_of(scenario, device) if raw.cluster or raw.host else None,
        power_w=None if raw.limits.power_w is None else device.power_cap_w,
        clock_hz=raw.limits.clock_mhz * 1e6 if raw.limits.clock_mhz else None,
        evidence=evidence,
    )
    remarks += options_elsewhere(scenario, engine, device)
    if raw.limits.power_w is not None and not is_modelled(machine):
        remarks.append(POWER_NOT_MODELLED)
    return machine, [*namesake_warnings(device), *limit_warnings(scenario), *remarks, *measured]


def framework_of(scenario: Scenario, engine: Engine) -> tuple[Framework, list[str]]:
    """How the engine runs the model's code, and what was assumed about it."""
    from silicast.workload.frameworks.eager import AttentionCode, Framework

    stated = scenario.engine.options.get("attention") if scenario.engine is not None else None
    if stated is not None and stated not in get_args(AttentionCode):
        raise SilicastError(
            f"expected one of {', '.join(get_args(AttentionCode))}, found {stated!r:.40}",
            field="engine.options.attention",
        )
    if engine.kind != "framework":
        message = (
            f"{engine.name} serves: its kernels run here in one pass with logits of all tokens"
        )
        return Framework(compiled=True, attention="fused"), [message]
    attention = cast("AttentionCode", stated or "math")
    message = "attention is taken as products and softmax one by one (engine.options.attention)"
    return Framework(engine.compiles, attention), [] if stated else [message]


def description(machine: Machine, model: str, devices: int, number_format: str) -> dict[str, Any]:
    """What ran where, for people."""
    engine, device = machine.engine, machine.device
    return {
        "model": model,
        "device": device.name,
        "devices": devices,
        "largest_clock_mhz": device.clocks.max_hz / 1e6,
        "engine": f"{engine.name} {engine.release or engine.version}".strip(),
        "format": number_format,
    }


def precision_of(
    scenario: Scenario, model: ModelConfig, device: Device, *, trained_in: Precision | None = None
) -> tuple[Precision, list[str]]:
    """The scenario's formats over the checkpoint's.

    A bf16 checkpoint runs in fp16 (else fp32) on a device without bf16, as engines run it, unless
    the scenario asks for bf16; between kernels also where it asks for a quantised format.

    Args:
        trained_in: formats that stand for the checkpoint's, in which it is published for inference.
    """
    table, default_precision = scenario.raw.precision, trained_in or model.default_precision
    default, remarks = _without_bf16(default_precision, device)
    is_stated = table is not None and any((table.weights, table.activations, table.recipe))
    if trained_in is not None and not is_stated and model.default_precision.label not in PLAIN:
        label = model.default_precision.label
        remarks = [*remarks, UNINHERITED.format(default.label, label)]
    if table is None:
        return default, remarks
    from silicast.scenario.reading.kinds_of_names import dtype_name

    def canonical(name: str) -> str | None:
        value = getattr(table, name)
        if value is None:
            return None
        try:
            return dtype_name(value, f"precision.{name}")
        except SilicastError as error:
            raise (_of_files(value, f"precision.{name}") or error) from None

    try:
        result = Precision.from_formats(
            weights=canonical("weights"),
            activations=canonical("activations"),
            kv_cache=canonical("kv_cache"),
            recipe=canonical("recipe"),
            group_size=table.group_size,
            experts=canonical("experts"),
            attention=canonical("attention"),
            default=default_precision if is_stated else default,
        )
    except SilicastError as error:
        raise (error if error.field.startswith("precision.") else error.at("precision")) from None
    if is_stated and result.recipe != "bf16":
        result, remarks = _without_bf16(result, device)
    elif is_stated:
        remarks = []
    return result, [*remarks, *_other_groups(result, table.group_size)]


def with_file_formats(
    scenario: Scenario, model: ModelConfig, machine: Machine
) -> tuple[ModelConfig, Precision, list[str]]:
    """The model and its formats as a file of weights of the engine's scheme holds them.

    Raises:
        SilicastError: a format that the scheme does not have, or one of activations.
    """
    from silicast.workload.models.weight_mix import plain_mix, with_mix

    table, scheme = scenario.raw.precision, machine.engine.weight_mix
    mix = None
    if table is not None:
        for name in ("activations", "group_size", "experts", "attention"):
            if getattr(table, name) is not None:
                raise SilicastError(
                    f"{machine.engine.name} takes its formats from the file of weights",
                    field=f"precision.{name}",
                    hint="state precision.weights alone",
                )
        mix = table.weights or table.recipe
    remarks = []
    as_it_is = not mix and bool(model.default_precision.mix)  # read from such a file
    if not mix:
        mix, exact = plain_mix(scheme, model.default_precision)
        if not exact:
            remarks.append(NO_MIX.format(model.name, model.default_precision.label, mix))
    kv_cache = table.kv_cache if table is not None and table.kv_cache else ""
    cache = Precision.from_formats(kv_cache=kv_cache).kv_cache if kv_cache else ""
    if as_it_is:
        if scheme != GGUF:
            raise _is_of_files(model.default_precision.mix, "model", GGUF)
        published = model.default_precision
        return model, dataclasses.replace(published, kv_cache=cache or published.kv_cache), []
    if model.default_precision.mix:
        remarks.append(f"{model.name}: weights in {mix}, not in the formats of its file")
    mixed = with_mix(model, scheme, mix, cache)
    beside = (model.encoder_parameters, "its encoder"), (model.mtp_layers, "layers for drafts")
    left = [part for count, part in beside if count]
    if left:
        remarks.append(f"{' and '.join(left)} of {model.name} are in files of their own: left out")
    return mixed, mixed.default_precision, remarks


def _of_files(value: str, field: str) -> SilicastError | None:
    """That a format is a mix of files of weights, for engines that read such; None = it is none."""
    from silicast.workload.models.weight_mix import is_mix

    return _is_of_files(value, field) if is_mix(value) else None


def _is_of_files(value: str, field: str, scheme: str = "") -> SilicastError:
    return SilicastError(
        f"{value} is a mixture of formats in files of weights, which this engine does not read",
        field=field,
        hint=f"engine {' or '.join(mixing_engines(scheme))} runs such files",
    )


GGUF = "gguf"
"""The scheme of files from which a model itself may be read."""
NO_MIX = "{0} is published in {1}, which no such file holds: {2} is taken (precision.weights)"


def _in_32_bits(scenario: Scenario, model: ModelConfig, machine: Machine) -> list[str]:
    """A remark where an engine that may load a checkpoint of 32 bits in 16 is taken to keep them,
    and nobody asked for it.
    """
    table, device = scenario.raw.precision, machine.device
    is_stated = table and any(getattr(table, name) for name in ("weights", "activations", "recipe"))
    shorter = next((name for name in ("fp16", "bf16") if _computes(device, name)), "")
    if is_stated or model.default_precision.recipe != "fp32" or machine.engine.kind != "serving":
        return []
    return [IN_32_BITS.format(model.name, shorter)] if shorter else []


STAYS_FUSED = (
    "without a fused kernel of attention: layers with a window, and those with another mixer than "
    "heads, are predicted with one"
)
PLAIN = ("bf16", "fp16", "fp32")
UNINHERITED = (
    "trained in {}; the checkpoint, which others run, is in {}: precision.recipe (--dtype) chooses"
)
IN_32_BITS = (
    "the checkpoint of {0} is in fp32, and fp32 is taken; an engine that loads it in 16 bits is "
    "predicted with --dtype {1} (precision.recipe)"
)
GROUPS = (
    "precision.group_size = {}: kernels are timed with the scales of groups of {}, as {} has them; "
    "the stated groups count in memory and in the bytes that steps must read"
)


def _other_groups(precision: Precision, stated: int | None) -> list[str]:
    """A remark where scales are of other groups than those that kernels are timed with."""
    scale_group = RECIPES[precision.recipe].scale_group
    if not stated or scale_group <= 0 or stated == scale_group:
        return []
    return [GROUPS.format(stated, scale_group, precision.recipe)]


def _without_bf16(precision: Precision, device: Device) -> tuple[Precision, list[str]]:
    """A checkpoint's formats on a device, and what was assumed where that has no bf16."""
    if precision.hidden != "bf16" or _computes(device, "bf16"):
        return precision, []
    other = "fp16" if _computes(device, "fp16") else "fp32"
    if not _computes(device, other):
        return precision, []
    if precision.recipe == "bf16":
        result = Precision.from_formats(
            weights=other,
            experts=precision.experts or None,
            attention=precision.attention or None,
            group_size=precision.group_size,
            default=precision,
        )
        return result, [f"{device.name} has no bf16: {other} is assumed"]
    experts, attention = (
        other if name == "bf16" else name for name in (precision.experts, precision.attention)
    )
    changed = dataclasses.replace(precision, hidden=other, experts=experts, attention=attention)
    return changed, [f"{device.name} has no bf16: {other} is assumed between kernels"]


def _computes(device: Device, dtype: str) -> bool:
    return any(device.rate_per_core(pipe, dtype) > 0.0 for pipe in device.matrix_pipes)
