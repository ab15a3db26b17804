"""Host constants of engines that train, from measured runs; writes nothing, engine files quote it.

    python -m lab.fit_training_host

Small runs of suite ``megatron-golden`` (the test cases whose name has an even SHA-256, which the
suite does not score) are bound by the host: their step is

    update + passes x (launch x calls + dispatch x launches within calls + collective x collectives)
        + stage x passes of chunks

times a factor of the host, where the numbers of calls, launches and collectives are those of
own graphs, and a pipeline's passes are stretched by its bubble; a launch within a call (products of
experts, over which a library loops) is that of the engine's file. Least squares of relative errors
with no constant below zero; factors of hosts are medians of what is left, by turns. Memory: medians
of what the allocator's peak has beyond our count where workspaces are wide, by architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lab.scorecard.model_suite import Case
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.megatron_golden import all_cases, answer, is_fitted
from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.decode import decode

NAMES = ("launch_us", "collective_us", "stage_us", "update_us")
TURNS = 8
REFERENCE = "H100"


def columns(case: Case) -> tuple[F64, float]:
    """What the constants are multiplied by, shape (4,), and what is known beforehand, seconds."""
    run = run_of(decode(dict(case.scenario)))
    plan, count = run.rank.plan, run.batch.accumulation
    chunks = plan.pp * plan.virtual_stages
    passes = [weighted for weighted, _ in run.weighted_passes]
    launches = inside = collectives = 0.0
    dispatch_us = run.rank.deployment.engine.host.dispatch_us
    for program_pass in passes:
        graph = program_pass.model.graph
        counts = np.array([node.count for node in graph.nodes], dtype=np.float64)
        calls = np.array([node.op.family in COLLECTIVES for node in graph.nodes])
        launches += float((counts * graph.calls).sum())
        inside += float((counts * (graph.launches - graph.calls)).sum())
        collectives += float(counts[calls].sum())
    share = count * chunks / len(passes) / plan.pp
    stretched = share * (1.0 + (plan.pp - 1) / (count * plan.virtual_stages))
    pipelined = count * plan.virtual_stages if plan.pp > 1 else 0.0
    known_s = inside * stretched * dispatch_us * 1e-6
    return np.array([launches * stretched, collectives * stretched, pipelined, 1.0]), known_s


def without_negatives(matrix: F64, wanted: F64) -> F64:
    """Least squares with no constant below zero."""
    held = list(range(matrix.shape[1]))
    while True:
        values, *_ = np.linalg.lstsq(matrix[:, held], wanted, rcond=None)
        if (values >= 0.0).all():
            break
        held = [name for name, value in zip(held, values, strict=True) if value >= 0.0]
    result = np.zeros(matrix.shape[1])
    result[held] = values
    return result


def fit(cases: list[Case]) -> tuple[F64, Mapping[str, float]]:
    """The constants in microseconds, and how much slower each device's host is."""
    counted = [columns(case) for case in cases]
    matrix = np.array([columns_of_case for columns_of_case, _ in counted]) * 1e-6
    known_s = np.array([seconds for _, seconds in counted])
    measured = np.array([case.measured["step_time_s"] for case in cases])
    devices = np.array([case.labels["device"] for case in cases])
    slower = dict.fromkeys(sorted(set(devices)), 1.0)
    for _ in range(TURNS):
        factor = np.array([slower[name] for name in devices])
        constants = without_negatives(
            matrix * (factor / measured)[:, None], 1.0 - known_s * factor / measured
        )
        residuals = np.log(measured / (matrix @ constants + known_s))
        medians = {name: float(np.median(residuals[devices == name])) for name in slower}
        slower = {name: float(np.exp(medians[name] - medians[REFERENCE])) for name in slower}
    return constants, slower


def beyond_count(cases: list[Case]) -> dict[str, float]:
    """Architecture -> median of the allocator's peak beyond our count without workspaces, MB."""
    table: dict[str, list[float]] = {}
    for case in cases:
        device = find_device(case.labels["device"])
        engine: dict[str, Any] = case.scenario["engine"]
        held = run_of(decode(dict(case.scenario))).rank.deployment.engine.memory.workspaces_mb
        peak = case.measured.get("memory_allocated_gb")
        options = engine["options"]
        wide = options["deterministic"] or options.get("wide_workspaces")
        if peak is not None and options["attention"] == "fused" and wide:
            counted = answer(case)["memory_allocated_gb"][0] * 1e3
            table.setdefault(device.architecture, []).append(
                peak * 1e3 - counted + held.get(device.architecture, 0.0)
            )
    return {name: float(np.median(values)) for name, values in sorted(table.items())}


def main() -> None:
    """Prints the constants."""
    cases = [case for case, name in all_cases(data_folder()) if is_fitted(name)]
    constants, slower = fit(cases)
    print(", ".join(f"{n} {v:.1f}" for n, v in zip(NAMES, constants, strict=True)))
    print("slower:", {name: round(value, 3) for name, value in slower.items()})
    print("workspaces, MB:", {name: round(value) for name, value in beyond_count(cases).items()})


if __name__ == "__main__":
    main()
