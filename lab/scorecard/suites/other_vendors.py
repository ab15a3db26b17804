"""Kernels of other vendors' devices, and of NVIDIA's GPUs of 2015 to 2019.

Half of the rows of some sources may be fitted (lab/fit_other_vendors.py): on the TPU every
second block of tokens; on MI300X, MI100, Arc Pro B60 and two of DeepBench's devices the shapes with
an even checksum. A shape's repeats are on one side. Nothing is fitted on the others.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, roofline_of_ops, word
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suite import Suite
from lab.scorecard.suites.moe import TABLE as MOE
from lab.scorecard.tables import csv_records, read_records
from silicast.core.dtypes import recipe_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

ROWS_PER_GROUP = 400
TOKEN_BLOCK = 64
EAGER = Variant(dtype="fp32", launch="stream")

TPU_LAYERS = "serving/llmservingsim_v0_layers.parquet"
TPU_ATTENTION = "serving/llmservingsim_v0_attention.parquet"
NEUSIGHT_AMD = "neusight/kernels_amd.parquet"
XLA = "kernels/xla_gemm.csv.gz"
LLMCOMPASS = "kernels/llmcompass_real_hardware.csv"
DEEPBENCH = "kernels/deepbench.csv.gz"
AIC_GEMM = "aiconfigurator/gemm.parquet"
AIC_ATTENTION = {
    "attention_prefill": "aiconfigurator/context_attention.parquet",
    "attention_decode": "aiconfigurator/generation_attention.parquet",
}

DEEPBENCH_DEVICES: Mapping[str, str] = {
    "NV_M40": "M40", "NV_TitanX": "TITAN X (Maxwell)", "NV_TitanX_Pascal": "TITAN X (Pascal)",
    "NV_TitanXp": "TITAN Xp", "NV_1080Ti": "GTX 1080 Ti", "NV_P100": "P100-PCIE-16GB",
    "NV_V100": "V100-SXM2-16GB", "NV_T4": "T4", "AMD_MI25": "MI25",
    "AMD_VegaFE": "Radeon Vega Frontier Edition", "IA_KNL7250": "Xeon Phi 7250",
}  # fmt: skip
"""Which V100, P100 and M40 was measured is not stated: the catalog's default part of the name."""
DEEPBENCH_FITTED = frozenset({"MI25", "M40", "Xeon Phi 7250"})
"""Vega FE and TITAN X are sister devices of these."""

LLAMA_8B_LAYERS = {
    "q_proj": (4096, 4096),
    "o_proj": (4096, 4096),
    "gate_proj": (14336, 4096),
    "up_proj": (14336, 4096),
    "down_proj": (4096, 14336),
    "lm_head": (128256, 4096),
}
"""Layer -> (n, k). The later norms of the profile are fused into neighbours and left out."""
XLA_TYPES = {
    "bf16xbf16->bf16": "bf16",
    "f16xf16->f16": "fp16",
    "f8e4m3fnuzxf8e4m3fnuz->bf16": "fp8_static",
    "f32xf32->f32": "tf32",
}
NEUSIGHT_KINDS = {
    "add": ("add", 2),
    "mul": ("mul", 2),
    "div": ("div", 2),
    "addu": ("add", 1),
    "mulu": ("mul", 1),
    "relu": ("relu", 1),
    "gelu": ("gelu", 1),
    "tanh": ("tanh", 1),
}
B60_PRODUCTS = {"bfloat16": "bf16", "fp8": "fp8_wo"}
"""The table's fp8 is vLLM's kernel for weights in fp8 and activations in bf16 on Intel GPUs."""

_Row = tuple[Op, float, bool]
"""A kernel, its seconds, and whether it may be fitted."""


def may_fit(op: Op) -> bool:
    """Whether a shape is on the fitted side: by a checksum of its family and sizes alone."""
    sizes = ",".join(f"{name}={size}" for name, size in op.dims)
    return zlib.crc32(f"{op.family}:{sizes}".encode()) % 2 == 0


def group_of(
    name: str, device: str, rows: Iterable[_Row], limit: int = ROWS_PER_GROUP
) -> MeasuredRows:
    """Rows of one source, family and variant, evenly thinned to about ``limit``."""
    thinned = list(rows)
    thinned = thinned[:: max(1, len(thinned) // limit)]
    return MeasuredRows(
        OpBatch.from_ops([op for op, _, _ in thinned]),
        device,
        np.array([seconds for _, seconds, _ in thinned]),
        np.array([not fitted for _, _, fitted in thinned]),
        {"group": f"{device} {name}"},
    )


def tpu_groups(data: Path) -> list[MeasuredRows]:
    """Layers and attention of Llama-3.1-8B on a TPU v6e."""
    graph = Variant(launch="graph")
    rows: dict[str, list[_Row]] = defaultdict(list)
    for row in read_records(data / TPU_LAYERS, hardware="TPU-v6e-1"):
        tokens = int(row["input"])
        op = _layer_op(row["layer_name"], tokens, graph)
        if op is not None:
            rows[op.family].append((op, row["latency(ns)"] * 1e-9, tokens // TOKEN_BLOCK % 2 == 0))
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "window": 0}
    for row in read_records(data / TPU_ATTENTION, hardware="TPU-v6e-1"):
        batch, chunk, past = (
            int(row[name]) for name in ("batch_size", "prefill_chunk_size", "kv_cache_size")
        )
        if row["is_prefill"]:
            family, fitted = "attention_prefill", chunk // 32 % 2 == 0
            sizes = {"batch": batch, "q_len": chunk, "kv_len": past + chunk}
        else:
            family, fitted = "attention_decode", batch % 2 == 0
            sizes = {"batch": batch, "q_len": 1, "kv_len": past}
        op = Op.make(family, graph, **sizes, **heads)
        rows[family].append((op, row["mean_ns"] * 1e-9, fitted))
    return [group_of(name, "TPU v6e", item, 1200) for name, item in rows.items()]


def _layer_op(name: str, tokens: int, variant: Variant) -> Op | None:
    if name in LLAMA_8B_LAYERS:
        n, k = LLAMA_8B_LAYERS[name]
        return Op.make("gemm", variant, m=tokens, n=n, k=k, batch=1)
    if name == "input_layernorm":
        return Op.make("rmsnorm", variant, tokens=tokens, hidden=4096)
    if name == "embedding":
        return Op.make("embedding", variant, tokens=tokens, hidden=4096)
    return None


def amd_neusight_groups(data: Path) -> list[MeasuredRows]:
    """MI100 in fp32: matrix products, all of the source's test split and never fitted, and vector
    kernels.
    """
    rows: dict[str, dict[Variant, list[_Row]]] = defaultdict(dict)
    for row in read_records(data / NEUSIGHT_AMD, gpu="MI100"):
        op = _neusight_op(row)
        if op is not None:
            kind = row["op"] if op.family == "gemm" else op.family
            fitted = row["split"] == "train" and may_fit(op)
            variant = rows[kind].setdefault(op.variant, [])
            variant.append((op, row["latency_ms"] * 1e-3, fitted))
    return [
        group_of(f"{kind} neusight", "MI100", variant)
        for kind, variants in rows.items()
        for variant in variants.values()
    ]


def _neusight_op(row: Mapping[str, Any]) -> Op | None:
    name = row["op"]
    if name in {"bmm", "linear"}:
        m, k, n = (int(row[side]) for side in ("M", "N", "K"))
        return Op.make("gemm", EAGER, m=m, n=n, k=k, batch=int(row["B"] or 1))
    if row["B"] is None or row["H"] is None:
        return None
    tokens, hidden = int(row["B"]), int(row["H"])
    if name in NEUSIGHT_KINDS:
        kind, inputs = NEUSIGHT_KINDS[name]
        variant = Variant(dtype="fp32", launch="stream", flags=((kind, True),))
        return Op.make("elementwise", variant, elements=tokens * hidden, inputs=inputs)
    if name == "ln":
        return Op.make("layernorm", EAGER, tokens=tokens, hidden=hidden)
    if name == "softmax":
        return Op.make("softmax", EAGER, rows=tokens, cols=hidden)
    return None


def xla_groups(data: Path) -> list[MeasuredRows]:
    """MI300X: XLA's measured products."""
    rows: dict[str, list[_Row]] = defaultdict(list)
    for row in csv_records(data / XLA):
        dtype = XLA_TYPES.get(row["types"])
        if row["sm"] != "gfx942" or dtype is None or float(row["frac_of_peak"]) > 1.0:
            continue
        sizes = {side: int(row[side]) for side in ("m", "n", "k")}
        op = Op.make("gemm", Variant(dtype=dtype, library="xla"), **sizes, batch=int(row["b"]))
        rows[dtype].append((op, float(row["us"]) * 1e-6, may_fit(op)))
    return [group_of(f"gemm {dtype} xla", "MI300X", item) for dtype, item in rows.items()]


def deepbench_groups(data: Path) -> list[MeasuredRows]:
    """Products that DeepBench measured, training shapes: those for inference are int8 and padded.

    The benchmark calls the library in a loop on the same operands, so that a call costs no more
    than a launch of the queue and operands that fit stay in the caches.
    """
    rows: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in csv_records(data / DEEPBENCH):
        device = DEEPBENCH_DEVICES.get(row["device"])
        product = row["op"] == "Dense Matrix Multiplication" and row["suite"] == "train"
        if device is None or not product or "Psuedo" in row["sheet"]:
            continue
        dtype, shape = "fp16" if "FP16" in row["sheet"] else "fp32", json.loads(row["shape_json"])
        # BLAS is column-major: what it calls m is the weights' side here
        sizes = {"m": int(shape["N"]), "n": int(shape["M"]), "k": int(shape["K"]), "batch": 1}
        op = Op.make("gemm", Variant(dtype=dtype, cache="warm"), **sizes)
        fitted = device in DEEPBENCH_FITTED and may_fit(op)
        rows[device, dtype].append((op, float(row["time"]) * 1e-3, fitted))
    return [
        group_of(f"gemm {dtype} deepbench", device, item) for (device, dtype), item in rows.items()
    ]


def llmcompass_groups(data: Path) -> list[MeasuredRows]:
    """MI210: LLMCompass's matrix products in fp16, called from Python."""
    rows: list[_Row] = []
    for row in csv_records(data / LLMCOMPASS):
        fields = [field.strip() for field in row["row_csv"].split(",")]
        if row["file"] == "matmul_MI210":
            m, n, k = (int(field) for field in fields[:3])
            op = Op.make("gemm", Variant(dtype="fp16", launch="stream"), m=m, n=n, k=k, batch=1)
            rows.append((op, float(fields[3].removesuffix("ms")) * 1e-3, False))
    return [group_of("matmul llmcompass", "MI210", rows)]


def b60_groups(data: Path) -> list[MeasuredRows]:
    """Arc Pro B60: vLLM's matrix products and attention, of both versions that were measured."""
    rows: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in read_records(data / AIC_GEMM, system="b60"):
        dtype = B60_PRODUCTS.get(row["gemm_dtype"])
        if dtype is not None:
            sizes = {side: int(row[side]) for side in ("m", "n", "k")}
            op = Op.make("gemm", Variant(dtype=dtype, library="vllm"), **sizes, batch=1)
            rows["gemm", dtype].append((op, row["latency_us"] * 1e-6, may_fit(op)))
    for family, table in AIC_ATTENTION.items():
        for row in read_records(data / table, system="b60"):
            if row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16":
                op = Op.make(family, Variant(library="vllm"), **_attention_sizes(row, family))
                rows[family, "bf16"].append((op, row["latency_us"] * 1e-6, may_fit(op)))
    return [
        group_of(f"{family} {dtype} aiconfigurator", "Arc Pro B60", item, 800)
        for (family, dtype), item in rows.items()
    ]


def _attention_sizes(row: Mapping[str, Any], family: str) -> dict[str, int]:
    """New tokens, attended tokens and heads; ``step`` counts the tokens before, ``isl`` the new."""
    heads, new, past = (int(row[name]) for name in ("num_heads", "isl", "step"))
    prefill = family == "attention_prefill"
    return {
        "batch": int(row["batch_size"]),
        "q_len": new if prefill else 1,
        "kv_len": past + new if prefill else past + new - 1,
        "num_heads": heads,
        "num_kv_heads": int(row["num_key_value_heads"]) or heads,
        "head_dim": int(row["head_dim"]),
        "window": max(int(row["window_size"]), 0),
    }


MOE_SIZES = {
    "tokens": "num_tokens",
    "experts": "num_experts",
    "topk": "topk",
    "hidden": "hidden_size",
    "intermediate": "inter_size",
    "ep": "moe_ep_size",
    "tp": "moe_tp_size",
}


def b60_expert_groups(data: Path) -> list[MeasuredRows]:
    """Arc Pro B60: vLLM's fused experts, a group a format."""
    rows: dict[str, list[_Row]] = defaultdict(list)
    for row in read_records(data / MOE.path, system="b60"):
        dtype = recipe_for(row["moe_dtype"]).name
        flags = tuple(sorted([("gated", True), (row["distribution"], True)]))
        variant = Variant(dtype=dtype, library="vllm", kernel=row["kernel_source"], flags=flags)
        op = Op.make("moe", variant, **{name: int(row[c]) for name, c in MOE_SIZES.items()})
        rows[f"{dtype} {row['distribution']}"].append((op, row["latency_us"] * 1e-6, may_fit(op)))
    return [
        group_of(f"moe {name} aiconfigurator", "Arc Pro B60", item) for name, item in rows.items()
    ]


GROUPS = (
    tpu_groups,
    xla_groups,
    b60_groups,
    b60_expert_groups,
    amd_neusight_groups,
    deepbench_groups,
    llmcompass_groups,
)


def all_groups(data: Path) -> Iterator[MeasuredRows]:
    """Every group with the rows that may be fitted and the others."""
    for read in GROUPS:
        yield from read(data)


TABLES = (
    TPU_LAYERS, TPU_ATTENTION, NEUSIGHT_AMD, XLA, LLMCOMPASS, DEEPBENCH, AIC_GEMM,
    *AIC_ATTENTION.values(), MOE.path,
)  # fmt: skip
SCORE = KernelScore(
    lambda data, _: {"latency_us": held_out(all_groups(data))},
    roofline_of_ops,
    {
        "vendor": lambda rows, _: rows.hardware.vendor,
        "family": lambda rows, _: rows.batch.family,
        "group": word("group"),
    },
)
SUITES = (Suite("other_vendors", TABLES, SCORE),)
