"""What a designed accelerator is made of: memories, fan-outs and compute, outermost first.

A chain, not a drawing: a memory that keeps one tensor only is passed by the others, which is how
separate buffers for weights, inputs and results stand in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, final

import numpy as np

from silicast.accelerator.counting.einsum import OUTPUTS
from silicast.accelerator.zeros.formats import TensorFormat
from silicast.core.numerics import F64

Action = Literal["read", "fill", "update"]
"""``read``: words to below, and read-modify-write; ``fill``: words from above; ``update``: results
from below."""

ACTIONS: tuple[Action, ...] = ("read", "fill", "update")


@final
@dataclass(frozen=True)
class Port:
    """Wires of one instance of a memory.

    Attributes:
        name: for messages ("read").
        words_per_cycle: what all ``actions`` of all ``tensors`` share.
        actions: which use it.
        tensors: which use it; empty = all.
        exposed: the units wait while it moves words; otherwise they work meanwhile.
    """

    name: str
    words_per_cycle: float
    actions: tuple[Action, ...] = ACTIONS
    tensors: tuple[str, ...] = ()
    exposed: bool = False


@final
@dataclass(frozen=True)
class Elimination:
    """Accesses that are left out because what they would be multiplied with is zero.

    Attributes:
        kind: ``skip`` goes on to what is needed and takes no time; ``gate`` idles for the cycle.
        target: tensor whose accesses are left out.
        conditions: tensors; an access is left out where all that one of them has for it is zero.
    """

    kind: Literal["skip", "gate"]
    target: str
    conditions: tuple[str, ...]


@final
@dataclass(frozen=True)
class MetadataStore:
    """Where a memory keeps what describes its compressed tensors.

    Attributes:
        word_bits: of one word of metadata.
        block_words: words of one access.
        capacity_words: of one instance; None = never full.
        read_pj, fill_pj, update_pj: energy of one access; None = not known.
    """

    word_bits: int = 8
    block_words: int = 1
    capacity_words: float | None = None
    read_pj: float | None = None
    fill_pj: float | None = None
    update_pj: float | None = None


@final
@dataclass(frozen=True)
class Memory:
    """One level of storage; its loops, in a mapping, walk over the tiles of the level below.

    Attributes:
        name: in mappings and constraints.
        capacity_words: of one instance; None = never full.
        word_bits: of one word.
        tensor_bits: (tensor, bits of an element), whole words, of those wider than one word.
        block_words: words that one access moves; the energies are of one access.
        cluster: instances whose accesses are one wide access (a register of a vector unit).
        buffers: tiles held at once (2 = double buffering): divides the capacity.
        bank_words: of a bank, which holds words of one tensor only; None = words of any tensor
            stand side by side.
        exposes_fills: no work goes on while a tile is filled or drained (one buffer, no overlap).
        keeps: tensors that it must keep; ``None`` = all.
        may_bypass: tensors of ``keeps`` that a mapping may leave out.
        ports: none = no limit on traffic.
        read_pj, fill_pj, update_pj: energy of one access; None = not known.
        leak_pj_per_cycle: of one instance; None = not counted.
        area_um2: of one instance; None = not known.
        formats: of the tensors that it keeps without their zeros.
        eliminations: accesses that it leaves out.
        metadata: apart from the values; None = among them, in words like theirs.
        gated_pj: energy of an access that is gated, beyond leakage.
        expand_pj, compress_pj: energy of a word that is brought into, or out of, the form with all
            its zeros on its way between this memory and the one above; None = not known.
        recodes: it expands what comes compressed from above, and compresses what goes there.
    """

    name: str
    capacity_words: float | None = None
    word_bits: int = 8
    block_words: int = 1
    cluster: int = 1
    buffers: float = 1
    exposes_fills: bool = False
    keeps: tuple[str, ...] | None = None
    may_bypass: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    read_pj: float | None = None
    fill_pj: float | None = None
    update_pj: float | None = None
    leak_pj_per_cycle: float | None = None
    area_um2: float | None = None
    formats: tuple[TensorFormat, ...] = ()
    eliminations: tuple[Elimination, ...] = ()
    metadata: MetadataStore | None = None
    gated_pj: float = 0.0
    expand_pj: float | None = None
    compress_pj: float | None = None
    recodes: bool = False
    bank_words: float | None = None
    tensor_bits: tuple[tuple[str, int], ...] = ()

    def words_of(self, tensor: str) -> float:
        """Words that an element of a tensor takes.

        >>> Memory("sums", word_bits=8, tensor_bits=(("Outputs", 32),)).words_of("Outputs")
        4.0
        """
        return dict(self.tensor_bits).get(tensor, self.word_bits) / self.word_bits

    def taken(self, words: F64) -> F64:
        """Room that a tile of one tensor takes: whole banks."""
        if self.bank_words is None:
            return words
        value: F64 = np.ceil(words / self.bank_words) * self.bank_words
        return value

    def format_of(self, tensor: str) -> TensorFormat | None:
        """How it keeps a tensor; None = with all its zeros."""
        return next((each for each in self.formats if each.tensor == tensor), None)

    @property
    def usable_words(self) -> float:
        """What tiles may fill of one instance; infinite where nothing limits it."""
        return math.inf if self.capacity_words is None else self.capacity_words / self.buffers

    @property
    def loads_behind(self) -> bool:
        """Whether the next tile comes in while the units work on another."""
        return self.buffers >= 2

    @property
    def hidden_ports(self) -> tuple[Port, ...]:
        """Ports that work while the units do: what limits its bandwidth."""
        return tuple(port for port in self.ports if not port.exposed)

    def must_keep(self, tensor: str) -> bool:
        """Whether every mapping keeps ``tensor`` here."""
        return self.may_keep(tensor) and tensor not in self.may_bypass

    def may_keep(self, tensor: str) -> bool:
        """Whether a mapping can keep ``tensor`` here."""
        return self.keeps is None or tensor in self.keeps


@final
@dataclass(frozen=True)
class FanOut:
    """One instance above, ``mesh[0] * mesh[1] * ...`` below.

    Attributes:
        name: in mappings and constraints.
        mesh: sizes of its axes.
        multicast: one read above serves all instances below that take the same tile.
        reduction: results of instances below that belong to one output are added on the way.
        systolic: tensor that stays in the units while the others march through them, one step of
            the mesh a cycle; "" = every unit is reached at once.
        hop_pj: energy of a word over one link of the mesh; None = not counted.
        waits: its instances wait for the one with most work after every tile; otherwise queues
            between them are long enough that only the sum counts.
    """

    name: str
    mesh: tuple[int, ...]
    multicast: bool = True
    reduction: bool = True
    systolic: str = ""
    hop_pj: float | None = None
    waits: bool = False

    @property
    def size(self) -> int:
        """Instances below for each one above."""
        return math.prod(self.mesh)


@final
@dataclass(frozen=True)
class Compute:
    """The innermost node: a unit that multiplies and adds.

    Attributes:
        name: for messages.
        per_cycle: multiplications of one unit and cycle.
        energy_pj: of one multiplication and addition; None = not known.
        leak_pj_per_cycle, area_um2: of one unit; None = not counted.
        on_zero: what it does with an operand that is there and zero: multiply, ``gate`` (idle for
            the cycle) or ``skip`` (take no cycle).
        gated_pj: energy of a multiplication that is gated, beyond leakage.
    """

    name: str
    per_cycle: float = 1.0
    energy_pj: float | None = None
    leak_pj_per_cycle: float | None = None
    area_um2: float | None = None
    on_zero: Literal["multiply", "gate", "skip"] = "multiply"
    gated_pj: float = 0.0


Node = Memory | FanOut


@final
@dataclass(frozen=True)
class Slot:
    """A place for loops: those of a memory (in time), or of one axis of a fan-out (in space).

    Attributes:
        node: index of the memory or fan-out.
        axis: of the fan-out; -1 for a memory.
        limit: instances of the axis; infinite in time.
    """

    node: int
    axis: int
    limit: float

    @property
    def is_spatial(self) -> bool:
        """Whether its loops run in space."""
        return self.axis >= 0


@final
@dataclass(frozen=True)
class Architecture:
    """A design.

    Attributes:
        name: of the design.
        nodes: memories and fan-outs, outermost first; the first is a memory that all tensors
            start and end in.
        compute: what stands below the last node.
        clock_hz: cycles a second.
        idle_leaks: instances without work leak too.
        overhead: cycles that a cycle of work takes, with the stalls that no count explains, >= 1.
        ramps: the first fill and the last drain of every level are added to the time.
        scales_blocks: accesses of tiles without their zeros are counted as Timeloop does, words
            times what a tile needs for each; otherwise as the accesses that each tile needs.
        source: where its numbers come from.
        every_cycle: (name, pJ) of actions of the whole chip in every cycle of work, whatever is
            done in it: clock tree, control.
    """

    name: str
    nodes: tuple[Node, ...]
    compute: Compute
    clock_hz: float = 1e9
    idle_leaks: bool = True
    overhead: float = 1.0
    ramps: bool = False
    scales_blocks: bool = False
    source: str = ""
    every_cycle: tuple[tuple[str, float], ...] = ()

    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """Levels of storage, outermost first."""
        return tuple(node for node in self.nodes if isinstance(node, Memory))

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Places for loops, outermost first."""
        slots: list[Slot] = []
        for index, node in enumerate(self.nodes):
            if isinstance(node, Memory):
                slots.append(Slot(index, -1, math.inf))
            else:
                slots.extend(Slot(index, axis, size) for axis, size in enumerate(node.mesh))
        return tuple(slots)

    @cached_property
    def memory_slots(self) -> tuple[int, ...]:
        """Index of each memory's slot, outermost first."""
        return tuple(i for i, slot in enumerate(self.slots) if not slot.is_spatial)

    @cached_property
    def instances(self) -> tuple[int, ...]:
        """Instances of each memory, outermost first."""
        instances, above = [], 1
        for node in self.nodes:
            if isinstance(node, FanOut):
                above *= node.size
            else:
                instances.append(above)
        return tuple(instances)

    @cached_property
    def cycle_pj(self) -> float:
        """Energy of a cycle of work, beside what is done in it and what leaks."""
        return sum(energy for _, energy in self.every_cycle)

    @cached_property
    def idle_pj_per_cycle(self) -> float:
        """What the whole leaks in a cycle without work; 0 where only instances with work leak."""
        if not self.idle_leaks:
            return 0.0
        leaks = [
            (memory.leak_pj_per_cycle or 0.0) * count
            for memory, count in zip(self.memories, self.instances, strict=True)
        ]
        return sum(leaks) + (self.compute.leak_pj_per_cycle or 0.0) * self.units

    @cached_property
    def states_energy(self) -> bool:
        """Whether any energy is given, be it 0."""
        return any(energy is not None for energy in self._energies)

    @cached_property
    def costs_energy(self) -> bool:
        """Whether some action costs energy; else all mappings need the same, none."""
        return any(self._energies)

    @property
    def _energies(self) -> tuple[float | None, ...]:
        """Of every action, pJ; None = not known."""
        unit = self.compute
        energies = [unit.energy_pj, unit.leak_pj_per_cycle, unit.gated_pj or None]
        energies += [energy for _, energy in self.every_cycle]
        for node in self.nodes:
            if isinstance(node, FanOut):
                energies.append(node.hop_pj)
                continue
            store = node.metadata or MetadataStore()
            energies += [
                node.read_pj, node.fill_pj, node.update_pj, node.leak_pj_per_cycle,
                node.gated_pj or None, node.expand_pj, node.compress_pj,
                store.read_pj, store.fill_pj, store.update_pj,
            ]  # fmt: skip
        return tuple(energies)

    @cached_property
    def missing_energy(self) -> str:
        """The first action that can happen and has no energy, as level.action; "" = none."""
        for level, memory in enumerate(self.memories):
            happens = {"read_pj": True, "fill_pj": level > 0, "update_pj": memory.may_keep(OUTPUTS)}
            for action, can in happens.items():
                if can and getattr(memory, action) is None:
                    return f"{memory.name}.{action.removesuffix('_pj')}"
        return f"{self.compute.name}.energy_pj" if self.compute.energy_pj is None else ""

    def timed(self) -> Architecture:
        """The design with no energy of any action that lacks one: for time alone."""
        nodes = tuple(
            replace(
                node,
                read_pj=node.read_pj or 0.0,
                fill_pj=node.fill_pj or 0.0,
                update_pj=node.update_pj or 0.0,
            )
            if isinstance(node, Memory)
            else node
            for node in self.nodes
        )
        unit = replace(self.compute, energy_pj=self.compute.energy_pj or 0.0)
        return replace(self, nodes=nodes, compute=unit)

    @cached_property
    def marches(self) -> bool:
        """Whether an array is systolic."""
        return any(isinstance(node, FanOut) and node.systolic for node in self.nodes)

    @cached_property
    def knows_zeros(self) -> bool:
        """Whether zeros change anything: a format, an elimination, or what compute does."""
        return self.compute.on_zero != "multiply" or any(
            memory.formats or memory.eliminations for memory in self.memories
        )

    @cached_property
    def units(self) -> int:
        return math.prod(node.size for node in self.nodes if isinstance(node, FanOut))
