"""What inline error correction takes of the bandwidth of GDDR6 boards.

    .venv/bin/python benchmarks/fit_data_rate.py

Experts' products so small that only reading weights takes time (PipeWeave's fused-MoE rows, at
most one token an expert, 300 MB and more): the share of the datasheet bandwidth that a board
with correction on (A40, L20) reaches, over that of one with correction off (RTX 6000 Ada).
Writes ``catalog/physics/data_rate.json``.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq

from silicast.core.catalog import CATALOG
from silicast.core.files import write_atomically
from silicast.hardware.catalog import find_device
from silicast.kernels.physics import Physics, PhysicsCard
from silicast.validation.suite import data_folder

TABLE = "pipeweave/kernel_moe_w13.parquet"
LARGE_BYTES = 300e6


def share_of_datasheet(rows: list[dict[str, Any]], gpu: str) -> float:
    """Median share of the datasheet bandwidth over the rows of one device that only read."""
    bandwidth = find_device(gpu).dram.bandwidth_bytes_per_s
    shares = []
    for row in rows:
        experts = min(row["E"], row["M"] * row["topk"])
        read = experts * row["N"] * row["H"] * 2
        if row["gpu"] == gpu and row["M"] * row["topk"] <= row["E"] and read > LARGE_BYTES:
            shares.append(read / (row["latency_us"] * 1e-6) / bandwidth)
    return float(np.median(shares))


def main() -> None:
    rows = pq.read_table(data_folder() / TABLE).to_pylist()
    shares = {gpu: share_of_datasheet(rows, gpu) for gpu in ("A40", "L20", "RTX 6000 Ada")}
    print(shares)
    value = (shares["A40"] + shares["L20"]) / 2 / shares["RTX 6000 Ada"]
    physics = Physics(
        format=1,
        card=PhysicsCard(
            data=[TABLE],
            split="all rows of A40, L20 and RTX 6000 Ada with at most one token an expert",
            command="benchmarks/fit_data_rate.py",
            date="2026-11-21",
            scores={gpu: round(share, 4) for gpu, share in shares.items()},
            notes="units cancel: only the ratio of two boards' shares is used",
        ),
        default={"inline_ecc_share": round(value, 4)},
        architectures={},
    )
    path = CATALOG / "physics" / "data_rate.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(physics), indent=2) + b"\n")
    print(path.name, physics.default)


if __name__ == "__main__":
    main()
