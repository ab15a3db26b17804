"""Layers that run one after the other on a design: what a workload file or a model comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from silicast.accelerator.einsum import Einsum


@final
@dataclass(frozen=True)
class Layer:
    """An einsum that runs ``count`` times.

    Attributes:
        name: of the first of them.
        einsum: what it computes.
        count: how often.
    """

    name: str
    einsum: Einsum
    count: int = 1


def distinct(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Layers of equal shape put together, in the order in which they first come.

    >>> from silicast.accelerator.einsum import matmul
    >>> product = matmul(m=2, n=2, k=2)
    >>> [each.count for each in distinct([Layer("a", product), Layer("b", product, 2)])]
    [3]
    """
    found: dict[tuple[object, ...], Layer] = {}
    for layer in layers:
        key = shape_of(layer.einsum)
        known = found.get(key)
        count = layer.count + (known.count if known else 0)
        found[key] = Layer(known.name if known else layer.name, layer.einsum, count)
    return tuple(found.values())


def shape_of(einsum: Einsum) -> tuple[object, ...]:
    """What two einsums have in common that map alike; can be a key."""
    return (einsum.name, tuple(einsum.bounds.items()), einsum.tensors)
