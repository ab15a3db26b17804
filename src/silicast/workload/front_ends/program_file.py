"""Files that hold programs, by suffix; a framework is imported when a file of it is read."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError
from silicast.workload.graph import Graph


def require(framework: str, name: str = "") -> Any:
    """A framework that an extra installs.

    Raises:
        SilicastError: it is not installed.
    """
    try:
        return importlib.import_module(framework)
    except ImportError:
        raise SilicastError(
            f"{name or framework} is not installed", kind="unsupported", field=framework,
            hint=f"pip install 'silicast[{framework}]'",
        ) from None  # fmt: skip


def _read_pt2(path: Path, sizes: Mapping[str, int], training: bool) -> Graph:
    require("torch", "PyTorch")
    from silicast.workload.front_ends import exported, pt2_archive

    program = pt2_archive.load_program(path)
    return exported.graph_of_program(program, path.stem, training=training, dynamic=sizes, dtype="")


def _read_onnx(path: Path, sizes: Mapping[str, int], training: bool) -> Graph:
    del training  # a file holds the forward pass
    require("onnx")
    from silicast.workload.front_ends import onnx_graph

    return onnx_graph.read_onnx(path, sizes)


READERS: Mapping[str, Callable[[Path, Mapping[str, int], bool], Graph]] = {
    ".onnx": _read_onnx, ".pt2": _read_pt2,
}  # fmt: skip
"""Suffix -> what reads such files."""


def suffixes() -> tuple[str, ...]:
    """What can be read, sorted.

    >>> suffixes()
    ('.onnx', '.pt2')
    """
    return tuple(sorted(READERS))


def read_program(
    path: Path, sizes: Mapping[str, int] | None = None, *, training: bool = False
) -> Graph:
    """The graph of a program's file.

    Args:
        sizes: values of its dynamic dimensions: by their name in the file ("s77", "batch_size"),
            by input and axis ("tokens.0"), or as "batch" and "seq_len" where just one dynamic
            dimension is first, or second, in inputs.
        training: forward and backward, where the file can be trained; else forward.

    Raises:
        SilicastError: no front end reads such files, the framework is missing, or the file is
            rejected; names it.
    """
    reader = READERS.get(path.suffix.casefold())
    if reader is None:
        raise SilicastError(
            f"no front end reads {path.suffix or 'files without a suffix'}", field="graph",
            file=str(path), hint=f"expected one of {', '.join(suffixes())}",
        )  # fmt: skip
    if not path.is_file():
        raise SilicastError("does not exist", kind="io", field="graph", file=str(path))
    try:
        return reader(path, sizes or {}, training)
    except SilicastError as error:
        raise SilicastError(
            error.message, kind=error.kind, field=error.field or "graph", hint=error.hint,
            file=error.file or str(path),
        ) from None  # fmt: skip
