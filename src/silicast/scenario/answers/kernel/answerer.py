"""Task ``kernel``: one kernel on one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeGuard, final

from msgspec import structs

from silicast.composition.power.clock import not_held
from silicast.composition.step.pipes import kernel_pipes
from silicast.composition.step.remarks import ELSEWHERE
from silicast.core.errors import SilicastError, over_limit
from silicast.core.plain_data import shown
from silicast.core.prediction import Part, Quantity, Tier, to_picoseconds
from silicast.hardware.device import Device
from silicast.hardware.platforms import listed, runs_on
from silicast.kernels.implementation import Implementation
from silicast.kernels.physics import power
from silicast.kernels.physics.energy import UNMEASURED, states_energy
from silicast.kernels.physics.formats import unmeasured_cache
from silicast.kernels.physics.measured_range import not_measured
from silicast.kernels.registry import implementation_for
from silicast.kernels.rows.chain_model import FUSED, MEMORY_RANGE, ChainedKernel
from silicast.learning.artefact import load_artefact
from silicast.learning.dispatch import forget, implementation_of, times
from silicast.learning.kernel_time import KernelTime
from silicast.learning.tiers import Evidence
from silicast.scenario.answer import Answer, answer, why_tree
from silicast.scenario.answerer import Answerer, ignored, not_yet, refuse_unmodelled, register
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import (
    POWER_NOT_MODELLED,
    above_power,
    cluster_of,
    device_of,
    evidence_of,
    find_any_device,
    limit_warnings,
    namesake_warnings,
)
from silicast.scenario.resolving.measured import calibrated_by
from silicast.workload.graphs.op import Op, OpBatch
from silicast.workload.libraries.catalog import library
from silicast.workload.libraries.library_file import RuleFacts

MICRO = 1e6
MILLI = 1e3
GIGA = 1e9
MAX_WORK = 1 << 60
MANY = 1024
"""From so many cases on the remembered times are dropped, so that a long batch stays small."""
UNUSED = ("model", "engine", "precision", "parallel", "cluster", "host")
"""Fields that a kernel's time does not depend on; kernels that send to other nodes use the cluster.
"""
NOT_MULTIPLIED = frozenset(
    ("num_kv_heads", "experts", "ep", "tp", "nodes", "sms", "kv_lora_rank", "qk_nope_head_dim",
     "qk_rope_head_dim", "v_head_dim",
     "q_lora_rank", "q_rank", "kv_rank", "nope", "rope", "value", "index_heads", "index_dim",
     "selected", "window", "block", "group", "out_groups", "out_rank", "compress_ratio")
)  # fmt: skip
"""Sizes that share other sizes' work or add to it."""
OF_MODULES = frozenset(("hidden", "head_dim"))
"""Sizes of a module's projections, which do not multiply what its attention sees."""
STATED = {"version": "library_version", "kernel": "variant"}
"""Properties of an op's variant that any text may be -> their fields."""


@final
@dataclass(frozen=True, slots=True)
class _ResolvedKernel:
    """A case with its names resolved."""

    op: Op
    device: Device
    bound_only: bool
    evidence: Evidence
    warnings: list[str]
    limit_w: float = math.inf
    detailed: bool = False


@register
@final
class KernelAnswerer(Answerer):
    """Metrics: ``latency_us``; ``energy_mj`` where the device has a power model; ``memory_gb`` of
    ops that providers run as chains of kernels.
    """

    task: ClassVar[str] = "kernel"

    def answer(self, scenario: Scenario) -> Answer:
        (answer,) = _answers([_prepare(scenario)])
        if isinstance(answer, SilicastError):
            raise answer
        return answer

    def answer_many(self, scenarios: Sequence[Scenario]) -> list[Answer | SilicastError]:
        """All cases of a device in one vectorised call, which changes no answer."""
        replies: list[Answer | SilicastError | None] = [None] * len(scenarios)
        by_device: dict[tuple[Device, Evidence], list[tuple[int, _ResolvedKernel]]] = {}
        for i, scenario in enumerate(scenarios):
            try:
                case = _prepare(scenario)
            except SilicastError as error:
                replies[i] = error
            else:
                by_device.setdefault((case.device, case.evidence), []).append((i, case))
        for rows in by_device.values():
            answers = _answers([case for _, case in rows])
            for (i, _), each in zip(rows, answers, strict=True):
                replies[i] = each
        if len(scenarios) >= MANY:
            forget()
        return [row for row in replies if row is not None]


def _answers(cases: list[_ResolvedKernel]) -> list[Answer | SilicastError]:
    """Answers of cases of one device."""
    result = _times(cases)
    notes = _idle_names(cases, result)
    return [_guarded(*each) for each in zip(cases, result, notes, strict=True)]


def _times(cases: list[_ResolvedKernel]) -> list[KernelTime | SilicastError]:
    """Times of cases of one device; if one of them is refused, each is asked on its own."""
    try:
        return list(times([case.op for case in cases], cases[0].device, cases[0].evidence))
    except SilicastError as error:
        if len(cases) == 1:
            return [error]
    by_family: dict[tuple[object, ...], list[int]] = {}
    for i, case in enumerate(cases):
        by_family.setdefault((case.op.family, case.op.variant), []).append(i)
    table: dict[int, KernelTime | SilicastError] = {}
    for rows in by_family.values():
        if len(rows) == len(cases):
            table |= {i: _times([cases[i]])[0] for i in rows}
        else:
            table |= dict(zip(rows, _times([cases[i] for i in rows]), strict=True))
    return [table[i] for i in range(len(cases))]


def _idle_names(
    cases: list[_ResolvedKernel], results: list[KernelTime | SilicastError]
) -> list[list[str]]:
    """Warnings of texts that change nothing about each case's time."""
    remarks: list[list[str]] = [[] for _ in cases]
    for name, field in STATED.items():
        requested = [i for i, case in enumerate(cases) if _is_asked(case.op, name)]
        plain = [_without(cases[i], name) for i in requested]
        for i, plain_time in zip(requested, _times(plain) if plain else (), strict=True):
            time = results[i]
            if isinstance(time, SilicastError) or isinstance(plain_time, SilicastError):
                continue
            if structs.replace(time, op=plain_time.op) == plain_time:
                text = getattr(cases[i].op.variant, name)
                remarks[i].append(
                    f"{field} {shown(text)} changes nothing: no kernels of this op and these sizes "
                    "are told apart by it"
                )
    return remarks


def _is_asked(op: Op, name: str) -> bool:
    """Whether a text is stated that may change the time: not the only kernel that is meant."""
    variant = op.variant
    if name == "kernel" and variant.kernel in library(variant.library).kernel_names.get(
        op.family, ()
    ):
        return False
    return bool(getattr(variant, name))


def _without(case: _ResolvedKernel, name: str) -> _ResolvedKernel:
    variant = case.op.variant
    without = replace(variant, version="") if name == "version" else replace(variant, kernel="")
    return replace(case, op=replace(case.op, variant=without))


def _guarded(
    case: _ResolvedKernel, time: KernelTime | SilicastError, remarks: list[str]
) -> Answer | SilicastError:
    if isinstance(time, SilicastError):
        return time
    try:
        return _answer(replace(case, warnings=[*case.warnings, *remarks]), time)
    except SilicastError as error:
        return error


def _prepare(scenario: Scenario) -> _ResolvedKernel:
    raw, kernel = scenario.raw, scenario.kernel
    assert kernel is not None
    refuse_unmodelled(scenario, "speculative", "lora", "colocation", "pools", "links")
    device = device_of(scenario)
    model = implementation_of(kernel.op, device)
    check_sizes(kernel.op, model)
    unused: tuple[str, ...] = UNUSED
    if model.leaves_node and raw.cluster is not None:
        device = cluster_of(scenario, device).networked(device)
        unused = tuple(field for field in UNUSED if field != "cluster")
    warnings = [*ignored(scenario, *unused), *kernel.warnings]
    warnings += [f"{name} is not modelled and changes nothing" for name in kernel.words]
    warnings += [*namesake_warnings(device), *limit_warnings(scenario)]
    facts = RuleFacts.from_variant(kernel.op.variant, device.architecture)
    positions = library(facts.library).runs_on
    if not runs_on(device, positions):
        message = ELSEWHERE.format(facts.library, device.name, listed(positions), "its kernels")
        warnings.append(message)
    elif name := unmodelled_library(kernel.op, device):
        warnings.append(
            f"library {name} has no model of its own for {kernel.op.family}: it counts as the "
            "usual one"
        )
    warnings += [
        remark.text
        for remark in library(facts.library).remarks
        if kernel.op.family in remark.op and remark.hold(facts)
    ]
    evidence = replace(evidence_of(scenario, device), ceilings=True)
    warnings += evidence.warnings(device)
    limit_w = math.inf
    built = find_any_device(raw.device, scenario.folder) if raw.device is not None else device
    binds = raw.limits.power_w is not None and not above_power(built, raw.limits)
    if kernel.board == "hot" or (not kernel.board and binds):
        device = device.in_state("hot")
    if raw.limits.power_w is not None:
        if power.limits(device):
            limit_w = raw.limits.power_w
        elif not states_energy(device):
            warnings.append(POWER_NOT_MODELLED)
    return _ResolvedKernel(
        op=kernel.op,
        device=device,
        bound_only=raw.tier == "bound",
        evidence=evidence,
        detailed=scenario.raw.why == "full",
        warnings=warnings,
        limit_w=limit_w,
    )


def unmodelled_library(op: Op, device: Device) -> str:
    """The library that an op asks for, if it changes nothing about its time; else ""."""
    name = op.variant.library
    entry = library(name)
    usual = op.family == "gemm" and device.vendor.casefold() in entry.usual_on
    apart = entry.tells_apart(op.family, op.variant.dtype) and device.execution_model == "simt"
    return "" if not name or usual or apart or _was_learned(op, device) else name


def _was_learned(op: Op, device: Device) -> bool:
    """Whether corrections of the device's architecture tell the op's library apart."""
    artefact = load_artefact(op.family)
    if artefact is None:
        return False
    trained = artefact.find(device.architecture, op.variant.dtype)
    return trained is not None and f"library:{op.variant.library}" in artefact.names(trained)


def check_sizes(op: Op, model: Implementation) -> None:
    """Refuses sizes that a kernel model does not apply to, and work beyond all sense.

    Raises:
        SilicastError: kind "limit"; names the dimension.
    """
    plain = 1
    lists: list[tuple[int, ...]] = []
    module = op.family.endswith("_module")
    for name, value in op.dims:
        low, high = model.dims.get(name, (0, MAX_WORK))
        sizes = tuple(v for v in (value if isinstance(value, tuple) else (value,)) if _is_size(v))
        for size in sizes:
            if not low <= size <= high:
                raise over_limit(
                    f"{op.family} kernels are modelled for {name} = {low} to {high}, found {size}",
                    f"workload.kernel.{name}",
                )
        if isinstance(value, tuple):
            lists.append(sizes)
        elif name not in NOT_MULTIPLIED and not (module and name in OF_MODULES):
            plain *= max(1, sizes[0])
    work = plain * sum(math.prod(row) for row in zip(*lists, strict=True)) if lists else plain
    if work > MAX_WORK:
        raise over_limit(
            "more work than any kernel does",
            "workload.kernel",
            "the product of all sizes is limited to 2^60",
        )


def _is_size(value: object) -> TypeGuard[int]:
    """A scenario's dimensions are whole numbers, never symbols."""
    return isinstance(value, int)


def _answer(case: _ResolvedKernel, time: KernelTime) -> Answer:
    if not time.bound_s > 0.0:
        raise not_yet(f"{case.op.family} kernels of this size", "workload.kernel")
    latency, tier = _latency(case, time)
    warnings = [*case.warnings, *time.warnings]
    if unmeasured_cache(case.op.variant.kv_dtype) or _is_borrowed(case):
        pass  # said by the time itself
    elif not time.measured and case.device.structure is not None:
        warnings = list(dict.fromkeys([*warnings, not_measured(case.device)]))
    elif not time.measured:
        warnings.append(
            f"no measured {case.op.family} kernels in {case.op.variant.dtype} of architecture "
            f"{case.device.architecture}: constants of others stand in"
        )
    elif time.domain != "in":
        warnings.append(f"sizes beyond the measured {case.op.family} kernels: interval widened")
    if case.limit_w < math.inf:
        warnings += not_held(time.clock_share, _free_hz(case))
    metrics = {"latency_us": latency.times(MICRO)}
    if time.energy_j is not None and not case.bound_only:
        metrics["energy_mj"] = _within(time.energy_j, case.limit_w * time.p95_s).times(MILLI)
        if not time.power_measured:
            warnings.append(UNMEASURED.format(case.device.architecture))
    metrics |= _memory(case)
    return answer(
        metrics=metrics,
        bound={"latency_us": time.bound_s * MICRO},
        tier=tier,
        domain=time.domain,
        warnings=warnings,
        why=_why(case, time, latency),
    )


def _is_borrowed(case: _ResolvedKernel) -> bool:
    model = implementation_for(case.op.family, case.device.execution_model)
    return model is not None and bool(model.borrowed(case.op.variant, case.device))


def _memory(case: _ResolvedKernel) -> dict[str, Quantity]:
    """Most that is allocated at once, of ops that providers run as chains of kernels."""
    model = implementation_of(case.op, case.device)
    if not isinstance(model, ChainedKernel):
        return {}
    variant = case.op.variant
    if model.provider(variant) == FUSED and not model.direction(variant).backward:
        return {}
    peak = float(model.peak_bytes(OpBatch.single(case.op), case.device)) / GIGA
    return {"memory_gb": Quantity(peak, peak / MEMORY_RANGE, peak * MEMORY_RANGE)}


def _within(energy: Quantity, most: float) -> Quantity:
    """An energy whose upper end a limit on power keeps from exceeding ``most``."""
    high = max(energy.estimate, min(energy.p95, most))
    return Quantity(energy.estimate, energy.p05, high)


def _latency(case: _ResolvedKernel, time: KernelTime) -> tuple[Quantity, Tier]:
    if case.bound_only:
        return Quantity(time.bound_s, time.bound_s, time.p95_s), "bound"
    return Quantity(time.estimate_s, time.p05_s, time.p95_s), time.tier


def _why(case: _ResolvedKernel, time: KernelTime, latency: Quantity) -> dict[str, Any]:
    part = Part(
        name=case.op.family,
        exposed_ps=to_picoseconds(latency.estimate),
        bound_ps=to_picoseconds(time.bound_s),
        bound_by=time.bound_by,
        also_bound_by=time.also_bound_by,
        ceiling_ps=to_picoseconds(time.ceiling_s or 0.0),
    )
    if case.detailed:
        waits = kernel_pipes(case.op, case.device, case.evidence, part.exposed_ps)
        part = part.changed(children=waits)
    why = why_tree(part)
    if time.waves > 0.0:
        why["waves"] = round(time.waves, 4)
    if time.memory_s > 0.0:
        why["of_memory"] = round(time.memory_s / time.estimate_s, 4)
    likely = implementation_of(case.op, case.device).configurations(case.op, case.device)
    if likely:
        why["configuration"] = next(iter(likely))
        why["likely_configurations"] = dict(likely)
    elif time.choice:
        why["configuration"] = time.choice
    shares = {name: round(value, 6) for name, value in sorted(time.shared_log_sd.items())}
    why["log_sd"] = {**shares, "independent": round(time.independent_log_sd, 6)}
    why["device"] = case.device.name
    if time.tier == "calibrated" and not case.bound_only:
        why |= calibrated_by(case.evidence, [case.op])
    if power.limits(case.device):
        why["board"] = case.device.power_state
    if time.clock_share < 1.0:
        why["clock_mhz"] = {"kernel": _clock_mhz(case, time)}
    return why


def _clock_mhz(case: _ResolvedKernel, time: KernelTime) -> float:
    return _free_hz(case) * time.clock_share / 1e6


def _free_hz(case: _ResolvedKernel) -> float:
    """The clock of its kernel while no limit binds."""
    return implementation_of(case.op, case.device).clock_hz(case.device)
