"""A design as kernel models see it: mapped hardware in one number format, and stored mappings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import final

import msgspec

from silicast.accelerator.architecture import Architecture, Memory
from silicast.accelerator.architecture_file import ArchitectureFile, Design, StoredTable
from silicast.accelerator.constraints import Constraints
from silicast.accelerator.einsum import OUTPUTS
from silicast.core.errors import unsupported
from silicast.core.hashing import content_hash
from silicast.hardware.device import Device, Structure
from silicast.kernels.physics import load_physics

GROUP = "loop_nest"
"""Constants of the execution model."""
WINDOW_DIMS = frozenset("CRSPQ")
"""Dimensions that only convolutions have."""
PRODUCT_DIMS = frozenset("K")
"""Dimensions that only products have."""


@final
@dataclass(frozen=True, eq=False)
class Chip(Structure):
    """What an architecture file says.

    Attributes:
        design: the chip and its rules, with a port of main memory.
    """

    design: Design

    @staticmethod
    def of(design: Design) -> Chip:
        """The chip of a design; it is known by all that its file says."""
        return Chip(content_hash(msgspec.to_builtins(design.content)), design)

    @property
    def text(self) -> str:
        """Its levels, outermost first."""
        levels = [node.name for node in self.design.architecture.nodes]
        return " > ".join([*levels, self.design.architecture.compute.name])

    @property
    def states_energy(self) -> bool:
        """Whether no action that can happen lacks an energy."""
        return not self.missing_energy

    @property
    def energy_log_sd(self) -> float:
        """Of technology, and of what nobody has built."""
        c = load_physics(GROUP).default
        return math.hypot(c["technology_log_sd"], c["unbuilt_log_sd"])

    @property
    def content(self) -> ArchitectureFile:
        """The file."""
        return self.design.content

    @property
    def stored(self) -> tuple[StoredTable, ...]:
        """Mappings that were compiled."""
        return self.content.mapping

    @property
    def rules(self) -> Constraints:
        """What mappings keep to."""
        return self.design.constraints

    @cached_property
    def ruled_dims(self) -> frozenset[str]:
        """Dimensions that a rule names."""
        named: set[str] = set()
        for rule in self.rules.rules.values():
            named |= {*rule.fixed, *rule.most, *rule.innermost}
        return frozenset(named)

    @property
    def slides(self) -> bool:
        """Whether convolutions are mapped as they are; else as products of unrolled windows."""
        return not self.ruled_dims & PRODUCT_DIMS or bool(self.ruled_dims & WINDOW_DIMS)

    @property
    def multiplies(self) -> bool:
        """Whether products are mapped as they are; else as convolutions with filters of one."""
        return not self.ruled_dims & WINDOW_DIMS or bool(self.ruled_dims & PRODUCT_DIMS)

    @cached_property
    def missing_energy(self) -> str:
        """The first action that can happen and has no energy, as level.action; "" = none."""
        arch = self.design.architecture
        for level, memory in enumerate(arch.memories):
            happens = {"read_pj": True, "fill_pj": level > 0, "update_pj": memory.may_keep(OUTPUTS)}
            for action, can in happens.items():
                if can and getattr(memory, action) is None:
                    return f"{memory.name}.{action.removesuffix('_pj')}"
        return f"{arch.compute.name}.energy_pj" if arch.compute.energy_pj is None else ""

    def in_format(self, compute: str, bits: float) -> Architecture:
        """The chip as products in a format see it; its words are elements of so many bits."""
        return _in_format(self, compute, bits)


def chip_of(device: Device) -> Chip:
    """The structure of a designed device.

    Raises:
        SilicastError: it states loop nests without an architecture.
    """
    if not isinstance(device.structure, Chip):
        raise unsupported(
            f"{device.name} runs loop nests, but is no design", "device.execution_model",
            "describe its memories and compute in an architecture file (`silicast design map`)",
        )  # fmt: skip
    return device.structure


@lru_cache(maxsize=256)
def _in_format(chip: Chip, compute: str, bits: float) -> Architecture:
    arch = chip.design.architecture
    own = chip.content.compute.formats.get(compute)
    unit = arch.compute
    if own is not None:
        unit = replace(
            unit, per_cycle=unit.per_cycle if own.per_cycle is None else own.per_cycle,
            energy_pj=unit.energy_pj if own.energy_pj is None else own.energy_pj,
        )  # fmt: skip
    known = not chip.missing_energy
    unit = replace(unit, energy_pj=unit.energy_pj if known else 0.0)
    nodes = tuple(
        _in_elements(node, bits, known=known) if isinstance(node, Memory) else node
        for node in arch.nodes
    )
    return replace(arch, nodes=nodes, compute=unit)


def _in_elements(memory: Memory, bits: float, *, known: bool) -> Memory:
    """A memory whose words are elements of ``bits``; an access moves what it did, or a part.

    Actions that cannot happen, or whose energies are not all known, count nothing.
    """
    ratio = memory.word_bits / bits
    whole = memory.block_words * ratio
    accesses = max(1.0, 1.0 / whole)
    capacity = None if memory.capacity_words is None else memory.capacity_words * ratio
    read, fill, update = (
        (energy or 0.0) * accesses if known else 0.0
        for energy in (memory.read_pj, memory.fill_pj, memory.update_pj)
    )
    ports = tuple(
        replace(port, words_per_cycle=port.words_per_cycle * ratio) for port in memory.ports
    )
    return replace(
        memory, capacity_words=capacity, word_bits=round(bits), block_words=max(1, int(whole)),
        ports=ports, read_pj=read, fill_pj=fill, update_pj=update,
    )  # fmt: skip
