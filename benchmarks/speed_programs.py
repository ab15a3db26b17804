"""Processor time to predict many traced programs on one GPU, eager and compiled.

    python -m benchmarks.speed_programs DATA [OUTPUT.json]

The programs are those of the suite "vision" on an RTX 4090: one image model of each module of timm
at the batch of its row in DATA, the folder of measured tables. They are traced under automatic
mixed precision, which takes seconds a model and is not counted (``SILICAST_TRACES`` names a folder
that keeps traces). Needs PyTorch and timm. Each program is predicted once, with what earlier ones
left in caches, as somebody has it who compares many; fusing counts as part of "compiled".
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab.scorecard.image_models import program_of
from lab.scorecard.suites.vision import CAMPAIGNS, rows_of
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.graphs.graph import Graph

CAMPAIGN = CAMPAIGNS[0]
PROGRAMS = 1000


def seconds(predict: Callable[[Graph], object], graphs: list[Graph]) -> float:
    """Processor seconds for all of them."""
    start = time.process_time()
    for graph in graphs:
        predict(graph)
    return time.process_time() - start


def figures(graphs: list[Graph]) -> dict[str, float]:
    """Seconds that :data:`PROGRAMS` take at the rate of these."""
    device = find_device(CAMPAIGN.device)
    eager, compiled = (Machine(device, find_engine(f"torch-{x}")) for x in ("eager", "compile"))
    scale = PROGRAMS / len(graphs)
    return {
        "programs": len(graphs),
        "mean_nodes": sum(len(list(graph.nodes())) for graph in graphs) / len(graphs),
        "eager_s": scale * seconds(lambda graph: predict_program(eager, graph), graphs),
        "compiled_s": scale
        * seconds(lambda graph: predict_program(compiled, fused_graph(graph)), graphs),
    }


def main(arguments: list[str]) -> None:
    """Prints or writes the figures."""
    graphs = [
        program_of(measured.run(CAMPAIGN)) for measured in rows_of(Path(arguments[0]), CAMPAIGN)
    ]
    text = json.dumps({"device": CAMPAIGN.device, "of": PROGRAMS, **figures(graphs)}, indent=2)
    if arguments[1:]:
        Path(arguments[1]).write_text(f"{text}\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
