"""A model under a plan, device and engine, compiled once to a function of batch states.

A step is a sequence of kernels and collectives on the device, and host work beside it:

    step = device time of all nodes + max(0, dispatch - device time) + host time between steps

where dispatch is the time in which the host can launch the kernels one by one; it vanishes where
the engine replays a graph, and counts whole where the host itself computes (:mod:`.host_time`).
Some nodes are part of others' kernels or run beside them (:mod:`.overlap`). Clock and power are a
state of the step: the board's power cap sets the clock that the step's own mix of work can hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import final

import numpy as np

from silicast.composition.clock import held_clock
from silicast.composition.deployment import Deployment
from silicast.composition.fusion import branches
from silicast.composition.host_time import HostTimes, host_times
from silicast.composition.node_rows import over_states, weighted_sum
from silicast.composition.node_times import NodeTimes, Timer
from silicast.composition.overlap import Overlap
from silicast.composition.pipes import host_part
from silicast.composition.placed import Placed, place
from silicast.composition.states import BatchStates
from silicast.composition.uncertainty import Sum, Uncertainty
from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64
from silicast.core.prediction import TIERS, Domain, ErrorFactors, Part, Tier, to_picoseconds
from silicast.kernels.formats import with_format
from silicast.kernels.implementation import implementation_for
from silicast.kernels.knowledge import stand_ins
from silicast.workload.decoder import build_graph
from silicast.workload.graph import Graph


@final
@dataclass(frozen=True)
class StepTimes:
    """Predicted engine steps for n states; arrays of shape (n,), seconds.

    ``total_s = device_s + dispatch_exposed_s + host_s``.
    """

    nodes: NodeTimes
    device_s: F64
    dispatch_s: F64
    host_s: F64
    bound_s: F64
    clock_hz: float
    host_hidden_s: F64
    in_line: bool = False

    @cached_property
    def dispatch_exposed_s(self) -> F64:
        """Host launch time that the device waits for."""
        if self.in_line:
            return self.dispatch_s
        return np.maximum(self.dispatch_s - self.device_s, 0.0)

    @cached_property
    def dispatch_hidden_s(self) -> F64:
        """Host launch time beside the device's work."""
        if self.in_line:
            return np.zeros_like(self.dispatch_s)
        return np.minimum(self.dispatch_s, self.device_s)

    @cached_property
    def total_s(self) -> F64:
        """Time of the step."""
        return self.device_s + self.dispatch_exposed_s + self.host_s


@final
class StepModel:
    """A deployment compiled to a function of batch states.

    Args:
        deployment: what runs where.
        graph: one rank's work, where it is not what the engine runs of the model (a plain forward
            pass); the engine's caveats do not hold for it.

    Raises:
        SilicastError: a kernel family has no model on this device, or a format is not computed.
    """

    def __init__(self, deployment: Deployment, graph: Graph | None = None) -> None:
        self.deployment = deployment
        precision = deployment.precision or deployment.model.default_precision
        self.graph: Graph = graph or build_graph(deployment.model, deployment.plan, precision)
        self._caveats = () if graph else tuple(deployment.engine.caveats)
        self.placed: tuple[Placed, ...] = place(self.graph, deployment)
        self.matrix_format = RECIPES[precision.recipe].compute
        self.timer = Timer(deployment.machine, self.placed, deployment.model.name)
        named = [(p.stage, p.block, p.name, p.op) for p in self.placed]
        replayed = deployment.engine.launch.graph_batch_sizes
        self.overlap = Overlap(
            self.placed,
            branches(named, deployment.engine),
            replayed[-1] if replayed and deployment.engine.launch.decode == "graph" else 0,
        )

    def steps(self, states: BatchStates, clock_hz: float | None = None) -> StepTimes:
        """Times of all states at one clock; a state's result is the same in any batch.

        Args:
            clock_hz: the cores' clock, None = boost (see :meth:`held_clock`).
        """
        device = self.deployment.machine.uncapped_device
        if clock_hz is not None and clock_hz != device.clocks.boost_hz:
            device = device.at_clock(clock_hz)
        tokens = self.timer.run_tokens(states)
        nodes = self.overlap.applied(self.timer.times(states, device), states, tokens, device)
        counts = [float(placed.count) for placed in self.placed]
        device_s = weighted_sum(nodes.time_s, counts)
        host = self.host(states)
        return StepTimes(
            nodes=nodes,
            device_s=device_s,
            dispatch_s=host.dispatch_s,
            host_s=host.waited_s(device_s),
            bound_s=weighted_sum(nodes.bound_s, counts),
            clock_hz=device.clocks.boost_hz,
            host_hidden_s=host.hidden_s(device_s),
            in_line=host.in_line,
        )

    def host(self, states: BatchStates) -> HostTimes:
        """What the host does in each state."""
        return host_times(self.deployment, self.placed, states)

    def held_clock(self, times: StepTimes, index: int) -> float:
        """The clock that the power cap (or the user's limit) holds over steps like state ``index``.

        Args:
            times: of steps at the boost clock.
            index: which state.

        Returns:
            Hertz; the boost clock where nothing limits it.
        """
        counts = [float(placed.count) for placed in self.placed]
        return held_clock(
            self.deployment.machine,
            self.matrix_format,
            float(times.total_s[index]),
            float(weighted_sum(times.nodes.tensor_flops, counts)[index]),
            float(weighted_sum(times.nodes.dram_bytes, counts)[index]),
        )

    def part(self, name: str, times: StepTimes, weights: F64) -> Part:
        """The tree of parts of the weighted sum of states (``weights`` of shape (n,))."""
        seconds = over_states(times.nodes.time_s, weights)
        bounds = over_states(times.nodes.bound_s, weights)
        ceilings = over_states(times.nodes.ceiling_s, weights)
        typical = int(np.argmax(weights))
        hidden = times.nodes.hidden_s
        under = None if hidden is None else over_states(hidden, weights)
        blocks: dict[tuple[int, str], list[Part]] = {}
        for index, placed in enumerate(self.placed):
            exposed = to_picoseconds(seconds[index] * placed.count)
            if exposed <= 0:
                continue
            bound = to_picoseconds(bounds[index] * placed.count)
            if bound > exposed + 1:
                raise ValueError(f"{placed.name} is predicted below its bound")
            leaf = Part(
                name=placed.name,
                exposed_ps=exposed,
                hidden_ps=to_picoseconds(under[index] * placed.count) if under else 0,
                bound_ps=min(bound, exposed),  # the two may round apart by a picosecond
                bound_by=str(times.nodes.bound_by[index, typical]),
                count=placed.count,
                ceiling_ps=to_picoseconds(ceilings[index] * placed.count),
                children=times.nodes.pipes(index, weights, placed.count, exposed),
            )
            blocks.setdefault((placed.stage, placed.block), []).append(leaf)
        children = []
        for (stage, block), leaves in blocks.items():
            title = f"stage_{stage}_{block}" if self.deployment.plan.pp > 1 else block
            children.append(Part.group(title, leaves, count=leaves[0].count))
        children.append(
            host_part(
                self._host_seconds(times, weights),
                float((times.dispatch_exposed_s * weights).sum()),
                float((times.dispatch_hidden_s * weights).sum()),
                float((times.host_hidden_s * weights).sum()),
                detailed=times.nodes.resources is not None,
            )
        )
        whole = Part.group(name, children)
        if self.deployment.plan.pp == 1:
            return whole
        # pieces of a batch could keep all stages busy at once: only the slowest one is a limit
        stages: dict[int, int] = {}
        for (stage, _), leaves in blocks.items():
            stages[stage] = stages.get(stage, 0) + sum(leaf.bound_ps for leaf in leaves)
        return replace(whole, bound_ps=max(stages.values()))

    def tier(self, times: StepTimes, weights: F64) -> Tier:
        """The best tier in which, or in a better one, at least half of the kernels' time is;
        calibrated where whole models were measured.
        """
        counts = [float(placed.count) for placed in self.placed]
        if self.deployment.evidence.whole is not None:
            return "calibrated"
        nodes, reached = times.nodes, 0.0
        whole = _spent(nodes.time_s, weights, counts)
        for number in reversed(range(len(TIERS))):
            reached += _spent(nodes.time_s * (nodes.tiers == number), weights, counts)
            if reached >= 0.5 * whole:
                return TIERS[number]
        return "analytic"

    def error(self, times: StepTimes, weights: F64) -> ErrorFactors:
        """Error factors of the weighted sum of states, whose steps share all errors."""
        return self._uncertainty.of(self._sum(times, weights))

    def narrowed(self, times: StepTimes, weights: F64) -> dict[str, ErrorFactors]:
        """Measurement -> the error that it would leave of the weighted sum of states."""
        return self._uncertainty.narrowed(self._sum(times, weights))

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        assumed = bool(self.deployment.model.assumed)
        return Uncertainty(self.placed, self.deployment.machine, assumed=assumed)

    def _sum(self, times: StepTimes, weights: F64) -> Sum:
        host_s = self._host_seconds(times, weights)
        launch_s = float((times.dispatch_exposed_s * weights).sum())
        return Sum.of(times.nodes, weights, self._counts, host_s, launch_s)

    @cached_property
    def _counts(self) -> F64:
        return np.array([placed.count for placed in self.placed], dtype=np.float64)

    def _host_seconds(self, times: StepTimes, weights: F64) -> float:
        return float(((times.host_s + times.dispatch_exposed_s) * weights).sum())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Fallbacks that a reader must know."""
        device = self.deployment.device
        formats = dict.fromkeys(placed.op.variant.dtype for placed in self.placed)
        said = (with_format(device, dtype)[1] for dtype in formats)
        found = dict.fromkeys(text for text in said if text)
        caveats = (*self._caveats, *self.deployment.model.caveats)
        known = self.deployment.evidence.warnings(device)
        return (*found, *stand_ins(device), *known, *caveats)

    @property
    def domain(self) -> Domain:
        """How far the device is from those whose kernels were measured: of its worst family; out
        of it where the model's structure was assumed.
        """
        device = self.deployment.device
        if self.deployment.model.assumed:
            return "out"
        for key in self.timer.groups:
            model = implementation_for(key.family, device.execution_model)
            used, said = with_format(device, key.variant.dtype)
            if said or (model is not None and not model.is_measured(key.variant, used)):
                return "near"
        return "in"


def _spent(table: F64, weights: F64, counts: Sequence[float]) -> float:
    """Seconds of all nodes, as often as they run, over weighted states."""
    seconds = over_states(table, weights)
    return math.fsum(t * n for t, n in zip(seconds, counts, strict=True))


@lru_cache(maxsize=256)
def compiled(deployment: Deployment) -> StepModel:
    """The step model of a deployment, compiled once."""
    return StepModel(deployment)
