"""What serves the traffic of a scenario: its pools, router and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import msgspec

from silicast.composition.passes.deployment import without_copies
from silicast.core.errors import SilicastError, unknown_name, unsupported
from silicast.core.naming import near
from silicast.core.plain_data import shown
from silicast.hardware.cluster import Cluster, networks
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.deployments import ScenarioPool as Deployed
from silicast.scenario.resolving.deployments import deployment_of, pools_of
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.schema import LoraTable, PoolLinkTable
from silicast.serving.kv.host_cache import KvTier
from silicast.serving.simulation.deploy import host_bytes, replica_spec
from silicast.serving.simulation.event_loop import KvLink, ReplicaSpec
from silicast.serving.simulation.fleet import Fleet, ReplicaPool
from silicast.serving.simulation.launch import Expected
from silicast.serving.simulation.replica import Role
from silicast.serving.simulation.routers import LeastLoaded, RoundRobin, Router, router_named

KEPT = 0.7
"""Share of a host's memory above which the answer warns."""


def check_host_memory(fleet: Fleet) -> list[str]:
    """Remarks on what caches and weights take of their hosts' memory.

    Raises:
        SilicastError: they take more than a node has.
    """
    remarks: list[str] = []
    for pool in fleet.pools:
        taken, machine = _node_gb(pool), pool.deployment.machine
        memory_gb = machine.host.memory_gb
        if not taken:
            continue
        subject = (
            "weights and caches take" if pool.deployment.policy.host_bytes else "the KV cache takes"
        )
        share = f"{subject} {taken:.4g} GB of the host's memory on each node"
        if not memory_gb:
            remarks.append(f"{share}; how much {machine.host.cpu} has is not known: host.memory_gb")
        elif taken > memory_gb:
            raise SilicastError(
                f"{share}, which has {memory_gb:.4g} GB",
                field="engine.options",
                hint="a smaller size of the host's cache, swap space or weights, or host.memory_gb",
            )
        elif taken > KEPT * memory_gb:
            remarks.append(f"{share}, which has {memory_gb:.4g} GB in all")
    return list(dict.fromkeys(remarks))


def _node_gb(pool: ReplicaPool) -> float:
    """On the fullest node; pools are on nodes of their own."""
    plan, links = pool.deployment.plan, pool.deployment.machine.links
    ranks = plan.gpus // plan.attention_dp
    held = pool.deployment.policy.host_bytes
    each = host_bytes(pool.spec) / ranks + held
    return each * min(links.gpus_per_node, pool.gpus) / 1e9


LORA = (
    "lora: kernels of grouped adapters were not measured; they are priced as thin matrix products, "
    "each adapter as likely, and the host's work for them is left out"
)


def fleet_of(scenario: Scenario, expected: Expected) -> tuple[Fleet, list[str]]:
    """What serves, and what was assumed about it; ``parallel.dp`` is replicas.

    Args:
        expected: the traffic that its engines are launched for, by all clients together.

    Raises:
        SilicastError: an unknown name, pools of several models, or something not modelled.
    """
    deployed, replicas = _deployed(_bare(scenario))
    remarks = [
        f"{f'{name}: ' if name else ''}{text}"
        for name, p in deployed.items()
        for text in p.warnings
    ]
    pools = tuple(
        ReplicaPool(
            pool.deployment,
            _with_tiers(_spec(pool, expected), scenario, name),
            pool.count,
            name,
            _price(scenario, name),
        )
        for name, pool in deployed.items()
    )
    remarks += dict.fromkeys(filter(None, (_launched(pool) for pool in pools)))
    _decodes(scenario, pools)
    if scenario.raw.lora is not None:
        pools = _adapted(scenario, scenario.raw.lora, pools)
        remarks.append(LORA)
    plain, (pools, drafts) = pools, _drafting(scenario, pools)
    remarks += drafts
    if len({without_copies(pool.deployment.model) for pool in pools}) > 1:
        raise not_yet_of(PARTS["models"], "pools")
    router = _router(scenario, replicas)
    link, assumed = _link(scenario, pools)
    fleet = Fleet(pools, router, scenario.raw.seed or 0, link, plain)
    return fleet, [*remarks, *assumed, *check_host_memory(fleet)]


def _deployed(scenario: Scenario) -> tuple[Mapping[str, Deployed], int]:
    """Pools by name, and the data-parallel replicas of the only one."""
    if scenario.pools:
        return pools_of(scenario), 1
    count = scenario.raw.parallel.dp or 1
    parallel = msgspec.structs.replace(scenario.raw.parallel, dp=None)
    raw = msgspec.structs.replace(scenario.raw, parallel=parallel)
    deployment, warnings = deployment_of(msgspec.structs.replace(scenario, raw=raw))
    return {"": Deployed(deployment, count, "", tuple(warnings))}, count


def _bare(scenario: Scenario) -> Scenario:
    """Without what is put on top of its deployments."""
    raw = msgspec.structs.replace(scenario.raw, speculative=None, lora=None)
    return msgspec.structs.replace(scenario, raw=raw)


def _decodes(scenario: Scenario, pools: tuple[ReplicaPool, ...]) -> None:
    """Refuses what is put on top of decoding where an engine answers in one pass."""
    for pool in pools:
        for field in ("speculative", "lora"):
            if pool.spec.policy.one_pass and getattr(scenario.raw, field) is not None:
                raise unsupported(
                    f"{pool.deployment.engine.name} answers a request in one pass of a whole graph",
                    field,
                    "leave it out, or name an engine that generates tokens",
                )


def _adapted(
    scenario: Scenario, table: LoraTable, pools: tuple[ReplicaPool, ...]
) -> tuple[ReplicaPool, ...]:
    """The pools with adapters."""
    from silicast.serving.simulation.adapters import RequestAdapters, adapted

    if scenario.raw.speculative is not None:
        raise not_yet_of(PARTS["drafts"], "lora")
    adapters = RequestAdapters(table.rank, tuple(table.targets or ()), table.adapters)
    return tuple(
        replace(pool, spec=adapted(pool.spec, pool.deployment, adapters)) for pool in pools
    )


def _drafting(
    scenario: Scenario, pools: tuple[ReplicaPool, ...]
) -> tuple[tuple[ReplicaPool, ...], list[str]]:
    """The pools with what drafts their tokens, where they decode."""
    from silicast.scenario.resolving.speculation import drafting_of

    with_drafts, details = [], dict[str, None]()
    for pool in pools:
        drafting, assumed = drafting_of(scenario, pool.deployment)
        spec = pool.spec
        if drafting is not None and spec.role != "prefill":
            from silicast.serving.simulation.drafting import drafted

            spec = drafted(spec, pool.deployment, drafting)
        with_drafts.append(replace(pool, spec=spec))
        details |= dict.fromkeys(assumed)
    return tuple(with_drafts), list(details)


def _launched(pool: ReplicaPool) -> str:
    """That a limit follows from the traffic."""
    serving = pool.deployment.engine.serving
    if serving is None or serving.launch is None:
        return ""
    return (
        f"max_num_batched_tokens: {pool.spec.limits.step_tokens}, as {pool.deployment.engine.name} "
        f"is launched for such prompts (its own default is {serving.step_tokens}); "
        f"engine.options.max_num_batched_tokens states another"
    )


def _spec(pool: Deployed, expected: Expected) -> ReplicaSpec:
    per_replica = replace(expected, clients=-(-expected.clients // pool.count))
    return replace(replica_spec(pool.deployment, per_replica), role=cast("Role", pool.role))


def _with_tiers(spec: ReplicaSpec, scenario: Scenario, name: str) -> ReplicaSpec:
    """A replica whose cached blocks go on to the pool's tiers."""
    table = scenario.pools.get(name)
    if table is None or not table.kv_tiers:
        return spec
    names = [each.kind for each in table.kv_tiers]
    if len(set(names)) < len(names):
        raise SilicastError(
            f"two tiers of one kind: {', '.join(names)}",
            field=f"pools.{name}.kv_tiers",
            hint="one of each, the nearest first",
        )
    if not host_bytes(spec):
        raise SilicastError(
            "nothing comes here: the engine keeps no cached blocks in the host's memory",
            field=f"pools.{name}.kv_tiers",
            hint="give it some by engine.options: docs/explanation/serving-engines.md",
        )
    tiers = tuple(
        KvTier(
            each.kind,
            each.size_gb * 1e9,
            each.bandwidth_gb_per_s * 1e9,
            (each.latency_us or 0.0) * 1e-6,
        )
        for each in table.kv_tiers
    )
    return replace(spec, limits=replace(spec.limits, kv_tiers=tiers))


def _price(scenario: Scenario, name: str) -> float | None:
    """Of a device an hour: the pool's own, else the cluster's."""
    table, cluster = scenario.pools.get(name), scenario.raw.cluster
    if table is not None and table.price_per_gpu_hour is not None:
        return table.price_per_gpu_hour
    return cluster.price_per_gpu_hour if cluster is not None else None


def _router(scenario: Scenario, replicas: int) -> type[Router]:
    if scenario.raw.router:
        return router_named(scenario.raw.router)
    return LeastLoaded if replicas > 1 else RoundRobin


def _link(scenario: Scenario, pools: tuple[ReplicaPool, ...]) -> tuple[KvLink | None, list[str]]:
    """What joins prefill and decode: the stated link, the link of the decoding devices or the
    network of the catalog that its kind names, or their own network.
    """
    decoding = next((pool for pool in pools if pool.spec.role == "decode"), None)
    if decoding is None:
        return None, []
    name, link = next(iter(scenario.links.items()), ("", PoolLinkTable()))
    cluster, assumed = decoding.deployment.machine.links, list[str]()
    rate, latency_s, kind = stated_kind(link, cluster, f"links.{name}.kind")
    if kind == cluster.inter_node.name and _leaves_pod(cluster, pools):
        rate = min(rate, cluster.uplink.bandwidth_bytes_per_s) if cluster.uplink else rate
    if link.bandwidth_gb_per_s is not None:
        rate = link.bandwidth_gb_per_s * 1e9
    else:
        assumed = [f"links: caches move over {kind}, {rate / 1e9:.3g} GB/s a device, as assumed"]
    if link.latency_us is not None:
        latency_s = link.latency_us * 1e-6
    block = decoding.spec.layout.block_bytes
    return KvLink(rate, round(latency_s * 1e9), block), assumed


def link_rate(link: PoolLinkTable, cluster: Cluster, field: str) -> tuple[float, float, str]:
    """Bandwidth a device, latency and name of a link as it is stated, else of its kind; raises as
    :func:`stated_kind`.
    """
    rate, latency_s, kind = stated_kind(link, cluster, f"{field}.kind")
    if link.bandwidth_gb_per_s is not None:
        rate = link.bandwidth_gb_per_s * 1e9
    return rate, latency_s if link.latency_us is None else link.latency_us * 1e-6, kind


def stated_kind(link: PoolLinkTable, cluster: Cluster, field: str) -> tuple[float, float, str]:
    """Bandwidth a device, latency and name of the link that a kind names.

    Raises:
        SilicastError: nothing has this name, and the link states no bandwidth of its own.
    """
    network, inside, catalog = cluster.inter_node, cluster.intra_node, networks()
    if inside is not None and link.kind.casefold() == inside.name:
        return inside.bandwidth_bytes_per_s, network.latency_s, inside.name
    if link.kind.casefold() not in (PoolLinkTable().kind, network.name):
        if link.kind in catalog:
            entry = catalog.get(link.kind)
            return (
                entry.bandwidth_gb_per_s * 1e9,
                entry.latency_us * 1e-6,
                catalog.canonical(link.kind),
            )
        if link.bandwidth_gb_per_s is None:
            inside_names = [inside.name] if inside is not None else []
            raise unknown_name(
                f"no link or network {shown(link.kind)}",
                field,
                f"{near(link.kind, [*inside_names, *catalog.names])}; or state bandwidth_gb_per_s",
            )
    return network.bandwidth_bytes_per_s, network.latency_s, network.name


def _leaves_pod(cluster: Cluster, pools: tuple[ReplicaPool, ...]) -> bool:
    """Whether caches move over what joins the network's pods: pools are on nodes of their own, and
    without pods every node is one.
    """
    return sum(pool.gpus for pool in pools) > cluster.pod
