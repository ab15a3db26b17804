"""What an engine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from silicast.serving.kv.host_cache import HostLink, KvTier

UNBOUNDED = 1 << 30
"""Tokens of a sequence where nothing limits them."""


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine is started with, for one group of ranks.

    Attributes:
        sequences: most that run at once.
        step_tokens: most new tokens of one step.
        blocks: of the KV cache.
        model_tokens: longest sequence.
        drafted: tokens that a step verifies for each decoding sequence beside the one it makes;
            room for them is held while it decodes.
        prefix_caching: prompts that begin alike share blocks.
        options: further switches of the policy, by name.
        host: what joins the devices to their host's memory; None = nothing does.
        kv_tiers: places of cached blocks below that memory, the nearest first.
    """

    sequences: int
    step_tokens: int
    blocks: int
    model_tokens: int = UNBOUNDED
    drafted: int = 0
    prefix_caching: bool = False
    options: Mapping[str, float | str] = field(default_factory=dict)
    host: HostLink | None = None
    kv_tiers: tuple[KvTier, ...] = ()
