"""What a scenario's fields must satisfy together, before anything is looked up or computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from silicast.core.errors import SilicastError, over_limit, unknown_name
from silicast.scenario.limits import MAX_STATIC_BATCH
from silicast.scenario.reading import shown
from silicast.scenario.schema import (
    ParallelTable,
    PoolLinkTable,
    PoolTable,
    PrecisionTable,
    RawScenario,
)
from silicast.scenario.strict import near, require
from silicast.scenario.workloads import (
    ArrivalTable,
    CapacityWorkload,
    CollectiveWorkload,
    DistributionTable,
    GraphWorkload,
    InferenceWorkload,
    Length,
    PlanWorkload,
    ServingWorkload,
    SloTable,
    TrainingWorkload,
    WorkflowWorkload,
    Workload,
)
from silicast.workload.precision import require_agreeing

OPTIMIZERS = (
    "none", "adam", "adamw", "fused_adam", "sgd", "sgd_momentum", "adafactor", "lion", "muon",
    "lamb", "adam_8bit", "distributed_adam", "shampoo",
)  # fmt: skip
RECOMPUTE = ("none", "selective", "full")
ROLES = {"prefill": "decode", "decode": "prefill"}
"""Role of a pool -> the role of those without which it answers nothing."""


def check_workload(
    raw: RawScenario, workload: Workload | None, pools: Mapping[str, PoolTable]
) -> None:
    """Refuses fields that contradict each other.

    Raises:
        SilicastError: names the field and what to change.
    """
    _precisions(raw, pools)
    if raw.device is None and not pools:
        raise SilicastError("is missing", field="device", hint="a name, a table or a path")
    if raw.colocation is not None:
        require(len(pools) > 1, "there is one pool only", "colocation", "name the others in pools")
    if raw.parallel.sp not in (0, 1) and raw.parallel.sp != raw.parallel.tp:
        require(
            raw.parallel.tp == 1, "sequence and tensor degree differ", "parallel.sp",
            "true shares the tensor-parallel ranks",
        )  # fmt: skip
    if workload is not None:
        needs_model = not isinstance(workload, (CollectiveWorkload, WorkflowWorkload))
        needs_model &= not (isinstance(workload, GraphWorkload) and workload.graph is not None)
        if needs_model and raw.model is None and not any(p.model for p in pools.values()):
            raise SilicastError("is missing", field="model", hint="a name, a table or a path")
        _CHECKS[type(workload)](workload, "workload")
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


def check_pools(pools: Mapping[str, PoolTable], links: Mapping[str, PoolLinkTable]) -> None:
    """Refuses roles that answer nothing without another, and links that join no two roles.

    Raises:
        SilicastError: names the pool or link and what is missing.
    """
    by_role: dict[str, list[str]] = {}
    for name, pool in pools.items():
        if pool.role:
            _known(pool.role, tuple(ROLES), f"pools.{name}.role")
        by_role.setdefault(pool.role, []).append(name)
    for role, missing in ROLES.items():
        for name in by_role.get(role, [])[:1]:
            require(
                missing in by_role, f"no other pool has role {missing!r}", f"pools.{name}.role",
                f'add a pool with role = "{missing}", or leave role out for a pool that does both',
            )  # fmt: skip
    _links(pools, links, by_role)


def _links(
    pools: Mapping[str, PoolTable],
    links: Mapping[str, PoolLinkTable],
    by_role: Mapping[str, list[str]],
) -> None:
    for place, (name, link) in enumerate(links.items()):
        for end, pool, role in (("from", link.source, "prefill"), ("to", link.target, "decode")):
            field = f"links.{name}.{end}"
            if pool is not None and pool not in pools:
                raise unknown_name(f"no pool {shown(pool)}", field, near(pool, pools))
            ends = by_role.get(role, [])
            if pool is None or not ends:
                continue
            require(
                pool in ends, f"pool {shown(pool)} has not role {role!r}", field,
                f"caches move from prefill to decode: {' or '.join(ends)}",
            )  # fmt: skip
            if len(ends) > 1:
                raise _one_link(field, f"leave it out: the link joins {' and '.join(ends)} alike")
        if place:
            raise _one_link(f"links.{name}", f"keep {next(iter(links))} or {name}")
    require(
        bool(pools) or not links, "there are no pools to join", "links",
        "a link joins a pool with role = prefill and one with role = decode",
    )  # fmt: skip


def _one_link(field: str, hint: str) -> SilicastError:
    message = "not yet: several links between prefill and decode"
    return SilicastError(message, kind="not_yet", field=field, hint=hint)


def _participants(raw: RawScenario, workload: CollectiveWorkload) -> None:
    if raw.cluster and raw.cluster.gpus:
        require(
            workload.gpus <= raw.cluster.gpus,
            f"{workload.gpus} GPUs in a cluster of {raw.cluster.gpus}",
            "workload.gpus",
        )


def _precisions(raw: RawScenario, pools: Mapping[str, PoolTable]) -> None:
    _precision(raw.precision, "precision")
    for name, pool in pools.items():
        _precision(pool.precision, f"pools.{name}.precision")


def _precision(table: PrecisionTable | None, field: str) -> None:
    if table is None:
        return
    from silicast.scenario.dtype_names import dtype_name

    stated = {
        name: dtype_name(value, f"{field}.{name}")
        for name in ("recipe", "weights", "activations", "kv_cache")
        if (value := getattr(table, name)) is not None
    }
    stated.pop("kv_cache", None)
    try:
        require_agreeing(*map(stated.get, ("recipe", "weights", "activations")))
    except SilicastError as error:
        raise error.at(field) from None


def _training_plan(raw: RawScenario, workload: TrainingWorkload) -> None:
    p, gpus = raw.parallel, raw.cluster.gpus if raw.cluster else None
    unit = p.tp * p.pp * p.cp
    if gpus is not None:
        require(
            gpus % unit == 0, f"tp x pp x cp = {unit} does not divide {gpus} GPUs", "parallel",
            f"tp {p.tp}, pp {p.pp}, cp {p.cp}",
        )  # fmt: skip
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
    )
    require(
        p.ep == 1 or (dp * p.cp * p.tp) % p.ep == 0,
        f"ep = {p.ep} does not divide the dp x cp x tp = {dp * p.cp * p.tp} ranks of a stage",
        "parallel.ep",
    )


def _serving_plan(p: ParallelTable, field: str) -> None:
    group = p.tp * p.attention_dp
    require(
        group % p.ep == 0, f"ep = {p.ep} does not divide tp x attention_dp = {group}",
        f"{field}.ep", "the experts' tensor degree is tp x attention_dp / ep",
    )  # fmt: skip
    require(
        p.etp in (None, group // p.ep),
        f"etp = {p.etp}, but tp x attention_dp / ep = {group // p.ep}",
        f"{field}.etp",
        "leave it out: it follows from the other degrees, except in training",
    )
    require(p.zero == 0, "ZeRO stages belong to training", f"{field}.zero")


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
        used <= gpus, f"{counted} {used} GPUs, but the cluster has {gpus}",
        "pools" if pools else "parallel", "lower a degree or raise cluster.gpus",
    )  # fmt: skip


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
            w.input_len is None, "input_lens and input_len are both given", f"{field}.input_len",
            "keep one of them",
        )  # fmt: skip
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
        return  # which sizes it leaves open, the file says
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
    from silicast.scenario.dtype_names import dtype_name

    dtype_name(w.dtype, f"{field}.dtype")
    for name, known in (("implementation", collective_libraries()), ("launch", launches())):
        value = getattr(w, name)
        if value is not None and value not in known:
            hint = near(value, known)
            raise unknown_name(
                f"expected one of {', '.join(known)}, found {shown(value)}",
                f"{field}.{name}",
                "" if hint.startswith("known") else hint,
            )


_TRACE = ("path", "rows", "bad_rows")
_RATE = ("rate_per_s", "burst", "ramp_to_per_s", "ramp", "exact_rate", "concurrency", *_TRACE)
_ARRIVAL: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "closed": (("concurrency",), ("concurrency", *_TRACE)), "poisson": (("rate_per_s",), _RATE),
    "gamma": (("rate_per_s",), ("cv", *_RATE)), "trace": ((), ("concurrency", *_TRACE)),
}  # fmt: skip
"""kind -> (fields it needs, fields it may have)."""


def _arrival(w: ArrivalTable, field: str) -> None:
    needed, allowed = _ARRIVAL[w.kind]
    for name in w.__struct_fields__[1:]:
        given = getattr(w, name) is not None
        require(
            given or name not in needed, "is missing", f"{field}.{name}",
            f"arrival of kind {w.kind} needs it",
        )  # fmt: skip
        require(
            not given or name in allowed, f"is not part of arrival kind {w.kind}",
            f"{field}.{name}", f"{w.kind} takes {' or '.join(allowed)}",
        )  # fmt: skip
    traced = (w.path is not None) + (w.rows is not None)
    require(
        traced < 2 and (traced == 1 or w.kind != "trace"), "expected either path or rows", field
    )
    require(
        traced == 1 or w.bad_rows is None, "goes with a trace: path or rows", f"{field}.bad_rows"
    )
    for name in ("ramp", "exact_rate"):
        require(
            not getattr(w, name) or (w.ramp_to_per_s is None) == (name == "exact_rate"),
            "goes with ramp_to_per_s" if name == "ramp" else "goes with a constant rate",
            f"{field}.{name}",
        )


_DISTRIBUTION: dict[str, tuple[str, ...]] = {
    "fixed": ("value",), "uniform": ("min", "max"), "normal": ("mean", "std"),
    "lognormal": ("median", "sigma"), "gamma": ("mean", "std"), "exponential": ("mean",),
    "zipf": ("min", "max", "exponent"), "values": ("values",),
}  # fmt: skip
"""kind -> fields it needs; min and max may bound any of them."""


def _length(w: Length | None, field: str) -> None:
    if not isinstance(w, DistributionTable):
        return
    needed = _DISTRIBUTION[w.kind]
    for name in ("value", "mean", "std", "min", "max", "median", "sigma", "exponent", "values"):
        given = getattr(w, name) is not None
        require(
            given or name not in needed, "is missing", f"{field}.{name}",
            f"a {w.kind} distribution needs {', '.join(needed)}",
        )  # fmt: skip
        require(
            not given or name in (*needed, "min", "max"),
            f"is not part of a {w.kind} distribution",
            f"{field}.{name}",
        )
    if w.min is not None and w.max is not None:
        require(w.min <= w.max, f"min = {w.min} is above max = {w.max}", f"{field}.min")


def _slo(w: SloTable | None, field: str) -> None:
    if w is not None:
        given = [n for n in w.__struct_fields__ if n != "quantile" and getattr(w, n) is not None]
        require(bool(given), "sets no limit", field, "ttft_ms, tpot_ms, itl_ms, e2e_ms, ...")


def _serving(w: ServingWorkload, field: str) -> None:
    _arrival(w.arrival, f"{field}.arrival")
    for name in ("input_len", "output_len"):
        value = getattr(w, name)
        if w.arrival.path is None and w.arrival.rows is None:
            require(
                value is not None, "is missing", f"{field}.{name}", "a length or a distribution"
            )
        _length(value, f"{field}.{name}")
        require(
            w.range_ratio is None or not isinstance(value, DistributionTable),
            "range_ratio goes with plain lengths",
            f"{field}.range_ratio",
        )
    if w.prefix is not None:
        require(
            (w.prefix.hit_ratio is not None) + (w.prefix.length is not None) == 1
            or (w.prefix.hit_ratio is w.prefix.length is None and not w.prefix.cache),
            "expected either hit_ratio or length",
            f"{field}.prefix",
        )
        require(
            w.prefix.groups == 1 or w.prefix.hit_ratio is None, "goes with length",
            f"{field}.prefix.groups", "a hit ratio holds for all requests alike",
        )  # fmt: skip
    if w.sessions is not None:
        require(
            w.sessions.turns > 1 or not w.sessions.think_time_s, "goes with several turns",
            f"{field}.sessions.think_time_s", "turns = 2 or more; nobody thinks after the last one",
        )  # fmt: skip
        traced = w.arrival.path is not None or w.arrival.rows is not None
        require(not traced, "go with lengths, not with a trace", f"{field}.sessions")
        require(
            w.prefix is None or w.prefix.hit_ratio is None,
            "goes with single requests: turns hit what was said before",
            f"{field}.prefix.hit_ratio",
            "prefix.length is a text that all sessions begin with",
        )
    _slo(w.slo, f"{field}.slo")


def _training(w: TrainingWorkload, field: str) -> None:
    require(
        w.global_batch >= w.micro_batch,
        f"micro_batch = {w.micro_batch} of {w.global_batch} sequences",
        f"{field}.micro_batch",
    )
    if w.recompute is not None and not w.recompute.startswith("selective:"):
        _known(w.recompute, RECOMPUTE, f"{field}.recompute")
    if w.optimizer is not None:
        _known(w.optimizer, OPTIMIZERS, f"{field}.optimizer")
    if isinstance(w.routing, list):
        require(sum(w.routing) > 0, "the histogram is empty", f"{field}.routing")


def _capacity(w: CapacityWorkload, field: str) -> None:
    _serving(w.traffic, f"{field}.traffic")
    _slo(w.slo, f"{field}.slo")


def _plan(w: PlanWorkload, field: str) -> None:
    given = [n for n in ("training", "inference", "serving") if getattr(w, n) is not None]
    require(
        len(given) == 1, f"expected one of training, inference, serving, found {len(given)}", field
    )
    _CHECKS[type(getattr(w, given[0]))](getattr(w, given[0]), f"{field}.{given[0]}")


def _workflow(w: WorkflowWorkload, field: str) -> None:
    for name, stage in w.stages.items():
        at = f"{field}.stages.{name}"
        for other in stage.after:
            if other not in w.stages or other == name:
                raise unknown_name(
                    f"no other stage {shown(other)}", f"{at}.after", near(other, w.stages)
                )
        _length(stage.input_len, f"{at}.input_len")
        _length(stage.output_len, f"{at}.output_len")
        if stage.training is not None:
            _training(stage.training, f"{at}.training")
    if w.arrival is not None:
        _arrival(w.arrival, f"{field}.arrival")
    _slo(w.slo, f"{field}.slo")
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
                hint="a loop is written with repeat",
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
    CollectiveWorkload: _collective, GraphWorkload: _graph, InferenceWorkload: _inference,
    ServingWorkload: _serving, TrainingWorkload: _training, CapacityWorkload: _capacity,
    PlanWorkload: _plan, WorkflowWorkload: _workflow,
}  # fmt: skip
