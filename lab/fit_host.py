"""Host constants of engines, from measured rows; writes nothing, engine files quote what it prints.

    python -m lab.fit_host

``serving/vidur_cpu_overheads`` (A100, vintage bf106186f8, the leanest of five): straight lines over
the batch size of the median time of each part of a step, with one and with four devices. vLLM 0
does all parts one after the other; since version 1 outputs are processed in another process.
"""

from __future__ import annotations

import numpy as np

from silicast.validation.scorecard.suite import data_folder
from silicast.validation.scorecard.tables import read_records

VINTAGE = "bf106186f8"
PARTS = {
    "scheduling": "schedule_median", "preparing inputs": "prepare_inputs_e2e_median",
    "processing outputs": "process_model_outputs_median", "sampling": "sampler_launch_median",
}  # fmt: skip
MODELS = (("meta-llama/Llama-2-7b-hf", 1), ("meta-llama/Llama-2-70b-hf", 4))


def line(rows: list[dict[str, float]], columns: list[str]) -> tuple[float, float]:
    """Least squares (constant, per request) of a sum of columns, microseconds."""
    x = np.array([row["batch_size"] for row in rows], float)
    y = np.array([sum(row[column] for column in columns) for row in rows], float) * 1e3
    slope, constant = np.polyfit(x, y, 1)
    return round(float(constant), 1), round(float(slope), 2)


def main() -> None:
    """Prints all lines."""
    table = data_folder() / "serving/vidur_cpu_overheads.parquet"
    rows = read_records(table, blob=VINTAGE, gpu="A100")
    for model, degree in MODELS:
        chosen = [
            row
            for row in rows
            if (row["model_name"], row["tensor_parallel_degree"]) == (model, degree)
        ]
        print(f"{model} tp{degree}, microseconds a step and a request:")
        for name, column in PARTS.items():
            print(f"  {name:<20}", *line(chosen, [column]))
        every = list(PARTS.values())
        print(f"  {'vllm 0: all':<20}", *line(chosen, every))
        print(f"  {'vllm 1: first two':<20}", *line(chosen, every[:2]))


if __name__ == "__main__":
    main()
