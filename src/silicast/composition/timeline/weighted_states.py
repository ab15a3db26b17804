"""Sums of weighted states of steps, several side by side: the numbers of a breakdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.step.node_times import NodeTimes
from silicast.composition.step.step import StepModel, StepTimes
from silicast.core.numerics import F64, I64
from silicast.core.prediction import PICOSECONDS, TIERS, Tier

MOST_VALUES = 1 << 17
"""Numbers of a table of states that are summed together; results never depend on it."""
_MOST_EXACT = float(1 << 50)
"""Picoseconds of which 64 bits hold the sum over all nodes of a graph."""


@final
class WeightedStates:
    """Sums of weighted states of a step model; each is the same in any company.

    Args:
        model: the steps.
        times: of the states of each sum, as many in all, each at one clock.
        weights: of each sum, how often each state runs, shape (n,).

    Attributes:
        exposed_s, hidden_s: of all executions of each node, shape (sums, nodes).
        weighted_s: what each state adds to ``exposed_s``, shape (sums, nodes, n).
    """

    def __init__(
        self, model: StepModel, times: Sequence[StepTimes], weights: Sequence[F64]
    ) -> None:
        self._model, self._times = model, times
        self._counts = model.graph.counts[:, None]
        self._weights: F64 = np.array(weights)[:, None, :]
        self._exposed = self._stacked(lambda times: times.exposed_s)
        self._hidden = self._stacked(lambda times: times.hidden_s)
        self.weighted_s: F64 = self._exposed * self._weights
        self.exposed_s: F64 = self.weighted_s.sum(axis=2)
        self.hidden_s: F64 = self._over_states(self._hidden)
        self._host: dict[tuple[int, ...], tuple[list[float], list[float]]] = {}
        self._beyond: dict[float, tuple[F64, list[float]]] = {}

    def _stacked(self, table: Callable[[StepTimes], NDArray[Any]]) -> NDArray[Any]:
        return StepTimes.side_by_side(self._times, table)

    def _of_nodes(self, table: Callable[[NodeTimes], F64]) -> F64:
        return self._stacked(lambda times: table(times.nodes))

    def _over_states(self, table: F64) -> F64:
        over_states: F64 = (table * self._weights).sum(axis=2)
        return over_states

    @cached_property
    def typical(self) -> list[int]:
        """The state of each sum that runs most often."""
        typical: list[int] = self._weights[:, 0].argmax(axis=1).tolist()
        return typical

    @cached_property
    def runs(self) -> F64:
        """Executions of each node in each state, a hidden one for nothing: (sums, nodes, n)."""
        alone = self._exposed + self._hidden
        exposed_share = np.divide(self._exposed, alone, out=np.ones_like(alone), where=alone > 0.0)
        runs: F64 = exposed_share * self._counts
        return runs

    @cached_property
    def bound_s(self) -> F64:
        """Bounds shrink in proportion where a node is hidden: it is waited for that much less."""
        return self._over_states(self._of_nodes(lambda nodes: nodes.bound_s) * self.runs)

    @cached_property
    def ceiling_s(self) -> F64:
        """Of quick kernels of such problems, shape (sums, nodes); 0 = not known."""
        if not self._model.machine.evidence.ceilings:
            return np.zeros_like(self.exposed_s)
        return self._over_states(self._of_nodes(lambda nodes: nodes.ceiling_s()) * self._counts)

    @cached_property
    def picoseconds(self) -> list[list[list[int]]]:
        """Of each sum and node, what it adds, what is hidden, bound and ceiling."""
        tables = (self.exposed_s, self.hidden_s, self.bound_s, self.ceiling_s)
        whole: list[list[list[int]]] = whole_ps(np.stack(tables, axis=2)).tolist()
        return whole

    @cached_property
    def kernels_ps(self) -> list[tuple[int, int]]:
        """Of each sum, what all nodes add and their bounds, as :attr:`picoseconds` add up."""
        exposed, bound = whole_ps(self.exposed_s), whole_ps(self.bound_s)
        sums = exposed.sum(axis=1), np.minimum(bound, exposed).sum(axis=1)
        return list(zip(*(column.tolist() for column in sums), strict=True))

    @cached_property
    def own_log_sd(self) -> F64:
        """Log sd of each node's own error, shape (sums, nodes)."""
        independent = self._of_nodes(lambda nodes: nodes.independent)
        spread = (self.weighted_s * independent).sum(axis=2)
        once = self.exposed_s
        log_sd: F64 = np.divide(spread, once, out=np.zeros_like(once), where=once > 0.0)
        return log_sd

    @cached_property
    def _tiers(self) -> I64:
        return self._stacked(lambda times: times.nodes.tiers)

    @cached_property
    def typical_tiers(self) -> I64:
        """Tiers of the nodes of each sum in its typical state, shape (sums, nodes)."""
        tiers: I64 = self._tiers[np.arange(len(self._times)), :, self.typical]
        return tiers

    @cached_property
    def tier_seconds(self) -> list[dict[Tier, float]]:
        """Exposed time of kernels by tier, the best tier first; tiers without any are left out."""
        tiers: list[dict[Tier, float]] = [{} for _ in self._times]
        for number in reversed(range(len(TIERS))):
            if not (here := self._tiers == number).any():
                continue
            spent = self._over_states(self._exposed * here).sum(axis=1)
            for item, seconds in zip(tiers, spent.tolist(), strict=True):
                if seconds:
                    item[TIERS[number]] = seconds
        return tiers

    @cached_property
    def between_s(self) -> tuple[list[float], list[float]]:
        """Of each sum, time between steps that the device waits for, and the host's beside it."""
        weights = self._weights[:, 0]
        waited = (self._stacked(lambda times: times.between_s) * weights).sum(axis=1)
        beside = (self._stacked(lambda times: times.between_hidden_s) * weights).sum(axis=1)
        return waited.tolist(), beside.tolist()

    @cached_property
    def spent_s(self) -> list[float]:
        """Of each sum, time of all nodes."""
        spent_s: list[float] = self.weighted_s.reshape(len(self._times), -1).sum(axis=1).tolist()
        return spent_s

    def beyond_s(self, octaves: float) -> tuple[F64, list[float]]:
        """Time of sizes more than so many factors of two beyond all that were measured: of each sum
        and node, shape (sums, nodes), and of each sum.
        """
        if octaves not in self._beyond:
            apart = np.where(self._octaves_outside > octaves, self.weighted_s, 0.0).sum(axis=2)
            self._beyond[octaves] = apart, apart.sum(axis=1).tolist()
        return self._beyond[octaves]

    @cached_property
    def _octaves_outside(self) -> F64:
        return self._of_nodes(lambda nodes: nodes.octaves_outside)

    def launched_s(
        self, directions: Sequence[int] | None = None
    ) -> tuple[list[float], list[float]]:
        """Of each sum, time that the device waits for launches, and host time of all launches.

        Args:
            directions: whose launches count; None = of all.
        """
        chosen = tuple(range(len(self._times[0].waits_s)) if directions is None else directions)
        if chosen not in self._host:
            waits = self._stacked(lambda times: times.waits_s[list(chosen)])
            launches = self._stacked(lambda times: times.launches_s[list(chosen)])
            waited, launched = (
                (table * self._weights).reshape(len(table), -1).sum(axis=1).tolist()
                for table in (waits, launches)
            )
            self._host[chosen] = waited, launched
        return self._host[chosen]


def whole_ps(seconds: F64) -> NDArray[Any]:
    """As :func:`~silicast.core.prediction.to_picoseconds`; Python integers beyond 64 bits."""
    rounded = np.rint(seconds * PICOSECONDS)
    if rounded.max(initial=0.0) < _MOST_EXACT:
        return rounded.astype(np.int64)
    whole: NDArray[Any] = np.vectorize(int, otypes=[object])(rounded)
    return whole
