"""Counts of families on other execution models, in arrays and op by op."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.kernels.check import op_at
from silicast.kernels.execution_models.fallback_kernels import counts_of
from silicast.kernels.execution_models.row_counts import CountsRows
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import OpBatch, Variant

ROWS = 40
SOME = {
    "moe": {"tokens": 5000, "experts": 128, "topk": 8, "hidden": 8192, "intermediate": 4096,
            "ep": 16, "tp": 4},
    "mla_decode": {"batch": 64, "q_len": 4, "kv_len": 9000, "num_heads": 128},
    "mla_prefill": {"batch": 8, "q_len": 900, "kv_len": 9000, "num_heads": 128},
    "topk": {"batch": 64, "q_len": 900, "kv_len": 9000, "k": 2048},
    "sparse_attention": {"batch": 8, "q_len": 900, "kv_len": 9000, "num_heads": 64},
    "gated_mlp": {"tokens": 900, "hidden": 4096, "intermediate": 4096},
}  # fmt: skip


@pytest.mark.parametrize("family", SOME)
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_counts_of_rows_are_those_of_each_op(family: str, dtype: str) -> None:
    rng, model = np.random.default_rng(1), implementation_for(family, "simt")
    assert model is not None
    dims = {name: rng.integers(1, most + 1, ROWS) for name, most in SOME[family].items()}
    if "kv_len" in dims:
        dims["kv_len"] = dims["kv_len"] + dims["q_len"]
    if family == "gated_mlp":
        dims = {name: values % 3 + 64 for name, values in dims.items()}
    batch = OpBatch(family, Variant(dtype), dims)
    flops, moved = counts_of(model, batch)
    for row in range(ROWS):
        op = op_at(batch, row)
        wanted = float(model.flops(op)), float(model.compulsory_bytes(op))
        assert (flops[row], moved[row]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("family", ["mla_decode", "mla_prefill", "topk", "sparse_attention"])
def test_sequences_that_differ_are_counted_in_arrays_too(family: str) -> None:
    rng, model = np.random.default_rng(2), implementation_for(family, "simt")
    assert isinstance(model, CountsRows)
    offsets = np.array([0, 3, 4, 9])
    q = rng.integers(1, 300, 9)
    dims = {"q_len": q, "kv_len": q + rng.integers(0, 4000, 9)}
    dims["k" if family == "topk" else "num_heads"] = np.array([16, 64, 128])
    batch = OpBatch(family, Variant("bf16"), dims, offsets, frozenset({"q_len", "kv_len"}))
    flops, moved = model.counts(batch)
    for row in range(3):
        op = op_at(batch, row)
        assert flops[row] == pytest.approx(float(model.flops(op)), rel=1e-12)
        assert moved[row] == pytest.approx(float(model.compulsory_bytes(op)), rel=1e-12)
