"""What to do about a deployment that does not fit: less, and the largest batch and length that fit.

The largest static batch of sequences of one length that fits, and the longest sequence: in
closed form under engines with layers of their own, by trial where a framework runs a model's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from silicast.composition.memory.memory import GB, MemoryUse, static_batch_memory
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import batch_memory
from silicast.core.errors import SilicastError
from silicast.core.monotone import largest
from silicast.workload.models.counting import activation_bytes, weight_bytes

if TYPE_CHECKING:
    from silicast.workload.frameworks.eager import Framework


MOST = 1 << 20
"""Sequences beyond which nobody asks."""
LONGEST = 1 << 24
"""Tokens beyond which nobody asks."""


@lru_cache(maxsize=1024)
def largest_padded_batch(
    deployment: Deployment, prompt_tokens: int, output_tokens: int, framework: Framework
) -> int:
    """:func:`largest_batch` where a framework runs the model's code: what results take follows from
    its operations, and is nearly in proportion to the batch.
    """
    from silicast.composition.passes.framework_pass import framework_memory

    def free(count: int) -> int:
        """Bytes that are left, below 0 = that are missing."""
        memory = framework_memory(deployment, count, prompt_tokens, output_tokens, framework)
        return memory.usable - memory.total

    return largest(free, MOST, guess=1) * deployment.plan.attention_dp


@lru_cache(maxsize=1024)
def longest_prompt(
    deployment: Deployment, output_tokens: int, framework: Framework | None = None
) -> int:
    """Tokens of the longest prompt of a sequence that runs alone, up to what the model is made for;
    0 = none fits.
    """
    from silicast.composition.passes.static_batch import batch_memory

    def free(tokens: int) -> int:
        memory = batch_memory(deployment, [tokens], output_tokens, framework)
        return memory.usable - memory.total

    made_for = deployment.model.max_positions
    most = max(made_for - output_tokens + 1, 1) if made_for else LONGEST
    return largest(free, most, guess=1)


@lru_cache(maxsize=1024)
def largest_batch(
    deployment: Deployment, prompt_tokens: int, output_tokens: int, beside: tuple[int, int] = (0, 0)
) -> int:
    """Sequences of a static batch that fit beside the weights, all groups of ranks together; 0 =
    not even one fits.

    Args:
        beside: bytes that another model on the same devices takes: weights, cache of a sequence.

    The cache grows with each sequence alike and what else a device holds does not, but for the
    results of the largest step.
    """
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    one = static_batch_memory(deployment, [prompt_tokens], output_tokens)
    free = one.usable - one.weights - one.framework - beside[0]
    cache = one.kv_cache + beside[1]

    def results(count: int) -> int:
        tokens = count * prompt_tokens
        step = min(tokens, policy.chunk_tokens) if policy.chunk_tokens else tokens
        return activation_bytes(model, plan, deployment.precision, step, count, policy)

    def fits(count: int) -> bool:
        if model.encoder is None:
            return count * cache + results(count) <= free
        lengths = [prompt_tokens] * count * plan.attention_dp
        return static_batch_memory(deployment, lengths, output_tokens).excess == 0

    each = cache or max(one.activations, 1)
    guess = max(free - one.activations, 0) // each
    if cache and model.encoder is None:
        guess = max(free - results(guess), 0) // each
    return largest(fits, MOST, guess=guess) * plan.attention_dp


MAX_SUGGESTED_TP = 64


def advice(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    memory: MemoryUse,
    framework: Framework | None = None,
    cached: int = 0,
) -> str:
    """One line: by how much it does not fit, and the smallest change that makes it fit; arguments
    as of :func:`~silicast.composition.passes.static_batch.predict_static_batch`.
    """

    def fits(other: Deployment) -> bool:
        return _fits(other, input_lens, output_len, framework, cached)

    text = (
        f"does not fit by {memory.excess / GB:.1f} GB: needs {memory.total / GB:.1f} GB of "
        f"{memory.usable / GB:.1f} GB usable on {deployment.device.name}"
    )
    remedies = [
        remedy
        for remedy in (
            _fewer_sequences(deployment, input_lens, output_len, framework, cached)
            if memory.weights + memory.framework <= memory.usable
            else "",
            less_on_device(deployment, fits),
            _more_devices(deployment, fits),
        )
        if remedy
    ]
    remedies = remedies or weights_on_host(deployment, fits)
    return f"{text}; it would fit with {' or '.join(remedies)}" if remedies else text


def weights_on_host(deployment: Deployment, fits: Callable[[Deployment], bool]) -> list[str]:
    """The fewest GiB of weights in the host's memory with which it fits, as the option of an engine
    that computes with them; [] = it does not, or nothing fits.
    """
    engine = deployment.engine
    table, every = engine.memory.host_weights, _weights_gib(deployment)
    if table is None or table.gib:
        return []

    def changed(on_device: int) -> Deployment:
        memory = engine.memory.with_host_weights(float(every - on_device))
        other = msgspec.structs.replace(engine, memory=memory)
        return replace(deployment, machine=replace(deployment.machine, engine=other))

    try:
        count = largest(lambda number: fits(changed(number)), every - 1)
        able = bool(count) or fits(changed(0))
    except SilicastError:
        return []  # no link to a host is known
    return [f"cpu_offload_gb = {every - count}, many times as slow"] if able else []


def _weights_gib(deployment: Deployment) -> int:
    """Of a device, in whole 2^30 bytes, rounded up."""
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    return -(-weight_bytes(model, plan, deployment.precision, policy=policy) // (1 << 30))


def less_on_device(deployment: Deployment, fits: Callable[[Deployment], bool]) -> str:
    """The most layers, or experts of layers, on the device with which it fits, as the option of an
    engine that keeps the others in the host's memory; "" = it keeps none, or nothing fits.
    """
    model, table = deployment.model, deployment.engine.memory.offload
    if table is None or deployment.plan.gpus > 1:
        return ""
    experts = model.moe is not None

    def changed(count: int) -> Deployment:
        fields = {"expert_layers": model.layers - count} if experts else {"device_layers": count}
        memory = msgspec.structs.replace(
            deployment.engine.memory, offload=msgspec.structs.replace(table, **fields)
        )
        engine = msgspec.structs.replace(deployment.engine, memory=memory)
        return replace(deployment, machine=replace(deployment.machine, engine=engine))

    try:
        count = largest(lambda number: fits(changed(number)), model.layers - experts)
        if experts:
            left = model.layers - count
            return f"n_cpu_moe = {left}" if count or fits(changed(0)) else ""
    except SilicastError:
        return ""  # the device computes in the host's memory
    return f"n_gpu_layers = {count}" if count else ""


def _fits(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    framework: Framework | None,
    cached: int,
) -> bool:
    return batch_memory(deployment, input_lens, output_len, framework, cached).excess == 0


def _more_devices(deployment: Deployment, fits: Callable[[Deployment], bool]) -> str:
    """The smallest degree that fits, among those that the model allows: of tensor ranks, or of
    stages where the engine has none.
    """
    cuts = deployment.engine.parallel.tensor
    name = "tp" if cuts else "pp"
    degree = deployment.plan.tp * 2 if cuts else deployment.plan.pp + 1
    while degree <= MAX_SUGGESTED_TP:
        try:
            wider = replace(deployment, plan=replace(deployment.plan, **{name: degree}))
            if fits(wider):
                return f"{name} = {degree}"
        except SilicastError:
            return ""  # the model cannot be cut so finely
        degree = degree * 2 if cuts else degree + 1
    return ""


def _fewer_sequences(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    framework: Framework | None,
    cached: int,
) -> str:
    ordered = sorted(input_lens)

    def fits(count: int) -> bool:
        return _fits(deployment, ordered[-count:], output_len, framework, cached)

    count = largest(fits, len(ordered) - 1)
    return f"a batch of {count}" if count else ""
