"""Which orders of a memory's loops are worth trying: the others do no better than one of these."""

from __future__ import annotations

from collections.abc import Sequence

from silicast.accelerator.counting.einsum import Einsum

Order = tuple[int, ...]
"""Dimensions by index, innermost loop first."""


def worthwhile_orders(einsum: Einsum, innermost: Sequence[str] = ()) -> tuple[Order, ...]:
    """Orders of one memory's loops, of which one is the best for any loop bounds.

    A tensor stays while the innermost loops do not index it. What follows the first loop that
    indexes the last such tensor changes nothing, so only chains of loops that leave some tensor
    in place are tried. Of loops that leave the same tensors in place, the one that stands
    innermost decides which window slides; the order of the others changes nothing.

    Args:
        innermost: dimensions that must stand innermost, in this order.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> worthwhile_orders(matmul(m=2, n=2, k=2))
    ((0, 1, 2), (1, 0, 2), (2, 0, 1))
    """
    dims = range(len(einsum.dims))
    fixed = [einsum.dims.index(dim) for dim in innermost]
    stays = {
        d: frozenset(t.name for t in einsum.tensors if einsum.dims[d] not in t.dims) for d in dims
    }
    windows = {dim for t in einsum.tensors for rank in t.windows for dim, _ in rank}
    sliding = {d for d in dims if einsum.dims[d] in windows}
    live = frozenset(einsum.names)
    for d in fixed:
        live &= stays[d]
    free = [d for d in dims if d not in fixed]
    table: dict[Order, None] = {}
    for chain in _chains(free, stays, live if fixed else frozenset(einsum.names)):
        remaining = [d for d in free if d not in chain]
        first = chain[:1]
        group = [d for d in chain if stays[d] == stays[first[0]]] if first else []
        starts = [d for d in group if d in sliding] if not fixed else []
        for start in starts or first:
            table[(*fixed, start, *(d for d in chain if d != start), *remaining)] = None
        if not chain:
            table[(*fixed, *remaining)] = None
    # Where no loop leaves a tensor in place, a window may slide all the same.
    for d in free:
        if d in sliding and not stays[d] and not fixed:
            table[(d, *(o for o in free if o != d))] = None
    return tuple(table) or ((*fixed, *free),)


def _chains(
    free: list[int], stays: dict[int, frozenset[str]], live: frozenset[str]
) -> list[list[int]]:
    """Longest runs of loops that leave some tensor in place, innermost first."""
    groups: dict[frozenset[str], list[int]] = {}
    for d in free:
        groups.setdefault(stays[d] & live, []).append(d)
    chains: list[list[int]] = []
    for retained, dims in groups.items():
        if not retained:
            continue
        remaining = [d for d in free if d not in dims]
        chains.extend(dims + tail for tail in _chains(remaining, stays, retained))
    return chains or [[]]
