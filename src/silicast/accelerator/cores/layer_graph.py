"""Layers in the order in which a network runs them, with the layers whose results each takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.graph_layers import einsum_of_op
from silicast.accelerator.counting.layer_table import PROGRAMS, graph_in, workload_of
from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import BEFORE, Graph
from silicast.workload.graphs.networks import network_file


@final
@dataclass(frozen=True)
class GraphLayer:
    """A product or convolution at its place in a network.

    Attributes:
        name: of its node; of a repeated block with the number of the repeat.
        einsum: what it computes.
        after: numbers of the layers whose results it takes, as they are or through operations
            that are not mapped.
    """

    name: str
    einsum: Einsum
    after: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class LayerGraph:
    """Layers of a network.

    Attributes:
        layers: in order of execution.
        left: kind -> how many operations are not mapped.
        notes: what of the file is not used, a line each.
    """

    layers: tuple[GraphLayer, ...]
    left: dict[str, int]
    notes: tuple[str, ...] = ()


def read_layer_graph(path: Path, sizes: dict[str, int]) -> LayerGraph:
    """The layers of a file, or of a network of the catalog by name; those of a list run one after
    the other.

    Raises:
        SilicastError: it cannot be read, or holds no product.
    """
    path = network_file(str(path)) or path
    if path.suffix.casefold() in PROGRAMS:
        return layer_graph_of(graph_in(path, sizes), str(path))
    workload = workload_of(path, sizes)
    layers: list[GraphLayer] = []
    for layer in workload.layers:
        for repeat in range(layer.count):
            name = layer.name if layer.count == 1 else f"{layer.name} {repeat}"
            after = (len(layers) - 1,) if layers else ()
            layers.append(GraphLayer(name, layer.einsum, after))
    notes = (
        *workload.notes,
        "layers of a list run one after the other, each on the last's results",
    )
    return LayerGraph(tuple(layers), workload.left, notes)


def layer_graph_of(graph: Graph, file: str = "") -> LayerGraph:
    """The products and convolutions of a graph, every repeat of its blocks.

    Raises:
        SilicastError: a size is still open, or nothing multiplies.
    """
    layers: list[GraphLayer] = []
    left: dict[str, int] = {}
    before: tuple[int, ...] = ()
    for block, repeat in graph.runs():
        origins: dict[str, tuple[int, ...]] = {BEFORE: before}
        for node in block.nodes:
            inputs = node.inputs or (BEFORE,)
            taken = _together([origins.get(name, ()) for name in inputs])
            einsum = einsum_of_op(node.op, node.name)
            if einsum is None:
                left[node.op.family] = left.get(node.op.family, 0) + 1
                origins[node.name] = taken
                continue
            name = node.name if block.count == 1 else f"{node.name} {repeat}"
            layers.append(GraphLayer(name, einsum, () if node.of_weights else taken))
            origins[node.name] = (len(layers) - 1,)
        if block.nodes:
            before = origins[block.nodes[-1].name]
    if not layers:
        raise SilicastError("holds no product and no convolution", file=file)
    return LayerGraph(tuple(layers), left)


def _together(groups: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({number for group in groups for number in group}))
