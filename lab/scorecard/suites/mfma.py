"""Tuned kernels of AMD's aiter on CDNA 3 and CDNA 4: products and experts, some shapes held out.

The times are the best of a tuner's candidates, so that they are those of a library whose kernel
fits the shape. lab/fit_gemm_mfma.py and lab/fit_moe_mfma.py fit on the other shapes. Each table's
label names two boards with the same cores (MI300X and MI325X, MI350X and MI355X); one stands for
both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, ranges, roofline_of_ops, word
from lab.scorecard.rows import Mask, MeasuredRows, held_out, one_in
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records
from silicast.core.numerics import I64
from silicast.workload.graphs.op import Op, OpBatch, Variant

PRODUCTS = {
    "MI300X": "kernels/aiter_gemm_mi300x.parquet",
    "MI355X": "kernels/aiter_gemm_mi355x.parquet",
}
EXPERTS = {
    "MI300X": "kernels/aiter_moe_mi300x.parquet",
    "MI355X": "kernels/aiter_moe_mi355x.parquet",
}
ISA = {"MI300X": "gfx942", "MI355X": "gfx950"}
"""What a row's label states where it states anything: some rows of CDNA 4's table are of a later
part that has as many cores."""
LIBRARY = "aiter"

KINDS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "fp8 a8w8 block-scale (1x128,128x128)": ({"": "fp8_block"}, ""),
    "fp8 a8w8 block-scale, pre-shuffled weight": ({"": "fp8_block"}, "preshuffled"),
    "a8w8 per-token/channel": ({"torch.int8": "int8", "torch.float8_e4m3fn": "fp8"}, ""),
    "a8w8 per-token/channel, pre-shuffled weight": (
        {"torch.int8": "int8", "torch.float8_e4m3fn": "fp8"},
        "preshuffled",
    ),
    "a8w8 batched": ({"": "int8"}, "batched"),
    "bf16 batched": ({"": "bf16"}, "batched"),
    "bf16": ({"": "bf16"}, ""),
    "mxfp4 a4w4": ({"": "mxfp4"}, "preshuffled"),
}
"""Kind of product in the table -> format by that of its weights, and name of the kernel where a
format has several."""
NEWER = "cktile"
"""CK's newer kernels, of block-scaled products twice as quick in large ones: a few rows of each
file, where they were among the tuner's candidates."""
EXPERT_FORMATS = {
    ("bfloat16", "bfloat16", "No"): "bf16",
    ("float8", "float8", "per_1x128"): "fp8_block",
    ("float8", "float8", "per_Token"): "fp8",
    ("float8", "float8", "per_1x32"): "mxfp8",
    ("float8", "float4", "per_1x32"): "w4a8_mxfp4_mxfp8",
    ("float4", "float4", "per_1x32"): "mxfp4",
    ("bfloat16", "float4", "per_1x32"): "w4a16_mxfp4",
    ("bfloat16", "int4", "per_1x32"): "int4_wo",
}
"""Formats of activations and weights, and what shares a scale -> recipe."""


def products_held_out(n: I64, k: I64) -> Mask:
    """One in three (n, k) pairs; of this seed, every kind has pairs on both sides."""
    return one_in(3, n, k, seed=PRODUCT_SEED)


def experts_held_out(hidden: I64, inner: I64, experts: I64, topk: I64) -> Mask:
    """One in three layers; of this seed, both formats have layers on both sides."""
    return one_in(3, hidden, inner, experts, topk, seed=EXPERT_SEED)


PRODUCT_SEED, EXPERT_SEED = 6, 1

Record = Mapping[str, Any]


def aiter_groups(data: Path, limit: int | None = None) -> list[MeasuredRows]:
    """Products, a group a device, kind and format; about ``limit`` of each, evenly thinned."""
    return [
        _products(
            device,
            kind,
            dtype,
            kernel,
            records[:: max(1, len(records) // limit)] if limit else records,
        )
        for device, file in PRODUCTS.items()
        for (kind, dtype, kernel), records in _by_kind(read_records(data / file)).items()
    ]


def _by_kind(rows: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    by_kind: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for row in rows:
        if row["outdtype"] == "torch.float32":
            continue  # no recipe of 16 bits writes 32
        formats, kernel = KINDS[row["gemm_kind"]]
        dtype = formats.get(row["q_dtype_w"] or "") or formats[""]
        if dtype == "fp8_block" and not kernel and row["libtype"] == NEWER:
            kernel = NEWER
        by_kind[row["gemm_kind"], dtype, kernel].append(row)
    return by_kind


def _products(
    device: str, kind: str, dtype: str, kernel: str, rows: Sequence[Record]
) -> MeasuredRows:
    variant = Variant(dtype=dtype, library=LIBRARY, kernel=kernel)
    ops = [
        Op.make("gemm", variant, m=row["M"], n=row["N"], k=row["K"], batch=int(row["B"]))
        for row in rows
    ]
    n, k = (np.array([row[side] for row in rows], dtype=np.int64) for side in "NK")
    name = " ".join(("gemm", kind, dtype, *([kernel] if kernel == NEWER else [])))
    return _rows(device, name, ops, rows, products_held_out(n, k))


def aiter_expert_groups(data: Path) -> list[MeasuredRows]:
    """Layers of experts, a group a device and format; the tuner's tokens choose at random."""
    return [
        _experts(device, dtype, records)
        for device, file in EXPERTS.items()
        for dtype, records in _by_format(device, read_records(data / file)).items()
    ]


def stuck(rows: Sequence[Record]) -> bool:
    """Whether times of a layer stay the same where four times the tokens fill whole tiles: a tuner
    that stopped measuring.
    """
    full = {
        row["token"]: row["us"] for row in rows if row["token"] * row["topk"] >= 64 * row["expert"]
    }
    return any(full.get(4 * tokens, us * 4.0) < 1.2 * us for tokens, us in full.items())


def _measured(rows: Iterable[Record]) -> Iterator[Record]:
    """Rows of layers whose times grow."""
    layers: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for row in rows:
        layers[tuple(row[name] for name in LAYER)].append(row)
    for layer in layers.values():
        if not stuck(layer):
            yield from layer


LAYER = (
    "file", "model_dim", "inter_dim", "expert", "topk", "act_type", "q_dtype_a", "q_dtype_w",
    "q_type", "doweight_stage1",
)  # fmt: skip
"""What all rows of a tuner's run over numbers of tokens have in common."""


def _by_format(device: str, rows: Iterable[Record]) -> dict[str, list[Record]]:
    by_format: dict[str, list[Record]] = defaultdict(list)
    for row in _measured(rows):
        if row["gfx"] in (None, ISA[device]):
            a, w = (row[f"q_dtype_{x}"].removeprefix("torch.").partition("_")[0] for x in "aw")
            by_format[EXPERT_FORMATS[a, w, row["q_type"].removeprefix("QuantType.")]].append(row)
    return by_format


def _experts(device: str, dtype: str, rows: Sequence[Record]) -> MeasuredRows:
    variant = Variant(dtype=dtype, library=LIBRARY, flags=(("gated", True), ("uniform", True)))
    ops = [
        Op.make(
            "moe", variant, tokens=row["token"], experts=row["expert"], topk=row["topk"],
            hidden=row["model_dim"], intermediate=row["inter_dim"], ep=1, tp=1,
        )
        for row in rows
    ]  # fmt: skip
    sizes = (
        np.array([row[name] for row in rows], dtype=np.int64)
        for name in ("model_dim", "inter_dim", "expert", "topk")
    )
    return _rows(device, f"moe {dtype} aiter", ops, rows, experts_held_out(*sizes))


def _rows(
    device: str, name: str, ops: list[Op], rows: Sequence[Record], held: Mask
) -> MeasuredRows:
    seconds = np.array([row["us"] * 1e-6 for row in rows])
    return MeasuredRows(OpBatch.from_ops(ops), device, seconds, held, {"group": f"{device} {name}"})


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
SUITES = (Suite("aiter", (*PRODUCTS.values(), *EXPERTS.values()), SCORE),)
