"""Layers that run one after the other on a design: what a workload file or a model comes to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.neighbours import are_neighbours


@final
@dataclass(frozen=True)
class EinsumLayer:
    """An einsum that runs ``count`` times.

    Attributes:
        name: of the first of them.
        einsum: what it computes.
        count: how often.
    """

    name: str
    einsum: Einsum
    count: int = 1


def distinct(layers: Iterable[EinsumLayer]) -> tuple[EinsumLayer, ...]:
    """Layers of equal shape put together, in the order in which they first come.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> product = matmul(m=2, n=2, k=2)
    >>> [each.count for each in distinct([EinsumLayer("a", product), EinsumLayer("b", product, 2)])]
    [3]
    """
    table: dict[tuple[object, ...], EinsumLayer] = {}
    for layer in layers:
        key = shape_of(layer.einsum)
        counted = table.get(key)
        count = layer.count + (counted.count if counted else 0)
        table[key] = EinsumLayer(counted.name if counted else layer.name, layer.einsum, count)
    return tuple(table.values())


def shape_of(einsum: Einsum) -> tuple[object, ...]:
    """What two einsums have in common that map alike; can be a key."""
    return (einsum.name, tuple(einsum.bounds.items()), einsum.tensors)


@final
@dataclass(frozen=True)
class Feed:
    """Two layers in a row.

    Attributes:
        first, second: numbers of the layers in the order of their workload.
        names: of both.
        einsums: of both.
        count: how often they run.
    """

    first: int
    second: int
    names: tuple[str, str]
    einsums: tuple[Einsum, Einsum]
    count: int = 1


def in_a_row(layers: Sequence[EinsumLayer]) -> tuple[Feed, ...]:
    """Neighbours of a list whose sizes belong together.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> a, b = matmul(m=4, n=8, k=2), matmul(m=4, n=2, k=8)
    >>> [(each.first, each.second) for each in in_a_row([EinsumLayer("a", a), EinsumLayer("b", b)])]
    [(0, 1)]
    """
    feeds = []
    for number, (first, second) in enumerate(itertools.pairwise(layers)):
        if first.count == second.count and are_neighbours(first.einsum, second.einsum):
            names, einsums = (first.name, second.name), (first.einsum, second.einsum)
            feeds.append(Feed(number, number + 1, names, einsums, first.count))
    return tuple(feeds)


def apart(feeds: Sequence[Feed], gains: Sequence[float]) -> list[int]:
    """Which feeds to choose so that no layer is in two of them and the gains are most.

    Args:
        gains: of each feed; those not above 0 are left. A layer feeds at most one other.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> a = matmul(m=4, n=4, k=4)
    >>> chain = in_a_row([EinsumLayer("", a), EinsumLayer("", a), EinsumLayer("", a),
    ...     EinsumLayer("", a)])
    >>> apart(chain, [3.0, 5.0, 3.0]), apart(chain, [1.0, 5.0, 3.0])
    ([0, 2], [1])
    """
    into: dict[int, list[int]] = {}
    for number, feed in enumerate(feeds):
        if gains[number] > 0:
            into.setdefault(feed.second, []).append(number)
    best: dict[int, tuple[float, list[int]]] = {}
    alone: dict[int, tuple[float, list[int]]] = {}
    nothing: tuple[float, list[int]] = (0.0, [])
    for layer in sorted(into):  # what feeds a layer stands before it
        before = [best.get(feeds[number].first, nothing) for number in into[layer]]
        total, chosen = sum(each[0] for each in before), [n for each in before for n in each[1]]
        alone[layer] = best[layer] = (total, chosen)
        for number, each in zip(into[layer], before, strict=True):
            without = alone.get(feeds[number].first, nothing)
            value = total - each[0] + without[0] + gains[number]
            if value > best[layer][0]:
                remaining = [n for n in chosen if n not in each[1]]
                best[layer] = value, [*remaining, *without[1], number]
    fed = {feeds[number].first for numbers in into.values() for number in numbers}
    return sorted(n for layer, each in best.items() if layer not in fed for n in each[1])
