"""What a scenario's fields must satisfy together, before anything is looked up or computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from silicast.core.errors import SilicastError, errors_at, over_limit, require, unknown_name
from silicast.core.naming import near
from silicast.core.plain_data import shown
from silicast.scenario.reading.boards import is_board
from silicast.scenario.reading.limits import MAX_STATIC_BATCH
from silicast.scenario.schema import ParallelTable, PoolTable, PrecisionTable, RawScenario
from silicast.scenario.workloads import (
    CapacityWorkload,
    CollectiveWorkload,
    DiagnoseWorkload,
    FitsWorkload,
    GraphWorkload,
    InferenceWorkload,
    PlanWorkload,
    ServingWorkload,
    TrainingWorkload,
    TuneWorkload,
    WorkflowWorkload,
    Workload,
)
from silicast.workload.models.precision import Precision, require_agreeing

OPTIMIZERS = (
    "none", "adam", "adamw", "fused_adam", "sgd", "sgd_momentum", "adafactor", "lion", "muon",
    "lamb", "adam_8bit", "adamw_8bit", "decoupled_adamw", "distributed_adam", "shampoo",
)  # fmt: skip

RECOMPUTE = ("none", "selective", "full")


def check_workload(
    raw: RawScenario, workload: Workload | None, pools: Mapping[str, PoolTable]
) -> None:
    """Refuses fields that contradict each other.

    Raises:
        SilicastError: names the field and what to change.
    """
    _precisions(raw, pools)
    _placed(raw, workload, pools)
    if raw.colocation is not None:
        require(len(pools) > 1, "there is one pool only", "colocation", "name the others in pools")
    if raw.parallel.sp not in (0, 1) and raw.parallel.sp != raw.parallel.tp:
        require(
            raw.parallel.tp == 1,
            "sequence and tensor degree differ",
            "parallel.sp",
            "true shares the tensor-parallel ranks",
        )
    if workload is not None:
        without = (CollectiveWorkload, WorkflowWorkload, DiagnoseWorkload, FitsWorkload)
        needs_model = not isinstance(workload, without)
        needs_model &= not (isinstance(workload, GraphWorkload) and workload.graph is not None)
        if needs_model and raw.model is None and not any(p.model for p in pools.values()):
            raise SilicastError("is missing", field="model", hint="a name, a table or a path")
        _sizes_of(raw, workload)
    if isinstance(workload, TrainingWorkload):
        _training_plan(raw, workload)
    elif not isinstance(workload, (CollectiveWorkload, WorkflowWorkload)):
        _serving_plan(raw.parallel, "parallel")
        for name, pool in pools.items():
            if pool.parallel is not None:
                _serving_plan(pool.parallel, f"pools.{name}.parallel")
        _enough_gpus(raw, pools)
    if isinstance(workload, CollectiveWorkload):
        _participants(raw, workload)
    if isinstance(workload, WorkflowWorkload):
        _stages(workload, pools)


def _sizes_of(raw: RawScenario, workload: Workload) -> None:
    if not _is_whole_network(raw, workload):
        _CHECKS[type(workload)](workload, "workload")


def _is_whole_network(raw: RawScenario, workload: Workload) -> bool:
    """Whether a board's NPU runs a network of its own input size, which no field states."""
    if not isinstance(workload, GraphWorkload) or raw.model is None:
        return False
    return workload.graph is None and _on_board(raw)


def _on_board(raw: RawScenario) -> bool:
    """Whether a board's NPU runs it, which has formats of its own."""
    if raw.task not in ("graph", "inference") or not isinstance(raw.device, str):
        return False
    return is_board(raw.device)


def _participants(raw: RawScenario, workload: CollectiveWorkload) -> None:
    if raw.cluster and raw.cluster.gpus:
        require(
            workload.gpus <= raw.cluster.gpus,
            f"{workload.gpus} GPUs in a cluster of {raw.cluster.gpus}",
            "workload.gpus",
        )


def _precisions(raw: RawScenario, pools: Mapping[str, PoolTable]) -> None:
    if raw.precision is not None and not _on_board(raw):
        _precision(raw.precision, "precision")
    for name, pool in pools.items():
        _precision(pool.precision, f"pools.{name}.precision")


def _precision(table: PrecisionTable | None, field: str) -> None:
    if table is None:
        return
    values = {name: getattr(table, name) for name in ("recipe", "weights", "activations")}
    apart = table.kv_cache is not None and "/" in table.kv_cache
    cache = {} if apart else {"kv_cache": table.kv_cache}
    formats = {
        name: format_name
        for name, value in (*values.items(), *cache.items())
        if (format_name := _format_name(value, f"{field}.{name}")) is not None
    }
    with errors_at(field):
        if apart:
            Precision.from_formats(kv_cache=table.kv_cache)
        require_agreeing(*map(formats.get, ("recipe", "weights", "activations")))


def _format_name(value: str | None, field: str) -> str | None:
    """The format that a field names; None where it names none, or a publisher's mixture."""
    from silicast.scenario.reading.kinds_of_names import dtype_name
    from silicast.workload.models.weight_mix import is_mix, resembles_mix, scheme_named

    if value is None:
        return None
    try:
        return dtype_name(value, field)
    except SilicastError:
        if is_mix(value):
            return None
        if resembles_mix(value):
            scheme_named(GGUF).mix_name(value)  # raises, with the nearest mixes
        raise


GGUF = "gguf"
"""The scheme whose mixes publishers' names of formats are nearest to."""


def _training_plan(raw: RawScenario, workload: TrainingWorkload) -> None:
    p, gpus = raw.parallel, raw.cluster.gpus if raw.cluster else None
    unit = p.tp * p.pp * p.cp
    if gpus is not None:
        require(
            gpus % unit == 0,
            f"tp x pp x cp = {unit} does not divide {gpus} GPUs",
            "parallel",
            f"tp {p.tp}, pp {p.pp}, cp {p.cp}",
        )
        if p.dp is not None:
            require(
                unit * p.dp == gpus,
                f"tp x pp x cp x dp = {unit * p.dp} GPUs, but the cluster has {gpus}",
                "parallel.dp",
                f"dp = {gpus // unit} fits; left out it is derived",
            )
    dp = p.dp or (gpus // unit if gpus else 1)
    require(
        workload.global_batch % (dp * workload.micro_batch) == 0,
        f"dp x micro_batch = {dp} x {workload.micro_batch} does not divide "
        f"{workload.global_batch} sequences",
        "workload.global_batch",
        f"a multiple of {dp * workload.micro_batch}",
    )
    require(
        p.ep == 1 or (dp * p.cp * p.tp) % p.ep == 0,
        f"ep = {p.ep} does not divide the dp x cp x tp = {dp * p.cp * p.tp} ranks of a stage",
        "parallel.ep",
        f"a divisor of them, or cluster.gpus in steps of {p.pp * math.lcm(p.cp * p.tp, p.ep)}",
    )


def _serving_plan(p: ParallelTable, field: str) -> None:
    group = p.tp * p.attention_dp
    require(
        group % p.ep == 0,
        f"ep = {p.ep} does not divide tp x attention_dp = {group}",
        f"{field}.ep",
        "the experts' tensor degree is tp x attention_dp / ep",
    )
    require(
        p.etp in (None, group // p.ep),
        f"etp = {p.etp}, but tp x attention_dp / ep = {group // p.ep}",
        f"{field}.etp",
        "leave it out: it follows from the other degrees, except in training",
    )
    require(not p.zero, "ZeRO stages belong to training", f"{field}.zero")


def _enough_gpus(raw: RawScenario, pools: Mapping[str, PoolTable]) -> None:
    """A deployment may leave devices of a cluster idle, but not use more than there are."""
    gpus = raw.cluster.gpus if raw.cluster else None
    if gpus is None or raw.colocation is not None:
        return
    if pools:
        used = sum(_gpus(pool.parallel or raw.parallel) * pool.count for pool in pools.values())
        counted = "the pools take"
    else:
        used, counted = _gpus(raw.parallel), "tp x pp x attention_dp (x dp) ="
    require(
        used <= gpus,
        f"{counted} {used} GPUs, but the cluster has {gpus}",
        "pools" if pools else "parallel",
        "lower a degree or raise cluster.gpus",
    )


def _gpus(p: ParallelTable) -> int:
    return p.tp * p.pp * p.attention_dp * p.cp * (p.dp or 1)


def _inference(w: InferenceWorkload, field: str) -> None:
    sequences = len(w.input_lens) if w.input_lens is not None else w.batch or 1
    if sequences > MAX_STATIC_BATCH:
        raise over_limit(
            f"{sequences} sequences; a static batch has at most {MAX_STATIC_BATCH}",
            f"{field}.{'batch' if w.input_lens is None else 'input_lens'}",
        )
    if w.input_lens is not None:
        require(
            w.input_len is None,
            "input_lens and input_len are both given",
            f"{field}.input_len",
            "keep one of them",
        )
        require(
            w.batch in (None, len(w.input_lens)),
            f"batch is {w.batch}, but input_lens has {len(w.input_lens)} lengths",
            f"{field}.batch",
            "leave batch out",
        )
        return
    for name in ("batch", "input_len"):
        if getattr(w, name) is None:
            raise SilicastError(
                "is missing",
                field=f"{field}.{name}",
                hint="give input_lens, or batch and input_len",
            )


def _graph(w: GraphWorkload, field: str) -> None:
    if w.optimizer is not None:
        _known(w.optimizer, OPTIMIZERS, f"{field}.optimizer")
    if w.graph is not None:
        for name in ("batch", "seq_len"):
            if name in w.sizes and getattr(w, name) is not None:
                raise SilicastError("is given twice", field=f"{field}.sizes.{name}")
        return  # which sizes it leaves open, the program says
    require(not w.sizes, "a model's sizes are batch and seq_len", f"{field}.sizes")
    for name in ("batch", "seq_len"):
        if getattr(w, name) is None:
            raise SilicastError(
                "is missing",
                field=f"{field}.{name}",
                hint="batch and seq_len, or graph: an op-graph file",
            )


def _collective(w: CollectiveWorkload, field: str) -> None:
    from silicast.communication.library import collective_libraries
    from silicast.communication.selection import launches
    from silicast.scenario.reading.kinds_of_names import dtype_name

    dtype_name(w.dtype, f"{field}.dtype")
    for name, names in (("implementation", collective_libraries()), ("launch", launches())):
        value = getattr(w, name)
        if value is not None and value not in names:
            hint = near(value, names)
            raise unknown_name(
                f"expected one of {', '.join(names)}, found {shown(value)}",
                f"{field}.{name}",
                "" if hint.startswith("known") else hint,
            )


def _training(w: TrainingWorkload, field: str) -> None:
    require(
        w.global_batch >= w.micro_batch,
        f"micro_batch = {w.micro_batch} of {w.global_batch} sequences",
        f"{field}.micro_batch",
    )
    if w.recompute is not None:
        _recomputed(w.recompute, field)
    if w.optimizer is not None:
        _known(w.optimizer, OPTIMIZERS, f"{field}.optimizer")
    if isinstance(w.routing, list):
        require(sum(w.routing) > 0, "the histogram is empty", f"{field}.routing")


def _recomputed(policy: str, field: str) -> None:
    from silicast.workload.training.recomputation import every_layer, recomputed_parts

    if policy.startswith("selective:"):
        with errors_at(field):
            recomputed_parts(policy)
    elif every_layer(policy) == 1:
        _known(policy.removesuffix(":1"), RECOMPUTE, f"{field}.recompute")


def _serving(w: ServingWorkload, field: str) -> None:
    from silicast.scenario.answers.serving.serving_checks import check_serving

    check_serving(w, field)


def _capacity(w: CapacityWorkload, field: str) -> None:
    from silicast.scenario.answers.serving.serving_checks import check_slo

    _serving(w.traffic, f"{field}.traffic")
    check_slo(w.slo, f"{field}.slo")


def _plan(w: PlanWorkload, field: str) -> None:
    workloads = [n for n in ("training", "inference", "serving") if getattr(w, n) is not None]
    require(
        len(workloads) == 1,
        f"expected one of training, inference, serving, found {len(workloads)}",
        field,
    )
    _CHECKS[type(getattr(w, workloads[0]))](getattr(w, workloads[0]), f"{field}.{workloads[0]}")


def _placed(raw: RawScenario, workload: Workload | None, pools: Mapping[str, PoolTable]) -> None:
    """There is a device; where either is asked for, a device or a model."""
    if not isinstance(workload, FitsWorkload):
        if raw.device is None and not pools:
            raise SilicastError("is missing", field="device", hint="a name, a table or a path")
        return
    require(
        raw.device is not None or raw.model is not None,
        "neither is there a device whose models, nor a model whose devices are asked for",
        "device",
        "state a device, a model, or both",
    )


def _unchecked(w: DiagnoseWorkload | TuneWorkload | FitsWorkload, field: str) -> None:
    """What they hold is checked where it is looked up."""


def _workflow(w: WorkflowWorkload, field: str) -> None:
    from silicast.scenario.answers.serving.serving_checks import (
        check_arrival,
        check_length,
        check_slo,
    )

    for name, stage in w.stages.items():
        at = f"{field}.stages.{name}"
        for other in stage.after:
            if other == name:
                raise SilicastError(
                    "the stage waits for itself",
                    field=f"{at}.after",
                    hint="a loop is written with repeat or loop",
                )
            if other not in w.stages:
                raise unknown_name(
                    f"no other stage {shown(other)}", f"{at}.after", near(other, w.stages)
                )
        check_length(stage.input_len, f"{at}.input_len")
        check_length(stage.output_len, f"{at}.output_len")
        if stage.training is not None:
            _training(stage.training, f"{at}.training")
    if w.arrival is not None:
        check_arrival(w.arrival, f"{field}.arrival")
    check_slo(w.slo, f"{field}.slo")
    _no_cycle(w, field)


def _no_cycle(w: WorkflowWorkload, field: str) -> None:
    done: set[str] = set()
    while len(done) < len(w.stages):
        ready = {n for n, s in w.stages.items() if n not in done and done.issuperset(s.after)}
        if not ready:
            left = sorted(set(w.stages) - done)
            raise SilicastError(
                f"stages wait for each other: {', '.join(left[:5])}",
                field=f"{field}.stages",
                hint="a loop is written with repeat or loop",
            )
        done |= ready


def _stages(w: WorkflowWorkload, pools: Mapping[str, PoolTable]) -> None:
    for name, stage in w.stages.items():
        if stage.pool is not None and stage.pool not in pools:
            raise unknown_name(
                f"no pool {shown(stage.pool)}",
                f"workload.stages.{name}.pool",
                near(stage.pool, pools),
            )


def _known(value: str, allowed: tuple[str, ...], field: str) -> None:
    if value not in allowed:
        raise unknown_name(f"unknown name {shown(value)}", field, near(value, allowed))


_CHECKS: dict[type[Any], Callable[[Any, str], None]] = {
    CollectiveWorkload: _collective,
    GraphWorkload: _graph,
    InferenceWorkload: _inference,
    ServingWorkload: _serving,
    TrainingWorkload: _training,
    CapacityWorkload: _capacity,
    PlanWorkload: _plan,
    WorkflowWorkload: _workflow,
    DiagnoseWorkload: _unchecked,
    TuneWorkload: _unchecked,
    FitsWorkload: _unchecked,
}
