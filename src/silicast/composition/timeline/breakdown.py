"""Where a step's time goes and what is known of it: read from its timeline, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from operator import itemgetter
from typing import NamedTuple, final

import numpy as np
from msgspec import Struct

from silicast.composition.errors.uncertainty import Sum
from silicast.composition.power.clock import not_held
from silicast.composition.step.executions import DIRECTIONS
from silicast.composition.step.pipes import PipeParts, Resources, host_part
from silicast.composition.step.step import StepModel, StepTimes
from silicast.composition.timeline.weighted_states import MOST_VALUES, WeightedStates
from silicast.core.numerics import F64
from silicast.core.prediction import (
    PICOSECONDS,
    Domain,
    ErrorFactors,
    Later,
    Part,
    Prediction,
    Quantity,
    Tier,
    to_picoseconds,
    worst_domain,
)
from silicast.kernels.limits import Also
from silicast.kernels.physics.measured_range import NEAR_OCTAVES, domain_of
from silicast.kernels.physics.power import top_hz
from silicast.workload.graphs.graph import Direction

LEAST_COVERED = 0.9
"""Share of the time of operations with a model below which a program is out of the domain."""
LEAST_NAMED = 0.01
"""Share of the time of a family that is named."""
_SHOWN_NAMES = 6


@final
class Coverage(Struct, frozen=True):
    """How much of a program has a model.

    Attributes:
        operations: executions of operations; modelled: of those with a model of their own.
        time_share: of the device's time that operations with a model take.
        unmodelled: names in the program of those without, and how often each runs; shares: of the
            device's time, of each of them.
    """

    operations: int
    modelled: int
    time_share: float
    unmodelled: Mapping[str, int]
    shares: Mapping[str, float]


@final
class TimeAlone(NamedTuple):
    """A predicted time without its reasons.

    Attributes:
        exposed_ps: the estimate; bound_ps: its physical limit.
        error: error factors of the model.
    """

    exposed_ps: int
    bound_ps: int
    error: ErrorFactors

    @property
    def quantity(self) -> Quantity:
        """As ``Prediction.latency_s``."""
        exposed_s, bound_s = self.exposed_ps / PICOSECONDS, self.bound_ps / PICOSECONDS
        return Quantity.around(exposed_s, self.error.log_sd, bound=bound_s)

    def then(self, other: TimeAlone) -> TimeAlone:
        """Both, one after the other."""
        halves = [(each.exposed_ps, each.error) for each in (self, other)]
        exposed_ps = self.exposed_ps + other.exposed_ps
        return TimeAlone(exposed_ps, self.bound_ps + other.bound_ps, ErrorFactors.of_sum(halves))


@final
class Breakdown:
    """A sum of weighted states of a step model.

    Args:
        model: the steps.
        times: of the states, at one clock.
        weights: how often each state runs, shape (n,).
        sums: several sums side by side, of which ``row`` is this one, if they are known.
    """

    def __init__(
        self,
        model: StepModel,
        times: StepTimes,
        weights: F64,
        sums: WeightedStates | None = None,
        row: int = 0,
    ) -> None:
        self.model = model
        self.times = times
        self.weights = weights
        self.graph = model.graph
        self._sums = sums or WeightedStates(model, (times,), (weights,))
        self._row = row
        self.exposed_s: F64 = self._sums.exposed_s[row]
        self.hidden_s: F64 = self._sums.hidden_s[row]

    @property
    def _typical(self) -> int:
        return self._sums.typical[self._row]

    @cached_property
    def _limits(self) -> list[tuple[str, Also]]:
        return self.times.nodes.limits(self._typical)

    @cached_property
    def _resources(self) -> Resources | None:
        """Needs of resources, where the full tree of parts is asked for."""
        if not self.model.machine.evidence.ceilings:
            return None
        return self.times.nodes.resources()

    def part(self, name: str, *, host: str = "between_steps") -> Part:
        """The tree of parts: directions where there are several, blocks, nodes, and the host.

        Args:
            host: name of the host's work between two passes.
        """
        directions = self.graph.directions
        if len(directions) > 1:
            ways = [self.direction_part(DIRECTIONS[number]) for number in directions]
            return Part.group(name, [*ways, self._host(None, host)])
        (number,) = directions
        return self._whole(name, DIRECTIONS[number], self._host(directions, host))

    def exposed_ps(self) -> tuple[int, int]:
        """The time and the bound of :meth:`part`, without the tree."""
        if len(self.graph.directions) > 1 or self.graph.stages > 1:
            whole = self.part("")
            return whole.exposed_ps, whole.bound_ps
        kernels, bound = self._sums.kernels_ps[self._row]
        return kernels + self._host(self.graph.directions, "host").exposed_ps, bound

    def direction_part(self, direction: Direction) -> Part:
        """The tree of one direction, with the launches that it waits for."""
        return self._whole(direction, direction, self._host((DIRECTIONS.index(direction),), ""))

    def _whole(self, name: str, direction: Direction, host: Part) -> Part:
        """The blocks of a direction and the host."""
        picoseconds = self._sums.picoseconds[self._row]
        blocks = []
        for block in self.graph.blocks.get(direction, ()):
            runs = [at for at in block.nodes if picoseconds[at][0] or picoseconds[at][1]]
            if runs:
                leaves = [self._leaf(index, picoseconds[index]) for index in runs]
                blocks.append((runs[0], Part.group(block.title, leaves, count=block.count)))
        children = [part for _, part in sorted(blocks, key=itemgetter(0))]
        whole = Part.group(name, [*children, host])
        if self.graph.stages == 1:
            return whole
        # pieces of a batch could keep all stages busy at once: only the slowest one is a limit
        return whole.changed(bound_ps=self._slowest_stage_ps(direction))

    def _leaf(self, index: int, picoseconds: Sequence[int]) -> Part:
        node, (bound_by, also) = self.graph.nodes[index], self._limits[index]
        exposed, hidden, bound, ceiling = picoseconds
        if bound > exposed + 1:
            raise ValueError(f"{node.name} is predicted below its bound")
        pipes: PipeParts = ()
        if exposed and self._resources is not None:
            pipes = self._resources.parts(
                index,
                self.times.exposed_s[index],
                self._sums.runs[self._row, index],
                self.weights,
                exposed,
            )
        bound = min(bound, exposed)  # the two may round apart by a picosecond
        return Part(
            node.name, exposed, hidden, bound, bound_by, node.count, pipes, ceiling, "", 0.0, also
        )

    def _host(self, directions: Sequence[int] | None, between: str) -> Part:
        """The host's share.

        Args:
            directions: whose launches count; None = none.
            between: name of the work between two passes; "" = without it.
        """
        waited, launches = (each[self._row] for each in self._sums.launched_s(directions or ()))
        idle, work = 0.0, 0.0
        if between:
            idle, work = (each[self._row] for each in self._sums.between_s)
        return host_part(waited, launches, idle, work, between)

    def _slowest_stage_ps(self, direction: Direction) -> int:
        stages = [0] * self.graph.stages
        for seconds, node in zip(
            self._sums.bound_s[self._row].tolist(), self.graph.nodes, strict=True
        ):
            if node.direction == direction:
                stages[node.stage] += to_picoseconds(seconds)
        return max(stages)

    def tier(self) -> Tier:
        """The best tier in which, or in a better one, at least half of the kernels' time is;
        calibrated where whole models were measured.
        """
        if self.model.machine.evidence.whole is not None:
            return "calibrated"
        reached, whole = 0.0, float(self.exposed_s.sum())
        for tier, seconds in self.tier_seconds().items():
            reached += seconds
            if reached >= 0.5 * whole:
                return tier
        return "analytic"

    def tier_seconds(self) -> dict[Tier, float]:
        """Exposed time of kernels by tier, the best tier first; tiers without any are left out."""
        return dict(self._sums.tier_seconds[self._row])

    def family_seconds(self) -> dict[str, float]:
        """Exposed time of kernels by family, s."""
        family_seconds: dict[str, float] = {}
        for node, seconds in zip(self.graph.nodes, self.exposed_s.tolist(), strict=True):
            family = node.op.family
            family_seconds[family] = family_seconds.get(family, 0.0) + seconds
        return family_seconds

    def sum(self, direction: Direction | None = None) -> Sum:
        """What adds up to the step's time, or to that of one direction with its launches."""
        nodes, exposed, sums = self.times.nodes, self.exposed_s, self._sums
        between = 0.0
        if direction is not None:
            number = DIRECTIONS.index(direction)
            exposed = np.where(self.graph.direction == number, exposed, 0.0)
            waited = sums.launched_s((number,))[0][self._row]
        else:
            waited = sums.launched_s()[0][self._row]
            between = sums.between_s[0][self._row]
        tiers = sums.typical_tiers[self._row]
        heat = self.model.machine.state_log_sd(self.times.clock_hz)
        log_sd = sums.own_log_sd[self._row]
        return Sum(exposed, log_sd, nodes.shared, tiers, between + waited, waited, heat)

    def prediction(self, part: Part, *, direction: Direction | None = None) -> Prediction:
        """The prediction whose tree is ``part``.

        Args:
            direction: of a part of one direction.
        """
        total, uncertainty = self.sum(direction), self.model.uncertainty
        error = uncertainty.factors(total)
        narrowed = Later(lambda: uncertainty.narrowed(total, error))
        return self._prediction(part, error, narrowed)

    def _prediction(self, part: Part, error: ErrorFactors, narrowed: Later) -> Prediction:
        return Prediction(
            part=part,
            error=error,
            tier=self.tier(),
            domain=self.domain(),
            warnings=self.warnings(),
            narrowed=narrowed,
        )

    @staticmethod
    def several(model: StepModel, weighted: Sequence[tuple[StepTimes, F64]]) -> list[Breakdown]:
        """Sums of several steps by their weights, evaluated together; each is as alone."""
        groups: dict[tuple[int, int], list[int]] = {}
        for index, (times, weights) in enumerate(weighted):
            groups.setdefault((len(weights), id(times.part_of[0])), []).append(index)
        items: dict[int, Breakdown] = {}
        for (count, _), group in groups.items():
            most = max(MOST_VALUES // max(count * len(model.graph.nodes), 1), 1)
            for begin in range(0, len(group), most):
                part = group[begin : begin + most]
                several, weights_of = zip(*(weighted[index] for index in part), strict=True)
                sums = WeightedStates(model, several, weights_of)
                for row, index in enumerate(part):
                    items[index] = Breakdown(model, *weighted[index], sums, row)
        return [items[index] for index in range(len(weighted))]

    @staticmethod
    def times_alone(breakdowns: Sequence[Breakdown]) -> list[TimeAlone]:
        """What :meth:`predictions` say of times, without trees and reasons."""
        if not breakdowns:
            return []
        totals = [each.sum() for each in breakdowns]
        errors = breakdowns[0].model.uncertainty.factors_of(totals)
        return [
            TimeAlone(*each.exposed_ps(), error)
            for each, error in zip(breakdowns, errors, strict=True)
        ]

    @staticmethod
    def predictions(breakdowns: Sequence[Breakdown], names: Sequence[str]) -> list[Prediction]:
        """Predictions of sums of one model, each with the tree of parts of a name."""
        if not breakdowns:
            return []
        uncertainty = breakdowns[0].model.uncertainty
        totals = [each.sum() for each in breakdowns]
        errors = uncertainty.factors_of(totals)
        narrowed = cache(lambda: uncertainty.narrowed_of(totals, errors))

        def left(index: int) -> Later:
            return Later(lambda: narrowed()[index])

        return [
            each._prediction(each.part(name), error, left(index))  # noqa: SLF001 - its own class
            for index, (each, name, error) in enumerate(zip(breakdowns, names, errors, strict=True))
        ]

    def domain(self) -> Domain:
        """How far the kernels are from those that were measured, at worst; out of the domain where
        the model's structure was assumed, or where much of the time has no model or is that of
        sizes far from measured ones; near it where much of the time is that of kernels that stream
        data and that nobody measured.
        """
        if self.coverage.time_share < LEAST_COVERED:
            return "out"
        return worst_domain((self.model.domain, self._sizes[0], self._streams))

    @property
    def _streams(self) -> Domain:
        """Near where kernels that were not measured take a tenth of the time."""
        unmeasured = self.model.unmeasured_streams
        if not unmeasured:
            return "in"
        weighted = self.exposed_s
        apart = np.array([node.op.family in unmeasured for node in self.graph.nodes])
        share = float(weighted[apart].sum()) / max(float(weighted.sum()), 1e-30)
        return "in" if share < 1.0 - LEAST_COVERED else "near"

    @cached_property
    def _sizes(self) -> tuple[Domain, dict[str, float]]:
        """How far sizes are from measured ones, and of each family beyond them the share of the
        time: out of the domain where a tenth of the time is far away, near it where half is beyond.
        """
        if not len(self.times.nodes.beyond_measured):
            return "in", {}
        spent = self._sums.spent_s[self._row]
        for least, most in ((NEAR_OCTAVES, 1.0 - LEAST_COVERED), (0.0, 0.5)):
            of_node, wholes = self._sums.beyond_s(least)
            if wholes[self._row] > most * spent:
                shares: dict[str, float] = {}
                of_row = of_node[self._row].tolist()
                for node, seconds in zip(self.graph.nodes, of_row, strict=True):
                    if seconds:
                        shares[node.op.family] = shares.get(node.op.family, 0.0) + seconds / spent
                return domain_of(least + 1.0, measured=True), shares
        return "in", {}

    @cached_property
    def coverage(self) -> Coverage:
        """The shares of operations and time that have a model."""
        missing, total = self.graph.unmodelled, int(self.graph.counts.sum())
        if not any(missing):
            return Coverage(total, total, 1.0, {}, {})
        spent = self.exposed_s + self.hidden_s
        names: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for node, unknown, took in zip(self.graph.nodes, missing, spent.tolist(), strict=True):
            if unknown:
                name = node.source or node.name
                names[name] = names.get(name, 0) + node.count
                seconds[name] = seconds.get(name, 0.0) + took
        whole = float(spent.sum())
        known = float(spent[~np.array(missing, dtype=bool)].sum())
        return Coverage(
            operations=total,
            modelled=total - sum(names.values()),
            time_share=known / max(whole, 1e-30),
            unmodelled=dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))),
            shares={name: took / max(whole, 1e-30) for name, took in seconds.items()},
        )

    def warnings(self) -> tuple[str, ...]:
        """Fallbacks that a reader must know."""
        usual, missing = (*self._not_held(), *self.model.warnings), self.coverage.unmodelled
        if shares := self._sizes[1]:
            usual = (*usual, _beyond(shares))
        if not missing:
            return usual
        names = ", ".join(f"{name} x{n}" for name, n in list(missing.items())[:_SHOWN_NAMES])
        more = f" and {len(missing) - _SHOWN_NAMES} more" if len(missing) > _SHOWN_NAMES else ""
        message = f"no model of {names}{more}: their bytes and launches are counted, no more"
        return (message, *usual)

    def _not_held(self) -> tuple[str, ...]:
        """A remark where no clock holds the power limit that the user set."""
        if self.model.machine.power_w is None:
            return ()
        clock_hz = top_hz(self.model.machine.boosted_device)
        return not_held(self.times.clock_hz / clock_hz, clock_hz)


def _beyond(shares: Mapping[str, float]) -> str:
    """What a reader must know of kernels whose sizes lie beyond those that were measured.

    >>> _beyond({"attention_prefill": 0.98})
    'in sizes beyond all that were measured: attention prefill kernels (98 % of the time)'
    """
    named = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(
        f"{name.replace('_', ' ')} kernels ({share:.0%} of the time)".replace("%", " %")
        for name, share in named
        if share >= LEAST_NAMED
    )
    return f"in sizes beyond all that were measured: {told}"


def once(index: int, count: int) -> F64:
    """Weights of ``count`` states of which one runs once."""
    weights = np.zeros(count)
    weights[index] = 1.0
    return weights
