"""Kernels of a scenario, as tables that can be measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.passes.static_batch import batch_steps, decode_knots
from silicast.composition.step.node_times import columns
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.kernels.check import op_at
from silicast.learning.dispatch import time_of
from silicast.measurement.records.records import Columns
from silicast.scenario.answerer import not_yet
from silicast.scenario.answers.graph.answerer import pass_of
from silicast.scenario.answers.inference.answerer import batch_deployment, cached_of, lengths_of
from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.decode import Scenario, load
from silicast.scenario.kernels.kernel_table_of import kernel_table_of
from silicast.scenario.resolve import device_of, evidence_of
from silicast.scenario.workloads import InferenceWorkload, TrainingWorkload
from silicast.workload.graphs.op import Dim, Op, OpBatch

KNOTS = 3
"""Decode steps that represent all: the first, the middle and the last."""
TASKS = ("kernel", "inference", "graph", "training")


@final
@dataclass(frozen=True)
class UsedKernel:
    """A kernel that a scenario runs.

    Attributes:
        seconds: predicted, of all its executions; one: of a single one.
    """

    op: Op
    seconds: float
    one: float


def kernels_of_scenario(path: Path) -> list[Columns]:
    """Kernels of a scenario file as ``kernel`` tables, the longest first; without collectives and
    kernels that no table describes.

    Raises:
        SilicastError: the file is no scenario, or its task has no kernels ("not_yet").
    """
    return [table for used in used_kernels(load(path)) if (table := table_of(used.op)) is not None]


def table_of(op: Op) -> Columns | None:
    """The table of an op, None if none describes it."""
    try:
        return kernel_table_of(op)
    except SilicastError:
        return None


def used_kernels(scenario: Scenario) -> list[UsedKernel]:
    """Kernels of a scenario, including collectives, and their predicted times, the longest first.

    Raises:
        SilicastError: a task without kernels of its own ("not_yet"), or whatever its answer raises.
    """
    readers = {"kernel": _kernel, "inference": _inference, "graph": _graph, "training": _training}
    reader = readers.get(scenario.raw.task)
    if reader is None:
        raise not_yet(
            f"the kernels of task {scenario.raw.task}", "task", f"one of {', '.join(TASKS)}"
        )
    return _summed(reader(scenario))


def _summed(result: Iterable[UsedKernel]) -> list[UsedKernel]:
    """Every kernel once, with the time of all its executions."""
    by_op: dict[Op, UsedKernel] = {}
    for each in result:
        op = _plain(each.op)
        before = by_op.get(op)
        seconds = each.seconds + (0.0 if before is None else before.seconds)
        by_op[op] = UsedKernel(op, seconds, each.one)
    return sorted(by_op.values(), key=lambda used: -used.seconds)


def _plain(op: Op) -> Op:
    """The op with equal lengths as a batch, and a cache state that can be measured."""
    variant = op.variant if op.variant.cache != "between" else replace(op.variant, cache="")
    lists = [dim for _, dim in op.dims if isinstance(dim, tuple)]
    if not lists or any(len(set(each)) > 1 for each in lists):
        return replace(op, variant=variant)
    dims: dict[str, Dim] = {n: v[0] if isinstance(v, tuple) else v for n, v in op.dims}
    return Op.make(op.family, variant, **dims | {"batch": len(lists[0])})


def _kernel(scenario: Scenario) -> Iterator[UsedKernel]:
    assert scenario.kernel is not None
    device = device_of(scenario)
    time = time_of(scenario.kernel.op, device, evidence_of(scenario, device))
    yield UsedKernel(time.op, time.estimate_s, time.estimate_s)


def _inference(scenario: Scenario) -> Iterator[UsedKernel]:
    work = scenario.workload
    assert isinstance(work, InferenceWorkload)
    deployment, framework, _ = batch_deployment(scenario)
    cached = cached_of(work, deployment.model, framework)
    prefill, decode = batch_steps(deployment, lengths_of(work), work.output_len, framework, cached)
    first = prefill.states.chosen(prefill.rows)
    yield from _of_steps(prefill.model, first, np.ones(1))
    if work.output_len > 1 and len(decode.rows):
        every, _ = decode_knots(work.output_len - 1)
        rows = decode.rows[[0, len(every) // 2, len(every) - 1]]
        decoded = np.full(KNOTS, (work.output_len - 1) / KNOTS)
        yield from _of_steps(decode.model, decode.states.chosen(rows), decoded)


def _graph(scenario: Scenario) -> Iterator[UsedKernel]:
    result = pass_of(scenario).program
    yield from _of_steps(result.model, result.states, np.ones(1))


def _training(scenario: Scenario) -> Iterator[UsedKernel]:
    """Kernels of the passes; not the optimizer."""
    work = scenario.workload
    assert isinstance(work, TrainingWorkload)
    result = run_of(scenario)
    for each, often in result.weighted_passes:
        times = np.full(1, often * result.batch.accumulation)
        yield from _of_steps(each.model, each.states, times)


def _of_steps(model: StepModel, states: BatchStates, weights: F64) -> Iterator[UsedKernel]:
    """Kernels of all nodes; ``weights``: how often each state runs."""
    timer, time_s = model.timer, model.steps(states).nodes.time_s
    symbols = timer.symbols(states)
    for key, members, rows in timer.calls(states):
        batch = timer.lengthy(members, states, rows)
        if batch is None:
            ops = [timer.nodes[index].op for index in members]
            if any(isinstance(dim, tuple) for _, dim in ops[0].dims):
                batch = OpBatch.from_ops([op for op in ops for _ in range(len(rows))])
            else:
                table = {name: values[rows] for name, values in symbols.items()}
                batch = OpBatch(key.family, key.variant, columns(ops, table, len(rows)))
        batch = batch.arrays()
        for number, index in enumerate(members):
            for position, row in enumerate(rows.tolist()):
                seconds = float(time_s[index, row])
                count = timer.nodes[index].count * float(weights[row])
                if seconds > 0.0 and count > 0.0:
                    op = op_at(batch, number * len(rows) + position)
                    yield UsedKernel(op, seconds * count, seconds)


def is_collective(op: Op) -> bool:
    """Whether an op is a collective."""
    return op.family in COLLECTIVES
