"""How much of its devices a simulation used, and what held requests back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64, I64
from silicast.kernels.physics.formats import with_format
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.statistics.metrics import served, span_s
from silicast.serving.statistics.records import NANO, Records
from silicast.workload.models.counting import (
    attention_flops,
    head_flops_per_row,
    kv_cache_bytes,
    linear_flops_per_token,
    weight_bytes,
)
from silicast.workload.models.model_weights import weights_of_layers
from silicast.workload.transformers.plan import shard_of

KNOTS: Final = 65


def model_flops(records: Records, deployment: Deployment) -> float:
    """FLOPs that the answered requests need: of prompt tokens that no cache held, and of each
    output token; what is computed again after a preemption does not count.
    """
    rows, model = served(records), deployment.model
    if not len(rows):
        return 0.0
    prompt, output = records.requests.input_tokens[rows], records.requests.output_tokens[rows]
    reused = np.minimum(records.reused[rows], prompt - 1)
    more = output - 1
    tokens = int((prompt - reused).sum() + more.sum())
    linear = tokens * linear_flops_per_token(model) + int(output.sum()) * head_flops_per_row(model)
    longest = int((prompt + output).max())
    # of one token per token before it: straight in the context, but where a window ends
    each = _over_lengths(lambda n: attention_flops(model, (), [n]), longest)
    whole = _over_lengths(lambda n: attention_flops(model, [(n, n)]) / n, longest)
    filled = whole(prompt) * prompt - np.where(reused > 0, whole(reused) * reused, 0.0)
    decoded = each(prompt + (more - 1) / 2.0) * more
    return linear + float(filled.sum() + decoded.sum())


def _over_lengths(value: Callable[[int], float], longest: int) -> Callable[[F64 | I64], F64]:
    """A function of a length, evaluated at knots and straight between them."""
    at = np.unique(np.geomspace(1, max(longest, 2), KNOTS).astype(np.int64))
    values = np.array([float(value(int(n))) for n in at])
    return lambda lengths: np.interp(lengths, at, values)


def device_use(records: Records, fleet: Fleet) -> dict[str, float]:
    """Shares of what all devices could do from the first request to the last token.

    ``mfu``: model FLOPs over the peak of the format; ``memory_bandwidth_utilisation``: bytes that
    steps must read (weights once a step, of a mixture of experts those that its tokens reach, and
    the keys and values of decoding sequences) over the bandwidth of main memory, of a single pool.
    """
    seconds, first = span_s(records), fleet.pools[0]
    peak = sum(_peak_per_s(pool.deployment) * pool.gpus for pool in fleet.pools)
    device_use = {"mfu": min(model_flops(records, first.deployment) / (seconds * peak), 1.0)}
    if len(fleet.pools) > 1:
        return device_use
    rate = first.deployment.device.dram.bandwidth_bytes_per_s * first.count
    read = _bytes_read(records, first.deployment) / (seconds * rate)
    return device_use | {"memory_bandwidth_utilisation": min(read, 1.0)}


def _peak_per_s(deployment: Deployment) -> float:
    """Of the matrix pipe of one device in the format of the products."""
    compute = RECIPES[deployment.precision.recipe].compute
    device, _ = with_format(deployment.device, compute)
    return device.peak_per_s(device.matrix_pipe(compute), compute)


def _bytes_read(records: Records, deployment: Deployment) -> float:
    """Of the fullest rank, over all replicas."""
    log, plan, model = records.steps_by_column(), deployment.plan, deployment.model
    precision, policy = deployment.precision, deployment.policy
    shard = shard_of(model, plan, policy)
    each = [
        (count * weight.local_bytes(shard, precision), weight.active < weight.parameters)
        for weight, count in weights_of_layers(model)
    ]
    routed = sum(size for size, is_routed in each if is_routed) / sum(size for size, _ in each)
    tokens = np.maximum(log["decoding"] + log["prefill_tokens"], 1)
    missed = np.zeros(len(tokens))
    if model.moe is not None:  # no token of the step goes to an expert
        missed = routed * (1.0 - model.moe.topk / model.moe.held) ** tokens
    weights = float((log["steps"] * (1.0 - missed)).sum())
    rows = served(records)
    if not len(rows):
        return weights * weight_bytes(model, plan, precision, policy=policy)
    prompt, more = records.requests.input_tokens[rows], records.requests.output_tokens[rows] - 1
    cache_bytes = _over_lengths(
        lambda n: kv_cache_bytes(model, plan, precision, [n], policy=policy),
        int((prompt + more).max()),
    )
    seen = float((cache_bytes(prompt + more / 2.0) * more).sum()) / plan.attention_dp
    return weights * weight_bytes(model, plan, precision, policy=policy) + seen


def _replicas(log: Mapping[str, I64]) -> int:
    return max(len(np.unique(log["replica"])), 1)


def limited_by(records: Records, spec: ReplicaSpec, prompt_blocks: int) -> dict[str, float]:
    """Shares of the time of steps in which requests wait, by what kept them out.

    Keys: ``waiting`` (the sum), ``sequences`` (as many run as the engine lets), ``step_tokens``
    (the step has its full budget of tokens), ``kv_cache`` (a prompt lacks blocks), ``order``
    (anything else, such as a step under way).

    Args:
        spec: of the replicas that take in requests; ``prompt_blocks``: of a prompt in the middle.
    """
    log, limits, groups = _entering(records), spec.limits, spec.groups
    spans = (log["end_ns"] - log["start_ns"]).astype(np.float64)
    total = max(float(spans.sum()), 1.0)
    waits = log["waiting"] > 0
    full = log["running"] >= limits.sequences * groups
    budget = log["decoding"] + log["prefill_tokens"] >= limits.step_tokens
    lacking = limits.blocks * groups - log["blocks"] < prompt_blocks * groups
    table = {"waiting": float(spans[waits].sum()) / total}
    left = waits
    for name, held in (("sequences", full), ("kv_cache", lacking), ("step_tokens", budget)):
        table[name] = float(spans[left & held].sum()) / total
        left = left & ~held
    return table | {"order": float(spans[left].sum()) / total}


def room_leverage(records: Records, spec: ReplicaSpec) -> float:
    """How many times as far off as the room of the KV cache the mean first token is, where clients
    wait for answers alone. Of N clients K run, and the others wait W = (N - K) / K answers of S
    seconds: d W = -(S + W) d log K, of the first token (S + W) / TTFT. Shape (); 0 = the cache
    keeps none waiting.
    """
    prompt = int(np.median(records.requests.input_tokens))
    shares = limited_by(records, spec, spec.layout.of_one(prompt))
    lacking = shares["kv_cache"]
    if not lacking:
        return 0.0
    lacking /= lacking + shares["sequences"] + shares["step_tokens"]  # "order" behind what held
    return shares["waiting"] * lacking * float(records.e2e_s().mean() / records.ttft_s().mean())


def _entering(records: Records) -> Mapping[str, I64]:
    """Steps of replicas that take in requests: those with prompts."""
    log = records.steps_by_column()
    rows = np.isin(log["replica"], np.unique(log["replica"][log["prefill_tokens"] > 0]))
    return {name: values[rows] for name, values in log.items()}


def step_shares(records: Records) -> Mapping[str, float]:
    """Sequences that run in all replicas, on average over the whole run; the share of a replica's
    time without steps; of the time of steps, the share of those with prompts.
    """
    log = records.steps_by_column()
    spans = (log["end_ns"] - log["start_ns"]).astype(np.float64)
    total, whole = max(float(spans.sum()), 1.0), span_s(records)
    return {
        "running_mean": float((log["running"] * spans).sum()) * NANO / whole,
        "idle": max(1.0 - total * NANO / (whole * _replicas(log)), 0.0),
        "prefill": float(spans[log["prefill_tokens"] > 0].sum()) / total,
    }


def first_token_parts(records: Records, specs: Sequence[ReplicaSpec]) -> dict[str, float]:
    """Where the mean time to the first token goes, ms, in the order in which a request meets them;
    the sum is ``ttft_mean_ms``.

    ``http`` and ``tokenise``: the front's work on the request itself; ``front_queue``: requests
    before it in the front, one process; ``queue``: until the first step that has tokens of the
    prompt starts; ``prefill``: until the step with the last of them ends; ``transfer``: until the
    cache is where tokens are decoded; ``response``: until the client has the token.

    Args:
        specs: of the replicas, by number; the first one takes in requests.
    """
    rows = records.finished
    if not len(rows):
        return {}
    sent, arrived, first = records.sent_ns[rows], records.arrived_ns[rows], records.first_ns[rows]
    moving = np.maximum(records.moving_ns[rows], 0)
    back = np.array([spec.back_ns for spec in specs], dtype=np.int64)[records.replica[rows]]
    http = np.full(len(rows), specs[0].front_ns, dtype=np.int64)
    tokenise = specs[0].front_token_ns * records.requests.input_tokens[rows]
    parts = {
        "http": http,
        "tokenise": tokenise,
        "front_queue": arrived - sent - http - tokenise,
        "queue": records.scheduled_ns[rows] - arrived,
        "prefill": first - back - moving - records.scheduled_ns[rows],
        "transfer": moving,
        "response": back,
    }
    return {name: float(each.mean()) * 1e-6 for name, each in parts.items() if each.any()}
