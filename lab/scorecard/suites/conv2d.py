"""Convolutions: DeepBench's layers, 2016 to 2019, on old GPUs of two vendors and a Xeon Phi.

Defects of the table: the input's width is lost (the column that held it names the op), and is
derived from the result's; sheets name height and width of filter and result in either order;
"N/A" is given where no gradient of the first layer's input exists. Times are milliseconds with
microsecond resolution. The benchmark calls the library in a loop on the same operands, so that
what fits stays in the caches and the host is hidden.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, roofline_of_ops
from lab.scorecard.rows import Labels, Mask, MeasuredRows, checksum_one_in, held_out
from lab.scorecard.suite import Suite
from lab.scorecard.suites.other_vendors import DEEPBENCH, DEEPBENCH_DEVICES
from lab.scorecard.tables import csv_records, ops
from lab.scorecard.training import Source
from silicast.kernels.convolution.conv2d_model import pass_of
from silicast.kernels.implementation import KernelTimes
from silicast.learning.boosting import Settings
from silicast.workload.graphs.op import Variant

RESOLUTION_US = 1.0
PASSES = {"Forward": "", "wrt Inputs": "data", "wrt Parameters": "weights"}
"""Start of the column of times -> gradient asked for; "" = the forward pass."""
INFERENCE = ("NV_T4", "NV_1080Ti", "NV_TitanX_Pascal", "NV_TitanXp")
"""Devices whose inference sheet ("mixed precision") is 8-bit products with 32-bit sums."""
DIMS = (
    "batch", "in_channels", "out_channels", "height", "width", "kernel_h", "kernel_w",
    "stride_h", "stride_w", "padding_h", "padding_w",
)  # fmt: skip


def layer_held_out(*sizes: np.ndarray) -> Mask:
    """One layer in four, whatever its batch, is never fitted.

    >>> batches = (np.array([8, 1]), *np.full((10, 2), 3))
    >>> len(set(layer_held_out(*batches).tolist()))
    1
    """
    template = f"({', '.join(['{}'] * (len(DIMS) - 1))})"
    return checksum_one_in(4, template, *sizes[1:])


def conv_rows(data: Path) -> list[MeasuredRows]:
    """All convolutions of the table, by device, sheet and pass; repeats are averaged."""
    table: dict[tuple[str, str, str], dict[tuple[int, ...], list[float]]] = defaultdict(dict)
    for row in csv_records(data / DEEPBENCH):
        key = _sheet(row)
        shape = {_key(name): value for name, value in json.loads(row["shape_json"]).items()}
        if key is not None and row["time"] not in ("", "N/A", "N/A*"):
            table[key].setdefault(_sizes(shape), []).append(float(row["time"]) * 1e3)
    return [_part(*key, rows) for key, rows in sorted(table.items())]


def _sheet(row: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Device, format and pass of a row of the table; None for what is no such convolution."""
    device, sheet = row["device"], row["sheet"].casefold()
    gradient = next((v for k, v in PASSES.items() if row["time_column"].startswith(k)), None)
    if gradient is None or device not in DEEPBENCH_DEVICES or not row["op"].startswith("W"):
        return None
    if "psuedo" in sheet:  # 16-bit tensors with fp32 arithmetic: no format of ours
        return None
    if row["suite"] == "inference":
        return (device, "int8", gradient) if device in INFERENCE else None
    return device, "fp16" if "fp16" in sheet else "fp32", gradient


def _key(name: str) -> str:
    return name.split("(", maxsplit=1)[0].strip().casefold()


def _sizes(shape: Mapping[str, float]) -> tuple[int, ...]:
    """The dimensions in the order of :data:`DIMS`, the width derived from the result's."""
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


def _part(
    device: str, dtype: str, gradient: str, rows: Mapping[tuple[int, ...], list[float]]
) -> MeasuredRows:
    columns = np.array(list(rows), dtype=np.int64).T
    held = layer_held_out(*columns)
    flags = ((f"backward_{gradient}", True),) if gradient else ()
    variant = Variant(dtype, library="cudnn", launch="stream", cache="warm", flags=flags)
    ((batch, _, _),) = ops("conv2d", variant, dict(zip(DIMS, columns, strict=True)), held)
    micros = np.array([np.mean(repeats) for repeats in rows.values()])
    return MeasuredRows(batch, DEEPBENCH_DEVICES[device], micros * 1e-6, held)


SOURCES = (
    Source(
        "conv2d",
        (DEEPBENCH,),
        "one layer in four, whatever its batch, by hash",
        lambda data: [part for part in conv_rows(data) if part.hardware.execution_model == "simt"],
        # A few hundred rows of an architecture: shallow trees, each of most rows.
        Settings(trees=200, depth=4, rate=0.1, prior=8.0, rows=0.6, columns=0.4),
    ),
)


def _filters(rows: MeasuredRows, _: KernelTimes) -> Labels:
    """Kinds of filters: they decide which algorithms apply."""
    d = rows.batch.dims
    taps = d["kernel_h"] * d["kernel_w"]
    unit = (d["stride_h"] == 1) & (d["stride_w"] == 1)
    square = (d["kernel_h"] == d["kernel_w"]) & unit
    labels: Labels = np.where(
        taps == 1, "1x1", np.where(square & (taps == 9), "3x3, stride 1", "larger or strided")
    )
    return labels


SUITES = (
    Suite(
        "conv2d",
        (DEEPBENCH,),
        KernelScore(
            lambda data, _: {"latency_us": held_out(conv_rows(data))},
            roofline_of_ops,
            {
                "pass": lambda rows, _: pass_of(rows.batch.variant),
                "format": lambda rows, _: rows.batch.variant.dtype,
                "regime": _filters,
            },
        ),
    ),
)
