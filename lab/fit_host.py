"""Host constants of engines, from measured rows; writes nothing, engine files quote what it prints.

    python -m lab.fit_host [served]

``serving/vidur_cpu_overheads`` (A100, vintage bf106186f8, the leanest of five): straight lines over
the batch size of the median time of each part of a step, with one and with four devices. vLLM 0
does all parts one after the other; since version 1 outputs are processed in another process.

``served``: steps of vLLM 0.4 behind its API, from the train models of suite ``mlenergy`` (sequences
that run over output tokens a second): what they take beyond the closed form without a server, as
stages x (constant + rank x (devices of a stage - 1)) + request x sequences, by least squares of
relative errors: with pipeline stages as many steps take turns, which share the sequences.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from lab.scorecard.suite import data_folder
from lab.scorecard.suites.mlenergy import ENGINE_VERSION, case_of, runs
from lab.scorecard.tables import read_records
from silicast.composition.passes.closed_loop import closed_loop
from silicast.scenario.answers.inference.answerer import batch_deployment
from silicast.scenario.decode import decode

VINTAGE = "bf106186f8"
PARTS = {
    "scheduling": "schedule_median",
    "preparing inputs": "prepare_inputs_e2e_median",
    "processing outputs": "process_model_outputs_median",
    "sampling": "sampler_launch_median",
}
MODELS = (("meta-llama/Llama-2-7b-hf", 1), ("meta-llama/Llama-2-70b-hf", 4))


def line(rows: list[dict[str, float]], columns: list[str]) -> tuple[float, float]:
    """Least squares (constant, per request) of a sum of columns, microseconds."""
    x = np.array([row["batch_size"] for row in rows], float)
    y = np.array([sum(row[column] for column in columns) for row in rows], float) * 1e3
    slope, constant = np.polyfit(x, y, 1)
    return round(float(constant), 1), round(float(slope), 2)


def served() -> None:
    """Prints the constants of a server, and the errors of steps on the models of either split."""
    entries = {}
    for split in ("train", "test"):
        rows = [_beyond(run) for run in runs(data_folder(), split)]
        entries[split] = np.array(rows)
    measured, modelled, *times = entries["train"].T
    columns = np.stack(times, axis=1)
    weights = (1.0 / measured)[:, None]
    constants, *_ = np.linalg.lstsq(columns * weights, (measured - modelled) / measured, rcond=None)
    print("microseconds: constant, rank, request", np.round(constants, 1))
    for split, table in entries.items():
        measured, modelled, *times = table.T
        columns = np.stack(times, axis=1)
        errors = (modelled + columns @ constants) / measured - 1.0
        print(f"{split}: {len(errors)} rows, APE {100 * np.abs(errors).mean():.1f} %,", end=" ")
        print(f"bias {100 * errors.mean():.1f} %")


def _beyond(run: dict[str, Any]) -> tuple[float, float, int, int, int]:
    """Of a run: microseconds in which every sequence gets a token, measured and by the closed form;
    and what the constants are multiplied with.
    """
    work = case_of(run).scenario
    sequences, output = max(round(run["avg_batch"]), 1), max(round(run["avg_output_tokens"]), 2)
    prompt = work["workload"]["input_len"]
    deployment, _, _ = batch_deployment(
        decode(
            {
                **{name: work[name] for name in ("device", "model", "parallel")},
                "task": "inference",
                "engine": {"name": "vllm-v0", "version": ENGINE_VERSION},
                "workload": {"batch": 1, "input_len": prompt, "output_len": output},
            }
        )
    )
    loop = closed_loop(deployment, sequences, prompt, output)
    measured = run["avg_batch"] / run["output_tokens_per_s"]
    modelled = sequences / loop.tokens_per_s.estimate
    stages, devices = int(run["pp"]), int(run["device_count"])
    return measured * 1e6, modelled * 1e6, stages, devices - stages, sequences


def main() -> None:
    """Prints all lines."""
    if sys.argv[1:] == ["served"]:
        served()
        return
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
