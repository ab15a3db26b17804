"""A sweep that chooses its kernels as it goes: see :mod:`.point_design` for the rule.

Kernels of one family and format form a group; errors of one group tell nothing about another. The
next kernel comes from the group in which a second of measuring removes most variance from a typical
kernel, times the group's weight; each group first gets enough rows to be interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.registry import implementation_for
from silicast.measurement.design.points import Cost, KernelPoints, PointChoice, PointDesign
from silicast.measurement.records.records import Columns
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import Op, Variant

FIRST_ROWS = 8
"""Rows of each group before its uncertainty counts: fewer give only an offset (``SOME_ROWS`` of
:mod:`silicast.learning.calibration_fit`)."""
REPEAT_EVERY = 20
"""One row in this many of a group repeats an earlier kernel."""
HOPELESS = 3
"""Failures of a variant that never succeeded after which it is given up."""
SETUP_S, REPEATS, MOST_S = 0.1, 30.0, 1.0
"""Usual cost of measuring a kernel: a fixed time and this many runs within this many seconds, but
at least three runs."""


def usual_cost(seconds: F64) -> F64:
    """Approximate seconds of measuring kernels.

    >>> usual_cost(np.array([1e-5, 1.0])).tolist()
    [0.1003, 3.1]
    """
    return SETUP_S + np.maximum(np.minimum(REPEATS * seconds, MOST_S), 3.0 * seconds)


@final
class MeasurementDesign:
    """Chooses what to measure next among candidates.

    Args:
        device: that is measured; candidates: ``kernel`` tables of any families and formats.
        seed: of random choices; equal results then give an equal sweep.
        weights: importance of a family, or of a family and format ("gemm bf16"); 1 for others.
        cost: predicted seconds of kernels -> seconds of measuring them.
        budget_s: limit on the sum of ``cost``; None = until no candidate is left.
    """

    def __init__(
        self,
        device: Device,
        candidates: Sequence[Columns],
        seed: int = 0,
        *,
        weights: Mapping[str, float] | None = None,
        cost: Cost = usual_cost,
        budget_s: float | None = None,
    ) -> None:
        self.left_s = math.inf if budget_s is None else budget_s
        self._device, self._seed, self._cost = device, seed, cost
        self._weights = weights or {}
        self._asked: tuple[_Group, Columns] | None = None
        groups: dict[tuple[str, str], dict[Op, Columns]] = {}
        for kernel in candidates:
            op = kernel_case(kernel).op
            groups.setdefault((op.family, op.variant.dtype), {}).setdefault(op, kernel)
        self._groups = {key: self._group(key, kernels) for key, kernels in groups.items()}

    @property
    def rows(self) -> dict[str, int]:
        """Family and format -> rows so far."""
        return {" ".join(key): group.rows for key, group in self._groups.items()}

    def next(self, left_s: float | None = None) -> Columns | None:
        """The kernel to measure next, the same until it is told or failed; None = no candidate is
        left, or none that the rest of the budget is enough for.

        Args:
            left_s: replaces the rest of the budget.
        """
        if left_s is not None:
            self.left_s = left_s
        if self._asked is None:
            self._asked = self._chosen()
        return None if self._asked is None else dict(self._asked[1])

    def tell(self, kernel: Columns, latency_us: float) -> None:
        """Adds a measured kernel, whether it was chosen here or not.

        Raises:
            SilicastError: no ``kernel`` table, or no time above 0.
        """
        if not (math.isfinite(latency_us) and latency_us > 0.0):
            raise SilicastError(f"expected a time above 0, found {latency_us}", field="latency_us")
        group, op = self._of(kernel)
        self.left_s -= group.tell(op, kernel, latency_us * 1e-6)
        self._asked = None

    def failed(self, kernel: Columns, reason: str = "") -> None:
        """Removes a kernel that cannot be measured. After "out_of_memory" all that are as large in
        every size are removed too, and after some failures of a variant that never succeeded, all
        of the variant.
        """
        group, op = self._of(kernel)
        group.failed(op, reason)
        self._asked = None

    def _of(self, kernel: Columns) -> tuple[_Group, Op]:
        op = kernel_case(kernel).op
        key = (op.family, op.variant.dtype)
        if key not in self._groups:
            self._groups[key] = self._group(key, {op: kernel})
            self._groups[key].failed(op, "")  # measured without being a candidate
        return self._groups[key], op

    def _group(self, key: tuple[str, str], kernels: Mapping[Op, Columns]) -> _Group:
        """A group of candidates; without a design if no model predicts its kernels."""
        model = implementation_for(key[0], self._device.execution_model)
        ops = tuple(kernels)
        if model is not None:
            try:
                points = KernelPoints(model, ops, self._device, self._cost)
                placed, seconds = points.points(ops, np.ones(len(ops)))
            except SilicastError:  # a format that the device does not compute: measured anyway
                pass
            else:
                letters = enumerate(" ".join(key))
                seed = self._seed + sum(ord(letter) << position % 8 for position, letter in letters)
                return _Group(kernels, seconds, PointDesign(placed, seed), points, self._cost)
        return _Group(kernels, np.full(len(ops), SETUP_S), None, None, self._cost)

    def _chosen(self) -> tuple[_Group, Columns] | None:
        open_ = [(group, key) for key, group in self._groups.items() if group.best() is not None]
        first = [group for group, _ in open_ if group.rows < FIRST_ROWS]
        ranked = sorted(first, key=lambda group: group.rows)
        gains = sorted(open_, key=lambda each: -self._weight(each[1]) * each[0].gain)
        ranked += [group for group, _ in gains]
        for group in ranked:
            kernel, cost = group.next()
            if cost <= self.left_s:
                return group, kernel
        return None

    def _weight(self, key: tuple[str, str]) -> float:
        return self._weights.get(" ".join(key), self._weights.get(key[0], 1.0))


@final
class _Group:
    """Kernels of one family and format.

    Args:
        kernels: candidates; seconds: predicted, shape (n,).
        design, points: None = no model predicts them, and they are taken in order.
    """

    def __init__(
        self,
        kernels: Mapping[Op, Columns],
        seconds: F64,
        design: PointDesign | None,
        points: KernelPoints | None,
        cost: Cost,
    ) -> None:
        self._ops, self._kernels = list(kernels), list(kernels.values())
        self._place = {op: index for index, op in enumerate(self._ops)}
        self._seconds, self._design, self._points, self._cost = seconds, design, points, cost
        self._gone: set[int] = set()
        self._told: list[int] = []
        self._failures: dict[Variant, int | None] = {}
        self._choice: PointChoice | None = None
        self._fresh = False

    @property
    def rows(self) -> int:
        return len(self._told)

    @property
    def gain(self) -> float:
        best = self.best()
        return 0.0 if best is None else best.gain

    def next(self) -> tuple[Columns, float]:
        """The kernel to measure next, and the seconds of measuring it."""
        best = self.best()
        assert best is not None
        position = best.place
        if self._told and (self.rows + 1) % REPEAT_EVERY == 0:
            position = self._told[(self.rows * 7) // REPEAT_EVERY % len(self._told)]
        return self._kernels[position], float(self._cost(self._seconds[position : position + 1])[0])

    def tell(self, op: Op, kernel: Columns, seconds: float) -> float:
        """Adds a row; returns the approximate seconds of measuring it."""
        position = self._place.get(op)
        if position is None:
            position = self._added(op, kernel, seconds)
        if self._design is not None:
            self._design.tell(position, math.log(seconds / self._seconds[position]))
        self._failures[op.variant] = None  # it succeeded: its failures depend on sizes
        self._told.append(position)
        self._gone.add(position)
        self._fresh = False
        return float(self._cost(np.array([seconds]))[0])

    def failed(self, op: Op, reason: str) -> None:
        """Removes a kernel that failed, and those that must fail too."""
        positions = {self._place[op]} if op in self._place else set()
        failures = self._failures.setdefault(op.variant, 0)
        hopeless = False
        if failures is not None:
            self._failures[op.variant] = failures + 1
            hopeless = failures + 1 >= HOPELESS
        for index, other in enumerate(self._ops):
            if other.variant == op.variant and (
                hopeless or (reason == "out_of_memory" and _as_large(other, op))
            ):
                positions.add(index)
        self._gone |= positions
        if self._design is not None:
            self._design.gone(np.array(sorted(positions), dtype=np.int64))
        self._fresh = False

    def best(self) -> PointChoice | None:
        """The next kernel; None if none is left."""
        if not self._fresh:
            if self._design is not None:
                self._choice = self._design.best()
            else:
                left = (index for index in range(len(self._ops)) if index not in self._gone)
                first = next(left, None)
                self._choice = None if first is None else PointChoice(first, 0.0)
            self._fresh = True
        return self._choice

    def _added(self, op: Op, kernel: Columns, seconds: float) -> int:
        """Adds a kernel that was no candidate; returns its place."""
        self._place[op] = len(self._ops)
        self._ops.append(op)
        self._kernels.append(kernel)
        if self._design is None or self._points is None:
            self._seconds = np.append(self._seconds, seconds)
            return self._place[op]
        point, predicted = self._points.points([op], np.zeros(1))
        self._seconds = np.append(self._seconds, predicted)
        return self._design.add(point)


def _as_large(op: Op, other: Op) -> bool:
    """Whether no size of an op is smaller than that of another."""
    sizes = dict(other.dims)
    return all(_total(size) >= _total(sizes.get(name, 0)) for name, size in op.dims)


def _total(size: object) -> int:
    if isinstance(size, tuple):
        return sum(size)
    return size if isinstance(size, int) else 0
