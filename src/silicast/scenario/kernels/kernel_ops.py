"""All kernel ops of the contract, and the fields that every one takes.

Sizes are rank-local unless the op says otherwise. A dimension in ``lists`` may be a list with one
size a sequence. Ranges are what a scenario may hold; a kernel model may narrow them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

import silicast.scenario.kernels.tables as package
from silicast.scenario.kernels.tables._spec import OpSpec

COMMON = (
    "op",
    "dtype",
    "library",
    "library_version",
    "variant",
    "launch",
    "cache",
    "board",
    "configuration",
)
LAUNCHES = ("graph", "stream", "profiler")
"""Replayed, launched one by one, or the kernel's own duration as a profiler reports it."""
BOARDS = ("cool", "hot")
"""A board that has just begun, as where campaigns measure kernels one by one, or that has done the
same for seconds, as in passes of whole models."""
CACHES = ("cold", "warm", "between")
"""Operands come from memory, lie in L2 as far as they fit, or have seen a pass's other kernels run
since they were used."""


def _all_ops() -> dict[str, OpSpec]:
    """Every entry of ``OPS`` of every file of the package."""
    ops: dict[str, OpSpec] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_"):
            continue
        current = importlib.import_module(f"{package.__name__}.{module.name}").OPS
        if twice := ops.keys() & current.keys():
            raise ValueError(f"two files take {', '.join(sorted(twice))}")
        ops |= current
    return ops


OPS: Mapping[str, OpSpec] = _all_ops()
