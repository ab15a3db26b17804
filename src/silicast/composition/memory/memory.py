"""Device memory: weights, KV cache, activations and framework, per device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from msgspec import Struct

from silicast.composition.passes.deployment import Deployment, busiest_group
from silicast.workload.models.counting import (
    activation_bytes,
    cross_cache_bytes,
    kv_cache_bytes,
    weight_bytes,
)
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.plan import Plan

GB = 1e9
SCORE_BYTES = 4
GIB = float(1 << 30)


@final
class MemoryUse(Struct, frozen=True):
    """Bytes on the fullest device of a deployment.

    Attributes:
        usable: what the engine may fill of the device.
        host_weights, host_kv_cache: in the host's memory.
    """

    weights: int
    kv_cache: int
    activations: int
    framework: int
    usable: int
    host_weights: int = 0
    host_kv_cache: int = 0

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
    deployment: Deployment, input_lens: Sequence[int], output_len: int, cached: int = 0
) -> MemoryUse:
    """Memory of a batch whose sequences all live until the last token.

    Args:
        cached: tokens of each sequence before its prompt, in the cache.

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
    slots = [-(-(cached + length + output_len) // page) * page for length in input_lens]
    chunk = policy.chunk_tokens
    tokens = sum(input_lens) if chunk == 0 else min(sum(input_lens), chunk)
    weights = weight_bytes(model, plan, precision, policy=policy)
    cache = kv_cache_bytes(model, plan, precision, slots, policy=policy)
    whole = policy.without_host
    all_weights, all_cache = weights, cache
    if whole != policy:
        all_weights = weight_bytes(model, plan, precision, policy=whole)
        all_cache = kv_cache_bytes(model, plan, precision, slots, policy=whole)
    results = activation_bytes(model, plan, precision, tokens, len(input_lens), policy)
    if not engine.fusion.scores:
        results += scores_bytes(model, plan, tokens, max(slots))
    return MemoryUse(
        weights=weights,
        kv_cache=cache,
        activations=results,
        framework=round(deployment.machine.framework_gb * GB),
        usable=round(deployment.device.dram.capacity_bytes * engine.memory.usable_fraction),
        host_weights=all_weights - weights,
        host_kv_cache=all_cache - cache,
    )


def scores_bytes(model: ModelConfig, plan: Plan, tokens: int, keys: int) -> int:
    """Scores of a layer's attention that are written to memory: 32 bits for each head of a rank,
    token of a step and key.

    >>> from silicast.workload.models.lookup import find_model
    >>> scores_bytes(find_model("Llama-2-7B"), Plan(), 512, 4096) == 32 * 512 * 4096 * 4
    True
    """
    most = max(model.kind(layer).heads for layer in range(model.layers))
    return SCORE_BYTES * -(-most // plan.tp) * tokens * keys


@final
class LaunchMemory(Struct, frozen=True):
    """What a server that starts does with one device; bytes.

    Attributes:
        usable: what it may fill; the cache gets what the others leave.
        results: of the largest step that it profiles, or of its sampler where that takes more.
        process: outside of its allocator, beside the collectives' buffers and captured graphs.
    """

    usable: int
    weights: int
    results: int
    process: int
    collectives: int = 0
    graphs: int = 0

    @property
    def cache(self) -> int:
        """What is left to the KV cache; below 0 = what is missing without any."""
        used = self.weights + self.results + self.process + self.collectives + self.graphs
        return self.usable - used

    @property
    def parts(self) -> dict[str, float]:
        """Each part that takes something, 2^30 bytes."""
        table = {
            "usable": self.usable,
            "weights": self.weights,
            "results": self.results,
            "process": self.process,
            "collectives": self.collectives,
            "graphs": self.graphs,
        }
        parts = {name: round(part / GIB, 3) for name, part in table.items() if part}
        return parts | {"kv_cache": round(self.cache / GIB, 3)}


def launch_memory(
    deployment: Deployment, step_tokens: int, sequences: int, share: float = 0.0
) -> LaunchMemory:
    """What a server leaves for its KV cache on one device.

    Args:
        step_tokens: new tokens of its largest step; ``sequences``: rows of logits of that step.
        share: of memory, in place of ``usable_fraction``.
    """
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    precision, memory = deployment.precision, deployment.engine.memory
    whole, share = deployment.device.dram.capacity_bytes, share or memory.usable_fraction
    framework = round(deployment.machine.framework_gb * GB)
    weights = weight_bytes(model, plan, precision, policy=policy)
    launch = None if deployment.machine.in_line else deployment.engine.launch_memory
    if memory.fraction_of == "empty":  # results are left what the share leaves
        held = framework if launch is None else round(launch.at_start_gib(plan.gpus) * GIB)
        return LaunchMemory(round((whole - held) * share), weights, 0, 0)
    results = activation_bytes(
        model,
        plan,
        precision,
        step_tokens,
        sequences,
        policy,
        logit_bytes=launch.sampler_bytes if launch is not None else 0.0,
        unfused=launch is not None and launch.unfused,
    )
    table = deployment.engine.serving
    if not deployment.engine.fusion.scores and table is not None:
        longest = table.model_tokens or model.max_positions
        results += scores_bytes(model, plan, step_tokens, longest)
    if memory.fraction_of == "free":
        usable = round((whole - framework - weights - results) * share)
        return LaunchMemory(usable + weights, weights, 0, 0)
    if launch is None:
        return LaunchMemory(round(whole * share), weights, results, framework)
    return LaunchMemory(
        round(whole * share),
        weights,
        results,
        round(launch.process_gib * GIB),
        round(launch.collectives_gib(plan.gpus) * GIB),
        round(launch.graph_gib * GIB) if deployment.engine.launch.decode == "graph" else 0,
    )
