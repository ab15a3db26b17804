"""Measured convolutions: DeepBench's training and inference sheets, 2016 to 2019.

Defects of the table: the input's width is lost (the column that held it names the op), and is
worked out from the result's; sheets name height and width of filter and result in either order;
"N/A" stands where no gradient of the first layer's input exists. Times are milliseconds with
microsecond resolution. The benchmark calls the library in a loop on the same operands, so that
what fits stays in the caches and the host is hidden.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.workload.op import OpBatch, Variant

TABLE = "kernels/deepbench.csv.gz"
RESOLUTION_US = 1.0

DEVICES = {
    "NV_M40": "M40",
    "NV_TitanX": "TITAN X (Maxwell)",
    "NV_TitanX_Pascal": "TITAN X (Pascal)",
    "NV_1080Ti": "GTX 1080 Ti",
    "NV_TitanXp": "TITAN Xp",
    "NV_P100": "P100-PCIE-16GB",
    "NV_V100": "V100-SXM2-16GB",
    "NV_T4": "T4",
    "AMD_MI25": "MI25",
    "AMD_VegaFE": "Radeon Vega Frontier Edition",
    "IA_KNL7250": "Xeon Phi 7250",
}
"""DeepBench's name -> catalog name."""

PASSES = {"Forward": "", "wrt Inputs": "data", "wrt Parameters": "weights"}
"""Start of the column of times -> gradient asked for; "" = the forward pass."""

INFERENCE = {"NV_T4": "int8", "NV_1080Ti": "int8", "NV_TitanX_Pascal": "int8", "NV_TitanXp": "int8"}
"""Devices whose inference sheet ("mixed precision") is 8-bit products with 32-bit sums."""

HELD_OUT = 4
"""One layer in so many, by hash of its shape without the batch, is never fitted on."""

DIMS = (
    "batch", "in_channels", "out_channels", "height", "width", "kernel_h", "kernel_w",
    "stride_h", "stride_w", "padding_h", "padding_w",
)  # fmt: skip


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one device, format and pass.

    Attributes:
        device: catalog name.
        batch: the ops.
        measured_us: shape (n,).
        algorithm: what the library says it ran forward, shape (n,).
        held: layer is kept for scoring, shape (n,).
    """

    device: str
    batch: OpBatch
    measured_us: F64
    algorithm: tuple[str, ...]
    held: NDArray[np.bool_]


def load_rows(data: Path) -> list[Rows]:
    """All convolutions of the table, by device, sheet and pass, in a fixed order."""
    found: dict[tuple[str, str, str], list[tuple[tuple[int, ...], float, str]]] = defaultdict(list)
    with gzip.open(data / TABLE, "rt", newline="") as file:
        for row in csv.DictReader(file):
            place = _place(row)
            shape = {_key(name): value for name, value in json.loads(row["shape_json"]).items()}
            if place is not None and row["time"] not in ("", "N/A", "N/A*"):
                algorithm = str(shape.get("forward algorithm", ""))
                found[place].append((_sizes(shape), float(row["time"]) * 1e3, algorithm))
    return [_rows(*place, rows) for place, rows in sorted(found.items())]


def _place(row: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Device, format and pass of a row of the table; None for what is no such convolution."""
    device, sheet = row["device"], row["sheet"].casefold()
    gradient = next((v for k, v in PASSES.items() if row["time_column"].startswith(k)), None)
    if gradient is None or device not in DEVICES or not row["op"].startswith("W"):
        return None
    if "psuedo" in sheet:  # 16-bit tensors with fp32 arithmetic: no format of ours
        return None
    if row["suite"] == "inference":
        return (device, INFERENCE[device], gradient) if device in INFERENCE else None
    return device, "fp16" if "fp16" in sheet else "fp32", gradient


def _key(name: str) -> str:
    return name.split("(", maxsplit=1)[0].strip().casefold()


def _sizes(shape: Mapping[str, float]) -> tuple[int, ...]:
    """The dimensions in the order of :data:`DIMS`, the width worked out from the result's."""
    height, filter_h, filter_w = (int(shape[name]) for name in ("h", "r", "s"))
    stride_h, stride_w = int(shape["vertical stride"]), int(shape["horizontal stride"])
    pad_h, pad_w = int(shape["pad_h"]), int(shape["pad_w"])
    out_h = (height + 2 * pad_h - filter_h) // stride_h + 1
    p, q = float(shape["p"]), float(shape["q"])
    across = q if int(p + 0.5) == out_h else p
    if across in (out_h, p) and p == q:
        width = height
    elif across == int(across) and stride_w > 1:
        width = (int(across) - 1) * stride_w + filter_w - 2 * pad_w
    else:  # newer sheets give (width + 2 pad - filter + 1) / stride, whole or not
        width = int(across * stride_w) - 1 - 2 * pad_w + filter_w
    n, c, k = (int(shape[name]) for name in ("n", "c", "k"))
    return (n, c, k, height, width, filter_h, filter_w, stride_h, stride_w, pad_h, pad_w)


def _rows(
    device: str, dtype: str, gradient: str, rows: list[tuple[tuple[int, ...], float, str]]
) -> Rows:
    """Repeats of a shape are averaged; their first algorithm stands for all."""
    repeats: dict[tuple[int, ...], list[tuple[float, str]]] = {}
    for sizes, time, algorithm in rows:
        repeats.setdefault(sizes, []).append((time, algorithm))
    columns = np.array(list(repeats), dtype=np.int64).T
    flags = ((f"backward_{gradient}", True),) if gradient else ()
    dims: dict[str, I64] = dict(zip(DIMS, columns, strict=True))
    variant = Variant(dtype, library="cudnn", launch="stream", cache="warm", flags=flags)
    return Rows(
        DEVICES[device],
        OpBatch("conv2d", variant, dims),
        np.array([float(np.mean([time for time, _ in found])) for found in repeats.values()]),
        tuple(found[0][1] for found in repeats.values()),
        np.array([held_out(sizes) for sizes in repeats], dtype=bool),
    )


def held_out(sizes: tuple[int, ...]) -> bool:
    """Whether a layer, whatever its batch, is kept for scoring; by hash, so that it never changes.

    >>> held_out((8, 64, 64, 56, 56, 3, 3, 1, 1, 1, 1)) == held_out((1, *(64, 64, 56, 56, 3, 3),
    ...     1, 1, 1, 1))
    True
    """
    return zlib.crc32(repr(sizes[1:]).encode()) % HELD_OUT == 0
