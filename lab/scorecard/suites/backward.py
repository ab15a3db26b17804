"""Backward kernels: gradients of fused attention and of norms, as one library's benchmark times
them.

L2 is flushed between calls. Windowed rows of narrow formats, which cost what whole ones do, and
differences of two times are left out; so are narrow formats, whose kernels are not modelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, roofline_of_ops
from lab.scorecard.rows import Labels, MeasuredRows, held_out, one_in
from lab.scorecard.suite import Suite
from lab.scorecard.tables import ops, read_records
from silicast.workload.graphs.op import Variant

TABLE = "kernels/attention_norm_backward.parquet"
GRADIENTS = {"pass": "bwd", "quality": "good"}
DTYPES = {"bfloat16": "bf16"}
DIMS = {
    "batch": "batch",
    "q_len": "q_len",
    "kv_len": "kv_len",
    "num_heads": "q_heads",
    "num_kv_heads": "kv_heads",
    "head_dim": "head_dim_qk",
    "value_dim": "head_dim_vo",
    "window": "sliding_window",
}
SEED = 16


def attention_rows(data: Path) -> list[MeasuredRows]:
    """Gradients of attention by device, release, mask and order of sums; one shape in four is held
    out, whatever device, batch and release.
    """
    parts: dict[tuple[str, str, bool, bool], list[Mapping[str, Any]]] = defaultdict(list)
    for row in read_records(data / TABLE, kernel="attention", **GRADIENTS):
        if row["dtype"] in DTYPES:
            release = row["backend_version"].rpartition(" ")[2]
            parts[row["gpu"], release, row["causal"], row["deterministic"]].append(row)
    return [_part(*key, rows) for key, rows in sorted(parts.items())]


def _part(
    device: str, release: str, causal: bool, ordered: bool, rows: list[Mapping[str, Any]]
) -> MeasuredRows:
    columns = {
        name: np.array([int(row[column] or 0) for row in rows], dtype=np.int64)
        for name, column in DIMS.items()
    }
    shape = [columns[name] for name in ("q_len", "num_heads", "head_dim", "window")]
    held = one_in(4, *shape, np.full(len(rows), int(causal)), seed=SEED)
    flags = (("causal", causal), ("deterministic", ordered))
    variant = Variant("bf16", library="cudnn", launch="stream", cache="cold", flags=flags)
    ((batch, _, _),) = ops("attention_backward", variant, columns, held)
    seconds = np.array([row["time_ms"] for row in rows]) * 1e-3
    return MeasuredRows(batch, device, seconds, held, words={"version": release})


LIBRARIES = {"cudnn": "cudnn", "pytorch": "torch", "torch_compile": "torch_compile"}


def norm_rows(data: Path) -> list[MeasuredRows]:
    """Gradients of norms by device and library; calls of less than 20 us have too few digits."""
    parts: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in read_records(data / TABLE, **GRADIENTS):
        if row["kernel"].endswith("_norm"):
            parts[row["gpu"], LIBRARIES[row["backend"]]].append(row)
    measured_rows = []
    for (device, library), rows in sorted(parts.items()):
        tokens, hidden = (
            np.array([int(row[name]) for row in rows], dtype=np.int64) for name in ("rows", "cols")
        )
        held = one_in(4, tokens, hidden, seed=SEED)
        variant = Variant("bf16", library=library, cache="cold")
        sizes = {"tokens": tokens, "hidden": hidden}
        ((batch, _, _),) = ops("norm_backward", variant, sizes, held)
        seconds = np.array([row["time_ms"] for row in rows]) * 1e-3
        measured_rows.append(MeasuredRows(batch, device, seconds, held))
    return measured_rows


def _mask(rows: MeasuredRows) -> str:
    if rows.batch.family != "attention_backward":
        return "-"
    return "causal" if rows.batch.variant.flag("causal", default=True) else "none"


def _size(rows: MeasuredRows) -> Labels:
    columns = rows.batch.dims.get("q_len")
    if columns is None:
        columns = rows.batch.dims["tokens"]
    labels: Labels = np.where(columns <= 4096, "up to 4k tokens", "longer")
    return labels


def _order(rows: MeasuredRows) -> str:
    return "fixed" if rows.batch.variant.flag("deterministic") else "any"


SUITES = (
    Suite(
        "backward",
        (TABLE,),
        KernelScore(
            lambda data, _: {
                "attention_us": held_out(attention_rows(data)),
                "norm_us": held_out(norm_rows(data)),
            },
            roofline_of_ops,
            {
                "library": lambda rows, _: rows.batch.variant.library,
                "mask": lambda rows, _: _mask(rows),
                "order": lambda rows, _: _order(rows),
                "regime": lambda rows, _: _size(rows),
            },
        ),
    ),
)
