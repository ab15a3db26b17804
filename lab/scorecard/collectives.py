"""Measured collectives as arrays: what the communication suite scores, and corrections learn from.

Traps of the table are handled here (training/README.md): copies of other files are dropped,
``label_conflict`` rows lose their version, repeats of one point become their median, and every
point belongs to one side of the split by a hash of what it measures, never of its repeat.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from lab.scorecard.collective_points import Points
from lab.scorecard.collective_training import Made, MeasuredCalls, train_collectives
from lab.scorecard.rows import Labels, Mask
from lab.scorecard.tables import read_records
from silicast.communication.collective import analytic_model
from silicast.communication.features import CollectiveCall
from silicast.communication.topology import Topology
from silicast.core.hashing import content_hash
from silicast.core.numerics import I64
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import Paths
from silicast.kernels.physics.constants import Physics, load_physics
from silicast.learning.boosting import Settings

SOURCE = "training/collectives_measured.parquet"
OWN_NODES = "pipeweave/collectives.parquet"
TABLES = (SOURCE, OWN_NODES)
SPLIT = "half of the points of each device (hash of device, operation, participants and size)"
SETTINGS = Settings(trees=300, depth=6, rate=0.1, rows=0.7, columns=0.6, prior=1.0)
LONG = 8
"""A message of more than one over so many of the largest of its kind is a long one."""
_DEVICES = {
    "a100_sxm": "A100",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "gb200": "GB200",
    "l40s": "L40S",
}
_OWN_PATHS = frozenset({("L40S", "sglang", "0.5.12")})
"""Campaigns (device, library, version) on a host whose PCIe has a path for every pair of devices.
On the others' hosts pairs take turns: what eight devices reach over it there is a tenth."""
_DTYPES = {"half": "fp16", "bfloat16": "bf16"}
_LAUNCH = {"nccl-tests": "graph", "unknown": "graph"}


@final
@dataclass(frozen=True, kw_only=True)
class CollectiveRows(Points):
    """Distinct measured points within a server, arrays of shape (n,); only the dtype of all_reduce
    counts, points of the others are merged.

    Attributes:
        library, version: "nccl", "vllm", "sglang", "trtllm" and its version or "".
        launch: "graph", "eager" or "torch".
        fitted: constants may be fitted on the row; the others are for scoring only.
    """

    library: Labels
    version: Labels
    launch: Labels
    fitted: Mask

    def calls(self) -> Iterator[tuple[CollectiveCall, I64]]:
        """See :meth:`Points.calls`."""
        names = ("device", "op", "gpus", "per_node", "library", "version", "launch", "dtype")
        for (name, op, gpus, per_node, library, version, launch, dtype), rows in self.grouped(
            *names
        ):
            paths: Paths = "own" if (name, library, version) in _OWN_PATHS else "shared"
            topology = Topology.from_device(
                find_device(name), gpus, gpus_per_node=per_node, paths=paths
            )
            yield CollectiveCall(op, topology, library, launch, dtype, version), rows

    def fold(self) -> I64:
        """0, 1 or 2 for every point; all versions, libraries and launches of it have the same."""
        return np.array([_hash("third", *key) % 3 for key in self._points()])

    def is_long(self) -> Mask:
        """Messages near the largest of their device, operation, group, library and launch."""
        columns = (self.device, self.op, self.gpus, self.library, self.launch)
        keys = list(zip(*columns, strict=True))
        largest: dict[tuple[Any, ...], int] = {}
        for key, size in zip(keys, self.size.tolist(), strict=True):
            largest[key] = max(largest.get(key, 0), size)
        return self.size * LONG > np.array([largest[key] for key in keys])

    def _points(self) -> Iterator[tuple[str, str, int, int]]:
        columns = (self.device, self.op, self.gpus, self.size)
        return zip(*(column.tolist() for column in columns), strict=True)


def read_collectives(data: Path, *, thin: int = 12) -> CollectiveRows:
    """All single-node rows on NVIDIA devices.

    Args:
        data: the data folder.
        thin: keep one in so many of PipeWeave's 3,237 sizes a curve (they are dense).
    """
    points: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in read_records(data / SOURCE, source="ai-dynamo/aiconfigurator"):
        if not row["copy_of"] and row["gpu"] in _DEVICES:
            points[_aiconfigurator_key(row)].append(row["latency_us"] * 1e-6)
    for row in read_records(data / OWN_NODES):
        key = (
            row["gpu"],
            row["op"],
            row["num_workers"],
            row["max_devices_per_node"],
            row["size_bytes"],
        )
        if _hash(*key) % thin == 0:
            points[(*key, "nccl", "", "torch", "bf16")].append(row["t_median_ms"] * 1e-3)
    # half of the points of each device, the same half for all versions
    fitted = np.array([_hash(*key[:3], key[4]) % 2 == 0 for key in sorted(points)])
    names = ("device", "op", "gpus", "per_node", "size", "library", "version", "launch", "dtype")
    return CollectiveRows.of_repeats(points, names, fitted=fitted)


def _aiconfigurator_key(row: dict[str, Any]) -> tuple[Any, ...]:
    device = _DEVICES[row["gpu"]]
    library = "trtllm" if row["kernel"] == "sglang:TRTLLM" else row["kernel"].split(":")[0]
    version = "" if row["label_conflict"] or library == "nccl" else row["version_folder"]
    op = {"alltoall": "all_to_all"}.get(row["op"], row["op"])
    launch = _LAUNCH.get(row["launch_mode"], row["launch_mode"])
    dtype = _DTYPES.get(row["dtype"], row["dtype"]) if op == "all_reduce" else "fp16"
    per_node = 4 if device == "GB200" else 8
    return (device, op, row["n_gpus"], per_node, row["bytes"], library, version, launch, dtype)


def _hash(*key: Any) -> int:
    return int(content_hash(list(key))[:4], 16)


def train_shipped(data: Path, report: Callable[[str], None]) -> Made:
    """Corrections on the shipped constants."""
    rows = read_collectives(data)
    return train_on(rows, ~rows.fitted, load_physics("communication"), report)


def train_on(
    rows: CollectiveRows,
    held_out: Mask,
    physics: Physics,
    report: Callable[[str], None] = lambda _: None,
) -> Made:
    """Corrections on given constants; nothing is learned from ``held_out`` rows."""
    fold = rows.fold()
    calls = [
        MeasuredCalls(call, rows.size[index], rows.seconds[index], held_out[index], fold[index])
        for call, index in rows.calls()
    ]
    return train_collectives(calls, analytic_model(physics), SETTINGS, report)
