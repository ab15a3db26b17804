"""Energy and time of mappings, from what they move.

Energy is accesses times energy per access, plus leakage over the time; time is the busiest of the
compute units and every port. Formulas: docs/explanation/accelerator-accounting.md. Everything but
whether tiles fit can be a formula (:mod:`~silicast.accelerator.counting.closed_form`), as the
traffic that it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.accounting import AccessCounts, account
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.formula import Number, ceil, maximum, minimum, occurs
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Action, Architecture, FanOut, Memory, Port
from silicast.accelerator.zeros.sparse import SparseTraffic, account_zeros, holds
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64

Objective = Literal["energy", "latency", "edp"]
"""What a search makes small; ``edp`` is energy times delay."""
ROUNDING = 1e-12
"""Relative difference of sums of the same numbers in another order."""


@final
@dataclass(frozen=True)
class MappingCost:
    """Costs of many mappings.

    Attributes:
        einsum, architecture: what was mapped, and on what.
        traffic: what each mapping moves, zeros among the rest.
        zeros: what is left of it once zeros are left out; None where the design knows of none.
        points: multiplications, (mappings,).
        port_cycles: cycles of each port of each memory, (memory, port) -> array over mappings.
        march_cycles: in which systolic meshes are loaded, filled and emptied while no unit works,
            (mappings,).
        loading_cycles: that they take alone, units at work or not, (mappings,).
        exposed_cycles: of fills and drains that nothing overlaps, and of ramps, (mappings,).
        cycles: of the whole, (mappings,).
        access_pj: energy of accesses, (memories, tensors, mappings).
        leak_pj: (memories + 1, mappings), the last row the compute units'.
        compute_pj: (mappings,).
        hop_pj: (mappings,).
        unknown: actions that happen, whose energy nobody gave and no total holds.
    """

    einsum: Einsum
    architecture: Architecture
    traffic: AccessCounts
    zeros: SparseTraffic | None
    points: F64
    port_cycles: dict[tuple[str, str], F64]
    march_cycles: F64
    loading_cycles: F64
    exposed_cycles: F64
    cycles: F64
    access_pj: F64
    leak_pj: F64
    compute_pj: F64
    hop_pj: F64
    unknown: tuple[str, ...] = ()

    @cached_property
    def energy_pj(self) -> F64:
        total = self.compute_pj + self.hop_pj
        if self.architecture.every_cycle:
            total = total + self.cycles * self.architecture.cycle_pj
        for level in range(self.access_pj.shape[0]):
            for tensor in range(self.access_pj.shape[1]):
                total = total + self.access_pj[level, tensor]
            total = total + self.leak_pj[level]
        result: F64 = total + self.leak_pj[-1]
        return result

    @cached_property
    def uncounted(self) -> tuple[str, ...]:
        """Energies that nobody gave and the total lacks, as ``level.field``."""
        missing = [
            f"{memory.name}.leak_pj"
            for memory in self.architecture.memories
            if memory.leak_pj_per_cycle is None
        ]
        if self.architecture.compute.leak_pj_per_cycle is None:
            missing.append(f"{self.architecture.compute.name}.leak_pj")
        missing += [
            f"{node.name}.hop_pj"
            for node in self.architecture.nodes
            if isinstance(node, FanOut) and node.hop_pj is None
        ]
        return (*self.unknown, *missing)

    @cached_property
    def words(self) -> F64:
        """What all instances of each memory move, with what describes it, (memories, tensors,
        mappings); of one mapping as formulas, (memories, tensors).
        """
        if self.zeros is None:
            moved = self.traffic.reads + self.traffic.fills + self.traffic.updates
            ratios = word_ratios(self.einsum, self.architecture)
            return moved * (ratios if moved.ndim == 2 else ratios[:, :, None])
        counts = _MovedWords(self.einsum, self.architecture, self.traffic, self.zeros)
        total = np.zeros_like(self.traffic.reads)
        for level, t in np.ndindex(total.shape[:2]):
            for _, name in _FIELDS:
                total[level, t] += counts.timed(level, t, name)
            total[level, t] *= self.traffic.used[level]
        return total

    @cached_property
    def seconds(self) -> F64:
        return self.cycles / self.architecture.clock_hz

    @cached_property
    def products(self) -> F64:
        """Multiplications that happen, (mappings,)."""
        return self.points if self.zeros is None else self.zeros.computes.actual

    @cached_property
    def utilisation(self) -> F64:
        """Multiplications over what all units could do in the time, 0 to 1, (mappings,)."""
        peak = self.architecture.units * self.architecture.compute.per_cycle
        utilisation: F64 = self.products / (self.cycles * peak)
        return utilisation

    def held(self, level: int) -> tuple[F64, F64]:
        """Words of one instance of a memory: values of all tiles, and what describes them."""
        described = np.zeros(len(self.traffic))
        memory = self.architecture.memories[level]
        if self.zeros is None:
            ratios = word_ratios(self.einsum, self.architecture)[level]
            tiles = self.traffic.tiles[level] * ratios[:, None]
            return memory.taken(tiles).sum(axis=0), described
        for t in range(len(self.einsum.tensors)):
            if (level, t) in self.zeros.formats:
                described = described + self.zeros.formats[level, t].total("stored")
        return memory.taken(self.zeros.stored[level]).sum(axis=0), described

    def left(self, level: int) -> F64:
        """Words that one instance of a memory has left; below zero, that are missing."""
        values, described = self.held(level)
        memory = self.architecture.memories[level]
        if self.zeros is not None:
            return holds(memory, values, described)
        return memory.usable_words - values

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the tiles of all tensors fit every memory together, (mappings,)."""
        fits: NDArray[np.bool_] = np.ones(len(self.traffic), dtype=bool)
        for level in range(len(self.architecture.memories)):
            fits &= self.left(level) >= 0
        return fits


def cost(
    einsum: Einsum, architecture: Architecture, batch: MappingBatch, sizes: F64 | None = None
) -> MappingCost:
    """Energy and time of each mapping of a batch.

    Args:
        sizes: as of :func:`.account`.

    Raises:
        SilicastError: an action that happens has no energy.
    """
    traffic = account(einsum, architecture, batch, sizes)
    zeros = None
    if architecture.knows_zeros:
        zeros = account_zeros(einsum, architecture, batch, traffic, sizes)
    return cost_of(einsum, architecture, traffic, sizes, zeros)


def cost_of(
    einsum: Einsum,
    architecture: Architecture,
    traffic: AccessCounts,
    sizes: Sequence[Number] | F64 | None = None,
    zeros: SparseTraffic | None = None,
) -> MappingCost:
    """:func:`cost` of what is already counted."""
    points = float(einsum.points) if sizes is None else math.prod(sizes, start=1.0)
    moved = _MovedWords(einsum, architecture, traffic, zeros)
    ports = moved.port_cycles()
    steps = traffic.steps if zeros is None else zeros.steps
    unit_cycles = steps / architecture.compute.per_cycle
    marches, loading = march_cycles(einsum, architecture, traffic, unit_cycles)
    work = unit_cycles + marches
    hidden = [
        ports[memory.name, port.name]
        for memory in architecture.memories
        for port in memory.hidden_ports
    ]
    busiest = busiest_cycles(architecture, work, hidden)
    exposed = moved.exposed_cycles()
    total = busiest + ceil(exposed)
    compute = architecture.compute
    energy = _known(compute.energy_pj, compute.name, "energy_pj")
    if zeros is None:
        computes = moved.none + points * energy
    else:
        computes = zeros.computes.actual * energy + zeros.computes.gated * compute.gated_pj
    return MappingCost(
        einsum=einsum,
        architecture=architecture,
        traffic=traffic,
        zeros=zeros,
        points=moved.none + points,
        port_cycles=ports,
        march_cycles=marches,
        loading_cycles=loading,
        exposed_cycles=exposed,
        cycles=total,
        access_pj=moved.access_pj(),
        leak_pj=_leakage(architecture, traffic, total),
        compute_pj=computes,
        hop_pj=_hops(architecture, traffic, moved),
        unknown=tuple(moved.unknown),
    )


def objective_value(objective: Objective, energy: float, time: float) -> float:
    """What is made small, of an energy and a time in any units.

    >>> objective_value("edp", 3.0, 2.0)
    6.0
    """
    return {"energy": energy, "latency": time, "edp": energy * time}[objective]


def value_of(result: MappingCost, objective: Objective) -> F64:
    """The objective of every mapping of a batch; infinite where its tiles do not fit."""
    values = {
        "energy": result.energy_pj,
        "latency": result.cycles,
        "edp": result.energy_pj * result.cycles,
    }[objective]
    return np.where(result.fits, values, np.inf)


@final
@dataclass(frozen=True)
class MappingRank:
    """How good one mapping is: less of the objective, and of two that are equal the faster."""

    value: float
    cycles: float

    def is_before(self, other: MappingRank) -> bool:
        """Whether it is the better one; sums that differ in rounding only are equal.

        >>> slow, fast = MappingRank(2.0, 9.0), MappingRank(2.0, 1.0)
        >>> slow.is_before(MappingRank(3.0, 1.0)), fast.is_before(slow), slow.is_before(fast)
        (True, True, False)
        """
        if self.value < other.value * (1 - ROUNDING):
            return True
        return self.value <= other.value * (1 + ROUNDING) and self.cycles < other.cycles


UNRANKED = MappingRank(math.inf, math.inf)
"""Behind every mapping that fits."""


def best_of(values: F64, cycles: F64) -> int:
    """The mapping of a batch that ranks first.

    >>> best_of(np.array([3.0, 2.0, 2.0]), np.array([1.0, 9.0, 4.0]))
    2
    """
    equal = values <= values.min() * (1 + ROUNDING)
    return int(np.argmin(np.where(equal, cycles, np.inf)))


def busiest_cycles(architecture: Architecture, work: Number, ports: Sequence[Number]) -> Number:
    """Cycles of the whole: the units with their stalls, or the busiest port.

    Args:
        work: cycles that the units need, (mappings,); ports: those of each port, likewise.
    """
    busiest = ceil(work * architecture.overhead)
    for cycles in ports:
        busiest = maximum(busiest, ceil(cycles))
    return busiest


def _wide_accesses(memory: Memory, instances: int, used: Number) -> Number:
    """Accesses that all instances make together for one access of each.

    Those of a cluster that work share theirs; they are spread evenly over the clusters.
    """
    return used if memory.cluster == 1 else minimum(used, instances / memory.cluster)


_FIELDS: tuple[tuple[Action, str], ...] = (
    ("read", "reads"),
    ("fill", "fills"),
    ("update", "updates"),
)


@final
class _MovedWords:
    """Words that one instance of a memory moves, and what that takes."""

    def __init__(
        self,
        einsum: Einsum,
        architecture: Architecture,
        traffic: AccessCounts,
        zeros: SparseTraffic | None,
    ) -> None:
        self.einsum = einsum
        self.arch = architecture
        self.traffic = traffic
        self.zeros = zeros
        self.ratios = word_ratios(einsum, architecture)
        self.unknown: dict[str, None] = {}
        self.none: Number = none_of(traffic)
        """Nothing of every mapping."""

    def accesses(self, level: int, t: int, name: str) -> Number:
        """Words of one kind of access that an instance really moves, without what zeros save."""
        if self.zeros is None:
            words = getattr(self.traffic, name)[level, t] / self.traffic.used[level]
            ratio = self.ratios[level, t]
            return words if ratio == 1.0 else words * float(ratio)
        return getattr(self.zeros, name).actual[level, t]

    def timed(self, level: int, t: int, name: str) -> Number:
        """Words that take their time: also those that are gated, and what describes them."""
        number = self.accesses(level, t, name)
        if self.zeros is None:
            return number
        return number + getattr(self.zeros, name).gated[level, t] + self.described(level, t, name)

    def described(self, level: int, t: int, name: str) -> Number:
        """Metadata, in words of the memory's values."""
        memory = self.arch.memories[level]
        formatted = None if self.zeros is None else self.zeros.formats.get((level, t))
        if formatted is None:
            return self.none
        bits = memory.word_bits if memory.metadata is None else memory.metadata.word_bits
        return formatted.total(name) * (bits / memory.word_bits)

    def words(self, level: int, port: Port, actions: tuple[Action, ...]) -> Number:
        """What goes through a port."""
        total = self.none
        for t, tensor in enumerate(self.einsum.names):
            if port.tensors and tensor not in port.tensors:
                continue
            for action in actions:
                total = total + self.timed(level, t, dict(_FIELDS)[action])
        return total

    def port_cycles(self) -> dict[tuple[str, str], F64]:
        """Cycles that each port needs for what goes through it, per instance that works."""
        return {
            (memory.name, port.name): self.words(level, port, port.actions) / port.words_per_cycle
            for level, memory in enumerate(self.arch.memories)
            for port in memory.ports
        }

    def exposed_cycles(self) -> Number:
        """Ports and fills that nothing overlaps, and the ramps of the others.

        A ramp is the first tile's way in, through the slowest port that fills use.
        """
        total = self.none
        for level, memory in enumerate(self.arch.memories):
            for port in memory.ports:
                if port.exposed:
                    total = total + self.words(level, port, port.actions) / port.words_per_cycle
                    continue
                if level == 0 or "fill" not in port.actions:
                    continue
                if memory.exposes_fills:
                    total = total + self.words(level, port, ("fill",)) / port.words_per_cycle
                elif self.arch.ramps:
                    tiles = self.none
                    for t, name in enumerate(self.einsum.names):
                        if not port.tensors or name in port.tensors:
                            tiles = tiles + self.stored(level, t)
                    total = total + tiles / port.words_per_cycle
        return total

    def stored(self, level: int, t: int) -> Number:
        """Values that an instance holds of a tensor, at most."""
        held = self.traffic.tiles if self.zeros is None else self.zeros.stored
        ratio = self.ratios[level, t]
        return held[level, t] if ratio == 1.0 else held[level, t] * float(ratio)

    def access_pj(self) -> Number:
        """Energy of all accesses, pJ, shape (memories, tensors, mappings)."""
        number = np.full_like(self.traffic.reads, 0.0)
        for level, memory in enumerate(self.arch.memories):
            wide = _wide_accesses(memory, self.arch.instances[level], self.traffic.used[level])
            for t in range(len(self.einsum.tensors)):
                for action, name in _FIELDS:
                    words = self.accesses(level, t, name)
                    energy = getattr(memory, f"{action}_pj")
                    if energy is None and not occurs(words):
                        continue
                    if self.zeros is None:
                        # An instance makes whole accesses: its last block may be partly used.
                        blocks = ceil(words / float(memory.block_words))
                    else:
                        blocks = getattr(self.zeros, name).accesses[level, t]
                    number[level, t] += blocks * (
                        _known(energy, memory.name, f"{action}_pj") * wide
                    )
                if self.zeros is not None:
                    number[level, t] += self.zeros_pj(self.zeros, level, t) * wide
        return number

    def crossing(self, number: int, index: int) -> Number:
        """Words through a fan-out: of the dense ones as many as their memory really sends."""
        total = self.none
        above = sum(isinstance(node, Memory) for node in self.arch.nodes[:index])
        for t, tensor in enumerate(self.einsum.tensors):
            name = "updates" if tensor.is_output else "reads"
            levels = [lv for lv in range(above) if occurs(self.traffic.tiles[lv, t])]
            dense = getattr(self.traffic, name)[levels[-1], t] / self.traffic.used[levels[-1]]
            sent = self.accesses(levels[-1], t, name)
            part = np.divide(sent, dense, out=np.zeros_like(sent), where=dense > 0)
            total = total + self.traffic.hops[number, t] * part
        return total

    def zeros_pj(self, zeros: SparseTraffic, level: int, t: int) -> Number:
        """Energy of one instance for metadata, recoding and accesses that are gated."""
        memory = self.arch.memories[level]
        total = self.none
        for _, name in _FIELDS:
            gated = getattr(zeros, name).gated[level, t]
            total = total + np.ceil(gated / memory.block_words) * memory.gated_pj
        for words, energy, field in (
            (zeros.expanded[level, t], memory.expand_pj, "expand_pj"),
            (zeros.compressed[level, t], memory.compress_pj, "compress_pj"),
        ):
            if words.any():
                total = total + words * self.optional(energy, memory.name, field)
        formatted = zeros.formats.get((level, t))
        if formatted is not None:
            for action, name in _FIELDS:
                total = total + self.metadata_pj(memory, action, getattr(formatted, name))
        return total

    def metadata_pj(self, memory: Memory, action: Action, ranks: F64) -> Number:
        """Energy of one instance for metadata, of its own or among the values."""
        total = self.none
        if not ranks.any():
            return total
        store = memory.metadata
        block = memory.block_words if store is None else store.block_words
        if store is None:
            energy = _known(getattr(memory, f"{action}_pj"), memory.name, f"{action}_pj")
        else:
            energy = self.optional(
                getattr(store, f"{action}_pj"), memory.name, f"metadata.{action}_pj"
            )
        for kind in range(2):
            for rank in range(ranks.shape[0]):
                total = total + np.ceil(ranks[rank, kind] / block) * energy
        return total

    def optional(self, energy: float | None, name: str, action: str) -> float:
        """An energy that may be unknown, which the answer then says."""
        if energy is None:
            self.unknown[f"{name}.{action}"] = None
            return 0.0
        return energy


def word_ratios(einsum: Einsum, architecture: Architecture) -> F64:
    """Words that an element of each tensor takes in each memory, (memories, tensors)."""
    return np.array(
        [[memory.words_of(name) for name in einsum.names] for memory in architecture.memories]
    )


def none_of(traffic: AccessCounts) -> Number:
    """Zero for every mapping."""
    return np.zeros(len(traffic)) if isinstance(traffic.steps, np.ndarray) else 0.0


def march_cycles(
    einsum: Einsum, architecture: Architecture, traffic: AccessCounts, unit_cycles: Number
) -> tuple[Number, Number]:
    """Cycles in which a systolic mesh is loaded, filled and emptied, over all its folds.

    A fold of an R x C mesh loads its stationary tile row by row (R cycles); then the last unit
    starts R + C - 2 cycles after the first. With T steps a fold takes 2 R + C + T - 2 cycles
    (SCALE-Sim, Samajdar et al., ISPASS 2020).

    Where units hold two tiles, the next one is loaded while they work on the first, and its
    products follow the others' without a gap: F folds take F T steps, R + R + C - 2 cycles once,
    and R - T more for all but the last where loading takes longer than the work.

    Args:
        unit_cycles: T of all folds together, (mappings,).

    Returns:
        cycles beside those of the units, and what loading takes alone; (mappings,) each.
    """
    added = alone = none_of(traffic)
    depth = [n for n, node in enumerate(architecture.nodes) if isinstance(node, Memory)]
    for index, node in enumerate(architecture.nodes):
        if not (isinstance(node, FanOut) and node.systolic in einsum.names):
            continue
        t = einsum.names.index(node.systolic)
        held = [
            level
            for level, at in enumerate(depth)
            if at > index and occurs(traffic.tiles[level, t])
        ]
        if held:
            # Words that stay come from above, or are results that begin there.
            came = traffic.fills[held[0], t] + traffic.distinct[held[0], t]
            folds = came / traffic.used[held[0]] / traffic.tiles[held[0], t]
            rows = float(node.mesh[0])
            lag = rows + sum(side - 1 for side in node.mesh)
            if architecture.memories[held[0]].loads_behind:
                waits = maximum(folds * rows - unit_cycles, 0.0) * (maximum(folds, 1.0) - 1.0)
                added = added + lag + waits / maximum(folds, 1.0)
                alone = alone + lag + folds * rows
            else:
                added = added + folds * lag
                alone = alone + folds * lag
    return added, alone


def _leakage(architecture: Architecture, traffic: AccessCounts, cycles: F64) -> Number:
    rows = []
    for level, memory in enumerate(architecture.memories):
        count = architecture.instances[level] if architecture.idle_leaks else traffic.used[level]
        rows.append(cycles * count * (memory.leak_pj_per_cycle or 0.0))
    count = architecture.units if architecture.idle_leaks else traffic.units
    rows.append(cycles * count * (architecture.compute.leak_pj_per_cycle or 0.0))
    return np.array(rows)


def _hops(architecture: Architecture, traffic: AccessCounts, moved: _MovedWords) -> Number:
    """A word that enters a mesh goes half its sides, on average, along each axis."""
    total = moved.none
    number = -1
    for index, fan in enumerate(architecture.nodes):
        if not isinstance(fan, FanOut):
            continue
        number += 1
        if not fan.hop_pj:
            continue
        words = traffic.hops[number].sum(axis=0)
        if moved.zeros is not None:
            words = moved.crossing(number, index)
        distance = sum(side / 2 for side in fan.mesh)
        total = total + words * distance * fan.hop_pj
    return total


def _known(energy: float | None, name: str, action: str) -> float:
    if energy is None:
        raise SilicastError(
            "the action happens and has no energy",
            field=f"{name}.{action}",
            hint="give it in the architecture file, read an energy table, or map for time alone "
            "(--objective latency)",
        )
    return energy
