"""Tensors among the operands of a call: in tuples, lists and dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any


def tensors_of(tree: object) -> Iterator[Any]:
    """Tensors in their order. What has a size in bytes (``nbytes``) is one: PyTorch is not asked.

    >>> import numpy as np
    >>> [each.shape for each in tensors_of((np.zeros(3), 7, [np.zeros((2, 2)), None]))]
    [(3,), (2, 2)]
    """
    if hasattr(tree, "nbytes"):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for each in tree:
            yield from tensors_of(each)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            yield from tensors_of(getattr(tree, field.name))


def stored_bytes(tree: object) -> int:
    """Bytes of all tensors."""
    return sum(int(each.nbytes) for each in tensors_of(tree))
