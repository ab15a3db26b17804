"""Passes over memory that eager training makes beside those of the model's code.

Also what gradients of Triton's attention cost. Writes nothing: the files of engine ``fsdp`` and of
library ``triton`` quote it.

    python -m lab.fit_further_passes

MosaicML's steps on single servers in 16 bits, of the models that suite ``training-step`` does not
score (:func:`lab.scorecard.suites.training_step.is_fitted`). Least squares of relative errors of

    cost x gradients of attention at a cost of 1 + all else + share x further passes at a share of 1

where the cost is that of gradients of Triton's attention by the operations of its forward kernel
(``backward_cost`` of library ``triton``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lab.scorecard.suite import data_folder
from lab.scorecard.suites.training_step import is_fitted, on_servers
from silicast.core.numerics import F64
from silicast.scenario.answers.training.training_runs import prepared
from silicast.scenario.decode import decode
from silicast.scenario.workloads import TrainingWorkload
from silicast.workload.frameworks.model_code import FURTHER


def columns(scenario: Mapping[str, Any]) -> F64:
    """Seconds of gradients of attention, of all else, and of further passes at a share of 1."""
    decoded = decode(dict(scenario))
    assert isinstance(decoded.workload, TrainingWorkload)
    training = prepared(decoded, decoded.workload)
    framework = replace(training.rank.framework, further_passes=1.0)
    run = replace(training, rank=replace(training.rank, framework=framework)).run()
    gradients = further = 0.0
    for program_pass, often in run.weighted_passes:
        nodes = zip(program_pass.model.graph.nodes, program_pass.times.exposed_s[:, 0], strict=True)
        for node, seconds in nodes:
            share = often * run.batch.accumulation * float(seconds)
            gradients += share * (node.op.family == "attention_backward")
            further += share * (node.name == FURTHER)
    whole = run.step.part.exposed_ps * 1e-12
    return np.array([gradients, whole - gradients - further, further])


def main() -> None:
    """Prints the share, by device and of all."""
    table: dict[str, list[tuple[F64, float]]] = {}
    for case in on_servers(data_folder()):
        if is_fitted(case.scenario["model"]):
            row = columns(case.scenario), case.measured["step_time_s"]
            table.setdefault(case.labels["device"], []).append(row)
    everything = [row for rows in table.values() for row in rows]
    for name, rows in [*table.items(), ("all", everything)]:
        matrix = np.array([row / seconds for row, seconds in rows])
        (cost, share), *_ = np.linalg.lstsq(matrix[:, [0, 2]], 1.0 - matrix[:, 1], rcond=None)
        left = np.abs(matrix @ [cost, 1.0, share] - 1.0).mean()
        print(
            f"{name}: {len(rows)} rows, share {share:.2f}, cost {cost:.3f} of ours, APE {left:.3f}"
        )


if __name__ == "__main__":
    main()
