"""Files that hold programs, by suffix: each front end is one file that registers a reader."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from silicast.core.errors import SilicastError
from silicast.workload.graph import Graph

Reader = Callable[[Path, Mapping[str, int], bool], Graph]
"""From a path, the values of dynamic dimensions and whether to train, to a graph."""

_READERS: dict[str, Reader] = {}


def reads(*suffixes: str) -> Callable[[Reader], Reader]:
    """Registers a function that reads files of some suffixes (".onnx").

    Raises:
        ValueError: another function reads one of them.
    """

    def register(function: Reader) -> Reader:
        for suffix in suffixes:
            if _READERS.get(suffix, function) is not function:
                raise ValueError(f"two front ends read {suffix}")
            _READERS[suffix] = function
        return function

    return register


@cache
def _load() -> None:
    """Imports every front end; none imports its framework before it reads a file."""
    import silicast.workload.front_ends as package

    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith(("_program", "_file")):
            importlib.import_module(f"{package.__name__}.{module.name}")


def suffixes() -> tuple[str, ...]:
    """What can be read, sorted.

    >>> suffixes()
    ('.onnx', '.pt2')
    """
    _load()
    return tuple(sorted(_READERS))


def read_program(
    path: Path, sizes: Mapping[str, int] | None = None, *, training: bool = False
) -> Graph:
    """The graph of a program's file.

    Args:
        sizes: values of its dynamic dimensions by name.
        training: forward and backward; else forward.

    Raises:
        SilicastError: no front end reads such files, or the one that does refuses it.
    """
    _load()
    reader = _READERS.get(path.suffix.casefold())
    if reader is None:
        raise SilicastError(
            f"no front end reads {path.suffix or 'files without a suffix'}", field="graph",
            file=str(path), hint=f"expected one of {', '.join(suffixes())}",
        )  # fmt: skip
    if not path.is_file():
        raise SilicastError("does not exist", kind="io", field="graph", file=str(path))
    return reader(path, sizes or {}, training)
