"""Host constants of engines and the error of composition, from measured rows.

    .venv/bin/python benchmarks/fit_composition.py

Host: ``serving/vidur_cpu_overheads`` (A100, vintage bf106186f8, the leanest of five): a straight
line over the batch size of the median time to prepare a step's inputs, with one and with four
devices, and of scheduling and output processing. Engine files quote these numbers.

Composition: ``neusight/model_e2e`` column ``opsum_gpu_vs_e2e_pct``: how far the sum of measured
kernels is from the measured model, over all traced configurations: what remains when every kernel
is known exactly. Writes ``catalog/physics/composition.json``.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow.parquet as pq

from silicast.core.catalog import CATALOG
from silicast.core.files import write_atomically
from silicast.kernels.physics import Physics, PhysicsCard
from silicast.validation.suite import data_folder

VINTAGE = "bf106186f8"
HOST_COLUMNS = ("schedule_median", "prepare_inputs_e2e_median", "process_model_outputs_median")
NORMAL_QUARTILE = 0.6745
EXPERTS_LOG_SD = 0.2
"""Judged, on the time of layers of experts in a model: how evenly tokens choose, which of several
kernels an engine picks, and what it overlaps with them is not known."""
STRUCTURE_LOG_SD = 0.25
"""Judged: a wrong number of key-value heads, or an MLP with or without a gate, is about as much."""


def host_line(rows: list[dict[str, float]], column: str) -> tuple[float, float]:
    """Least squares (constant, per request) in microseconds."""
    x = np.array([row["batch_size"] for row in rows], float)
    y = np.array([row[column] for row in rows], float) * 1e3
    slope, constant = np.polyfit(x, y, 1)
    return round(float(constant), 1), round(float(slope), 2)


def main() -> None:
    data = data_folder()
    rows = pq.read_table(data / "serving/vidur_cpu_overheads.parquet").to_pylist()
    rows = [row for row in rows if row["blob"] == VINTAGE and row["gpu"] == "A100"]
    for model, degree in (("meta-llama/Llama-2-7b-hf", 1), ("meta-llama/Llama-2-70b-hf", 4)):
        chosen = [
            row
            for row in rows
            if row["model_name"] == model and row["tensor_parallel_degree"] == degree
        ]
        for column in (
            "schedule_median",
            "prepare_inputs_e2e_median",
            "process_model_outputs_median",
        ):
            print(model, f"tp{degree}", column, host_line(chosen, column), "us, us/request")

    table = pq.read_table(data / "neusight/model_e2e.parquet")
    gap = np.array(
        [value for value in table["opsum_gpu_vs_e2e_pct"].to_pylist() if value is not None], float
    )
    median = float(np.median(np.abs(gap)))
    robust = median / 100.0 / NORMAL_QUARTILE
    print(f"composition: {len(gap)} configurations, median |gap| {median:.2f} %")
    physics = Physics(
        format=1,
        card=PhysicsCard(
            data=["neusight/model_e2e.parquet: opsum_gpu_vs_e2e_pct"],
            split="all traced configurations; a spread, not a correction: no time depends on it",
            command="benchmarks/fit_composition.py",
            date="2026-11-21",
            scores={
                "configurations": len(gap),
                "median_abs_gap_pct": median,
            },
            notes="step_log_sd: independent log sd of a step beyond its kernels' errors; "
            "structure_log_sd: judged, of a model whose structure was assumed; experts_log_sd: "
            "judged, of the time of layers of experts in a model",
        ),
        default={
            "step_log_sd": round(robust, 4),
            "structure_log_sd": STRUCTURE_LOG_SD,
            "experts_log_sd": EXPERTS_LOG_SD,
        },
        architectures={},
    )
    path = CATALOG / "physics" / "composition.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(physics), indent=2) + b"\n")
    print(path.name, physics.default)


if __name__ == "__main__":
    main()
