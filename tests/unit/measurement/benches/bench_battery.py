"""Tests that every bench must pass.

    from tests.unit.measurement.benches.bench_battery import check_bench
    check_bench(MyBench(), machine)

They draw kernels from the bench's ranges and check the contract of
:class:`~silicast.measurement.benches.bench.Bench`: tables that scenarios accept, settled sizes,
counted memory, repeatable calls, and that a trace of the timed call gives the op of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from silicast.measurement.benches.bench import Bench
from silicast.measurement.benches.operands import tensors_of
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import Op, identity

DRAWS = 40
RUN = 6
RUN_BYTES = 1 << 24
"""Largest kernels that are run, in bytes."""
SLACK = 1.05


def check_bench(
    bench: Bench, machine: MeasuredMachine, *, draws: int = DRAWS, seed: int = 0
) -> int:
    """Runs all tests; returns the number of kernels that ran.

    Args:
        draws: kernels whose tables are checked; seed: of the draws.

    Raises:
        AssertionError: with the kernel and what is wrong.
    """
    ran = 0
    for kernel in drawn_kernels(bench, machine, draws, seed):
        _check_table(bench, kernel, machine)
        tiny = bench.tiny(kernel)
        _require(not bench.why_not_measured(tiny, machine), "its tiny kernel is not measured", tiny)
        needed = bench.bytes_needed(kernel)
        _require(type(needed) is int and needed > 0, f"bytes_needed = {needed!r}", kernel)
        if ran < RUN and needed <= RUN_BYTES and not bench.why_unsupported(kernel, machine):
            _check_call(bench, kernel, machine)
            ran += 1
    tiny = bench.tiny(next(drawn_kernels(bench, machine, 1, seed)))
    if not ran and not bench.why_unsupported(tiny, machine):
        _check_call(bench, tiny, machine)
        ran = 1
    return ran


def drawn_kernels(bench: Bench, machine: MeasuredMachine, count: int, seed: int = 0) -> Any:
    """Random kernels of a bench's ranges."""
    ranges, rng = bench.ranges(machine), np.random.default_rng(seed)
    for _ in range(count):
        drawn: dict[str, object] = {
            name: math.exp(rng.uniform(math.log(max(size.low, 1)), math.log(max(size.high, 1))))
            for name, size in ranges.sizes.items()
        }
        for name, values in ranges.choices.items():
            drawn[name] = values[int(rng.integers(len(values)))]
        yield ranges.kernel(drawn)


def _check_table(bench: Bench, kernel: Columns, machine: MeasuredMachine) -> None:
    _require(kernel.get("op") == bench.op, "another op", kernel)
    _require(not any(name.startswith("_") for name in kernel), "has a private column", kernel)
    again = bench.ranges(machine).settle(dict(kernel))
    _require(again == kernel, f"settles differently the second time: {again}", kernel)
    _require(kernel_case(kernel).op.family == bench.op, "is another family", kernel)
    same = [bench.ranges(machine).kernel(_smallest(bench, machine)) for _ in range(2)]
    _require(same[0] == same[1], "ranges differ from call to call", kernel)


def _smallest(bench: Bench, machine: MeasuredMachine) -> Mapping[str, object]:
    ranges = bench.ranges(machine)
    sizes: dict[str, object] = {name: size.low for name, size in ranges.sizes.items()}
    return sizes | {name: values[0] for name, values in ranges.choices.items()}


def _check_call(bench: Bench, kernel: Columns, machine: MeasuredMachine) -> None:
    """The call runs twice with finite results, in separate memory, within the counted bytes."""
    import torch

    from silicast.measurement.sweeps.runtime import runtime_of

    runtime = runtime_of(machine)
    with runtime.ready(), bench.context(kernel, machine):
        operands = bench.operands(kernel, machine)
        tensors = list(tensors_of(operands))
        _require(bool(tensors), "has no tensors", kernel)
        touched = bench.bytes_touched(kernel, operands)
        plausible = 0 < touched <= sum(each.nbytes for each in tensors)
        _require(plausible, f"bytes_touched = {touched}", kernel)
        function = bench.function(kernel)
        results = list(tensors_of(function(*operands)))
        for result in results:
            whole = not result.is_floating_point() or bool(torch.isfinite(result.float()).all())
            _require(whole, "its result is not finite", kernel)
        repeated = list(tensors_of(function(*operands)))
        for one, other in zip(results, repeated, strict=True):
            _require(one.shape == other.shape, "its result changes shape", kernel)
            finite = not other.is_floating_point() or bool(torch.isfinite(other.float()).all())
            _require(finite, "is not finite when it is called again", kernel)
        table = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in tensors}
        fresh = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in results}
        stored = sum(storage.nbytes() for storage in (table | fresh).values())
        counted = bench.bytes_needed(kernel)
        _require(
            stored <= SLACK * counted, f"stores {stored} bytes, bytes_needed = {counted}", kernel
        )
        others = tensors_of(bench.operands(kernel, machine))
        shared = table.keys() & {each.untyped_storage().data_ptr() for each in others}
        _require(not shared, "two sets of operands share memory", kernel)
        numbers = [each for each in tensors if each.is_floating_point() and each.numel() > 64]
        plain = all(float(each.float().std()) > 0.0 for each in numbers)
        _require(plain, "an operand holds one number only", kernel)
    runtime.synchronize()
    if bench.traced:
        _check_trace(bench, kernel, machine)


def _check_trace(bench: Bench, kernel: Columns, machine: MeasuredMachine) -> None:
    """The front end for PyTorch programs gives the op of the table, and nothing else."""
    ops = traced_ops(bench, kernel, machine)
    names = [op.family for op in ops]
    _require(len(ops) == 1, f"a traced program has {names or 'nothing'} for it", kernel)
    meant, result = (identity(op)[:-1] for op in (kernel_case(kernel).op, ops[0]))
    _require(meant == result, f"a traced program calls it {result}, the table {meant}", kernel)


def traced_ops(bench: Bench, kernel: Columns, machine: MeasuredMachine) -> list[Op]:
    """The ops of a traced program that makes the call of a bench."""
    import torch

    from silicast.workload.front_ends import graph_of

    operands, function = bench.operands(kernel, machine), bench.function(kernel)
    tensors = [each for each in operands if isinstance(each, torch.Tensor)]

    class CallModule(torch.nn.Module):  # type: ignore[misc]
        """The call, as a program of its tensors."""

        def forward(self, *given: Any) -> Any:
            left = iter(given)
            return function(
                *(next(left) if isinstance(each, torch.Tensor) else each for each in operands)
            )

    dtype = "tf32" if kernel.get("dtype") == "tf32" else None
    graph = graph_of(CallModule(), tensors, dtype=dtype)
    return [node.op for _, node in graph.nodes()]


def _require(ok: bool, message: str, kernel: Columns) -> None:
    if not ok:
        shown = cast("dict[str, object]", kernel)
        raise AssertionError(f"{message}: {shown}")
