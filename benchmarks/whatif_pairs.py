"""Traces of one GPU as predictions of another: NeuSight's operations of V100, P100 and A100.

    python -m benchmarks.whatif_pairs

``neusight/model_op_labels`` holds what each operation of a model (inference, fp32, eager) took on
a GPU, with one layer for all; ``neusight/model_e2e`` what the whole pass took. Every ordered
pair of two of the GPUs, for every model that was traced on both: measured operations times the
ratio of our kernel predictions for both, as `silicast whatif` scales a trace. The source timed its
operations one by one, and on A100 they add up to more than the pass: the pass that was measured on
the traced GPU is scaled by the ratio of the sums. Beside it the prediction without the trace, and
the measured pass times the ratio of rooflines. Nothing here is fitted. Kernels of these GPUs were
measured (``neusight/kernels_nvidia``), so that this is seen ground.

Four GPUs from one: the training pass of GPT-2 large with one sequence, traced on V100, as data,
tensor and pipeline parallel passes of four sequences on four A100-SXM4-40GB. Each operation is
scaled to its shard on A100, and the collectives of the parallel program are inserted at their
predicted exposed times. Writes benchmarks/results/whatif_pairs.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.scorecard.neusight_graph import read_neusight_graph
from lab.scorecard.suite import data_folder
from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.formats.tables import open_table
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.learning.dispatch import time_of
from silicast.workload.graphs.graph import Graph

OUT = Path(__file__).parent / "results" / "whatif_pairs.json"
FOUR = "NVIDIA_A100-SXM4-40GB"
ONE = ("Tesla_V100-PCIE-32GB", "gpt2_large-train-1024-1")
PARALLEL = (
    "gpt2_large-train-1024-4-dp4",
    "gpt2_large-train-1024-4-tp4",
    "gpt2_large-train-1024-4-pp4_1",
)
DEVICES = ("Tesla_V100-PCIE-32GB", "Tesla_P100-PCIE-16GB", "NVIDIA_A100-PCIE-40GB")
Labels = Mapping[str, float]


def main() -> None:
    """Prints and writes every pair and the mean errors."""
    folder = data_folder() / "neusight"
    passes = {
        (row["device"], row["config"]): row
        for row in open_table(folder / "model_e2e.parquet").records()
        if row["mode"] == "inf" and row["device"] in DEVICES and row["has_op_trace"]
    }
    labels: dict[tuple[str, str], dict[str, float]] = {}
    for row in open_table(folder / "model_op_labels.parquet").records():
        labels.setdefault((row["device"], row["config"]), {})[row["name"]] = row["fw_ms"]
    rows_of: dict[str, list[dict[str, Any]]] = {}
    for row in open_table(folder / "opgraphs.parquet").records():
        rows_of.setdefault(row["config"], []).append(row)
    rows = [
        scored(passes[source, config], passes[target, config], labels[source, config], graph)
        for config, graph in graphs(passes, rows_of)
        for source, target in permutations(DEVICES, 2)
        if (source, config) in passes and (target, config) in passes
    ]
    table: dict[str, Any] = {"rows": rows, "pairs": len(rows)}
    for name in ("whatif", "prediction", "roofline_ratio"):
        errors = np.array([row[name] / row["measured"] - 1.0 for row in rows])
        table[name] = {
            "mean_error_pct": float(100.0 * np.abs(errors).mean()),
            "worst_error_pct": float(100.0 * np.abs(errors).max()),
            "bias_pct": float(100.0 * errors.mean()),
        }
        print(f"{name}: {table[name]}")
    table["four_gpus"] = four_gpus(folder, rows_of)
    for row in table["four_gpus"]:
        print(row)
    fitting.write(OUT, table)


def four_gpus(folder: Path, rows_of: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Passes of four GPUs from the trace of one, ms."""
    device, config = ONE
    rows = {
        (r["device"], r["config"]): r for r in open_table(folder / "model_e2e.parquet").records()
    }
    source = rows[device, config]
    layers = int(source["num_layer"] or 0)
    labels: dict[tuple[str, str], float] = {}
    for row in open_table(folder / "model_op_labels.parquet").records():
        if (row["device"], row["config"]) == ONE:
            labels[row["name"], "forward"] = row["fw_ms"]
            labels[row["name"], "backward"] = row["bw_ms"] + row["acc_ms"]
    one_device = find_device(device)
    before = block_times(
        read_neusight_graph(rows_of[config], layers=layers, name=config), one_device
    )
    measured_ms = sum(count * labels[key] for key, (count, _) in before.items() if key in labels)
    results = []
    for option in PARALLEL:
        graph = read_neusight_graph(rows_of[option], layers=layers, name=option)
        other = find_device(FOUR)
        after = block_times(graph, other)
        scaled = sum(
            count * labels[key] * seconds / before[key][1]
            for key, (count, seconds) in after.items()
            if labels.get(key) and key in before and before[key][1]
        )
        machine = Machine(other, find_engine("torch-eager"))
        program = predict_program(machine, graph)
        exposed = program.family_seconds()
        sent_ms = 1e3 * sum(exposed.get(name, 0.0) for name in ("all_reduce", "send_recv"))
        measured = rows[FOUR, option]["meas_e2e_ms"]
        whatif = source["meas_e2e_ms"] * scaled / measured_ms + sent_ms
        results.append(
            {
                "config": option,
                "measured": measured,
                "whatif": whatif,
                "collectives": sent_ms,
                "prediction": program.total.seconds * 1e3,
                "error_pct": 100.0 * (whatif / measured - 1.0),
                "neusight_error_pct": 100.0
                * (rows[FOUR, option]["neusight_e2e_ms"] / measured - 1),
            }
        )
    return results


def block_times(graph: Graph, device: Device) -> dict[tuple[str, str], tuple[int, float]]:
    """Of each traced operation and direction: how often it runs, and its kernels' time in s."""
    times: dict[tuple[str, str], tuple[int, float]] = {}
    for block in graph.blocks:
        for node in block.nodes:
            if node.op.family in COLLECTIVES:
                continue
            key = node.name.partition("#")[0], block.direction
            count, seconds = times.get(key, (block.count, 0.0))
            times[key] = count, seconds + time_of(node.op, device).estimate_s
    return times


def graphs(
    passes: Mapping[tuple[str, str], Mapping[str, Any]], rows_of: Mapping[str, list[dict[str, Any]]]
) -> Iterator[tuple[str, Graph]]:
    """Each configuration with its forward program."""
    for config in sorted({config for _, config in passes}):
        if config not in rows_of:
            continue
        layers = int(next(row["num_layer"] or 0 for (_, c), row in passes.items() if c == config))
        yield config, read_neusight_graph(rows_of[config], layers=layers, name=config)


def scored(
    source: Mapping[str, Any], target: Mapping[str, Any], labels: Labels, graph: Graph
) -> dict[str, Any]:
    """Times of a pass on the target, ms: measured, and by three ways."""
    source_device, target_device = find_device(source["device"]), find_device(target["device"])
    measured_ms = before_bound = after_bound = scaled = 0.0
    seen: set[str] = set()
    for block in graph.blocks:
        if block.direction != "forward":
            continue
        for node in block.nodes:
            name = node.name.partition("#")[0]
            before, after = time_of(node.op, source_device), time_of(node.op, target_device)
            before_bound += block.count * before.bound_s
            after_bound += block.count * after.bound_s
            if name in labels and name not in seen:
                seen.add(name)
                measured_ms += block.count * labels[name]
                scaled += block.count * labels[name] * after.estimate_s / before.estimate_s
    return {
        "config": source["config"],
        "traced": source["device"],
        "device": target["device"],
        "measured": target["meas_e2e_ms"],
        "known_over_pass": measured_ms / source["meas_e2e_ms"],
        "whatif": source["meas_e2e_ms"] * scaled / measured_ms,
        "prediction": predicted_ms(graph, target_device),
        "roofline_ratio": source["meas_e2e_ms"] * after_bound / before_bound,
    }


def predicted_ms(graph: Graph, device: Device) -> float:
    """The same pass without a trace, eager PyTorch."""
    forward = tuple(block for block in graph.blocks if block.direction == "forward")
    machine = Machine(device, find_engine("torch-eager"))
    return predict_program(machine, replace(graph, blocks=forward)).total.seconds * 1e3


if __name__ == "__main__":
    main()
