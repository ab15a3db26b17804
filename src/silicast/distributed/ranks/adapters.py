"""Low-rank adapters beside frozen weights: what they add to a pass, and what it no longer needs.

A frozen product has no gradient of its weights; an adapter is two thin products beside it (Hu et
al. 2021), whose result is added to its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import final

from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Dim, Op, Variant
from silicast.workload.models.model import ModelConfig
from silicast.workload.training.backward import gradient_format
from silicast.workload.transformers.decoder import build_graph

FROZEN = "_frozen"
DOWN, UP = "_adapter_down", "_adapter_up"
UNPACKED = "_unpacked"
WIDE = 16.0
_OF_WEIGHTS = ("_grad_weight", "_grad_bias", "_grad_accumulated", "_grad_zeros")


@final
@dataclass(frozen=True, slots=True)
class RankAdapters:
    """Adapters of one rank.

    Attributes:
        rank: inner width.
        products: names of the products that have one ("qkv", "o", "gate_up", "down").
        frozen_bits: of a weight that is not trained; fewer than 16 are made 16 again before each
            product that reads them (Dettmers et al. 2023, QLoRA).
    """

    rank: int
    products: tuple[str, ...]
    frozen_bits: float = 16.0

    def added(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """The nodes of a layer with the adapters beside their products, in the format of these
        products' results.
        """
        for node in nodes:
            if not self._adapts(node):
                yield node
                continue
            sizes = dict(node.op.dims)
            m, n, k = sizes["m"], sizes["n"], sizes["k"]
            plain = Variant(dtype=gradient_format(node.op))
            yield replace(node, name=f"{node.name}{FROZEN}")
            down, up = f"{node.name}{DOWN}", f"{node.name}{UP}"
            yield self._product(down, m, self.rank, k, plain, node.inputs)
            yield self._product(up, m, n, self.rank, plain, (down,))
            assert isinstance(m, int)
            assert isinstance(n, int)
            added = replace(plain, flags=(("add", True),))
            op = Op.make("elementwise", added, elements=m * n, inputs=2)
            inputs = (f"{node.name}{FROZEN}", up)
            yield Node(node.name, op, inputs, output_bytes=node.output_bytes)

    def unpacked(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """The nodes of a pass with what makes frozen weights 16 bits wide before products of them:
        one kernel that reads the bits and writes 16.
        """
        for node in nodes:
            frozen = node.op.family == "gemm" and not _adapts(node.name)
            if self.frozen_bits >= WIDE or not frozen or "batch" in dict(node.op.dims):
                yield node
                continue
            sizes = dict(node.op.dims)
            n, k = sizes["n"], sizes["k"]
            assert isinstance(n, int)
            assert isinstance(k, int)
            moved = round(n * k * (self.frozen_bits / 8.0 + WIDE / 8.0) / 4.0)
            op = Op.make(
                "elementwise",
                Variant(dtype=gradient_format(node.op), flags=(("copy", True),)),
                elements=moved,
                inputs=1,
            )
            name = f"{node.name}{UNPACKED}"
            yield Node(name, op, node.inputs)
            yield replace(node, inputs=(*node.inputs, name))

    def _product(
        self, name: str, m: Dim, n: Dim, k: Dim, variant: Variant, inputs: tuple[str, ...]
    ) -> Node:
        assert isinstance(n, int)
        assert isinstance(k, int)
        op = Op.make("gemm", variant, m=m, n=n, k=k)
        return Node(name, op, inputs, parameter_bytes=2 * n * k)

    def parameters(self, nodes: Iterable[Node]) -> int:
        return sum(node.parameter_bytes // 2 for node in nodes if _adapts(node.name))

    def parameters_of(self, model: ModelConfig) -> int:
        """Of the adapters of a whole model.

        >>> from silicast.workload.models.lookup import find_model
        >>> RankAdapters(16, ("qkv", "o")).parameters_of(find_model("Llama-3.1-8B"))
        9437184
        """
        total = 0
        for block in build_graph(model).blocks:
            for sizes in (dict(node.op.dims) for node in block.nodes if self._adapts(node)):
                assert isinstance(sizes["n"], int)
                assert isinstance(sizes["k"], int)
                total += block.count * self.rank * (sizes["n"] + sizes["k"])
        return total

    def _adapts(self, node: Node) -> bool:
        return node.name in self.products and node.op.family == "gemm"

    def trained(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """The nodes of a backward pass without the gradients of frozen weights."""
        gone: dict[str, tuple[str, ...]] = {}
        for node in nodes:
            inputs = tuple(name for each in node.inputs for name in gone.get(each, (each,)))
            if node.name.endswith(_OF_WEIGHTS) and not _adapts(node.name):
                gone[node.name] = inputs
            else:
                yield replace(node, inputs=tuple(dict.fromkeys(inputs)))


def _adapts(name: str) -> bool:
    return DOWN in name or UP in name
