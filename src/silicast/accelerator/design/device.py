"""A design as a :class:`Device`: every task takes it where it takes a board."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from silicast.accelerator.design.architecture import Architecture, Memory, Port
from silicast.accelerator.design.architecture_file import ArchitectureFile, Design, checked
from silicast.accelerator.design.check import ArchitectureFault
from silicast.accelerator.design.chip import (
    ANY_FORMAT,
    Chip,
    least_room,
    offered_formats,
    tensors_always,
)
from silicast.core.errors import SilicastError
from silicast.hardware.device import NO_CAP, Clocks, ComputeLevel, Device, Link, MemoryLevel, Pipe

UNBUILT = "unbuilt"
"""Generation of every design: constants that were measured are of others."""
MAIN = "dram"
OPERATIONS = 2.0
"""A multiplication and an addition."""
PER_S_AND_GB = 1e9


def device_of_design(table: Mapping[str, Any], file: str = "") -> Device:
    """The device that an architecture file describes.

    Raises:
        SilicastError: it is no architecture, or states too little for a device: the field is
            named.
    """
    design = with_main_memory(checked(table, file), file)
    content, arch = design.content, design.architecture
    hz, idle_w = arch.clock_hz, _idle_w(content, arch)
    _check_limit(content, idle_w, file)
    unknowns = [NO_CAP] if content.system.power_w is None else []
    return Device(
        name=content.name, vendor="", architecture=UNBUILT, execution_model="loop_nest",
        compute=ComputeLevel("chip", 1, _pipes(content, arch)),
        memory=_memories(design, file), clocks=Clocks(hz, hz, hz),
        power_cap_w=content.system.power_w, idle_power_w=idle_w,
        links={
            name: Link(
                name, link.bandwidth_gb_per_s * PER_S_AND_GB, link.switched, link.multicast,
                link.domain or 0, link.mesh, tuple(link.mesh_boards), None, link.peer_access,
            )
            for name, link in content.system.links.items()
        },
        default_gpus_per_node=content.system.devices_per_node,
        sources={"": content.source or file}, unknowns=tuple(unknowns),
        structure=Chip.from_design(design),
    )  # fmt: skip


def wrong_as_device(design: Design) -> Iterator[ArchitectureFault]:
    """What keeps every kernel from running on a design whose layers could be mapped."""
    first, system = design.architecture.memories[0], design.content.system
    has_rate = bool(first.hidden_ports) or system.memory_gb_per_s is not None
    if not has_rate or (first.capacity_words is None and system.memory_gb is None):
        return  # layers are mapped onto it, no kernel runs on it
    formats = tuple(design.content.compute.formats) or ANY_FORMAT
    for memory in design.architecture.memories[1:]:
        name = min(formats, key=lambda name: least_room(memory, name))
        if (need := least_room(memory, name)) > memory.usable_words * memory.word_bits:
            tensors = ", ".join(tensors_always(memory))
            yield ArchitectureFault(
                f"{memory.name}.capacity_words",
                f"room for a word of {tensors} in {name} as a device "
                f"({need * memory.buffers:g} bits, capacity_words x word_bits)",
                f"{memory.usable_words * memory.word_bits * memory.buffers:g} bits",
                "operands are as wide as they are multiplied; beside results all words are as wide "
                "as these, of 16 bits for products in int8 too; widen it, or let a tensor pass it "
                "by (may_bypass)",
            )


def with_main_memory(design: Design, file: str) -> Design:
    """The design with a port at its first level as wide as the system's memory.

    Raises:
        SilicastError: neither states how fast main memory is.
    """
    arch, system = design.architecture, design.content.system
    first = arch.memories[0]
    if system.memory_gb_per_s is not None:
        words = system.memory_gb_per_s * PER_S_AND_GB * 8.0 / first.word_bits / arch.clock_hz
        first = replace(first, ports=(*first.ports, Port("system", words)))
        arch = replace(arch, nodes=(first, *arch.nodes[1:]))
        return msgspec.structs.replace(design, architecture=arch)
    if not first.hidden_ports:
        raise SilicastError(
            f"main memory {first.name} has no port: as a device it needs a bandwidth",
            field=f"{first.name}.port",
            file=file,
            hint="state [[level.port]] words_per_cycle, or [system] memory_gb_per_s",
        )
    return design


def main_bytes_per_s(arch: Architecture) -> float:
    """What main memory's ports carry together."""
    first = arch.memories[0]
    ports = first.hidden_ports
    words = sum(port.words_per_cycle for port in ports if port.name != "system")
    words = words or sum(port.words_per_cycle for port in ports)
    return words * first.word_bits / 8.0 * arch.clock_hz


def _pipes(content: ArchitectureFile, arch: Architecture) -> dict[str, Pipe]:
    """Operations a cycle of the whole chip. Without vector units the multipliers do their work."""
    unit = content.compute
    rates = {
        name: arch.units * OPERATIONS * (table.per_cycle or unit.per_cycle)
        for name, table in unit.formats.items()
    }
    rates = rates or dict.fromkeys(
        offered_formats(content, arch), arch.units * OPERATIONS * unit.per_cycle
    )
    vector = content.vector
    simple = vector.per_cycle if vector else arch.units * unit.per_cycle
    special = (vector.special_per_cycle if vector else None) or simple / 16.0
    return {
        "tensor": Pipe("tensor", rates),
        "fma": Pipe("fma", {"fp32": simple}),
        "xu": Pipe("xu", {"fp32": special}),
    }


def _memories(design: Design, file: str) -> dict[str, MemoryLevel]:
    """Main memory by the name that all layers use, the others by their own."""
    arch, system = design.architecture, design.content.system
    memories: dict[str, MemoryLevel] = {}
    for level, memory in enumerate(arch.memories):
        copies = arch.instances[level]
        words = math.inf if memory.capacity_words is None else memory.capacity_words * copies
        capacity = words * memory.word_bits / 8.0
        if level == 0:
            wide = main_bytes_per_s(arch)
            if system.memory_gb_per_s is not None:  # ports may say what of it is reached
                wide = max(wide, system.memory_gb_per_s * PER_S_AND_GB)
            main_gb = system.memory_gb
            memories[MAIN] = MemoryLevel(
                MAIN,
                "device",
                _main_bytes(capacity, main_gb, memory, file),
                wide,
                technology=system.memory_technology,
            )
        else:
            name = f"{memory.name}_" if memory.name == MAIN else memory.name
            rate = _bandwidth(memory) * copies * arch.clock_hz
            memories[name] = MemoryLevel(name, "device", capacity, rate)
    return memories


def _main_bytes(capacity: float, given_gb: float | None, memory: Memory, file: str) -> float:
    if given_gb is not None:
        return given_gb * PER_S_AND_GB
    if math.isinf(capacity):
        raise SilicastError(
            f"main memory {memory.name} has no capacity: as a device it needs one",
            field=f"{memory.name}.capacity_words",
            file=file,
            hint="state it, or [system] memory_gb",
        )
    return capacity


def _bandwidth(memory: Memory) -> float:
    """Bytes a cycle of one instance; 0 where no port limits it."""
    return sum(port.words_per_cycle for port in memory.hidden_ports) * memory.word_bits / 8.0


def _check_limit(content: ArchitectureFile, idle_w: float | None, file: str) -> None:
    limit_w = content.system.power_w
    if limit_w is None or idle_w is None or limit_w > idle_w:
        return
    raise SilicastError(
        f"expected more than the {idle_w:.4g} W that the chip takes without work, found "
        f"{limit_w:g} W",
        field="system.power_w",
        file=file,
        hint="raise it, or lower idle_w or the leak_pj_per_cycle of levels and compute",
    )


def _idle_w(content: ArchitectureFile, arch: Architecture) -> float | None:
    """What leaks all the time, watts; None where nothing says it."""
    if content.system.idle_w is not None:
        return content.system.idle_w
    leaks = [memory.leak_pj_per_cycle for memory in arch.memories]
    if all(leak is None for leak in (*leaks, arch.compute.leak_pj_per_cycle)):
        return None
    return arch.idle_pj_per_cycle * 1e-12 * arch.clock_hz
