"""What to do about a deployment that does not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from silicast.composition.memory.memory import GB, MemoryUse
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import batch_memory
from silicast.core.errors import SilicastError
from silicast.core.monotone import largest

if TYPE_CHECKING:
    from silicast.workload.frameworks.eager import Framework

MAX_SUGGESTED_TP = 64


def advice(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    memory: MemoryUse,
    framework: Framework | None = None,
) -> str:
    """One line: by how much it does not fit, and the smallest change that makes it fit."""
    text = (
        f"does not fit by {memory.excess / GB:.1f} GB: needs {memory.total / GB:.1f} GB of "
        f"{memory.usable / GB:.1f} GB usable on {deployment.device.name}"
    )
    remedies = [
        remedy
        for remedy in (
            _fewer_sequences(deployment, input_lens, output_len, framework),
            less_on_device(
                deployment, lambda other: _fits(other, input_lens, output_len, framework)
            ),
            _more_devices(deployment, input_lens, output_len, framework),
        )
        if remedy
    ]
    return f"{text}; it would fit with {' or '.join(remedies)}" if remedies else text


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
    deployment: Deployment, input_lens: Sequence[int], output_len: int, framework: Framework | None
) -> bool:
    return batch_memory(deployment, input_lens, output_len, framework).excess == 0


def _more_devices(
    deployment: Deployment, input_lens: Sequence[int], output_len: int, framework: Framework | None
) -> str:
    """The smallest tensor-parallel degree that fits, among those that the model allows."""
    degree = deployment.plan.tp * 2
    while degree <= MAX_SUGGESTED_TP:
        try:
            wider = replace(deployment, plan=replace(deployment.plan, tp=degree))
            if _fits(wider, input_lens, output_len, framework):
                return f"tp = {degree}"
        except SilicastError:
            return ""  # the model cannot be cut so finely
        degree *= 2
    return ""


def _fewer_sequences(
    deployment: Deployment, input_lens: Sequence[int], output_len: int, framework: Framework | None
) -> str:
    ordered = sorted(input_lens)

    def fits(count: int) -> bool:
        return _fits(deployment, ordered[-count:], output_len, framework)

    count = largest(fits, len(ordered) - 1)
    return f"a batch of {count}" if count else ""
