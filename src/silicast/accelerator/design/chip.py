"""A design as kernel models see it: mapped hardware in one number format, and stored mappings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import final

import msgspec

from silicast.accelerator.counting.einsum import INPUTS, OUTPUTS, WEIGHTS
from silicast.accelerator.design.architecture import ACTIONS, Architecture, Memory
from silicast.accelerator.design.architecture_file import ArchitectureFile, Design, StoredTable
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.zeros.density import Densities, least_share
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.errors import unsupported
from silicast.core.hashing import content_hash
from silicast.hardware.device import Device, Structure
from silicast.kernels.physics.constants import load_physics

GROUP = "loop_nest"
"""Constants of the execution model."""
ANY_FORMAT = ("bf16", "fp16", "int8", "fp8", "int16")
"""Formats of units whose file names none: words of 16 bits and less."""
WINDOW_DIMS = frozenset("CRSPQ")
"""Dimensions that only convolutions have."""
PRODUCT_DIMS = frozenset("K")
"""Dimensions that only products have."""


@final
@dataclass(frozen=True)
class Left:
    """Least shares of words and of products that are no zeros."""

    weights: float
    inputs: float
    outputs: float
    products: float

    @staticmethod
    def from_densities(densities: Densities) -> Left:
        """Those of some densities.

        >>> Left.from_densities((("Weights", "2:4"), ("Inputs", 0.5)))
        Left(weights=0.5, inputs=0.5, outputs=1.0, products=0.25)
        """
        table = {name: least_share(value, name) for name, value in densities}
        weights, inputs = table.get(WEIGHTS, 1.0), table.get(INPUTS, 1.0)
        return Left(weights, inputs, table.get(OUTPUTS, 1.0), weights * inputs)


OF_LAYERS = (
    "[density] of the file is that of layers with weights; operands of attention are dense, and "
    "weights take the room of dense ones"
)
NOTHING_IS_ZERO = "the design leaves zeros out and its file states no [density]: nothing is zero"
DENSE = Left(1.0, 1.0, 1.0, 1.0)
"""Nothing is zero."""


@final
@dataclass(frozen=True, eq=False)
class Chip(Structure):
    """What an architecture file says.

    Attributes:
        design: the chip and its rules, with a port of main memory.
    """

    design: Design

    @staticmethod
    def from_design(design: Design) -> Chip:
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
    def uncounted(self) -> tuple[str, ...]:
        counted = {name for name, _ in self.design.architecture.every_cycle}
        every = ("clock_tree", "control")
        return tuple(name.replace("_", " ") for name in every if name not in counted)

    @property
    def energy_log_sd(self) -> float:
        """Of technology, of what no action counts, and of what nobody has built."""
        c = load_physics(GROUP).default
        names = ("technology_log_sd", "uncounted_log_sd", "unbuilt_log_sd")
        return math.hypot(*(c[name] for name in names))

    @property
    def time_log_sd(self) -> float | None:
        return self.content.system.time_log_sd

    @property
    def trains(self) -> bool:
        return self.content.system.trains

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What the file leaves open, and what its densities are taken for."""
        remarks = []
        arch = self.design.architecture
        if self.missing_energy:
            remarks.append(
                f"{self.missing_energy} has no energy in the file: energy is not answered"
            )
        if self.content.vector is None:
            remarks.append("the file has no [vector]: the multipliers do what is no product")
        if any(memory.tensor_bits for memory in arch.memories):
            remarks.append(
                "tensor_bits of the file are of `silicast design`: in kernels elements are as wide "
                "as their formats"
            )
        if arch.knows_zeros:
            remarks.append(OF_LAYERS if self.content.density else NOTHING_IS_ZERO)
            if unknown := _unknown_of_zeros(arch):
                remarks.append(f"{', '.join(unknown)} have no energy in the file and count none")
        elif self.content.density:
            remarks.append("[density] of the file changes nothing: the design leaves no zeros out")
        return tuple(remarks)

    @property
    def content(self) -> ArchitectureFile:
        return self.design.content

    @property
    def stored(self) -> tuple[StoredTable, ...]:
        """Mappings that were compiled."""
        return self.content.mapping

    @cached_property
    def densities(self) -> Densities:
        """Of tensors of layers with weights, as the file states them; () = it leaves no zeros out,
        or states none.
        """
        if not self.design.architecture.knows_zeros:
            return ()
        return tuple(sorted(self.content.density.items()))

    @cached_property
    def left(self) -> Left:
        """What of a layer with weights is there at least once zeros are left out."""
        return Left.from_densities(self.densities)

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
    def formats(self) -> tuple[str, ...]:
        """What it multiplies: formats of its file, else those of which memories hold a word."""
        return offered_formats(self.content, self.design.architecture)

    @property
    def missing_energy(self) -> str:
        """The first action that can happen and has no energy, as level.action; "" = none."""
        return self.design.architecture.missing_energy

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
            f"{device.name} runs loop nests, but is no design",
            "device.execution_model",
            "describe its memories and compute in an architecture file (`silicast design map`)",
        )
    return device.structure


def _unknown_of_zeros(arch: Architecture) -> list[str]:
    """Actions that only zeros bring, whose energy nobody gave."""
    unknown = []
    for memory in arch.memories:
        store = memory.metadata
        if store is not None and memory.formats:
            unknown += [
                f"{memory.name}.metadata.{name}_pj"
                for name in ACTIONS
                if getattr(store, f"{name}_pj") is None
            ]
        if memory.recodes:
            unknown += [
                f"{memory.name}.{name}"
                for name in ("expand_pj", "compress_pj")
                if getattr(memory, name) is None
            ]
    return unknown


@lru_cache(maxsize=256)
def _in_format(chip: Chip, compute: str, bits: float) -> Architecture:
    arch = chip.design.architecture
    chip_format = chip.content.compute.formats.get(compute)
    unit = arch.compute
    if chip_format is not None:
        unit = replace(
            unit,
            per_cycle=unit.per_cycle if chip_format.per_cycle is None else chip_format.per_cycle,
            energy_pj=unit.energy_pj if chip_format.energy_pj is None else chip_format.energy_pj,
        )
    has_energy = not chip.missing_energy
    unit = replace(unit, energy_pj=unit.energy_pj if has_energy else 0.0)
    nodes = tuple(
        _in_elements(node, bits, held_bits(node, compute, bits), known=has_energy)
        if isinstance(node, Memory)
        else node
        for node in arch.nodes
    )
    return replace(arch, nodes=nodes, compute=unit)


def offered_formats(content: ArchitectureFile, arch: Architecture) -> tuple[str, ...]:
    """Formats that a chip multiplies: those of its file, else all of 16 bits and less of which
    every memory holds a word.
    """
    widest = max(memory.word_bits for memory in arch.memories)
    return tuple(content.compute.formats) or tuple(
        name
        for name in ANY_FORMAT
        if BITS[name] <= max(widest, 16)
        and all(
            least_room(memory, name) <= memory.usable_words * memory.word_bits
            for memory in arch.memories[1:]
        )
    )


def mapped_bits(name: str) -> float:
    """Bits of the words that products in a format are mapped with.

    >>> mapped_bits("int8"), mapped_bits("fp32")
    (16.0, 32.0)
    """
    recipe = RECIPES.get(name)
    sizes = (recipe.activation_bits, BITS[recipe.output]) if recipe else (BITS[name],)
    return float(max(sizes))


def tensors_always(memory: Memory) -> list[str]:
    """Tensors that every mapping holds in a memory."""
    return [name for name in (WEIGHTS, INPUTS, OUTPUTS) if memory.must_keep(name)]


def least_room(memory: Memory, name: str) -> float:
    """Bits of a word of every tensor that a memory must keep, in a format."""
    return len(tensors_always(memory)) * held_bits(memory, name, mapped_bits(name))


def held_bits(memory: Memory, compute: str, bits: float) -> float:
    """Bits of an element that a memory holds: operands are as wide as they are multiplied, results
    as ``bits`` says.
    """
    return bits if memory.may_keep(OUTPUTS) else min(bits, float(BITS.get(compute, bits)))


def _in_elements(memory: Memory, bits: float, held: float, *, known: bool) -> Memory:
    """A memory whose words are elements of ``bits``; an access moves what it did, or a part.

    What it holds are elements of ``held`` bits. Actions that cannot happen, or whose energies are
    not all known, count nothing.
    """
    ratio = memory.word_bits / bits
    whole = memory.block_words * ratio
    accesses = max(1.0, 1.0 / whole)
    words = memory.capacity_words
    capacity = None if words is None else words * memory.word_bits / held
    read, fill, update = (
        (energy or 0.0) * accesses if known else 0.0
        for energy in (memory.read_pj, memory.fill_pj, memory.update_pj)
    )
    expand, compress = (
        None if energy is None else energy / ratio
        for energy in (memory.expand_pj, memory.compress_pj)
    )
    ports = tuple(
        replace(port, words_per_cycle=port.words_per_cycle * ratio) for port in memory.ports
    )
    return replace(
        memory, capacity_words=capacity, word_bits=round(bits), block_words=max(1, int(whole)),
        ports=ports, read_pj=read, fill_pj=fill, update_pj=update,
        gated_pj=memory.gated_pj * accesses, expand_pj=expand, compress_pj=compress,
        tensor_bits=(),
    )  # fmt: skip
