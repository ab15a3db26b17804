"""PyTorch programs: any module through ``torch.export``, without weights and without a GPU.

A module is copied with tensors that have sizes and no data, exported, and run once on such
tensors, forward and, for training, backward; :mod:`silicast.workload.front_ends.recorder` sees
every operator that is dispatched.
"""

from __future__ import annotations

import io
import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from silicast.core.errors import SilicastError
from silicast.workload.front_ends.program_file import require
from silicast.workload.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Sequence

CASTS = ("fp32", "bf16", "fp16", "fp64", "tf32")
EXPORTABLE = (
    "torch.export needs code whose path does not depend on values of tensors: use torch.cond, "
    "torch.where or a fixed size in its place, or give the part that can be exported"
)


def graph_of(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    dynamic: Mapping[str, int] | None = None,
    dtype: str | None = None,
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
        dynamic: values of an exported program's dynamic dimensions, by symbol ("s77") or by
            input and axis ("x.0").
        dtype: format that floating-point weights and inputs are cast to; "tf32" keeps fp32 and
            multiplies matrices in TF32.
        name: of the graph; the module's class where it is left out.

    Returns:
        A graph with a block "forward" and, for training, a block "backward" whose nodes name the
        forward nodes that they read. Names of nodes are unique over both.

    Raises:
        SilicastError: PyTorch is missing, or the module cannot be exported.
    """
    torch = require_torch()
    from silicast.workload.front_ends import exported

    if dtype is not None and dtype not in CASTS:
        raise SilicastError(
            f"unknown format {dtype!r}", field="dtype", hint=f"one of {', '.join(CASTS)}"
        )
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        program = _export(module, tuple(args), dict(kwargs or {}), training=training, dtype=dtype)
    found = name or type(module).__name__
    with _quiet():
        return exported.graph_of_program(
            program, found, training=training, dynamic=dynamic or {}, dtype=dtype or ""
        )


def require_torch() -> Any:
    """PyTorch.

    Raises:
        SilicastError: it is not installed.
    """
    return require("torch", "PyTorch")


def _export(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, training: bool, dtype: str | None
) -> Any:
    """An exported program of a copy of the module without data."""
    import torch

    from silicast.workload.front_ends.exported import TensorsOf, without_data

    if not isinstance(module, torch.nn.Module):
        raise SilicastError(
            f"expected a torch.nn.Module, found {type(module).__name__}", field="module",
            hint="wrap a function in a Module whose forward calls it",
        )  # fmt: skip
    cast = getattr(torch, {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16",
                           "fp64": "float64"}.get(dtype or "", ""), None)  # fmt: skip
    try:
        with _quiet(), without_data(cast) as strip:
            bare, args, kwargs = strip((module, args, kwargs))
            if not training:
                bare.eval()
            return torch.export.export(TensorsOf(bare), args, kwargs, strict=False)
    except SilicastError:
        raise
    except Exception as error:
        raise _refusal(module, error) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what PyTorch says on the way: what stops an export is in the error."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        said = io.StringIO()
        with warnings.catch_warnings(), redirect_stderr(said), redirect_stdout(said):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _refusal(module: Any, error: Exception) -> SilicastError:
    """Why a module cannot be exported: the line of the user's code, and what to give instead."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        inside = any(part in frame.filename for part in ("/torch/", "/silicast/", "<eval_with_key"))
        if not inside:
            where = f"{frame.filename}:{frame.lineno}"
    return SilicastError(
        f"cannot be exported: {type(error).__name__}: {said[:300]}",
        kind="unsupported", field=type(module).__name__, hint=EXPORTABLE, file=where,
    )  # fmt: skip
