"""Products whose rows are cut over all devices, of a model whose layers are shared out.

A layer's other kernels and its cache are on one device. A product there sends its input to all
others, computes a share of its outputs on each and brings the shares back (llama.cpp,
``--split-mode row``; ggml-cuda.cu, ``ggml_cuda_op_mul_mat``):

    out    (devices - 1) x rows x k, quantised to blocks of 8 bits where the weights are
    back   (devices - 1) / devices x rows x n in 32 bits

Experts are not cut: their layer's device has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from silicast.core.dtypes import BITS, GGUF_BLOCKS, block_bits
from silicast.workload.graphs.graph import Block, Node
from silicast.workload.graphs.op import Affine, Op

ROWS_OUT, ROWS_PART = "_rows_out", "_rows_part"
"""Ends of the names of the transfer before a product and of the share that a device computes; the
transfer back keeps the product's name."""
RESULT_BYTES = 4


def with_rows_cut(block: Block, devices: int) -> Block:
    """The block as ``devices`` that share the rows of its weights run it.

    >>> from silicast.workload.graphs.op import Variant
    >>> op = Op.make("gemm", Variant("q8_0"), m="tokens", n=4096, k=1024)
    >>> cut = with_rows_cut(Block("layer", (Node("up", op),)), 4)
    >>> [(node.name, dict(node.op.dims).get("n", dict(node.op.dims).get("bytes")))
    ...  for node in cut.nodes]  # doctest: +NORMALIZE_WHITESPACE
    [('up_rows_out', Affine(symbol='tokens', factor=3264, constant=0)), ('up_rows_part', 1024),
     ('up', Affine(symbol='tokens', factor=12288, constant=0))]
    """
    nodes = (part for node in block.nodes for part in _parts(node, devices))
    return replace(block, nodes=tuple(nodes))


def _parts(node: Node, devices: int) -> Iterator[Node]:
    op, sizes = node.op, dict(node.op.dims)
    rows, n, k = (sizes.get(name) for name in ("m", "n", "k"))
    whole = isinstance(rows, str) and isinstance(n, int) and isinstance(k, int)
    if op.family != "gemm" or "batch" in sizes or not whole:
        yield node
        return
    assert isinstance(rows, str)
    assert isinstance(n, int)
    assert isinstance(k, int)
    bits = block_bits("q8_0") if op.variant.dtype in GGUF_BLOCKS else BITS[op.variant.dtype]
    others, share = devices - 1, -(-n // devices)
    out, part = f"{node.name}{ROWS_OUT}", f"{node.name}{ROWS_PART}"
    sent = Affine(rows, -(-int(others * k * bits) // 8))
    yield Node(out, Op.make("send_recv", bytes=sent, gpus=2), node.inputs)
    dims = tuple((name, share if name == "n" else size) for name, size in op.dims)
    yield replace(node, name=part, op=replace(op, dims=dims), inputs=(out,))
    back = Affine(rows, (n - share) * RESULT_BYTES)
    yield Node(node.name, Op.make("send_recv", bytes=back, gpus=2), (part,))
