"""Time and memory of kernel predictions as users get them: learned corrections included.

    .venv/bin/python benchmarks/speed_kernels.py [OUT.json] [FAMILY ...]

Per family: one op that was not asked for before (through ``learning.dispatch``), the same op asked
for again, a row of a batch of 100,000 (through ``learning.tiers``) with and without ceilings, and
the peak of memory that such a batch allocates. Smallest of several runs: the machine may be shared.
"!" marks what exceeds the budget of docs/adr/0010-no-compiled-core.md.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.hardware.catalog import find_device
from silicast.kernels.check import draw_batch, op_at
from silicast.kernels.composite import Composite
from silicast.kernels.registry import families, implementation_for
from silicast.learning import dispatch
from silicast.learning.artefact import load_artefact
from silicast.learning.tiers import ALL_SHIPPED, Evidence, kernel_times
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

ROWS = 100_000
ASKED = 130
"""Times that an op is asked for alone: more often than a process asks before it makes a tape."""
OPS = 8
"""Different ops of a family that are timed alone."""
BUDGET = {"alone_us": 150.0, "row_us": 1.0, "repeated_us": 5.0, "peak_mb": 100.0}
SEVERAL_KERNELS_US = 400.0
"""Budget of one op of several kernels, alone."""
STATIC_BATCH_MS = 5.0
WITH_CEILINGS = Evidence(ceilings=True)
LENGTHS = {"batch": 256, "batch_size": 256, "q_len": 4096, "isl": 4096, "kv_len": 32768,
           "step": 32768, "tokens": 16384, "m": 16384, "n": 32768, "k": 32768}  # fmt: skip
"""Largest sizes drawn, where a family takes far larger ones than anybody runs."""
STREAMING = Variant("fp16", library="sarathi")
GENERATION = Variant(library="sglang", kv_dtype="fp8", flags=(("generation", True),))
CASES: dict[str, tuple[str, Variant]] = {
    "attention_decode": ("H100", Variant(flags=(("causal", True),))),
    "attention_prefill": ("H100", Variant(flags=(("causal", True),))),
    "combine": ("H100", Variant(kernel="deepep_low_latency")),
    "conv2d": ("V100", Variant("fp32")),
    "csa_module": ("H100", GENERATION),
    "dispatch": ("H100", Variant(kernel="deepep_low_latency")),
    "dsa_module": ("H100", GENERATION),
    "elementwise": ("H100", Variant("fp16", flags=(("add", True),))),
    "embedding": ("H100", STREAMING),
    "gdn": ("H100", Variant(flags=(("conv", True),))),
    "hca_module": ("H100", GENERATION),
    "indexer_logits": ("H100", Variant("fp8")),
    "kda": ("H100", Variant(flags=(("conv", True),))),
    "layernorm": ("H100", Variant("fp16")),
    "mamba2": ("H100", Variant(library="trtllm", flags=(("conv", True),))),
    "moe": ("H100", Variant(flags=(("gated", True), ("power_law_1.2", True)))),
    "msa_module": ("H100", GENERATION),
    "quantize": ("H100", Variant("fp8")),
    "rmsnorm": ("H100", STREAMING),
    "rope": ("H100", STREAMING),
    "silu_mul": ("H100", STREAMING),
    "softmax": ("A100", Variant("fp32")),
    "topk": ("H100", Variant("fp32")),
}
"""Device and variant of families whose shipped correction holds for others than bf16 on an H100."""


def smallest_s(call: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def case_of(family: str) -> tuple[str, Variant]:
    return CASES.get(family, ("H100", Variant()))


def batch_of(family: str, rows: int) -> OpBatch:
    """Random ops, log-uniform in each dimension; sequences of an op are of one length."""
    model = implementation_for(family, "simt")
    assert model is not None
    rng = np.random.default_rng(0)
    drawn = draw_batch(model, case_of(family)[1], rows, rng)
    dims = {}
    for name, values in drawn.dims.items():
        lengths = values
        if name in drawn.ragged and drawn.offsets is not None:
            lengths = values[drawn.offsets[:-1]]
        dims[name] = np.minimum(lengths, LENGTHS.get(name, 1 << 62))
    if family.startswith("attention"):
        groups = rng.choice([1, 2, 4, 8], rows)
        dims |= {"num_kv_heads": groups, "num_heads": groups * rng.choice([1, 4, 8], rows)}
        dims |= {"head_dim": np.full(rows, 128), "window": np.zeros(rows, np.int64)}
    if family == "gemm":
        dims["batch"] = np.ones(rows, np.int64)
    if family == "moe":
        dims |= {"experts": rng.choice([8, 64, 128, 256], rows), "topk": rng.choice([2, 8], rows)}
        dims |= {name: np.minimum(dims[name], 16384) for name in ("hidden", "intermediate")}
    return OpBatch(family, drawn.variant, dims)


def peak_mb(call: Callable[[], object]) -> float:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def kernel_figures(family: str) -> dict[str, float]:
    model, device = implementation_for(family, "simt"), find_device(case_of(family)[0])
    assert model is not None
    batch = batch_of(family, ROWS)
    ops = [op_at(batch.rows(np.array([row])), 0) for row in range(OPS)]

    def alone_s(op: Op) -> float:
        def call() -> None:
            dispatch.forget()
            dispatch.time_of(op, device)

        return smallest_s(call, ASKED)

    def many(evidence: Evidence) -> Callable[[], object]:
        return lambda: kernel_times(model, batch, device, evidence)

    predicted = kernel_times(model, batch.rows(np.arange(9)), device)
    if predicted.learned is None and load_artefact(family) is not None:
        raise SystemExit(f"the correction of {family} does not hold for {batch.variant}")
    alone = float(np.median([alone_s(op) for op in ops]))
    dispatch.times(ops, device)
    return {
        "alone_us": alone * 1e6,
        "row_us": smallest_s(many(ALL_SHIPPED), 3) / ROWS * 1e6,
        "row_with_ceilings_us": smallest_s(many(WITH_CEILINGS), 2) / ROWS * 1e6,
        "repeated_us": smallest_s(lambda: dispatch.time_of(ops[1], device), 200) * 1e6,
        "peak_mb": peak_mb(many(WITH_CEILINGS)),
    }


def budget_of(family: str) -> dict[str, float]:
    several = family == "moe" or isinstance(implementation_for(family, "simt"), Composite)
    return {**BUDGET, "alone_us": SEVERAL_KERNELS_US} if several else BUDGET


def static_batch_ms(model: str, tp: int) -> float:
    deployment = Deployment.from_model(
        find_model(model), find_device("H100"), find_engine("sglang"), plan=Plan(tp=tp)
    )
    return smallest_s(lambda: predict_static_batch(deployment, [1024] * 8, 128), 50) * 1e3


def main() -> None:
    wanted = [name for name in sys.argv[1:] if not name.endswith(".json")]
    results: dict[str, object] = {}
    print(f"{'us':20}{'alone':>10}{'a row':>10}{'ceilings':>10}{'repeated':>10}{'peak MB':>10}")
    for family in wanted or families("simt"):
        figures = kernel_figures(family)
        results[family] = {name: round(value, 3) for name, value in figures.items()}
        budget = budget_of(family)
        print(f"{family:20}" + "".join(
            f"{value:9.2f}{'!' if value > budget.get(name, value) else ' '}"
            for name, value in figures.items()
        ), flush=True)  # fmt: skip
    if not wanted:
        for model, tp in (("Llama-3.1-8B", 1), ("Llama-3.1-70B", 4)):
            value = static_batch_ms(model, tp)
            results[f"static batch {model} tp{tp}, ms"] = round(value, 2)
            print(f"static batch {model} tp{tp}: {value:.2f} ms (budget {STATIC_BATCH_MS:.0f})")
    out = [name for name in sys.argv[1:] if name.endswith(".json")]
    if out:
        Path(out[0]).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
