"""Sizes of matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from silicast.workload.graphs.op import Op

GEMM_DIMS: Mapping[str, tuple[int, int]] = MappingProxyType(
    dict.fromkeys(("m", "n", "k", "batch"), (1, 1 << 24))
)
"""Dimension of a matrix product -> smallest and largest sensible size."""


def gemm_sizes(op: Op) -> tuple[int, int, int, int]:
    """Rows, columns, depth and batch of a matrix product.

    >>> from silicast.workload.graphs.op import Variant
    >>> gemm_sizes(Op.make("gemm", Variant(dtype="bf16"), m=16, n=64, k=32))
    (16, 64, 32, 1)
    """
    sizes = dict(op.dims)
    m, n, k, batch = (sizes.get(name, 1) for name in ("m", "n", "k", "batch"))
    if not all(isinstance(size, int) for size in (m, n, k, batch)):
        raise ValueError("a matrix product has plain sizes")
    return int(m), int(n), int(k), int(batch)  # type: ignore[arg-type]
