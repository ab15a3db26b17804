"""The kinds of nodes that all parts of a decoder are made of."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

from silicast.core.dtypes import Recipe, stored_bytes
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Affine, Dim, Op, Variant
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import Shard

TOKENS = "tokens"
ALL_TOKENS = "all_tokens"
"""New tokens of all groups that attend to sequences of their own."""
LOGIT_ROWS = "logit_rows"
PREFILL_Q = "prefill_q"
PREFILL_KV = "prefill_kv"
PREFILL_KV_TOKENS = "prefill_kv_tokens"
PREFILL_TOKENS = "prefill_tokens"
PREFILL_SEQUENCES = "prefill_sequences"
PREFILL_LONGEST = "prefill_longest"
"""New tokens of the longest sequence in prefill."""
PREFILL_LONGEST_KV = "prefill_longest_kv"
"""Past and new tokens of the sequence in prefill that has most."""
DECODE_KV = "decode_kv"
DECODE_TOKENS = "decode_tokens"
DECODE_LONGEST = "decode_longest"
"""Cached and new tokens of the longest decoding sequence, to which a framework pads all others."""
CROSS_KV = "cross_kv"
"""Per decoding sequence, what it sees of the encoder."""

Phase = Literal["", "prefill", "decode"]

_PHASES: dict[str, Phase] = {
    PREFILL_Q: "prefill", PREFILL_KV: "prefill", PREFILL_KV_TOKENS: "prefill",
    PREFILL_TOKENS: "prefill", PREFILL_SEQUENCES: "prefill", PREFILL_LONGEST: "prefill",
    PREFILL_LONGEST_KV: "prefill",
    DECODE_KV: "decode", DECODE_TOKENS: "decode", DECODE_LONGEST: "decode", CROSS_KV: "decode",
}  # fmt: skip


def step_symbols(
    prefill: Sequence[tuple[int, int]] = (),
    decode: Sequence[int] = (),
    groups: int = 1,
    cross: Sequence[int] = (),
) -> dict[str, Dim]:
    """Values of all symbols for one step.

    Args:
        prefill: (new tokens, past plus new tokens) of each sequence in prefill.
        decode: cached tokens, without the new one, of each decoding sequence.
        groups: groups with sequences of their own (attention_dp), each with as many tokens.
        cross: behind an encoder, tokens of the prompt of each decoding sequence.

    >>> step_symbols([(5, 5), (3, 10)], [7])["tokens"]
    9
    """
    tokens = sum(new for new, _ in prefill) + len(decode)
    return {
        TOKENS: tokens,
        ALL_TOKENS: groups * tokens,
        LOGIT_ROWS: len(prefill) + len(decode),
        PREFILL_Q: tuple(new for new, _ in prefill),
        PREFILL_KV: tuple(total for _, total in prefill),
        PREFILL_KV_TOKENS: sum(total for _, total in prefill),
        PREFILL_TOKENS: sum(new for new, _ in prefill),
        PREFILL_SEQUENCES: len(prefill),
        PREFILL_LONGEST: max((new for new, _ in prefill), default=0),
        PREFILL_LONGEST_KV: max((total for _, total in prefill), default=0),
        DECODE_KV: tuple(decode),
        DECODE_TOKENS: len(decode),
        DECODE_LONGEST: max(decode, default=-1) + 1,
        CROSS_KV: tuple(length - 1 for length in cross),  # as attention counts: without one
    }


def phase_of(op: Op) -> Phase:
    """The kind of sequences without which an op does not run; "" = it runs in every step.

    >>> phase_of(Op.make("gemm", m="decode_tokens", n=512, k=128, batch=16))
    'decode'
    """
    for _, dim in op.dims:
        symbol = dim.symbol if isinstance(dim, Affine) else dim
        if isinstance(symbol, str) and symbol in _PHASES:
            return _PHASES[symbol]
    return ""


Ended = Generator[Node, None, str]
"""Nodes; returns the name of the one that ends them."""

_KERNEL_KINDS = {"relu2": "relu"}
"""Activations that run as an elementwise kernel of another name: squaring is one more multiply."""


@final
@dataclass(frozen=True)
class Nodes:
    """Makes nodes in the sizes and formats of one model on one rank.

    Attributes:
        dispatches: groups with tokens of their own send each token to its experts' ranks only.
        formats: of single modules of the layer, as ``LayerKind.formats``.
    """

    model: ModelConfig
    shard: Shard
    precision: Precision
    dispatches: bool = False
    formats: tuple[tuple[str, str], ...] = ()

    def of_layer(self, kind: LayerKind) -> Nodes:
        """The same for the nodes of one kind of layer."""
        return replace(self, formats=kind.formats) if kind.formats != self.formats else self

    def recipe_of(self, name: str, usual: Recipe) -> Recipe:
        """The recipe of a product; ``usual`` where its module has no format of its own."""
        return self.precision.of_module(self.formats, name) or usual

    @property
    def plain(self) -> Variant:
        """The format between kernels."""
        return Variant(dtype=self.precision.hidden)

    @property
    def unquantised(self) -> Variant:
        """Products that keep the format between kernels, whatever the layers are quantised to: the
        head, routers, and what latent attention absorbs.
        """
        recipe = self.precision.linear
        plain = recipe.weights == self.precision.hidden
        return Variant(dtype=recipe.name if plain else self.precision.hidden)

    def cached(self, *flags: tuple[str, bool]) -> Variant:
        """The variant of attention whose cache has its own format."""
        return Variant(self.precision.hidden, self.precision.kv_cache, flags=flags)

    def cached_bytes(self, elements: int) -> int:
        """Bytes of so many elements in the cache."""
        return stored_bytes(self.precision.kv_cache, elements)

    def node(
        self, name: str, family: str, *inputs: str, variant: Variant | None = None, **dims: Dim
    ) -> Node:
        """A node of one op, by default in the format between kernels."""
        return Node(name, Op.make(family, variant or self.plain, **dims), inputs)

    def norm(self, name: str, *inputs: str, residual: bool) -> Node:
        """A norm over the hidden states of all tokens."""
        return self.node(
            name,
            self.model.norm,
            *inputs,
            tokens=TOKENS,
            hidden=self.model.hidden,
            residual=int(residual),
        )

    def row_norm(self, name: str, rows: int, width: int, *inputs: str) -> Node:
        """A norm of ``rows`` rows a token, without a residual."""
        tokens = Affine(TOKENS, rows)
        return self.node(name, self.model.norm, *inputs, tokens=tokens, hidden=width, residual=0)

    def gemm(self, name: str, n: int, k: int, *inputs: str, rows: str = TOKENS) -> Node:
        return self._linear(name, self.precision.linear, n, k, rows, inputs)

    def projection(self, name: str, n: int, k: int, *inputs: str, rows: str = TOKENS) -> Node:
        """A linear layer of attention."""
        return self._linear(name, self.precision.projection, n, k, rows, inputs)

    def _linear(
        self, name: str, recipe: Recipe, n: int, k: int, rows: str, inputs: tuple[str, ...]
    ) -> Node:
        """A product in ``recipe``; activations that arrive in 16 bits are quantised."""
        recipe = self.recipe_of(name, recipe)
        flags = (("includes_quantize", True),) if recipe.quantizes else ()
        variant = Variant(dtype=recipe.name, flags=flags)
        return self.node(name, "gemm", *inputs, variant=variant, m=rows, n=n, k=k)

    def product(
        self, name: str, n: int, k: int, *inputs: str, rows: Dim = TOKENS, batch: int = 0
    ) -> Node:
        """A product that is not quantised, or one for each of ``batch`` heads."""
        sizes: dict[str, Dim] = {"m": rows, "n": n, "k": k} | ({"batch": batch} if batch else {})
        return self.node(name, "gemm", *inputs, variant=self.unquantised, **sizes)

    def head(self, name: str, n: int, k: int, *inputs: str, rows: str) -> Node:
        """The product that makes logits: in the format between kernels, or in the head's own."""
        if not self.precision.head:
            return self.product(name, n, k, *inputs, rows=rows)
        variant = Variant(dtype=self.precision.head)
        return self.node(name, "gemm", *inputs, variant=variant, m=rows, n=n, k=k)

    def rope(self, name: str, heads: int, kv_heads: int, width: int, *inputs: str) -> Node:
        """Rotation of queries and keys."""
        return self.node(
            name,
            "rope",
            *inputs,
            tokens=TOKENS,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=width,
        )

    def kv_copy(self, name: str, heads: int, width: int, *inputs: str, rows: str = TOKENS) -> Node:
        """New keys and values of ``width`` each into the cache."""
        sizes = {"num_kv_heads": heads, "head_dim": width}
        return self.node(name, "kv_copy", *inputs, variant=self.cached(), tokens=rows, **sizes)

    def mlp(self, prefix: str, inner: int, source: str, rows: str = TOKENS) -> Iterator[Node]:
        """Up (with the gate), activation, down of ``rows``; ``inner`` is the rank's width."""
        model, kind = self.model, self.model.activation
        if not model.gated:
            up, activated = f"{prefix}up", f"{prefix}{kind}"
            yield self.gemm(up, inner, model.hidden, source, rows=rows)
            yield self.elementwise(activated, kind, inner, 1, up, rows=rows)
        else:
            up, activated = f"{prefix}gate_up", f"{prefix}{kind}_mul"
            yield self.gemm(up, 2 * inner, model.hidden, source, rows=rows)
            if kind == "silu":
                yield self.node(activated, "silu_mul", up, tokens=rows, width=2 * inner)
            else:
                yield self.elementwise(activated, kind, inner, 2, up, rows=rows)
        yield self.gemm(f"{prefix}down", model.hidden, inner, activated, rows=rows)

    def elementwise(
        self, name: str, kind: str, width: int, count: int, *inputs: str, rows: str = TOKENS
    ) -> Node:
        """``count`` inputs of ``width`` per row to one output."""
        elements = Affine(rows, width)
        variant = Variant(self.precision.hidden, flags=((_KERNEL_KINDS.get(kind, kind), True),))
        return self.node(
            name, "elementwise", *inputs, variant=variant, elements=elements, inputs=count
        )

    def all_reduce(self, name: str, *inputs: str, width: int = 0) -> Node:
        """Sum over the tensor-parallel ranks of ``width`` bytes a token, 0 = the hidden states."""
        size = Affine(TOKENS, width or self.model.hidden * self.precision.hidden_bytes)
        return self.node(name, "all_reduce", *inputs, bytes=size, gpus=self.shard.tp)

    def summed(self, name: str, last: str) -> Ended:
        """The sum over the ranks of the output of ``last``, if there are several ranks."""
        if self.shard.tp == 1:
            return last
        yield self.all_reduce(name, last)
        return name

    def between_groups(self, family: str, name: str, *inputs: str) -> Node:
        """Brings the hidden states of all groups' tokens to each ("all_gather"), or the sums over
        the groups to their own ("reduce_scatter").
        """
        size = Affine(ALL_TOKENS, self.model.hidden * self.precision.hidden_bytes)
        return self.node(name, family, *inputs, bytes=size, gpus=self.shard.groups)
