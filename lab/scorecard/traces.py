"""Traced programs, kept between runs where ``SILICAST_TRACES`` names a folder for them.

Tracing takes seconds a model. A program is kept by what it is of and by the code that made it;
nothing is kept elsewhere.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from silicast.core.catalog import CATALOG
from silicast.core.hashing import content_hash, files_hash
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op_graph import read_op_graph, write_op_graph

TRACES = "SILICAST_TRACES"


def kept(name: str, of: str, trace: Callable[[], Graph], packages: Sequence[str] = ()) -> Graph:
    """A program, traced unless it is kept.

    Args:
        name: of the file, for people.
        of: everything that it depends on beside the code and the packages.
        packages: that the program comes from; another release may run something else.
    """
    folder = os.environ.get(TRACES)
    if not folder:
        return trace()
    releases = [
        f"{package} {importlib.metadata.version(package)}" for package in ("torch", *packages)
    ]
    path = Path(folder) / f"{name}-{content_hash([_code(), of, *releases])[:24]}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_op_graph(trace(), path)
    return read_op_graph(path)


@cache
def _code() -> str:
    folder = CATALOG.parent / "workload"
    parts = ("front_ends", "operators", "graphs")
    return files_hash(path for part in parts for path in sorted((folder / part).glob("*.py")))
