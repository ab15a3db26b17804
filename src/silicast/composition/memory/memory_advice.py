"""What to do about a deployment that does not fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from silicast.composition.memory.memory import GB, MemoryUse
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import batch_memory
from silicast.core.errors import SilicastError
from silicast.core.monotone import largest
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
            _more_devices(deployment, input_lens, output_len, framework),
        )
        if remedy
    ]
    return f"{text}; it would fit with {' or '.join(remedies)}" if remedies else text


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
        wider = replace(deployment, plan=replace(deployment.plan, tp=degree))
        try:
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
