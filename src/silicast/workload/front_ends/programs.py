"""Programs as graphs: PyTorch modules, and files by suffix. Frameworks are imported when needed.

A PyTorch module is copied with tensors that have sizes and no data, exported, and run once on such
tensors, forward and, for training, backward; :mod:`silicast.workload.front_ends.recorder` records
every operator that is dispatched.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError, unsupported
from silicast.core.packages import missing_package
from silicast.workload.front_ends.failures import import_failure
from silicast.workload.graphs.graph import Graph, require_countable

Ranges = Mapping[str, tuple[int, int | None]]
"""Smallest and largest value of dynamic dimensions by name; None = any."""


def require(framework: str, name: str = "") -> Any:
    """A framework that an extra installs.

    Raises:
        SilicastError: it is not installed.
    """
    try:
        return importlib.import_module(framework)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != framework:
            broken = f"{name or framework} is installed, but cannot be imported: {error}"
            hint = f"install it again: pip install --force-reinstall 'silicast[{framework}]'"
            raise import_failure(error) or unsupported(broken, framework, hint) from error
        raise missing_package(framework, field=framework) from None


def require_torch() -> Any:
    """PyTorch.

    Raises:
        SilicastError: it is not installed.
    """
    return require("torch", "PyTorch")


def graph_of(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    dynamic: Mapping[str, int] | None = None,
    dtype: str | None = None,
    autocast: str = "",
    name: str = "",
) -> Graph:
    """The work of one call of a module, or of one step of training it (without the optimizer).

    Args:
        module: a ``torch.nn.Module``, weights on any device ("meta" included), or a
            ``torch.export.ExportedProgram``. The module is not changed.
        args, kwargs: of the call. Only sizes and formats of tensors count.
        training: forward and backward in the module's own mode; else forward in ``eval`` mode.
            The pass ends in the result's ``loss``, or its only number, or in gradients that are
            given for all floating-point results.
        dynamic: values of an exported program's dynamic dimensions, as of ``read_program``.
        dtype: format that floating-point weights and inputs are cast to; "tf32" keeps fp32 and
            multiplies matrices in TF32.
        autocast: "fp16" or "bf16": automatic mixed precision with the lists of operators that
            ``torch.autocast("cuda")`` has; casts are kernels of the program. "" = none.
        name: of the graph; the module's class where it is left out.

    Returns:
        A graph with a block "forward" and, for training, a block "backward" whose nodes name the
        forward nodes that they read. Names of nodes are unique over both.

    Raises:
        SilicastError: PyTorch is missing, or the module cannot be exported.
    """
    torch = require_torch()
    from silicast.workload.front_ends import exported, torch_export

    if dtype is not None and dtype not in torch_export.CASTS:
        raise SilicastError(
            f"unknown format {dtype!r}",
            field="dtype",
            hint=f"one of {', '.join(torch_export.CASTS)}",
        )
    if autocast:
        torch_export.check_autocast(autocast, dtype)
    program = module
    if not isinstance(module, torch.export.ExportedProgram):
        program = torch_export.export(
            module,
            tuple(args),
            dict(kwargs or {}),
            training=training,
            dtype=dtype,
            autocast=autocast,
        )
    with torch_export.quiet():
        return exported.graph_of_program(
            program,
            name or type(module).__name__,
            training=training,
            dynamic=dynamic or {},
            dtype=dtype or "",
            autocast=autocast,
        )


def _read_pt2(path: Path, sizes: Mapping[str, int], training: bool) -> Graph:
    require_torch()
    from silicast.workload.front_ends import exported, pt2_archive

    program = pt2_archive.load_program(path)
    return exported.graph_of_program(program, path.stem, training=training, dynamic=sizes, dtype="")


def _ranges_pt2(path: Path, names: Iterable[str]) -> Ranges:
    require_torch()
    from silicast.workload.front_ends import exported, pt2_archive

    return exported.stated_ranges(pt2_archive.load_program(path), names)


def _read_onnx(path: Path, sizes: Mapping[str, int], training: bool) -> Graph:
    del training  # a file holds the forward pass
    require("onnx")
    from silicast.workload.front_ends import onnx_graph

    return onnx_graph.read_onnx(path, sizes)


def _read_tflite(path: Path, sizes: Mapping[str, int], training: bool) -> Graph:
    del training  # a file holds the forward pass
    from silicast.workload.front_ends.tflite_graph import read_tflite

    return read_tflite(path, sizes)


READERS: Mapping[str, Callable[[Path, Mapping[str, int], bool], Graph]] = {
    ".onnx": _read_onnx,
    ".pt2": _read_pt2,
    ".tflite": _read_tflite,
}
"""Suffix -> what reads such files."""
RANGES: Mapping[str, Callable[[Path, Iterable[str]], Ranges]] = {".pt2": _ranges_pt2}
"""Suffix -> what reads the ranges of sizes that such files state; ONNX states none."""


def suffixes() -> tuple[str, ...]:
    """What can be read, sorted.

    >>> suffixes()
    ('.onnx', '.pt2', '.tflite')
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
    with _named(path):
        read = READERS[path.suffix.casefold()]
        return require_countable(read(path, sizes or {}, training))


def stated_ranges(path: Path, names: Iterable[str]) -> Ranges:
    """Smallest and largest value (None = any) of a file's dynamic dimensions, as it states them.

    Args:
        names: as of :func:`read_program`; those that the file does not bound are left out.

    Raises:
        SilicastError: as of :func:`read_program`.
    """
    with _named(path):
        read = RANGES.get(path.suffix.casefold())
        return read(path, names) if read else {}


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Refuses what is no program's file; errors inside name it."""
    if path.suffix.casefold() not in READERS:
        raise SilicastError(
            f"no front end reads {path.suffix or 'files without a suffix'}",
            field="graph",
            file=str(path),
            hint=f"expected one of {', '.join(suffixes())}",
        )
    if not path.is_file():
        raise SilicastError("does not exist", kind="io", field="graph", file=str(path))
    try:
        yield
    except SilicastError as error:
        raise error.located(error.field or "graph", error.file or str(path)) from None
