"""Which kernels a scenario is made of, as tables that can be measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from silicast.composition.as_run import COLLECTIVES
from silicast.composition.deployment import busiest_group
from silicast.composition.node_rows import columns
from silicast.composition.node_times import Timer
from silicast.composition.states import BatchStates
from silicast.composition.static_batch import decode_knots
from silicast.composition.step import compiled
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.kernels.check import op_at
from silicast.learning.dispatch import time_of
from silicast.measurement.records import Columns
from silicast.scenario.answerer import not_yet
from silicast.scenario.answerers.graph import pass_of
from silicast.scenario.answerers.inference import deployment_of
from silicast.scenario.answerers.training import step_of
from silicast.scenario.decode import Scenario, load
from silicast.scenario.kernel_table_of import kernel_table_of
from silicast.scenario.program_answer import program_of
from silicast.scenario.resolve import device_of, evidence_of
from silicast.scenario.workloads import GraphWorkload, InferenceWorkload, TrainingWorkload
from silicast.workload.op import Dim, Op, OpBatch

KNOTS = 3
"""Decode steps that stand for all of them: the first, the middle and the last."""
TASKS = ("kernel", "inference", "graph", "training")


@final
@dataclass(frozen=True)
class UsedKernel:
    """A kernel that a scenario runs.

    Attributes:
        seconds: predicted, of all its executions; one: of one.
    """

    op: Op
    seconds: float
    one: float


def kernels_of_scenario(path: Path) -> list[Columns]:
    """Kernels of a scenario file as ``kernel`` tables, those that take most of its time first;
    collectives, and what no table can say, are left out.

    Raises:
        SilicastError: the file is no scenario, or one whose kernels are not told ("not_yet").
    """
    return [table for used in used_kernels(load(path)) if (table := table_of(used.op)) is not None]


def table_of(op: Op) -> Columns | None:
    """The table of an op, None if there is none that says it."""
    try:
        return kernel_table_of(op)
    except SilicastError:
        return None


def used_kernels(scenario: Scenario) -> list[UsedKernel]:
    """Kernels of a scenario and their predicted times, collectives among them; the longest first.

    Raises:
        SilicastError: a task without kernels of its own ("not_yet"), or whatever its answer raises.
    """
    ways = {
        "kernel": _kernel, "inference": _inference, "graph": _graph, "training": _training,
    }  # fmt: skip
    way = ways.get(scenario.raw.task)
    if way is None:
        raise not_yet(
            f"the kernels of task {scenario.raw.task}", "task", f"one of {', '.join(TASKS)}"
        )
    return _summed(way(scenario))


def _summed(found: Iterable[UsedKernel]) -> list[UsedKernel]:
    """Every kernel once."""
    known: dict[Op, UsedKernel] = {}
    for each in found:
        op = _plain(each.op)
        before = known.get(op)
        seconds = each.seconds + (0.0 if before is None else before.seconds)
        known[op] = UsedKernel(op, seconds, each.one)
    return sorted(known.values(), key=lambda used: -used.seconds)


def _plain(op: Op) -> Op:
    """Equal lengths as a batch of one length; caches as campaigns have them."""
    variant = op.variant if op.variant.cache != "between" else replace(op.variant, cache="")
    lists = [dim for _, dim in op.dims if isinstance(dim, tuple)]
    if not lists or any(len(set(each)) > 1 for each in lists):
        return replace(op, variant=variant)
    dims: dict[str, Dim] = {n: v[0] if isinstance(v, tuple) else v for n, v in op.dims}
    return Op.make(op.family, variant, **dims | {"batch": len(lists[0])})


def _kernel(scenario: Scenario) -> Iterator[UsedKernel]:
    assert scenario.kernel is not None
    device = device_of(scenario)
    found = time_of(scenario.kernel.op, device, evidence_of(scenario, device))
    yield UsedKernel(found.op, found.estimate_s, found.estimate_s)


def _inference(scenario: Scenario) -> Iterator[UsedKernel]:
    work = scenario.workload
    assert isinstance(work, InferenceWorkload)
    deployment, _ = deployment_of(scenario)
    lengths = work.input_lens or [work.input_len or 1] * (work.batch or 1)
    own = busiest_group(lengths, deployment.plan.attention_dp)
    every, _ = decode_knots(work.output_len - 1)
    knots = every[[0, len(every) // 2, len(every) - 1]]
    decoded = np.full(KNOTS, (work.output_len - 1) / KNOTS)
    if deployment.model.encoder is not None:
        states = BatchStates.encoded(own, knots)
    else:
        states = BatchStates.prefill(own, sum(lengths) - sum(own))
        if deployment.model.causal and work.output_len > 1:
            states = states.then(BatchStates.decode(own, knots))
    weights = np.concatenate(([1.0], decoded))[: len(states)]
    model = compiled(deployment)
    yield from _of_nodes(model.timer, states, model.steps(states).nodes.time_s, weights)


def _graph(scenario: Scenario) -> Iterator[UsedKernel]:
    work = scenario.workload
    assert isinstance(work, GraphWorkload)
    if work.graph is not None:
        program = program_of(scenario)
        nodes, timer = program.times.nodes, program.program.timer
        yield from _of_nodes(timer, program.program.states, nodes.time_s, np.ones(1))
        return
    found, _, _ = pass_of(scenario, work)
    for half in found.halves:
        yield from _of_nodes(half.model.timer, half.states, half.times.nodes.time_s, np.ones(1))


def _training(scenario: Scenario) -> Iterator[UsedKernel]:
    """Of the passes; the update is one kernel that no other is like."""
    work = scenario.workload
    assert isinstance(work, TrainingWorkload)
    found, _, batch, _ = step_of(scenario)
    times = np.full(1, float(batch.accumulation))
    for half in found.micro.halves:
        yield from _of_nodes(half.model.timer, half.states, half.times.nodes.time_s, times)


def _of_nodes(timer: Timer, states: BatchStates, time_s: F64, weights: F64) -> Iterator[UsedKernel]:
    """Kernels of all nodes.

    Args:
        time_s: of one execution, shape (nodes, states); weights: how often each state runs.
    """
    for key, members, rows in timer.calls(states):
        batch = timer.lengthy(members, states, rows)
        if batch is None:
            ops = [timer.placed[index].op for index in members]
            if any(isinstance(dim, tuple) for _, dim in ops[0].dims):
                batch = OpBatch.of([op for op in ops for _ in range(len(rows))])
            else:
                sizes = columns(ops, timer.symbols(states, rows), len(rows))
                batch = OpBatch(key.family, key.variant, sizes)
        for number, index in enumerate(members):
            for place, row in enumerate(rows.tolist()):
                one = float(time_s[index, row])
                count = timer.placed[index].count * float(weights[row])
                if one > 0.0 and count > 0.0:
                    op = op_at(batch, number * len(rows) + place)
                    yield UsedKernel(op, one * count, one)


def is_collective(op: Op) -> bool:
    """Whether it is an exchange between devices."""
    return op.family in COLLECTIVES
