"""Prints the cost of one attention op alone, of 64 lengths, and of each of 100,000 in a batch.

Analytic tier and with learned corrections, in processor time.

OPENBLAS_NUM_THREADS=1 python benchmarks/speed_attention.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from silicast.hardware.catalog import find_device
from silicast.kernels.attention_decode import AttentionDecode
from silicast.kernels.attention_prefill import AttentionPrefill
from silicast.kernels.implementation import Implementation
from silicast.learning.tiers import Evidence, kernel_times
from silicast.workload.op import OpBatch, Variant

ROWS = 100_000


def best_of(runs: int, repeats: int, call: Callable[[], object]) -> float:
    """Seconds of processor time of one call: the best of some runs."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        for _ in range(repeats):
            call()
        found.append((time.process_time() - start) / repeats)
    return min(found)


def uniform(family: str, rows: int) -> OpBatch:
    """Random batches of equal sequences."""
    random = np.random.default_rng(0)
    past = random.integers(0, 30_000, rows)
    new = random.integers(1, 8_000, rows) if family == "attention_prefill" else np.ones_like(past)
    dims = {
        "batch": random.integers(1, 512, rows),
        "q_len": new,
        "kv_len": past + new,
        "num_heads": np.full(rows, 32),
        "num_kv_heads": np.full(rows, 8),
        "head_dim": np.full(rows, 128),
        "window": np.zeros_like(past),
    }
    return OpBatch(family, Variant("bf16", "bf16", "vllm", flags=(("causal", True),)), dims)


def ragged(family: str, sequences: int) -> OpBatch:
    """One op of sequences of different lengths."""
    kv = np.random.default_rng(1).integers(100, 8_000, sequences)
    new = np.maximum(kv // 4, 1) if family == "attention_prefill" else np.ones_like(kv)
    dims = {
        "q_len": new,
        "kv_len": kv,
        "num_heads": np.array([32]),
        "num_kv_heads": np.array([8]),
        "head_dim": np.array([128]),
        "window": np.array([0]),
    }
    variant = Variant("bf16", "bf16", "vllm", flags=(("causal", True),))
    offsets = np.array([0, sequences])
    return OpBatch(family, variant, dims, offsets, frozenset({"q_len", "kv_len"}))


def main() -> None:
    models: tuple[Implementation, ...] = (AttentionPrefill(), AttentionDecode())
    tiers = (("analytic", Evidence(learned=False)), ("learned", Evidence()))
    for model in models:
        for name in ("H100-SXM-80GB", "A100-SXM-80GB"):
            device = find_device(name)
            one, many = uniform(model.family, 1), uniform(model.family, ROWS)
            lengths = ragged(model.family, 64)
            for tier, evidence in tiers:
                alone = best_of(9, 200, partial(kernel_times, model, one, device, evidence))
                varied = best_of(9, 200, partial(kernel_times, model, lengths, device, evidence))
                batch = best_of(3, 1, partial(kernel_times, model, many, device, evidence))
                print(
                    f"{model.family:18s} {name:14s} {tier:9s} one {alone * 1e6:6.1f} us   "
                    f"64 lengths {varied * 1e6:6.1f} us   "
                    f"in {ROWS} {batch / ROWS * 1e6:6.3f} us a row"
                )


if __name__ == "__main__":
    main()
