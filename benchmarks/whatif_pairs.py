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
Writes benchmarks/results/whatif_pairs.json.
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
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.formats.tables import open_table
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.learning.dispatch import time_of
from silicast.workload.graphs.graph import Graph

OUT = Path(__file__).parent / "results" / "whatif_pairs.json"
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
    fitting.write(OUT, table)


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
    one, other = find_device(source["device"]), find_device(target["device"])
    known = before_bound = after_bound = scaled = 0.0
    seen: set[str] = set()
    for block in graph.blocks:
        if block.direction != "forward":
            continue
        for node in block.nodes:
            name = node.name.partition("#")[0]
            before, after = time_of(node.op, one), time_of(node.op, other)
            before_bound += block.count * before.bound_s
            after_bound += block.count * after.bound_s
            if name in labels and name not in seen:
                seen.add(name)
                known += block.count * labels[name]
                scaled += block.count * labels[name] * after.estimate_s / before.estimate_s
    return {
        "config": source["config"],
        "traced": source["device"],
        "device": target["device"],
        "measured": target["meas_e2e_ms"],
        "known_over_pass": known / source["meas_e2e_ms"],
        "whatif": source["meas_e2e_ms"] * scaled / known,
        "prediction": predicted_ms(graph, other),
        "roofline_ratio": source["meas_e2e_ms"] * after_bound / before_bound,
    }


def predicted_ms(graph: Graph, device: Device) -> float:
    """The same pass without a trace, eager PyTorch."""
    forward = tuple(block for block in graph.blocks if block.direction == "forward")
    machine = Machine(device, find_engine("torch-eager"))
    return predict_program(machine, replace(graph, blocks=forward)).total.seconds * 1e3


if __name__ == "__main__":
    main()
