"""What no mapping is faster than: all units at work, and every word of main memory moved once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.counting.einsum import EinsumTensor


def distinct_words(tensor: EinsumTensor, bounds: Mapping[str, int]) -> int:
    """Words of a tensor that any product takes: a window with a stride may pass some over.

    >>> from silicast.accelerator.counting.einsum import conv2d
    >>> layer = conv2d(c=1, m=1, p=4, q=1, r=1, s=1, stride=2)
    >>> inputs = layer.tensor("Inputs")
    >>> inputs.size(layer.bounds), distinct_words(inputs, layer.bounds)
    (7, 4)
    """
    words = 1
    for rank in tensor.ranks:
        indices = np.zeros(1, dtype=np.int64)
        for dim, step in rank:
            indices = np.unique(np.add.outer(indices, step * np.arange(bounds[dim])))
        words *= len(indices)
    return words


def time_gap(cost: MappingCost) -> float:
    """How much less time any mapping could take: all units at work, and every word of main memory
    moved once.
    """
    arch, einsum = cost.architecture, cost.einsum
    shares = {
        tensor.name: 1.0 if cost.zeros is None else tensor.density.share
        for tensor in einsum.tensors
    }
    left = math.prod(shares[tensor.name] for tensor in einsum.tensors if not tensor.is_output)
    least = einsum.points * left / (arch.units * arch.compute.per_cycle)
    for port in arch.memories[0].ports:
        action = {True: "update", False: "read"}
        words = sum(
            distinct_words(tensor, einsum.bounds) * shares[tensor.name]
            for tensor in einsum.tensors
            if action[tensor.is_output] in port.actions
            and (not port.tensors or tensor.name in port.tensors)
        )
        least = max(least, words / port.words_per_cycle)
    return max(0.0, 1.0 - least / float(cost.cycles[0]))
