"""Time of one prediction, alone, in a batch and repeated, against the budgets of the design.

    .venv/bin/python benchmarks/speed_kernels.py [OUT.json]

Smallest of several runs: the machine may be shared. Random ops are log-uniform over each family's
dimensions (the draws of the kernel battery); attention is given as batches of equal sequences.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.static_batch import predict_static_batch
from silicast.hardware.catalog import find_device
from silicast.kernels.check import draw_batch, op_at
from silicast.kernels.implementation import families, implementation_for
from silicast.learning import dispatch
from silicast.workload.models import find_model
from silicast.workload.op import Variant
from silicast.workload.plan import Plan

ROWS = 100_000
BUDGET_US = {"alone": 150.0, "batch": 1.0, "repeated": 5.0}
ATTENTION_BATCH_US = 5.0
STATIC_BATCH_MS = 5.0


def smallest_s(call: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def uniform_attention(family: str, rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    kv_heads = rng.choice([1, 2, 4, 8], rows)
    length = np.exp(rng.uniform(0, np.log(32768), rows)).astype(np.int64)
    dims = {
        "batch": np.exp(rng.uniform(0, np.log(256), rows)).astype(np.int64),
        "kv_len": length,
        "num_heads": kv_heads * rng.choice([1, 4, 8], rows),
        "num_kv_heads": kv_heads,
        "head_dim": np.full(rows, 128),
        "window": np.zeros(rows, np.int64),
    }
    return dims | ({"q_len": length} if family == "attention_prefill" else {})


def kernel_us(family: str) -> dict[str, float]:
    from silicast.workload.op import OpBatch

    implementation, device = implementation_for(family, "simt"), find_device("H100")
    assert implementation is not None
    rng = np.random.default_rng(0)
    flags = (("causal", True),) if family == "attention_prefill" else ()
    variant = Variant(flags=flags)
    if family.startswith("attention"):
        batch = OpBatch(family, variant, uniform_attention(family, rng, ROWS))
    else:
        batch = draw_batch(implementation, variant, ROWS, rng)
    ops = [op_at(batch, row) for row in range(300)]
    implementation.times(batch, device)
    per_row = smallest_s(lambda: implementation.times(batch, device), 3) / ROWS

    def alone() -> None:
        dispatch.forget()
        dispatch.time_of(ops[0], device)

    dispatch.times(ops, device)
    return {
        "alone": smallest_s(alone, 200) * 1e6,
        "batch": per_row * 1e6,
        "repeated": smallest_s(lambda: dispatch.time_of(ops[1], device), 200) * 1e6,
    }


def static_batch_ms(model: str, tp: int) -> float:
    deployment = Deployment(
        find_model(model), find_device("H100"), find_engine("sglang"), plan=Plan(tp=tp)
    )
    return smallest_s(lambda: predict_static_batch(deployment, [1024] * 8, 128), 50) * 1e3


def main() -> None:
    results: dict[str, object] = {}
    print(f"{'us per prediction':20} {'alone':>8} {'in 100k':>8} {'repeated':>9}")
    print(f"{'budget':20} {150:8.0f} {'1 (5)':>8} {5:9.0f}")
    for family in families("simt"):
        figures = kernel_us(family)
        results[family] = {name: round(value, 3) for name, value in figures.items()}
        row = " ".join(f"{value:8.2f}" for value in figures.values())
        print(f"{family:20} {row}")
    for model, tp in (("Llama-3.1-8B", 1), ("Llama-3.1-70B", 4)):
        value = static_batch_ms(model, tp)
        results[f"static batch {model} tp{tp}, ms"] = round(value, 2)
        print(f"static batch {model} tp{tp}: {value:.2f} ms (budget {STATIC_BATCH_MS:.0f})")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
