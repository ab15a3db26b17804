"""Networks by name: op graphs that the catalog ships (``catalog/networks``), in any format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from silicast.core.catalog import catalog_files
from silicast.core.dtypes import BITS, recipe_for
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op_graph import NodeEntry, graph_of_file, read_graph_file


def network_file(name: str) -> Path | None:
    """The op graph that a name stands for; None = no such network.

    >>> [network_file(name) is not None for name in ("ResNet-50", "resnet50", "resnet51")]
    [True, True, False]
    """
    wanted = name.casefold().replace("-", "").replace("_", "")
    return next((path for path in catalog_files("networks", ".json") if path.stem == wanted), None)


def network_names() -> list[str]:
    """Networks that the catalog ships.

    >>> "resnet50" in network_names()
    True
    """
    return [path.stem for path in catalog_files("networks", ".json")]


def network_graph(path: Path, sizes: Mapping[str, int], dtype: str) -> Graph:
    """The network with all operations in one recipe, its weights as wide as that.

    Raises:
        SilicastError: as of :func:`.read_graph_file`; no such recipe.
    """
    file, recipe = read_graph_file(path), recipe_for(dtype)
    nodes = [_in_format(entry, recipe.name, recipe.weight_bits) for entry in file.nodes or []]
    return graph_of_file(msgspec.structs.replace(file, nodes=nodes), path.stem, sizes)


def _in_format(entry: NodeEntry, dtype: str, bits: float) -> NodeEntry:
    weights = entry.parameter_bytes
    if isinstance(weights, int):
        weights = int(weights * bits / BITS[entry.dtype])
    return msgspec.structs.replace(entry, dtype=dtype, parameter_bytes=weights)
