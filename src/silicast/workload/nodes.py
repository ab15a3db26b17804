"""The kinds of nodes that all parts of a decoder are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from silicast.core.dtypes import Recipe
from silicast.workload.graph import Node
from silicast.workload.model import ModelConfig
from silicast.workload.op import Affine, Op, Variant
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard
from silicast.workload.symbols import ALL_TOKENS, TOKENS

_KERNEL_KINDS = {"relu2": "relu"}
"""Activations that run as an elementwise kernel of another name: squaring is one more multiply."""


@final
@dataclass(frozen=True)
class Nodes:
    """Makes nodes in the sizes and formats of one model on one rank.

    Attributes:
        dispatches: groups with tokens of their own send each token to its experts' ranks only.
    """

    model: ModelConfig
    shard: Shard
    precision: Precision
    dispatches: bool = False

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

    @property
    def cached(self) -> Variant:
        """Attention on the cache's format."""
        return Variant(dtype=self.precision.hidden, kv_dtype=self.precision.kv_cache)

    def linear(self, recipe: Recipe) -> Variant:
        """A linear layer in ``recipe``; activations that arrive in 16 bits are quantised."""
        flags = (("includes_quantize", True),) if recipe.quantizes else ()
        return Variant(dtype=recipe.name, flags=flags)

    def norm(self, name: str, *inputs: str, residual: bool) -> Node:
        """A norm over the hidden states of all tokens."""
        hidden = self.model.hidden
        op = Op.make(
            self.model.norm, self.plain, tokens=TOKENS, hidden=hidden, residual=int(residual)
        )
        return Node(name, op, inputs)

    def row_norm(self, name: str, rows: int, width: int, *inputs: str) -> Node:
        """A norm of ``rows`` rows a token, without a residual."""
        tokens = Affine(TOKENS, rows)
        op = Op.make(self.model.norm, self.plain, tokens=tokens, hidden=width, residual=0)
        return Node(name, op, inputs)

    def gemm(self, name: str, n: int, k: int, *inputs: str, rows: str = TOKENS) -> Node:
        """A linear layer."""
        variant = self.linear(self.precision.linear)
        return Node(name, Op.make("gemm", variant, m=rows, n=n, k=k), inputs)

    def projection(self, name: str, n: int, k: int, *inputs: str, rows: str = TOKENS) -> Node:
        """A linear layer of attention."""
        variant = self.linear(self.precision.projection)
        return Node(name, Op.make("gemm", variant, m=rows, n=n, k=k), inputs)

    def mlp(self, prefix: str, inner: int, source: str, rows: str = TOKENS) -> Iterator[Node]:
        """Up (with the gate), activation, down of ``rows``; ``inner`` is the rank's width."""
        model = self.model
        if model.gated:
            width = 2 * inner
            yield self.gemm(f"{prefix}gate_up", width, model.hidden, source, rows=rows)
            if model.activation == "silu":
                activated = f"{prefix}silu_mul"
                act = Op.make("silu_mul", self.plain, tokens=rows, width=width)
                yield Node(activated, act, (f"{prefix}gate_up",))
            else:
                activated = f"{prefix}{model.activation}_mul"
                up = f"{prefix}gate_up"
                yield self.elementwise(activated, model.activation, inner, 2, up, rows=rows)
        else:
            activated = f"{prefix}{model.activation}"
            yield self.gemm(f"{prefix}up", inner, model.hidden, source, rows=rows)
            up = f"{prefix}up"
            yield self.elementwise(activated, model.activation, inner, 1, up, rows=rows)
        yield self.gemm(f"{prefix}down", model.hidden, inner, activated, rows=rows)

    def elementwise(
        self, name: str, kind: str, width: int, count: int, *inputs: str, rows: str = TOKENS
    ) -> Node:
        """``count`` inputs of ``width`` per row to one output."""
        op = Op.make("elementwise", self.kind(kind), elements=Affine(rows, width), inputs=count)
        return Node(name, op, inputs)

    def all_reduce(self, name: str, *inputs: str, width: int = 0) -> Node:
        """Sum over the tensor-parallel ranks of ``width`` bytes a token, 0 = the hidden states."""
        size = Affine(TOKENS, width or self.model.hidden * self.precision.hidden_bytes)
        op = Op.make("all_reduce", self.plain, bytes=size, gpus=self.shard.tp)
        return Node(name, op, inputs)

    def between_groups(self, family: str, name: str, *inputs: str) -> Node:
        """Brings the hidden states of all groups' tokens to each ("all_gather"), or the sums over
        the groups to their own ("reduce_scatter").
        """
        size = Affine(ALL_TOKENS, self.model.hidden * self.precision.hidden_bytes)
        op = Op.make(family, self.plain, bytes=size, gpus=self.shard.groups)
        return Node(name, op, inputs)

    def kind(self, kind: str) -> Variant:
        """The variant of an elementwise kernel."""
        known = _KERNEL_KINDS.get(kind, kind)
        return Variant(dtype=self.precision.hidden, flags=((known, True),))
