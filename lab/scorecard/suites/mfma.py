"""Tuned kernels of AMD's aiter on MI300X: products and experts, one in so many shapes held out.

The times are the best of a tuner's candidates, so that they are those of a library whose kernel
fits the shape. lab/fit_gemm_mfma.py and lab/fit_moe_mfma.py fit on the other shapes. The label of
the source is MI300X/MI325X: both have the same cores; MI300X stands for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, ranges, roofline_of_ops, word
from lab.scorecard.rows import Mask, MeasuredRows, held_out, one_in
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records
from silicast.core.numerics import I64
from silicast.workload.graphs.op import Op, OpBatch, Variant

PRODUCTS = "kernels/aiter_gemm_mi300x.parquet"
EXPERTS = "kernels/aiter_moe_mi300x.parquet"
DEVICE = "MI300X"
LIBRARY = "aiter"

KINDS: Mapping[str, tuple[str, str]] = {
    "fp8 a8w8 block-scale (1x128,128x128)": ("fp8_block", ""),
    "a8w8 per-token/channel, pre-shuffled weight": ("int8", "preshuffled"),
    "a8w8 batched": ("int8", "batched"),
    "bf16 batched": ("bf16", "batched"),
}
"""Kind of product in the table -> format, and name of the kernel where a format has several."""
EXPERT_FORMATS = {"QuantType.per_1x128": "fp8_block", "QuantType.No": "bf16"}


def products_held_out(n: I64, k: I64) -> Mask:
    """One in three (n, k) pairs; of this seed, every kind has pairs on both sides."""
    return one_in(3, n, k, seed=PRODUCT_SEED)


def experts_held_out(hidden: I64, inner: I64, experts: I64, topk: I64) -> Mask:
    """One in three layers; of this seed, both formats have layers on both sides."""
    return one_in(3, hidden, inner, experts, topk, seed=EXPERT_SEED)


PRODUCT_SEED, EXPERT_SEED = 6, 1


def aiter_groups(data: Path, limit: int | None = None) -> list[MeasuredRows]:
    """Products, a group a kind; about ``limit`` of each, evenly thinned."""
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in read_records(data / PRODUCTS):
        rows[row["gemm_kind"]].append(row)
    measured_rows = []
    for kind, (dtype, kernel) in KINDS.items():
        variant = Variant(dtype=dtype, library=LIBRARY, kernel=kernel)
        some = rows[kind][:: max(1, len(rows[kind]) // limit)] if limit else rows[kind]
        ops = [
            Op.make("gemm", variant, m=row["M"], n=row["N"], k=row["K"], batch=int(row["B"]))
            for row in some
        ]
        n, k = (np.array([row[side] for row in some], dtype=np.int64) for side in "NK")
        measured_rows.append(_rows(f"gemm {kind}", ops, some, products_held_out(n, k)))
    return measured_rows


def aiter_expert_groups(data: Path) -> list[MeasuredRows]:
    """Layers of experts, a group a format; the tuner's tokens choose experts at random."""
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in read_records(data / EXPERTS):
        rows[EXPERT_FORMATS[row["q_type"]]].append(row)
    measured_rows = []
    for dtype, some in rows.items():
        flags = (("gated", True), ("uniform", True))
        variant = Variant(dtype=dtype, library=LIBRARY, flags=flags)
        ops = [
            Op.make(
                "moe", variant, tokens=row["token"], experts=row["expert"], topk=row["topk"],
                hidden=row["model_dim"], intermediate=row["inter_dim"], ep=1, tp=1,
            )
            for row in some
        ]  # fmt: skip
        sizes = (
            np.array([row[name] for row in some], dtype=np.int64)
            for name in ("model_dim", "inter_dim", "expert", "topk")
        )
        measured_rows.append(_rows(f"moe {dtype} aiter", ops, some, experts_held_out(*sizes)))
    return measured_rows


def _rows(name: str, ops: list[Op], rows: list[Mapping[str, Any]], held: Mask) -> MeasuredRows:
    seconds = np.array([row["us"] * 1e-6 for row in rows])
    return MeasuredRows(OpBatch.from_ops(ops), DEVICE, seconds, held, {"group": f"{DEVICE} {name}"})


def suite_rows(data: Path, limit: int | None) -> dict[str, list[MeasuredRows]]:
    """Held-out rows of both metrics."""
    return {
        "products_us": held_out(aiter_groups(data, limit or PRODUCTS_SCORED)),
        "experts_us": held_out(aiter_expert_groups(data)),
    }


PRODUCTS_SCORED = 3000
"""Of a kind, of which half to two thirds may be fitted."""
SCORE = KernelScore(
    suite_rows,
    roofline_of_ops,
    {
        "kind": word("group"),
        "dtype": lambda rows, _: rows.batch.variant.dtype,
        "rows": lambda rows, _: ranges(
            rows.batch.dims["m" if rows.batch.family == "gemm" else "tokens"],
            (64, 512, 4096),
            ("<= 64", "65 - 512", "513 - 4096", "> 4096"),
        ),
    },
)
SUITES = (Suite("aiter", (PRODUCTS, EXPERTS), SCORE),)
