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
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.design.architecture import (
    ACTIONS,
    Action,
    Architecture,
    FanOut,
    Memory,
    Port,
)
from silicast.accelerator.zeros._zero_shares import ZeroShares
from silicast.accelerator.zeros.formats import Fibers
from silicast.core.numerics import F64

GREAT = 4096.0
"""Words of a tile of which it is told what describes each."""
STEP = 4.0
"""How much more what is busiest weighs in the next round, e-fold, to begin with."""


@final
@dataclass(frozen=True)
class ObjectivePrices:
    """Prices of one set of weights.

    Attributes:
        cycle: of a cycle of the units' work.
        words: (memory, action, tensor) -> of a word, over all instances.
        held: (memory, tensor) -> share of a tile's words that take room, at least; left out, all.
    """

    cycle: float
    words: dict[tuple[int, Action, str], float]
    held: dict[tuple[int, str], float] = field(default_factory=dict)

    def word(self, level: int, action: str, tensor: str) -> float:
        """Of a word that ``action`` (read_pj, fill_pj, update_pj) moves."""
        for verb in ("read", "fill", "update"):
            if action.startswith(verb):
                return self.words.get((level, verb, tensor), 0.0)
        return 0.0


@final
class Busy:
    """What can be busiest on a design: the units, and every port."""

    def __init__(self, einsum: Einsum, architecture: Architecture, limits: Sequence[float]) -> None:
        """``limits`` are the instances that loops can use at most, of each slot's axis."""
        self.einsum = einsum
        self.arch = architecture
        self.limits = limits
        self.ports: list[tuple[int, Port]] = [
            (level, port)
            for level, memory in enumerate(architecture.memories)
            for port in memory.ports
            if not port.tensors or set(port.tensors) & set(einsum.names)
        ]

    def start(self) -> F64:
        """Weights to begin with: the units half, the ports the rest."""
        if not self.ports:
            return np.ones(1)
        return np.array([0.5, *([0.5 / len(self.ports)] * len(self.ports))])

    def cycles(self, cost: MappingCost) -> F64:
        """Cycles of the units and of every port, of a batch of one."""
        ports = [
            float(cost.port_cycles[self.arch.memories[level].name, port.name][0])
            for level, port in self.ports
        ]
        steps = cost.traffic.steps if cost.zeros is None else cost.zeros.steps
        work = steps / self.arch.compute.per_cycle + cost.march_cycles
        return np.array([float(work[0]) * self.arch.overhead, *ports])

    def reweighted(self, weights: F64, cycles: F64, step: float) -> F64:
        """Weights of the next round, after the cheapest mapping takes ``cycles``."""
        grown = weights * np.exp(step * cycles / cycles.max())
        result: F64 = grown / grown.sum()
        return result

    def prices(self, weights: F64, zeros: ZeroShares | None = None) -> ObjectivePrices:
        """The prices that belong to weights.

        Args:
            zeros: what is left of words and steps, at least, on designs that leave zeros out.
        """
        words: dict[tuple[int, Action, str], float] = {}
        for (level, port), weight in zip(self.ports, weights[1:], strict=True):
            price = float(weight) / port.words_per_cycle / self.arch.instances[level]
            for action in port.actions:
                for name in self.einsum.names:
                    if not port.tensors or name in port.tensors:
                        key = (level, action, name)
                        left = zeros.word(level, action, name, timed=True) if zeros else 1.0
                        left *= self.arch.memories[level].words_of(name)
                        words[key] = words.get(key, 0.0) + price * left
        cycle = float(weights[0]) * self.arch.overhead
        for level, action, name, price in self._marches():
            key = (level, action, name)
            words[key] = words.get(key, 0.0) + cycle * price
        if zeros is None:
            return ObjectivePrices(cycle, words)
        return ObjectivePrices(cycle * zeros.steps, words, held_of(zeros))

    def _marches(self) -> Iterator[tuple[int, Action, str, float]]:
        """Cycles that each word costs that is loaded into a systolic mesh, at least."""
        indices = [n for n, node in enumerate(self.arch.nodes) if isinstance(node, Memory)]
        for index, node in enumerate(self.arch.nodes):
            if not (isinstance(node, FanOut) and node.systolic in self.einsum.names):
                continue
            for level, at in enumerate(indices):
                memory = self.arch.memories[level]
                if at < index or not memory.may_keep(node.systolic):
                    continue
                if memory.loads_behind:  # a word may cost nothing
                    break
                if memory.must_keep(node.systolic) and memory.usable_words < np.inf:
                    lag = node.mesh[0] + sum(side - 1 for side in node.mesh)
                    slot = self.arch.memory_slots[level]
                    used = math.prod(
                        self.limits[s] for s in range(slot) if self.arch.slots[s].is_spatial
                    )
                    held = memory.usable_words / memory.words_of(node.systolic) * used
                    yield level, "fill", node.systolic, lag / held
                break

    def priced(self, prices: ObjectivePrices) -> Architecture:
        """The design as the search sees it: only a cycle costs, apart from words."""
        nodes: list[Memory | FanOut] = [
            replace(
                node, cluster=1, block_words=1, formats=(), eliminations=(), leak_pj_per_cycle=0.0
            )
            if isinstance(node, Memory)
            else node
            for node in self.arch.nodes
        ]
        compute = replace(
            self.arch.compute,
            energy_pj=0.0,
            on_zero="multiply",
            leak_pj_per_cycle=prices.cycle / self.arch.units,
        )
        return replace(
            self.arch, nodes=tuple(nodes), compute=compute, idle_leaks=True, every_cycle=()
        )


def held_of(zeros: ZeroShares) -> dict[tuple[int, str], float]:
    """Shares of tiles that take room, of all memories and tensors."""
    return {
        (level, tensor.name): zeros.held(level, tensor)
        for level in range(len(zeros.arch.memories))
        for tensor in zeros.einsum.tensors
    }


def energy_prices(zeros: ZeroShares, *, rounds: bool, guesses: bool = False) -> ObjectivePrices:
    """Least energy of words on a design that leaves zeros out; what describes them costs nothing.

    Args:
        guesses: what describes a word costs what it does in large tiles: no bound any more.
        rounds: reads of results, which every instance rounds down to whole words, are priced as
            they are, less than a word too high (:func:`rounding_pj`); otherwise as none.
    """
    words: dict[tuple[int, Action, str], float] = {}
    for level, memory in enumerate(zeros.arch.memories):
        for action in ACTIONS:
            energy = getattr(memory, f"{action}_pj")
            for tensor in zeros.einsum.tensors:
                share = zeros.word(level, action, tensor.name, timed=False)
                if not rounds and action == "read" and tensor.is_output and share < 1.0:
                    share = 0.0
                wide = memory.block_words * memory.cluster
                price = (energy or 0.0) / wide * share
                if guesses:
                    price += _described_pj(zeros, level, action, tensor)
                words[level, action, tensor.name] = price
    return ObjectivePrices(0.0, words, held_of(zeros))


def _described_pj(zeros: ZeroShares, level: int, action: Action, tensor: EinsumTensor) -> float:
    """Energy of what describes a word of a large tile, about."""
    memory = zeros.arch.memories[level]
    chosen = memory.format_of(tensor.name)
    if chosen is None:
        return 0.0
    fibers = Fibers(1.0, GREAT, GREAT * tensor.density.share, is_last=True)
    stored = chosen.ranks[-1].stored(fibers)
    each = (stored.metadata + stored.payload) / GREAT
    happens = zeros.word(level, action, tensor.name, timed=False) / zeros.held(level, tensor)
    store = memory.metadata
    energy = getattr(memory if store is None else store, f"{action}_pj") or 0.0
    return float(each * happens * energy / (memory if store is None else store).block_words)


def rounding_pj(architecture: Architecture) -> float:
    """Energy of a word that is read from every instance of every memory."""
    return sum(
        (memory.read_pj or 0.0) / memory.block_words * count
        for memory, count in zip(architecture.memories, architecture.instances, strict=True)
    )


def without_zeros(zeros: ZeroShares) -> Architecture:
    """The design as a search for least energy sees it, beside its prices."""
    nodes: list[Memory | FanOut] = [
        replace(node, cluster=1, block_words=1, formats=(), eliminations=())
        if isinstance(node, Memory)
        else node
        for node in zeros.arch.nodes
    ]
    unit = zeros.arch.compute
    # Steps that take no time are as many more in a cycle; units that leak while they work leak
    # less.
    leak = (unit.leak_pj_per_cycle or 0.0) * (1.0 if zeros.arch.idle_leaks else zeros.steps)
    compute = replace(
        unit,
        on_zero="multiply",
        energy_pj=(unit.energy_pj or 0.0) * zeros.products,
        leak_pj_per_cycle=leak,
        per_cycle=unit.per_cycle / zeros.steps,
    )
    return replace(zeros.arch, nodes=tuple(nodes), compute=compute)
