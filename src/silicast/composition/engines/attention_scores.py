"""Attention without a fused kernel: its scores are written to memory.

    scores = queries x keys,  weights = softmax(scores) in 32 bits,  result = weights x values

Heads that share keys are rows of one product. Sequences of a step run beside each other, all as
long as the longest (llama.cpp, llama-graph.cpp: ``build_attn_mha`` without ``flash_attn``).
Attention within a window, without a cache, and latent attention stay one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from silicast.core.dtypes import key_format, value_format
from silicast.workload.graphs.graph import Block, Node
from silicast.workload.graphs.nodes import (
    DECODE_LONGEST,
    DECODE_TOKENS,
    PREFILL_LONGEST,
    PREFILL_LONGEST_KV,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
)
from silicast.workload.graphs.op import Affine, Dim, Op, Variant
from silicast.workload.models.model import LayerKind

SCORES, SOFTMAX, VALUES = "_scores", "_softmax", "_values"
"""Ends of the names of the nodes before the one that keeps the name of the attention."""


def with_scores(block: Block) -> Block:
    """The block with two products, the softmax between them and a copy of the heads' results beside
    each other in place of each attention over cached keys.

    >>> op = Op.make("attention_decode", Variant("fp16", "fp16"), num_heads=8, num_kv_heads=2,
    ...              head_dim=64, window=0, kv_len="decode_kv")
    >>> whole = with_scores(Block("layer", (Node("attention_decode", op),)))
    >>> [node.name for node in whole.nodes]  # doctest: +NORMALIZE_WHITESPACE
    ['attention_decode_scores', 'attention_decode_softmax', 'attention_decode_values',
     'attention_decode']
    """
    nodes = [part for node in block.nodes for part in (_parts(node) if _taken(node) else (node,))]
    return replace(block, nodes=tuple(nodes))


def writes_scores(kind: LayerKind) -> bool:
    """Whether a layer of this kind has scores in memory, or no attention at all."""
    return not kind.mixer or (kind.mixer == "heads" and not kind.window)


def _taken(node: Node) -> bool:
    op = node.op
    if op.family not in ("attention_prefill", "attention_decode"):
        return False
    causal = op.variant.flag("causal", default=True)
    return causal and bool(op.variant.kv_dtype) and not op.dim("window")


def _parts(node: Node) -> Iterator[Node]:
    op, cache = node.op, node.op.variant.kv_dtype
    heads, groups, width = (_size(op, n) for n in ("num_heads", "num_kv_heads", "head_dim"))
    shared = heads // groups
    rows: Dim = shared
    keys, sequences, tokens = DECODE_LONGEST, DECODE_TOKENS, DECODE_TOKENS
    if op.family == "attention_prefill":
        rows = Affine(PREFILL_LONGEST, shared)
        keys, sequences, tokens = PREFILL_LONGEST_KV, PREFILL_SEQUENCES, PREFILL_TOKENS
    batch = Affine(sequences, groups)
    scores, softmax, values = (f"{node.name}{end}" for end in (SCORES, SOFTMAX, VALUES))
    of_keys, of_values = Variant(key_format(cache)), Variant(value_format(cache))
    product = Op.make("gemm", of_keys, m=rows, n=keys, k=width, batch=batch)
    yield Node(scores, product, node.inputs)
    weights = Op.make("softmax", Variant("fp32"), rows=Affine(tokens, heads), cols=keys)
    yield Node(softmax, weights, (scores,))
    product = Op.make("gemm", of_values, m=rows, n=width, k=keys, batch=batch)
    yield Node(values, product, (softmax,))
    variant = Variant(op.variant.dtype, flags=(("copy", True),))
    copy = Op.make("elementwise", variant, elements=Affine(tokens, heads * width), inputs=1)
    yield replace(node, op=copy, inputs=(values,))


def _size(op: Op, name: str) -> int:
    size = op.dim(name)
    assert isinstance(size, int), op
    return size
