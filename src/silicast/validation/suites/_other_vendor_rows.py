"""Measured kernels of devices that are not NVIDIA's data-centre GPUs, from every table with some.

Rows that are marked may be fitted (benchmarks/fit_other_vendors.py): blocks of tokens on the TPU;
on MI300X, MI100, Arc Pro B60 and two of DeepBench's devices the half of all shapes whose name has
an even checksum. A shape's repeats are on one side. Nothing is fitted on the others.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.validation.suite import data_folder
from silicast.validation.suites._deepbench_rows import FITTED, deepbench_rows
from silicast.workload.op import Op, OpBatch, Variant

ROWS_PER_GROUP = 400
TOKEN_BLOCK = 64

LLAMA_8B_LAYERS = {
    "q_proj": (4096, 4096), "o_proj": (4096, 4096), "gate_proj": (14336, 4096),
    "up_proj": (14336, 4096), "down_proj": (4096, 14336), "lm_head": (128256, 4096),
}  # fmt: skip
"""Layer -> (n, k). The later norms of the profile are fused into neighbours and left out."""

XLA_TYPES = {
    "bf16xbf16->bf16": "bf16", "f16xf16->f16": "fp16",
    "f8e4m3fnuzxf8e4m3fnuz->bf16": "fp8_static", "f32xf32->f32": "tf32",
}  # fmt: skip
NEUSIGHT_KINDS = {
    "add": ("add", 2), "mul": ("mul", 2), "div": ("div", 2), "addu": ("add", 1),
    "mulu": ("mul", 1), "relu": ("relu", 1), "gelu": ("gelu", 1), "tanh": ("tanh", 1),
}  # fmt: skip
EAGER = Variant(dtype="fp32", launch="stream")


@final
@dataclass(frozen=True)
class Group:
    """Rows of one source, device and family.

    Attributes:
        name: "<device> <family> <source>".
        device: catalog name.
        batch: the ops.
        measured_s: shape (n,).
        fitted: rows that may be fitted, shape (n,).
    """

    name: str
    device: str
    batch: OpBatch
    measured_s: F64
    fitted: NDArray[np.bool_]

    def part(self, fitted: bool) -> Group:
        """The rows that may be fitted, or the others."""
        mask = self.fitted == fitted
        dims = {name: values[mask] for name, values in self.batch.dims.items()}
        batch = OpBatch(self.batch.family, self.batch.variant, dims)
        return Group(self.name, self.device, batch, self.measured_s[mask], self.fitted[mask])


Row = tuple[Op, float, bool]


def may_fit(op: Op) -> bool:
    """Whether a shape is on the fitted side: by a checksum of its family and sizes alone."""
    sizes = ",".join(f"{name}={size}" for name, size in op.dims)
    return zlib.crc32(f"{op.family}:{sizes}".encode()) % 2 == 0


def group_of(name: str, device: str, rows: Iterable[Row], limit: int = ROWS_PER_GROUP) -> Group:
    """A group of rows of one family and variant, evenly thinned to about ``limit``."""
    found = list(rows)
    found = found[:: max(1, len(found) // limit)]
    return Group(
        name=name,
        device=device,
        batch=OpBatch.of([op for op, _, _ in found]),
        measured_s=np.array([seconds for _, seconds, _ in found]),
        fitted=np.array([fitted for _, _, fitted in found]),
    )


def _table(path: Path, **wanted: str) -> list[dict[str, Any]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, filters=None)
    for column, value in wanted.items():
        table = table.filter(pc.equal(table[column], value))
    return list(table.to_pylist())


def tpu_groups(data: Path | None = None) -> list[Group]:
    """Layers and attention of Llama-3.1-8B on a TPU v6e."""
    folder = (data or data_folder()) / "serving"
    graph = Variant(launch="graph")
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in _table(folder / "llmservingsim_v0_layers.parquet", hardware="TPU-v6e-1"):
        tokens, name = int(row["input"]), row["layer_name"]
        op = _layer_op(name, tokens, graph)
        if op is not None:
            fitted = tokens // TOKEN_BLOCK % 2 == 0
            rows[op.family].append((op, row["latency(ns)"] * 1e-9, fitted))
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "window": 0}
    for row in _table(folder / "llmservingsim_v0_attention.parquet", hardware="TPU-v6e-1"):
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
    return [group_of(f"TPU v6e {name}", "TPU v6e", found, 1200) for name, found in rows.items()]


def _layer_op(name: str, tokens: int, variant: Variant) -> Op | None:
    if name in LLAMA_8B_LAYERS:
        n, k = LLAMA_8B_LAYERS[name]
        return Op.make("gemm", variant, m=tokens, n=n, k=k, batch=1)
    if name == "input_layernorm":
        return Op.make("rmsnorm", variant, tokens=tokens, hidden=4096)
    if name == "embedding":
        return Op.make("embedding", variant, tokens=tokens, hidden=4096)
    return None


def amd_neusight_groups(data: Path) -> list[Group]:
    """MI100 in fp32: matrix products, all of the source's test split and never fitted, and vector
    kernels.
    """
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _table(data / "neusight" / "kernels_amd.parquet", gpu="MI100"):
        op = _neusight_op(row)
        if op is not None:
            kind = row["op"] if op.family == "gemm" else op.family
            fitted = row["split"] == "train" and may_fit(op)
            rows[kind, str(op.variant)].append((op, row["latency_ms"] * 1e-3, fitted))
    merged: dict[str, list[Group]] = defaultdict(list)
    for (kind, _), found in rows.items():
        merged[kind].append(group_of(f"MI100 {kind} neusight", "MI100", found))
    return [group for groups in merged.values() for group in groups]


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


XLA_DEVICES = {"gfx942": "MI300X"}


def xla_groups(data: Path) -> list[Group]:
    """MI300X, fitted in part, and MI350X: XLA's measured products."""
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    with gzip.open(data / "kernels" / "xla_gemm.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            dtype, device = XLA_TYPES.get(row["types"]), XLA_DEVICES.get(row["sm"])
            if device is None or dtype is None or float(row["frac_of_peak"]) > 1.0:
                continue
            sizes = {side: int(row[side]) for side in ("m", "n", "k")}
            op = Op.make("gemm", Variant(dtype=dtype), **sizes, batch=int(row["b"]))
            fitted = device == "MI300X" and may_fit(op)
            rows[device, dtype].append((op, float(row["us"]) * 1e-6, fitted))
    return [
        group_of(f"{device} gemm {dtype} xla", device, found)
        for (device, dtype), found in rows.items()
    ]


def deepbench_groups(data: Path) -> list[Group]:
    """Products of old GPUs, AMD's Vega and a Xeon Phi."""
    return [
        group_of(
            f"{device} gemm {dtype} deepbench",
            device,
            [(op, seconds, device in FITTED and may_fit(op)) for op, seconds in found],
        )
        for device, dtype, found in deepbench_rows(data)
    ]


def llmcompass_groups(data: Path) -> list[Group]:
    """MI210: LLMCompass's matrix products in fp16, called from Python."""
    path = data / "kernels" / "llmcompass_real_hardware.csv"
    rows: dict[str, list[Row]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name, _, gpu = row["file"].rpartition("_")
            fields = [field.strip() for field in row["row_csv"].split(",")]
            if gpu == "MI210" and name == "matmul":
                m, n, k = (int(field) for field in fields[:3])
                op = Op.make("gemm", Variant(dtype="fp16", launch="stream"), m=m, n=n, k=k, batch=1)
                rows[name].append((op, float(fields[3].removesuffix("ms")) * 1e-3, False))
    return [group_of(f"MI210 {name} llmcompass", "MI210", found) for name, found in rows.items()]


B60_PRODUCTS = {"bfloat16": "bf16", "fp8": "fp8_wo"}
"""The table's fp8 is vLLM's kernel for weights in fp8 and activations in bf16 on Intel GPUs."""


def b60_groups(data: Path) -> list[Group]:
    """Arc Pro B60: vLLM's matrix products and attention, of both versions that were measured."""
    folder = data / "aiconfigurator"
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _table(folder / "gemm.parquet", system="b60"):
        dtype = B60_PRODUCTS.get(row["gemm_dtype"])
        if dtype is not None:
            sizes = {side: int(row[side]) for side in ("m", "n", "k")}
            op = Op.make("gemm", Variant(dtype=dtype, library="vllm"), **sizes, batch=1)
            rows["gemm", dtype].append((op, row["latency_us"] * 1e-6, may_fit(op)))
    variant = Variant(library="vllm")
    for name, family in (("context", "attention_prefill"), ("generation", "attention_decode")):
        for row in _table(folder / f"{name}_attention.parquet", system="b60"):
            if row["attn_dtype"] != "bfloat16" or row["kv_cache_dtype"] != "bfloat16":
                continue
            op = Op.make(
                family, variant, batch=int(row["batch_size"]), **_attention_sizes(row, family)
            )
            rows[family, "bf16"].append((op, row["latency_us"] * 1e-6, may_fit(op)))
    return [
        group_of(f"Arc Pro B60 {family} {dtype} aiconfigurator", "Arc Pro B60", found, 800)
        for (family, dtype), found in rows.items()
    ]


MOE_SIZES = {
    "tokens": "num_tokens", "experts": "num_experts", "topk": "topk", "hidden": "hidden_size",
    "intermediate": "inter_size", "ep": "moe_ep_size", "tp": "moe_tp_size",
}  # fmt: skip


def b60_expert_groups(data: Path) -> list[Group]:
    """Arc Pro B60: vLLM's fused experts, a group a format."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in _table(data / "aiconfigurator" / "moe.parquet", system="b60"):
        dtype = recipe_for(row["moe_dtype"]).name
        flags = tuple(sorted([("gated", True), (row["distribution"], True)]))
        variant = Variant(dtype=dtype, library="vllm", kernel=row["kernel_source"], flags=flags)
        op = Op.make("moe", variant, **{name: int(row[c]) for name, c in MOE_SIZES.items()})
        rows[f"{dtype} {row['distribution']}"].append((op, row["latency_us"] * 1e-6, may_fit(op)))
    return [
        group_of(f"Arc Pro B60 moe {name} aiconfigurator", "Arc Pro B60", found)
        for name, found in rows.items()
    ]


def _attention_sizes(row: Mapping[str, Any], family: str) -> dict[str, int]:
    """New tokens, attended tokens and heads; ``step`` counts the tokens before, ``isl`` the new."""
    heads = int(row["num_heads"])
    sizes = {
        "num_heads": heads,
        "num_kv_heads": int(row["num_key_value_heads"]) or heads,
        "head_dim": int(row["head_dim"]),
        "window": max(int(row["window_size"]), 0),
    }
    new, past = int(row["isl"]), int(row["step"])
    if family == "attention_prefill":
        return {**sizes, "q_len": new, "kv_len": past + new}
    return {**sizes, "q_len": 1, "kv_len": past + new - 1}


def all_groups(data: Path) -> Sequence[Group]:
    """Every group's rows that were not fitted."""
    return list(_held_out(data))


def _held_out(data: Path) -> Iterator[Group]:
    sources = (
        tpu_groups(data),
        xla_groups(data),
        b60_groups(data),
        b60_expert_groups(data),
        amd_neusight_groups(data),
        deepbench_groups(data),
        llmcompass_groups(data),
    )
    for groups in sources:
        for group in groups:
            yield group.part(fitted=False)
