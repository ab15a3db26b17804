"""What a kernel waits for: its time as shares of the device's resources.

A kernel's model knows what each resource (memory, cache, matrix pipes, ...) would need alone at
its largest rate. On a perfect machine all of them overlap, and the kernel takes as long as the one
that needs most. So, in this order and as far as the kernel's time reaches,

* the resource that needs most is **exposed** with what it needs: that is the kernel's bound; of
  two that wait for each other (units, and the filling of their array) both are, if their sum is
  the most;
* the others are **hidden** under it;
* what is serial by nature (launch and drain, fills that nothing overlaps, a collective's hops and
  barriers) is exposed on top;
* a **power** limit is a resource like the others where a model counts each action's energy: what
  those joules take at the rate that the limit leaves;
* **clock**: what the resource needs longer because the cores run below their largest clock;
* what is left is **inefficiency**, latency in it: waves that fill the cores unevenly, operands that
  arrive late, instructions between the products.

Exposed pipes sum to the kernel's time in whole picoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.core.prediction import PICOSECONDS, Part, to_picoseconds
from silicast.hardware.device import Device
from silicast.kernels.limits import IN_TURN, NO_BOUND, SERIAL, competing
from silicast.kernels.registry import implementation_for
from silicast.learning.tiers import Evidence, kernel_times
from silicast.workload.graphs.op import Op, OpBatch

REST = "inefficiency"
"""The pipe that takes what no resource explains."""

CLOCK = "clock"
"""The pipe that takes what a clock below the largest one costs."""

CLOCKED = frozenset(("tensor", "fma", "alu", "xu", "l2", "smem"))
"""Resources that run at the cores' clock."""

LIMITED = "power"
"""What binds a part that the power limit slows."""

TINY = np.finfo(np.float64).tiny

PipeParts = tuple[Part, ...]


def clocked_ps(part: Part) -> int:
    """Exposed time of a part that goes with the cores' clock: what is bound by cores or by power.

    >>> clocked_ps(Part.group("pass", (Part("a", 5, bound_by="xu"), Part("b", 2, bound_by="dram"))))
    5
    """
    inner = [child for child in part.children if child.kind != "pipe"]
    if inner:
        return sum(map(clocked_ps, inner))
    return part.exposed_ps if part.bound_by in CLOCKED or part.bound_by == LIMITED else 0


def limit_rate(device: Device, resource: str, dtype: str) -> float:
    """Bytes or operations a second of a resource at its limit; 0 where no single rate is known.

    Args:
        resource: as kernels' models name it ("dram", "tensor", "fma", "xu", ...).
        dtype: format or recipe of the kernel.
    """
    if resource == "dram":
        return device.dram.bandwidth_bytes_per_s
    if resource in ("fma", "xu"):
        return device.bound_per_s(resource, "fp32")
    if resource != "tensor":
        return 0.0
    recipe = RECIPES.get(dtype)
    compute = recipe.compute if recipe else dtype
    try:
        return device.bound_per_s(device.matrix_pipe(compute), compute)
    except SilicastError:  # another format stands in for it
        return 0.0


@final
@dataclass(frozen=True)
class Resources:
    """What every node needs of every resource.

    Attributes:
        seconds: resource -> time at its limit, shape (nodes, n), one execution.
        rates: resource -> bytes or operations a second of it, shape (nodes,); 0 = not known.
        slowdown: the largest clock over the one that is held, at least 1.
    """

    nodes: int
    states: int
    slowdown: float = 1.0
    seconds: dict[str, F64] = field(default_factory=dict)
    rates: dict[str, F64] = field(default_factory=dict)

    def put(
        self,
        members: Sequence[int],
        rows: I64,
        resource_s: Mapping[str, F64],
        device: Device,
        dtype: str,
    ) -> None:
        """Notes what a call of members x states found.

        Args:
            members: nodes, in the order of the call's rows.
            rows: states in which they ran.
            resource_s: resource -> seconds, shape (members x rows,).
        """
        position = np.ix_(np.asarray(members), np.asarray(rows))
        grid = (len(members), len(rows))
        for name, seconds in resource_s.items():
            if name not in self.seconds:
                self.seconds[name] = np.zeros((self.nodes, self.states))
                self.rates[name] = np.zeros(self.nodes)
            self.seconds[name][position] = np.asarray(seconds).reshape(grid)
            self.rates[name][np.asarray(members)] = limit_rate(device, name, dtype)

    def parts(
        self, index: int, exposed_s: F64, share: F64, weights: F64, exposed_ps: int
    ) -> PipeParts:
        """The pipes of one node over weighted states.

        Args:
            exposed_s: of all executions in each state, shape (n,).
            share: executions in each state, a hidden one for nothing, shape (n,).
            weights: how often each state runs, shape (n,).
            exposed_ps: the node's time in all, to which the pipes add up.
        """
        needs = {
            name: seconds[index] * share
            for name, seconds in self.seconds.items()
            if seconds[index].any()
        }
        rates = {name: float(self.rates[name][index]) for name in needs}
        return pipe_parts(needs, exposed_s, weights, exposed_ps, rates, self.slowdown)


def host_part(
    waited_s: float, launches_s: float, idle_s: float, work_s: float, between: str
) -> Part:
    """The host's share of a step: time in which the device is idle.

    Args:
        waited_s: what the device waits for launches; launches_s: host time of all launches.
        idle_s: what it waits for the host between two passes; work_s: host work that it hides.
        between: name of the work between two passes.
    """
    waited, idle = to_picoseconds(waited_s), to_picoseconds(idle_s)
    launches = max(to_picoseconds(launches_s) - waited, 0)
    parts = (
        Part(between, idle, to_picoseconds(work_s), bound_by="host", kind="host"),
        Part("launches", waited, launches, bound_by="host", kind="host"),
    )
    shown = tuple(part for part in parts if part.exposed_ps or part.hidden_ps)
    return Part(
        "host",
        waited + idle,
        sum(part.hidden_ps for part in parts),
        bound_by="host",
        children=shown if len(shown) > 1 else (),
        kind="host",
    )


def kernel_pipes(op: Op, device: Device, evidence: Evidence, exposed_ps: int) -> PipeParts:
    """What one kernel waits for, which takes ``exposed_ps`` in all."""
    implementation = implementation_for(op.family, device.execution_model)
    if implementation is None:
        return ()
    result = kernel_times(implementation, OpBatch.from_ops([op]), device, evidence)
    needs = result.analysis.resource_s
    rates = {name: limit_rate(device, name, op.variant.dtype) for name in needs}
    slowdown = device.clocks.max_hz / device.clocks.boost_hz
    seconds = np.array([exposed_ps / PICOSECONDS])
    return pipe_parts(needs, seconds, np.ones(1), exposed_ps, rates, slowdown)


def pipe_parts(
    needs: Mapping[str, F64],
    time_s: F64,
    weights: F64,
    exposed_ps: int,
    rates: Mapping[str, float] | None = None,
    slowdown: float = 1.0,
) -> PipeParts:
    """A kernel's time as parts of kind "pipe", the largest exposed first.

    Args:
        needs: resource -> seconds at its limit, shape (n,).
        time_s: the kernel's time, shape (n,).
        weights: how often each state counts, shape (n,).
        exposed_ps: the weighted sum of ``time_s`` in picoseconds.
        rates: resource -> bytes or operations a second.
        slowdown: the largest clock over the one that is held.

    >>> import numpy as np
    >>> needs = {"dram": np.array([6e-6]), "tensor": np.array([2e-6]), "launch": np.array([1e-6])}
    >>> parts = pipe_parts(needs, np.array([9e-6]), np.ones(1), 9_000_000)
    >>> [(part.name, part.exposed_ps // 1000, part.hidden_ps // 1000) for part in parts]
    [('dram', 6000, 0), ('inefficiency', 2000, 0), ('launch', 1000, 0), ('tensor', 0, 2000)]
    """
    if not needs:
        return ()
    exposed_s, hidden_s = _shares(needs, time_s, slowdown)
    exposed = _picoseconds(exposed_s, weights)
    hidden = _picoseconds(hidden_s, weights)
    _shrink(exposed, exposed_ps)
    parts = [
        Part(
            name,
            picoseconds,
            hidden.get(name, 0),
            bound_ps=picoseconds if name in hidden and name not in NO_BOUND else 0,
            bound_by=name,
            kind="pipe",
            work=_work(needs, weights, name, rates or {}),
        )
        for name, picoseconds in exposed.items()
        if picoseconds or hidden.get(name)
    ]
    remainder = exposed_ps - sum(exposed.values())
    if remainder:
        parts.append(Part(REST, remainder, kind="pipe"))
    return tuple(sorted(parts, key=lambda part: (-part.exposed_ps, -part.hidden_ps, part.name)))


def _shares(
    needs: Mapping[str, F64], time_s: F64, slowdown: float
) -> tuple[dict[str, F64], dict[str, F64]]:
    """Exposed seconds of everything, and hidden ones of what overlaps; shape (n,) each."""
    most = {name: s for name, s in competing(needs).items() if name not in SERIAL}
    parallel = list(most)
    exposed: dict[str, F64] = {}
    left = np.array(time_s, dtype=np.float64)
    slower = np.zeros_like(left)
    if parallel:
        table = np.stack(list(most.values()))
        first, largest = np.argmax(table, axis=0), np.minimum(np.max(table, axis=0), left)
        for index, name in enumerate(parallel):
            exposed[name] = np.where(first == index, largest, 0.0)
            if name in CLOCKED:
                slower = slower + exposed[name] * (slowdown - 1.0)
        left = left - largest
    turns = [name for name in IN_TURN if name in needs]
    if turns:
        both = sum((exposed[name] for name in turns), np.zeros_like(left))
        whole = np.maximum(sum((needs[name] for name in turns), np.zeros_like(left)), TINY)
        exposed |= {name: both * (needs[name] / whole) for name in turns}
    hidden = {name: np.minimum(needs[name], time_s) - exposed[name] for name in parallel}
    for name in SERIAL:
        if name in needs:
            exposed[name] = np.minimum(needs[name], left)
            left = left - exposed[name]
    exposed[CLOCK] = np.minimum(slower, left)
    return exposed, hidden


def _picoseconds(seconds: Mapping[str, F64], weights: F64) -> dict[str, int]:
    return {name: to_picoseconds(float((s * weights).sum())) for name, s in seconds.items()}


def _work(needs: Mapping[str, F64], weights: F64, name: str, rates: Mapping[str, float]) -> float:
    return float((needs[name] * weights).sum()) * rates.get(name, 0.0) if name in needs else 0.0


def _shrink(exposed: dict[str, int], whole: int) -> None:
    """Rounding may leave the parts a few picoseconds above the whole: the largest gives them."""
    excess = sum(exposed.values()) - whole
    if excess > 0:
        largest = max(exposed, key=lambda name: (exposed[name], name))
        exposed[largest] -= excess
