"""Mappings on designs that leave zeros out: the better of one searched by what is left, and of one
searched as if nothing were zero; and searched ones at another size.

What is left without zeros depends on what tiles hold, which is no formula of bounds: a mapping at
another size is counted by :mod:`.sparse`, one size at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from silicast.accelerator.counting.accounting import account
from silicast.accelerator.counting.closed_form import WordShares
from silicast.accelerator.counting.cost import MappingCost, Objective, cost, cost_of, value_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.accelerator.mapper.template import Template
from silicast.accelerator.zeros.sparse import AccessOutcome, account_zeros
from silicast.core.errors import SilicastError, unsupported
from silicast.core.numerics import F64

ROOMS, SMALLER = 8, 0.7
"""Tries of mappings whose metadata fit, each with so much of the room of the one before."""


def with_room(architecture: Architecture, rooms: Mapping[str, float]) -> Architecture:
    """The same design with less room for tiles.

    Args:
        rooms: memory -> share of its capacity that tiles may fill.
    """

    def smaller(memory: Memory) -> Memory:
        words, share = memory.capacity_words, rooms.get(memory.name, 1.0)
        return memory if words is None else replace(memory, capacity_words=words * share)

    nodes = (smaller(n) if isinstance(n, Memory) else n for n in architecture.nodes)
    return replace(architecture, nodes=tuple(nodes))


def dense_twin(architecture: Architecture) -> Architecture:
    """The same design, which keeps and moves all zeros."""
    nodes = (
        replace(node, formats=(), eliminations=()) if isinstance(node, Memory) else node
        for node in architecture.nodes
    )
    unit = replace(architecture.compute, on_zero="multiply")
    return replace(architecture, nodes=tuple(nodes), compute=unit)


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
        twin = with_room(dense_twin(architecture), rooms)
        mapping = best_mapping(einsum, twin, constraints, objective=objective, effort=effort)
        batch = MappingBatch.from_nest(mapping.nest, einsum, architecture)
        result = cost(einsum, architecture, batch)
        if result.fits[0]:
            # Of mappings that leave zeros out nothing is proven.
            value = float(value_of(result, objective)[0])
            return replace(mapping, cost=result, value=value, bound=0.0, complete=False)
        for level, memory in enumerate(architecture.memories):
            if result.left(level)[0] < 0:
                rooms[memory.name] = rooms.get(memory.name, 1.0) * SMALLER
    raise overflow(result)


def overflow(result: MappingCost) -> SilicastError:
    """The memory that a given mapping overflows, and by how much."""
    for level, memory in enumerate(result.architecture.memories):
        if result.left(level)[0] >= 0:
            continue
        values, metadata = (float(words[0]) for words in result.held(level))
        store, room = memory.metadata, f"{memory.usable_words:g} words are there"
        if result.zeros is None:
            largest = int(result.traffic.tiles[level, :, 0].argmax())
            return unsupported(
                f"its tiles need {values:g} words, {memory.usable_words:g} are there",
                memory.name,
                f"move a loop over {result.einsum.names[largest]}, the largest tile with "
                f"{result.traffic.tiles[level, largest, 0]:g} words, further out",
            )
        if store is not None and store.capacity_words is not None:
            room += f", and {store.capacity_words / memory.buffers:g} for metadata"
        return unsupported(
            f"its tiles need up to {values:g} words, and {metadata:g} of metadata; {room}",
            memory.name,
            "move a loop further out, or keep the tensor in another format",
        )
    return SilicastError("it fits", kind="internal")


def cost_without_zeros(
    template: Template,
    einsum: Einsum,
    sizes: F64,
    shares: Sequence[float],
    main_shares: Sequence[float],
) -> MappingCost:
    """What a mapping costs at a size.

    Args:
        template: the mapping; sizes: to which it is stretched, (dims, 1).
        einsum: of these sizes, with its densities.
        shares, main_shares: as of :func:`.refit.counted`; empty = all.

    Raises:
        SilicastError: its tiles fit no memory together with what describes them.
    """
    arch = template.arch
    for room in range(ROOMS):
        batch = _in_room(template, SMALLER**room).mappings(sizes)
        traffic = account(einsum, arch, batch)
        zeros = account_zeros(einsum, arch, batch, traffic)
        result = cost_of(einsum, arch, traffic, None, zeros)
        if result.fits[0]:
            return _of_shares(result, batch, shares, main_shares)
    raise unsupported(
        f"a {einsum.name} of {', '.join(f'{d}={n}' for d, n in einsum.bounds.items())}: its tiles "
        f"do not fit with what describes them",
        "level",
        "give the memory more room, its metadata a store of their own, or compile the design "
        "(`silicast design compile`) for the model",
    )


def _in_room(template: Template, share: float) -> Template:
    """The same mapping, to be stretched into a share of each memory's room."""
    rooms = {memory.name: share for memory in template.arch.memories}
    return replace(template, arch=with_room(template.arch, rooms))


def _of_shares(
    result: MappingCost, batch: MappingBatch, shares: Sequence[float], main_shares: Sequence[float]
) -> MappingCost:
    """The cost where tensors take a share of an element's bits, and of main memory's words."""
    if not shares and not main_shares:
        return result
    einsum, arch, zeros = result.einsum, result.architecture, result.zeros
    assert zeros is not None
    share = WordShares.from_einsum(einsum, batch.keep, shares, main_shares)
    element = share.element[None, :, None]
    out, into = (element * part[..., None].astype(np.float64) for part in (share.out, share.into))
    zeros = replace(
        zeros,
        reads=_times(zeros.reads, out),
        fills=_times(zeros.fills, into),
        updates=_times(zeros.updates, out),
        stored=zeros.stored * element,
        expanded=zeros.expanded * element,
        compressed=zeros.compressed * element,
    )
    return cost_of(einsum, arch, share.traffic(result.traffic), None, zeros)


def _times(outcome: AccessOutcome, share: F64) -> AccessOutcome:
    return AccessOutcome(
        outcome.actual * share,
        outcome.gated * share,
        outcome.skipped * share,
        np.ceil(outcome.accesses * share),
    )
