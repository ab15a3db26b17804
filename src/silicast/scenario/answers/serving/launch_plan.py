"""What a serving scenario starts: degrees and limits of each pool, as they were predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.core.errors import SilicastError, unsupported
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.traffic import OPEN_REQUESTS
from silicast.scenario.schema import EngineTable
from silicast.scenario.workloads import ServingWorkload
from silicast.serving.capacity.room import longest_sequence
from silicast.serving.simulation.fleet import ReplicaPool
from silicast.serving.simulation.launch import serving_table, start_of

SAMPLE = 100
"""Requests by which the longest is known."""


@final
@dataclass(frozen=True)
class PoolLaunch:
    """Servers alike.

    Attributes:
        role: "", "prefill" or "decode"; replicas: how many servers.
        gpus: of one server; gpus_per_node: of one node.
        max_sequences: that run at once in a server; group_sequences: in each of its groups.
        step_tokens: most new tokens of a step; model_tokens: of the longest sequence, for which the
            cache has room.
        memory_fraction: of a device that the server may fill, in the engine's own sense.
        kv_dtype: of the cache, "" = the engine's default.
        recipe: of the products where it is not the checkpoint's; "" = it is.
        options: of the engine, by its own names.
    """

    engine: str
    version: str
    role: str
    replicas: int
    tp: int
    pp: int
    ep: int
    attention_dp: int
    gpus: int
    gpus_per_node: int
    max_sequences: int
    group_sequences: int
    step_tokens: int
    model_tokens: int
    memory_fraction: float
    kv_dtype: str
    recipe: str
    options: Mapping[str, Any]


@final
@dataclass(frozen=True)
class LaunchPlan:
    """Everything that files to deploy state.

    Attributes:
        model: repository or path of the checkpoint.
        input_len, output_len: of a mean request; rate_per_s: 0 = clients that wait.
        uniform: requests of one length come at a Poisson rate, or from clients that wait: what an
            engine's benchmark sends.
        crosses_nodes: nobody states what joins prefill and decode, which were predicted on nodes of
            their own.
    """

    model: str
    device: str
    pools: tuple[PoolLaunch, ...]
    input_len: int
    output_len: int
    rate_per_s: float
    concurrency: int
    requests: int
    uniform: bool = True
    crosses_nodes: bool = False


def launch_plan(scenario: Scenario, checkpoint: str = "") -> LaunchPlan:
    """What a scenario of task ``serving`` starts.

    Args:
        checkpoint: repository or path of the model's weights; "" = the model's name.

    Raises:
        SilicastError: it is of another task, cannot be simulated, or states something that no
            launch has.
    """
    if scenario.raw.task != "serving":
        raise SilicastError(
            f"{scenario.raw.task} starts no server",
            field="task",
            hint="give a scenario of task serving, as `silicast recommend -o` writes one",
        )
    for name in ("speculative", "lora", "colocation"):
        if getattr(scenario.raw, name) is not None:
            raise unsupported("has no files to deploy", name)
    served = prepared(scenario, SAMPLE).served
    requests = served.requests
    model = scenario.raw.model
    if not checkpoint and not isinstance(model, str):
        raise SilicastError("is a table: name its weights", field="--checkpoint")
    span_s = float(requests.arrival_ns.max() - requests.arrival_ns.min()) * 1e-9
    work = scenario.workload
    assert isinstance(work, ServingWorkload)
    rate = work.arrival.rate_per_s or (len(requests) / span_s if span_s > 0 else 0.0)
    lengths = (requests.input_tokens, requests.output_tokens)
    plain = work.arrival.kind in ("poisson", "closed")
    uniform = plain and all(int(each.min()) == int(each.max()) for each in lengths)
    return LaunchPlan(
        model=checkpoint or str(model),
        device=served.deployment.device.name,
        pools=tuple(_launch(pool, scenario) for pool in served.fleet.pools),
        input_len=round(float(requests.input_tokens.mean())),
        output_len=round(float(requests.output_tokens.mean())),
        rate_per_s=round(rate, 4),
        concurrency=requests.concurrency,
        requests=max(
            len(requests),
            10 * requests.concurrency,
            OPEN_REQUESTS if requests.steady else 0,  # the sample is too few for tails
        ),
        uniform=uniform,
        crosses_nodes=any(p.spec.role for p in served.fleet.pools) and not scenario.links,
    )


def _launch(pool: ReplicaPool, scenario: Scenario) -> PoolLaunch:
    deployment, spec = pool.deployment, pool.spec
    plan, limits, precision = deployment.plan, spec.limits, deployment.precision
    engine = scenario.raw.engine
    table = scenario.pools.get(pool.name)
    if table is not None and table.engine is not None:
        engine = table.engine
    default = deployment.model.default_precision
    share = start_of(deployment, limits).share or deployment.engine.memory.usable_fraction
    return PoolLaunch(
        engine=deployment.engine.name,
        version=deployment.engine.version,
        role=spec.role,
        replicas=pool.count,
        tp=plan.tp,
        pp=plan.pp,
        ep=plan.ep,
        attention_dp=plan.attention_dp,
        gpus=plan.gpus,
        gpus_per_node=max(deployment.machine.links.gpus_per_node, deployment.machine.links.domain),
        max_sequences=limits.sequences * (spec.groups if _shared(pool) else 1),
        group_sequences=limits.sequences,
        step_tokens=limits.step_tokens,
        model_tokens=longest_sequence(limits, spec.layout, deployment.model.max_positions),
        memory_fraction=round(float(share), 3),
        kv_dtype="" if precision.kv_cache == default.kv_cache else precision.kv_cache,
        recipe="" if precision.recipe == default.recipe else precision.recipe,
        options=dict(engine.options) if isinstance(engine, EngineTable) else {},
    )


def _shared(pool: ReplicaPool) -> bool:
    """Whether the engine's limit on sequences is of all groups together."""
    return serving_table(pool.deployment).shares_sequences
