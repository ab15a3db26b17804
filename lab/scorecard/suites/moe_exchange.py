"""Dispatch and combine: DeepEP of three engines, TensorRT-LLM's kernels over NVLink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, size_ranges
from lab.scorecard.rows import MeasuredRows, held_out, one_in
from lab.scorecard.suite import Suite
from lab.scorecard.tables import AIC, AIC_DEVICES, groups, ops, read_arrow
from lab.scorecard.training import Source
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.kernels.experts.moe_exchange import fabric_of, payload_bytes, remote_of
from silicast.kernels.implementation import KernelTimes
from silicast.learning.boosting import Settings
from silicast.workload.graphs.op import Variant

A2A = f"{AIC}moe_a2a.parquet"
DEEPEP = {
    "deepep_ll": f"{AIC}wideep_deepep_ll.parquet",
    "deepep_normal": f"{AIC}wideep_deepep_normal.parquet",
}
ONE_SIDED = f"{AIC}trtllm_alltoall.parquet"
TABLES = (A2A, *DEEPEP.values(), ONE_SIDED)
PHASES = ("dispatch", "combine")


def exchange_rows(data: Path) -> list[MeasuredRows]:
    """Every row in a fixed order; of DeepEP v2 none (minutes of warm-up noise)."""
    return [*_vllm_and_trtllm(data), *_sglang(data), *_one_sided(data)]


def _part(
    system: str,
    phase: str,
    variant: Variant,
    dims: Mapping[str, Any],
    micros: F64,
    *,
    few_layers: bool = False,
) -> MeasuredRows:
    """One in four layers (hidden, topk, experts) is held out; of groups that span nodes and of
    exchanges over NVLink alone, which have few layers, one in two pairs of tokens and nodes.
    """
    held = np.zeros(len(micros), dtype=bool)
    ((batch, _, _),) = ops(phase, variant, {"nodes": 1, **dims}, held)
    d = batch.dims
    if few_layers or d["nodes"][0] > 1:
        held = one_in(2, d["tokens"], d["nodes"], seed=3)
    else:
        held = one_in(4, d["hidden"], d["topk"], d["experts"], seed=3)
    return MeasuredRows(batch, AIC_DEVICES[system], micros.astype(np.float64) * 1e-6, held)


def _vllm_and_trtllm(data: Path) -> Iterator[MeasuredRows]:
    words = ("system", "backend", "version", "comm_backend", "phase", "comm_dtype")
    names = {
        "tokens": "num_tokens",
        "hidden": "hidden_size",
        "topk": "topk",
        "experts": "num_experts",
        "ep": "ep_size",
        "sms": "sms",
    }
    numbers = (*names.values(), "latency_us")
    for named, c in groups(read_arrow(data / A2A, [*words, *numbers]), words, numbers):
        system, library, version, kernel, phase, dtype = named.values()
        if system not in AIC_DEVICES or "v2" in kernel:
            continue
        name = {"default": "bf16", "fp4": "nvfp4"}.get(dtype, dtype)
        variant = Variant(recipe_for(name).name, library=library, version=version, kernel=kernel)
        dims = {dim: c[column] for dim, column in names.items()}
        yield _part(system, phase, variant, dims, c["latency_us"])


def _sglang(data: Path) -> Iterator[MeasuredRows]:
    for kernel, table in DEEPEP.items():
        normal = kernel == "deepep_normal"
        names = {
            "tokens": "num_token",
            "hidden": "hidden_size",
            "topk": "num_topk",
            "experts": "num_experts",
        }
        times = {phase: f"{phase}_{'transmit' if normal else 'avg_t'}_us" for phase in PHASES}
        sms = {phase: f"{phase}_sms" for phase in PHASES} if normal else {}
        words = ("system", "version", "node_num")
        numbers = (*names.values(), *times.values(), *sms.values())
        for named, c in groups(read_arrow(data / table, [*words, *numbers]), words, numbers):
            if named["system"] not in AIC_DEVICES:
                continue
            nodes = int(named["node_num"])
            ranks = (4 if named["system"] == "gb200" else 8) * nodes
            variant = Variant(library="sglang", version=named["version"], kernel=kernel)
            for phase in PHASES:
                dims: dict[str, Any] = {dim: c[column] for dim, column in names.items()}
                dims |= {"ep": ranks, "nodes": nodes}
                if normal:
                    dims["sms"] = c[sms[phase]]
                yield _part(named["system"], phase, variant, dims, c[times[phase]])


def _one_sided(data: Path) -> Iterator[MeasuredRows]:
    words = ("kernel_source", "moe_dtype", "op_name", "system")
    names = {
        "tokens": "num_tokens",
        "hidden": "hidden_size",
        "topk": "topk",
        "experts": "num_experts",
        "ep": "moe_ep_size",
    }
    numbers = (*names.values(), "latency_us")
    read = groups(read_arrow(data / ONE_SIDED, [*words, *numbers]), words, numbers)
    table = {tuple(named.values()): columns for named, columns in read}
    for kernel, dtype in dict.fromkeys(key[:2] for key in table):
        for phase in PHASES:
            c = table.get((kernel, dtype, f"alltoall_{phase}", "gb200"))
            if c is not None:
                variant = Variant(recipe_for(dtype).name, library="trtllm", kernel=kernel)
                dims = {dim: c[column] for dim, column in names.items()}
                yield _part("gb200", phase, variant, dims, c["latency_us"], few_layers=True)


def _of_phase(data: Path, phase: str) -> list[MeasuredRows]:
    return [part for part in exchange_rows(data) if part.batch.family == phase]


SOURCES = tuple(
    Source(
        phase,
        TABLES,
        "one in four layers; between nodes and over NVLink alone one in two pairs of tokens and "
        "nodes",
        partial(_of_phase, phase=phase),
        Settings(trees=200, depth=6, rate=0.12, rows=0.6, prior=8.0),
    )
    for phase in PHASES
)


def roofline_s(rows: MeasuredRows, _: KernelTimes) -> F64:
    """The copies that leave a rank, one a rank, at the link's datasheet bandwidth."""
    d = rows.batch.dims
    remote = remote_of(d["topk"], d["ep"], d["ep"])
    moved = d["tokens"] * d["hidden"] * payload_bytes(rows.batch.variant, rows.batch.family)
    return moved * remote.once / fabric_of(rows.hardware).link


def _nodes(rows: MeasuredRows, _: KernelTimes) -> str:
    count = int(rows.batch.dims["nodes"][0])
    return "one node" if count == 1 else f"{count} nodes"


SUITES = (
    Suite(
        "moe_exchange",
        TABLES,
        KernelScore(
            lambda data, _: {f"{phase}_us": held_out(_of_phase(data, phase)) for phase in PHASES},
            roofline_s,
            {
                "library": lambda rows, _: rows.batch.variant.library,
                "kernel": lambda rows, _: rows.batch.variant.kernel,
                "nodes": _nodes,
                "regime": size_ranges("tokens", (256,), ("tokens <= 256", "tokens > 256")),
            },
        ),
    ),
)
