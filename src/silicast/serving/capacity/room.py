"""How many sequences run at once on a deployment, and how long one may be: in closed form, from the
limits with which its engine starts and what its cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, final

from silicast.composition.passes.deployment import Deployment
from silicast.core.monotone import largest
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.launch import Expected, limits_of
from silicast.serving.simulation.limits import Limits

if TYPE_CHECKING:
    from silicast.serving.simulation.event_loop import ReplicaSpec

LONGEST: Final = 1 << 24
"""Tokens."""


@final
@dataclass(frozen=True, slots=True)
class Room:
    """Of all groups of ranks of a deployment.

    Attributes:
        sequences: of the asked length that run at once; more wait.
        by: what keeps it from more.
        context_tokens: of the longest sequence, alone.
    """

    sequences: int
    by: Literal["kv_cache", "engine"]
    context_tokens: int


@lru_cache(maxsize=1024)
def room_of(deployment: Deployment, prompt_tokens: int, output_tokens: int) -> Room:
    """What is left beside the weights for sequences of one length.

    Raises:
        SilicastError: the engine does not serve, or the model does not fit.
    """
    limits, layout = (
        limits_of(deployment, Expected(prompt_tokens, 0, prompt_tokens + output_tokens)),
        KvLayout.from_deployment(deployment),
    )
    return room_under(limits, layout, deployment, prompt_tokens + output_tokens)


def room_under(limits: Limits, layout: KvLayout, deployment: Deployment, tokens: int) -> Room:
    """What fits under limits that are known, for sequences of so many tokens."""
    held = held_by_cache(limits, layout, tokens)
    return Room(
        sequences=min(held, limits.sequences) * deployment.plan.attention_dp,
        by="kv_cache" if held < limits.sequences else "engine",
        context_tokens=longest_sequence(limits, layout, deployment.model.max_positions),
    )


def users_that_fit(specs: Sequence[ReplicaSpec], tokens: int) -> int:
    """Sequences of so many tokens that run at once on replicas: what their KV caches and engines
    allow, where tokens are decoded.
    """
    return sum(
        min(held_by_cache(spec.limits, spec.layout, tokens), spec.limits.sequences) * spec.groups
        for spec in specs
        if spec.role != "prefill"
    )


def longest_context(specs: Sequence[ReplicaSpec], model_tokens: int = 0) -> int:
    """Tokens of the longest sequence that fits the KV cache of every kind of replica.

    Args:
        model_tokens: what the model is made for; 0 = no limit.
    """
    return min(longest_sequence(spec.limits, spec.layout, model_tokens) for spec in specs)


def held_by_cache(limits: Limits, layout: KvLayout, tokens: int) -> int:
    """Sequences of so many tokens that the cache of a group of ranks holds."""
    return limits.blocks // max(layout.of_one(tokens), 1)


def longest_sequence(limits: Limits, layout: KvLayout, model_tokens: int = 0) -> int:
    """Tokens of the longest sequence that the cache of a group of ranks holds.

    Args:
        model_tokens: what the model is made for; 0 = no limit.
    """
    most = min(model_tokens or LONGEST, limits.model_tokens)
    return largest(lambda tokens: limits.blocks - layout.of_one(tokens), most)
