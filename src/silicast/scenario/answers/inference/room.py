"""What more would fit, as answers say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from silicast.composition.memory.batch_room import (
    largest_batch,
    largest_padded_batch,
    longest_prompt,
)
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.scenario.reading.limits import MAX_STATIC_BATCH
from silicast.serving.capacity.room import Room, room_of

if TYPE_CHECKING:
    from silicast.workload.frameworks.eager import Framework


def batch_room(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    framework: Framework | None = None,
) -> dict[str, Any]:
    """The largest batch of those that are answered, how many sequences a server keeps at once and
    the longest context, for sequences as long as the longest; without a server where the engine is
    none and for models that generate nothing. Empty where not even the weights fit.
    """
    prompt = max(input_lens)
    if framework is not None or not deployment.model.causal or deployment.engine.serving is None:
        if framework is None:
            batch = largest_batch(deployment, prompt, output_len)
        else:
            batch = largest_padded_batch(deployment, prompt, output_len, framework)
        batch = min(batch, MAX_STATIC_BATCH)
        tokens = longest_prompt(deployment, output_len, framework)
        generated = output_len - 1 if deployment.model.encoder is None else 0
        return {"batch": batch, "context_tokens": tokens + generated} if batch else {}
    try:
        room = room_of(deployment, prompt, output_len)
    except SilicastError:
        return {}
    batch = min(largest_batch(deployment, prompt, output_len), MAX_STATIC_BATCH)
    return {"batch": batch, **served_room(room)}


def served_room(room: Room) -> dict[str, Any]:
    """How many more requests a server has room for, and how long one may be."""
    return {
        "concurrency": room.sequences,
        "concurrency_limited_by": room.by,
        "context_tokens": room.context_tokens,
    }
