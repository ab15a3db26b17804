"""PyTorch programs: any module through ``torch.export``, without weights and without a GPU.

A module is copied with tensors that have sizes and no data, exported, and run once on such
tensors, forward and, for training, backward; :mod:`silicast.workload.front_ends.recorder` records
every operator that is dispatched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from silicast.core.errors import SilicastError
from silicast.workload.front_ends.program_file import require
from silicast.workload.graph import Graph


def graph_of(
    module: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
    training: bool = False, dynamic: Mapping[str, int] | None = None, dtype: str | None = None,
    name: str = "",
) -> Graph:  # fmt: skip
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
            f"unknown format {dtype!r}", field="dtype",
            hint=f"one of {', '.join(torch_export.CASTS)}",
        )  # fmt: skip
    program = module
    if not isinstance(module, torch.export.ExportedProgram):
        program = torch_export.export(
            module, tuple(args), dict(kwargs or {}), training=training, dtype=dtype
        )
    with torch_export.quiet():
        return exported.graph_of_program(
            program, name or type(module).__name__, training=training, dynamic=dynamic or {},
            dtype=dtype or "",
        )  # fmt: skip


def require_torch() -> Any:
    """PyTorch.

    Raises:
        SilicastError: it is not installed.
    """
    return require("torch", "PyTorch")
