"""Measured collectives as arrays: what the communication suite scores and its fit reads.

Traps of the table are handled here (training/README.md): copies of other files are dropped,
``label_conflict`` rows lose their version, repeats of one point become their median, and every
point belongs to one side of the split by a hash of what it measures, never of its repeat.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.hashing import content_hash
from silicast.core.numerics import F64, I64
from silicast.validation.suite import Labels

SOURCE = "training/collectives_measured.parquet"
OWN_NODES = "pipeweave/collectives.parquet"
_DEVICES = {
    "a100_sxm": "A100",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "gb200": "GB200",
    "l40s": "L40S",
}
_DTYPES = {"half": "fp16", "bfloat16": "bf16"}
_OPS = {"alltoall": "all_to_all"}
_LAUNCH = {"nccl-tests": "graph", "unknown": "graph"}


@final
@dataclass(frozen=True)
class CollectiveRows:
    """Distinct measured points, arrays of shape (n,).

    Attributes:
        per_node: devices of the server.
        library, version: "nccl", "vllm", "sglang", "trtllm" and its version or "".
        launch: "graph", "eager" or "torch".
        dtype: element format; only all_reduce depends on it, all else is merged into one.
        campaign: who measured ("aiconfigurator", "pipeweave").
        seconds: median over repeats.
        noise: half the relative range over repeats of the point, NaN if measured once.
        fitted: constants may be fitted on the row; the others are for scoring only.
    """

    device: Labels
    op: Labels
    gpus: I64
    per_node: I64
    size: I64
    library: Labels
    version: Labels
    launch: Labels
    dtype: Labels
    campaign: Labels
    seconds: F64
    noise: F64
    fitted: np.ndarray

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: np.ndarray) -> CollectiveRows:
        """The rows selected by a mask or by indices."""
        return CollectiveRows(
            **{name: getattr(self, name)[rows] for name in self.__dataclass_fields__}
        )

    def groups(self) -> dict[tuple[Any, ...], np.ndarray]:
        """Indices of rows that one vectorised call can predict."""
        found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for i in range(len(self)):
            key = (
                str(self.device[i]),
                str(self.op[i]),
                int(self.gpus[i]),
                int(self.per_node[i]),
                str(self.library[i]),
                str(self.version[i]),
                str(self.launch[i]),
                str(self.dtype[i]),
            )
            found[key].append(i)
        return {key: np.array(rows) for key, rows in found.items()}


def read_collectives(data: Path, *, thin: int = 12) -> CollectiveRows:
    """All single-node rows on NVIDIA devices.

    Args:
        data: the data folder.
        thin: keep one in so many of PipeWeave's 3,237 sizes a curve (they are dense).
    """
    import pyarrow.parquet as pq

    points: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in pq.read_table(data / SOURCE).to_pylist():
        if row["source"] == "ai-dynamo/aiconfigurator" and not row["copy_of"]:
            device = _DEVICES.get(row["gpu"])
            if device is not None:
                points[_aiconfigurator_key(device, row)].append(row["latency_us"] * 1e-6)
    for row in pq.read_table(data / OWN_NODES).to_pylist():
        key = (row["gpu"], row["op"], row["num_workers"], row["max_devices_per_node"])
        size = row["size_bytes"]
        if int(content_hash([*key, size])[:4], 16) % thin == 0:
            points[(*key, size, "nccl", "", "torch", "bf16", "pipeweave")].append(
                row["t_median_ms"] * 1e-3
            )
    return _rows(points)


LONG = 8
"""A message of more than one over so many of the largest of its kind is a long one."""


def is_long(rows: CollectiveRows) -> NDArray[np.bool_]:
    """Which messages are long, of all measured of a device, operation, group, library and launch.

    Shape (n,).
    """
    keys = list(zip(rows.device, rows.op, rows.gpus, rows.library, rows.launch, strict=True))
    largest: dict[tuple[Any, ...], int] = {}
    for key, size in zip(keys, rows.size.tolist(), strict=True):
        largest[key] = max(largest.get(key, 0), size)
    return rows.size * LONG > np.array([largest[key] for key in keys])


def _aiconfigurator_key(device: str, row: dict[str, Any]) -> tuple[Any, ...]:
    library = row["kernel"].split(":")[0]
    if row["kernel"] == "sglang:TRTLLM":
        library = "trtllm"
    version = "" if row["label_conflict"] or library == "nccl" else row["version_folder"]
    op = _OPS.get(row["op"], row["op"])
    launch = _LAUNCH.get(row["launch_mode"], row["launch_mode"])
    per_node = 4 if device == "GB200" else 8
    key = (device, op, row["n_gpus"], per_node, row["bytes"])
    dtype = _DTYPES.get(row["dtype"], row["dtype"]) if op == "all_reduce" else "fp16"
    return (*key, library, version, launch, dtype, "aiconfigurator")


def _rows(points: dict[tuple[Any, ...], list[float]]) -> CollectiveRows:
    keys = sorted(points)
    columns = list(zip(*keys, strict=True))
    medians = [float(np.median(points[key])) for key in keys]
    return CollectiveRows(
        device=np.array(columns[0]),
        op=np.array(columns[1]),
        gpus=np.array(columns[2], dtype=np.int64),
        per_node=np.array(columns[3], dtype=np.int64),
        size=np.array(columns[4], dtype=np.int64),
        library=np.array(columns[5]),
        version=np.array(columns[6]),
        launch=np.array(columns[7]),
        dtype=np.array(columns[8]),
        campaign=np.array(columns[9]),
        seconds=np.array(medians),
        noise=np.array(
            [
                (max(points[key]) - min(points[key])) / 2 / median
                if len(points[key]) > 1
                else np.nan
                for key, median in zip(keys, medians, strict=True)
            ]
        ),
        fitted=np.array([_is_fitted(key) for key in keys]),
    )


def _is_fitted(key: tuple[Any, ...]) -> bool:
    """Half of the points of each device, the same half for all versions."""
    return int(content_hash([*key[:3], key[4]])[:4], 16) % 2 == 0
