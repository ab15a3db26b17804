"""What more would fit, as answers say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from silicast.composition.batch_room import largest_batch
from silicast.composition.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.serving.room import Room, room_of


def batch_room(
    deployment: Deployment, input_lens: Sequence[int], output_len: int
) -> dict[str, Any]:
    """The largest batch, how many sequences a server keeps at once and the longest context, for
    sequences as long as the longest; empty for models that generate nothing, under engines that
    serve nothing, and where not even the weights fit.
    """
    if not deployment.model.causal or deployment.engine.serving is None:
        return {}
    prompt = max(input_lens)
    try:
        room = room_of(deployment, prompt, output_len)
    except SilicastError:
        return {}
    return {"batch": largest_batch(deployment, prompt, output_len), **served_room(room)}


def served_room(room: Room) -> dict[str, Any]:
    """Of a server."""
    return {
        "concurrency": room.sequences,
        "concurrency_limited_by": room.by,
        "context_tokens": room.context_tokens,
    }
