"""A sweep that chooses its kernels as it goes: see :mod:`.point_design` for how.

Kernels of one family and format form a group, whose errors say nothing about those of others. The
next kernel comes from the group in which a second of measuring takes most variance off a usual
kernel, times how much the group matters; each group first gets enough rows to be interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import implementation_for
from silicast.learning.tiers import ALL_SHIPPED, Evidence
from silicast.measurement.design.kernel_points import Cost, KernelPoints
from silicast.measurement.design.point_design import Choice, PointDesign, Rule
from silicast.measurement.records import Columns
from silicast.scenario.kernel_case import kernel_case
from silicast.workload.op import Op, Variant

FIRST_ROWS = 8
"""Rows that each group has before uncertainty decides between them: fewer give an offset only
(``SOME_ROWS`` of :mod:`silicast.learning.calibration_fit`)."""
REPEAT_EVERY = 20
"""One row in so many of a group measures again what was measured before."""
HOPELESS = 3
"""Kernels of a variant that fail before any succeeds, after which it is not tried any more."""
SETUP_S, REPEATS, MOST_S = 0.1, 30.0, 1.0
"""What measuring a kernel takes where nobody says: so much, and so many runs up to so many
seconds, but never less than three."""


def usual_cost(seconds: F64) -> F64:
    """Seconds that measuring kernels takes, about.

    >>> usual_cost(np.array([1e-5, 1.0])).tolist()
    [0.1003, 3.1]
    """
    return SETUP_S + np.maximum(np.minimum(REPEATS * seconds, MOST_S), 3.0 * seconds)


@final
class Design:
    """What to measure next among candidates.

    Args:
        device: that is measured. candidates: ``kernel`` tables, of any families and formats.
        seed: of what is drawn at random; the same results then give the same sweep.
        weights: family, or family and format ("gemm bf16"), -> how much it matters; 1 for others.
        cost: predicted seconds of kernels -> seconds that measuring takes.
        budget_s: of what ``cost`` says; None = until no candidate is left.
        evidence: what predictions of the kernels rest on so far.
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
        evidence: Evidence = ALL_SHIPPED,
        rule: Rule = "variance",
    ) -> None:
        self.left_s = math.inf if budget_s is None else budget_s
        self._groups: dict[tuple[str, str], _Group] = {}
        self._asked: tuple[_Group, Columns] | None = None
        self._new = partial(_group, device, cost, evidence, rule, seed)
        self._weights = weights or {}
        kinds: dict[tuple[str, str], dict[Op, Columns]] = {}
        for kernel in candidates:
            op = kernel_case(kernel).op
            kinds.setdefault((op.family, op.variant.dtype), {}).setdefault(op, kernel)
        for key, kernels in kinds.items():
            self._groups[key] = self._new(key, kernels)

    @property
    def rows(self) -> dict[str, int]:
        """Family and format -> rows so far."""
        return {" ".join(key): group.rows for key, group in self._groups.items()}

    def next(self) -> Columns | None:
        """The kernel to measure next, the same until it is told or failed; None = no candidate is
        left, or none that the rest of the budget is enough for.
        """
        if self._asked is None:
            self._asked = self._chosen()
        return None if self._asked is None else dict(self._asked[1])

    def tell(self, kernel: Columns, latency_us: float) -> None:
        """A kernel was measured, chosen here or not.

        Raises:
            SilicastError: no ``kernel`` table, or no time above 0.
        """
        if not (math.isfinite(latency_us) and latency_us > 0.0):
            raise SilicastError(f"expected a time above 0, found {latency_us}", field="latency_us")
        group, op = self._of(kernel)
        self.left_s -= group.tell(op, kernel, latency_us * 1e-6)
        self._asked = None

    def failed(self, kernel: Columns, reason: str = "") -> None:
        """A kernel cannot be measured. After "out_of_memory" none as large in every size is tried,
        and after some failures of a variant that never succeeded none of it is.
        """
        group, op = self._of(kernel)
        group.failed(op, reason)
        self._asked = None

    def _of(self, kernel: Columns) -> tuple[_Group, Op]:
        op = kernel_case(kernel).op
        key = (op.family, op.variant.dtype)
        if key not in self._groups:
            self._groups[key] = self._new(key, {op: kernel})
            self._groups[key].failed(op, "")  # was measured unasked: no candidate
        return self._groups[key], op

    def _chosen(self) -> tuple[_Group, Columns] | None:
        open_ = [(group, key) for key, group in self._groups.items() if not group.empty]
        first = [group for group, _ in open_ if group.rows < FIRST_ROWS]
        ranked = sorted(first, key=lambda group: group.rows)
        gains = [(self._weight(key) * group.gain, -place, group)
                 for place, (group, key) in enumerate(open_)]  # fmt: skip
        ranked += [group for _, _, group in sorted(gains, key=lambda each: each[:2], reverse=True)]
        for group in ranked:
            kernel, cost = group.next()
            if cost <= self.left_s:
                return group, kernel
        return None

    def _weight(self, key: tuple[str, str]) -> float:
        return self._weights.get(" ".join(key), self._weights.get(key[0], 1.0))


def _seed(seed: int, key: tuple[str, str]) -> int:
    return seed + sum(ord(letter) << place % 8 for place, letter in enumerate(" ".join(key)))


def _group(
    device: Device,
    cost: Cost,
    evidence: Evidence,
    rule: Rule,
    seed: int,
    key: tuple[str, str],
    kernels: Mapping[Op, Columns],
) -> _Group:
    """A group of candidates; without coordinates where nothing predicts its kernels."""
    model = implementation_for(key[0], device.execution_model)
    ops = tuple(kernels)
    if model is not None:
        try:
            points = KernelPoints(model, ops, device, cost, evidence)
            placed, seconds = points.of(ops, np.ones(len(ops)))
        except SilicastError:  # a format that the device does not compute: measured all the same
            model = None
        else:
            return _Group(
                kernels, seconds, PointDesign(placed, _seed(seed, key), rule=rule), points
            )
    return _Group(kernels, np.full(len(ops), SETUP_S), None, None, cost)


@final
class _Group:
    """Kernels of one family and format.

    Args:
        kernels: candidates. seconds: predicted, shape (n,).
        design, points: None = nothing predicts them: they are taken in the order given.
    """

    def __init__(
        self,
        kernels: Mapping[Op, Columns],
        seconds: F64,
        design: PointDesign | None,
        points: KernelPoints | None,
        cost: Cost = usual_cost,
    ) -> None:
        self._ops, self._kernels = list(kernels), list(kernels.values())
        self._place = {op: place for place, op in enumerate(self._ops)}
        self._seconds, self._design, self._points = seconds, design, points
        self._cost = cost if points is None else points.cost
        self._gone: set[int] = set()
        self._told: list[int] = []
        self._tries: dict[Variant, list[int]] = {}
        self._choice: Choice | None = None
        self._fresh = False

    @property
    def rows(self) -> int:
        """Rows so far."""
        return len(self._told)

    @property
    def empty(self) -> bool:
        """Whether no candidate is left."""
        return self._best() is None

    @property
    def gain(self) -> float:
        """Of its next kernel."""
        best = self._best()
        return 0.0 if best is None else best.gain

    def next(self) -> tuple[Columns, float]:
        """The kernel to measure next, and what that takes, in seconds."""
        best = self._best()
        assert best is not None
        place = best.place
        if self._told and (self.rows + 1) % REPEAT_EVERY == 0:
            place = self._told[(self.rows * 7) // REPEAT_EVERY % len(self._told)]
        return self._kernels[place], float(self._cost(self._seconds[place : place + 1])[0])

    def tell(self, op: Op, kernel: Columns, seconds: float) -> float:
        """A row; what measuring it took, about."""
        place = self._place.get(op)
        if place is None:
            place = self._taken_in(op, kernel, seconds)
        if self._design is not None:
            self._design.tell(place, math.log(seconds / self._seconds[place]))
        self._tries[op.variant] = []  # it succeeded: failures of it are its sizes'
        self._told.append(place)
        self._gone.add(place)
        self._fresh = False
        return float(self._cost(np.array([seconds]))[0])

    def failed(self, op: Op, reason: str) -> None:
        """A kernel that cannot be measured, and those that cannot either because of that."""
        places = {self._place[op]} if op in self._place else set()
        succeeded = self._tries.get(op.variant) == []
        tries = self._tries.setdefault(op.variant, []) if not succeeded else []
        tries.append(1)
        hopeless = not succeeded and len(tries) >= HOPELESS
        for place, other in enumerate(self._ops):
            if other.variant == op.variant and (
                hopeless or (reason == "out_of_memory" and _as_large(other, op))
            ):
                places.add(place)
        self._gone |= places
        if self._design is not None:
            self._design.gone(np.array(sorted(places), dtype=np.int64))
        self._fresh = False

    def _best(self) -> Choice | None:
        if not self._fresh:
            if self._design is not None:
                self._choice = self._design.best()
            else:
                left = (place for place in range(len(self._ops)) if place not in self._gone)
                first = next(left, None)
                self._choice = None if first is None else Choice(first, 0.0)
            self._fresh = True
        return self._choice

    def _taken_in(self, op: Op, kernel: Columns, seconds: float) -> int:
        """The place of a kernel that was no candidate."""
        self._place[op] = len(self._ops)
        self._ops.append(op)
        self._kernels.append(kernel)
        if self._design is None or self._points is None:
            self._seconds = np.append(self._seconds, seconds)
            return self._place[op]
        point, predicted = self._points.of([op], np.zeros(1))
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
