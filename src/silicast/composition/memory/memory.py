"""Device memory: weights, KV cache, activations and framework, per device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from silicast.composition.passes.deployment import Deployment, busiest_group
from silicast.workload.models.counting import (
    activation_bytes,
    cross_cache_bytes,
    kv_cache_bytes,
    weight_bytes,
)
from silicast.workload.models.model import ModelConfig

GB = 1e9


@final
@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on the fullest device of a deployment.

    Attributes:
        usable: what the engine may fill of the device.
    """

    weights: int
    kv_cache: int
    activations: int
    framework: int
    usable: int

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.activations + self.framework

    @property
    def excess(self) -> int:
        """Bytes by which it does not fit; 0 if it fits."""
        return max(0, self.total - self.usable)


def _behind_encoder(
    deployment: Deployment, encoder: ModelConfig, input_lens: Sequence[int], output_len: int
) -> MemoryUse:
    """With an encoder the cache holds what is generated, and cross-attention's keys and values of
    the prompt; activations are the encoder's on the prompt, or the decoder's on one token each.
    """
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    engine = deployment.engine
    precision = deployment.precision
    page, count = max(1, engine.memory.page_tokens), len(input_lens)
    generated = [-(-output_len // page) * page] * count
    cache = kv_cache_bytes(model, plan, precision, generated, policy=policy)
    return MemoryUse(
        weights=weight_bytes(model, plan, precision, policy=policy),
        kv_cache=cache + cross_cache_bytes(model, plan, precision, input_lens),
        activations=max(
            activation_bytes(encoder, plan, precision, sum(input_lens)),
            activation_bytes(model, plan, precision, count, count),
        ),
        framework=round(deployment.machine.framework_gb * GB),
        usable=round(deployment.device.dram.capacity_bytes * engine.memory.usable_fraction),
    )


def static_batch_memory(
    deployment: Deployment, input_lens: Sequence[int], output_len: int
) -> MemoryUse:
    """Memory of a batch whose sequences all live until the last token.

    The cache holds whole pages; activations are those of the largest step. With attention_dp, of
    the group with the most tokens.
    """
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    engine = deployment.engine
    precision = deployment.precision
    input_lens = busiest_group(input_lens, plan.attention_dp)
    if model.encoder is not None:
        return _behind_encoder(deployment, model.encoder, input_lens, output_len)
    page = max(1, engine.memory.page_tokens)
    slots = [-(-(length + output_len) // page) * page for length in input_lens]
    chunk = policy.chunk_tokens
    tokens = sum(input_lens) if chunk == 0 else min(sum(input_lens), chunk)
    return MemoryUse(
        weights=weight_bytes(model, plan, precision, policy=policy),
        kv_cache=kv_cache_bytes(model, plan, precision, slots, policy=policy),
        activations=activation_bytes(model, plan, precision, tokens, len(input_lens), policy),
        framework=round(deployment.machine.framework_gb * GB),
        usable=round(deployment.device.dram.capacity_bytes * engine.memory.usable_fraction),
    )


def cache_capacity_bytes(
    deployment: Deployment, step_tokens: int, sequences: int, share: float = 0.0
) -> int:
    """Bytes that a server may fill with its KV cache on one device; below 0 = the rest alone does
    not fit.

    Args:
        step_tokens: new tokens of its largest step; ``sequences``: rows of logits of that step.
        share: of memory, in place of ``usable_fraction``.
    """
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    precision, memory = deployment.precision, deployment.engine.memory
    whole, share = deployment.device.dram.capacity_bytes, share or memory.usable_fraction
    framework = deployment.machine.framework_gb * GB
    weights = weight_bytes(model, plan, precision, policy=policy)
    if memory.fraction_of == "empty":
        return round((whole - framework) * share) - weights
    results = activation_bytes(model, plan, precision, step_tokens, sequences, policy)
    if memory.fraction_of == "free":
        return round((whole - framework - weights - results) * share)
    return round(whole * share) - weights - results - round(framework)
