"""Switches of a server whose time is not known."""

from __future__ import annotations

import math

import msgspec

from silicast.composition.engines.engine import Engine
from silicast.kernels.physics.constants import load_physics


def less_certain(engine: Engine, count: int) -> Engine:
    """The engine with the error of its steps that so many unpriced switches add, each as much as
    one of a trainer (``unpriced_log_sd`` of ``catalog/physics/training.json``, judged).

    >>> from silicast.composition.engines.engine import find_engine
    >>> less_certain(find_engine("vllm"), 4).release_log_sd("hopper")
    0.1
    """
    each = load_physics("training").default["unpriced_log_sd"]
    log_sd = math.hypot(engine.unpriced_log_sd, each * math.sqrt(count))
    return msgspec.structs.replace(engine, unpriced_log_sd=log_sd)
