"""Whether what was learned of one board of an architecture helps on another board of it.

    .venv/bin/python -m benchmarks.corrections_of_other_boards [OUT.json]

Linear layers that others measured on boards of which no correction was learned, in a format whose
correction rests on other boards: each priced with the correction, and by the analytic model alone.
Nothing is fitted. The tables are those of Vidur (A30) and LLMServingSim (RTX 4090, whole layers).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.suite import data_folder
from lab.scorecard.tables import read_records
from silicast.composition.prices.kept_times import times_of
from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.learning.artefact import load_artefact
from silicast.learning.tiers import Evidence
from silicast.workload.graphs.op import OpBatch, Variant

VIDUR = "serving/vidur_linear_ops.parquet"
LAYERS = "serving/llmservingsim_profile_dense.parquet"
FORMAT = "bf16"
SIZES = {
    "qkv_proj": (6144, 4096),
    "o_proj": (4096, 4096),
    "gate_up_proj": (28672, 4096),
    "down_proj": (4096, 14336),
}
"""Columns and inner size of the products of Llama-3.1-8B."""


@dataclass(frozen=True)
class Products:
    """Measured products of a board: rows, columns, inner size and microseconds, shape (n,)."""

    board: str
    library: str
    m: Any
    n: Any
    k: Any
    us: Any


def vidur(data: Path, board: str) -> Products:
    """Products of one MLP whose shape the table states, of ranks that share them."""
    rows = read_records(data / VIDUR, gpu=board)
    samples = list[tuple[int, int, int, float]]()
    for row in rows:
        tp, hidden, width = (
            row[name] for name in ("num_tensor_parallel_workers", "n_embd", "n_expanded_embd")
        )
        sizes = {
            "mlp_up_proj": ((1 + row["use_gated_mlp"]) * width // tp, hidden),
            "mlp_down_proj": (hidden, width // tp),
        }.get(row["op"])
        if sizes and not row["suspect"]:
            samples.append((row["num_tokens"], *sizes, row["median_ms"] * 1e3))
    return Products(board, "", *np.array(samples).T)


def layers(data: Path, board: str) -> Products:
    """Products of a model's layers."""
    rows = [row for row in read_records(data / LAYERS, hardware=board) if row["layer"] in SIZES]
    samples = [(row["tokens"], *SIZES[row["layer"]], row["time_us"]) for row in rows]
    return Products("RTX 4090", "", *np.array(samples).T)


def off(products: Products) -> Iterator[tuple[str, dict[str, float]]]:
    """Mean error and bias in percent, by rows of the product."""
    device = find_device(products.board)
    model = implementation_for("gemm", device.execution_model)
    assert model is not None
    sizes = {name: getattr(products, name).astype(np.int64) for name in ("m", "n", "k")}
    variant = Variant(FORMAT, products.library, cache="cold", launch="graph")
    batch = OpBatch("gemm", variant, {**sizes, "batch": np.ones(len(sizes["m"]), dtype=np.int64)})
    ratios = {
        name: times_of(model, batch, device, Evidence(learned=learned)).estimate_s * 1e6
        for name, learned in (("with correction", True), ("analytic", False))
    }
    bands = {"1 to 64 rows": (1, 64), "65 to 512": (65, 512), "more": (513, 1 << 30)}
    for band, (least, most) in {**bands, "all": (1, 1 << 30)}.items():
        rows = (sizes["m"] >= least) & (sizes["m"] <= most)
        if rows.any():
            table: dict[str, float] = {"rows": int(rows.sum())}
            for name, us in ratios.items():
                errors = us[rows] / products.us[rows] - 1.0
                table[f"{name}, mean off %"] = round(100.0 * float(np.abs(errors).mean()), 1)
                table[f"{name}, bias %"] = round(100.0 * float(errors.mean()), 1)
            yield band, table


def main() -> None:
    """Scores both boards and prints or writes the result."""
    data, artefact = data_folder(), load_artefact("gemm")
    assert artefact is not None
    result = dict[str, Any]()
    for products in (vidur(data, "A30"), layers(data, "RTX4090")):
        trained = artefact.find(find_device(products.board).architecture, FORMAT)
        assert trained is not None
        learned_of = list(trained.devices)
        assert products.board not in learned_of
        result[products.board] = {"correction of": learned_of, **dict(off(products))}
    text = json.dumps(result, indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
