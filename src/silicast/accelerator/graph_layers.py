"""A graph's products and convolutions as layers for the mapper."""

from __future__ import annotations

from typing import Any

from silicast.accelerator.einsum import Einsum, conv2d, matmul
from silicast.accelerator.foreign.reader import Workload
from silicast.accelerator.layers import Layer, distinct
from silicast.core.errors import SilicastError
from silicast.kernels.conv2d_shapes import Shape
from silicast.workload.graph import Graph
from silicast.workload.op import Op


def layers_of(graph: Graph) -> Workload:
    """Every product and convolution of a graph, as often as it runs; others are counted by family.

    Raises:
        SilicastError: a size is still open.
    """
    found: list[Layer] = []
    left: dict[str, int] = {}
    for block, node in graph.nodes():
        einsum = _einsum(node.op, node.name)
        if einsum is None:
            left[node.op.family] = left.get(node.op.family, 0) + block.count
        else:
            found.append(Layer(node.name, einsum, block.count))
    return Workload(distinct(found), left)


def _einsum(op: Op, name: str) -> Einsum | None:
    sizes: dict[str, Any] = dict(op.dims)
    for dim, size in sizes.items():
        if not isinstance(size, int | tuple):
            raise SilicastError(f"{dim} is still open", field=name, hint="give its size by --set")
    if op.family == "gemm":
        batch = sizes.get("batch", 1)
        return matmul(
            m=sizes["m"], n=sizes["n"], k=sizes["k"], batch=batch, weights_per_batch=batch > 1
        )
    if op.family != "conv2d" or any(
        op.variant.flag(f"backward_{of}") for of in ("data", "weights")
    ):
        return None
    shape = Shape.of(sizes)
    if shape.stride_h != shape.stride_w:
        return None
    return conv2d(
        n=shape.n, c=shape.c_of_group, m=shape.k_of_group, p=shape.p, q=shape.q, r=shape.r,
        s=shape.s, groups=shape.groups, stride=shape.stride_h,
    )  # fmt: skip
