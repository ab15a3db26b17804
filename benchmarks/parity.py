"""The same graph through every entry point gives the same bits.

    .venv/bin/python benchmarks/parity.py [OUT.json]

For each model and way of execution: the task ``graph`` by the model's name; the same graph written
to an op-graph file and read again; the program composed directly; and the end of its timeline.
Exit status 1 if two of them differ.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import predict_program
from silicast.composition.timeline.trace_events import trace_program
from silicast.hardware.catalog import find_device
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op_graph import write_op_graph
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training
from silicast.workload.transformers.decoder import build_graph

DEVICE = "A100-SXM-80GB"
BATCH, TOKENS = 4, 256
MODELS = (
    "gpt2", "gpt2_large", "gpt3_xl", "BERT-Large", "OPT-1.3B", "BLOOM-3B", "T5-Base", "switchxl4",
    "Whisper-Small", "Llama-2-7B", "Llama-3.1-8B", "Llama-2-70B", "Qwen3-8B", "Qwen2.5-7B",
    "Mistral-7B-v0.1", "Phi-4", "Falcon-7B", "Mixtral-8x7B", "Qwen3-30B-A3B", "OLMoE-1B-7B",
)  # fmt: skip
WAYS: dict[str, tuple[str, dict[str, Any], str]] = {
    "eager": ("torch-eager", {}, "inference"),
    "compiled": ("torch-compile", {}, "inference"),
    "captured": ("torch-eager", {"cuda_graph": "full"}, "inference"),
    "training": ("torch-eager", {}, "training"),
}


def unique_names(graph: Graph) -> Graph:
    """The graph with names that are unique in the whole of it, as files want them."""
    blocks = []
    for number, block in enumerate(graph.blocks):
        names = {node.name: f"{number}.{node.name}" for node in block.nodes}
        nodes = (
            replace(node, name=names[node.name], inputs=tuple(names.get(n, n) for n in node.inputs))
            for node in block.nodes
        )
        distinct = [
            replace(node, inputs=tuple(n for n in node.inputs if n in names.values()))
            for node in nodes
        ]
        blocks.append(replace(block, nodes=tuple(distinct), layers=(), times=block.count))
    return replace(graph, blocks=tuple(blocks))


def lowered(deployment: Deployment, mode: str) -> Graph:
    """The model as eager code runs it; a compiler fuses what the file says."""
    framework = Framework(training=Training() if mode == "training" else None)
    graph = build_graph(deployment.model, deployment.plan, deployment.precision, deployment.policy)
    shape = PassShape(BATCH, TOKENS)
    return framework_graph(graph, deployment.model, shape, framework, deployment.precision.hidden)


def picoseconds(scenario: dict[str, Any], folder: Path) -> int:
    """The pass that a scenario asks for."""
    result = run(decode({"device": DEVICE, "task": "graph", **scenario}, folder=folder))
    return round(result.metrics["e2e_ms"].estimate * 1e9)


def entry_points(model: str, way: str, folder: Path) -> dict[str, int]:
    """Entry point -> picoseconds of the pass."""
    name, options, mode = WAYS[way]
    engine = {"name": name, "options": options}
    by_name = {"mode": mode, "batch": BATCH, "seq_len": TOKENS}
    entry_points = {
        "name": picoseconds({"model": model, "engine": engine, "workload": by_name}, folder)
    }
    chosen = with_options(find_engine(name), options)
    deployment = Deployment.from_model(find_model(model), find_device(DEVICE), chosen)
    graph = lowered(deployment, mode)
    write_op_graph(unique_names(graph), folder / "graph.json")
    file = {"mode": mode, "graph": "graph.json"}
    entry_points["file"] = picoseconds({"engine": engine, "workload": file}, folder)
    if not chosen.compiles:
        program = predict_program(deployment.machine, graph)
        entry_points["program"] = program.total.part.exposed_ps
        entry_points["trace"] = trace_program(program).total_ps
    return entry_points


def main() -> int:
    results: dict[str, dict[str, Any]] = {}
    different = 0
    print(f"{'ms':18}" + "".join(f"{way:>12}" for way in WAYS))
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            results[model] = {}
            line = f"{model:18}"
            for way in WAYS:
                result = entry_points(model, way, Path(folder))
                results[model][way] = result
                same = len(set(result.values())) == 1
                different += not same
                line += f"{result['name'] / 1e9:11.3f}{' ' if same else '!'}"
            print(line, flush=True)
    print(f"{different} of {len(MODELS) * len(WAYS)} differ between entry points")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
