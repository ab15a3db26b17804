"""Energy and time of mappings, from what they move.

Energy is accesses times energy per access, plus leakage over the time; time is the busiest of the
compute units and every port. Formulas: docs/explanation/accelerator-accounting.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.accounting import Traffic, account
from silicast.accelerator.architecture import Action, Architecture, FanOut, Memory, Port
from silicast.accelerator.einsum import Einsum
from silicast.accelerator.mapping import MappingBatch
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64

Objective = Literal["energy", "latency", "edp"]
"""What a search makes small; ``edp`` is energy times delay."""


@final
@dataclass(frozen=True)
class Cost:
    """Costs of many mappings.

    Attributes:
        einsum, architecture: what was mapped, and on what.
        traffic: what each mapping moves.
        port_cycles: cycles of each port of each memory, (memory, port) -> array over mappings.
        exposed_cycles: of fills and drains that nothing overlaps, and of ramps, (mappings,).
        cycles: of the whole, (mappings,).
        access_pj: energy of accesses, (memories, tensors, mappings).
        leak_pj: (memories + 1, mappings), the last row the compute units'.
        compute_pj: (mappings,).
        hop_pj: (mappings,).
        fits: whether every tile fits its memory, (mappings,).
    """

    einsum: Einsum
    architecture: Architecture
    traffic: Traffic
    port_cycles: dict[tuple[str, str], F64]
    exposed_cycles: F64
    cycles: F64
    access_pj: F64
    leak_pj: F64
    compute_pj: F64
    hop_pj: F64
    fits: NDArray[np.bool_]

    @cached_property
    def energy_pj(self) -> F64:
        """Of the whole, (mappings,)."""
        total = self.compute_pj + self.hop_pj
        for level in range(self.access_pj.shape[0]):
            for tensor in range(self.access_pj.shape[1]):
                total = total + self.access_pj[level, tensor]
            total = total + self.leak_pj[level]
        result: F64 = total + self.leak_pj[-1]
        return result

    @cached_property
    def seconds(self) -> F64:
        """Of the whole, (mappings,)."""
        return self.cycles / self.architecture.clock_hz

    @cached_property
    def utilisation(self) -> F64:
        """Multiplications over what all units could do in the time, 0 to 1, (mappings,)."""
        peak = self.architecture.units * self.architecture.compute.per_cycle
        return self.einsum.points / (self.cycles * peak)


def cost(einsum: Einsum, architecture: Architecture, batch: MappingBatch) -> Cost:
    """Energy and time of each mapping of a batch.

    Raises:
        SilicastError: an action that happens has no energy.
    """
    return priced(einsum, architecture, account(einsum, architecture, batch))


def priced(einsum: Einsum, architecture: Architecture, traffic: Traffic) -> Cost:
    """The same, of traffic that was counted before, on this or another design of the same levels.

    Raises:
        SilicastError: an action that happens has no energy.
    """
    ports = port_cycles(einsum, architecture, traffic)
    marches = _marches(einsum, architecture, traffic)
    work = traffic.steps / architecture.compute.per_cycle + marches
    busiest = busiest_cycles(architecture, work, list(ports.values()))
    exposed = _exposed(einsum, architecture, traffic)
    total = busiest + np.ceil(exposed)
    return Cost(
        einsum=einsum,
        architecture=architecture,
        traffic=traffic,
        port_cycles=ports,
        exposed_cycles=exposed,
        cycles=total,
        access_pj=access_energy(architecture, traffic),
        leak_pj=_leakage(architecture, traffic, total),
        compute_pj=np.full(
            len(traffic),
            einsum.points * _known(architecture.compute.energy_pj, architecture.compute.name,
                                   "energy_pj"),
        ),
        hop_pj=_hops(architecture, traffic),
        fits=fitting(architecture, traffic),
    )  # fmt: skip


def value_of(found: Cost, objective: Objective) -> F64:
    """The objective of every mapping of a batch; infinite where its tiles do not fit."""
    values = {
        "energy": found.energy_pj,
        "latency": found.cycles,
        "edp": found.energy_pj * found.cycles,
    }[objective]
    return np.where(found.fits, values, np.inf)


def busiest_cycles(architecture: Architecture, work: F64, ports: Sequence[F64]) -> F64:
    """Cycles of the whole: the units with their stalls, or the busiest port.

    Args:
        work: cycles that the units need, (mappings,); ports: those of each port, likewise.
    """
    found: F64 = np.ceil(work * architecture.overhead)
    for cycles in ports:
        found = np.maximum(found, np.ceil(cycles))
    return found


def port_cycles(
    einsum: Einsum, architecture: Architecture, traffic: Traffic
) -> dict[tuple[str, str], F64]:
    """Cycles that each port needs for what goes through it, per instance that works."""
    found = {}
    for level, memory in enumerate(architecture.memories):
        for port in memory.ports:
            words = _words(einsum, traffic, level, port, port.actions)
            found[memory.name, port.name] = words / traffic.used[level] / port.words_per_cycle
    return found


def access_energy(architecture: Architecture, traffic: Traffic) -> F64:
    """Energy of all accesses, pJ, shape (memories, tensors, mappings)."""
    found = np.zeros_like(traffic.reads)
    for level, memory in enumerate(architecture.memories):
        used = traffic.used[level]
        wide = _wide_accesses(memory, architecture.instances[level], used)
        for words, energy, action in (
            (traffic.reads[level], memory.read_pj, "read_pj"),
            (traffic.fills[level], memory.fill_pj, "fill_pj"),
            (traffic.updates[level], memory.update_pj, "update_pj"),
        ):
            if energy is None and not words.any():
                continue
            # An instance makes whole accesses: its last block may be partly used.
            accesses = np.ceil(words / used / memory.block_words)
            found[level] += accesses * (_known(energy, memory.name, action) * wide)
    return found


def fitting(architecture: Architecture, traffic: Traffic) -> NDArray[np.bool_]:
    """Whether the tiles of all tensors fit every memory together."""
    found: NDArray[np.bool_] = np.ones(len(traffic), dtype=bool)
    for level, memory in enumerate(architecture.memories):
        if memory.capacity_words is not None:
            found &= traffic.tiles[level].sum(axis=0) <= memory.usable_words
    return found


def _wide_accesses(memory: Memory, instances: int, used: F64) -> F64:
    """Accesses that all instances make together for one access of each.

    Those of a cluster that work share theirs; they are spread evenly over the clusters.
    """
    return used if memory.cluster == 1 else np.minimum(used, instances / memory.cluster)


def _words(
    einsum: Einsum, traffic: Traffic, level: int, port: Port, actions: tuple[Action, ...]
) -> F64:
    total = np.zeros(len(traffic))
    for tensor, name in enumerate(einsum.names):
        if port.tensors and name not in port.tensors:
            continue
        for action in actions:
            counts = {"read": traffic.reads, "fill": traffic.fills, "update": traffic.updates}
            total = total + counts[action][level, tensor]
    return total


def _exposed(einsum: Einsum, architecture: Architecture, traffic: Traffic) -> F64:
    """Fills and drains of memories that cannot overlap them, and the ramps of the others.

    A ramp is the first tile's way in, through the slowest port that fills use.
    """
    total = np.zeros(len(traffic))
    for level, memory in enumerate(architecture.memories):
        if level == 0:
            continue
        for port in memory.ports:
            if "fill" not in port.actions:
                continue
            if memory.exposes_fills:
                words = _words(einsum, traffic, level, port, ("fill",))
                total = total + words / traffic.used[level] / port.words_per_cycle
            elif architecture.ramps:
                tiles = np.zeros(len(traffic))
                for tensor, name in enumerate(einsum.names):
                    if not port.tensors or name in port.tensors:
                        tiles = tiles + traffic.tiles[level, tensor]
                total = total + tiles / port.words_per_cycle
    return total


def _marches(einsum: Einsum, architecture: Architecture, traffic: Traffic) -> F64:
    """Cycles in which a systolic mesh is loaded, filled and emptied, over all its folds.

    A fold of an R x C mesh loads its stationary tile row by row (R cycles); then the last unit
    starts R + C - 2 cycles after the first. With T steps a fold takes 2 R + C + T - 2 cycles
    (SCALE-Sim, Samajdar et al., ISPASS 2020).
    """
    total = np.zeros(len(traffic))
    depth = [n for n, node in enumerate(architecture.nodes) if isinstance(node, Memory)]
    for place, node in enumerate(architecture.nodes):
        if not (isinstance(node, FanOut) and node.systolic in einsum.names):
            continue
        t = einsum.names.index(node.systolic)
        held = [
            level for level, at in enumerate(depth)
            if at > place and traffic.tiles[level, t].any()
        ]  # fmt: skip
        if held:
            words = traffic.fills[held[0], t] / traffic.used[held[0]]
            lag = node.mesh[0] + sum(side - 1 for side in node.mesh)
            total = total + words / traffic.tiles[held[0], t] * lag
    return total


def _leakage(architecture: Architecture, traffic: Traffic, cycles: F64) -> F64:
    rows = []
    for level, memory in enumerate(architecture.memories):
        count = architecture.instances[level] if architecture.idle_leaks else traffic.used[level]
        rows.append(cycles * count * (memory.leak_pj_per_cycle or 0.0))
    count = architecture.units if architecture.idle_leaks else traffic.units
    rows.append(cycles * count * (architecture.compute.leak_pj_per_cycle or 0.0))
    return np.stack(rows)


def _hops(architecture: Architecture, traffic: Traffic) -> F64:
    """A word that enters a mesh goes half its sides, on average, along each axis."""
    total = np.zeros(len(traffic))
    fans = [node for node in architecture.nodes if isinstance(node, FanOut)]
    for number, fan in enumerate(fans):
        if fan.hop_pj:
            distance = sum(side / 2 for side in fan.mesh)
            total = total + traffic.hops[number].sum(axis=0) * distance * fan.hop_pj
    return total


def _known(energy: float | None, name: str, action: str) -> float:
    if energy is None:
        raise SilicastError(
            "the action happens and has no energy", field=f"{name}.{action}",
            hint="give it in the architecture file, or read an energy table",
        )  # fmt: skip
    return energy
