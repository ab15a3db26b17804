"""Costs of a searched mapping at another size on a design that leaves zeros out.

What is left without zeros depends on what tiles hold, which is no formula of bounds: the stretched
mapping is counted by :mod:`~silicast.accelerator.zeros.sparse`, one size at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from silicast.accelerator.counting.accounting import account
from silicast.accelerator.counting.closed_form import Shares
from silicast.accelerator.counting.cost import Cost, cost_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.mapper.template import Template
from silicast.accelerator.zeros.density import density_of
from silicast.accelerator.zeros.sparse import Outcome, account_zeros
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64

Densities = tuple[tuple[str, str | float], ...]
"""(tensor, density as a user writes it)."""
ROOMS, SMALLER = 8, 0.7
"""Tiles are stretched into so many rooms, each so much of the one before, until what describes
them fits too."""
_ANY_SHAPE = (1, 1, 1, 1)


def changes_anything(arch: Architecture, densities: Densities) -> bool:
    """Whether counts are others than with all zeros: a tensor has some that the design leaves out,
    or a format describes it.

    Raises:
        SilicastError: a density that is none.
    """
    if not arch.knows_zeros:
        return False
    if any(memory.formats for memory in arch.memories):
        return True
    return any(least_share(value, name) < 1.0 for name, value in densities)


def least_share(value: str | float, name: str = "density") -> float:
    """Share of values that are not zero; 0 where only the tensor tells.

    Raises:
        SilicastError: no density.

    >>> least_share("2:4"), least_share(0.3), least_share("banded:2")
    (0.5, 0.3, 0.0)
    """
    text = str(value).strip()
    if text.endswith(".npy") or text.startswith("banded"):
        return 0.0
    return density_of(value, _ANY_SHAPE, f"density.{name}").share


def with_densities(einsum: Einsum, densities: Mapping[str, str | float]) -> Einsum:
    """The einsum with densities of the tensors that it has.

    Raises:
        SilicastError: one does not belong to its tensor.
    """
    table = {name: value for name, value in densities.items() if name in einsum.names}
    if not table:
        return einsum
    return einsum.with_densities(
        {
            name: density_of(value, einsum.tensor(name).shape(einsum.bounds), f"density.{name}")
            for name, value in table.items()
        }
    )


def in_words(densities: Densities) -> tuple[tuple[str, str], ...]:
    """Densities as a file has them, of tensors that have zeros.

    >>> in_words((("Inputs", 1), ("Weights", 0.5)))
    (('Weights', '0.5'),)
    """
    return tuple((name, str(value)) for name, value in densities if least_share(value, name) < 1.0)


def with_known_densities(einsum: Einsum, densities: Densities) -> Einsum:
    """An einsum of another size than the tensors have: densities that hold for one size only (a
    given tensor) are left out, and so are all if nothing is zero.

    Raises:
        SilicastError: one that is none.
    """
    for name, value in in_words(densities):
        try:
            einsum = with_densities(einsum, {name: value})
        except SilicastError:
            continue
    return einsum


def cost_without_zeros(
    template: Template,
    einsum: Einsum,
    sizes: F64,
    shares: Sequence[float],
    main_shares: Sequence[float],
) -> Cost:
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
        cost = cost_of(einsum, arch, traffic, None, zeros)
        if cost.fits[0]:
            return _of_shares(cost, batch, shares, main_shares)
    raise SilicastError(
        f"a {einsum.name} of {', '.join(f'{d}={n}' for d, n in einsum.bounds.items())}: its tiles "
        f"do not fit with what describes them",
        kind="unsupported",
        field="level",
        hint="give the memory more room, its metadata a store of their own, or compile the design "
        "(`silicast design compile`) for the model",
    )


def _in_room(template: Template, share: float) -> Template:
    """The same mapping, to be stretched into a share of each memory's room."""
    if share >= 1.0:
        return template
    nodes = tuple(
        replace(node, capacity_words=node.capacity_words * share)
        if isinstance(node, Memory) and node.capacity_words is not None
        else node
        for node in template.arch.nodes
    )
    return replace(template, arch=replace(template.arch, nodes=nodes))


def _of_shares(
    cost: Cost, batch: MappingBatch, shares: Sequence[float], main_shares: Sequence[float]
) -> Cost:
    """The cost where tensors take a share of an element's bits, and of main memory's words."""
    if not shares and not main_shares:
        return cost
    einsum, arch, zeros = cost.einsum, cost.architecture, cost.zeros
    assert zeros is not None
    share = Shares.from_einsum(einsum, batch.keep, shares, main_shares)
    current = share.element[None, :, None]
    out, into = (current * part[..., None].astype(np.float64) for part in (share.out, share.into))
    zeros = replace(
        zeros,
        reads=_times(zeros.reads, out),
        fills=_times(zeros.fills, into),
        updates=_times(zeros.updates, out),
        stored=zeros.stored * current,
        expanded=zeros.expanded * current,
        compressed=zeros.compressed * current,
    )
    return cost_of(einsum, arch, share.traffic(cost.traffic), None, zeros)


def _times(outcome: Outcome, share: F64) -> Outcome:
    return Outcome(
        outcome.actual * share,
        outcome.gated * share,
        outcome.skipped * share,
        np.ceil(outcome.accesses * share),
    )
