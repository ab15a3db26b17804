"""What fusion and second streams take off the kernels of a step.

Two streams share the device: each kernel alone keeps a share of its cores busy. Together they take
at least as long as the longer stream, and at least the sum of times x shares:

    together = max(main, side, sum of fill x time over both)

What that is below the sum of both is hidden, and taken off the side stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from silicast.composition.fusion import Branches, smallest_kernel_s
from silicast.composition.node_times import NodeTimes
from silicast.composition.placed import Placed
from silicast.composition.states import BatchStates
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device


@final
@dataclass(frozen=True, eq=False)
class Overlap:
    """What of a step runs together.

    Attributes:
        placed: nodes of the step.
        branches: those that run on two streams.
        replayed_tokens: decode steps with so many tokens replay a graph.
    """

    placed: Sequence[Placed]
    branches: Sequence[Branches]
    replayed_tokens: int

    def applied(
        self, nodes: NodeTimes, states: BatchStates, tokens: I64, device: Device
    ) -> NodeTimes:
        """The same nodes with exposed times.

        Bounds and needs shrink in proportion where a stream hides a node: the device is waited for
        that much less.

        Args:
            tokens: that each state runs, padding included.
        """
        fused = self._fused(nodes, tokens, device)
        shown = self._streams(replace(nodes, time_s=fused), states)
        if shown is nodes.time_s:
            return nodes
        kept = np.divide(shown, fused, out=np.ones_like(shown), where=fused > 0.0)
        if nodes.resources is not None:
            for name, seconds in nodes.resources.seconds.items():
                nodes.resources.seconds[name] = seconds * kept
        return replace(nodes, time_s=shown, bound_s=nodes.bound_s * kept, hidden_s=fused - shown)

    def saved(self, index: int, time_s: F64, bound_s: F64, tokens: I64, device: Device) -> F64:
        """Times of one node, shape (n,), without the launches that fusion saves; never below what
        it must move and compute.
        """
        for most in self.placed[index].saves:
            less = time_s - smallest_kernel_s(device) * (tokens <= most)
            time_s = np.where(time_s > 0.0, np.maximum(less, bound_s), 0.0)
        return time_s

    @cached_property
    def by_tokens(self) -> Overlap:
        """Of it, the streams whose nodes depend on the tokens of a step alone."""
        return self._of([pair for pair in self.branches if not pair.any_step])

    @cached_property
    def by_lengths(self) -> Overlap:
        """Of it, the streams whose nodes depend on the sequences' lengths."""
        return self._of([pair for pair in self.branches if pair.any_step])

    def hidden_s(self, nodes: NodeTimes, states: BatchStates, tokens: I64, device: Device) -> F64:
        """Of each state, the time that streams hide, shape (n,)."""
        found = np.zeros(len(states))
        hidden = self.applied(nodes, states, tokens, device).hidden_s
        if hidden is not None:
            for index, placed in enumerate(self.placed):
                found = found + hidden[index] * float(placed.count)
        return found

    def _of(self, branches: Sequence[Branches]) -> Overlap:
        """The nodes of some branches alone."""
        kept = sorted({place for pair in branches for place in (*pair.main, *pair.side)})
        place = {old: new for new, old in enumerate(kept)}
        moved = [
            replace(
                pair,
                main=tuple(place[i] for i in pair.main),
                side=tuple(place[i] for i in pair.side),
            )
            for pair in branches
        ]
        return Overlap([self.placed[i] for i in kept], moved, self.replayed_tokens)

    def _fused(self, nodes: NodeTimes, tokens: I64, device: Device) -> F64:
        if not any(placed.saves for placed in self.placed):
            return nodes.time_s
        time = nodes.time_s.copy()
        for index, placed in enumerate(self.placed):
            if placed.saves:
                time[index] = self.saved(index, time[index], nodes.bound_s[index], tokens, device)
        return time

    def _streams(self, nodes: NodeTimes, states: BatchStates) -> F64:
        """Times that the device is waited for, where two streams run at once."""
        if not self.branches:
            return nodes.time_s
        time = nodes.time_s.copy()
        replayed = (states.prefill_sequences == 0) & (states.tokens <= self.replayed_tokens)
        for pair in self.branches:
            main, side = (_total(time, places) for places in (pair.main, pair.side))
            shares = nodes.fill * time
            cores = _total(shares, pair.main) + _total(shares, pair.side)
            together = np.maximum(np.maximum(main, side), cores)
            does = (states.tokens <= pair.max_tokens) & (replayed | pair.any_step)
            hidden = np.where(does, np.minimum(np.maximum(main + side - together, 0.0), side), 0.0)
            left = 1.0 - np.divide(hidden, side, out=np.zeros_like(side), where=side > 0.0)
            for place in pair.side:
                time[place] = time[place] * left
        return time


def _total(table: F64, places: Sequence[int]) -> F64:
    """Sum over some nodes in their order."""
    found = np.zeros(table.shape[1])
    for place in places:
        found = found + table[place]
    return found
