"""Which measured collectives their corrections are trained on, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from silicast.communication.collective import analytic_model
from silicast.communication.features import Call
from silicast.communication.topology import Topology
from silicast.communication.training import Made, MeasuredCalls, train_collectives
from silicast.core.hashing import content_hash
from silicast.hardware.catalog import find_device
from silicast.kernels.physics import Physics, load_physics
from silicast.learning.boosting import Settings
from silicast.validation.collective_rows import (
    OWN_NODES,
    SOURCE,
    CollectiveRows,
    read_collectives,
)

TABLES = (SOURCE, OWN_NODES)
SPLIT = "half of the points of each device (hash of device, operation, participants and size)"
SETTINGS = Settings(trees=300, depth=6, rate=0.1, rows=0.7, columns=0.6, prior=1.0)


def train_from(data: Path, said: Callable[[str], None]) -> Made:
    """Corrections on the shipped constants."""
    rows = read_collectives(data)
    return train_on(rows, ~rows.fitted, load_physics("communication"), said)


def train_on(
    rows: CollectiveRows,
    held_out: np.ndarray,
    physics: Physics,
    said: Callable[[str], None] = lambda _: None,
) -> Made:
    """Corrections on given constants; nothing is learned from ``held_out`` rows."""
    return train_collectives(calls_of(rows, held_out), analytic_model(physics), SETTINGS, said)


def calls_of(rows: CollectiveRows, held_out: np.ndarray) -> list[MeasuredCalls]:
    """The rows by call."""
    fold = fold_of(rows)
    found = []
    for key, index in rows.groups().items():
        name, op, gpus, per_node, library, version, launch, dtype = key
        topology = Topology.of(find_device(name), gpus, gpus_per_node=per_node)
        call = Call(op, topology, library, launch, dtype, version)
        found.append(
            MeasuredCalls(call, rows.size[index], rows.seconds[index], held_out[index], fold[index])
        )
    return found


def fold_of(rows: CollectiveRows) -> np.ndarray:
    """0, 1 or 2 for every point; all versions, libraries and launches of it have the same."""
    keys = zip(rows.device, rows.op, rows.gpus, rows.size, strict=True)
    return np.array(
        [int(content_hash(["third", str(d), str(o), int(g), int(s)])[:4], 16) % 3
         for d, o, g, s in keys]
    )  # fmt: skip
