"""What each kernel of a forward pass costs in the backward one: autograd's rules, by family.

Sizes are those of PyTorch's own backward functions (``derivatives.yaml`` and its kernels): a
product of matrices becomes two, a softmax a product and a pass over three tensors, a fused
attention computes its scores again (2.5 times the operations of its forward, Dao 2022). A pass
over the same bytes stands for a kernel that has no family of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from silicast.core.dtypes import BITS, RECIPES
from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import HOST_WAITS, INTEGERS, Affine, Dim, Op, Variant

Gradients = list[tuple[str, Op]]
"""Suffix of the name and op of each backward kernel, in order."""

CHOICES: Mapping[str, int] = {"where": 1, "max": 5}
"""Passes over a tensor that choose between two, by a part of their names: unlike sums they cost
something backward. The larger one of two: equal?, half, where, smaller?, masked fill."""

DROPOUT = "dropout"
"""Part of the source of a pass that drops: it keeps a mask of one byte an element."""

_NO_GRADIENT = frozenset(
    ("sampling", "topk", "kv_copy", "quantize", "optimizer", "attention_decode", "indexer_logits")
)
"""Integers come out of them, or they belong to generation."""

_CONJUGATE = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "dispatch": "combine",
    "combine": "dispatch",
}
_UNARY = frozenset(("relu", "sqrt", "exp", "sigmoid", "silu", "tanh", "gelu"))


def words(node: Node) -> frozenset[str]:
    """Words that its operation is called by: of the program's own name for it, where there is one.

    >>> op = Op.make("elementwise", elements=8, inputs=2)
    >>> sorted(words(Node("maxvit.where_0", op, source="aten.where.self")))
    ['aten', 'self', 'where']
    """
    name = node.source or node.name.rpartition(".")[2]
    parts = re.split(r"[^a-z]+", name.lower())
    return frozenset("max" if word == "maximum" else word for word in parts if word)


def gradients(node: Node) -> Gradients:
    """Backward kernels of one node.

    A family without a rule of its own costs its forward twice, as products do.

    >>> from silicast.workload.graphs.op import Op
    >>> found = gradients(Node("scores", Op.make("gemm", batch=16, m=512, n=512, k=64)))
    >>> [(suffix, op.dim("m"), op.dim("n"), op.dim("k")) for suffix, op in found]
    [('input', 512, 64, 512), ('values', 512, 64, 512)]
    """
    op = node.op
    if op.family in _NO_GRADIENT:
        return []
    rule = _RULES.get(op.family)
    return rule(node) if rule is not None else [("input", op), ("weight", op)]


def _product(node: Node) -> Gradients:
    """The input's, dY W^T, and the weight's, X^T dY; a bias sums dY over its rows."""
    op = node.op
    sizes = dict(op.dims)
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    both = node.parameter_bytes == 0 and ("batch" in sizes or len(node.inputs) > 1)
    first = replace(op, dims=_with(op, m=m, n=k, k=n))
    if both:
        return [("input", first), ("values", replace(op, dims=_with(op, m=n, n=k, k=m)))]
    if not isinstance(m, (int, tuple)):  # rows of a batch state: the same work the other way around
        return [("input", first), ("weight", first)]
    product: Gradients = [("input", first)]
    product.append(("weight", replace(op, dims=_with(op, m=n, n=k, k=m))))
    if _has_bias(node):
        rows, columns = _sizes(op, "m", "n")
        product.append(("bias", _moved(op, rows * columns, columns)))
    return product


def _has_bias(node: Node) -> bool:
    """Whether a product's parameters are more than its weights."""
    n, k = node.op.dim("n"), node.op.dim("k")
    if not (isinstance(n, int) and isinstance(k, int)):
        return False
    recipe = RECIPES.get(node.op.variant.dtype)
    bits = recipe.weight_bits if recipe is not None else BITS.get(node.op.variant.dtype, 16)
    return node.parameter_bytes * 8 > n * k * bits


def _convolution(node: Node) -> Gradients:
    """Two convolutions of as many operations."""
    return [("input", node.op), ("weight", node.op)]


def _elementwise(node: Node) -> Gradients:
    op = node.op
    two = dict(op.dims).get("inputs", 1) != 1
    kind = next((name for name, value in op.variant.flags if value), "add")
    if kind == "add":
        called = words(node)
        passes = next((count for word, count in CHOICES.items() if word in called), 0)
        return [(f"choice_{number}", _pass(op, "copy", 1)) for number in range(1, passes + 1)]
    if kind in _UNARY:
        return [("input", _pass(op, kind, 2))]
    if kind == "pow":  # the smaller power, times the exponent, times the gradient
        return [
            ("power", _pass(op, "pow", 1)),
            ("factor", _pass(op, "mul", 1)),
            ("input", _pass(op, "mul", 2)),
        ]
    if two:  # a product or quotient of two tensors
        return [("input", _pass(op, kind, 2)), ("values", _pass(op, "mul", 2))]
    return [("input", _pass(op, kind, 1))]


def _softmax(node: Node) -> Gradients:
    """The product of gradient and result, then their row sums times the result."""
    rows, cols = _sizes(node.op, "rows", "cols")
    whole = Op.make("elementwise", _kind(node.op, "mul"), elements=rows * cols, inputs=2)
    return [("product", whole), ("input", whole)]


def _norm(node: Node) -> Gradients:
    """Of the input: three tensors; of weight and bias: gradient and input once more."""
    op = node.op
    if op.variant.dtype != "fp32":  # kernels of 16 bits were measured as one call
        dims = tuple((n, v) for n, v in op.dims if n != "residual")
        return [("input", replace(op, family="norm_backward", dims=dims))]
    plain = replace(op, dims=tuple((n, 0 if n == "residual" else v) for n, v in op.dims))
    tokens, hidden = op.dim("tokens"), op.dim("hidden")
    if isinstance(tokens, int) and isinstance(hidden, int):
        whole: Dim = tokens * hidden
    elif isinstance(tokens, str) and isinstance(hidden, int):
        whole = Affine(tokens, hidden)
    elif isinstance(tokens, Affine) and isinstance(hidden, int):
        whole = replace(tokens, factor=tokens.factor * hidden, constant=tokens.constant * hidden)
    else:
        return [("input", plain), ("weight", plain)]
    first = Op.make("elementwise", _kind(op, "mul"), elements=whole, inputs=2)
    return [("input", first), ("weight", plain)]


def _embedding(node: Node) -> Gradients:
    """A table of zeros, to which the rows' gradients are added."""
    op = node.op
    sizes = dict(op.dims)
    vocab, hidden = sizes["vocab"], sizes["hidden"]
    if not (isinstance(vocab, int) and isinstance(hidden, int)):
        return [("weight", op)]
    return [("zeros", _moved(op, 0, vocab * hidden)), ("weight", op)]


def _attention(node: Node) -> Gradients:
    """One fused kernel that computes the scores again: five products where forward has two."""
    return [("input", replace(node.op, family="attention_backward"))]


def _latent_attention(node: Node) -> Gradients:
    """Likewise of keys that were made out of the latent: all heads have their own, wider than
    values.
    """
    lengths = {name: size for name, size in node.op.dims if name in ("q_len", "kv_len")}
    heads, nope, rope, value = _sizes(
        node.op, "num_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"
    )
    widths = {"num_heads": heads, "num_kv_heads": heads, "head_dim": nope + rope}
    dims: dict[str, Dim] = {**lengths, **widths, "value_dim": value}
    dims_of = tuple(sorted(dims.items()))
    return [("input", replace(node.op, family="attention_backward", dims=dims_of))]


def _gated(node: Node) -> Gradients:
    """Gradient and both halves in, both halves' gradients out."""
    op = node.op
    tokens, width = op.dim("tokens"), op.dim("width")
    if isinstance(tokens, int) and isinstance(width, int):
        half = tokens * (width // 2)
        return [("input", _moved(op, 3 * half, 2 * half, operations=8 * half))]
    return [("input", op), ("values", op)]


def _moves(node: Node) -> Gradients:
    """What was read is written; a dropped tensor's mask is scaled first."""
    op, sizes = node.op, dict(node.op.dims)
    read, written = sizes["read_bytes"], sizes["written_bytes"]
    if op.variant.flag(HOST_WAITS) or op.variant.flag(INTEGERS):
        return []
    if DROPOUT in words(node) and isinstance(read, int):
        whole = Op.make("elementwise", _kind(op, "mul"), elements=_count(op, read), inputs=2)
        return [("mask", whole), ("input", whole)]
    smallest = max(read, 1) if isinstance(read, int) else read
    return [("input", replace(op, dims=_with(op, read_bytes=written, written_bytes=smallest)))]


def _loss(node: Node) -> Gradients:
    """Of the logits: their exponentials over the sums, less one."""
    rows, vocab = _sizes(node.op, "rows", "vocab")
    op = Op.make("elementwise", _kind(node.op, "exp"), elements=rows * vocab, inputs=1)
    return [("input", op)]


def _collective(node: Node) -> Gradients:
    """Sums become copies to all and the other way around; the rest is sent back."""
    op = node.op
    return [("input", replace(op, family=_CONJUGATE.get(op.family, op.family)))]


def _same(node: Node) -> Gradients:
    return [("input", node.op)]


_RULES: Mapping[str, Callable[[Node], Gradients]] = {
    "gemm": _product, "conv2d": _convolution, "elementwise": _elementwise, "softmax": _softmax,
    "layernorm": _norm, "rmsnorm": _norm, "embedding": _embedding, "attention_prefill": _attention,
    "mla_prefill": _latent_attention,
    "silu_mul": _gated, "data_movement": _moves, "cross_entropy": _loss, "rope": _same,
    "all_reduce": _collective, "all_gather": _collective, "reduce_scatter": _collective,
    "dispatch": _collective, "combine": _collective, "all_to_all": _collective,
    "send_recv": _collective, "broadcast": _collective,
}  # fmt: skip


def _kind(op: Op, kind: str) -> Variant:
    """An elementwise variant in the format of the op's result."""
    recipe = RECIPES.get(op.variant.dtype)
    return Variant(
        dtype=op.variant.dtype if recipe is None else recipe.output, flags=((kind, True),)
    )


def _sizes(op: Op, *names: str) -> tuple[int, ...]:
    """Sizes of an op that has no symbols."""
    sizes = [op.dim(name) for name in names]
    for name, size in zip(names, sizes, strict=True):
        if not isinstance(size, int):
            raise SilicastError(
                f"the backward pass of {op.family} needs a number for {name}, found {size!r}",
                field=name,
                hint="bind the batch's symbols first",
            )
    return tuple(size for size in sizes if isinstance(size, int))


def _pass(op: Op, kind: str, inputs: int) -> Op:
    return replace(op, dims=_with(op, inputs=inputs), variant=_kind(op, kind))


def _count(op: Op, size: int) -> int:
    bits = int(BITS.get(_kind(op, "copy").dtype, 16))
    return max(size * 8 // bits, 1)


def _moved(op: Op, read: int, written: int, operations: int = 0) -> Op:
    """Elements read and written, in the format of the op's result."""
    variant = Variant(dtype=_kind(op, "copy").dtype)
    size = int(BITS.get(variant.dtype, 16))
    return Op.make(
        "data_movement",
        variant,
        read_bytes=read * size // 8,
        written_bytes=max(written * size // 8, 1),
        operations=operations,
    )


def _with(op: Op, **changes: Dim) -> tuple[tuple[str, Dim], ...]:
    """The dimensions of ``op``, sorted, with some of them changed or added."""
    return tuple(sorted({**dict(op.dims), **changes}.items()))


_SAVES_RESULT = frozenset(("softmax",))
_SAVES_NOTHING = frozenset(
    ("data_movement", "embedding", "rope", "optimizer", "all_reduce", "all_gather",
     "reduce_scatter", "all_to_all", "send_recv", "broadcast", "dispatch", "combine")
)  # fmt: skip
_RESULT_KINDS = ("relu", "sigmoid", "tanh", "exp", "sqrt")
_LINEAR_KINDS = ("add", "copy", "cast")


def saved_by(node: Node) -> tuple[str, ...]:
    """Nodes whose results a node's gradients read: autograd keeps them from the forward pass on.

    >>> from silicast.workload.graphs.op import Variant
    >>> gelu = Op.make("elementwise", Variant(flags=(("gelu", True),)), elements=8, inputs=1)
    >>> saved_by(Node("act", gelu, ("up",)))
    ('up',)
    """
    op = node.op
    if op.family in _SAVES_RESULT:
        return (node.name,)
    if op.family in _SAVES_NOTHING:
        return ()
    if op.family.startswith(("attention", "mla")):
        return (*node.inputs, node.name)
    if op.family == "elementwise":
        if any(op.variant.flag(kind) for kind in _LINEAR_KINDS):
            return ()
        if any(op.variant.flag(kind) for kind in _RESULT_KINDS):
            return (node.name,)
    return node.inputs
