"""From a deployment to what a simulation runs: prices, policy, limits and cache of its replicas."""

from __future__ import annotations

from typing import Any

from silicast.composition.deployment import Deployment
from silicast.composition.step import step_model
from silicast.composition.step_prices import StepPrices
from silicast.core.errors import SilicastError
from silicast.serving.kv_pool import KvLayout, blocks_of
from silicast.serving.scheduler import Limits, scheduler_named
from silicast.serving.simulation import ReplicaSpec

UNLIMITED = 16384
"""New tokens of a step where an engine states no limit."""


def replica_spec(
    deployment: Deployment, *, sequences: int = 0, blocks: int = 0, **limits: Any
) -> ReplicaSpec:
    """What a replica of a deployment is made of.

    Args:
        sequences: most that run at once in each group; 0 = the engine's default.
        blocks: of the KV cache, where the engine has said how many; 0 = what fits.
        limits: further fields of :class:`~silicast.serving.scheduler.Limits`.

    Raises:
        SilicastError: the engine does not serve, or the model does not fit.
    """
    engine = deployment.engine
    table = engine.serving
    if table is None:
        raise SilicastError(f"{engine.name} serves no requests", field="engine")
    layout = KvLayout.of(deployment)
    tokens = engine.memory.prefill_chunk_tokens or UNLIMITED
    most = sequences or table.max_sequences
    found = blocks or blocks_of(deployment, layout, tokens, min(most, tokens))
    if found < 1:
        raise SilicastError(
            f"{deployment.model.name} leaves no room for a KV cache on {deployment.plan.gpus} x "
            f"{deployment.device.name}",
            field="parallel",
            hint="more or larger devices, or a smaller format of the weights",
        )
    host = deployment.machine.host.factor
    limits = {"prefix_caching": table.prefix_caching, "options": dict(table.options)} | limits
    return ReplicaSpec(
        prices=StepPrices(step_model(deployment)),
        policy=scheduler_named(table.policy),
        limits=Limits(most, tokens, found, **limits),
        layout=layout,
        groups=deployment.plan.attention_dp,
        front_ns=round(table.front_us * 1e3 / host),
        front_token_ns=round(table.front_token_us * 1e3 / host),
        back_ns=round(table.back_us * 1e3 / host),
    )
