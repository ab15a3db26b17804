"""Backward kernels: gradients of fused attention, as one library's benchmark times them.

L2 is flushed between calls. Windowed rows of narrow formats, which cost what whole ones do, and
differences of two times are left out; so are narrow formats, whose kernels are not modelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from silicast.validation.scorecard.kernel_suite import KernelScore, roofline_of_ops
from silicast.validation.scorecard.rows import MeasuredRows, held_out, one_in
from silicast.validation.scorecard.suite import Suite
from silicast.validation.scorecard.tables import ops, read_records
from silicast.workload.op import Variant

TABLE = "kernels/attention_norm_backward.parquet"
DTYPES = {"bfloat16": "bf16"}
DIMS = {
    "batch": "batch", "q_len": "q_len", "kv_len": "kv_len", "num_heads": "q_heads",
    "num_kv_heads": "kv_heads", "head_dim": "head_dim_qk", "value_dim": "head_dim_vo",
    "window": "sliding_window",
}  # fmt: skip
SEED = 16


def attention_rows(data: Path) -> list[MeasuredRows]:
    """Gradients of attention by device, release, mask and order of sums; one shape in four is held
    out, whatever device, batch and release.
    """
    parts: dict[tuple[str, str, bool, bool], list[Mapping[str, Any]]] = defaultdict(list)
    for row in read_records(data / TABLE, kernel="attention", quality="good"):
        if row["pass"] == "bwd" and row["dtype"] in DTYPES:
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


def _order(rows: MeasuredRows) -> str:
    return "fixed" if rows.batch.variant.flag("deterministic") else "any"


SUITES = (
    Suite(
        "backward",
        (TABLE,),
        KernelScore(
            lambda data, _: {"latency_us": held_out(attention_rows(data))},
            roofline_of_ops,
            {
                "mask": lambda rows, _: (
                    "causal" if rows.batch.variant.flag("causal", default=True) else "none"
                ),
                "order": lambda rows, _: _order(rows),
                "regime": lambda rows, _: np.where(
                    rows.batch.dims["q_len"] <= 4096, "up to 4k tokens", "longer"
                ),
            },
        ),
    ),
)
