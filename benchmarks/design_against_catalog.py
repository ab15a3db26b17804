"""Products of random sizes on TPU v4 as an architecture file, against the catalog's model of it.

    python -m benchmarks.design_against_catalog   writes results/design_against_catalog.json

From warm and from cold caches; the file's weights held in the arrays, or the better operand. Of
products that main memory sets in the catalog's model, cold, apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from silicast.core.files import write_atomically
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import OpBatch, Variant

OUTPUT = Path(__file__).parent / "results" / "design_against_catalog.json"
FILE, CATALOG = "tpu-v4-nest", "TPU v4"
PRODUCTS, SEED = 60, 5


def sizes() -> tuple[I64, I64, I64]:
    """m from 1 to 8,192, n and k from 64 to 32,768, even in logs."""
    rng = np.random.default_rng(SEED)
    m, n, k = (
        np.exp(rng.uniform(np.log(least), np.log(most), PRODUCTS)).astype(np.int64)
        for least, most in ((1, 8192), (64, 32768), (64, 32768))
    )
    return m, n, k


def times(device: str, m: I64, n: I64, k: I64, cache: str) -> KernelTimes:
    """Products on a device."""
    result = find_device(device)
    model = implementation_for("gemm", result.execution_model)
    assert model is not None
    batch = OpBatch("gemm", Variant("bf16", cache=cache), {"m": m, "n": n, "k": k})
    return model.times(batch, result)


def apart(ours: F64, other: F64) -> dict[str, float]:
    """Mean and largest distance, percent."""
    off = np.abs(ours / other - 1.0) * 100.0
    return {"mean_pct": round(float(off.mean()), 1), "largest_pct": round(float(off.max()), 1)}


def main() -> None:
    m, n, k = sizes()
    stated = times(FILE, m, n, k, "warm").estimate_s
    better = np.minimum(stated, times(FILE, n, m, k, "warm").estimate_s)
    table: dict[str, Any] = {"products": PRODUCTS, "seed": SEED}
    for cache in ("warm", "cold"):
        other = times(CATALOG, m, n, k, cache)
        table[cache] = {
            "weights_held": apart(stated, other.estimate_s),
            "better_operand_held": apart(better, other.estimate_s),
        }
    needs = other.analysis.resource_s
    by_memory = np.asarray(needs["dram"]) > np.asarray(needs["tensor"])
    table["cold"]["set_by_main_memory"] = {
        "products": int(by_memory.sum()), **apart(stated[by_memory], other.estimate_s[by_memory]),
    }  # fmt: skip
    print(table)
    write_atomically(OUTPUT, msgspec.json.format(msgspec.json.encode(table)) + b"\n")


if __name__ == "__main__":
    main()
