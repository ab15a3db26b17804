"""Time as a sum: prices of cycles and words under which no mapping costs more than its time.

The time of a mapping is that of the busiest of its compute units and ports, so at least any
average of them. With a weight for each, that sum to one, the average is a price a cycle of work and
a price a word at each port: what the search for least energy can make small, and bound. Weights
that make the least average large are looked for: those of what is busiest in the best mapping so
far grow (multiplicative weights; Arora, Hazan, Kale 2012).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.accelerator.architecture import Action, Architecture, FanOut, Memory, Port
from silicast.accelerator.cost import Cost, march_cycles
from silicast.accelerator.einsum import Einsum
from silicast.core.numerics import F64

STEP = 4.0
"""How much more what is busiest weighs in the next round, e-fold, to begin with."""


@final
@dataclass(frozen=True)
class Prices:
    """Prices of one set of weights.

    Attributes:
        cycle: of a cycle of the units' work.
        words: (memory, action, tensor) -> of a word, over all instances.
    """

    cycle: float
    words: dict[tuple[int, Action, str], float]

    def word(self, level: int, action: str, tensor: str) -> float:
        """Of a word that ``action`` (read_pj, fill_pj, update_pj) moves."""
        for known in ("read", "fill", "update"):
            if action.startswith(known):
                return self.words.get((level, known, tensor), 0.0)
        return 0.0


@final
class Busy:
    """What can be busiest on a design: the units, and every port."""

    def __init__(
        self, einsum: Einsum, architecture: Architecture, limits: Sequence[float]
    ) -> None:  # fmt: skip
        """``limits`` are the instances that loops can use at most, of each slot's axis."""
        self.einsum = einsum
        self.arch = architecture
        self.limits = limits
        self.ports: list[tuple[int, Port]] = [
            (level, port)
            for level, memory in enumerate(architecture.memories) for port in memory.ports
            if not port.tensors or set(port.tensors) & set(einsum.names)
        ]  # fmt: skip

    def start(self) -> F64:
        """Weights to begin with: the units half, the ports the rest."""
        if not self.ports:
            return np.ones(1)
        return np.array([0.5, *([0.5 / len(self.ports)] * len(self.ports))])

    def cycles(self, found: Cost) -> F64:
        """Cycles of the units and of every port, of a batch of one."""
        ports = [
            float(found.port_cycles[self.arch.memories[level].name, port.name][0])
            for level, port in self.ports
        ]
        marches = march_cycles(self.einsum, self.arch, found.traffic)
        work = found.traffic.steps / self.arch.compute.per_cycle + marches
        return np.array([float(work[0]) * self.arch.overhead, *ports])

    def reweighted(self, weights: F64, cycles: F64, step: float) -> F64:
        """Weights of the next round, after the cheapest mapping takes ``cycles``."""
        grown = weights * np.exp(step * cycles / cycles.max())
        result: F64 = grown / grown.sum()
        return result

    def prices(self, weights: F64) -> Prices:
        """The prices that belong to weights."""
        words: dict[tuple[int, Action, str], float] = {}
        for (level, port), weight in zip(self.ports, weights[1:], strict=True):
            price = float(weight) / port.words_per_cycle / self.arch.instances[level]
            for action in port.actions:
                for name in self.einsum.names:
                    if not port.tensors or name in port.tensors:
                        key = (level, action, name)
                        words[key] = words.get(key, 0.0) + price
        cycle = float(weights[0]) * self.arch.overhead
        for level, action, name, price in self._marches():
            key = (level, action, name)
            words[key] = words.get(key, 0.0) + cycle * price
        return Prices(cycle, words)

    def _marches(self) -> Iterator[tuple[int, Action, str, float]]:
        """Cycles that each word costs that is loaded into a systolic mesh, at least."""
        places = [n for n, node in enumerate(self.arch.nodes) if isinstance(node, Memory)]
        for place, node in enumerate(self.arch.nodes):
            if not (isinstance(node, FanOut) and node.systolic in self.einsum.names):
                continue
            for level, at in enumerate(places):
                memory = self.arch.memories[level]
                if at < place or not memory.may_keep(node.systolic):
                    continue
                if memory.must_keep(node.systolic) and memory.usable_words < np.inf:
                    lag = node.mesh[0] + sum(side - 1 for side in node.mesh)
                    slot = self.arch.memory_slots[level]
                    used = math.prod(
                        self.limits[s] for s in range(slot) if self.arch.slots[s].is_spatial
                    )
                    held = memory.usable_words * used
                    yield level, "fill", node.systolic, lag / held
                break

    def priced(self, prices: Prices) -> Architecture:
        """The design as the search sees it: only a cycle costs, apart from words."""
        nodes: list[Memory | FanOut] = [
            replace(node, cluster=1, block_words=1, leak_pj_per_cycle=0.0)
            if isinstance(node, Memory) else node
            for node in self.arch.nodes
        ]  # fmt: skip
        compute = replace(
            self.arch.compute, energy_pj=0.0, leak_pj_per_cycle=prices.cycle / self.arch.units
        )
        return replace(self.arch, nodes=tuple(nodes), compute=compute, idle_leaks=True)
