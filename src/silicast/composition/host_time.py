"""What the host of an engine does in a step, and what of it the device waits for.

    dispatch = time in which the host can launch the kernels of the step
    work     = step + request x sequences + token x new tokens of prefills (+ transport)
    total    = max(device, dispatch) + gap + work                               one after the other
    total    = max(device, dispatch) + gap + max(0, work - max(device, dispatch))   asynchronously

Asynchronous scheduling prepares a step while the device runs the one before: in a run of alike
steps the device waits only where the host takes longer. A processor that runs operations in the
thread that calls them waits for all of it: dispatch is then what that thread does between them,
and adds to the device's time. All times are those of the engine's file over the host's speed
factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.deployment import Deployment
from silicast.composition.placed import Placed, launches
from silicast.composition.states import BatchStates
from silicast.core.numerics import F64
from silicast.workload.symbols import DECODE_KV, PREFILL_KV

Flags = NDArray[np.bool_]

_BETWEEN_PIECES = frozenset(("kv_copy",))
"""Launched with attention between the pieces of a pass."""


@final
@dataclass(frozen=True)
class HostTimes:
    """Host time of n steps, seconds, shape (n,).

    Attributes:
        dispatch_s: to launch the kernels; beside the device.
        work_s: the rest.
        gap_s: between two steps in any case.
        asynchronous: the work is done beside the device.
        in_line: dispatch is time between operations, and nothing is beside them.
    """

    dispatch_s: F64
    work_s: F64
    gap_s: float
    asynchronous: bool
    in_line: bool = False

    def waited_s(self, device_s: F64) -> F64:
        """Between two steps, what a device that works for ``device_s`` waits for, shape (n,)."""
        return self.gap_s + (self.work_s - self.hidden_s(device_s))

    def hidden_s(self, device_s: F64) -> F64:
        """Work beside the device, shape (n,)."""
        if self.in_line or not self.asynchronous:
            return np.zeros_like(self.work_s)
        return np.minimum(self.work_s, np.maximum(device_s, self.dispatch_s))

    def total_s(self, device_s: F64) -> F64:
        """The step, shape (n,)."""
        busy = device_s + self.dispatch_s if self.in_line else np.maximum(device_s, self.dispatch_s)
        return busy + self.waited_s(device_s)


def host_times(deployment: Deployment, placed: Sequence[Placed], states: BatchStates) -> HostTimes:
    """Host time of each state."""
    host = deployment.engine.host
    per_us = 1e-6 / deployment.host.factor
    return HostTimes(
        _dispatch_us(deployment, placed, states) * per_us,
        work_us(deployment, states) * per_us,
        host.gap_us * per_us,
        host.asynchronous,
        deployment.machine.in_line,
    )


def work_us(deployment: Deployment, states: BatchStates) -> F64:
    """Work of the host for each state on the reference host, microseconds, shape (n,)."""
    host = deployment.engine.host
    transport = host.transport_us if deployment.plan.gpus > 1 else 0.0
    found: F64 = (
        (host.step_us + transport)
        + host.request_us * states.logit_rows.astype(np.float64)
        + host.token_us * states.prefill_tokens.astype(np.float64)
    )
    return found


def _dispatch_us(deployment: Deployment, placed: Sequence[Placed], states: BatchStates) -> F64:
    """Time to launch all kernels of each state on the reference host."""
    engine = deployment.engine
    prefill = states.prefill_sequences > 0
    both = prefill & (states.decode_sequences > 0)
    if deployment.machine.in_line:
        return (engine.host.between_us or engine.host.dispatch_us) * _by_kind(placed, prefill, both)
    one_by_one = engine.host.dispatch_us * _by_kind(placed, prefill, both)
    between = [p for p in placed if _is_between(p)]
    layers = float(deployment.model.layers)
    in_pieces = (
        engine.host.dispatch_us * _by_kind(between, prefill, both)
        + engine.host.piece_us * (layers + 1.0)
    )  # fmt: skip
    by_launch = {"graph": np.zeros(len(states)), "piecewise": in_pieces, "stream": one_by_one}
    launch = engine.launch
    found = np.where(prefill, by_launch[launch.prefill], by_launch[launch.decode])
    if launch.graph_batch_sizes:  # no graph was captured for larger batches
        found = np.where(states.tokens <= launch.graph_batch_sizes[-1], found, one_by_one)
    return found


def _by_kind(placed: Sequence[Placed], prefill: Flags, both: Flags) -> F64:
    """Launches of steps that prefill, that decode, and that do both."""
    some = np.where(prefill, launches(placed, prefill=True), launches(placed, prefill=False))
    found: F64 = np.where(both, float(sum(p.count for p in placed)), some)
    return found


def _is_between(placed: Placed) -> bool:
    """Whether a kernel runs between the pieces of a pass: attention, and what writes the cache."""
    sizes = [dim for _, dim in placed.op.dims]
    return placed.op.family in _BETWEEN_PIECES or DECODE_KV in sizes or PREFILL_KV in sizes
