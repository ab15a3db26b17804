"""Rows of the measured tables, column by column, are kernel cases of the contract."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from silicast.core.plain_data import parse_json
from silicast.scenario.decode import decode

DATA = Path(os.environ.get("SILICAST_DATA", Path(__file__).parents[4] / "shared" / "data"))
AIC = "aiconfigurator"
PROTOCOL = {"backend": "library", "version": "library_version", "kernel_source": "variant"}
MLA = ("mla_dtype", "kv_cache_dtype", "num_heads", "tp_size", "batch_size", "isl", "step")
MODULE = (*MLA, "gemm_type", "model", "architecture")
DELTA = ("phase", "d_model", "d_conv", "head_k_dim", "head_v_dim", "num_k_heads", "num_v_heads",
         "batch_size", "seq_len", "num_tokens", "model_name")  # fmt: skip

TABLES: list[tuple[str, str, dict[str, str]]] = [
    ("gemm", "gemm", {"m": "m", "n": "n", "k": "k", "gemm_dtype": "dtype"}),
    ("moe", "moe", {
        "num_tokens": "tokens", "num_experts": "experts", "topk": "topk", "hidden_size": "hidden",
        "inter_size": "intermediate", "moe_ep_size": "ep", "moe_tp_size": "tp",
        "moe_dtype": "dtype", "distribution": "distribution",
    }),
    ("wideep_moe", "moe", {
        "num_tokens": "tokens", "num_experts": "experts", "topk": "topk", "hidden_size": "hidden",
        "inter_size": "intermediate", "moe_dtype": "dtype", "distribution": "distribution",
    }),
    ("generation_attention", "attention_decode", {
        "num_heads": "num_heads", "num_key_value_heads": "num_kv_heads", "head_dim": "head_dim",
        "window_size": "window", "kv_cache_dtype": "kv_dtype", "attn_dtype": "dtype",
        "step": "kv_len", "batch_size": "batch",
    }),
    ("context_attention", "attention_prefill", {
        "num_heads": "num_heads", "num_key_value_heads": "num_kv_heads", "head_dim": "head_dim",
        "window_size": "window", "kv_cache_dtype": "kv_dtype", "attn_dtype": "dtype",
        "batch_size": "batch", "isl": "q_len",
    }),
    ("context_mla", "mla_prefill", {name: name for name in (*MLA, "op_name")}),
    ("generation_mla", "mla_decode", {name: name for name in (*MLA, "op_name")}),
    ("mla_context_module", "mla_module", {name: name for name in MODULE}),
    ("dsa_generation_module", "dsa_module", {name: name for name in MODULE}),
    ("dsv4_csa_context_module", "csa_module", {n: n for n in (*MODULE, "compress_ratio")}),
    ("dsv4_hca_attn_module", "hca_module", {n: n for n in (*MODULE, "local_num_heads")}),
    ("msa_context_module", "msa_module", {name: name for name in MODULE}),
    ("gdn", "gdn", {name: name for name in DELTA}),
    ("kda", "kda", {name: name for name in DELTA}),
    ("mamba2", "mamba2", {name: name for name in (
        "phase", "d_model", "d_conv", "d_state", "head_dim", "n_groups", "chunk_size", "nheads",
        "batch_size", "seq_len", "num_tokens", "model_name",
    )}),
]  # fmt: skip


def sample(table: str, columns: list[str], every: int = 97) -> list[dict[str, Any]]:
    """A few hundred rows of a table, from all over it."""
    parquet = pytest.importorskip("pyarrow.parquet")
    path = DATA / AIC / f"{table}.parquet"
    if not path.is_file():
        pytest.skip(f"no measured tables: {path} is missing; set SILICAST_DATA")
    file = parquet.ParquetFile(path)
    rows: list[dict[str, Any]] = []
    for group in range(file.num_row_groups):
        part = file.read_row_group(group, columns=columns).slice(0, 20_000)
        rows += part.take(
            list(range(0, part.num_rows, max(every, part.num_rows // 60)))
        ).to_pylist()
        if len(rows) >= 300:
            break
    return rows


@pytest.mark.data
@pytest.mark.parametrize(("table", "op", "names"), TABLES, ids=[t for t, _, _ in TABLES])
def test_rows_are_cases(table: str, op: str, names: dict[str, str]) -> None:
    rows = sample(table, [*names, *PROTOCOL, *(["step"] if op == "attention_prefill" else [])])
    assert rows
    for row in rows:
        kernel: dict[str, Any] = {"op": op}
        kernel |= {ours: row[column] for column, ours in {**names, **PROTOCOL}.items()}
        if op == "attention_prefill":
            kernel["kv_len"] = row["isl"] + row["step"]
        case = {"task": "kernel", "device": "H100", "workload": {"kernel": kernel}}
        assert decode(parse_json(json.dumps(case).encode())).kernel is not None
