"""Mappings on designs that leave zeros out: the better of one searched by what is left, and of one
searched as if nothing were zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from silicast.accelerator.counting.cost import Cost, Objective, cost, value_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.accelerator.zeros.sparse import holds
from silicast.core.errors import SilicastError

ROOMS, SMALLER = 8, 0.7
"""Searches for a mapping whose metadata fit, each with so much of the room of the one before."""


def dense_twin(architecture: Architecture, rooms: Mapping[str, float]) -> Architecture:
    """The same design, which keeps and moves all zeros.

    Args:
        rooms: memory -> share of its capacity that tiles may fill, zeros among them.
    """

    def plain(memory: Memory) -> Memory:
        words = memory.capacity_words
        if words is not None:
            words = words * rooms.get(memory.name, 1.0)
        return replace(memory, formats=(), eliminations=(), capacity_words=words)

    nodes = tuple(plain(node) if isinstance(node, Memory) else node for node in architecture.nodes)
    return replace(
        architecture, nodes=nodes, compute=replace(architecture.compute, on_zero="multiply")
    )


def mapped_zeros(
    einsum: Einsum,
    architecture: Architecture,
    constraints: Constraints,
    objective: Objective,
    effort: int,
) -> Mapped:
    """The better of a mapping searched with what is left without zeros, and of one with all.

    Raises:
        SilicastError: no mapping fits.
    """
    try:
        mapped = best_mapping(einsum, architecture, constraints, objective=objective, effort=effort)
    except SilicastError:
        return mapped_as_dense(einsum, architecture, constraints, objective, effort)
    try:
        dense = mapped_as_dense(einsum, architecture, constraints, objective, effort)
    except SilicastError:
        return mapped
    if dense.value >= mapped.value:
        return replace(mapped, tried=mapped.tried + dense.tried)
    return replace(
        dense,
        bound=min(mapped.bound, dense.value),
        tried=mapped.tried + dense.tried,
        complete=mapped.complete,
    )


def mapped_as_dense(
    einsum: Einsum,
    architecture: Architecture,
    constraints: Constraints,
    objective: Objective,
    effort: int,
) -> Mapped:
    """A mapping that was searched with all zeros, at the cost that it has without them.

    Where what describes its tiles does not fit, tiles are searched that leave more room.

    Raises:
        SilicastError: no mapping fits.
    """
    rooms: dict[str, float] = {}
    for _ in range(ROOMS):
        twin = dense_twin(architecture, rooms)
        mapping = best_mapping(einsum, twin, constraints, objective=objective, effort=effort)
        batch = MappingBatch.from_nest(mapping.nest, einsum, architecture)
        result = cost(einsum, architecture, batch)
        if result.fits[0]:
            # Of mappings that leave zeros out nothing is proven.
            value = float(value_of(result, objective)[0])
            return replace(mapping, cost=result, value=value, bound=0.0, complete=False)
        for level, memory in enumerate(architecture.memories):
            if _overflow_of_zeros(result, level) is not None:
                rooms[memory.name] = rooms.get(memory.name, 1.0) * SMALLER
    raise overflow(result)


def overflow(result: Cost) -> SilicastError:
    """The memory that a given mapping overflows, and by how much."""
    for level, memory in enumerate(result.architecture.memories):
        if result.zeros is not None:
            error = _overflow_of_zeros(result, level)
            if error is not None:
                return error
            continue
        needed = float(memory.taken(result.traffic.tiles[level, :, 0]).sum())
        if needed > memory.usable_words:
            largest = int(result.traffic.tiles[level, :, 0].argmax())
            return SilicastError(
                f"its tiles need {needed:g} words, {memory.usable_words:g} are there",
                kind="unsupported",
                field=memory.name,
                hint=f"move a loop over {result.einsum.names[largest]}, the largest tile with "
                f"{result.traffic.tiles[level, largest, 0]:g} words, further out",
            )
    return SilicastError("it fits", kind="internal")


def _overflow_of_zeros(result: Cost, level: int) -> SilicastError | None:
    memory, zeros = result.architecture.memories[level], result.zeros
    assert zeros is not None
    values = float(memory.taken(zeros.stored[level, :, 0]).sum())
    metadata = sum(
        float(each.total("stored")[0]) for (at, _), each in zeros.formats.items() if at == level
    )
    if float(holds(memory, np.array(values), np.array(metadata))) >= 0:
        return None
    store = memory.metadata
    room = f"{memory.usable_words:g} words are there"
    if store is not None and store.capacity_words is not None:
        room += f", and {store.capacity_words / memory.buffers:g} for metadata"
    return SilicastError(
        f"its tiles need up to {values:g} words, and {metadata:g} of metadata; {room}",
        kind="unsupported",
        field=memory.name,
        hint="move a loop further out, or keep the tensor in another format",
    )
