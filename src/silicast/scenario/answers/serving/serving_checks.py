"""What traffic, and the pools that serve it, must satisfy together."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from silicast.core.errors import require, unknown_name
from silicast.core.naming import near
from silicast.core.plain_data import shown
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.schema import PoolLinkTable, PoolTable
from silicast.scenario.workloads import (
    ArrivalTable,
    DistributionTable,
    Length,
    ServingWorkload,
    SloTable,
)
from silicast.serving.capacity.objective import LatencyObjective

BEYOND = 40
"""Requests beyond a quantile that show it well."""
ROLES = {"prefill": "decode", "decode": "prefill"}
"""Role of a pool -> the role of those without which it answers nothing."""


def check_pools(pools: Mapping[str, PoolTable], links: Mapping[str, PoolLinkTable]) -> None:
    """Refuses roles that answer nothing without another, and links that join no two roles.

    Raises:
        SilicastError: names the pool or link and what is missing.
    """
    by_role: dict[str, list[str]] = {}
    for name, pool in pools.items():
        if pool.role and pool.role not in ROLES:
            hint = near(pool.role, tuple(ROLES))
            raise unknown_name(f"unknown name {shown(pool.role)}", f"pools.{name}.role", hint)
        require(
            pool.shares_with is None,
            "pools take devices by turns in workflows alone",
            f"pools.{name}.shares_with",
            "colocation, for models that serve on the same devices",
        )
        by_role.setdefault(pool.role, []).append(name)
    for role, missing in ROLES.items():
        for name in by_role.get(role, [])[:1]:
            require(
                missing in by_role,
                f"no other pool has role {missing!r}",
                f"pools.{name}.role",
                f'add a pool with role = "{missing}", or leave role out for a pool that does both',
            )
    _links(pools, links, by_role)


def _links(
    pools: Mapping[str, PoolTable],
    links: Mapping[str, PoolLinkTable],
    by_role: Mapping[str, list[str]],
) -> None:
    for index, (name, link) in enumerate(links.items()):
        for end, pool, role in (("from", link.source, "prefill"), ("to", link.target, "decode")):
            field = f"links.{name}.{end}"
            if pool is not None and pool not in pools:
                raise unknown_name(f"no pool {shown(pool)}", field, near(pool, pools))
            ends = by_role.get(role, [])
            require(
                bool(ends) or not pools,
                f"no pool has role {role!r}: no cache moves",
                field,
                "add roles prefill and decode to pools, or leave the link out",
            )
            if pool is None or not ends:
                continue
            require(
                pool in ends,
                f"pool {shown(pool)} has not role {role!r}",
                field,
                f"caches move from prefill to decode: {' or '.join(ends)}",
            )
            if len(ends) > 1:
                raise not_yet_of(PARTS["links"], field)
        if index:
            raise not_yet_of(PARTS["links"], f"links.{name}")
    require(
        bool(pools) or not links,
        "there are no pools to join",
        "links",
        "a link joins a pool with role = prefill and one with role = decode",
    )


_TRACE = ("path", "trace", "rows", "bad_rows")
_STAGED = ("stages", "burst", "concurrency")
_RATE = ("rate_per_s", "ramp_to_per_s", "ramp", "exact_rate", *_STAGED, *_TRACE)
_ARRIVAL: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "closed": (("concurrency",), ("concurrency", *_TRACE)),
    "poisson": (("rate_per_s",), _RATE),
    "gamma": (("rate_per_s",), ("cv", *_RATE)),
    "constant": (("rate_per_s",), _RATE),
    "trace": ((), ("concurrency", *_TRACE)),
}
"""kind -> (fields it needs, fields it may have)."""


def check_arrival(w: ArrivalTable, field: str) -> None:
    """Refuses fields that an arrival of its kind lacks or has not."""
    needed, allowed = _ARRIVAL[w.kind]
    if w.stages is not None and "stages" in allowed:  # in place of one rate
        needed, allowed = (), tuple(name for name in allowed if name in (*_STAGED, "cv"))
    for name in w.__struct_fields__[1:]:
        is_stated = getattr(w, name) is not None
        require(
            is_stated or name not in needed,
            "is missing",
            f"{field}.{name}",
            f"arrival of kind {w.kind} needs it",
        )
        require(
            not is_stated or name in allowed,
            f"is not part of arrival kind {w.kind}",
            f"{field}.{name}",
            f"{w.kind} takes {' or '.join(allowed)}",
        )
    traced = (w.path is not None) + (w.rows is not None)
    require(
        traced < 2 and (traced == 1 or w.kind != "trace"), "expected either path or rows", field
    )
    require(
        traced == 1 or w.bad_rows is None, "goes with a trace: path or rows", f"{field}.bad_rows"
    )
    require(w.path is not None or w.trace is None, "goes with a path", f"{field}.trace")
    for name in ("ramp", "exact_rate"):
        require(
            not getattr(w, name) or (w.ramp_to_per_s is None) == (name == "exact_rate"),
            "goes with ramp_to_per_s" if name == "ramp" else "goes with a constant rate",
            f"{field}.{name}",
        )


_DISTRIBUTION: dict[str, tuple[str, ...]] = {
    "fixed": ("value",),
    "uniform": ("min", "max"),
    "normal": ("mean", "std"),
    "lognormal": ("median", "sigma"),
    "gamma": ("mean", "std"),
    "exponential": ("mean",),
    "zipf": ("min", "max", "exponent"),
    "values": ("values",),
}
"""kind -> fields it needs; min and max may bound any of them."""


def check_length(w: Length | None, field: str) -> None:
    """Refuses fields that a distribution of its kind lacks or has not."""
    if not isinstance(w, DistributionTable):
        return
    needed = _DISTRIBUTION[w.kind]
    for name in ("value", "mean", "std", "min", "max", "median", "sigma", "exponent", "values"):
        is_stated = getattr(w, name) is not None
        require(
            is_stated or name not in needed,
            "is missing",
            f"{field}.{name}",
            f"a {w.kind} distribution needs {', '.join(needed)}",
        )
        require(
            not is_stated or name in (*needed, "min", "max"),
            f"is not part of a {w.kind} distribution",
            f"{field}.{name}",
        )
    if w.min is not None and w.max is not None:
        require(w.min <= w.max, f"min = {w.min} is above max = {w.max}", f"{field}.min")


def check_slo(w: SloTable | None, field: str) -> None:
    """Refuses an objective without a limit."""
    if w is not None:
        limits = [n for n in w.__struct_fields__ if n != "quantile" and getattr(w, n) is not None]
        require(bool(limits), "sets no limit", field, "ttft_ms, tpot_ms, itl_ms, e2e_ms, ...")


def check_serving(w: ServingWorkload, field: str) -> None:
    """Refuses traffic whose fields contradict each other."""
    check_arrival(w.arrival, f"{field}.arrival")
    for name in ("input_len", "output_len"):
        value = getattr(w, name)
        if w.arrival.path is None and w.arrival.rows is None:
            require(
                value is not None, "is missing", f"{field}.{name}", "a length or a distribution"
            )
        check_length(value, f"{field}.{name}")
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
            w.prefix.groups == 1 or w.prefix.hit_ratio is None,
            "goes with length",
            f"{field}.prefix.groups",
            "a hit ratio holds for all requests alike",
        )
    if w.sessions is not None:
        require(
            w.sessions.turns > 1 or not w.sessions.think_time_s,
            "goes with several turns",
            f"{field}.sessions.think_time_s",
            "turns = 2 or more; nobody thinks after the last one",
        )
        traced = w.arrival.path is not None or w.arrival.rows is not None
        require(not traced, "go with lengths, not with a trace", f"{field}.sessions")
        require(
            w.prefix is None or w.prefix.hit_ratio is None,
            "goes with single requests: turns hit what was said before",
            f"{field}.prefix.hit_ratio",
            "prefix.length is a text that all sessions begin with",
        )
    check_slo(w.slo, f"{field}.slo")


def objective_remarks(slo: SloTable | None, count: int) -> list[str]:
    """What a reader must know of an objective over so many requests: a quantile that is hardly more
    than the slowest of them, and limits that another one leaves nothing to say.
    """
    objective = LatencyObjective.from_fields(msgspec.to_builtins(slo or SloTable()))
    remarks = [
        f"workload.slo: the limit on {told(name)} says nothing beside that on {told(stricter)}, "
        "which is stricter"
        for name, stricter in objective.idle().items()
    ]
    quantile = objective.highest_quantile
    needed = math.ceil(round(1.0 / max(1.0 - quantile, 1e-9), 6))
    if quantile and count < needed:
        show = f"{needed:,} show it, {BEYOND * needed:,} show it well"
        remarks.append(
            f"workload.slo: p{quantile * 100:g} of {count} requests is that of the slowest; {show}"
        )
    return remarks


def told(statistic: str) -> str:
    """A statistic in words.

    >>> told("ttft_p99_ms"), told("e2e_ms")
    ('ttft p99', 'e2e')
    """
    return statistic.removesuffix("_ms").replace("_", " ")
